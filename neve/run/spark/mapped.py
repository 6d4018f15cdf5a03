"""Rows of a DataFrame handed to Arrow, whatever its columns are called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

__all__ = ["mapped"]

Batches = Iterable[pa.RecordBatch]


def mapped(rows: DataFrame, function: Callable[[Batches], Batches], answer: str) -> DataFrame:
    """`mapInArrow`, which looks columns up by their names and takes dots and backticks in them for syntax."""
    names = list(rows.columns)
    if not any("." in name or "`" in name for name in names):
        return rows.mapInArrow(function, answer)

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        yield from function(batch.rename_columns(names) for batch in batches)

    return rows.toDF(*(f"c{n}" for n in range(len(names)))).mapInArrow(run, answer)
