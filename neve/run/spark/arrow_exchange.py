"""Exchange Arrow data between the driver and Spark's Python workers.

`map_in_arrow` runs a function on the Arrow batches of a DataFrame, whatever its columns are called. It also skips two
things that a Python worker does between tasks, and that together take longer than many tasks. The worker collects
garbage, which walks through all objects of all imported modules. It also resets the import caches, so that each package
in a zip archive reads the archive's directory again, and PySpark itself is such an archive.

`to_ipc` and `from_ipc` put Arrow tables into one cell, for types that Spark does not have.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any
from zipimport import zipimporter

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DecimalType, StructType

from neve.run.spark.types import has_required_fields
from neve.run.write.store_assignment import with_required_fields

_LONG_DIGITS = 18  # of decimals that fit a 64-bit integer


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
    """Call `mapInArrow`, which by itself would take dots and backticks in column names as syntax.

    Decimals of up to 18 digits travel as integers: Spark would make a `BigDecimal` of each.
    """
    names, decimals = list(rows.columns), _decimals_as_integers(rows)
    has_odd_names = any("." in name or "`" in name for name in names) or len({*map(str.lower, names)}) < len(names)
    if not has_odd_names and not decimals:
        return rows.mapInArrow(_without_worker_cleanup(function), schema)

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        yield from function(_restore_columns(batch, names, decimals) for batch in batches)

    safe = rows.toDF(*(f"c{n}" for n in range(len(names)))) if has_odd_names else rows
    handed = safe.withColumns({safe.columns[n]: _unscaled_value(safe, safe.columns[n]) for n in decimals})
    return handed.mapInArrow(_without_worker_cleanup(run), schema)


def _decimals_as_integers(rows: DataFrame) -> dict[int, pa.DataType]:
    """Return the types of the columns that are handed over as integers, by their number."""
    if not hasattr(rows, "_jdf"):  # Spark Connect cannot name the expression
        return {}
    kinds = {n: f.dataType for n, f in enumerate(rows.schema) if isinstance(f.dataType, DecimalType)}
    return {n: pa.decimal128(k.precision, k.scale) for n, k in kinds.items() if k.precision <= _LONG_DIGITS}


def _unscaled_value(rows: DataFrame, name: str) -> Column:
    """Return the digits of a decimal column as an integer, for which Spark has an expression but no function."""
    jvm: Any = rows.sparkSession._jvm
    convert = jvm.org.apache.spark.sql.classic.ExpressionUtils
    expression = jvm.org.apache.spark.sql.catalyst.expressions.UnscaledValue(convert.expression(rows[name]._jc))
    return Column(convert.column(expression))


def _restore_columns(batch: pa.RecordBatch, names: list[str], decimals: Mapping[int, pa.DataType]) -> pa.RecordBatch:
    columns = [_to_decimal(c, decimals[n]) if n in decimals else c for n, c in enumerate(batch.columns)]
    return pa.RecordBatch.from_arrays(columns, names)


def _to_decimal(unscaled: pa.Array, kind: pa.DataType) -> pa.Array:
    validity, values = unscaled.buffers()
    low = np.frombuffer(values, np.int64, unscaled.offset + len(unscaled))
    words = np.empty((len(low), 2), np.int64)
    words[:, 0], words[:, 1] = low, low >> 63
    return pa.Array.from_buffers(kind, len(unscaled), [validity, pa.py_buffer(words)], offset=unscaled.offset)


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


def from_ipc(data: bytes | pa.Buffer) -> pa.Table:
    """Decode a table from an Arrow stream."""
    return pa.ipc.open_stream(data).read_all()


def collect_if_small(rows: DataFrame, max_bytes: int, max_task_bytes: int) -> pa.Table | None:
    """Return the rows of a DataFrame as a table; None if they, or those of one task, are larger. Runs one job."""

    def encode(batches: Batches) -> Iterator[pa.RecordBatch]:
        left = max_task_bytes
        for batch in batches:
            left -= batch.nbytes
            part = to_ipc(pa.Table.from_batches([batch])) if left >= 0 else None
            yield pa.RecordBatch.from_arrays([pa.array([part], pa.binary())], ["rows"])
            if part is None:
                return

    parts = [part.rows for part in map_in_arrow(rows, encode, "rows binary").collect()]
    tables = [from_ipc(part) for part in parts if part is not None]
    if len(tables) < len(parts) or sum(table.nbytes for table in tables) > max_bytes:
        return None
    return pa.concat_tables(tables).rename_columns(rows.columns) if tables else rows.limit(0).toArrow()


def collect_table(rows: DataFrame) -> pa.Table:
    """Return the rows of a DataFrame as a table. Spark's `toArrow` fails on null structs that have required fields."""
    is_plain = not any(has_required_fields(field.dataType) for field in rows.schema)
    return rows.toArrow() if is_plain else stream_batches(rows).read_all()


def stream_batches(rows: DataFrame) -> pa.RecordBatchReader:
    """Return the rows of a DataFrame as a stream; a few partitions are in this process at a time."""

    def encode(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [to_ipc(pa.Table.from_batches([batch]))]})

    schema = rows.limit(0).toArrow().schema
    parts = map_in_arrow(rows, encode, "rows binary").toLocalIterator(prefetchPartitions=True)

    def read(data: bytes) -> pa.Table:
        columns = zip(from_ipc(data).columns, schema, strict=True)
        return pa.table([with_required_fields(c, field.name).cast(field.type) for c, field in columns], schema=schema)

    tables = (read(part.rows) for part in parts)
    return pa.RecordBatchReader.from_batches(schema, (batch for table in tables for batch in table.to_batches()))
