"""Rows of a DataFrame handed to Arrow in Spark's Python workers, whatever its columns are called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from neve.run.spark.worker import spare_the_next_task

__all__ = ["mapped"]

Batches = Iterable[pa.RecordBatch]


def mapped(rows: DataFrame, function: Callable[[Batches], Batches], answer: str | StructType) -> DataFrame:
    """`mapInArrow`, which looks columns up by their names and takes dots and backticks in them for syntax."""
    names = list(rows.columns)
    if not any("." in name or "`" in name for name in names):
        return rows.mapInArrow(_in_worker(function), answer)

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        yield from function(batch.rename_columns(names) for batch in batches)

    return rows.toDF(*(f"c{n}" for n in range(len(names)))).mapInArrow(_in_worker(run), answer)


def _in_worker(function: Callable[[Batches], Batches]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        spare_the_next_task()
        yield from function(batches)

    return run
