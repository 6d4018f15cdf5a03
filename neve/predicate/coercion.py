"""Where a constant lies among the values a column can hold, when Spark compares the two.

Spark converts one side or both before it compares. What comes out is said here without conversion of the column: a
constant is one of the column's values, or lies between two neighbours, or beyond them all. `3.5` beside an integer
column lies above 3. Where Spark's answer depends on its settings, or would need the column converted with a loss, there
is no cut and the comparison is left to Spark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from decimal import ROUND_FLOOR, Decimal, localcontext
from typing import Any
from uuid import UUID

import numpy as np
from pyiceberg.expressions.literals import (
    BinaryLiteral,
    BooleanLiteral,
    DateLiteral,
    DecimalLiteral,
    DoubleLiteral,
    FixedLiteral,
    FloatLiteral,
    Literal,
    LongLiteral,
    StringLiteral,
    TimestampLiteral,
    UUIDLiteral,
)
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
    UUIDType,
)

from neve.predicate.constants import (
    DAY_MICROS,
    Constant,
    ConstantKind,
    has_constant_offset,
    local_to_utc_micros,
    parse_date,
    parse_number,
    parse_timestamp,
    utc_to_local_micros,
)
from neve.predicate.normalize import MAX_NANOS, NanosLiteral

EXACT_DOUBLE = 1 << 53  # whole numbers up to here are doubles
EXACT_FLOAT = 1 << 24
MAX_DIGITS = 38


@dataclass(frozen=True, slots=True)
class ValuePosition:
    """A place in the order of a column's values: at a value, or right above it."""

    floor: Literal[Any] | None
    is_at_floor: bool = True


BELOW_ALL = ValuePosition(None, False)  # below every value
ABOVE_ALL = ValuePosition(None)  # above every value


def locate_constant(constant: Constant, kind: IcebergType, zone: tzinfo) -> ValuePosition | None:
    """The place of a constant among the values of a type; None when it cannot be said."""
    place = _POSITION_FUNCTIONS.get(type(kind))
    try:
        return None if place is None else place(constant, kind, zone)
    except (ArithmeticError, ValueError):
        return None


def is_canonical(constant: Constant, kind: IcebergType) -> bool:
    """Whether a string means the same whether it is read as the type or the column is written out as a string.

    In a list of values Spark may do either.
    """
    if constant.kind is not ConstantKind.STRING or isinstance(kind, StringType | UUIDType):
        return True
    if isinstance(kind, IntegerType | LongType):
        return constant.value == str(int(constant.value)) if constant.value.lstrip("-").isdecimal() else False
    days = parse_date(constant.value) if isinstance(kind, DateType) else None
    return days is not None and constant.value == str(np.datetime64(days, "D"))


def can_compare_one_by_one(constants: Sequence[Constant], kind: IcebergType) -> bool:
    """Whether it is the same to compare a column with each constant of a list or, as Spark does, in one common type."""
    kinds = {c.kind for c in constants} - {ConstantKind.NULL}
    if len(kinds) > 1 and (ConstantKind.STRING in kinds or kinds >= {ConstantKind.INSTANT, ConstantKind.LOCAL}):
        return False
    if kinds & {ConstantKind.FLOAT, ConstantKind.DOUBLE} and not isinstance(kind, FloatType | DoubleType):
        limit = EXACT_FLOAT if ConstantKind.FLOAT in kinds else EXACT_DOUBLE
        numbers = [c.value for c in constants if c.kind is not ConstantKind.NULL]
        return isinstance(kind, IntegerType | LongType) and all(abs(n) < limit for n in numbers)
    if ConstantKind.DECIMAL not in kinds:
        return True
    decimals = [Decimal(c.value) for c in constants if c.kind in {ConstantKind.INTEGER, ConstantKind.DECIMAL}]
    return max(d.adjusted() + 1 for d in decimals) + max(_scale(d) for d in decimals) <= MAX_DIGITS


def _scale(value: Decimal) -> int:
    return max(0, -int(value.as_tuple().exponent))


def _position_in_integers(constant: Constant, kind: Any, zone: tzinfo) -> ValuePosition | None:
    value = _number_for_integers(constant, kind)
    if value is None:
        return None
    if value > kind.max:
        return ABOVE_ALL
    if value < kind.min:
        return BELOW_ALL
    floor = math.floor(value)
    return ValuePosition(LongLiteral(floor), value == floor)


def _number_for_integers(constant: Constant, kind: IcebergType) -> Any:
    value = constant.value
    if constant.kind in {ConstantKind.INTEGER, ConstantKind.DECIMAL}:
        return value
    if constant.kind is ConstantKind.STRING:
        whole = value.strip().lstrip("+-").isdecimal() and value.isascii()
        return int(value) if whole and kind.min <= int(value) <= kind.max else None  # type: ignore[attr-defined]
    limit = {ConstantKind.DOUBLE: EXACT_DOUBLE, ConstantKind.FLOAT: EXACT_FLOAT}.get(constant.kind)
    if limit is None:
        return None
    return value if math.isinf(value) or abs(value) < limit else None


def _position_in_doubles(constant: Constant, kind: IcebergType, zone: tzinfo) -> ValuePosition | None:
    value = parse_number(constant.value) if constant.kind is ConstantKind.STRING else constant.value
    numeric = {ConstantKind.STRING, ConstantKind.INTEGER, ConstantKind.DECIMAL, ConstantKind.FLOAT, ConstantKind.DOUBLE}
    return None if constant.kind not in numeric or value is None else ValuePosition(DoubleLiteral(float(value)))


def _position_in_floats(constant: Constant, kind: IcebergType, zone: tzinfo) -> ValuePosition | None:
    found = _position_in_doubles(constant, kind, zone)
    if found is None or found.floor is None:
        return None
    value = found.floor.value
    with np.errstate(over="ignore"):
        near = np.float32(value)
    on = float(near) == value
    if not on and constant.kind in {ConstantKind.STRING, ConstantKind.INTEGER}:
        return None  # compared as 32 or as 64 bits, by the session's settings
    floor = near if float(near) <= value else np.nextafter(near, np.float32(-np.inf))
    return ValuePosition(FloatLiteral(float(floor)), on)


def _position_in_decimals(constant: Constant, kind: Any, zone: tzinfo) -> ValuePosition | None:
    if constant.kind not in {ConstantKind.INTEGER, ConstantKind.DECIMAL}:
        return None
    value = Decimal(constant.value)
    if max(kind.precision - kind.scale, value.adjusted() + 1) + max(kind.scale, _scale(value)) > MAX_DIGITS:
        return None  # Spark rounds one of the two to make room
    limit = Decimal(10) ** (kind.precision - kind.scale)
    if abs(value) >= limit:
        return ABOVE_ALL if value > 0 else BELOW_ALL
    with localcontext(prec=2 * MAX_DIGITS):
        floor = value.quantize(Decimal(1).scaleb(-kind.scale), ROUND_FLOOR)
    return BELOW_ALL if floor <= -limit else ValuePosition(DecimalLiteral(floor), floor == value)


def _position_in_booleans(constant: Constant, kind: IcebergType, zone: tzinfo) -> ValuePosition | None:
    return ValuePosition(BooleanLiteral(constant.value)) if constant.kind is ConstantKind.BOOLEAN else None


def _position_in_strings(constant: Constant, kind: IcebergType, zone: tzinfo) -> ValuePosition | None:
    return ValuePosition(StringLiteral(constant.value)) if constant.kind is ConstantKind.STRING else None


def _position_in_uuids(constant: Constant, kind: IcebergType, zone: tzinfo) -> ValuePosition | None:
    if constant.kind is not ConstantKind.STRING or str(found := UUID(constant.value)) != constant.value:
        return None
    return ValuePosition(UUIDLiteral(found.bytes))


def _position_in_binaries(constant: Constant, kind: IcebergType, zone: tzinfo) -> ValuePosition | None:
    if constant.kind is not ConstantKind.BINARY:
        return None
    if isinstance(kind, FixedType):
        return ValuePosition(FixedLiteral(constant.value)) if len(constant.value) == len(kind) else None
    return ValuePosition(BinaryLiteral(constant.value))


def _position_in_dates(constant: Constant, kind: IcebergType, zone: tzinfo) -> ValuePosition | None:
    if constant.kind in {ConstantKind.DATE, ConstantKind.STRING}:
        days = constant.value if constant.kind is ConstantKind.DATE else parse_date(constant.value)
        return None if days is None else ValuePosition(DateLiteral(days))
    clock = _local_micros(constant, zone)  # the date is compared as its midnight
    return None if clock is None else ValuePosition(DateLiteral(clock // DAY_MICROS), clock % DAY_MICROS == 0)


def _position_in_timestamps(constant: Constant, kind: IcebergType, zone: tzinfo) -> ValuePosition | None:
    clock = _local_micros(constant, zone)
    return None if clock is None else ValuePosition(TimestampLiteral(clock))


def _position_in_timestamptzs(constant: Constant, kind: IcebergType, zone: tzinfo) -> ValuePosition | None:
    moment = _utc_micros(constant, zone)
    return None if moment is None else ValuePosition(TimestampLiteral(moment))


def _position_in_nanos(position_in_micros: Callable[[Constant, IcebergType, tzinfo], ValuePosition | None]) -> Any:
    def in_nanos(constant: Constant, kind: IcebergType, zone: tzinfo) -> ValuePosition | None:
        found = position_in_micros(constant, kind, zone)
        if found is None or found.floor is None:
            return None
        nanos = found.floor.value * 1000
        return ValuePosition(NanosLiteral(nanos)) if abs(nanos) < MAX_NANOS else ABOVE_ALL if nanos > 0 else BELOW_ALL

    return in_nanos


def _local_micros(constant: Constant, zone: tzinfo) -> int | None:
    """What a clock without zone shows: a moment is one only while the zone's clocks run evenly."""
    if constant.kind is ConstantKind.STRING:
        parsed = parse_timestamp(constant.value)
        return parsed[0] if parsed is not None and parsed[1] is None else None
    if constant.kind is ConstantKind.INSTANT:
        clock = utc_to_local_micros(constant.value, zone)
        return clock if has_constant_offset(clock, zone) else None
    if constant.kind is ConstantKind.DATE:
        return int(constant.value) * DAY_MICROS
    return int(constant.value) if constant.kind is ConstantKind.LOCAL else None


def _utc_micros(constant: Constant, zone: tzinfo) -> int | None:
    if constant.kind is ConstantKind.STRING:
        parsed = parse_timestamp(constant.value)
        return None if parsed is None else local_to_utc_micros(parsed[0], parsed[1] or zone)
    if constant.kind in {ConstantKind.DATE, ConstantKind.LOCAL}:
        return local_to_utc_micros(constant.value * (DAY_MICROS if constant.kind is ConstantKind.DATE else 1), zone)
    return int(constant.value) if constant.kind is ConstantKind.INSTANT else None


_POSITION_FUNCTIONS: dict[type[IcebergType], Any] = {
    BooleanType: _position_in_booleans,
    IntegerType: _position_in_integers,
    LongType: _position_in_integers,
    FloatType: _position_in_floats,
    DoubleType: _position_in_doubles,
    DecimalType: _position_in_decimals,
    DateType: _position_in_dates,
    TimestampType: _position_in_timestamps,
    TimestamptzType: _position_in_timestamptzs,
    TimestampNanoType: _position_in_nanos(_position_in_timestamps),
    TimestamptzNanoType: _position_in_nanos(_position_in_timestamptzs),
    StringType: _position_in_strings,
    UUIDType: _position_in_uuids,
    FixedType: _position_in_binaries,
    BinaryType: _position_in_binaries,
}
