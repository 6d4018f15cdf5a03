"""Rows are handed to Arrow by count where they are small; by weight where they may be large or a session says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import neve
from neve.run.spark.handover import handover
from neve.run.spark.mapped import mapped
from neve.run.spark.session import options_around
from neve.run.writing.target import WriteTarget

RECORDS, BYTES = (f"spark.sql.execution.arrow.max{what}PerBatch" for what in ("Records", "Bytes"))


def test_small_rows_come_in_batches_of_some_thousand(spark: SparkSession):
    def sizes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})

    rows = spark.range(0, 10_000, 1, 1).selectExpr("id", "CAST(id AS string) AS text", "struct(id) AS s")
    with options_around(spark, handover(rows)):
        found = [r.rows for r in mapped(rows, sizes, "rows bigint").collect()]
    assert found == [4096, 4096, 10_000 - 2 * 4096]
    assert spark.conf.get(RECORDS) == "10000"


@pytest.mark.parametrize("kind", ["binary", "array<string>", "map<string, int>", "struct<a: struct<b: binary>>"])
def test_values_that_may_be_large_are_weighed(spark: SparkSession, kind: str):
    assert handover(spark.createDataFrame([], f"id bigint, doc {kind}")) == {}


def test_rows_are_weighed_where_those_of_the_table_are_large(spark: SparkSession):
    rows = spark.range(1)
    assert handover(rows, row_bytes=100)
    assert handover(rows, row_bytes=100_000) == {}


@pytest.mark.parametrize(("name", "value"), [(RECORDS, "50"), (BYTES, "1m")])
def test_a_session_that_has_its_own_limits_keeps_them(spark: SparkSession, name: str, value: str):
    with options_around(spark, {name: value}):
        assert handover(spark.range(1)) == {}


def document(length: int, number: int) -> str:
    """Text that does not compress away."""
    return "".join(chr(33 + n) for n in np.random.default_rng(number).integers(0, 90, length))


@pytest.mark.parametrize(("length", "is_large"), [(10, False), (50_000, True)])
def test_a_table_tells_how_large_its_rows_are(spark: SparkSession, lake_dir: Path, length: int, is_large: bool):
    table = neve.connect(lake_dir).create_table("db.t", "doc string")
    assert WriteTarget.of(table.context.metadata, {}).row_bytes == 0
    table.append([{"doc": document(length, n)} for n in range(1000 if length < 100 else 3)])
    found = WriteTarget.of(table.refresh().context.metadata, {}).row_bytes
    assert length // 2 < found < 2 * length
    assert bool(handover(spark.range(1), found)) is not is_large


@pytest.mark.parametrize("text", ["", "-5", "many", "9" * 5000])
def test_a_summary_may_say_anything(lake_dir: Path, text: str):
    table = neve.connect(lake_dir).create_table("db.t", "id bigint")
    table.append([{"id": 1}])
    metadata = table.refresh().context.metadata
    metadata.current_snapshot().summary.additional_properties["total-files-size"] = text
    assert WriteTarget.of(metadata, {}).row_bytes == 0
