"""Rows are handed to Arrow by count where they are small; by weight where they may be large or a session says so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyspark.sql import SparkSession

import neve
from neve.run.spark.arrow_exchange import arrow_batch_options
from neve.run.spark.session import temporary_options
from neve.run.spark.writing_job import run_writing_job
from neve.run.write.partitioning import FileNames
from neve.run.write.rolling_writer import WrittenFile
from neve.run.write.target import WriteTarget
from tests.run.conftest import Aim

RECORDS, BYTES = (f"spark.sql.execution.arrow.max{what}PerBatch" for what in ("Records", "Bytes"))


@pytest.mark.parametrize(("row_bytes", "found"), [(100, [4096, 4096, 1808]), (100_000, [10_000])])
def test_a_writing_job_is_given_small_rows_by_count(spark: SparkSession, aim: Aim, row_bytes: int, found: list[int]):
    def sizes(batches: Iterable[pa.RecordBatch], names: FileNames) -> tuple[list[WrittenFile], pa.Table]:
        return [], pa.table({"rows": [batch.num_rows for batch in batches]})

    rows = spark.range(0, 10_000, 1, 1).selectExpr("id", "CAST(id AS string) AS text", "struct(id) AS s")
    target = replace(aim(Schema(NestedField(1, "id", LongType()))), average_row_bytes=row_bytes)
    [answer] = run_writing_job(rows, sizes, target, {})
    assert answer.note is not None
    assert answer.note["rows"].to_pylist() == found
    assert spark.conf.get(RECORDS) == "10000"


def test_texts_are_weighed_where_nobody_knows_how_large_rows_are(spark: SparkSession):
    assert arrow_batch_options(spark.createDataFrame([], "text string"), row_bytes=100)
    assert arrow_batch_options(spark.createDataFrame([], "text string")) == {}
    assert arrow_batch_options(spark.createDataFrame([], "id bigint, day date"))


@pytest.mark.parametrize("kind", ["binary", "array<string>", "map<string, int>", "struct<a: struct<b: binary>>"])
def test_values_that_may_be_large_are_weighed(spark: SparkSession, kind: str):
    assert arrow_batch_options(spark.createDataFrame([], f"id bigint, doc {kind}"), row_bytes=100) == {}


def test_rows_are_weighed_where_those_of_the_table_are_large(spark: SparkSession):
    rows = spark.range(1)
    assert arrow_batch_options(rows, row_bytes=100)
    assert arrow_batch_options(rows, row_bytes=100_000) == {}


@pytest.mark.parametrize(("name", "value"), [(RECORDS, "50"), (BYTES, "1m")])
def test_a_session_that_has_its_own_limits_keeps_them(spark: SparkSession, name: str, value: str):
    own = spark.newSession()
    own.conf.set(name, value)
    assert arrow_batch_options(own.range(1)) == {}


def test_what_another_call_has_set_is_not_the_session_s_own(spark: SparkSession):
    with temporary_options(spark, arrow_batch_options(spark.range(1))):
        assert arrow_batch_options(spark.range(1))


def document(length: int, number: int) -> str:
    """Text that does not compress away."""
    return "".join(chr(33 + n) for n in np.random.default_rng(number).integers(0, 90, length))


@pytest.mark.parametrize(("length", "is_large"), [(10, False), (50_000, True)])
def test_a_table_tells_how_large_its_rows_are(spark: SparkSession, lake_dir: Path, length: int, is_large: bool):
    table = neve.connect(lake_dir).create_table("db.t", "doc string")
    assert WriteTarget.of(table.context.metadata, {}).average_row_bytes == 0
    table.append([{"doc": document(length, n)} for n in range(1000 if length < 100 else 3)])
    found = WriteTarget.of(table.refresh().context.metadata, {}).average_row_bytes
    assert length // 2 < found < 2 * length
    assert bool(arrow_batch_options(spark.range(1), found)) is not is_large


@pytest.mark.parametrize("text", ["", "-5", "many", "9" * 5000])
def test_a_summary_may_say_anything(lake_dir: Path, text: str):
    table = neve.connect(lake_dir).create_table("db.t", "id bigint")
    table.append([{"id": 1}])
    metadata = table.refresh().context.metadata
    metadata.current_snapshot().summary.additional_properties["total-files-size"] = text
    assert WriteTarget.of(metadata, {}).average_row_bytes == 0
