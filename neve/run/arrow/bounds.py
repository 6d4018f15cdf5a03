"""Values in the footer of a Parquet file as values of a column's type.

They come out as they compare in `neve.model.values`: whole numbers, floats, decimals or bytes, in the units of
the type. A stored type that is not what the table could have written gives none.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyarrow import types as at
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

__all__ = ["bound"]

_MICROS = TimestampType | TimestamptzType | TimeType
_NANOS = TimestampNanoType | TimestamptzNanoType
_TEXT = StringType | BinaryType | FixedType
_WHOLE = IntegerType | LongType | DateType
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY = 86_400


def bound(raw: Any, stored: pa.DataType, kind: IcebergType) -> Any:
    """A stored value in the units of a column's type; None when there is none, or one does not make the other."""
    if raw is None:
        return None
    if isinstance(kind, DecimalType):
        return (
            _decimal(raw, kind)
            if not isinstance(raw, float) and at.is_decimal128(stored) and stored.scale == kind.scale
            else None
        )
    if isinstance(kind, FloatType | DoubleType):
        return raw + 0.0 if isinstance(raw, float) and not math.isnan(raw) else None
    if isinstance(kind, _TEXT):
        return raw if isinstance(raw, bytes) else None
    if isinstance(kind, BooleanType):
        return int(raw) if isinstance(raw, bool) else None
    whole = _whole(raw, stored, kind) if isinstance(raw, int) else None
    return whole if whole is not None and abs(whole) < 1 << 63 else None


def _whole(raw: int, stored: pa.DataType, kind: IcebergType) -> int | None:
    if isinstance(kind, _WHOLE):
        return raw if at.is_signed_integer(stored) or at.is_date32(stored) else None
    wanted = 10**9 if isinstance(kind, _NANOS) else 10**6 if isinstance(kind, _MICROS) else None
    if wanted is None:
        return None
    if at.is_date32(stored):
        return raw * _DAY * wanted
    if not (at.is_timestamp(stored) or at.is_time(stored)):
        return None
    per_second = _PER_SECOND[stored.unit]
    return raw * wanted // per_second


def _decimal(raw: Any, kind: DecimalType) -> Decimal | None:
    digits = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)
    # from text: arithmetic would round to 28 digits
    return Decimal(f"{digits}E{-kind.scale}") if abs(digits) < 10**38 else None
