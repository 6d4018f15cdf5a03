"""Spark with Iceberg and Névé show the same metadata tables of one table: the same columns and the same rows.

Each deliberate difference in docs/reference/sql.md has a test that shows both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count, zip_longest
from typing import Any

import pyarrow as pa
import pytest

import neve
from neve.errors import UserError
from neve.model.metadata_table_names import METADATA_TABLES
from tests.peers.engine_comparison import SharedLake
from tests.peers.spark import SparkSaid
from tests.support.coverage import IS_LONG, own
from tests.support.spark_oracle import multiset
from tests.support.tables import delete_equal, files_of

OURS = ("specs", "tree")
ICEBERGS = [name for name in METADATA_TABLES if name not in OURS]
OWN_COLUMNS_OF_MANIFESTS = [
    *("sequence_number", "min_sequence_number"),
    *("added_rows_count", "existing_rows_count", "deleted_rows_count", "first_row_id"),
]
OWN_COLUMNS = {  # those that follow after Iceberg's
    "snapshots": ["sequence_number"],
    "manifests": OWN_COLUMNS_OF_MANIFESTS,
    "all_manifests": OWN_COLUMNS_OF_MANIFESTS,
}
NAMES = count()
VERSIONS = (1, 2, 3)

COLUMNS = (
    "id bigint, region string, ts timestamp, qty int, ratio double, price decimal(9, 2), note string, "
    "tags array<string>, place struct<city: string, zip: int>, counts map<string, int>, raw binary, gone string"
)
ROWS = ", ".join(
    f"({i}, '{region}', TIMESTAMP '2024-01-0{1 + i % 2} 10:00:00', {i}, {ratio}, {i}.25, '{region * 10}', "
    f"array('t{i}'), named_struct('city', 'c{i}', 'zip', {i}), map('k', {i}), X'0{i}', {{gone}})"
    for i, region, ratio in ((1, "eu", 1.5), (2, "us", "double('NaN')"), (3, "eu", -0.0), (4, "us", "NULL"))
)
EVOLVE = (
    "ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id)",
    "ALTER TABLE {t} DROP PARTITION FIELD region",
    "ALTER TABLE {t} RENAME COLUMN note TO remark",
    "ALTER TABLE {t} ALTER COLUMN qty TYPE bigint",
    "ALTER TABLE {t} DROP COLUMN gone",
)
REFS = (
    "ALTER TABLE {t} CREATE TAG kept RETAIN 30 DAYS",
    "ALTER TABLE {t} CREATE BRANCH audit RETAIN 7 DAYS WITH SNAPSHOT RETENTION 2 SNAPSHOTS 3 DAYS",
)


@dataclass(frozen=True)
class Shown:
    """A table that both engines show."""

    shared_lake: SharedLake
    name: str

    @property
    def table(self) -> neve.Table:
        return self.shared_lake.lake.table(self.name)

    def by_spark(self, query: str) -> pa.Table:
        return self.shared_lake.spark.sql(query.format(t=self.name))

    def by_neve(self, query: str) -> pa.Table:
        return self.shared_lake.lake.sql(query.format(t=self.name)).toArrow()

    def run(self, *statements: str, engine: str) -> None:
        for text in statements:
            (self.shared_lake.spark if engine == "spark" else self.shared_lake.lake).sql(text.format(t=self.name))

    def differences(self, query: str) -> list[str]:
        """What is different in the rows of a query; columns of our own are left out."""
        theirs, ours = self.by_spark(query), self.by_neve(query)
        ours = ours.select(ours.column_names[: theirs.num_columns])
        return differences(theirs, ours)


def differences(theirs: pa.Table, ours: pa.Table) -> list[str]:
    """Return how columns, types and rows of two tables differ; the rows are in no order."""
    columns = [*map(field_text, theirs.schema)], [*map(field_text, ours.schema)]
    if columns[0] != columns[1]:
        return [f"{one} is not {other}" for one, other in zip_longest(*columns) if one != other]
    left, right = multiset(theirs), multiset(ours)
    return [*(f"< {row}" for row in left - right), *(f"> {row}" for row in right - left)]


def field_text(field: pa.Field) -> str:
    """A field as text, without what Arrow and Spark say differently: nullability, names in lists."""
    return f"{field.name} {type_text(field.type)}"


def type_text(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(map(field_text, kind))}>"
    if pa.types.is_map(kind):
        return f"map<{type_text(kind.key_type)}, {type_text(kind.item_type)}>"
    return f"list<{type_text(kind.value_type)}>" if pa.types.is_list(kind) else str(kind)


def new_table(shared_lake: SharedLake, version: int, columns: str, partitioned_by: str = "") -> Shown:
    shown = Shown(shared_lake, f"db.shown{next(NAMES)}")
    modes = ", ".join(f"'write.{verb}.mode' = 'merge-on-read'" for verb in ("update", "delete", "merge"))
    properties = f"TBLPROPERTIES ('format-version' = '{version}'{f', {modes}' if version > 1 else ''})"
    by = f"PARTITIONED BY ({partitioned_by}) " if partitioned_by else ""
    shown.run(f"CREATE TABLE {{t}} ({columns}) USING iceberg {by}{properties}", engine="neve")
    return shown


def live(shown: Shown, version: int) -> Shown:
    """Give a table a past: several specs and schemas, deletes of every kind its version has, references, a rollback."""
    shown.run(f"INSERT INTO {{t}} VALUES {ROWS.format(gone=1)}", engine="spark")
    shown.run(f"INSERT INTO {{t}} VALUES {ROWS.format(gone='NULL')}", *EVOLVE, engine="neve")
    newer = ROWS.replace(", {gone}", "")
    shown.run(f"INSERT INTO {{t}} VALUES {newer}", engine="neve")
    shown.run(*REFS, f"INSERT INTO {{t}} VALUES {newer}", engine="spark")
    undone = shown.table.append([{"id": 9}]).snapshot_id
    shown.table.rollback(shown.table.context.metadata.snapshot_by_id(undone).parent_snapshot_id)
    shown.run("DELETE FROM {t} WHERE id = 1", engine="neve")
    if version > 1:
        files = files_of(shown.table)
        newest = files.partition_key(int(files.numpy("sequence_number").argmax()))
        delete_equal(shown.table, 4, spec_id=newest.spec_id, partition=newest.values)
        shown.run("UPDATE {t} SET qty = 7 WHERE id = 2", engine="spark")
    return shown


def for_each(shown: str, tables: Sequence[str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Play a test for each metadata table in all versions; in `make test` in one of those that have deletes to show."""
    versions = VERSIONS if IS_LONG else VERSIONS[1:]

    def played(test: Callable[..., Any]) -> Callable[..., Any]:
        choices = [
            pytest.param(version, table, id=f"v{version}-{table}")
            for table in tables
            for version in own(f"{test.__name__} {table}", versions)
        ]
        return pytest.mark.parametrize((shown, "table"), choices, indirect=[shown])(test)

    return played


@pytest.fixture(scope="module")
def evolved_tables(shared_lake: SharedLake) -> Callable[[int], Shown]:
    """The table with a past of each version, made when it is first asked for."""
    return cache(lambda version: live(new_table(shared_lake, version, COLUMNS, "region, days(ts)"), version))


@pytest.fixture(scope="module")
def unpartitioned_tables(shared_lake: SharedLake) -> Callable[[int], Shown]:
    """The same of a table without partitions."""

    @cache
    def of(version: int) -> Shown:
        shown = new_table(shared_lake, version, "id bigint, note string")
        shown.run("INSERT INTO {t} VALUES (1, 'a'), (2, NULL), (3, 'c')", engine="spark")
        shown.run("DELETE FROM {t} WHERE id = 2", engine="neve")
        return shown

    return of


# Of one test each: a fixture of the module is made again whenever the version changes from one test to the next.
@pytest.fixture(params=VERSIONS, ids="v{}".format)
def evolved(request: pytest.FixtureRequest, evolved_tables: Callable[[int], Shown]) -> Shown:
    return evolved_tables(request.param)


@pytest.fixture(params=VERSIONS, ids="v{}".format)
def unpartitioned(request: pytest.FixtureRequest, unpartitioned_tables: Callable[[int], Shown]) -> Shown:
    return unpartitioned_tables(request.param)


def test_the_compared_table_has_every_kind_of_file_under_several_specs(evolved: Shown):
    version, inspect = evolved.table.context.metadata.format_version, evolved.table.inspect
    entries = inspect.entries()["data_file"].combine_chunks()
    assert set(entries.field("content").to_pylist()) == ({0} if version == 1 else {0, 1, 2})
    assert ("PUFFIN" in entries.field("file_format").to_pylist()) == (version == 3)
    assert inspect.partitions()["spec_id"].unique().to_pylist() == [0, 2] and len(inspect.specs()) == 3
    assert 2 in inspect.entries()["status"].to_pylist() and len(inspect.refs()) == 3
    assert inspect.history()["is_current_ancestor"].to_pylist().count(False) == 1
    assert version == 1 or len(inspect.position_deletes()) > 2


@pytest.mark.parametrize("table", ICEBERGS)
def test_a_metadata_table_has_the_columns_and_rows_of_iceberg(evolved: Shown, table: str):
    assert evolved.differences(f"SELECT * FROM {{t}}.{table}") == []


@for_each("unpartitioned", ICEBERGS)
def test_a_metadata_table_of_an_unpartitioned_table_has_the_columns_and_rows_of_iceberg(
    unpartitioned: Shown, table: str
):
    assert unpartitioned.differences(f"SELECT * FROM {{t}}.{table}") == []


@pytest.mark.parametrize("table", ICEBERGS)
def test_a_metadata_table_of_an_empty_table_has_the_columns_of_iceberg(shared_lake: SharedLake, table: str):
    empty = new_table(shared_lake, 3, "id bigint, day date", "day")
    assert empty.differences(f"SELECT * FROM {{t}}.{table}") == []


TYPES = {
    "boolean": "true",
    "float": "1e10",
    "double": "-0.5",
    "decimal(9, 2)": "12.50",
    "binary": "X'0102'",
    "string": "'x/y'",
    "date": "DATE '1969-12-31'",
    "timestamp": "TIMESTAMP '2024-02-03 04:05:06.789'",
    "timestamp_ntz": "TIMESTAMP_NTZ '2024-02-03 04:05:06'",
}
TRANSFORMS = ("years(c6)", "months(c7)", "hours(c8)", "truncate(2, c5)", "truncate(10, c3)", "bucket(8, c4)")


@pytest.mark.parametrize("table", ["files", "manifests", "partitions"])
def test_partitions_of_every_type_are_shown_as_by_iceberg(shared_lake: SharedLake, table: str):
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(TYPES))
    by = ", ".join([*(f"c{i}" for i in range(len(TYPES))), *TRANSFORMS])
    shown = new_table(shared_lake, 2, columns, by)
    values, nulls = ", ".join(TYPES.values()), ", ".join(["NULL"] * len(TYPES))
    shown.run(f"INSERT INTO {{t}} VALUES ({values})", f"INSERT INTO {{t}} VALUES ({nulls})", engine="spark")
    assert shown.differences(f"SELECT * FROM {{t}}.{table}") == []


@for_each("evolved", METADATA_TABLES)
def test_python_and_sql_show_the_same_columns(evolved: Shown, table: str):
    """Spark and Arrow have the same types, except for types that Spark does not have."""
    in_sql, in_python = evolved.by_neve(f"SELECT * FROM {{t}}.{table}"), getattr(evolved.table.inspect, table)()
    assert differences(in_sql, in_python) == []


@for_each("evolved", ICEBERGS)
def test_columns_of_our_own_follow_after_those_of_iceberg(evolved: Shown, table: str):
    theirs, ours = (show(f"SELECT * FROM {{t}}.{table}").column_names for show in (evolved.by_spark, evolved.by_neve))
    assert ours == [*theirs, *OWN_COLUMNS.get(table, [])]


@for_each("evolved", ["files", "data_files", "delete_files", "entries", "manifests", "partitions", "position_deletes"])
@pytest.mark.parametrize("version", ["VERSION AS OF 'kept'", "VERSION AS OF {id}", "TIMESTAMP AS OF '{time}'"])
def test_a_table_of_one_snapshot_has_a_past(evolved: Shown, table: str, version: str):
    past = evolved.table.inspect.snapshots().slice(1, 1).to_pylist()[0]
    version = version.format(id=past["snapshot_id"], time=past["committed_at"])
    assert evolved.differences(f"SELECT * FROM {{t}}.{table} {version}") == []


# --- deliberate differences ---


def test_a_table_of_all_snapshots_has_no_past(evolved: Shown):
    past = "SELECT * FROM {t}.snapshots VERSION AS OF 'kept'"
    with pytest.raises(UserError, match="table of all snapshots"):
        evolved.by_neve(past)
    assert len(evolved.by_spark(past)) == len(evolved.table.inspect.snapshots())


def test_partitions_of_different_specs_are_rows_of_their_own(shared_lake: SharedLake):
    shown = new_table(shared_lake, 2, "id bigint, region string, kind string", "region")
    shown.run("INSERT INTO {t} VALUES (1, NULL, NULL)", engine="neve")
    shown.run("ALTER TABLE {t} REPLACE PARTITION FIELD region WITH kind", engine="neve")
    shown.run("INSERT INTO {t} VALUES (2, NULL, NULL)", engine="neve")
    query = "SELECT spec_id, record_count FROM {t}.partitions ORDER BY spec_id"
    assert shown.by_neve(query).to_pylist() == [{"spec_id": s, "record_count": 1} for s in (0, 1)]
    assert shown.by_spark(query).to_pylist() == [{"spec_id": 1, "record_count": 2}]


def test_a_partition_keeps_the_values_of_a_dropped_column(shared_lake: SharedLake):
    shown = new_table(shared_lake, 2, "id bigint, region string, kind string", "region, kind")
    shown.run("INSERT INTO {t} VALUES (1, 'eu', 'a'), (2, 'us', 'a')", engine="neve")
    shown.run("ALTER TABLE {t} DROP PARTITION FIELD region", "ALTER TABLE {t} DROP COLUMN region", engine="neve")
    query = "SELECT partition, record_count AS rows FROM {t}.partitions"
    ours = sorted(shown.by_neve(query).to_pylist(), key=repr)
    assert ours == [{"partition": {"region": r, "kind": "a"}, "rows": 1} for r in ("eu", "us")]
    assert shown.by_spark(query).to_pylist() == [{"partition": {"kind": "a"}, "rows": 2}]


@pytest.mark.parametrize("by", ["key", ""])
def test_uuids_are_text(shared_lake: SharedLake, by: str):
    shown = new_table(shared_lake, 2, "id bigint, key uuid", by)
    shown.run("INSERT INTO {t} VALUES (1, 'f79c3e09-677c-4bbd-a479-3f349cb785e7')", engine="spark")
    query = f"SELECT {'partition.key' if by else 'readable_metrics.key.lower_bound AS key'} FROM {{t}}.files"
    assert shown.by_neve(query).to_pylist() == [{"key": "f79c3e09-677c-4bbd-a479-3f349cb785e7"}]
    with pytest.raises(SparkSaid, match="UUID"):
        shown.by_spark(query)


def test_fields_may_share_a_name(shared_lake: SharedLake):
    shown = new_table(shared_lake, 2, "id bigint, region string", "region")
    shown.run("ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id) AS part", engine="neve")
    shown.run("ALTER TABLE {t} DROP PARTITION FIELD part", engine="neve")
    shown.run("ALTER TABLE {t} ADD PARTITION FIELD truncate(region, 1) AS part", engine="neve")
    shown.run("INSERT INTO {t} VALUES (1, 'eu')", engine="neve")
    query = "SELECT partition FROM {t}.files"
    assert shown.by_neve(query).to_pylist() == [{"partition": {"region": "eu", "part_p1001": None, "part": "e"}}]
    with pytest.raises(SparkSaid, match="part"):
        shown.by_spark(query)


def test_a_partition_has_its_spec_also_after_its_snapshots_expired(shared_lake: SharedLake):
    shown = new_table(shared_lake, 2, "id bigint, region string", "region")
    shown.run("ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)", "INSERT INTO {t} VALUES (1, 'eu')", engine="neve")
    shown.run("INSERT INTO {t} VALUES (2, 'us')", engine="neve")
    shown.table.expire_snapshots().retain_last(1).older_than(1 << 42).execute()
    query = "SELECT spec_id, last_updated_at IS NULL AS unknown FROM {t}.partitions WHERE partition.region = 'eu'"
    assert shown.by_neve(query).to_pylist() == [{"spec_id": 1, "unknown": True}]
    assert shown.by_spark(query).to_pylist() == [{"spec_id": 0, "unknown": True}]


# --- version 4 ---


def test_version_4_shows_what_its_export_to_version_3_has(shared_lake: SharedLake):
    shown = new_table(shared_lake, 4, COLUMNS, "region, days(ts)")
    for text in (f"INSERT INTO {{t}} VALUES {ROWS.format(gone='NULL')}", *EVOLVE):
        shown.run(text, engine="neve")
    shown.run(f"INSERT INTO {{t}} VALUES {ROWS.replace(', {gone}', '')}", engine="neve")
    shown.table.create_tag("kept").create_branch("audit")
    shown.run("DELETE FROM {t} WHERE id IN (1, 2)", engine="neve")
    name, location = f"{shown.name}_export", shown.table.export_metadata()
    shared_lake.spark.sql(f"CALL system.register_table(table => '{name}', metadata_file => '{location}')")
    same = (
        "SELECT file_path, pos, row, partition, spec_id, delete_file_path, content_offset, content_size_in_bytes "
        "FROM {t}.position_deletes",
        "SELECT content, file_path, file_format, spec_id, partition, record_count, sort_order_id, referenced_data_file,"
        " content_offset, content_size_in_bytes, first_row_id FROM {t}.files",
        "SELECT file_path, readable_metrics FROM {t}.data_files",
        "SELECT partition, spec_id, record_count, file_count, total_data_file_size_in_bytes, "
        "position_delete_record_count, position_delete_file_count FROM {t}.partitions",
        "SELECT * FROM {t}.refs",
    )
    exported = Shown(shared_lake, name)
    for query in same:
        theirs, ours = exported.by_spark(query), shown.by_neve(query)
        assert differences(theirs, ours) == [], query
