"""Rows of a DataFrame handed to Arrow in Spark's Python workers, whatever its columns are called.

What a Python worker of Spark would do again after every task, and need not.

Between two tasks a worker collects garbage, which walks through all objects of all imported modules, and forgets what
import finders know, so that each package of a zip archive reads the archive's directory anew. PySpark itself is such an
archive. Together that takes longer than many a task.

Arrow tables as bytes, for types that Spark does not have: they travel between driver and tasks in one cell.

How Spark cuts the rows it hands to Arrow: by count where rows are known to be small, else also by weight.

From 4.1 on Spark weighs a batch after every row, and that takes it longer than to fill in the row: an append of 16
columns costs a third less without. Rows of numbers and dates, and of texts where those of the table are known to be
short, are counted instead, to batches that weigh less than Spark's own limit as long as a row has less than 16 KiB.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from zipimport import zipimporter

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as sp
from pyspark.sql.types import StructType

from neve.run.spark.session import session_option


def skip_worker_cleanup() -> None:
    """Keep this worker from walking through modules and archives before its next task."""
    _freeze_objects(modules=len(sys.modules))
    for path in [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]:
        del sys.path_importer_cache[path]  # made again when it is needed, of a directory that is still known


@cache  # again only when a task has imported more: what is set aside is never collected
def _freeze_objects(modules: int) -> None:
    gc.freeze()


Batches = Iterable[pa.RecordBatch]


def map_in_arrow(rows: DataFrame, function: Callable[[Batches], Batches], schema: str | StructType) -> DataFrame:
    """`mapInArrow`, which looks columns up by their names and takes dots and backticks in them for syntax."""
    names = list(rows.columns)
    if not any("." in name or "`" in name for name in names):
        return rows.mapInArrow(_without_worker_cleanup(function), schema)

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        yield from function(batch.rename_columns(names) for batch in batches)

    return rows.toDF(*(f"c{n}" for n in range(len(names)))).mapInArrow(_without_worker_cleanup(run), schema)


def _without_worker_cleanup(function: Callable[[Batches], Batches]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        skip_worker_cleanup()
        yield from function(batches)

    return run


def to_ipc(rows: pa.Table) -> bytes:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(rows)
    return bytes(sink.getvalue())


def from_ipc(data: bytes) -> pa.Table:
    """The table in an Arrow stream."""
    return pa.ipc.open_stream(data).read_all()


_MAX_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_COUNT_ONLY_OPTIONS = {
    _MAX_RECORDS: "4096",
    _MAX_BYTES: f"{(1 << 31) - 1}b",
}  # the most there is: no limit, and no weighing
_SMALL_ROW_BYTES = 4 << 10  # bytes of a row in files, where it is compressed
_LARGE_TYPES: tuple[type[sp.DataType], ...] = (
    sp.BinaryType,
    sp.ArrayType,
    sp.MapType,
    sp.VariantType,
)  # often are large


def arrow_batch_options(rows: DataFrame, row_bytes: int = 0) -> dict[str, str]:
    """Session options for the time rows are handed over; none where rows may be large or the session has its own.

    `row_bytes` is what a row of the table takes in its files, 0 when that is not known.
    """
    is_set = any(session_option(rows.sparkSession, name) is not None for name in _COUNT_ONLY_OPTIONS)
    large = _LARGE_TYPES if row_bytes else (*_LARGE_TYPES, sp.StringType)
    return (
        {}
        if is_set or row_bytes > _SMALL_ROW_BYTES or _contains_type(rows.schema, large)
        else dict(_COUNT_ONLY_OPTIONS)
    )


def _contains_type(kind: sp.DataType, large: tuple[type[sp.DataType], ...]) -> bool:
    if isinstance(kind, sp.StructType):
        return any(_contains_type(f.dataType, large) for f in kind)
    return isinstance(kind, large)
