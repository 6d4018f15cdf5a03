"""Writing data files on Spark."""

from __future__ import annotations

from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DateType,
    FixedType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark.sql import DataFrame, SparkSession

from neve.errors import UnknownName, UserError, WriteFailed
from neve.run.spark.session import temporary_options
from neve.run.spark.write import write_dataframe
from neve.run.write.target import WriteTarget
from neve.tree.entries import DETAIL, EntryTable
from tests.support.tables import written_rows

SIMPLE = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
ADVISORY = "spark.sql.adaptive.advisoryPartitionSizeInBytes"


def numbers(spark: SparkSession, count: int = 1000, tasks: int = 3) -> DataFrame:
    return spark.range(0, count, 1, tasks).selectExpr("id", "concat('n', id % 5) as name")


def on_disk(target: WriteTarget) -> set[str]:
    return {str(p) for p in Path(target.location).rglob("*.parquet")}


def test_rows_of_a_partition_meet_in_one_file_with_its_tuple(spark: SparkSession, aim: Any):
    target = aim(SIMPLE, [(2, "identity"), (1, "truncate[500]")])
    written = write_dataframe(numbers(spark), target)
    assert written.schema == EntryTable.schema(target.specs, DETAIL.names)
    assert written.num_rows == 10, "five names in two ranges"
    for row in written.to_pylist():
        inside = pq.read_table(row["file_path"]).to_pylist()
        assert {(r["name"], r["id"] - r["id"] % 500) for r in inside} == {(row["p1000"], row["p1001"])}
        assert row["record_count"] == len(inside) == 100
    assert sorted(r["id"] for r in written_rows(written)) == list(range(1000))
    assert on_disk(target) == set(written["file_path"].to_pylist()), "one action: nothing is written twice"


def test_the_option_that_sizes_tasks_is_put_back(spark: SparkSession, aim: Any):
    with temporary_options(spark, {ADVISORY: "7654321"}):
        write_dataframe(numbers(spark, 10), aim(SIMPLE, [(2, "identity")]))
        assert spark.conf.get(ADVISORY) == "7654321"


def test_without_distribution_rows_stay_in_their_tasks(spark: SparkSession, aim: Any):
    target = aim(SIMPLE, [(2, "identity")], {"write.distribution-mode": "none"})
    assert write_dataframe(numbers(spark), target).num_rows == 15


def test_fan_out_needs_no_sorting_by_partition(spark: SparkSession, aim: Any):
    target = aim(SIMPLE, [(2, "identity")], {"write.distribution-mode": "none", "write.spark.fanout.enabled": "true"})
    written = write_dataframe(numbers(spark), target)
    assert written.num_rows == 15
    assert sorted(r["id"] for r in written_rows(written)) == list(range(1000))


def test_an_unpartitioned_table_is_written_where_its_rows_are(spark: SparkSession, aim: Any):
    written = write_dataframe(numbers(spark), aim(SIMPLE))
    assert written["record_count"].to_pylist() == [333, 333, 334]
    assert [Path(p).name.split("-")[0] for p in sorted(written["file_path"].to_pylist())] == ["00000", "00001", "00002"]


def test_a_sorted_table_gets_ranges_in_order(spark: SparkSession, aim: Any):
    order = SortOrder(SortField(1, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST), order_id=3)
    target = aim(SIMPLE, sort_order=order)
    with temporary_options(spark, {"spark.sql.adaptive.coalescePartitions.enabled": "false"}):
        written = write_dataframe(numbers(spark), target)
    assert set(written["sort_order_id"].to_pylist()) == {3}
    files = [pq.read_table(p)["id"].to_pylist() for p in written["file_path"].to_pylist()]
    assert len(files) == 2
    assert all(ids == sorted(ids, reverse=True) for ids in files)
    (low, high) = sorted((min(ids), max(ids)) for ids in files)
    assert low[1] < high[0], "the ranges of files do not overlap"


def test_rows_are_sorted_as_what_they_become(spark: SparkSession, aim: Any):
    order = SortOrder(SortField(2, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST), order_id=3)
    df = spark.range(0, 12, 1, 1).selectExpr("id", "id as name")
    names = [r["name"] for r in written_rows(write_dataframe(df, aim(SIMPLE, sort_order=order)))]
    assert names == sorted(str(n) for n in range(12))


def test_keys_do_not_hide_columns_of_the_same_name(spark: SparkSession, aim: Any):
    schema = Schema(NestedField(1, "__key_0", LongType()), NestedField(2, "id", LongType()))
    written = write_dataframe(spark.range(3).selectExpr("id as __key_0", "id"), aim(schema, [(2, "bucket[2]")]))
    assert sorted(r["__key_0"] for r in written_rows(written)) == [0, 1, 2]


def test_a_transform_that_goes_through_arrow_brings_rows_together(spark: SparkSession, aim: Any):
    target = aim(SIMPLE, [(2, "bucket[3]")])
    written = write_dataframe(numbers(spark), target)
    keys = written["p1000"].to_pylist()
    assert len(keys) == len(set(keys)), "one file for each bucket"
    assert sum(written["record_count"].to_pylist()) == 1000


def test_files_roll_at_the_target_size(spark: SparkSession, aim: Any):
    df = spark.range(0, 20000, 1, 1).selectExpr("id", "sha2(string(id), 256) as name")
    written = write_dataframe(df, aim(SIMPLE, properties={"write.target-file-size-bytes": "200000"}))
    assert written.num_rows > 3
    assert max(written["file_size_in_bytes"].to_pylist()) < 300_000


TYPES = Schema(
    NestedField(1, "u", UUIDType()),
    NestedField(2, "t", TimeType()),
    NestedField(3, "f", FixedType(2)),
    NestedField(4, "local", TimestampType()),
    NestedField(5, "instant", TimestamptzType()),
    NestedField(6, "small", IntegerType()),
    NestedField(7, "s", StructType(NestedField(8, "at", TimestampType()), NestedField(9, "gone", StringType()))),
    NestedField(10, "l", ListType(11, TimestamptzType(), False)),
    NestedField(12, "later", DateType(), write_default=3),
)


def test_types_spark_does_not_have_are_stored_as_their_own(spark: SparkSession, aim: Any):
    key = UUID(int=77)
    df = spark.sql(f"select '{key}' u, time'01:02:03.000004' t, X'6162' f")
    (row,) = written_rows(write_dataframe(df, aim(TYPES, [(1, "bucket[4]")])))
    assert (row["u"], row["t"], row["f"]) == (key, time(1, 2, 3, 4), b"ab")


def test_timestamps_cross_time_zones_by_the_session(spark: SparkSession, aim: Any):
    with temporary_options(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        df = spark.sql(
            """select timestamp'2026-01-01 09:00:00' LOCAL, timestamp_ntz'2026-01-01 09:00:00' instant, 5L small,
            named_struct('at', timestamp'2026-01-01 09:00:00') s, array(timestamp_ntz'2026-01-01 09:00:00') l"""
        )
        (row,) = written_rows(write_dataframe(df, aim(TYPES, [(5, "day")])))
    nine, midnight = datetime(2026, 1, 1, 9), datetime(2026, 1, 1, tzinfo=UTC)
    assert (row["local"], row["instant"], row["small"]) == (nine, midnight, 5)
    assert (row["s"], row["l"]) == ({"at": nine, "gone": None}, [midnight])
    assert row["later"].day == 4, "the write default of a column the rows lack"


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        (["id", "name", "1 as extra"], UnknownName, "'extra'"),
        (["name"], UserError, "Missing column 'id'"),
        (["id", "id % 2 = 0 as name", "id as ID"], UserError, "Duplicate column"),
        (["id", "array(id) as name"], UserError, "'name'"),
        (["cast(id as string) as id"], UserError, "'id'"),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_a_job_runs(
    spark: SparkSession, aim: Any, columns: list[str], error: type[Exception], message: str
):
    target = aim(SIMPLE)
    df = numbers(spark).where("raise_error('a job ran') is null").selectExpr(*columns)
    with pytest.raises(error, match=message):
        write_dataframe(df, target)
    assert not on_disk(target)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("if(id = 999, null, id) as id", "Null in required column 'id'"),
        ("if(id = 999, 0.5D, id) as id", "column 'id' as long"),
    ],
)
def test_a_bad_value_is_refused_and_every_file_removed(spark: SparkSession, aim: Any, expression: str, message: str):
    target = aim(SIMPLE)
    with pytest.raises(UserError, match=message):
        write_dataframe(numbers(spark).selectExpr(expression, "name"), target)
    assert not on_disk(target)


def test_a_job_that_fails_leaves_nothing_of_its_finished_tasks(spark: SparkSession, aim: Any, tmp_path: Path):
    target = aim(SIMPLE)
    sibling = f"{target.location}/data"

    def fails_after_its_sibling(batches: Any) -> Any:
        import os
        import time

        for batch in batches:
            if batch["id"][0].as_py():
                while not (os.path.isdir(sibling) and os.listdir(sibling)):
                    time.sleep(0.05)
                time.sleep(1)
                raise RuntimeError("broken disk")
            yield batch

    df = spark.range(0, 2, 1, 2).mapInArrow(fails_after_its_sibling, "id long")
    with pytest.raises(WriteFailed) as e:
        write_dataframe(df, target)
    assert e.value.leftover == ()
    assert e.value.__cause__ is not None
    assert not on_disk(target)


def test_no_rows_make_no_files(spark: SparkSession, aim: Any):
    target = aim(SIMPLE, [(2, "identity")])
    written = write_dataframe(numbers(spark).where("id < 0"), target)
    assert (written.num_rows, written.schema) == (0, EntryTable.schema(target.specs, DETAIL.names))


def test_a_null_partition_value_has_its_own_file(spark: SparkSession, aim: Any):
    df = spark.sql("select id, if(id < 5, null, 'x') name from range(10)")
    written = write_dataframe(df, aim(SIMPLE, [(2, "identity")]))
    assert sorted(zip(written["p1000"].to_pylist(), written["record_count"].to_pylist(), strict=True), key=str) == [
        ("x", 5),
        (None, 5),
    ]
