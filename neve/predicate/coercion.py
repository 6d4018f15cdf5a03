"""Find the position of a constant among the values of a column, as Spark would compare the two.

Spark converts one side or both before it compares. This module gives the same result without converting the column: a
constant equals one of the column's values, or it is between two neighbouring values, or it is below or above all of
them. `3.5` compared with an integer column is right above 3. There is no position if Spark's answer depends on its
settings, or if converting the column would lose precision; the comparison is then left to Spark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from decimal import ROUND_FLOOR, Decimal, localcontext
from typing import Any
from uuid import UUID

import numpy as np
from pyiceberg import types as ice
from pyiceberg.expressions import literals

from neve.predicate.constants import (
    DAY_MICROS,
    LONG_DIGITS,
    MAX_DIGITS,
    NUMERIC_KINDS,
    Constant,
    ConstantKind,
    has_constant_offset,
    parse_date,
    to_floating,
    to_timestamp,
    to_timestamp_ntz,
    utc_to_local_micros,
)
from neve.predicate.normalize import MAX_NANOS, NanosLiteral

EXACT_DOUBLE = 1 << 53  # a double holds every whole number up to this one
EXACT_FLOAT = 1 << 24


@dataclass(frozen=True, slots=True)
class ValuePosition:
    """A position in the order of a column's values: at a value, or right above it."""

    floor: literals.Literal[Any] | None
    is_at_floor: bool = True


BELOW_ALL = ValuePosition(None, False)  # below every value
ABOVE_ALL = ValuePosition(None)  # above every value

TimeFunction = Callable[[Constant, tzinfo], Constant | None]
PositionFunction = Callable[[Constant, ice.IcebergType, tzinfo], ValuePosition | None]


def locate_constant(constant: Constant, kind: ice.IcebergType, zone: tzinfo) -> ValuePosition | None:
    """Return the position of a constant among the values of a type, or None if it cannot be determined."""
    find_position = _POSITION_FUNCTIONS.get(type(kind))
    try:
        return None if find_position is None else find_position(constant, kind, zone)
    except (ArithmeticError, ValueError):
        return None


def is_canonical(constant: Constant, kind: ice.IcebergType) -> bool:
    """Return whether a string compares the same parsed and with the column cast: in a list, Spark may do either."""
    if constant.kind is not ConstantKind.STRING or isinstance(kind, ice.StringType | ice.UUIDType):
        return True
    if isinstance(kind, ice.IntegerType | ice.LongType):
        return constant.value == str(int(constant.value)) if constant.value.lstrip("-").isdecimal() else False
    days = parse_date(constant.value) if isinstance(kind, ice.DateType) else None
    return days is not None and constant.value == str(np.datetime64(days, "D"))


def can_compare_one_by_one(constants: Sequence[Constant], kind: ice.IcebergType) -> bool:
    """Return whether comparing a column with each constant gives the same as Spark's comparison in one common type."""
    kinds = {c.kind for c in constants} - {ConstantKind.NULL}
    if len(kinds) > 1 and (ConstantKind.STRING in kinds or kinds >= {ConstantKind.INSTANT, ConstantKind.LOCAL}):
        return False
    if len(kinds) > 1 and kinds - NUMERIC_KINDS and kinds & NUMERIC_KINDS:
        return False
    if kinds & {ConstantKind.FLOAT, ConstantKind.DOUBLE} and not isinstance(kind, ice.FloatType | ice.DoubleType):
        limit = EXACT_FLOAT if ConstantKind.FLOAT in kinds else EXACT_DOUBLE
        numbers = [c.value for c in constants if c.kind is not ConstantKind.NULL]
        return isinstance(kind, ice.IntegerType | ice.LongType) and all(abs(n) < limit for n in numbers)
    if ConstantKind.DECIMAL not in kinds:
        return True
    decimals = [c for c in constants if c.kind in {ConstantKind.INTEGER, ConstantKind.DECIMAL}]
    return max(map(_whole_digits, decimals)) + max(map(_scale, decimals)) <= MAX_DIGITS


def _scale(constant: Constant) -> int:
    return max(0, -int(Decimal(constant.value).as_tuple().exponent))


def _whole_digits(constant: Constant) -> int:
    return max(constant.whole_digits, Decimal(constant.value).adjusted() + 1)


def _position_in_integers(constant: Constant, kind: Any, zone: tzinfo) -> ValuePosition | None:
    value = constant.value
    if constant.kind is ConstantKind.STRING:
        is_whole = value.strip(" ").lstrip("+-").isdecimal() and value.isascii()
        value = int(value) if is_whole and kind.min <= int(value) <= kind.max else None
    elif constant.kind in {ConstantKind.DOUBLE, ConstantKind.FLOAT}:
        limit = EXACT_DOUBLE if constant.kind is ConstantKind.DOUBLE else EXACT_FLOAT
        value = value if math.isinf(value) or abs(value) < limit else None
    elif (
        constant.kind is ConstantKind.DECIMAL
        and max(LONG_DIGITS, _whole_digits(constant)) + _scale(constant) > MAX_DIGITS
    ):
        return None  # Spark rounds it
    if value is None or constant.kind not in {ConstantKind.STRING, *NUMERIC_KINDS}:
        return None
    if value > kind.max:
        return ABOVE_ALL
    if value < kind.min:
        return BELOW_ALL
    floor = math.floor(value)
    return ValuePosition(literals.LongLiteral(floor), value == floor)


def _position_in_doubles(constant: Constant, kind: ice.IcebergType, zone: tzinfo) -> ValuePosition | None:
    double = to_floating(constant, "DOUBLE")
    return None if double is None else ValuePosition(literals.DoubleLiteral(double.value))


def _position_in_floats(constant: Constant, kind: ice.IcebergType, zone: tzinfo) -> ValuePosition | None:
    position = _position_in_doubles(constant, kind, zone)
    if position is None or position.floor is None:
        return None
    value = position.floor.value
    with np.errstate(over="ignore"):
        nearest = np.float32(value)
    is_exact = float(nearest) == value
    if not is_exact and constant.kind in {ConstantKind.STRING, ConstantKind.INTEGER}:
        return None  # the settings of the session decide whether 32 or 64 bits are compared
    floor = nearest if float(nearest) <= value else np.nextafter(nearest, np.float32(-np.inf))
    return ValuePosition(literals.FloatLiteral(float(floor)), is_exact)


def _position_in_decimals(constant: Constant, kind: Any, zone: tzinfo) -> ValuePosition | None:
    if constant.kind not in {ConstantKind.INTEGER, ConstantKind.DECIMAL}:
        return None
    value = Decimal(constant.value)
    if max(kind.precision - kind.scale, _whole_digits(constant)) + max(kind.scale, _scale(constant)) > MAX_DIGITS:
        return None  # Spark rounds one of the two to fit into 38 digits
    limit = Decimal(10) ** (kind.precision - kind.scale)
    if value.copy_abs() >= limit:  # abs() would round it to 28 digits
        return ABOVE_ALL if value > 0 else BELOW_ALL
    with localcontext(prec=2 * MAX_DIGITS):
        floor = value.quantize(Decimal(1).scaleb(-kind.scale), ROUND_FLOOR)
    return BELOW_ALL if floor <= -limit else ValuePosition(literals.DecimalLiteral(floor), floor == value)


def _position_if(constant_kind: ConstantKind, literal: Callable[[Any], literals.Literal[Any]]) -> PositionFunction:
    """Return a function that accepts constants of one kind only, each of which is a value of the column."""

    def position(constant: Constant, kind: ice.IcebergType, zone: tzinfo) -> ValuePosition | None:
        return ValuePosition(literal(constant.value)) if constant.kind is constant_kind else None

    return position


def _position_in_uuids(constant: Constant, kind: ice.IcebergType, zone: tzinfo) -> ValuePosition | None:
    if constant.kind is not ConstantKind.STRING or str(uuid := UUID(constant.value)) != constant.value:
        return None  # Spark compares UUIDs as strings, so only the canonical form can be equal
    return ValuePosition(literals.UUIDLiteral(uuid.bytes))


def _position_in_fixed(constant: Constant, kind: Any, zone: tzinfo) -> ValuePosition | None:
    is_value = constant.kind is ConstantKind.BINARY and len(constant.value) == len(kind)
    return ValuePosition(literals.FixedLiteral(constant.value)) if is_value else None


def _position_in_dates(constant: Constant, kind: ice.IcebergType, zone: tzinfo) -> ValuePosition | None:
    if constant.kind in {ConstantKind.DATE, ConstantKind.STRING}:
        days = constant.value if constant.kind is ConstantKind.DATE else parse_date(constant.value)
        return None if days is None else ValuePosition(literals.DateLiteral(days))
    if (time := _to_local_time(constant, zone)) is None or time.nanos:
        return None
    days, micros = divmod(time.value, DAY_MICROS)  # Spark compares the date as its midnight
    return ValuePosition(literals.DateLiteral(days), micros == 0)


def _position_in_micros(to_time: TimeFunction) -> PositionFunction:
    def in_micros(constant: Constant, kind: ice.IcebergType, zone: tzinfo) -> ValuePosition | None:
        time = to_time(constant, zone)
        return None if time is None or time.nanos else ValuePosition(literals.TimestampLiteral(time.value))

    return in_micros


def _position_in_nanos(to_time: TimeFunction) -> PositionFunction:
    def in_nanos(constant: Constant, kind: ice.IcebergType, zone: tzinfo) -> ValuePosition | None:
        time = to_time(constant, zone)
        if time is None:
            return None
        nanos = time.value * 1000 + time.nanos
        return ValuePosition(NanosLiteral(nanos)) if abs(nanos) < MAX_NANOS else ABOVE_ALL if nanos > 0 else BELOW_ALL

    return in_nanos


def _to_local_time(constant: Constant, zone: tzinfo) -> Constant | None:
    """Return the local time without zone; for an instant only if the zone's offset is constant around it."""
    if constant.kind is ConstantKind.INSTANT:
        micros = utc_to_local_micros(constant.value, zone)
        return replace(constant, value=micros) if has_constant_offset(micros, zone) else None
    return to_timestamp_ntz(constant)


_POSITION_FUNCTIONS: dict[type[ice.IcebergType], PositionFunction] = {
    ice.BooleanType: _position_if(ConstantKind.BOOLEAN, literals.BooleanLiteral),
    ice.IntegerType: _position_in_integers,
    ice.LongType: _position_in_integers,
    ice.FloatType: _position_in_floats,
    ice.DoubleType: _position_in_doubles,
    ice.DecimalType: _position_in_decimals,
    ice.DateType: _position_in_dates,
    ice.TimestampType: _position_in_micros(_to_local_time),
    ice.TimestamptzType: _position_in_micros(to_timestamp),
    ice.TimestampNanoType: _position_in_nanos(_to_local_time),
    ice.TimestamptzNanoType: _position_in_nanos(to_timestamp),
    ice.StringType: _position_if(ConstantKind.STRING, literals.StringLiteral),
    ice.UUIDType: _position_in_uuids,
    ice.FixedType: _position_in_fixed,
    ice.BinaryType: _position_if(ConstantKind.BINARY, literals.BinaryLiteral),
}
