"""Spark hands rows to Arrow by count if they are small, and measures batches if a row is large or a session says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import DataFrame, SparkSession

import neve
from neve.run.spark.arrow_job import run_in_arrow
from neve.run.spark.session import temporary_options
from neve.run.spark.writing_job import run_writing_job, written_entries
from neve.run.write.data_files import write_batches
from neve.run.write.partitioning import FileNames
from neve.run.write.rolling_writer import WrittenFile
from neve.run.write.target import WriteTarget
from tests.run.conftest import Aim

RECORDS, BYTES = (f"spark.sql.execution.arrow.max{what}PerBatch" for what in ("Records", "Bytes"))
COUNTED, MEASURED = [4096, 4096, 1808], [10_000]


def batch_rows(rows: DataFrame, stored_row_bytes: int = 0) -> list[int]:
    """Return the number of rows of each batch that a task gets."""

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"rows": [batch.num_rows]})

    return [row.rows for row in run_in_arrow(rows, count, "rows bigint", stored_row_bytes=stored_row_bytes)]


def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(0, 10_000, 1, 1)


SMALL_VALUES = (
    "id",
    "CAST(id AS string)",
    "CAST(null AS string)",
    "CAST(CAST(id AS string) AS binary)",
    "array(CAST(id AS string), null)",
    "CAST(null AS array<bigint>)",
    "map('a.b', array(id))",
    "named_struct('a', named_struct('b.c', array(named_struct('d', CAST(id AS string)))))",
)


@pytest.mark.parametrize("value", SMALL_VALUES)
def test_small_rows_are_counted(spark: SparkSession, value: str):
    assert batch_rows(numbers(spark).selectExpr(f"{value} AS `a.b`")) == COUNTED


LARGE_VALUES = (
    "repeat('x', 17000)",
    "CAST(repeat('x', 17000) AS binary)",
    "array_repeat(id, 2000)",
    "array_repeat('xxxxxxxxxx', 2000)",
    "map(id, repeat('x', 17000))",
    "named_struct('a', named_struct('b', repeat('x', 17000)))",
    "array(named_struct('a', repeat('x', 17000)))",
    "parse_json('1')",
)


@pytest.mark.parametrize("value", LARGE_VALUES)
def test_batches_with_a_large_row_are_measured(spark: SparkSession, value: str):
    kind = spark.range(0).selectExpr(value).schema[0].dataType.simpleString()
    column = f"IF(id = 9000, {value}, CAST(null AS {kind})) AS doc"
    assert batch_rows(numbers(spark).selectExpr("id", column)) == MEASURED


def test_rows_are_measured_if_those_of_the_table_are_large(spark: SparkSession):
    assert batch_rows(numbers(spark), stored_row_bytes=100_000) == MEASURED


@pytest.mark.parametrize(("name", "value", "found"), [(RECORDS, "5000", [5000, 5000]), (BYTES, "1m", MEASURED)])
def test_a_session_that_has_its_own_limits_keeps_them(spark: SparkSession, name: str, value: str, found: list[int]):
    own = spark.newSession()
    own.conf.set(name, value)
    assert batch_rows(numbers(own)) == found


def test_options_of_another_call_are_not_those_of_the_session(spark: SparkSession):
    with temporary_options(spark, {RECORDS: "5000"}):
        assert batch_rows(numbers(spark)) == COUNTED
    assert spark.conf.get(RECORDS) == "10000"


def test_what_the_first_attempt_left_is_removed_before_the_second(spark: SparkSession):
    calls: list[str] = []

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"rows": [sum(batch.num_rows for batch in batches)]})

    rows = spark.range(0, 10, 1, 4).selectExpr("id", "IF(id = 9, repeat('x', 1000000), 'small') AS doc")
    found = run_in_arrow(rows, count, "rows bigint", before_retry=lambda: calls.append("removed"))
    assert (sum(row.rows for row in found), calls) == (10, ["removed"])
    small = run_in_arrow(rows.where("id < 9"), count, "rows bigint", before_retry=lambda: calls.append("again"))
    assert (sum(row.rows for row in small), calls) == (9, ["removed"])


def test_only_files_of_the_second_attempt_are_returned(spark: SparkSession, aim: Aim):
    target = aim(Schema(NestedField(1, "id", LongType()), NestedField(2, "doc", StringType())))

    def write(batches: Iterable[pa.RecordBatch], names: FileNames) -> tuple[list[WrittenFile], pa.Table | None]:
        return write_batches(batches, target, names, is_clustered=True), None

    rows = spark.range(0, 10, 1, 4).selectExpr("id", "IF(id = 9, repeat('x', 1000000), 'small') AS doc")
    files = written_entries(run_writing_job(rows, write, target, {}), target)
    assert sum(files["record_count"].to_pylist()) == 10
    assert all(Path(path.removeprefix("file://")).exists() for path in files["file_path"].to_pylist())


def test_rows_of_a_megabyte_are_written(spark: SparkSession, lake_dir: Path):
    table = neve.connect(lake_dir, spark=spark).create_table("db.t", "id bigint, doc string")
    table.append(spark.range(0, 200, 1, 2).selectExpr("id", "repeat(CAST(id % 10 AS string), 1000000) AS doc"))
    lengths = table.scan().to_spark().selectExpr("length(doc) AS n").groupBy("n").count().collect()
    assert [(row.n, row["count"]) for row in lengths] == [(1_000_000, 200)]


def document(length: int, number: int) -> str:
    """Text that does not compress away."""
    return "".join(chr(33 + n) for n in np.random.default_rng(number).integers(0, 90, length))


@pytest.mark.parametrize("length", [10, 50_000])
def test_a_table_tells_how_large_its_rows_are(lake_dir: Path, length: int):
    table = neve.connect(lake_dir).create_table("db.t", "doc string")
    assert WriteTarget.of(table.context.metadata, {}).average_row_bytes == 0
    table.append([{"doc": document(length, n)} for n in range(1000 if length < 100 else 3)])
    found = WriteTarget.of(table.refresh().context.metadata, {}).average_row_bytes
    assert length // 2 < found < 2 * length


@pytest.mark.parametrize("text", ["", "-5", "many", "9" * 5000])
def test_a_summary_may_say_anything(lake_dir: Path, text: str):
    table = neve.connect(lake_dir).create_table("db.t", "id bigint")
    table.append([{"id": 1}])
    metadata = table.refresh().context.metadata
    metadata.current_snapshot().summary.additional_properties["total-files-size"] = text
    assert WriteTarget.of(metadata, {}).average_row_bytes == 0
