"""Partition transforms as Spark expressions, so that rows of one partition can meet before they are written.

The values that end up in metadata are computed where files are written, by PyIceberg. These expressions only bring rows
together and in order; still they give the same values, so that one partition is never spread over tasks for nothing.

Spark's `hash` chains: each argument is hashed with the hash of the previous one as its seed. An integer whose own hash
is 0 therefore makes the next argument hash with seed 0, as Iceberg's bucket does. It holds for longs, and for bytes
whose length is a multiple of four; the last bytes of any other length are mixed in differently. Those, and decimals,
go through Arrow.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    DateType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    UUIDType,
)
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf

from neve.errors import UserError
from neve.run.spark.types import spark_type
from neve.run.writing.assignment import assigned_column
from neve.run.writing.partitioning import apply_transform, path_of

__all__ = ["column_of", "transformed"]

_SEED = -1693959553  # hash(_SEED) = 0
_DAY, _HOUR = 86_400_000_000, 3_600_000_000  # microseconds
_INSTANT = TimestamptzType | TimestamptzNanoType
_LOCAL = TimestampType | TimestampNanoType


def column_of(schema: Schema, field_id: int) -> str:
    """A column by its field id as SQL text, also inside a struct."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in path_of(schema, field_id))


def transformed(transform: Transform[Any, Any], field: NestedField, column: str, *, is_text: bool = False) -> Column:
    """A transform of a column; `is_text` tells that a column of type uuid holds strings, not bytes."""
    if isinstance(transform, VoidTransform):
        return F.lit(None)
    text = _native(transform, field.field_type, column, is_text)
    return F.expr(text) if text is not None else _through_arrow(transform, field)(F.expr(column))


def _native(transform: Transform[Any, Any], kind: IcebergType, column: str, is_text: bool) -> str | None:
    match transform:
        case IdentityTransform():
            return column
        case BucketTransform():
            hashed = _hashed(kind, column, is_text)
            bucket = f"(hash({_SEED}, {hashed}) & 2147483647) % {transform.num_buckets}"
            return None if hashed is None else f"if({column} is null, null, {bucket})"
        case TruncateTransform():
            return _truncated(kind, column, transform.width)
        case YearTransform() | MonthTransform() | DayTransform() | HourTransform():
            return _period(transform, kind, column)
    return None


def _hashed(kind: IcebergType, column: str, is_text: bool) -> str | None:
    """What Iceberg hashes, where Spark hashes the same bytes."""
    match kind:
        case IntegerType() | LongType():
            return f"try_cast({column} as bigint)"
        case DateType():
            return f"cast(unix_date(cast({column} as date)) as bigint)"
        case TimestamptzType() | TimestamptzNanoType() | TimestampType() | TimestampNanoType():
            return _micros(kind, column)
        case UUIDType():
            return f"unhex(replace({column}, '-', ''))" if is_text else column
        case FixedType() if len(kind) % 4 == 0:
            return column
    return None


def _truncated(kind: IcebergType, column: str, width: int) -> str | None:
    match kind:
        case IntegerType() | LongType():
            number = f"try_cast({column} as bigint)"
            return f"try_subtract({number}, pmod({number}, {width}))"
        case StringType():
            return f"substring(cast({column} as string), 1, {width})"
        case BinaryType():
            return f"substring({column}, 1, {width})"
    return None


def _period(transform: Transform[Any, Any], kind: IcebergType, column: str) -> str:
    date = _date(kind, column)
    match transform:
        case YearTransform():
            return f"year({date}) - 1970"
        case MonthTransform():
            return f"(year({date}) - 1970) * 12 + month({date}) - 1"
        case DayTransform():
            return f"unix_date({date})"
    if isinstance(kind, _INSTANT):
        return f"cast({_floored(f'unix_micros({column})', _HOUR)} as int)"
    return f"unix_date({date}) * 24 + hour(cast({column} as timestamp_ntz))"


def _date(kind: IcebergType, column: str) -> str:
    """The day in UTC, whatever the time zone of the session."""
    if isinstance(kind, _INSTANT):
        return f"date_from_unix_date(cast({_floored(f'unix_micros({column})', _DAY)} as int))"
    return f"cast({column} as date)"


def _micros(kind: IcebergType, column: str) -> str:
    if isinstance(kind, _INSTANT):
        return f"unix_micros({column})"
    local = f"cast({column} as timestamp_ntz)"
    seconds = f"cast(extract(second from {local}) * 1000000 as bigint)"
    days = f"cast(unix_date(cast({local} as date)) as bigint) * {_DAY}"
    return f"{days} + hour({local}) * {_HOUR} + minute({local}) * 60000000L + {seconds}"


def _floored(number: str, unit: int) -> str:
    return f"(({number} - pmod({number}, {unit})) div {unit})"


def _through_arrow(transform: Transform[Any, Any], field: NestedField) -> Any:
    """A transform by PyIceberg. Values that cannot be stored count as null here; the writer says what is wrong."""
    kind = transform.result_type(field.field_type)

    def compute(values: pa.Array) -> pa.Array:
        try:
            found = apply_transform(transform, field.field_type, assigned_column(values, field))
        except UserError:
            return pa.nulls(len(values), pa.int32() if isinstance(kind, IntegerType) else values.type)
        return found

    return arrow_udf(compute, spark_type(kind))  # type: ignore[call-overload]
