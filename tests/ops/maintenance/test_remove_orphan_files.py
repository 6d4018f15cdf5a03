"""Orphans are found by what nothing leads to; whatever may still be needed stays."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.update import RemoveSnapshotRefUpdate

import neve
from neve.commit.actions import Append, DeleteFiles, RemovedFiles
from neve.commit.cleanup import Prefixes, find_orphans, is_hidden_file
from neve.commit.environment import Environment
from neve.errors import UnknownName, UserError
from tests.ops.maintenance.test_expire_snapshots import lived, statistics
from tests.support.aged_tables import DAY, Aged
from tests.support.coverage import on_versions
from tests.support.servers import ObjectStore
from tests.support.tables import local

VERSIONS = on_versions(1, 2, 3, 4)


@pytest.fixture
def aged(tmp_path: Path) -> Aged:
    """A table; its clock is days ahead of its files, so all of them are old."""
    aged = Aged.create(tmp_path)
    aged.append("a")
    aged.day(10)
    return aged


def stray(aged: Aged, *paths: str, days: float = 30) -> set[str]:
    """Files nobody knows, as old as said by the clock of the table."""
    when = aged.now_ms / 1000 - days * DAY / 1000
    for path in paths:
        file = aged.kit.folder / "db" / "t" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"stray")
        os.utime(file, (when, when))
    return set(paths)


def found(aged: Aged, **asked: Any) -> set[str]:
    """The orphans of a plan, as seen from the folder of the table."""
    search = aged.table.remove_orphan_files()
    for name, value in asked.items():
        search = getattr(search, name)(value)
    return aged.relative(search.plan().files)


@VERSIONS
def test_orphan_dry_run_equals_run(tmp_path: Path, version: int):
    aged = Aged.create(tmp_path, version)
    lived(aged, version)
    aged.day(10)
    everything = set(aged.kit.files_on_disk())
    strays = stray(aged, "data/0.parquet", "data/region=eu/y.parquet", "metadata/z-m0.avro", "metadata/00001-a.stats")
    search = aged.table.remove_orphan_files()
    plan, told = search.plan(), search.execute()
    assert (told.dry_run, told.files_deleted, aged.relative(told.orphans)) == (True, 0, strays)
    assert set(aged.kit.files_on_disk()) == everything | strays, "a dry run deletes nothing"
    done = search.dry_run(False).execute()
    assert done.orphans == plan.files == told.orphans and done.files_deleted == 4 and done.bytes == plan.bytes == 20
    assert set(aged.kit.files_on_disk()) == everything and aged.on_disk() == aged.in_use()
    assert search.dry_run(False).execute().summary == "0 orphans found, 0 deleted"


def test_what_expiry_leaves_behind_is_found(aged: Aged):
    aged.commit(DeleteFiles(RemovedFiles.of(aged.kit.path("a"))))
    aged.append("b")
    aged.table.expire_snapshots().older_than(aged.now_ms).cleanup("none").execute()
    aged.day(10)
    left = aged.on_disk() - aged.in_use()
    assert "data/a.parquet" in left and found(aged) == left, "a tombstone needs no file"


def test_orphan_age_guard(aged: Aged):
    old, _ = stray(aged, "data/old.parquet", days=3.1), stray(aged, "data/young.parquet", days=2.9)
    assert found(aged) == old
    plan = aged.table.remove_orphan_files().plan()
    assert plan.files_young == 1 and "leave 1 file, too young" in plan.explain()
    assert found(aged, older_than=aged.now_ms - 2 * DAY) == {"data/old.parquet", "data/young.parquet"}
    search = aged.table.remove_orphan_files()
    for young in (aged.now_ms - DAY + 1, datetime.fromtimestamp(aged.now_ms / 1000, UTC) - timedelta(hours=23)):
        with pytest.raises(UserError, match="younger than 24 hours"):
            search.older_than(young).plan()
    stray(aged, "data/just.parquet", days=0.01)
    assert "data/just.parquet" in aged.relative(search.older_than(aged.now_ms).allow_young().plan().files)


def test_orphan_wap_stats_hint(aged: Aged):
    """Staged snapshots, snapshots under a tag, statistics, metadata files of the log and the version hint stay."""
    kit = aged.kit
    kit.branch("audit")
    aged.append("staged", branch="audit")
    kit.update(RemoveSnapshotRefUpdate(ref_name="audit"))
    kit.branch("tagged", kind="tag")
    aged.commit(DeleteFiles(RemovedFiles.of(kit.path("a"))))
    statistics(aged, kit.head_id, "head")
    stray(aged, "metadata/version-hint.text")
    aged.day(10)
    log = {entry.metadata_file for entry in kit.metadata.metadata_log} | {kit.table.metadata_location}
    assert found(aged) == set() and aged.relative(log) == {f for f in kit.files_on_disk() if f.endswith(".json")}
    lost = stray(aged, "metadata/00000-lost.metadata.json")
    odd = stray(aged, "data/version-hint.txt")
    assert found(aged) == lost and found(aged, allow_any_name=True) == lost | odd


def test_orphan_prefix_modes(aged: Aged):
    """The table has a file by a path that the listing spells with another authority."""
    kit = aged.kit
    odd = kit.data("odd").with_columns(file_path=[f"file://other{local(kit.path('odd'))}"])
    kit.ok(Append(odd))
    strays = stray(aged, "data/odd.parquet", "data/gone.parquet")
    search = aged.table.remove_orphan_files()
    with pytest.raises(UserError, match=r"with another scheme or authority: .*/data/odd\.parquet"):
        search.plan()
    with pytest.raises(UserError, match="equal_authorities"):
        search.dry_run(False).execute()
    ignored = search.prefix_mismatch_mode("ignore").plan()
    assert aged.relative(ignored.files) == {"data/gone.parquet"} and len(ignored.mismatched) == 1
    assert "the table has this path elsewhere" in ignored.explain()
    assert found(aged, equal_authorities={"other,another": ""}) == {"data/gone.parquet"}
    assert aged.relative(search.prefix_mismatch_mode("delete").plan().files) == strays
    search.prefix_mismatch_mode("ignore").dry_run(False).execute()
    assert local(kit.path("odd")).exists() and not local(kit.path("gone")).exists()
    with pytest.raises(UnknownName, match="prefix mismatch mode 'maybe'"):
        search.prefix_mismatch_mode("maybe")


@pytest.mark.parametrize(
    ("stored", "known", "fate"),
    [
        ("s3a://b/k", "s3://b/k", "known"),
        ("s3://b/k", "s3n://b/k", "known"),
        ("s3://b/k", "s3://c/k", "mismatch"),
        ("s3://b/k", "s3://b/K", "orphan"),
        ("hdfs://nn/x", "hdfs:/x", "known"),
        ("hdfs:/x", "hdfs://nn/x", "mismatch"),
        ("hdfs://nn/x", "/x", "mismatch"),
        ("file:///x", "/x", "known"),
        ("file:/x", "file:///x", "known"),
        ("HDFS://nn/x", "hdfs://nn/x", "known"),
        ("viewfs://a/x", "hdfs://a/x", "known"),
        ("hdfs://n2/x", "hdfs://n1/x", "known"),
        ("gs://b/x y\n%20", "gs://b/x y\n%20", "known"),
        ("gs://b/x%20y", "gs://b/x y", "orphan"),
    ],
)
def test_paths_are_the_same_file_by_scheme_authority_and_place(stored: str, known: str, fate: str):
    prefixes = Prefixes.of({"viewfs": "hdfs"}, {"n1, n2": "n"})
    done = find_orphans(pa.array([stored]), pa.array(["s3://other/file", known]), prefixes)
    told = "orphan" if done.orphans[0].as_py() else "mismatch" if done.mismatches[0].as_py() else "known"
    assert told == fate


@pytest.mark.parametrize(
    ("known", "fate"),
    [
        ("file://{}/real/x", "known"),
        ("{}/link/x", "known"),
        ("{}/link/../link/x", "known"),
        ("{}/real/y", "orphan"),
        ("file://host{}/link/x", "mismatch"),
        ("hdfs://host{}/real/x", "mismatch"),
    ],
)
def test_a_local_folder_with_two_names_is_one_folder(tmp_path: Path, known: str, fate: str):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    done = find_orphans(pa.array([f"file://{tmp_path}/link/x"]), pa.array([known.format(tmp_path)]), Prefixes())
    told = "orphan" if done.orphans[0].as_py() else "mismatch" if done.mismatches[0].as_py() else "known"
    assert told == fate


def test_names_that_chain_are_refused():
    with pytest.raises(UserError, match="what counts as 'b'"):
        Prefixes.of({"a": "b", "b": "c"}, {})


def test_hidden_names_are_left_alone(aged: Aged):
    stray(aged, ".hoodie/x", "_delta_log/0.json", "data/_temporary/1/f.parquet", "data/.f.parquet.crc")
    part = stray(aged, f"data/.{'0a' * 16}.part")
    assert found(aged) == part, "but what a killed writer of this engine left is an orphan"
    paths = pa.array(["l/_day=1/f", "l/_day=1/_f", "l/x/_night=1/f", "l/a_b/f"])
    assert is_hidden_file(paths, "l", ["_day"]).to_pylist() == [False, True, True, False]


def test_a_table_inside_the_place_of_another_is_left_alone(aged: Aged):
    stray(aged, "inner/metadata/00000-x.metadata.json", "inner/data/f.parquet", "data/f.parquet")
    plan = aged.table.remove_orphan_files().plan()
    assert aged.relative(plan.files) == {"data/f.parquet"}
    assert aged.relative(plan.other_tables) == {"inner"} and "it holds another table" in plan.explain()


def test_the_place_must_be_the_tables_own(aged: Aged, tmp_path: Path):
    strays = stray(aged, "data/x.parquet", "data/deep/y.parquet", "metadata/z.avro")
    where = aged.kit.location
    assert found(aged, location=f"{where}/data/") == {f for f in strays if f.startswith("data")}
    assert found(aged, location=f"{where}/data/deep") == {"data/deep/y.parquet"}
    for place in (str(tmp_path), f"file://{tmp_path}/db", "/"):
        with pytest.raises(UserError, match="Give a location inside the table"):
            found(aged, location=place)
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(UserError, match="has no file there"):
        found(aged, location=f"{tmp_path}/elsewhere")
    brought = aged.kit.data("b").with_columns(file_path=[f"{tmp_path}/elsewhere/b.parquet"])
    aged.kit.ok(Append(brought))
    (tmp_path / "elsewhere/b.parquet").write_bytes(b"")
    lost = tmp_path / "elsewhere/lost.parquet"
    lost.write_bytes(b"")
    assert aged.table.remove_orphan_files().location(f"{tmp_path}/elsewhere").plan().files == (str(lost),)


def test_the_place_of_another_table_is_never_taken(aged: Aged, tmp_path: Path):
    """Not even when the table has a file there, and not its parts either."""
    other = neve.connect(tmp_path / "lake").create_table("db.other", "id bigint")
    other.append([{"id": 1}])
    place = tmp_path / "lake/db/other"
    brought = aged.kit.data("b").with_columns(file_path=[f"{place}/data/b.parquet"])
    aged.kit.ok(Append(brought))
    (place / "data/b.parquet").write_bytes(b"")
    search = aged.table.remove_orphan_files().allow_young().older_than(2**50)
    plan = search.location(place).plan()
    assert (plan.files, plan.other_tables) == ((), (str(place),))
    with pytest.raises(UserError, match=f"{place} holds another table"):
        search.location(f"{place}/data").plan()
    strays = stray(aged, "inner/metadata/00000-x.metadata.json", "inner/data/f.parquet")
    assert found(aged, location=f"{aged.kit.location}/inner") == set()
    with pytest.raises(UserError, match="holds another table"):
        found(aged, location=f"{aged.kit.location}/inner/data")
    assert strays <= set(aged.kit.files_on_disk())


def all_old(folder: Path) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (0, 0))


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("version", [1, 2, 4])
def test_where_two_tables_share_a_folder_nothing_is_taken(tmp_path: Path, version: int, codec: str):
    lake = neve.connect(tmp_path / "lake")
    place, properties = (tmp_path / "both").as_uri(), {"write.metadata.compression-codec": codec}
    tables = [
        lake.create_table(name, "id bigint", location=place, format_version=version, properties=properties)
        for name in ("db.one", "db.other")
    ]
    for id_, table in enumerate(tables):
        table.append([{"id": id_}])
    all_old(tmp_path)
    for table in tables:
        search = table.remove_orphan_files().dry_run(False)
        for asked in (search, search.location(f"{place}/data"), search.location(f"{place}/metadata")):
            with pytest.raises(UserError, match=r"metadata.json is the metadata of another table"):
                asked.execute()
    assert [t.scan().to_arrow(engine="arrow")["id"].to_pylist() for t in tables] == [[0], [1]]
    assert all(t.verify().is_sound for t in tables)


def test_what_is_left_of_creations_and_of_older_metadata_is_taken(aged: Aged, tmp_path: Path):
    """A killed creation has no snapshots, version 1 began without ids, and a file may end too soon."""
    begun = neve.connect(tmp_path / "lake").create_table("db.u", "id bigint", format_version=1)
    text = local(begun.context.iceberg.metadata_location).read_text()
    left = {
        "metadata/00000-begun.metadata.json": text,
        "metadata/00000-torn.metadata.json": text[:100],
        "metadata/00000-empty.metadata.json": "",
        "metadata/v1.metadata.json": text.replace('"table-uuid"', '"no-uuid"'),
    }
    strays = stray(aged, *left)
    for path, written in left.items():
        (aged.kit.folder / "db/t" / path).write_text(written)
        os.utime(aged.kit.folder / "db/t" / path, (0, 0))
    assert found(aged) == strays


def test_an_odd_name_does_not_stop_the_others(aged: Aged):
    strays = stray(aged, "data/plain.parquet", "data/tab\there.parquet")
    done = aged.table.remove_orphan_files().dry_run(False).execute()
    assert (len(done.orphans), done.files_deleted) == (2, 1)
    assert list(done.files_kept.values()) == ["its name could mean another file"]
    assert strays & set(aged.kit.files_on_disk()) == {"data/tab\there.parquet"}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda t: t.remove_orphan_files().location(None),
        lambda t: t.remove_orphan_files().equal_schemes("s3"),
        lambda t: t.remove_orphan_files().equal_schemes({"s3": 1}),
        lambda t: t.remove_orphan_files().older_than(10**30),
        lambda t: t.expire_snapshots().retain_last("3"),
        lambda t: t.expire_snapshots().snapshot_ids([1, 2]),
        lambda t: t.expire_snapshots().older_than(datetime.min),
        lambda t: t.maintain().budget(bytes="x"),
    ],
)
def test_wrong_input_is_one_error(aged: Aged, wrong: Callable[[neve.Table], Any]):
    with pytest.raises(UserError, match=r"Give|Cannot|allows nothing"):
        wrong(aged.table)


def test_without_garbage_collection_nothing_is_looked_for(aged: Aged):
    strays = stray(aged, "data/x.parquet")
    aged.kit.set(**{"gc.enabled": "false"})
    for run in (aged.table.remove_orphan_files().plan, aged.table.remove_orphan_files().dry_run(False).execute):
        with pytest.raises(UserError, match=r"gc\.enabled is false"):
            run()
    assert strays <= set(aged.kit.files_on_disk())


def test_a_catalog_that_shows_some_snapshots_only_is_refused(aged: Aged):
    aged.kit.catalog.properties["snapshot-loading-mode"] = "refs"
    for verb in (aged.table.remove_orphan_files(), aged.table.expire_snapshots()):
        with pytest.raises(UserError, match="only some of its snapshots"):
            verb.plan()
    assert "expire_snapshots" not in {step.verb for step in aged.table.maintain().plan().steps}


def test_a_file_that_is_committed_meanwhile_stays(aged: Aged, monkeypatch: pytest.MonkeyPatch):
    """A slow job commits an old file after the listing, another one after the plan."""
    stray(aged, "data/slow.parquet", "data/slower.parquet", "data/lost.parquet")
    kit, search = aged.kit, aged.table.remove_orphan_files().dry_run(False)
    refresh, refreshed = kit.catalog.refresh_table, []

    def commit_before_refresh(table: Any) -> Any:
        refreshed.append(table)
        if len(refreshed) == 2:
            monkeypatch.undo()
            kit.ok(Append(kit.data("slow"), fast=True))
            monkeypatch.setattr(kit.catalog, "refresh_table", commit_before_refresh)
        if len(refreshed) == 3:
            monkeypatch.undo()
            kit.ok(Append(kit.data("slower"), fast=True))
        return refresh(table)

    monkeypatch.setattr(kit.catalog, "refresh_table", commit_before_refresh)
    done = search.execute()
    assert aged.relative(done.orphans) == {"data/lost.parquet"} and done.files_deleted == 1
    assert {"data/slow.parquet", "data/slower.parquet"} <= set(kit.files_on_disk())


def test_orphans_in_an_object_store(object_store: ObjectStore, tmp_path: Path):
    settings = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": "s3://lake/orphans", **object_store.properties}
    catalog = SqlCatalog("remote", **settings)
    catalog.create_tables()
    later = Environment(now_ms=lambda: time.time_ns() // 1_000_000 + 10 * DAY)
    table = neve.connect(catalog=catalog, environment=later).create_table("db.t", "id bigint")
    table.append(pa.table({"id": [1]}))
    path = f"{table.context.metadata.location}/data/lost.parquet"
    with table.context.io.new_output(path).create() as stream:
        stream.write(b"lost")
    search = table.remove_orphan_files()
    assert search.plan().files == (path,) and search.location(path.rsplit("/", 1)[0]).plan().files == (path,)
    assert search.dry_run(False).execute().files_deleted == 1
    assert search.plan().files == () and table.verify().is_sound


def test_what_lies_around_the_table_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A neighbour called metadata, or a warehouse that is given by a relative path."""
    lake = neve.connect(tmp_path / "lake")
    for name in ("db.metadata", "db.sales", "metadata.x"):
        lake.create_table(name, "id bigint").append([{"id": 1}])
    for name in ("db.metadata", "db.sales", "metadata.x"):
        assert lake.table(name).remove_orphan_files().plan().files == ()
    monkeypatch.chdir(tmp_path)
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse="wh")
    catalog.create_namespace("db")
    catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    assert neve.connect(catalog=catalog).table("db.t").remove_orphan_files().plan().files == ()
