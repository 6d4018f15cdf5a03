"""Files that Spark's own reader would get wrong: found, and read another way."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from neve.errors import TableError
from neve.run.read.scan import read_table
from neve.run.spark import file_routing as footers
from neve.run.spark.file_routing import route_files
from neve.run.spark.read import read_dataframe
from neve.run.spark.session import temporary_options
from tests.support.file_tables import Row, TestLake, expected, identity, rows_of


def column(field_id: int, name: str, kind: ice.IcebergType = LongType(), **more: Any) -> NestedField:  # noqa: B008
    return NestedField(field_id, name, kind, required=False, **more)


ID, NAME = column(1, "id"), column(2, "name", StringType())
SCHEMA = Schema(ID, NAME)


def numbered(start: int, count: int) -> list[Row]:
    return [{"id": i, "name": f"n{i}"} for i in range(start, start + count)]


def through_arrow(spark: SparkSession, lake: TestLake) -> list[int]:
    return route_files(spark, lake.plan().files, lake.schemas[0].fields, lake.facts).arrow.tolist()


def test_files_spark_hides_by_their_name_are_read(spark: SparkSession, tmp_path: Path) -> None:
    lake = TestLake(tmp_path, (SCHEMA,))
    for i, name in enumerate(("_x.parquet", ".y.parquet", "_dir/z.parquet", "k=_/w.parquet")):
        lake.data(numbered(i * 10, 2), name=name)
    assert through_arrow(spark, lake) == [0, 1]
    assert rows_of(spark, lake) == expected(*(r for i in range(4) for r in numbered(i * 10, 2)))


@pytest.mark.parametrize(("mapped", "on_driver"), [(True, 64), (True, 0), (False, 64)])
def test_files_without_ids_are_read_by_name(
    spark: SparkSession, tmp_path: Path, mapped: bool, on_driver: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footers, "_MAX_FILES_ON_DRIVER", on_driver)
    lake = TestLake(tmp_path, (SCHEMA,), name_mapping=create_mapping_from_schema(SCHEMA) if mapped else None)
    lake.data(numbered(0, 2), ids=False, sequence_number=1)
    lake.data(numbered(10, 2), sequence_number=2)
    lake.data(numbered(20, 2), Schema(NAME, ID), ids=False, sequence_number=3)
    assert through_arrow(spark, lake) == [0, 2]
    assert rows_of(spark, lake) == expected(*numbered(0, 2), *numbered(10, 2), *numbered(20, 2))


def test_a_session_that_ignores_missing_ids_gets_no_nulls_for_them(spark: SparkSession, tmp_path: Path) -> None:
    lake = TestLake(tmp_path, (SCHEMA,))
    lake.data(numbered(0, 2), sequence_number=1)
    lake.data(numbered(10, 2), ids=False, sequence_number=2)
    with temporary_options(spark, {"spark.sql.parquet.fieldId.read.ignoreMissing": "true"}):
        assert rows_of(spark, lake) == expected(*numbered(0, 2), *numbered(10, 2))


@pytest.mark.parametrize("counts", [True, False])
def test_a_column_added_with_a_default_has_it_in_older_files_only(
    spark: SparkSession, tmp_path: Path, counts: bool
) -> None:
    moment = dt.datetime(2021, 2, 3, 4, 5, 6, 789)
    fields = (
        column(3, "s", StringType(), initial_default="d"),
        column(4, "t", ice.TimestampType(), initial_default=moment),
        column(5, "z", ice.TimestamptzType(), initial_default=moment.replace(tzinfo=dt.UTC)),
        column(6, "c", ice.DecimalType(12, 3), initial_default=Decimal("1.500")),
        column(7, "day", ice.DateType(), initial_default=dt.date(1969, 12, 31)),
        column(8, "b", ice.BinaryType(), initial_default=b"\x00\xff"),
        column(9, "f", ice.FloatType(), initial_default=0.5),
    )
    defaults = {f.name: f.initial_default for f in fields}
    lake = TestLake(tmp_path, (Schema(ID, *fields), Schema(ID)), counts=counts)
    lake.data([{"id": 1}, {"id": 2}], Schema(ID))
    nothing = dict.fromkeys(defaults)
    lake.data([{"id": 3} | nothing])
    lake.data([{"id": 4, "s": "own"}], Schema(ID, fields[0]))
    assert through_arrow(spark, lake) == []
    with temporary_options(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        found = rows_of(spark, lake)
    assert found == expected(
        {"id": 1} | defaults, {"id": 2} | defaults, {"id": 3} | nothing, {"id": 4} | defaults | {"s": "own"}
    )


def test_a_partition_column_that_is_not_in_the_file_comes_from_the_tuple(spark: SparkSession, tmp_path: Path) -> None:
    """Also where the manifest counts its values, as writers do that leave it out of the file."""
    lake = TestLake(tmp_path, (SCHEMA,), (identity(2, "name"), PartitionSpec(spec_id=1)))
    counts = [{"key": 2, "value": 1}]
    lake.data([{"id": 1}], Schema(ID), p1000="x", value_counts=counts)
    lake.data([{"id": 2, "name": "y"}], p1000="y", sequence_number=2)
    lake.data([{"id": 3}], Schema(ID), p1000=None)
    lake.data([{"id": 4}], Schema(ID), spec_id=1)
    assert through_arrow(spark, lake) == [0]
    names = {1: "x", 2: "y", 3: None, 4: None}
    rows = [{"id": i, "name": n, "_partition": {"name": n}} for i, n in names.items()]
    assert rows_of(spark, lake, columns=["_partition"]) == expected(*rows)


def test_a_null_in_the_tuple_comes_before_the_default_of_a_column_the_file_lacks(
    spark: SparkSession, tmp_path: Path
) -> None:
    added = column(2, "name", StringType(), initial_default="d")
    lake = TestLake(tmp_path, (Schema(ID, added),), (identity(2, "name"), PartitionSpec(spec_id=1)))
    lake.data([{"id": 1}], Schema(ID), p1000=None)
    lake.data([{"id": 2}], Schema(ID), spec_id=1)
    assert rows_of(spark, lake) == expected({"id": 1, "name": None}, {"id": 2, "name": "d"})
    here = read_table(lake.plan(), lake.facts).sort_by("id")
    assert here.to_pylist() == [{"id": 1, "name": None}, {"id": 2, "name": "d"}]


def test_a_partition_column_missing_where_it_was_not_looked_for_stops_the_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = TestLake(tmp_path, (SCHEMA,), (identity(2, "name"),))
    lake.data([{"id": 1, "name": "x"}], p1000="x")
    lake.data([{"id": 2}], Schema(ID), p1000="y")  # of the same commit as the file that was looked into
    with pytest.raises(PySparkException, match="Column 'name' is null in a data file whose partition has a value"):
        rows_of(spark, lake)
    with temporary_options(spark, {"spark.neve.read.footers": "all"}):
        assert rows_of(spark, lake) == expected({"id": 1, "name": "x"}, {"id": 2, "name": "y"})


def test_few_partitioned_files_beside_others_are_all_looked_into_and_read_with_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = TestLake(tmp_path, (SCHEMA,), (identity(2, "name"), PartitionSpec(spec_id=1)))
    lake.data([{"id": 1, "name": "x"}], p1000="x")
    lake.data([{"id": 3, "name": "z"}], spec_id=1)
    native = route_files(spark, lake.plan().files, SCHEMA.fields, lake.facts).native
    assert [(files.rows.tolist(), files.never_null) for files in native] == [([0, 1], frozenset())]
    lake.data([{"id": 2}], Schema(ID), p1000="y")  # of the same commit as the first
    assert through_arrow(spark, lake) == [2]
    names = {1: "x", 2: "y", 3: "z"}
    assert rows_of(spark, lake) == expected(*({"id": i, "name": n} for i, n in names.items()))


def test_orc_files_beside_parquet_files(spark: SparkSession, tmp_path: Path) -> None:
    lake = TestLake(tmp_path, (SCHEMA,))
    lake.data(numbered(0, 3))
    path = tmp_path / "x.orc"
    fields = [
        pa.field(f.name, t, metadata={"iceberg.id": str(f.field_id)})
        for f, t in zip(SCHEMA.fields, (pa.int64(), pa.string()), strict=True)
    ]
    orc.write_table(pa.Table.from_pylist(numbered(10, 3), schema=pa.schema(fields)), path)
    lake.files.append(
        lake.files[0] | {"file_path": str(path), "file_format": "ORC", "file_size_in_bytes": path.stat().st_size}
    )
    lake.vector(0, [0])
    lake.vector(1, [1])
    assert through_arrow(spark, lake) == [1]
    rows = [*numbered(1, 2), *numbered(10, 1), *numbered(12, 1)]
    assert rows_of(spark, lake) == expected(*rows)


def test_nanoseconds_and_times_are_read_though_spark_has_no_reader_for_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = Schema(ID, column(3, "ns", ice.TimestampNanoType()), column(4, "t", ice.TimeType()))
    lake = TestLake(tmp_path, (schema,))
    lake.data([{"id": 1, "ns": 1_234_567_891, "t": dt.time(1, 2, 3, 4)}])
    assert through_arrow(spark, lake) == [0]
    assert rows_of(spark, lake) == [{"id": 1, "ns": dt.datetime(1970, 1, 1, 0, 0, 1, 234567), "t": dt.time(1, 2, 3, 4)}]
    found = read_dataframe(spark, lake.plan(Schema(ID)), lake.facts)
    assert "MapInArrow" not in found._jdf.queryExecution().toString()


def test_schemes_spark_has_no_connector_for_go_through_file_io(spark: SparkSession, tmp_path: Path) -> None:
    lake = TestLake(tmp_path, (SCHEMA,))
    lake.data(numbered(0, 1))
    lake.data(numbered(1, 1), name="other.parquet")
    lake.files[1]["file_path"] = "s3://bucket/other.parquet"
    assert through_arrow(spark, lake) == [1]


def test_a_table_in_a_bucket_cannot_name_files_of_this_machine(spark: SparkSession, tmp_path: Path) -> None:
    lake = TestLake(tmp_path, (SCHEMA,))
    lake.data(numbered(0, 1))
    facts = replace(lake.facts, location="s3://bucket/table")
    with pytest.raises(TableError, match="a local path outside the table"):
        read_dataframe(spark, lake.plan(), facts)
