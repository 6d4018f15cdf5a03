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
    DAY,
    Constant,
    Kind,
    instant,
    is_steady,
    local,
    number_of,
    parse_date,
    parse_timestamp,
)
from neve.predicate.normalize import MOST_NANOS, NanosLiteral

EXACT_DOUBLE = 1 << 53  # whole numbers up to here are doubles
EXACT_FLOAT = 1 << 24
MAX_DIGITS = 38


@dataclass(frozen=True, slots=True)
class Cut:
    """A place in the order of a column's values: at a value, or right above it."""

    floor: Literal[Any] | None
    on: bool = True


BELOW = Cut(None, False)  # below every value
ABOVE = Cut(None)  # above every value


def cut(constant: Constant, kind: IcebergType, zone: tzinfo) -> Cut | None:
    """The place of a constant among the values of a type; None when it cannot be said."""
    place = _PLACES.get(type(kind))
    try:
        return None if place is None else place(constant, kind, zone)
    except (ArithmeticError, ValueError):
        return None


def canonical(constant: Constant, kind: IcebergType) -> bool:
    """Whether a string means the same whether it is read as the type or the column is written out as a string.

    In a list of values Spark may do either.
    """
    if constant.kind is not Kind.STRING or isinstance(kind, StringType | UUIDType):
        return True
    if isinstance(kind, IntegerType | LongType):
        return constant.value == str(int(constant.value)) if constant.value.lstrip("-").isdecimal() else False
    days = parse_date(constant.value) if isinstance(kind, DateType) else None
    return days is not None and constant.value == str(np.datetime64(days, "D"))


def alike(constants: Sequence[Constant], kind: IcebergType) -> bool:
    """Whether it is the same to compare a column with each constant of a list or, as Spark does, in one common type."""
    kinds = {c.kind for c in constants} - {Kind.NULL}
    if len(kinds) > 1 and (Kind.STRING in kinds or kinds >= {Kind.INSTANT, Kind.LOCAL}):
        return False
    if kinds & {Kind.FLOAT, Kind.DOUBLE} and not isinstance(kind, FloatType | DoubleType):
        limit = EXACT_FLOAT if Kind.FLOAT in kinds else EXACT_DOUBLE
        numbers = [c.value for c in constants if c.kind is not Kind.NULL]
        return isinstance(kind, IntegerType | LongType) and all(abs(n) < limit for n in numbers)
    if Kind.DECIMAL not in kinds:
        return True
    decimals = [Decimal(c.value) for c in constants if c.kind in {Kind.INTEGER, Kind.DECIMAL}]
    return max(d.adjusted() + 1 for d in decimals) + max(_scale(d) for d in decimals) <= MAX_DIGITS


def _scale(value: Decimal) -> int:
    return max(0, -int(value.as_tuple().exponent))


def _whole(constant: Constant, kind: Any, zone: tzinfo) -> Cut | None:
    value = _number_beside_whole(constant, kind)
    if value is None:
        return None
    if value > kind.max:
        return ABOVE
    if value < kind.min:
        return BELOW
    floor = math.floor(value)
    return Cut(LongLiteral(floor), value == floor)


def _number_beside_whole(constant: Constant, kind: IcebergType) -> Any:
    value = constant.value
    if constant.kind in {Kind.INTEGER, Kind.DECIMAL}:
        return value
    if constant.kind is Kind.STRING:
        whole = value.strip().lstrip("+-").isdecimal() and value.isascii()
        return int(value) if whole and kind.min <= int(value) <= kind.max else None  # type: ignore[attr-defined]
    limit = {Kind.DOUBLE: EXACT_DOUBLE, Kind.FLOAT: EXACT_FLOAT}.get(constant.kind)
    if limit is None:
        return None
    return value if math.isinf(value) or abs(value) < limit else None


def _double(constant: Constant, kind: IcebergType, zone: tzinfo) -> Cut | None:
    value = number_of(constant.value) if constant.kind is Kind.STRING else constant.value
    numeric = {Kind.STRING, Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE}
    return None if constant.kind not in numeric or value is None else Cut(DoubleLiteral(float(value)))


def _float(constant: Constant, kind: IcebergType, zone: tzinfo) -> Cut | None:
    found = _double(constant, kind, zone)
    if found is None or found.floor is None:
        return None
    value = found.floor.value
    with np.errstate(over="ignore"):
        near = np.float32(value)
    on = float(near) == value
    if not on and constant.kind in {Kind.STRING, Kind.INTEGER}:
        return None  # compared as 32 or as 64 bits, by the session's settings
    floor = near if float(near) <= value else np.nextafter(near, np.float32(-np.inf))
    return Cut(FloatLiteral(float(floor)), on)


def _decimal(constant: Constant, kind: Any, zone: tzinfo) -> Cut | None:
    if constant.kind not in {Kind.INTEGER, Kind.DECIMAL}:
        return None
    value = Decimal(constant.value)
    if max(kind.precision - kind.scale, value.adjusted() + 1) + max(kind.scale, _scale(value)) > MAX_DIGITS:
        return None  # Spark rounds one of the two to make room
    limit = Decimal(10) ** (kind.precision - kind.scale)
    if abs(value) >= limit:
        return ABOVE if value > 0 else BELOW
    with localcontext(prec=2 * MAX_DIGITS):
        floor = value.quantize(Decimal(1).scaleb(-kind.scale), ROUND_FLOOR)
    return BELOW if floor <= -limit else Cut(DecimalLiteral(floor), floor == value)


def _boolean(constant: Constant, kind: IcebergType, zone: tzinfo) -> Cut | None:
    return Cut(BooleanLiteral(constant.value)) if constant.kind is Kind.BOOLEAN else None


def _string(constant: Constant, kind: IcebergType, zone: tzinfo) -> Cut | None:
    return Cut(StringLiteral(constant.value)) if constant.kind is Kind.STRING else None


def _uuid(constant: Constant, kind: IcebergType, zone: tzinfo) -> Cut | None:
    if constant.kind is not Kind.STRING or str(found := UUID(constant.value)) != constant.value:
        return None
    return Cut(UUIDLiteral(found.bytes))


def _binary(constant: Constant, kind: IcebergType, zone: tzinfo) -> Cut | None:
    if constant.kind is not Kind.BINARY:
        return None
    if isinstance(kind, FixedType):
        return Cut(FixedLiteral(constant.value)) if len(constant.value) == len(kind) else None
    return Cut(BinaryLiteral(constant.value))


def _date(constant: Constant, kind: IcebergType, zone: tzinfo) -> Cut | None:
    if constant.kind in {Kind.DATE, Kind.STRING}:
        days = constant.value if constant.kind is Kind.DATE else parse_date(constant.value)
        return None if days is None else Cut(DateLiteral(days))
    clock = _clock(constant, zone)  # the date is compared as its midnight
    return None if clock is None else Cut(DateLiteral(clock // DAY), clock % DAY == 0)


def _timestamp(constant: Constant, kind: IcebergType, zone: tzinfo) -> Cut | None:
    clock = _clock(constant, zone)
    return None if clock is None else Cut(TimestampLiteral(clock))


def _timestamptz(constant: Constant, kind: IcebergType, zone: tzinfo) -> Cut | None:
    moment = _moment(constant, zone)
    return None if moment is None else Cut(TimestampLiteral(moment))


def _nanos(place: Callable[[Constant, IcebergType, tzinfo], Cut | None]) -> Any:
    def in_nanos(constant: Constant, kind: IcebergType, zone: tzinfo) -> Cut | None:
        found = place(constant, kind, zone)
        if found is None or found.floor is None:
            return None
        nanos = found.floor.value * 1000
        return Cut(NanosLiteral(nanos)) if abs(nanos) < MOST_NANOS else ABOVE if nanos > 0 else BELOW

    return in_nanos


def _clock(constant: Constant, zone: tzinfo) -> int | None:
    """What a clock without zone shows: a moment is one only while the zone's clocks run evenly."""
    if constant.kind is Kind.STRING:
        parsed = parse_timestamp(constant.value)
        return parsed[0] if parsed is not None and parsed[1] is None else None
    if constant.kind is Kind.INSTANT:
        clock = local(constant.value, zone)
        return clock if is_steady(clock, zone) else None
    if constant.kind is Kind.DATE:
        return int(constant.value) * DAY
    return int(constant.value) if constant.kind is Kind.LOCAL else None


def _moment(constant: Constant, zone: tzinfo) -> int | None:
    if constant.kind is Kind.STRING:
        parsed = parse_timestamp(constant.value)
        return None if parsed is None else instant(parsed[0], parsed[1] or zone)
    if constant.kind in {Kind.DATE, Kind.LOCAL}:
        return instant(constant.value * (DAY if constant.kind is Kind.DATE else 1), zone)
    return int(constant.value) if constant.kind is Kind.INSTANT else None


_PLACES: dict[type[IcebergType], Any] = {
    BooleanType: _boolean,
    IntegerType: _whole,
    LongType: _whole,
    FloatType: _float,
    DoubleType: _double,
    DecimalType: _decimal,
    DateType: _date,
    TimestampType: _timestamp,
    TimestamptzType: _timestamptz,
    TimestampNanoType: _nanos(_timestamp),
    TimestamptzNanoType: _nanos(_timestamptz),
    StringType: _string,
    UUIDType: _uuid,
    FixedType: _binary,
    BinaryType: _binary,
}
