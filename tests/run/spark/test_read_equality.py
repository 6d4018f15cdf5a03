"""Equality deletes: which rows they reach, in which files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from pyspark.sql import SparkSession

from neve.errors import CorruptFile
from neve.run.spark.read import read_dataframe
from tests.support.file_tables import Row, TestLake, expected, identity, rows_of


def column(field_id: int, name: str, kind: ice.IcebergType = LongType(), **more: Any) -> NestedField:  # noqa: B008
    return NestedField(field_id, name, kind, required=False, **more)


ID, NAME = column(1, "id"), column(2, "name", StringType())
SCHEMA = Schema(ID, NAME)


def pairs(*values: tuple[Any, Any]) -> list[Row]:
    return [{"id": i, "name": n} for i, n in values]


def test_a_delete_reaches_older_files_and_null_agrees_with_null(spark: SparkSession, tmp_path: Path) -> None:
    lake = TestLake(tmp_path, (SCHEMA,))
    rows = pairs((1, "a"), (1, None), (None, "a"), (None, None), (2, "b"))
    lake.data(rows, sequence_number=1)
    lake.data(rows, sequence_number=2)
    lake.data(rows, sequence_number=5)
    lake.equality_deletes([1, 2], pairs((1, None), (None, None)), SCHEMA, [0], sequence_number=2)
    lake.equality_deletes([1, 2], pairs((2, "b")), SCHEMA, [0, 1], sequence_number=4)
    lake.equality_deletes([1], [{"id": None}], Schema(ID), [0, 1], sequence_number=3)
    first = pairs((1, "a"))
    second = pairs((1, "a"), (1, None))
    assert rows_of(spark, lake) == expected(*first, *second, *rows)


def test_a_delete_of_a_partition_stays_in_it_and_one_of_no_partition_reaches_all(
    spark: SparkSession, tmp_path: Path
) -> None:
    specs = (identity(1, "id"), PartitionSpec(spec_id=1))
    lake = TestLake(tmp_path, (SCHEMA,), specs)
    names = ("x", "y", "z")
    for i in (1, 2, None):
        lake.data(pairs(*((i, n) for n in names)), p1000=i)
    lake.data(pairs((9, "x"), (9, "y"), (9, "z")), spec_id=1)
    by_name = Schema(NAME)
    lake.equality_deletes([2], [{"name": "x"}], by_name, [0], sequence_number=2, p1000=1)
    lake.equality_deletes([2], [{"name": "y"}], by_name, [2], sequence_number=2, p1000=None)
    lake.equality_deletes([2], [{"name": "z"}], by_name, [0, 1, 2, 3], sequence_number=2, spec_id=1)
    kept = pairs((1, "y"), (2, "x"), (2, "y"), (None, "x"), (9, "x"), (9, "y"))
    assert rows_of(spark, lake) == expected(*kept)


def test_keys_that_are_dropped_renamed_promoted_or_not_asked_for_still_delete(
    spark: SparkSession, tmp_path: Path
) -> None:
    old = Schema(column(1, "id", IntegerType()), NAME, column(3, "gone"))
    new = Schema(column(1, "key"), NAME, column(5, "gone"))  # another column took the name of the dropped one
    lake = TestLake(tmp_path, (new, old))
    lake.data([{"id": i, "name": f"n{i}", "gone": i * 10} for i in range(5)], old)
    lake.data([{"key": 0, "name": "new"}, {"key": 7, "name": "seven"}], new)
    lake.equality_deletes(
        [1, 3], [{"id": 1, "gone": 10}], Schema(old.fields[0], old.fields[2]), [0, 1], sequence_number=2
    )
    lake.equality_deletes([1], [{"key": 2}, {"key": 7}], Schema(new.fields[0]), [0, 1], sequence_number=3)
    names = ("n0", "n3", "n4", "new")
    assert rows_of(spark, lake, Schema(NAME)) == expected(*({"name": n} for n in names))
    assert sorted((r["name"], r["gone"]) for r in rows_of(spark, lake)) == [(n, None) for n in names]


def test_nan_agrees_with_nan_and_the_two_zeros_differ(spark: SparkSession, tmp_path: Path) -> None:
    schema = Schema(column(1, "d", ice.DoubleType()), column(2, "n", IntegerType()))
    lake = TestLake(tmp_path, (schema,))
    values = [0.0, -0.0, math.nan, 1.5, None]
    lake.data([{"d": d, "n": n} for n, d in enumerate(values)])
    lake.equality_deletes([1], [{"d": -0.0}, {"d": math.nan}], Schema(schema.fields[0]), [0], sequence_number=2)
    assert sorted(r["n"] for r in rows_of(spark, lake)) == [0, 3, 4]


def test_deletes_by_position_and_by_value_add_up(spark: SparkSession, tmp_path: Path) -> None:
    lake = TestLake(tmp_path, (SCHEMA,))
    lake.data(pairs(*((i, f"n{i}") for i in range(6))))
    lake.data(pairs((100, "other")), sequence_number=3)
    lake.vector(0, [0])
    lake.equality_deletes([1], [{"id": 5}, {"id": 100}], Schema(ID), [0], sequence_number=2)
    found = rows_of(spark, lake, columns=["_pos"])
    assert [(r["id"], r["_pos"]) for r in found] == [(1, 1), (100, 0), (2, 2), (3, 3), (4, 4)]


def test_a_default_is_the_value_deletes_are_compared_with(spark: SparkSession, tmp_path: Path) -> None:
    added = column(3, "added", StringType(), initial_default="old")
    lake = TestLake(tmp_path, (Schema(ID, added), Schema(ID)))
    lake.data([{"id": 1}, {"id": 2}], Schema(ID))
    lake.data([{"id": 3, "added": "new"}, {"id": 4, "added": None}])
    lake.equality_deletes(
        [1, 3], [{"id": 1, "added": "old"}, {"id": 4, "added": None}], Schema(ID, added), [0, 1], sequence_number=2
    )
    assert rows_of(spark, lake) == expected({"id": 2, "added": "old"}, {"id": 3, "added": "new"})


def test_deletes_spark_does_not_join_are_applied_by_the_readers(spark: SparkSession, tmp_path: Path) -> None:
    """A key inside a struct."""
    inner = column(10, "s", ice.StructType(column(11, "x")))
    lake = TestLake(tmp_path, (Schema(ID, inner),))
    lake.data([{"id": i, "s": {"x": i}} for i in range(3)] + [{"id": 9, "s": None}])
    lake.equality_deletes([11], [{"s": {"x": 1}}], Schema(inner), [0], sequence_number=2)
    assert [r["id"] for r in rows_of(spark, lake)] == [0, 2, 9]


def test_a_delete_file_without_its_key_column_is_corrupt(spark: SparkSession, tmp_path: Path) -> None:
    """Read by id it would give nulls, and delete every row whose key is null."""
    lake = TestLake(tmp_path, (SCHEMA,))
    lake.data(pairs((None, "a")))
    lake.equality_deletes([1], [{"name": "a"}], Schema(NAME), [0], sequence_number=2)
    with pytest.raises(CorruptFile, match=r"eq-0.parquet: expected the equality columns \[1\], found no column \[1\]"):
        read_dataframe(spark, lake.plan(), lake.facts)
