"""Which changes of a column's type the format allows: those under which every stored value keeps its meaning."""

from __future__ import annotations

from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    TimestampNanoType,
    TimestampType,
    UnknownType,
)

__all__ = ["can_promote"]


def can_promote(now: IcebergType, wanted: IcebergType, format_version: int) -> bool:
    """Whether a column of one type may become one of another, or stays what it is."""
    match now, wanted:
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return True
        case DecimalType(), DecimalType():
            return now.scale == wanted.scale and now.precision <= wanted.precision
        case (DateType(), TimestampType() | TimestampNanoType()) | (UnknownType(), PrimitiveType()):
            return format_version >= 3
    return now == wanted
