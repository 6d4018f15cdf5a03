"""Views in SQL and REST catalogs: create, replace, rename, drop, and what two writers or a hostile file do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyiceberg.view import View
from sqlalchemy import text

import neve
from neve.catalog import (
    create_view,
    drop_view,
    find_view,
    list_views,
    load_view,
    rename_view,
    replace_view,
)
from neve.errors import (
    CommitConflict,
    CorruptFile,
    LimitExceeded,
    MissingFile,
    UnknownName,
    UnsupportedFeature,
    UserError,
)
from neve.model.view import (
    MAX_VIEW_BYTES,
    ViewDefinition,
    ViewMetadata,
    change_properties,
    new_view,
    parse_view,
    replace_definition,
    serialise_view,
)
from tests.support.servers import rest_server

ID = Schema(NestedField(1, "id", LongType(), required=False))
ID_AND_NAME = Schema(*ID.fields, NestedField(2, "name", StringType(), required=False))


@pytest.fixture(params=["sqlite", "postgresql", "rest"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[neve.Lake]:
    if request.param == "postgresql":
        options = {"type": "sql", "uri": request.getfixturevalue("server").uri, "warehouse": f"file://{tmp_path}"}
        yield neve.connect(catalog=f"views{tmp_path.name}", **options)
    elif request.param == "rest":
        with rest_server(neve.connect(tmp_path / "lake").catalog) as server:
            yield neve.connect(catalog="rest", type="rest", uri=server.uri, **{"view-endpoints-supported": "true"})
    else:
        yield neve.connect(tmp_path / "lake")


def test_a_view_lives_in_the_catalog(lake: neve.Lake):
    catalog = lake.catalog
    properties = {"comment": "all", "k": "v"}
    view = create_view(catalog, "db.v", ViewDefinition("SELECT id FROM t", ID, ("db",), properties))
    assert load_view(catalog, "db.v") == view == find_view(catalog, ("db", "v"))
    assert isinstance(lake.view("db.v"), View) and lake.view("db.v").sql_for("spark").sql == "SELECT id FROM t"
    assert (lake.views(), lake.views("db"), lake.tables()) == (["db.v"], ["db.v"], [])
    second = replace_view(catalog, view, replace_definition(view.metadata, ViewDefinition("SELECT 1", ID_AND_NAME)))
    back = replace_view(
        catalog, second, replace_definition(second.metadata, ViewDefinition("SELECT id FROM t", ID, ("db",)))
    )
    found = load_view(catalog, "db.v").metadata
    assert found == back.metadata and found.view_uuid == view.metadata.view_uuid
    assert [entry.version_id for entry in found.version_log] == [1, 2, 1] and len(found.schemas) == 2
    changed = replace_view(catalog, back, change_properties(found, {"k": "w", "new": "x"}, ["comment", "unset"]))
    assert load_view(catalog, "db.v").metadata.properties == changed.metadata.properties == {"k": "w", "new": "x"}
    rename_view(catalog, "db.v", "other.w")
    assert list_views(catalog) == [("other", "w")] and find_view(catalog, ("db", "v")) is None
    drop_view(catalog, "other.w")
    assert lake.views() == []


def test_names_are_unique_and_errors_suggest(lake: neve.Lake):
    catalog, definition = lake.catalog, ViewDefinition("SELECT 1", ID)
    lake.create_table("db.t", "id bigint")
    create_view(catalog, "db.v", definition)
    create_view(catalog, "db.w", definition)
    for taken in ("db.v", "db.t"):
        with pytest.raises(UserError, match="already a table or view"):
            create_view(catalog, taken, definition)
        with pytest.raises(UserError, match="already a table or view"):
            rename_view(catalog, "db.w", taken)
    for action in (lambda: load_view(catalog, "db.vv"), lambda: drop_view(catalog, "db.vv")):
        with pytest.raises(UnknownName, match=r"Unknown view 'db\.vv'.*'db\.v'"):
            action()
    with pytest.raises(UnknownName, match="Unknown namespace 'dbb'"):
        lake.views("dbb")
    with pytest.raises(UserError, match="already exists"):
        lake.create_table("db.v", "id bigint")
    with pytest.raises(UnknownName, match=r"Unknown table 'db\.v'"):
        lake.table("db.v")
    lake.drop_table("db.t")
    with pytest.raises(UserError, match="Cannot drop namespace db"):
        lake.sql("DROP NAMESPACE db")
    for name in ("db.v", "db.w"):
        drop_view(catalog, name)
    lake.sql("DROP NAMESPACE db")


def test_the_second_of_two_writers_is_told(tmp_path: Path):
    catalog = neve.connect(tmp_path).catalog
    view = create_view(catalog, "db.v", ViewDefinition("SELECT 1", ID))
    replace_view(catalog, view, change_properties(view.metadata, {"first": "1"}))
    before = set(tmp_path.rglob("*.json"))
    with pytest.raises(CommitConflict, match=r"Another writer changed view db\.v first"):
        replace_view(catalog, view, change_properties(view.metadata, {"second": "2"}))
    assert set(tmp_path.rglob("*.json")) == before and load_view(catalog, "db.v").metadata.properties == {"first": "1"}


def test_a_name_that_is_taken_leaves_no_file(tmp_path: Path):
    lake = neve.connect(tmp_path)
    lake.create_table("db.t", "id bigint")
    before = set(tmp_path.rglob("*.json"))
    with pytest.raises(UserError):
        create_view(lake.catalog, "db.t", ViewDefinition("SELECT 1", ID))
    assert set(tmp_path.rglob("*.json")) == before


def test_a_view_gets_a_folder_of_its_own_and_survives_maintenance_around_it(tmp_path: Path):
    lake = neve.connect(tmp_path)
    lake.create_table("db.v", "id bigint").append([{"id": 1}])
    lake.rename_table("db.v", "db.t")  # its files stay in the folder v
    view = create_view(lake.catalog, "db.v", ViewDefinition("SELECT 1", ID))
    table = lake.table("db.t")
    assert not view.metadata_location.startswith(f"{table.context.metadata.location}/")
    above = lake.create_table("db.above", "id bigint", location=f"file://{tmp_path}/db")
    for each in (table, above):
        each.remove_orphan_files().allow_young().older_than(1 << 50).dry_run(False).execute()
    lake.drop_table("db.t", purge=True)
    assert load_view(lake.catalog, "db.v") == view


def test_a_catalog_without_views_says_so(tmp_path: Path):
    catalog = neve.connect(tmp_path).catalog
    with catalog.engine.begin() as connection:
        connection.execute(text("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type"))
    old = neve.connect(tmp_path)
    assert old.views() == [] and find_view(old.catalog, ("db", "v")) is None
    with pytest.raises(UserError, match=r"its database has an old layout.*schema_version='v1'"):
        create_view(old.catalog, "db.v", ViewDefinition("SELECT 1", ID))
    with rest_server(catalog) as server:
        rest = neve.connect(catalog="rest", type="rest", uri=server.uri)
        assert rest.views() == []
        with pytest.raises(UnsupportedFeature, match="Catalog 'rest' keeps no views"):
            create_view(rest.catalog, "db.v", ViewDefinition("SELECT 1", ID))


# -- metadata ----------------------------------------------------------------------------------------------------------


def test_old_versions_leave_the_history():
    metadata = new_view(ViewDefinition("SELECT 1", ID, properties={"version.history.num-entries": "2"}), "file:///v")
    for n in (2, 3, 1, 4):
        metadata = replace_definition(metadata, ViewDefinition(f"SELECT {n}", ID))
    texts = [version.representations[0].root.sql for version in metadata.versions]
    assert len(texts) == 2 and metadata.spark_sql("v") == "SELECT 4"
    assert {entry.version_id for entry in metadata.version_log} <= {version.version_id for version in metadata.versions}
    with pytest.raises(UserError, match=r"version\.history\.num-entries must be a whole number above 0, not '0'"):
        replace_definition(change_properties(metadata, {"version.history.num-entries": "0"}), ViewDefinition("x", ID))


def with_dialects(*dialects: str) -> ViewMetadata:
    metadata = new_view(ViewDefinition("SELECT 1;\n", ID), "file:///v")
    found = json.loads(serialise_view(metadata))
    found["versions"][0]["representations"] = [{"type": "sql", "sql": f"{d} text;\n", "dialect": d} for d in dialects]
    found["custom"] = {"kept": True}
    return parse_view(json.dumps(found).encode(), "file:///v")


def test_the_query_for_spark_is_read_and_others_are_not_lost():
    assert with_dialects("trino", "SPARK").spark_sql("db.v") == "SPARK text"
    with pytest.raises(UnsupportedFeature, match=r"Cannot read view db\.v: its query is written for presto and trino"):
        with_dialects("trino", "presto").spark_sql("db.v")
    both = with_dialects("spark", "trino")
    with pytest.raises(UserError, match="its query for trino would be lost"):
        replace_definition(both, ViewDefinition("SELECT 2", ID))
    allowed = change_properties(both, {"replace.drop-dialect.allowed": "true"})
    replaced = replace_definition(allowed, ViewDefinition("SELECT 2", ID))
    assert replaced.spark_sql("v") == "SELECT 2" and json.loads(serialise_view(replaced))["custom"] == {"kept": True}


@pytest.mark.parametrize(
    ("raw", "error", "message"),
    [
        (b"{", CorruptFile, "metadata of a view as JSON"),
        (b"{}", CorruptFile, "valid metadata of a view, found view-uuid"),
        (b"[" * 100_000, CorruptFile, "file:///v"),
        (b" " * (MAX_VIEW_BYTES + 1), LimitExceeded, "A view holds a query"),
        (None, CorruptFile, "no current version"),
    ],
)
def test_a_damaged_file_is_an_error(raw: bytes | None, error: type[Exception], message: str):
    if raw is None:
        found = json.loads(serialise_view(new_view(ViewDefinition("SELECT 1", ID), "file:///v")))
        raw = json.dumps({**found, "current-version-id": 9}).encode()
    with pytest.raises(error, match=message):
        parse_view(raw, "file:///v")


def test_a_missing_file_is_named(tmp_path: Path):
    catalog = neve.connect(tmp_path).catalog
    view = create_view(catalog, "db.v", ViewDefinition("SELECT 1", ID))
    Path(view.metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(MissingFile, match="the catalog refers to it"):
        load_view(catalog, "db.v")


def test_a_location_in_a_file_does_not_choose_where_is_written(tmp_path: Path):
    catalog: Any = neve.connect(tmp_path / "lake").catalog
    view = create_view(catalog, "db.v", ViewDefinition("SELECT 1", ID))
    moved = view.metadata.model_copy(update={"location": f"file://{tmp_path}/elsewhere"})
    changed = replace_view(catalog, view, change_properties(moved, {"k": "v"}))
    assert changed.metadata_location.rpartition("/")[0] == view.metadata_location.rpartition("/")[0]
    assert not (tmp_path / "elsewhere").exists()
