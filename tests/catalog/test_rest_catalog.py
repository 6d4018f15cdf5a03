"""REST catalogs: every version through a real server on loopback, and every way it can answer or fail to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, SetPropertiesUpdate, SetSnapshotRefUpdate
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from neve.catalog import (
    CatalogUnavailable,
    EmbeddedCatalog,
    LostRace,
    MaybeSwapped,
    NeveCatalog,
    NotSwapped,
    SwapStatus,
    create_table,
    drop_table,
    list_tables,
    load_table,
    open_catalog,
    register_table,
    rename_table,
)
from neve.commit.actions import Append
from neve.commit.outcome import Committed
from neve.commit.protocol import commit
from neve.errors import TableError, UnknownName, UnsupportedFeature, UserError
from neve.model.metadata import TableMetadata, to_neve_metadata
from neve.model.partition import Specs
from neve.model.snapshots import AddSnapshot, Snapshot
from neve.tree.entries import EntryTable
from neve.tree.read import manifests_of, read_entries
from tests.support.servers import RestServer, rest_server

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "name", StringType(), required=False))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestServer]:
    with rest_server(EmbeddedCatalog(tmp_path / "lake")) as running:
        yield running


@pytest.fixture
def catalog(server: RestServer) -> NeveCatalog:
    return open_catalog("rest", type="rest", uri=server.uri)


@pytest.fixture
def table(catalog: NeveCatalog) -> Table:
    return create_table(catalog, "db.t", SCHEMA)


def put(key: str, value: str) -> list[Any]:
    return [SetPropertiesUpdate(updates={key: value})]


def append(snapshot_id: int, number: int, **more: Any) -> list[Any]:
    row = {"snapshot-id": snapshot_id, "sequence-number": number, "timestamp-ms": 10**13, "key-id": "k", **more}
    to_main = SetSnapshotRefUpdate.model_validate({"ref-name": "main", "type": "branch", "snapshot-id": snapshot_id})
    return [AddSnapshot(snapshot=Snapshot.model_validate(row)), to_main]


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_version_is_created_committed_and_evolved(catalog: NeveCatalog, version: int) -> None:
    table = create_table(catalog, f"db.v{version}", SCHEMA, format_version=version, properties={"owner": "me"})
    assert table.metadata.format_version == version
    with table.update_schema() as schema:
        schema.add_column("more", IntegerType())
    with table.update_spec() as partitioning:
        partitioning.add_identity("name")
    again = load_table(catalog, f"db.v{version}")
    assert again.schema().column_names == ["id", "name", "more"]
    assert [field.name for field in again.spec().fields] == ["name"]
    assert isinstance(again.metadata, TableMetadata)
    assert again.properties == {"owner": "me"}


def test_every_key_of_a_snapshot_reaches_the_server(catalog: NeveCatalog, server: RestServer) -> None:
    table = create_table(catalog, "db.v4", SCHEMA, format_version=4)
    rows = {
        "root-manifest": "file:///r.parquet",
        "first-row-id": 0,
        "added-rows": 3,
        "summary": {"operation": "append"},
    }
    done = catalog.swap(table, (), append(7, 1, **rows))
    stored: Any = load_table(server.catalog, "db.v4").metadata
    assert stored.lazy_snapshots.rows == done.metadata.lazy_snapshots.rows
    assert stored.lazy_snapshots.rows[0]["root-manifest"] == "file:///r.parquet"
    assert stored.lazy_snapshots.rows[0]["key-id"] == "k"
    assert stored.next_row_id == 3
    assert done.metadata_location == load_table(server.catalog, "db.v4").metadata_location


def test_verbs_work_over_rest(catalog: NeveCatalog, table: Table) -> None:
    rename_table(catalog, "db.t", "other.u")
    assert list_tables(catalog) == [("other", "u")]
    register_table(catalog, "db.t", table.metadata_location)
    assert list_tables(catalog) == [("db", "t"), ("other", "u")]
    drop_table(catalog, "db.t")
    with pytest.raises(UnknownName, match=r"'db\.t'.*'other\.u'"):
        load_table(catalog, "db.t")
    with pytest.raises(UserError, match="already exists"):
        create_table(catalog, "other.u", SCHEMA)


def test_a_conflict_is_a_lost_race(catalog: NeveCatalog, table: Table) -> None:
    requirement = AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": 5})
    with pytest.raises(LostRace, match="HTTP 409") as lost:
        catalog.swap(table, [requirement], put("a", "1"))
    assert isinstance(lost.value, CommitFailedException)
    assert lost.value.location is None


def test_a_missing_table_is_reported(catalog: NeveCatalog, table: Table) -> None:
    catalog.drop_table("db.t")
    with pytest.raises(NoSuchTableError, match=r"db\.t") as gone:
        catalog.swap(table, (), put("a", "1"))
    assert isinstance(gone.value, NotSwapped), "nothing landed, so what was written for it can go"


def on_commit(server: RestServer, fault: Any) -> None:
    """Let `fault` handle the next commit."""

    def once(handler: Any, method: str, path: str) -> bool:
        if method != "POST" or not path.endswith("/tables/t"):
            return False
        server.fault = None
        fault(handler, method, path)
        return True

    server.fault = once


def landing_then(server: RestServer, answer: Any) -> Any:
    def fault(handler: Any, method: str, path: str) -> None:
        handler.result(method, path, server.requests[-1][2])
        answer(handler)

    return fault


@pytest.mark.parametrize("status", [500, 502, 503, 504])
@pytest.mark.parametrize("lands", [True, False])
def test_a_server_error_is_unknown_and_the_snapshot_decides(
    catalog: NeveCatalog, server: RestServer, table: Table, status: int, lands: bool
) -> None:
    def fail(handler: Any, *_: Any) -> None:
        handler.answer(status)

    on_commit(server, landing_then(server, fail) if lands else fail)
    with pytest.raises(MaybeSwapped, match=f"HTTP {status}") as unknown:
        catalog.swap(table, (), append(7, 1, **{"manifest-list": "s3://b/7.avro"}))
    assert catalog.swap_status(unknown.value) is (SwapStatus.LANDED if lands else SwapStatus.OPEN)


@pytest.mark.parametrize("lands", [True, False])
def test_a_broken_connection_is_unknown(catalog: NeveCatalog, server: RestServer, table: Table, lands: bool) -> None:
    def hang_up(handler: Any, *_: Any) -> None:
        handler.hang_up()

    on_commit(server, landing_then(server, hang_up) if lands else hang_up)
    with pytest.raises(MaybeSwapped, match="ConnectionError") as unknown:
        catalog.swap(table, (), append(7, 1, **{"manifest-list": "s3://b/7.avro"}))
    assert catalog.swap_status(unknown.value) is (SwapStatus.LANDED if lands else SwapStatus.OPEN)


def test_an_unreadable_answer_to_a_commit_is_unknown(catalog: NeveCatalog, server: RestServer, table: Table) -> None:
    on_commit(server, landing_then(server, lambda handler: handler.answer(200, {"metadata": {}})))
    with pytest.raises(MaybeSwapped, match="unreadable answer"):
        catalog.swap(table, (), put("a", "1"))


@pytest.mark.parametrize("status", [400, 403, 422, 429, 501])
def test_a_rejected_request_changed_nothing(
    catalog: NeveCatalog, server: RestServer, table: Table, status: int
) -> None:
    error = {"error": {"message": "no", "type": "No", "code": status}}
    on_commit(server, lambda handler, *_: handler.answer(status, error))
    with pytest.raises(CatalogUnavailable, match=f"HTTP {status} No: no. Nothing landed"):
        catalog.swap(table, (), put("a", "1"))


def test_a_rejected_token_is_refreshed_once(catalog: NeveCatalog, server: RestServer, table: Table) -> None:
    on_commit(server, lambda handler, *_: handler.answer(401))
    assert catalog.swap(table, (), put("a", "1")).metadata.properties == {"a": "1"}


def test_a_server_that_is_not_there_was_never_sent_anything(tmp_path: Path) -> None:
    with rest_server(EmbeddedCatalog(tmp_path / "lake")) as server:
        catalog = open_catalog("rest", type="rest", uri=server.uri)
        table = create_table(catalog, "db.t", SCHEMA)
        catalog._session.close()  # type: ignore[attr-defined]
    with pytest.raises(CatalogUnavailable, match="Nothing was sent"):
        catalog.swap(table, (), put("a", "1"))
    with pytest.raises(TableError, match="Cannot reach catalog 'rest'"):
        load_table(catalog, "db.t")


@pytest.mark.parametrize("body", [{}, {"metadata": {"format-version": 9}}, {"metadata": {"format-version": 2}}, []])
def test_an_unreadable_table_is_an_error_of_ours(
    catalog: NeveCatalog, server: RestServer, table: Table, body: Any
) -> None:
    def fault(handler: Any, method: str, path: str) -> bool:
        return bool(path.endswith("/tables/t")) and (handler.answer(200, body) or True)

    server.fault = fault
    with pytest.raises((TableError, UserError)):
        load_table(catalog, "db.t")


def test_other_answers_keep_the_words_of_the_server(catalog: NeveCatalog, server: RestServer, table: Table) -> None:
    error = {"error": {"message": "not so", "type": "Bad", "code": 400}}
    server.fault = lambda handler, *_: handler.answer(400, error) or True
    with pytest.raises(TableError, match="HTTP 400 Bad: not so"):
        load_table(catalog, "db.t")


def test_our_rest_catalog_can_be_named_in_configuration(server: RestServer) -> None:
    catalog = load_catalog("rest", **{"py-catalog-impl": "neve.catalog.RestCatalog", "uri": server.uri})
    assert isinstance(catalog, NeveCatalog)
    create_table(catalog, "db.v4", SCHEMA, format_version=4)
    assert catalog.load_table("db.v4").metadata.format_version == 4


def test_properties_of_a_table_choose_no_code_and_no_endpoint(catalog: NeveCatalog) -> None:
    create_table(catalog, "db.hostile", SCHEMA, properties={"py-io-impl": "os.system", "s3.endpoint": "http://evil"})
    assert "s3.endpoint" not in load_table(catalog, "db.hostile").io.properties


def test_a_version_4_tree_is_committed_and_read_over_rest(catalog: NeveCatalog) -> None:
    table_v4 = create_table(catalog, "db.v4", SCHEMA, format_version=4)
    specs = Specs.of(table_v4.metadata)
    columns = {"status": 1, "content": 0, "file_format": "PARQUET", "spec_id": 0, "record_count": 3}
    paths = [f"{table_v4.metadata.location}/data/{n}.parquet" for n in ("a", "b")]
    files = EntryTable.from_columns({**columns, "file_path": paths, "file_size_in_bytes": 9}, specs, 2)
    assert isinstance(commit(catalog, table_v4, Append(files)), Committed)
    table = catalog.load_table("db.v4")
    snapshot = to_neve_metadata(table.metadata).current_snapshot()
    manifests = manifests_of(table.io, to_neve_metadata(table.metadata), snapshot)
    assert read_entries(table.io, manifests, specs)["file_path"].to_pylist() == paths


CHOSEN_CODE = {"py-io-impl": "tests.catalog.test_rest_catalog.NoSuchIO", "auth": {"type": "custom", "impl": "no.such"}}


@pytest.mark.parametrize("where", ["defaults", "overrides", "config"])
def test_a_server_chooses_no_code(server: RestServer, table: Table, where: str) -> None:
    def answer_with_code(handler: Any, method: str, path: str) -> bool:
        if path.endswith("/config") and where != "config":
            handler.answer(200, {"defaults": {}, "overrides": {}, where: {**CHOSEN_CODE, "x": "y"}})
            return True
        if where != "config" or not path.endswith("/tables/t"):
            return False
        _, body = handler.result(method, path, None)
        handler.answer(200, {**body, "config": {"py-io-impl": CHOSEN_CODE["py-io-impl"], "x": "y"}})
        return True

    server.fault = answer_with_code
    opened = open_catalog("rest", type="rest", uri=server.uri, token="secret")
    io = load_table(opened, "db.t").io
    assert io.properties["x"] == "y" and "py-io-impl" not in io.properties and "auth" not in opened.properties
    mine = open_catalog("rest", type="rest", uri=server.uri, **{"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"})
    assert type(load_table(mine, "db.t").io).__name__ == "FsspecFileIO"


@pytest.mark.parametrize("key", ["uri", "oauth2-server-uri", "s3.signer.uri"])
@pytest.mark.parametrize("secret", [{"token": "secret"}, {"credential": "me:secret"}])
def test_a_server_sends_the_token_nowhere_else(
    server: RestServer, tmp_path: Path, key: str, secret: dict[str, str]
) -> None:
    with rest_server(EmbeddedCatalog(tmp_path / "other")) as other:

        def answer_with_host(handler: Any, method: str, path: str) -> bool:
            if path.endswith("/config"):
                handler.answer(200, {"defaults": {}, "overrides": {key: f"{other.uri}/x"}})
            elif "token" in path:
                handler.answer(200, {"access_token": "t", "token_type": "bearer", "expires_in": 100})
            return path.endswith("/config") or "token" in path

        server.fault = answer_with_host
        settings = {"type": "rest", "uri": server.uri, "oauth2-server-uri": f"{server.uri}/tokens", **secret}
        if key == "oauth2-server-uri":
            settings.pop(key)
        with pytest.raises(TableError, match=f"with your token to {other.uri}.*the property '{key}'"):
            open_catalog("rest", **settings)
        assert other.requests == []


def test_a_server_may_move_on_its_own_host(server: RestServer, table: Table) -> None:
    def answer_with_path(handler: Any, method: str, path: str) -> bool:
        if path.endswith("/config"):
            handler.answer(200, {"defaults": {}, "overrides": {"uri": f"{server.uri}/", "s3.endpoint": "http://s3"}})
        return path.endswith("/config")

    server.fault = answer_with_path
    opened = open_catalog("rest", type="rest", uri=server.uri)
    assert load_table(opened, "db.t").io.properties["s3.endpoint"] == "http://s3"


@pytest.mark.parametrize(("field_id", "keeps"), [(1, True), (7, False)])
def test_a_server_that_numbers_columns_itself_is_an_error_where_their_ids_matter(
    catalog: NeveCatalog, field_id: int, keeps: bool
) -> None:
    schema = Schema(NestedField(field_id, "id", LongType()))
    if keeps:
        assert create_table(catalog, "db.k", schema, keeps_ids=True).schema().as_struct() == schema.as_struct()
        return
    with pytest.raises(UnsupportedFeature, match=r"Cannot create table db\.k: the catalog numbers columns itself"):
        create_table(catalog, "db.k", schema, keeps_ids=True)
    assert catalog.list_tables("db") == []
