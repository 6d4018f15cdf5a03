"""The embedded SQLite catalog and PostgreSQL: commits of many processes, and every way a swap can end."""

from __future__ import annotations

import json
import multiprocessing
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog as IcebergSqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, SetPropertiesUpdate, UpgradeFormatVersionUpdate
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from sqlalchemy import create_engine, event

from neve.catalog import (
    CatalogUnavailable,
    EmbeddedCatalog,
    LostRace,
    MaybeSwapped,
    NeveCatalog,
    NotSwapped,
    RequirementFailed,
    SwapStatus,
    create_table,
    list_tables,
    load_table,
    open_catalog,
    register_table,
)
from neve.errors import CommitUnknown, CorruptFile, MissingFile, TableError
from neve.model.metadata import TableMetadata
from neve.model.snapshots import AddSnapshot, Snapshot
from tests.support.servers import Postgres

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "name", StringType(), required=False))
WRITERS, COMMITS = 8, 10


@pytest.fixture(params=["sqlite", "postgresql"])
def spec(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, dict[str, str]]:
    """The options that open an empty catalog, in this or another process."""
    if request.param == "sqlite":
        return tmp_path / "lake", {}
    uri = request.getfixturevalue("server").uri
    return f"c{time.time_ns()}", {"type": "sql", "uri": uri, "warehouse": f"file://{tmp_path}/warehouse"}


@pytest.fixture
def catalog(spec: tuple[Any, dict[str, str]]) -> NeveCatalog:
    return open_catalog(spec[0], **spec[1])


@pytest.fixture
def table(catalog: NeveCatalog) -> Table:
    return create_table(catalog, "db.t", SCHEMA)


def put(key: str, value: str) -> list[Any]:
    return [SetPropertiesUpdate(updates={key: value})]


def metadata_files(table: Table) -> set[str]:
    folder = Path(table.location().removeprefix("file://")) / "metadata"
    return {f"file://{path}" for path in folder.iterdir()}


def commit_many(spec: Any, properties: dict[str, str], writer: int) -> None:
    """Run one writer process: retry every commit until it lands, and remove files of failed attempts."""
    catalog = open_catalog(spec, **properties)
    for i in range(COMMITS):
        while True:
            table = load_table(catalog, "db.t")
            try:
                catalog.swap(table, (), put(f"w{writer}-{i}", "1"))
                break
            except NotSwapped as lost:
                if lost.location:
                    table.io.delete(lost.location)
                time.sleep(0.005 * (writer + 1))


def test_eight_processes_commit_and_none_is_lost(spec: tuple[Any, dict[str, str]], table: Table) -> None:
    context = multiprocessing.get_context("fork")  # warm: eight fresh interpreters would cost more than the commits
    writers = [context.Process(target=commit_many, args=(*spec, n)) for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert [writer.exitcode for writer in writers] == [0] * WRITERS
    table.refresh()
    assert set(table.properties) == {f"w{n}-{i}" for n in range(WRITERS) for i in range(COMMITS)}
    log = [entry.metadata_file for entry in table.metadata.metadata_log]
    assert len(log) == len(set(log)) == WRITERS * COMMITS
    assert metadata_files(table) == {*log, table.metadata_location}  # no orphan is left


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_pyiceberg_evolves_tables_of_every_version(catalog: NeveCatalog, version: int) -> None:
    table = create_table(catalog, f"db.v{version}", SCHEMA, format_version=version)
    with table.update_schema() as schema:
        schema.add_column("more", IntegerType())
    with table.update_spec() as partitioning:
        partitioning.add_identity("name")
    with table.transaction() as transaction:
        transaction.set_properties({"owner": "me"})
    again = load_table(catalog, f"db.v{version}")
    assert again.schema().column_names == ["id", "name", "more"]
    assert [field.name for field in again.spec().fields] == ["name"]
    assert again.properties == {"owner": "me"}
    assert again.metadata.format_version == version
    assert isinstance(again.metadata, TableMetadata)


def snapshot_of(table: Table, snapshot_id: int, **more: Any) -> list[Any]:
    metadata: Any = table.metadata
    row = {
        "snapshot-id": snapshot_id, "sequence-number": metadata.last_sequence_number + 1, "timestamp-ms": 10**13,
        "manifest-list": f"file:///m/{snapshot_id}.avro", "summary": {"operation": "append"}, **more,
    }  # fmt: skip
    return [
        AddSnapshot(snapshot=Snapshot.model_validate({key: value for key, value in row.items() if value is not None}))
    ]


def test_pyiceberg_manages_snapshots_of_a_version_4_table(catalog: NeveCatalog) -> None:
    table = create_table(catalog, "db.v4", SCHEMA, format_version=4)
    rows = {"root-manifest": "file:///r.parquet", "manifest-list": None, "first-row-id": 0, "added-rows": 3}
    catalog.swap(table, (), snapshot_of(table, 7, **rows))
    table.refresh()
    table.manage_snapshots().create_branch(7, "audit").create_tag(7, "v1").commit()
    again = load_table(catalog, "db.v4")
    assert set(again.metadata.refs) == {"audit", "v1"}
    raw = json.loads(again.io.new_input(again.metadata_location).open().read())
    assert raw["snapshots"][0]["root-manifest"] == "file:///r.parquet"
    assert raw["next-row-id"] == 3


def test_pyiceberg_appends_through_our_catalog_and_reads_what_we_commit(table: Table, catalog: NeveCatalog) -> None:
    table.append(pa.table({"id": [1, 2], "name": ["a", "b"]}))
    catalog.swap(load_table(catalog, "db.t"), (), put("owner", "me"))
    stock = IcebergSqlCatalog(catalog.name, **catalog.properties).load_table("db.t")
    assert type(stock.metadata).__module__.startswith("pyiceberg")
    assert stock.properties == {"owner": "me"}
    assert stock.scan().to_arrow().num_rows == 2


def test_a_swap_on_a_current_table_does_not_read_its_metadata_again(table: Table, catalog: NeveCatalog) -> None:
    moved = Path(table.metadata_location.removeprefix("file://"))
    moved.rename(moved.with_suffix(".away"))
    done = catalog.swap(table, (), put("a", "1"))
    assert done.metadata.properties == {"a": "1"}


def test_updates_of_a_stale_table_land_on_what_is_current(table: Table, catalog: NeveCatalog) -> None:
    catalog.swap(load_table(catalog, "db.t"), (), put("a", "1"))
    catalog.swap(table, (), put("b", "2"))
    assert load_table(catalog, "db.t").properties == {"a": "1", "b": "2"}


def test_a_swap_that_changes_nothing_writes_nothing(table: Table, catalog: NeveCatalog) -> None:
    before = metadata_files(table)
    done = catalog.swap(table, (), [])
    assert (done.metadata_location, metadata_files(table)) == (table.metadata_location, before)


def test_a_failed_requirement_writes_nothing(table: Table, catalog: NeveCatalog) -> None:
    before = metadata_files(table)
    requirement = AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": 5})
    with pytest.raises(RequirementFailed, match=r"Table db\.t") as raised:
        catalog.swap(table, [requirement], put("a", "1"))
    assert isinstance(raised.value, CommitFailedException)
    assert raised.value.location is None
    assert metadata_files(table) == before


def test_a_table_dropped_meanwhile_fails_the_swap(table: Table, catalog: NeveCatalog) -> None:
    catalog.drop_table("db.t")
    with pytest.raises(RequirementFailed, match="does not exist any more"):
        catalog.swap(table, (), put("a", "1"))


class ConcurrentChange:
    """Runs a function directly before the row of the table is updated."""

    def __init__(self, catalog: Any, action: Any) -> None:
        self.catalog, self.original, self.action = catalog, catalog._swap_location, action
        catalog._swap_location = self

    def __call__(self, *arguments: Any, **options: Any) -> None:
        self.catalog._swap_location = self.original
        self.action()
        self.original(*arguments, **options)


def test_a_lost_race_names_the_file_it_wrote_and_nothing_landed(table: Table, catalog: NeveCatalog) -> None:
    ConcurrentChange(catalog, lambda: catalog.swap(load_table(catalog, "db.t"), (), put("first", "1")))
    with pytest.raises(LostRace, match=r"Another writer changed db\.t") as lost:
        catalog.swap(table, (), put("second", "2"))
    assert load_table(catalog, "db.t").properties == {"first": "1"}
    assert lost.value.location in metadata_files(table)


def test_the_stock_way_in_removes_what_a_lost_race_wrote(table: Table, catalog: NeveCatalog) -> None:
    ConcurrentChange(catalog, lambda: catalog.swap(load_table(catalog, "db.t"), (), put("first", "1")))
    with pytest.raises(CommitFailedException), table.transaction() as transaction:
        transaction.set_properties({"second": "2"})
    current = load_table(catalog, "db.t")
    log = {entry.metadata_file for entry in current.metadata.metadata_log}
    assert metadata_files(table) == log | {current.metadata_location}


def break_commit(catalog: Any, lands: bool) -> None:
    """Make the next COMMIT fail, after or before it takes effect."""
    original = catalog.engine.dialect.do_commit

    def do_commit(connection: Any) -> None:
        catalog.engine.dialect.do_commit = original
        (connection.commit if lands else connection.rollback)()
        raise catalog.engine.dialect.loaded_dbapi.OperationalError("connection lost")

    catalog.engine.dialect.do_commit = do_commit


@pytest.mark.parametrize(("lands", "fate"), [(True, SwapStatus.LANDED), (False, SwapStatus.NEVER)])
def test_a_lost_answer_is_unknown_until_the_table_is_loaded(
    table: Table, catalog: NeveCatalog, lands: bool, fate: SwapStatus
) -> None:
    break_commit(catalog, lands)
    with pytest.raises(MaybeSwapped, match="may be at file://") as unknown:
        catalog.swap(table, (), put("a", "1"))
    assert isinstance(unknown.value, CommitUnknown)
    assert isinstance(unknown.value, CommitStateUnknownException)
    assert unknown.value.location in metadata_files(table)
    assert catalog.swap_status(unknown.value) is fate
    catalog.swap(load_table(catalog, "db.t"), (), put("later", "1"))
    assert catalog.swap_status(unknown.value) is fate  # also when others have moved on
    assert ("a" in load_table(catalog, "db.t").properties) == lands


def test_a_landed_swap_is_known_by_its_snapshot_when_the_log_has_forgotten_it(catalog: NeveCatalog) -> None:
    table = create_table(catalog, "db.short", SCHEMA, properties={"write.metadata.previous-versions-max": "1"})
    break_commit(catalog, lands=True)
    with pytest.raises(MaybeSwapped) as unknown:
        catalog.swap(table, (), snapshot_of(table, 7))
    for i in range(3):
        catalog.swap(load_table(catalog, "db.short"), (), put("i", str(i)))
    assert catalog.swap_status(unknown.value) is SwapStatus.LANDED


def test_fate_is_open_when_it_cannot_be_known(catalog: NeveCatalog) -> None:
    table = create_table(catalog, "db.short", SCHEMA, properties={"write.metadata.previous-versions-max": "1"})
    break_commit(catalog, lands=False)
    with pytest.raises(MaybeSwapped) as unknown:
        catalog.swap(table, (), put("a", "1"))
    for i in range(3):
        catalog.swap(load_table(catalog, "db.short"), (), put("i", str(i)))
    assert catalog.swap_status(unknown.value) is SwapStatus.OPEN  # the log no longer shows what followed the base
    catalog.drop_table("db.short")
    assert catalog.swap_status(unknown.value) is SwapStatus.OPEN
    create_table(catalog, "db.short", SCHEMA)
    assert catalog.swap_status(unknown.value) is SwapStatus.OPEN


def test_the_stock_way_in_settles_a_lost_answer(table: Table, catalog: NeveCatalog) -> None:
    break_commit(catalog, lands=True)
    with table.transaction() as transaction:
        transaction.set_properties({"a": "1"})
    assert table.properties == {"a": "1"}


def test_a_full_disk_is_no_commit(table: Table, catalog: NeveCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("neve.catalog.sql.write_metadata", full)
    with pytest.raises(CatalogUnavailable, match="No space left"):
        catalog.swap(table, (), put("a", "1"))
    monkeypatch.undo()
    assert catalog.swap(table, (), put("a", "1")).metadata.properties == {"a": "1"}


def test_metadata_files_are_numbered_named_afresh_and_compressed_on_request(catalog: NeveCatalog) -> None:
    table = create_table(catalog, "db.gz", SCHEMA, properties={"write.metadata.compression-codec": "gzip"})
    done = catalog.swap(table, (), put("a", "1"))
    first, second = table.metadata_location.rsplit("/", 1)[1], done.metadata_location.rsplit("/", 1)[1]
    assert (first[:6], second[:6]) == ("00000-", "00001-")
    assert second.endswith(".gz.metadata.json")
    assert Path(done.metadata_location.removeprefix("file://")).read_bytes()[:2] == b"\x1f\x8b"
    stock = IcebergSqlCatalog(catalog.name, **catalog.properties).load_table("db.gz")
    assert stock.properties["a"] == "1"


@pytest.mark.parametrize("path", ["elsewhere/metadata", "file://{root}/apart"])
def test_metadata_is_written_to_the_path_in_the_table_properties(
    catalog: NeveCatalog, tmp_path: Path, path: str
) -> None:
    path = path.format(root=tmp_path)
    table = create_table(catalog, "db.far", SCHEMA, properties={"write.metadata.path": path})
    folder = table.metadata_location.rsplit("/", 1)[0]
    assert folder == (path if "://" in path else f"{table.location()}/{path}")


def test_metadata_files_that_leave_the_log_are_named(catalog: NeveCatalog) -> None:
    properties = {"write.metadata.previous-versions-max": "1", "write.metadata.delete-after-commit.enabled": "true"}
    table = create_table(catalog, "db.short", SCHEMA, properties=properties)
    second = catalog.swap(table, (), put("i", "1"))
    third = catalog.swap(load_table(catalog, "db.short"), (), put("i", "2"))
    assert second.retired_metadata_files == frozenset()
    assert third.retired_metadata_files == {table.metadata_location}


def test_missing_and_damaged_metadata_are_named(table: Table, catalog: NeveCatalog) -> None:
    path = Path(table.metadata_location.removeprefix("file://"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(CorruptFile, match=path.name):
        load_table(catalog, "db.t")
    path.unlink()
    with pytest.raises(MissingFile, match=path.name):
        load_table(catalog, "db.t")


def test_properties_of_a_table_choose_no_code_and_no_endpoint(catalog: NeveCatalog) -> None:
    hostile = {"py-io-impl": "os.system", "s3.endpoint": "http://evil"}
    create_table(catalog, "db.hostile", SCHEMA, properties=hostile)
    table = load_table(catalog, "db.hostile")
    assert "s3.endpoint" not in table.io.properties
    catalog.swap(table, (), put("a", "1"))


def test_upgrade_through_every_version(table: Table, catalog: NeveCatalog) -> None:
    for version in (3, 4):
        current = load_table(catalog, "db.t")
        catalog.swap(current, (), [UpgradeFormatVersionUpdate.model_validate({"format-version": version})])
        assert load_table(catalog, "db.t").metadata.format_version == version


# --- SQLite alone ---


def test_a_locked_database_is_waited_for_then_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neve.catalog.sql._LOCK_WAIT_SECONDS", 0.2)
    catalog = EmbeddedCatalog(tmp_path / "lake")
    table = create_table(catalog, "db.t", SCHEMA)
    holder = sqlite3.connect(tmp_path / "lake" / "catalog.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(CatalogUnavailable, match="database is locked") as raised:
        catalog.swap(table, (), put("a", "1"))
    holder.execute("ROLLBACK")
    assert raised.value.location in metadata_files(table)
    assert load_table(catalog, "db.t").properties == {}
    assert catalog.swap(table, (), put("a", "1")).metadata.properties == {"a": "1"}


def test_a_database_that_does_not_answer_is_one_error_for_every_call(tmp_path: Path) -> None:
    catalog = EmbeddedCatalog(tmp_path / "lake")
    location = create_table(catalog, "db.t", SCHEMA).metadata_location
    (tmp_path / "lake" / "catalog.db").write_bytes(b"no database " * 1000)
    for ask in (
        lambda: load_table(catalog, "db.t"),
        lambda: list_tables(catalog),
        lambda: list_tables(catalog, "db"),
        lambda: create_table(catalog, "db.u", SCHEMA),
        lambda: create_table(catalog, "other.u", SCHEMA),
        lambda: register_table(catalog, "db.u", location),
    ):
        with pytest.raises(TableError, match=r"Cannot ask catalog 'neve' for .*not a database"):
            ask()


def test_a_registration_that_is_not_answered_may_be_done(tmp_path: Path) -> None:
    catalog = EmbeddedCatalog(tmp_path / "lake")
    location = create_table(catalog, "db.t", SCHEMA).metadata_location
    holder = sqlite3.connect(tmp_path / "lake" / "catalog.db", isolation_level=None)
    catalog.engine = create_engine(catalog.engine.url, connect_args={"timeout": 0.1})
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(CommitUnknown, match=r"registration of table db\.u was done: database is locked"):
        register_table(catalog, "db.u", location)
    holder.execute("ROLLBACK")
    assert register_table(catalog, "db.u", location).metadata_location == location


def test_many_processes_open_one_new_lake_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    opened = [context.Process(target=EmbeddedCatalog, args=(tmp_path / "lake",)) for _ in range(WRITERS)]
    for process in opened:
        process.start()
    for process in opened:
        process.join(60)
    assert [process.exitcode for process in opened] == [0] * WRITERS


def test_a_catalog_opened_before_a_fork_works_on_both_sides(tmp_path: Path) -> None:
    catalog = EmbeddedCatalog(tmp_path / "lake")
    table = create_table(catalog, "db.t", SCHEMA)
    child = multiprocessing.get_context("fork").Process(target=catalog.swap, args=(table, (), put("child", "1")))
    child.start()
    child.join(60)
    catalog.swap(load_table(catalog, "db.t"), (), put("parent", "1"))
    assert load_table(catalog, "db.t").properties == {"child": "1", "parent": "1"}


def synced_paths(monkeypatch: pytest.MonkeyPatch, work: Callable[[], Any]) -> list[tuple[int, int]]:
    """Return the files and folders that were synced, in order."""
    synced: list[tuple[int, int]] = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: synced.append(_identity(os.fstat(descriptor))))
        work()
    return synced


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def test_metadata_is_on_disk_before_the_catalog_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = EmbeddedCatalog(tmp_path / "lake")
    table = create_table(catalog, "db.t", SCHEMA)
    synced = synced_paths(monkeypatch, lambda: catalog.swap(table, (), put("a", "1")))
    path = load_table(catalog, "db.t").metadata_location.removeprefix("file://")
    assert synced == [_identity(os.stat(path)), _identity(os.stat(os.path.dirname(path)))]


def test_the_folders_of_a_new_table_are_on_disk_before_the_catalog_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = EmbeddedCatalog(tmp_path / "lake")
    synced = synced_paths(monkeypatch, lambda: create_table(catalog, "db.t", SCHEMA))
    named = [tmp_path / "lake", *(tmp_path / "lake" / below for below in ("db", "db/t", "db/t/metadata"))]
    assert {_identity(folder.stat()) for folder in named} <= set(synced)


def test_a_table_that_cannot_be_written_is_an_error_of_ours_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = EmbeddedCatalog(tmp_path / "lake")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TableError, match="No space left"):
        create_table(catalog, "db.t", SCHEMA)
    assert not [path for path in (tmp_path / "lake" / "db").rglob("*") if path.is_file()]


# --- PostgreSQL alone ---


@pytest.fixture
def pg(server: Postgres, tmp_path: Path) -> Any:
    properties = {"type": "sql", "uri": server.uri, "warehouse": f"file://{tmp_path}/w"}
    return open_catalog(f"c{time.time_ns()}", **properties)


def test_a_connection_killed_before_commit_changes_nothing(pg: Any) -> None:
    table = create_table(pg, "db.t", SCHEMA)

    killed: list[int] = []

    def kill(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("UPDATE iceberg_tables") and not killed:
            killed.append(connection.connection.dbapi_connection.info.backend_pid)
            other = pg.engine.raw_connection()
            other.cursor().execute(f"SELECT pg_terminate_backend({killed[0]})")
            other.close()

    event.listen(pg.engine, "before_cursor_execute", kill)
    with pytest.raises(CatalogUnavailable, match="Nothing landed"):
        pg.swap(table, (), put("a", "1"))
    assert pg.swap(load_table(pg, "db.t"), (), put("b", "2")).metadata.properties == {"b": "2"}


def test_a_server_that_is_down_is_unavailable_and_works_again(pg: Any, server: Postgres) -> None:
    table = create_table(pg, "db.t", SCHEMA)
    server.stop()
    try:
        with pytest.raises(CatalogUnavailable, match="Nothing landed"):
            pg.swap(table, (), put("a", "1"))
    finally:
        server.start()
    assert pg.swap(load_table(pg, "db.t"), (), put("b", "2")).metadata.properties == {"b": "2"}


def test_a_serialization_failure_is_a_lost_race(pg: Any) -> None:
    table = create_table(pg, "db.t", SCHEMA)
    pg.engine = pg.engine.execution_options(isolation_level="SERIALIZABLE")
    moved: list[int] = []

    def race(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        """Change the row in a concurrent writer after our transaction has taken its snapshot of the database."""
        if statement.startswith("UPDATE iceberg_tables") and not moved:
            moved.append(1)
            cursor.execute("SELECT 1 FROM iceberg_tables")
            pg.swap(load_table(pg, "db.t"), (), put("first", "1"))

    event.listen(pg.engine, "before_cursor_execute", race)
    with pytest.raises(LostRace, match="could not serialize"):
        pg.swap(table, (), put("second", "2"))
    assert load_table(pg, "db.t").properties == {"first": "1"}
