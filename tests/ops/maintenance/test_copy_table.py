"""A copy of a table: everything is in it, the original stays, and nothing half done is left."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import neve
from neve.errors import CommitUnknown, NeveError, TableError, UserError
from neve.ops.maintenance import copy_table, rewrite_table_path
from neve.run import copy_files
from tests.support.copied_tables import evolved, files_below, history, registered, rows
from tests.support.foreign_tables import Foreign, checksum, foreign_tables, needs_fixtures, relocated
from tests.support.tables import local


@pytest.fixture
def lake(tmp_path: Path) -> neve.Lake:
    return neve.connect(tmp_path / "lake")


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_the_copy_outlives_the_original(lake, tmp_path: Path, version: int):
    t = evolved(lake, version)
    want, before = history(t), files_below(tmp_path / "lake" / "db" / "t")
    result = t.copy_to(tmp_path.as_uri() + "/copy", "db.copy").execute()
    assert files_below(tmp_path / "lake" / "db" / "t") == before
    copy = lake.table("db.copy")
    assert copy.context.iceberg.metadata_location == result.metadata_location
    assert copy.context.metadata.table_uuid != t.context.metadata.table_uuid
    lake.drop_table("db.t", purge=True)
    assert history(copy) == want and copy.verify().is_sound
    copy.append(rows([99]))
    copy.expire_snapshots().older_than(1 << 50).retain_last(1).execute()
    assert copy.refresh().verify().is_sound


def test_a_changed_copy_leaves_the_original_alone(lake, tmp_path: Path):
    t = evolved(lake, 2)
    want = history(t)
    t.copy_to(str(tmp_path / "copy"), "db.copy").execute()
    lake.drop_table("db.copy", purge=True)
    assert history(t) == want and t.verify().is_sound
    assert not [p for p in (tmp_path / "copy").rglob("*") if p.suffix in (".parquet", ".avro", ".puffin")]


def test_without_a_name_the_id_stays_and_the_catalog_too(lake, tmp_path: Path):
    t = evolved(lake, 3)
    result = t.copy_to(str(tmp_path / "copy")).execute()
    assert lake.tables() == ["db.t"]
    copy = registered(tmp_path / "other", result.metadata_location)
    assert copy.context.metadata.table_uuid == t.context.metadata.table_uuid
    assert history(copy) == history(t)


@pytest.mark.parametrize("version", [2, 4])
def test_an_interrupted_copy_is_continued(lake, tmp_path: Path, version: int):
    """As after a kill: some files are there, one is cut off, the metadata is not there."""
    t = evolved(lake, version)
    t.copy_to(str(tmp_path / "copy"), "db.first").execute()
    lake.drop_table("db.first")
    whole = files_below(tmp_path / "copy")
    data = sorted(p for p in (tmp_path / "copy" / "data").rglob("*.parquet") if "deletes" not in p.name)
    data[0].unlink()
    data[1].write_bytes(data[1].read_bytes()[:100])
    for path in (tmp_path / "copy").rglob("*.json"):  # also the note of the lake in which it was registered
        path.unlink()
    (tmp_path / "copy" / "data" / f".{'0' * 32}.part").write_bytes(b"part")
    result = t.copy_to(str(tmp_path / "copy"), "db.copy").execute()
    assert result.files_copied == 2 and result.files_present > 0
    found = files_below(tmp_path / "copy")
    assert {name: data for name, data in found.items() if not name.endswith(".part")} == whole
    assert lake.table("db.copy").verify().is_sound


@pytest.mark.parametrize("failing_name", [".metadata.json", ".avro", "-deletes.parquet"])
def test_a_failed_copy_removes_what_it_wrote(lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_name: str):
    t, write = evolved(lake, 2), rewrite_table_path.write_new_file

    def failing(io: Any, path: str, data: bytes) -> None:
        if path.endswith(failing_name):
            raise TableError("The disk is full.")
        write(io, path, data)

    monkeypatch.setattr(rewrite_table_path, "write_new_file", failing)
    with pytest.raises(NeveError, match="full"):
        t.copy_to(str(tmp_path / "copy"), "db.copy").execute()
    assert not files_below(tmp_path / "copy") and lake.tables() == ["db.t"]


def test_a_file_that_cannot_be_copied_fails_the_copy(lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    t, copy, count = evolved(lake, 2), copy_files.copy_file, iter(range(100))

    def failing(io: Any, source: str, target: str) -> int:
        if next(count) == 3:
            raise TableError(f"Cannot create {target}: no space left.")
        return copy(io, source, target)

    monkeypatch.setattr(copy_files, "copy_file", failing)
    with pytest.raises(TableError, match="no space left"):
        t.copy_to(str(tmp_path / "copy"), "db.copy").execute()
    assert not files_below(tmp_path / "copy")


def test_a_missing_data_file_is_named(lake, tmp_path: Path):
    t = evolved(lake, 2)
    path = local(t.inspect.files()["file_path"][0].as_py())
    path.unlink()
    with pytest.raises(TableError, match=path.name):
        t.copy_to(str(tmp_path / "copy"), "db.copy").execute()
    assert not files_below(tmp_path / "copy")


def test_a_name_that_is_taken_meanwhile_removes_the_copy(lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    t = evolved(lake, 2)
    lake.create_table("db.copy", "id bigint")
    monkeypatch.setattr(copy_table, "_refuse_taken_name", lambda context, name: None)
    with pytest.raises(UserError, match="already exists"):
        t.copy_to(str(tmp_path / "copy"), "db.copy").execute()
    assert not files_below(tmp_path / "copy")


def test_an_unknown_registration_keeps_the_files(lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    t = evolved(lake, 2)

    def lost(*arguments: Any) -> None:
        raise ConnectionError("The server went away.")

    monkeypatch.setattr(copy_table, "register_table", lost)
    with pytest.raises(CommitUnknown, match="went away") as raised:
        t.copy_to(str(tmp_path / "copy"), "db.copy").execute()
    assert history(registered(tmp_path / "other", raised.value.location)) == history(t)


def test_spark_copies_the_same_files(lake, tmp_path: Path, spark):
    t = evolved(lake, 2)
    here = t.copy_to(str(tmp_path / "here")).on_spark(False).execute()
    there = t.copy_to(str(tmp_path / "there")).on_spark().execute()
    assert (here.files_copied, here.bytes_copied) == (there.files_copied, there.bytes_copied)
    data = [
        {name: data for name, data in files_below(tmp_path / folder).items() if "deletes" not in name}
        for folder in ("here/data", "there/data")
    ]
    assert data[0] == data[1] and data[0]
    path = local(t.inspect.files()["file_path"][0].as_py())
    path.unlink()
    with pytest.raises(NeveError, match=path.name):
        t.copy_to(str(tmp_path / "gone")).on_spark().execute()
    assert not files_below(tmp_path / "gone")


def test_a_folder_with_other_files_is_rejected(lake, tmp_path: Path):
    t = evolved(lake, 2)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"holds 1 other file: .*notes\.txt"):
        t.copy_to(str(tmp_path / "copy"), "db.copy").plan()


def test_a_name_that_exists_is_rejected(lake, tmp_path: Path):
    with pytest.raises(UserError, match=r"db\.t: a table of that name exists"):
        evolved(lake, 2).copy_to(str(tmp_path / "copy"), "db.t").execute()


@pytest.mark.parametrize("below", ["", "/copy", "/data", "/.."])
def test_a_location_in_the_table_is_rejected(lake, below: str):
    t = evolved(lake, 2)
    with pytest.raises(UserError, match=r"overlaps|has `\.`"):
        t.copy_to(f"{t.context.metadata.location}{below}").plan()


@pytest.mark.parametrize(
    ("location", "name", "message"),
    [("", None, "location of the copy is ''"), (7, None, "is 7"), ("c", "copy", "needs a namespace")],
)
def test_bad_input_is_rejected(lake, location: Any, name: Any, message: str):
    with pytest.raises(UserError, match=message):
        evolved(lake, 2).copy_to(location, name).plan()


@needs_fixtures
@pytest.mark.parametrize("foreign", foreign_tables(), ids=lambda f: f.name.replace("/", "-"))
def test_tables_of_other_engines_are_copied(foreign: Foreign, lake, tmp_path: Path):
    if foreign.rows is None:
        pytest.skip("no engine could read it")
    t = lake.register_table("db.t", relocated(foreign.name, tmp_path / "made"))
    if foreign.name == "duckdb_equality_deletes/warehouse/mydb/mytable":  # old snapshots name files of another table
        with pytest.raises(TableError, match="a relative path"):
            t.copy_to(str(tmp_path / "copy"), "db.copy").execute()
        return
    t.copy_to(str(tmp_path / "copy"), "db.copy").execute()
    shutil.rmtree(tmp_path / "made")
    found = lake.table("db.copy").scan().to_arrow(engine="arrow")
    assert checksum().of(found)[:2] == (foreign.rows, foreign.checksum)
