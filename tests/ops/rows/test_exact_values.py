"""Values that Spark sees otherwise than the table has them: nanoseconds and UUIDs, untouched and as keys."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, IntegerType, LongType, NestedField, StructType, TimestampNanoType
from pyspark.sql import functions as F  # noqa: N812

import neve
from neve import Table
from neve.errors import UnsupportedFeature
from tests.support.tables import delete_equal

SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "at", TimestampNanoType()), NestedField(3, "n", IntegerType())
)
SECOND = datetime(2023, 11, 14, 22, 13, 20)
NANOS = [1_700_000_000_000_000_005, 1_700_000_000_000_001_999]


def field(name: str, kind: Any) -> NestedField:
    return NestedField(0, name, kind)


def of_nanos(lake: neve.Lake) -> Table:
    table = lake.create_table("db.t", SCHEMA, format_version=3)
    at = pa.array(NANOS, pa.timestamp("ns"))
    table.append(pa.table({"id": pa.array([1, 2], pa.int64()), "at": at, "n": pa.array([0, 0], pa.int32())}))
    return table


def read(table: Table) -> pa.Table:
    return table.refresh().scan().to_arrow(engine="arrow")


def nanos_in(table: Table) -> list[int]:
    return sorted(read(table)["at"].cast(pa.int64()).to_pylist())


@pytest.mark.parametrize("where", [None, "id > 0", "id = 1"])
def test_an_update_of_other_columns_leaves_nanoseconds_alone(spark_lake: neve.Lake, where: str | None):
    table = of_nanos(spark_lake)
    update = table.update().set("n", "1")
    (update if where is None else update.where(where)).execute()
    assert nanos_in(table) == NANOS
    assert pc.sum(read(table)["n"]).as_py() == (1 if where == "id = 1" else 2)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.update().set("at2", "at"),
        lambda t: t.update().set("at", "t.at + interval 1 second"),
        lambda t: t.update().set("at2", F.col("at")),
        lambda t: t.update().set("s.a", "1"),
        lambda t: (
            t.merge([{"id": 1}, {"id": 2}], "t.id = s.id")
            .when_matched_update({"n": "1"}, condition="t.id = 1")
            .when_matched_update({"at": "timestamp_ntz '2024-01-01'"})
        ),
    ],
    ids=["copied", "computed", "a Column", "beside a field that is assigned", "left out by another clause"],
)
def test_values_that_spark_would_cut_are_not_written_back(spark_lake: neve.Lake, change: Any):
    table = of_nanos(spark_lake)
    with table.evolve_schema() as evolution:
        evolution.add_column("at2", TimestampNanoType())
        evolution.add_column("s", StructType(field("a", IntegerType()), field("at", TimestampNanoType())))
    with pytest.raises(UnsupportedFeature, match=r"is finer than Spark's timestamps.*cut to microseconds"):
        change(table).mode("copy-on-write").execute()
    assert nanos_in(table) == NANOS


def test_nanoseconds_may_be_assigned_from_elsewhere(spark_lake: neve.Lake):
    table = of_nanos(spark_lake)
    table.update().set("at", "timestamp_ntz '2024-01-01'").where("id = 1").mode("copy-on-write").execute()
    assert nanos_in(table) == [NANOS[1], 1_704_067_200_000_000_000]


def of_uuids(lake: neve.Lake, *texts: str) -> Table:
    table = lake.create_table("db.u", "u uuid, n int", format_version=3)
    table.append(pa.table({"u": [UUID(t).bytes for t in texts], "n": pa.array([0] * len(texts), pa.int32())}))
    return table


def merged(table: Table, keys: list[str]) -> Any:
    source = pa.table({"u": keys, "n": pa.array([1] * len(keys), pa.int32())})
    frame = table.context.spark().createDataFrame(source)
    return table.merge(frame, "t.u = s.u").when_matched_update({"n": "s.n"}).execute()


def test_a_uuid_is_looked_for_without_spark(spark_lake: neve.Lake):
    known = [f"{digit * 8}-0000-0000-0000-000000000000" for digit in "abc"]
    table = of_uuids(spark_lake, *known).refresh()
    for where, count in ((f"u = '{known[1]}'", 1), (f"u IN ('{known[0]}', '{known[2]}')", 2)):
        assert table.scan(where).to_arrow().num_rows == count, where


def test_a_key_that_is_no_uuid_matches_nothing(spark_lake: neve.Lake):
    known = "aaaaaaaa-0000-0000-0000-000000000000"
    assert merged(of_uuids(spark_lake, known), [known, "n/a"]).rows_updated == 1


def test_uuids_in_capitals_rule_out_no_file(spark_lake: neve.Lake):
    """As texts they come before all others, and none of them is equal to what Spark is shown."""
    known = "bbbbbbbb-0000-0000-0000-000000000000"
    keys = [known, *(f"aaaaaaaa-0000-0000-0000-{i:012x}" for i in range(1000)), "FFFFFFFF-0000-0000-0000-000000000000"]
    assert merged(of_uuids(spark_lake, known), keys).rows_updated == 1


def test_an_equality_delete_of_a_nanosecond_deletes_that_alone(spark_lake: neve.Lake):
    """Also where Spark reads the rows, in microseconds."""
    table = spark_lake.create_table("db.t", SCHEMA, format_version=3)
    at = pa.array([NANOS[0], NANOS[0] + 900], pa.timestamp("ns"))
    table.append(pa.table({"id": pa.array([1, 2], pa.int64()), "at": at, "n": pa.array([0, 0], pa.int32())}))
    delete_equal(table.refresh(), NANOS[0], column="at")
    assert [row.id for row in table.refresh().to_spark().select("id").collect()] == [2]


def test_nanoseconds_are_not_rounded_by_a_compaction(spark_lake: neve.Lake):
    table = of_nanos(spark_lake)
    with pytest.raises(UnsupportedFeature, match=r"'at' of type timestamp_ns is finer.*keep_spec"):
        table.rewrite_data_files().sort("id").option("rewrite-all", "true").execute()
    table.rewrite_data_files().keep_spec().option("rewrite-all", "true").execute()
    assert nanos_in(table) == NANOS
    assert table.refresh().verify().is_sound


def test_a_decimal_that_was_widened_is_compared_as_it_is(spark_lake: neve.Lake):
    """Spark cuts the number it compares with to the width a file has; 30,000,000.00 is negative in 32 bits."""
    table = spark_lake.create_table("db.d", "id bigint, amount decimal(9, 2)", format_version=2)
    table.append([{"id": i, "amount": Decimal(i)} for i in range(3)])
    with table.evolve_schema() as change:
        change.update_column("amount", DecimalType(12, 2))
    rows = table.refresh().to_spark().where("amount < 30000000")
    assert rows.count() == 3
    assert table.refresh().delete().where("amount + 0 < 30000000 AND amount < 30000000").execute().rows_deleted == 3
