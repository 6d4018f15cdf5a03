"""Make theta sketches of columns in a Spark job: each task makes those of its rows, and the driver unites them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from neve.io.theta import ThetaSketch
from neve.run.column_sketches import sketch_columns
from neve.run.spark.arrow_exchange import Batches
from neve.run.spark.arrow_job import run_in_arrow

_SKETCHES = pa.schema([("number", pa.int32()), ("theta", pa.int64()), ("hashes", pa.binary())])


def sketch_columns_on_spark(rows: DataFrame, columns: Sequence[str]) -> list[ThetaSketch]:
    """Return the sketches of columns, or of fields in structs, by their full names."""
    names = tuple(columns)

    def sketch(batches: Batches) -> Batches:
        made = sketch_columns(batches, names)
        values = [[*range(len(made))], [s.theta for s in made], [s.hashes.tobytes() for s in made]]
        yield pa.record_batch(values, schema=_SKETCHES)

    united = [ThetaSketch() for _ in names]
    for row in run_in_arrow(rows, sketch, "number int, theta bigint, hashes binary"):
        part = ThetaSketch(np.frombuffer(row["hashes"], np.uint64), row["theta"])
        united[row["number"]] |= part
    return united
