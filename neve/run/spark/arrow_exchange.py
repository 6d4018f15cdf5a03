"""Exchange Arrow data between the driver and Spark's Python workers.

`map_in_arrow` runs a function on the Arrow batches of a DataFrame, whatever its columns are called. It also skips two
things that a Python worker does between tasks, and that together take longer than many tasks. The worker collects
garbage, which walks through all objects of all imported modules. It also resets the import caches, so that each package
in a zip archive reads the archive's directory again, and PySpark itself is such an archive.

`to_ipc` and `from_ipc` put Arrow tables into one cell, for types that Spark does not have.

`arrow_batch_options` chooses how Spark cuts rows into Arrow batches. From 4.1 on Spark measures a batch after every
row, which takes longer than adding the row: an append of 16 columns costs a third less without. So rows of numbers and
dates, and of text if the table's rows are known to be short, are only counted. Such batches stay below Spark's own
size limit as long as a row has less than 16 KiB.
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
        del sys.path_importer_cache[path]  # created again on demand, from a directory listing that is still cached


@cache  # again only after more imports, because frozen objects are never collected
def _freeze_objects(modules: int) -> None:
    gc.freeze()


Batches = Iterable[pa.RecordBatch]


def map_in_arrow(rows: DataFrame, function: Callable[[Batches], Batches], schema: str | StructType) -> DataFrame:
    """Call `mapInArrow`, which by itself would take dots and backticks in column names as syntax."""
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
    """Encode a table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(rows)
    return bytes(sink.getvalue())


def from_ipc(data: bytes) -> pa.Table:
    """Decode a table from an Arrow stream."""
    return pa.ipc.open_stream(data).read_all()


_COUNT_ONLY_OPTIONS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    "spark.sql.execution.arrow.maxBytesPerBatch": f"{(1 << 31) - 1}b",  # the maximum: Spark does not measure batches
}
_SMALL_ROW_BYTES = 4 << 10  # bytes of a row in files, where it is compressed
_LARGE_TYPES: tuple[type[sp.DataType], ...] = (sp.BinaryType, sp.ArrayType, sp.MapType, sp.VariantType)


def arrow_batch_options(rows: DataFrame, row_bytes: int = 0) -> dict[str, str]:
    """Return session options for the exchange; none if rows may be large or the session has its own.

    `row_bytes` is the average size of the table's rows in its files, 0 if it is not known.
    """
    is_set = any(session_option(rows.sparkSession, name) is not None for name in _COUNT_ONLY_OPTIONS)
    large_types = _LARGE_TYPES if row_bytes else (*_LARGE_TYPES, sp.StringType)
    if is_set or row_bytes > _SMALL_ROW_BYTES or _contains_type(rows.schema, large_types):
        return {}
    return dict(_COUNT_ONLY_OPTIONS)


def _contains_type(kind: sp.DataType, types: tuple[type[sp.DataType], ...]) -> bool:
    if isinstance(kind, sp.StructType):
        return any(_contains_type(f.dataType, types) for f in kind)
    return isinstance(kind, types)
