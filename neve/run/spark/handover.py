"""How Spark cuts the rows it hands to Arrow: by count where rows are known to be small, else also by weight.

From 4.1 on Spark weighs a batch after every row, and that takes it longer than to fill in the row: an append of 16
columns costs a third less without. Rows of numbers and dates, and of texts where those of the table are known to be
short, are counted instead, to batches that weigh less than Spark's own limit as long as a row has less than 16 KiB.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import types as sp

from neve.run.spark.options import own_option

__all__ = ["handover"]

_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_COUNTED = {_RECORDS: "4096", _BYTES: f"{(1 << 31) - 1}b"}  # the most there is: no limit, and no weighing
_SMALL = 4 << 10  # bytes of a row in files, where it is compressed
_OPEN: tuple[type[sp.DataType], ...] = (sp.BinaryType, sp.ArrayType, sp.MapType, sp.VariantType)  # often are large


def handover(rows: DataFrame, row_bytes: int = 0) -> dict[str, str]:
    """Session options for the time rows are handed over; none where rows may be large or the session has its own.

    `row_bytes` is what a row of the table takes in its files, 0 when that is not known.
    """
    is_set = any(own_option(rows.sparkSession, name) is not None for name in _COUNTED)
    large = _OPEN if row_bytes else (*_OPEN, sp.StringType)
    return {} if is_set or row_bytes > _SMALL or _has(rows.schema, large) else dict(_COUNTED)


def _has(kind: sp.DataType, large: tuple[type[sp.DataType], ...]) -> bool:
    if isinstance(kind, sp.StructType):
        return any(_has(f.dataType, large) for f in kind)
    return isinstance(kind, large)
