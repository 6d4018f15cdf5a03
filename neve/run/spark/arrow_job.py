"""Run a job whose Python tasks get the rows of a DataFrame as Arrow batches of bounded size.

From 4.1 on Spark measures a batch after every row, which takes longer than adding the row: an append of 16 columns
costs a third less without. So rows are only counted, with a check that none is larger than 16 KiB, which costs next to
nothing. If one is, the job runs again with batches that Spark measures. Tables whose rows are known to be large begin
with that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import add
from typing import cast

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as sp
from pyspark.sql.types import StructType

from neve.run.spark.arrow_exchange import Batches, map_in_arrow
from neve.run.spark.read_columns import column_by_name
from neve.run.spark.session import session_option, temporary_options
from neve.run.spark.types import contains_variant

_BATCH_ROWS, _MAX_ROW_BYTES = 4096, 16 << 10  # a batch has at most 64 MiB, Spark's own limit
_BATCH_ROWS_WITH_EXCHANGE = 1024  # payloads of an exchange, in the same job, are larger than rows
_ROWS_OPTION = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES_OPTION = "spark.sql.execution.arrow.maxBytesPerBatch"
_NOT_MEASURED = f"{(1 << 31) - 1}b"  # the maximum: Spark does not measure batches
_LARGE_STORED_ROW_BYTES = 4 << 10  # bytes of a row in files, where it is compressed
MEASURED = _LARGE_STORED_ROW_BYTES + 1  # as the size of rows: Spark measures batches
_LARGE_ROW = "NEVE_LARGE_ROW"
_ELEMENT_BYTES = 16  # of a number, a date or a decimal in a list


def run_in_arrow(
    rows: DataFrame,
    function: Callable[[Batches], Batches],
    schema: str | StructType,
    *,
    options: Mapping[str, str] | None = None,
    stored_row_bytes: int = 0,
    exchange: Callable[[DataFrame], DataFrame] | None = None,
    before_retry: Callable[[], None] = lambda: None,
) -> list[Row]:
    """Run a function on the Arrow batches of a DataFrame, and collect the rows it returns.

    `stored_row_bytes` is the average size of the table's rows in its files, 0 if it is not known. The function gets
    the rows of `exchange`, if given, which is applied to the DataFrame. If a large row turns up, `before_retry` is
    called, and the job runs again.
    """

    def run(checked: DataFrame, own_options: Mapping[str, str]) -> list[Row]:
        with temporary_options(rows.sparkSession, {**(options or {}), **own_options}):
            return map_in_arrow(exchange(checked) if exchange else checked, function, schema).collect()

    if (small_rows := _checked_rows(rows, stored_row_bytes)) is not None:
        batch_rows = _BATCH_ROWS_WITH_EXCHANGE if exchange else _BATCH_ROWS
        try:
            return run(small_rows, {_ROWS_OPTION: str(batch_rows), _BYTES_OPTION: _NOT_MEASURED})
        except PySparkException as e:
            if _LARGE_ROW not in str(e):
                raise
        before_retry()
    return run(rows, {})


def _checked_rows(rows: DataFrame, stored_row_bytes: int) -> DataFrame | None:
    """Return the rows with a check that each is small; None if Spark is to measure batches instead."""
    is_set = any(session_option(rows.sparkSession, name) is not None for name in (_ROWS_OPTION, _BYTES_OPTION))
    if is_set or stored_row_bytes > _LARGE_STORED_ROW_BYTES or contains_variant(rows.schema):
        return None
    sizes = [size for f in rows.schema if (size := _value_bytes(column_by_name(f.name), f.dataType)) is not None]
    if not sizes:
        return rows
    error = F.raise_error(F.lit(_LARGE_ROW)).cast("boolean")
    return rows.where(F.when(reduce(add, sizes) <= _MAX_ROW_BYTES, F.lit(True)).otherwise(error))


def _value_bytes(value: Column, kind: sp.DataType) -> Column | None:
    """Return the size of a value; None for types whose values all have the same size."""
    match kind:
        case sp.StringType() | sp.BinaryType():
            return F.coalesce(F.octet_length(value), F.lit(0))
        case sp.ArrayType() if _value_bytes(value, kind.elementType) is None:
            return F.coalesce(F.size(value) * _ELEMENT_BYTES, F.lit(0))
        case sp.ArrayType():
            sizes = F.transform(value, lambda element: cast(Column, _value_bytes(element, kind.elementType)))
            return F.coalesce(F.aggregate(sizes, F.lit(0), add), F.lit(0))
        case sp.MapType():
            pair = sp.StructType().add("key", kind.keyType).add("value", kind.valueType)
            return _value_bytes(F.map_entries(value), sp.ArrayType(pair))
        case sp.StructType():
            parts = [_value_bytes(value.getField(f.name), f.dataType) for f in kind]
            known = [part for part in parts if part is not None]
            return reduce(add, known) if known else None
    return None
