"""Scan plans as DataFrames: rows of real files compared with the same rows in plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession
from run.spark.lake import Plan, Row, TestLake

from neve.run.spark.read import read

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "name", StringType(), required=False))


def rows_of(spark: SparkSession, lake: TestLake, plan: Plan | None = None, columns: tuple[str, ...] = ()) -> list[Row]:
    """The rows a scan gives, in an order of their own."""
    found: Any = read(spark, plan or lake.plan(), lake.facts, columns)  # type: ignore[arg-type]
    return sorted(found.toArrow().to_pylist(), key=repr)


def expected(*rows: Row) -> list[Row]:
    return sorted(rows, key=repr)


def numbered(start: int, count: int) -> list[Row]:
    return [{"id": i, "name": f"n{i}"} for i in range(start, start + count)]


@pytest.fixture
def lake(tmp_path: Path) -> TestLake:
    return TestLake(tmp_path, (SCHEMA,))


def test_a_plan_without_files_is_an_empty_dataframe_with_the_columns_asked_for(spark: SparkSession, lake: TestLake) -> None:
    found: Any = read(spark, lake.plan(), lake.facts, ["_file"])  # type: ignore[arg-type]
    assert found.dtypes == [("id", "bigint"), ("name", "string"), ("_file", "string")]
    assert found.count() == 0


def test_vectors_hide_rows_of_their_own_file_only(spark: SparkSession, lake: TestLake) -> None:
    lake.data(numbered(0, 70_000))
    lake.data(numbered(100_000, 10))
    lake.data(numbered(200_000, 66_000))
    gone = {0, 63, 64, 65_535, 65_536, 69_999}
    lake.vector(0, gone)
    lake.vector(2, range(65_536))
    found = rows_of(spark, lake)
    assert found == expected(
        *(r for r in numbered(0, 70_000) if r["id"] not in gone), *numbered(100_000, 10), *numbered(265_536, 464)
    )
