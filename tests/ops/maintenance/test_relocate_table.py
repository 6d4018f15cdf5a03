"""A table moves to another folder: everything is there, under the same name and id, whoever writes meanwhile."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

import neve
from neve.catalog.sql import EmbeddedCatalog, SqlCatalogMixin
from neve.errors import CommitConflict, CommitUnknown, NeveError, TableError, UnsupportedFeature, UserError
from neve.ops.maintenance import relocate_table, rewrite_table_path
from neve.ops.maintenance.relocate_table import RelocateTable
from tests.support.copied_tables import evolved, files_below, history, rows
from tests.support.servers import rest_server
from tests.support.tables import ids_of, unchanged

VERSIONS = [1, 2, 3, 4]


@pytest.fixture
def lake(tmp_path: Path) -> neve.Lake:
    return neve.connect(tmp_path / "lake")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_table_has_its_whole_history_at_the_new_place(lake, tmp_path: Path, version: int):
    t = evolved(lake, version)
    want, identity, old = history(t), t.context.metadata.table_uuid, tmp_path / "lake" / "db" / "t"
    before = files_below(old)
    assert "point db.t to the copy" in t.relocate(str(tmp_path / "new")).explain()
    result = t.relocate(str(tmp_path / "new")).execute()
    assert result.is_move and result.summary.endswith("the table moved")
    assert files_below(old) == before
    shutil.rmtree(old)
    moved = lake.table("db.t")
    assert (moved.context.metadata.table_uuid, moved.iceberg.metadata_location) == (identity, result.metadata_location)
    assert moved.context.metadata.location == f"file://{tmp_path / 'new'}"
    assert history(moved) == want and moved.verify().is_sound
    moved.append(rows([99]))
    moved.delete().where("id = 2").execute()
    moved.rewrite_data_files().option("rewrite-all", True).execute()
    moved.expire_snapshots().older_than(1 << 50).retain_last(1).execute()
    assert ids_of(moved)[-1] == 99 and moved.refresh().verify().is_sound
    assert not old.exists()


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_written_during_the_copy_moves_too(lake, tmp_path: Path, version: int, monkeypatch):
    t, other = evolved(lake, version), lake.table("db.t")
    copy, rest = RelocateTable._write_copy, [70, 71]

    def with_a_writer(*args: Any, **named: Any) -> Any:
        copied = copy(*args, **named)
        if rest:
            other.append(rows([rest.pop()]))
        return copied

    monkeypatch.setattr(RelocateTable, "_write_copy", with_a_writer)
    t.relocate(str(tmp_path / "new")).execute()
    shutil.rmtree(tmp_path / "lake" / "db" / "t")
    assert {70, 71} <= {*ids_of(lake.table("db.t"))} and lake.table("db.t").verify().is_sound


@pytest.mark.parametrize("version", VERSIONS)
def test_a_writer_that_began_before_the_move_leaves_nothing_at_the_former_location(
    lake, tmp_path: Path, version: int, monkeypatch
):
    """An append is rejected, since its rows may be readable once; statements and changes of metadata run again."""
    t, writer = evolved(lake, version), lake.table("db.t")
    before, swap, moves, targets = ids_of(t), SqlCatalogMixin.swap, [t], iter("abc")

    def after_the_move(*args: Any, **named: Any) -> Any:
        if moves:
            moves.pop().relocate(tmp_path / next(targets)).execute()
        return swap(*args, **named)

    monkeypatch.setattr(SqlCatalogMixin, "swap", after_the_move)
    with pytest.raises(CommitConflict, match=r"The table was moved to .*/a while files were written"):
        writer.append(rows([80]))
    shutil.rmtree(tmp_path / "lake" / "db" / "t")
    moved = lake.table("db.t")
    assert ids_of(moved) == before and moved.verify().is_sound
    moves.append(lake.table("db.t"))
    assert moved.update().set("region", "'x'").where("id = 2").execute().reruns == 1
    shutil.rmtree(tmp_path / "a")
    moves.append(lake.table("db.t"))
    moved.refresh().rewrite_manifests().execute()
    shutil.rmtree(tmp_path / "b")
    left = lake.table("db.t")
    assert left.context.metadata.location == f"file://{tmp_path / 'c'}"
    assert ids_of(left) == before and ids_of(left, "region = 'x'") == [2] and left.verify().is_sound


def test_a_table_that_is_always_changed_stays_and_can_be_moved_later(lake, tmp_path: Path, monkeypatch):
    t, other = evolved(lake, 2).set_properties(**{"neve.commit.reruns": "1"}), lake.table("db.t")
    copy = RelocateTable._write_copy

    def with_a_writer(*args: Any, **named: Any) -> Any:
        copied = copy(*args, **named)
        other.append(rows([70]))
        return copied

    monkeypatch.setattr(RelocateTable, "_write_copy", with_a_writer)
    with pytest.raises(CommitConflict, match="Another writer changed the table while it was copied"):
        t.relocate(str(tmp_path / "new")).execute()
    assert t.refresh().context.metadata.location.endswith("/lake/db/t") and t.verify().is_sound
    assert not files_below(tmp_path / "new")
    monkeypatch.undo()
    t.relocate(str(tmp_path / "new")).execute()
    assert ids_of(lake.table("db.t")).count(70) == 2


@pytest.mark.parametrize("meanwhile", ["the log of metadata forgets", "snapshots expire", "the table is dropped"])
def test_what_the_first_attempt_copied_in_vain_is_deleted(lake, tmp_path: Path, monkeypatch, meanwhile: str):
    t = evolved(lake, 2).set_properties(**{"write.metadata.previous-versions-max": "3"})
    for number in range(4):
        t.set_properties(number=str(number))
    other, copy, races = lake.table("db.t"), RelocateTable._write_copy, [1]

    def with_a_writer(*args: Any, **named: Any) -> Any:
        copied = copy(*args, **named)
        if races:
            races.pop()
            if meanwhile == "the table is dropped":
                lake.drop_table("db.t")
                return copied
            other.append(rows([70]))
            if meanwhile == "snapshots expire":
                other.refresh().expire_snapshots().older_than(1 << 50).retain_last(1).execute()
        return copied

    monkeypatch.setattr(RelocateTable, "_write_copy", with_a_writer)
    if meanwhile == "the table is dropped":
        with pytest.raises(NeveError, match=r"db\.t"):
            t.relocate(tmp_path / "new").execute()
        assert not files_below(tmp_path / "new")
        return
    t.relocate(tmp_path / "new").execute()
    moved = lake.table("db.t")
    assert 70 in ids_of(moved) and moved.verify().is_sound
    assert not moved.remove_orphan_files().older_than(1 << 50).allow_young().plan().orphans.num_rows


def test_a_failed_copy_leaves_nothing(lake, tmp_path: Path, monkeypatch):
    t, write = evolved(lake, 2), rewrite_table_path.write_new_file

    def failing(io: Any, path: str, data: bytes) -> None:
        if path.endswith(".metadata.json"):
            raise TableError("The disk is full.")
        write(io, path, data)

    monkeypatch.setattr(rewrite_table_path, "write_new_file", failing)
    with unchanged(t), pytest.raises(NeveError, match="full"):
        t.relocate(str(tmp_path / "new")).execute()
    assert not files_below(tmp_path / "new")


@pytest.mark.parametrize("version", [2, 4])
def test_a_killed_move_is_continued(lake, tmp_path: Path, monkeypatch, version: int):
    """As after a kill: every file is copied, nothing is cleaned up, and the catalog was not asked yet."""
    t = evolved(lake, version)
    want = history(t)
    monkeypatch.setattr(relocate_table, "delete_files", lambda *_: {})
    monkeypatch.setattr(SqlCatalogMixin, "point_to", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with unchanged(t), pytest.raises(KeyboardInterrupt):
        t.relocate(tmp_path / "new").execute()
    monkeypatch.undo()
    result = t.relocate(tmp_path / "new").execute()
    assert (result.files_copied, result.files_present > 0) == (0, True)
    shutil.rmtree(tmp_path / "lake" / "db" / "t")
    assert history(lake.table("db.t")) == want and lake.table("db.t").verify().is_sound


@pytest.mark.parametrize("has_landed", [True, False])
def test_a_lost_answer_is_looked_up(lake, tmp_path: Path, monkeypatch, has_landed: bool):
    t, commit = evolved(lake, 2), Session.commit

    def losing(session: Session) -> None:
        if has_landed:
            commit(session)
        raise OperationalError("COMMIT", {}, Exception("the line was cut"))

    monkeypatch.setattr(Session, "commit", losing)
    if has_landed:
        t.relocate(str(tmp_path / "new")).execute()
    else:  # the row still has the old place, so that nothing landed; then it is tried again, in vain
        with pytest.raises(CommitConflict):
            t.relocate(str(tmp_path / "new")).execute()
    monkeypatch.undo()
    assert lake.table("db.t").context.metadata.location.endswith("/new" if has_landed else "/db/t")
    assert lake.table("db.t").verify().is_sound


def test_an_unknown_end_is_an_error_of_its_own(lake, tmp_path: Path, monkeypatch):
    t, commit = evolved(lake, 2), Session.commit

    def losing(session: Session) -> None:
        commit(session)
        monkeypatch.setattr(EmbeddedCatalog, "_current_location", unreachable)
        raise OperationalError("COMMIT", {}, Exception("the line was cut"))

    def unreachable(*args: Any, **named: Any) -> None:
        raise OperationalError("SELECT", {}, Exception("no answer"))

    monkeypatch.setattr(Session, "commit", losing)
    with pytest.raises(CommitUnknown, match=r"whether table db.t was moved .* All files are at both locations"):
        t.relocate(str(tmp_path / "new")).execute()
    monkeypatch.undo()
    assert lake.table("db.t").verify().is_sound


def test_a_catalog_that_chooses_metadata_files_is_an_error_before_anything_is_copied(tmp_path: Path):
    with rest_server(EmbeddedCatalog(tmp_path / "lake")) as server:
        catalog = load_catalog("rest", type="rest", uri=server.uri, warehouse=str(tmp_path))
        t = evolved(neve.connect(catalog=catalog), 2)
        with unchanged(t), pytest.raises(UnsupportedFeature, match=r"copy_to\(location\), drop it without its files"):
            t.relocate(str(tmp_path / "new")).execute()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("location", ["", "   "])
def test_locations_that_cannot_be_meant(lake, location: str):
    t = evolved(lake, 2)
    with unchanged(t), pytest.raises(UserError, match="Give the location of a folder"):
        t.relocate(location).execute()
    with unchanged(t), pytest.raises(UserError, match="overlaps the table's own folder"):
        t.relocate(t.context.metadata.location + "/inside").execute()
