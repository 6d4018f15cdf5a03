"""What one table cleans up, no other loses: tables that share metadata, files or folders, and other people's files."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog

import neve
from neve.catalog import entries, open_catalog
from neve.catalog.sql import EmbeddedCatalog
from neve.commit.neighbours import STAGING_FOLDER
from neve.errors import TableError, UserError
from neve.ops.maintenance import expire_snapshots
from neve.ops.maintenance.rewrite_data_files import RewriteDataFiles
from neve.ops.verb import Execution
from tests.support.servers import rest_server
from tests.support.tables import local

FAR = 2**50
KEEP_ONE = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
SPELLINGS: dict[str, Callable[[str], str]] = {
    "a URI": lambda path: path,
    "a plain path": lambda path: path.removeprefix("file://"),
    "a link": lambda path: path.replace("/real/", "/link/"),
}


def all_old(folder: Path) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (0, 0), follow_symlinks=False)


def ids(table: neve.Table) -> list[int]:
    return sorted(table.refresh().scan().to_arrow(engine="arrow")["id"].to_pylist())


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() and "catalog.db" not in path.name}


def lived(lake: neve.Lake, name: Any = "db.a", **options: Any) -> neve.Table:
    """A table with an old snapshot whose files nothing else references."""
    table = lake.create_table(name, "id bigint", **options)
    table.append([{"id": 1}])
    table.overwrite([{"id": 2}])
    return table


def head(table: neve.Table) -> str:
    return table.refresh().context.iceberg.metadata_location


def expire(table: neve.Table) -> Any:
    return table.refresh().expire_snapshots().older_than(FAR).retain_last(1)


def orphans(table: neve.Table) -> Any:
    return table.refresh().remove_orphan_files().allow_young().older_than(FAR).dry_run(False)


CLEANUPS: dict[str, Callable[[neve.Lake, neve.Table], Any]] = {
    "expire": lambda lake, t: expire(t).execute(),
    "orphans": lambda lake, t: orphans(t).execute(),
    "purge": lambda lake, t: lake.drop_table(t.name, purge=True),
}


@pytest.fixture
def two_names(tmp_path: Path) -> Path:
    """A place with a folder that is `real`, and also `link`."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    return tmp_path


@pytest.fixture(params=["one catalog", "two catalogs in one database", "two lakes"])
def twins(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[neve.Lake, neve.Table, neve.Lake, neve.Table]:
    """The same metadata registered under two names."""
    if request.param == "two catalogs in one database":
        uri = f"sqlite:///{tmp_path}/both.db"
        lakes = [
            neve.connect(catalog=SqlCatalog(name, uri=uri, warehouse=f"file://{tmp_path}/{name}"))
            for name in ("first", "second")
        ]
    elif request.param == "two lakes":
        lakes = [neve.connect(tmp_path / "first"), neve.connect(tmp_path / "second")]
    else:
        lakes = [neve.connect(tmp_path / "first")] * 2
    table = lived(lakes[0])
    twin = lakes[1].register_table("db.b", head(table))
    return lakes[0], table, lakes[1], twin


@pytest.mark.parametrize("cleanup", CLEANUPS)
def test_a_table_under_two_names_is_not_cleaned_up(twins: Any, cleanup: str):
    lake, table, other, twin = twins
    before = files_below(local(table.context.metadata.location))
    with pytest.raises(UserError, match=r"the same table has another entry, db\.a"):
        CLEANUPS[cleanup](other, twin)
    with pytest.raises(UserError, match=r"the same table has another entry, db\.b"):
        CLEANUPS[cleanup](lake, table)
    assert files_below(local(table.context.metadata.location)) == before
    assert ids(table) == ids(twin) == [2] and len(twin.refresh().context.metadata.snapshots) == 2


def test_files_that_the_other_name_references_are_kept_if_it_is_allowed(twins: Any):
    _, table, _, twin = twins
    twin.append([{"id": 3}])
    table.append([{"id": 4}])
    old = [s.snapshot_id for s in table.refresh().context.metadata.snapshots]
    plan = expire(twin).allow_shared().plan()
    assert plan.files == () and len(plan.left.shared) > 2 and "that db.a" in plan.explain()
    done = expire(twin).allow_shared().execute()
    assert done.files_deleted == 0 and any("db.a" in reason for reason in done.files_kept.values())
    assert orphans(twin).allow_shared().execute().orphans == ()
    assert ids(twin) == [2, 3] and ids(table) == [2, 4] and table.verify().is_sound
    for snapshot in old:
        table.refresh().scan(snapshot_id=snapshot).to_arrow(engine="arrow")


@pytest.mark.parametrize(("name", "other"), [(("a", "b.c"), ("a", "b", "c")), (("a.b", "c"), ("a", "b.c"))])
def test_names_with_dots_are_compared_by_their_parts(tmp_path: Path, name: tuple[str, ...], other: tuple[str, ...]):
    lake = neve.connect(tmp_path)
    table = lived(lake, name)
    assert expire(table).plan().files, "it is no twin of itself"
    twin = lake.register_table(other, head(table))
    for cleanup in (expire(table).execute, lambda: lake.drop_table(name, purge=True)):
        with pytest.raises(UserError, match=r"the same table has another entry, a\.b\.c"):
            cleanup()
    assert ids(twin) == [2]


def test_a_dropped_name_leaves_the_other_free(twins: Any):
    lake, _, other, twin = twins
    lake.drop_table("db.a")
    assert expire(twin).execute().files_deleted > 2
    assert ids(twin) == [2] and other.drop_table("db.b", purge=True).files_deleted > 2


@pytest.mark.parametrize("folder", ["first", f"{STAGING_FOLDER}1/first"])
def test_history_that_goes_on_in_an_unknown_catalog_is_seen(tmp_path: Path, folder: str):
    """The other catalog cannot be asked, but it commits to the same folder, whatever the folders above are called."""
    lake = neve.connect(tmp_path / folder)
    table = lived(lake)
    other = SqlCatalog("other", uri=f"sqlite:///{tmp_path}/other.db", warehouse=f"file://{tmp_path}/second")
    twin = neve.connect(catalog=other).register_table("db.b", head(table))
    twin.append([{"id": 3}])
    twin.append([{"id": 4}])
    for cleanup in CLEANUPS.values():
        with pytest.raises(UserError, match=r"another entry, .*metadata\.json in another catalog"):
            cleanup(lake, table)
    assert orphans(table).allow_shared().execute().orphans == ()
    assert ids(twin) == [2, 3, 4] and twin.verify().is_sound


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("other", ["real/lake", "second"])
def test_metadata_that_another_name_points_to_is_not_retired(two_names: Path, other: str, spelling: str):
    table = lived(neve.connect(two_names / "real/lake"), properties=KEEP_ONE)
    twin = neve.connect(two_names / other).register_table("db.b", SPELLINGS[spelling](head(table)))
    for id_ in (3, 4, 5):
        table.append([{"id": id_}])
    table.set_properties(x="y")
    table.set_properties(x="z")
    assert ids(twin) == [2] and ids(table) == [2, 3, 4, 5]


@pytest.mark.parametrize("max_loaded", [100, 0])
def test_metadata_that_an_entry_of_a_server_points_to_is_not_retired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_loaded: int
):
    """Only loading an entry tells where its metadata is; if there are too many, every file stays."""
    monkeypatch.setattr("neve.catalog.entries._MAX_LOADED", max_loaded)
    with rest_server(EmbeddedCatalog(tmp_path / "lake")) as server:
        lake = neve.connect(catalog=open_catalog("rest", type="rest", uri=server.uri))
        table = lived(lake, location=f"file://{tmp_path}/elsewhere", properties=KEEP_ONE)
        twin = lake.register_table("db.b", head(table))
        before = len(files_below(tmp_path / "elsewhere/metadata"))
        for value in "abcd":
            table.set_properties(x=value)
        assert ids(twin) == [2]
        stayed = len(files_below(tmp_path / "elsewhere/metadata")) - before
        assert stayed == (1 if max_loaded else 4), "only the file of the twin stays, if the twin could be asked"


def test_copies_with_the_same_id_elsewhere_are_no_twins(tmp_path: Path):
    """A table that was copied to another place keeps its id."""
    lake = neve.connect(tmp_path / "lake")
    table = lived(lake)
    metadata = json.loads(local(head(table)).read_text())
    metadata |= {"location": f"file://{tmp_path}/copy", "snapshots": [], "refs": {}, "current-snapshot-id": -1}
    (tmp_path / "copy/metadata").mkdir(parents=True)
    (tmp_path / "copy/metadata/00000-x.metadata.json").write_text(json.dumps(metadata))
    lake.register_table("db.copy", f"file://{tmp_path}/copy/metadata/00000-x.metadata.json")
    assert expire(table).execute().files_deleted > 2 and orphans(table).execute().orphans == ()


def test_a_table_inside_another_one_is_left_alone(tmp_path: Path):
    """Its metadata is elsewhere, so that only the catalog knows of it."""
    lake = neve.connect(tmp_path / "lake")
    outer = lived(lake)
    place = local(outer.context.metadata.location)
    properties = {"write.metadata.path": f"file://{tmp_path}/elsewhere"}
    inner = lived(lake, "db.b", location=f"file://{place}/b", properties=properties)
    all_old(tmp_path)
    expire(inner).execute()
    plan = orphans(outer).allow_any_name().plan()
    assert plan.files == () and plan.other_tables == (f"file://{place}/b",)
    orphans(outer).allow_any_name().execute()
    assert ids(inner) == ids(outer) == [2] and inner.verify().is_sound
    assert lake.drop_table("db.a", purge=True).files_deleted > 2
    assert ids(inner) == [2] and inner.verify().is_sound


@pytest.mark.parametrize("spelling", ["shared", "link"])
def test_a_data_folder_of_two_tables_is_searched_without_harm(tmp_path: Path, spelling: str):
    lake = neve.connect(tmp_path / "lake")
    (tmp_path / "shared").mkdir()
    (tmp_path / "link").symlink_to("shared")
    table = lived(lake, properties={"write.data.path": f"file://{tmp_path}/shared"})
    other = lived(lake, "db.b", properties={"write.data.path": f"file://{tmp_path}/{spelling}"})
    (tmp_path / "shared/lost.parquet").write_bytes(b"")
    all_old(tmp_path)
    search = orphans(table).location(f"file://{tmp_path}/shared")
    assert search.plan().files == (f"file://{tmp_path}/shared/lost.parquet",)
    assert search.plan().shared == {"db.b": 2} and "2 files that db.b references" in search.plan().explain()
    search.execute()
    assert ids(other) == ids(table) == [2] and other.verify().is_sound


@pytest.mark.parametrize("path_property", ["write.data.path", "write.metadata.path"])
@pytest.mark.parametrize(("name", "other"), [("link", "real"), ("real", "link")])
def test_files_in_a_folder_with_two_names_are_no_orphans(two_names: Path, path_property: str, name: str, other: str):
    folder, lost = path_property.split(".")[1], two_names / "real/t/data/lost.parquet"
    properties = {path_property: f"file://{two_names}/{other}/t/{folder}"}
    table = lived(neve.connect(two_names / "lake"), location=f"file://{two_names}/{name}/t", properties=properties)
    lost.write_bytes(b"")
    all_old(two_names)
    assert orphans(table).execute().orphans == (f"file://{two_names}/{name}/t/data/lost.parquet",)
    assert not lost.exists() and ids(table) == [2] and table.verify().is_sound


def test_an_expired_file_that_the_table_also_has_by_another_name_stays(two_names: Path):
    lake = neve.connect(two_names / "lake")
    table = lived(lake, location=f"file://{two_names}/real/t")
    oldest = table.refresh().context.metadata.snapshots[0].snapshot_id
    old_file = table.scan(snapshot_id=oldest).plan().files["file_path"][0].as_py()
    lake.catalog.load_table("db.a").add_files([old_file.replace("/real/", "/link/")])
    assert expire(table).execute().files_deleted > 2
    assert ids(table) == [1, 2]


def test_a_file_that_a_neighbour_commits_after_the_plan_stays(tmp_path: Path):
    lake = neve.connect(tmp_path / "lake")
    shared = {"write.data.path": f"file://{tmp_path}/shared"}
    table, other = lived(lake, properties=shared), lived(lake, "db.b", properties=shared)
    slow = tmp_path / "shared/slow.parquet"
    shutil.copy(local(other.refresh().scan().plan().files["file_path"][0].as_py()), slow)
    search = orphans(table).location(f"file://{tmp_path}/shared")
    plan = search.plan()
    assert plan.files == (f"file://{slow}",)
    lake.catalog.load_table("db.b").add_files([f"file://{slow}"])
    assert search._write(table.refresh().context, plan, Execution()).orphans == ()
    assert ids(other) == [2, 2]


def test_what_other_people_keep_in_the_folder_is_left_alone(tmp_path: Path):
    place = tmp_path / "home"
    theirs = {
        place / name for name in ("thesis.docx", "data/notes.txt", "photos/1.parquet", "b.parquet", "metadata/x.md")
    }
    for path in theirs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("precious")
    table = lived(neve.connect(tmp_path / "lake"), location=f"file://{place}")
    (place / "data/lost.parquet").write_bytes(b"")
    all_old(tmp_path)
    search = orphans(table)
    assert search.plan().files == (f"file://{place}/data/lost.parquet",) and search.plan().files_foreign == 5
    assert "leave 5 files that no Iceberg writer makes" in search.plan().explain()
    search.execute()
    assert all(path.read_text() == "precious" for path in theirs)
    assert len(orphans(table).allow_any_name().plan().files) == 5


def test_folders_that_the_table_has_files_in_are_its_own(tmp_path: Path):
    """Tables that were migrated keep their files in folders of partitions, directly below their location."""
    lake = neve.connect(tmp_path / "lake")
    place = tmp_path / "t"
    table = lake.create_table(
        "db.t",
        "id bigint, day int",
        ["day"],
        location=f"file://{place}",
        properties={"write.data.path": f"file://{place}"},
    )
    table.append([{"id": 1, "day": 1}])
    for folder in ("day=1", "day=2"):
        (place / folder).mkdir(exist_ok=True)
        (place / folder / "lost.parquet").write_bytes(b"")
    all_old(tmp_path)
    table.set_properties(**{"write.data.path": f"file://{place}/data"})
    assert orphans(table).plan().files == (f"file://{place}/day=1/lost.parquet",)


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("/", "a whole disk"),
        ("file:///", "a whole disk"),
        ("file://host/folder/t", "local files have no host"),
        ("file:folder/t", "local files have no host"),
        ("s3:///folder/t", "names no bucket"),
        ("s3://bucket/../t", "segments"),
        ("/tmp/../t", "segments"),
    ],
)
def test_places_that_cannot_be_meant_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str, reason: str
):
    monkeypatch.chdir(tmp_path)
    lake = neve.connect(tmp_path / "lake")
    with pytest.raises(UserError, match=f"Cannot create a table at '{location}': .*{reason}"):
        lake.create_table("db.t", "id bigint", location=location)
    assert lake.tables() == [] and [path.name for path in tmp_path.iterdir()] == ["lake"]


def damage(table: neve.Table) -> None:
    local(head(table)).write_text("{")


def lose(table: neve.Table) -> None:
    local(head(table)).unlink()


def make_unreadable(table: neve.Table) -> None:
    """Let the storage fail when the metadata is read, as a disk does that is down for a moment."""
    path = local(head(table))
    path.rename(path.with_suffix(".moved"))
    path.mkdir()


@pytest.mark.parametrize("harm", [damage, lose])
def test_a_damaged_table_elsewhere_stops_nobody(tmp_path: Path, harm: Callable[[neve.Table], None]):
    lake = neve.connect(tmp_path / "lake")
    table, broken = lived(lake), lived(lake, "db.broken")
    harm(broken)
    assert expire(table).execute().files_deleted > 2
    assert orphans(table).execute().orphans == ()


@pytest.mark.parametrize(("harm", "is_inside"), [(damage, True), (lose, True), (make_unreadable, False)])
def test_an_entry_that_cannot_be_read_stops_clean_up(
    tmp_path: Path, harm: Callable[[neve.Table], None], is_inside: bool
):
    """It may use files of the table: it lies inside, or it may be anywhere and is back in a moment."""
    lake = neve.connect(tmp_path / "lake")
    table = lived(lake)
    location = f"{table.context.metadata.location}/data" if is_inside else None
    broken = lived(lake, "db.broken", location=location)
    harm(broken)
    all_old(tmp_path)
    before = files_below(tmp_path)
    for cleanup in CLEANUPS.values():
        with pytest.raises(
            UserError, match=r"db\.broken cannot be read, and may use the same files\. .*\.metadata\.json"
        ):
            cleanup(lake, table)
    assert files_below(tmp_path) == before and ids(table) == [2]
    assert expire(table).allow_unreadable().execute().files_deleted > 2
    assert orphans(table).allow_unreadable().plan().other_tables == ((location,) if is_inside else ())
    assert lake.drop_table("db.a", purge=True, allow_unreadable=True).files_deleted > 2


def test_a_known_twin_that_cannot_be_read_now_stops_clean_up(tmp_path: Path):
    """`allow_shared` trusts that the files of the twin are known."""
    lake = neve.connect(tmp_path / "lake")
    table = lived(lake)
    twin = lake.register_table("db.b", head(table))
    twin.append([{"id": 3}])
    make_unreadable(twin)
    before = files_below(tmp_path)
    for verb in (expire(table), orphans(table)):
        with pytest.raises(UserError, match=r"db\.b cannot be read"):
            verb.allow_shared().execute()
    assert files_below(tmp_path) == before


def test_metadata_of_a_kind_that_nobody_knows_counts_where_its_table_is(tmp_path: Path):
    lake = neve.connect(tmp_path / "lake")
    table = lived(lake)
    own = table.context.metadata.location
    for name, location in (("db.elsewhere", f"file://{tmp_path}/elsewhere"), ("db.inside", own)):
        other = lived(lake, name)
        path = local(head(other))
        document = {**json.loads(path.read_text()), "format-version": 9, "location": location}
        path.write_text(json.dumps(document))
        if location == own:
            with pytest.raises(UserError, match=r"db\.inside cannot be read"):
                expire(table).execute()
        else:
            assert expire(table).plan().files


def test_an_entry_that_moves_on_while_it_is_read_is_read_where_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lake = neve.connect(tmp_path / "lake")
    table = lived(lake)
    twin = lake.register_table("db.b", head(table))
    list_rows = type(lake.catalog).list_rows
    listed: list[Any] = []

    def list_once_before_a_commit(catalog: Any) -> Any:
        rows = list_rows(catalog)
        if not listed:
            listed.append(rows)
            old = head(twin)
            twin.append([{"id": 3}])
            table.append([{"id": 4}])  # nothing needs the old file any more
            local(old).unlink()
        return rows

    monkeypatch.setattr(type(lake.catalog), "list_rows", list_once_before_a_commit)
    with pytest.raises(UserError, match=r"another entry, db\.b"):
        expire(table).execute()
    assert listed


def test_a_note_that_cannot_be_read_and_a_noted_lake_that_is_gone_stop_clean_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    table = lived(neve.connect(tmp_path / "first"))
    neve.connect(tmp_path / "second").register_table("db.b", head(table))
    (note,) = tmp_path.rglob(".neve-lake-*")
    (tmp_path / "second" / "catalog.db").rename(tmp_path / "unmounted.db")
    with pytest.raises(UserError, match=r"the lake .*second cannot be read.*delete the files \.neve-lake-"):
        expire(table).execute()
    assert expire(table).allow_unreadable().plan().files

    def read_file(io: Any, path: str, *limit: int) -> bytes:
        raise TableError(f"Cannot read {path}: Permission denied.")

    monkeypatch.setattr(entries, "read_file", read_file)
    with pytest.raises(UserError, match=rf"the lake of a note cannot be read.*{note.name}: Permission denied"):
        expire(table).execute()


def test_snapshots_that_have_expired_are_reported_even_if_their_files_must_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """An entry stops answering between the commit and the deletion."""
    lake = neve.connect(tmp_path / "lake")
    table, other = lived(lake), lived(lake, "db.b")
    commit = expire_snapshots.commit_updates

    def commit_beside_a_writer(*arguments: Any) -> Any:
        commit(*arguments)
        table.append([{"id": 3}])
        make_unreadable(other)

    monkeypatch.setattr(expire_snapshots, "commit_updates", commit_beside_a_writer)
    result = expire(table).execute()
    assert result.snapshot_ids and result.files_deleted == 0
    assert any("db.b cannot be read" in reason for reason in result.files_kept.values())


def test_a_server_that_cannot_load_an_entry_stops_clean_up(tmp_path: Path):
    with rest_server(EmbeddedCatalog(tmp_path / "lake")) as server:
        lake = neve.connect(catalog=open_catalog("rest", type="rest", uri=server.uri))
        table, _ = lived(lake), lived(lake, "db.b")

        def is_down(handler: Any, method: str, path: str) -> bool:
            is_b = path.endswith("/tables/b")
            if is_b:
                handler.answer(503)
            return is_b

        server.fault = is_down
        before = files_below(tmp_path)
        for cleanup in CLEANUPS.values():
            with pytest.raises(UserError, match=r"db\.b cannot be read, and may use the same files"):
                cleanup(lake, table)
        assert files_below(tmp_path) == before
        server.fault = None
        assert expire(table).execute().files_deleted > 2


@pytest.fixture
def table_in_a_busy_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[neve.Lake, neve.Table]]:
    """A table in the folder of another lake, whose catalog somebody has locked."""
    lake = neve.connect(tmp_path / "second")
    neve.connect(tmp_path / "first").create_table("db.other", "id bigint")
    table = lived(lake, location=f"file://{tmp_path}/first/t", properties=KEEP_ONE)
    monkeypatch.setattr("neve.catalog.entries._LOCK_WAIT_SECONDS", 0.1)
    with closing(sqlite3.connect(tmp_path / "first" / "catalog.db", isolation_level=None)) as holder:
        holder.execute("PRAGMA journal_mode = DELETE")  # as on file systems without shared memory; readers wait
        holder.execute("BEGIN EXCLUSIVE")
        yield lake, table


def test_a_lake_that_is_busy_stops_clean_up(table_in_a_busy_lake: tuple[neve.Lake, neve.Table], tmp_path: Path):
    lake, table = table_in_a_busy_lake
    before = files_below(tmp_path)
    for cleanup in CLEANUPS.values():
        with pytest.raises(UserError, match=rf"the lake {tmp_path}/first cannot be read.*database is locked"):
            cleanup(lake, table)
    assert files_below(tmp_path) == before
    assert expire(table).allow_unreadable().execute().files_deleted > 2


def test_metadata_is_not_retired_while_a_lake_is_busy(
    table_in_a_busy_lake: tuple[neve.Lake, neve.Table], tmp_path: Path
):
    _, table = table_in_a_busy_lake
    before = files_below(tmp_path)
    for value in "abc":
        table.set_properties(x=value)
    assert before < files_below(tmp_path)


@pytest.mark.parametrize("content", ["a text", "another database"])
def test_a_file_that_is_not_a_catalog_stops_nobody(tmp_path: Path, content: str):
    database = tmp_path / "catalog.db"
    if content == "a text":
        database.write_text("not a database " * 100)
    else:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("CREATE TABLE albums (title TEXT)")
    assert expire(lived(neve.connect(tmp_path / "lake"))).execute().files_deleted > 2


def test_maintenance_leaves_out_an_expiry_that_could_harm_another_entry(tmp_path: Path):
    lake = neve.connect(tmp_path / "lake")
    table = lived(lake, properties={"history.expire.max-snapshot-age-ms": "0"})
    for id_ in range(6):
        table.append([{"id": id_}])
    twin = lake.register_table("db.b", head(table))
    plan = table.refresh().maintain().plan()
    (rejected,) = plan.left_out
    assert rejected.is_rejected and "another entry, db.b" in plan.explain()
    assert "beyond the budget" not in plan.explain()
    result = table.refresh().maintain().execute()
    assert "rewrite_data_files" in dict(result.results) and result.summary.endswith("; expire_snapshots rejected")
    assert ids(twin) == ids(table)
    assert len(table.refresh().context.metadata.snapshots) > 8


def test_maintenance_reports_its_other_steps_if_an_entry_stops_answering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lake = neve.connect(tmp_path / "lake")
    table = lived(lake, properties={"history.expire.max-snapshot-age-ms": "0"})
    other = lived(lake, "db.b")
    for id_ in range(6):
        table.append([{"id": id_}])
    execute = RewriteDataFiles.execute

    def execute_and_break(verb: RewriteDataFiles) -> Any:
        make_unreadable(other)
        return execute(verb)

    monkeypatch.setattr(RewriteDataFiles, "execute", execute_and_break)
    result = table.refresh().maintain().execute()
    assert "rewrite_data_files" in dict(result.results)
    assert [step.verb for step in result.not_done if step.is_rejected] == ["expire_snapshots"]


def test_a_report_does_not_offer_an_expiry_that_is_rejected(tmp_path: Path):
    lake = neve.connect(tmp_path / "lake")
    table = lived(lake, properties={"history.expire.max-snapshot-age-ms": "0"})
    lake.register_table("db.b", head(table))
    page = table.report(tmp_path / "report.html").read_text()
    assert "another entry, db.b" in page and "expire_snapshots().execute()" not in page
    assert "maintain() has nothing to do" in page


def test_pyiceberg_catalogs_are_asked_too(tmp_path: Path):
    mine = load_catalog("mine", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    lake = neve.connect(catalog=mine)
    table = lived(lake)
    mine.register_table("db.b", head(table))
    with pytest.raises(UserError, match=r"another entry, db\.b"):
        expire(table).execute()
