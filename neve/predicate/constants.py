"""Constants in SQL text: literals, signed numbers, dates, times and casts of them, as Spark reads them.

A constant that cannot be understood with certainty is None, and a condition that depends on it is left to Spark. So is
text with white space other than blanks around it: Spark trims some of it from some types.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from enum import Enum, auto
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from sqlglot import exp

from neve.errors import UserError

DAY_MICROS = 86_400_000_000
EPOCH = datetime(1970, 1, 1)
DATE_PATTERN = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?")
TIMESTAMP_PATTERN = re.compile(
    r"""([0-9]{4}-[0-9]{1,2}-[0-9]{1,2})                                          # day
        (?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{1,9}))?)?     # time
        [ ]*(Z|UTC|GMT|[+-](?:0?[0-9]|1[0-7]):[0-5][0-9]|[A-Za-z]+/[A-Za-z/_]+)?)?  # zone""",
    re.VERBOSE,
)
OFFSET_PATTERN = re.compile(r"([+-])([0-9]{1,2}):([0-9]{2})")


def parse_date(text: str) -> int | None:
    """Parse a date to days since 1970; month and day may be missing. None if the text is no date."""
    if not (match := DATE_PATTERN.fullmatch(text.strip(" "))):
        return None
    try:
        return (date(*(int(part or 1) for part in match.groups())) - date(1970, 1, 1)).days
    except ValueError:
        return None


def parse_timestamp(text: str) -> tuple[int, int, tzinfo | None] | None:
    """Parse a timestamp to microseconds on its local clock since 1970, nanoseconds, and the zone that the text has."""
    if not (match := TIMESTAMP_PATTERN.fullmatch(text.strip(" "))):
        return None
    day, *clock, fraction, zone = match.groups()
    hour, minute, second = (int(part or 0) for part in clock)
    days = parse_date(day)
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    nanos = ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + int((fraction or "").ljust(9, "0"))
    try:
        return days * DAY_MICROS + nanos // 1000, nanos % 1000, None if zone is None else parse_time_zone(zone)
    except UserError:
        return None


def parse_time_zone(name: str) -> tzinfo:
    """Return a time zone by its name or offset."""
    if name.upper() in {"Z", "UTC", "GMT", "UT"}:
        return UTC
    if match := OFFSET_PATTERN.fullmatch(name):
        sign = -1 if match[1] == "-" else 1
        return timezone(sign * timedelta(hours=int(match[2]), minutes=int(match[3])))
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UserError(
            f"Unknown time zone {name!r}. Give a name such as 'Europe/Berlin' or an offset such as '+02:00'."
        ) from None


def local_to_utc_micros(local_micros: int, zone: tzinfo) -> int:
    """Convert the local time in a zone to UTC, both in microseconds since 1970."""
    moment = (EPOCH + timedelta(microseconds=local_micros)).replace(tzinfo=zone)
    return (moment - EPOCH.replace(tzinfo=UTC)) // timedelta(microseconds=1)


def utc_to_local_micros(utc_micros: int, zone: tzinfo) -> int:
    """Convert UTC to the local time in a zone, both in microseconds since 1970."""
    local = (EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=utc_micros)).astimezone(zone).replace(tzinfo=None)
    return (local - EPOCH) // timedelta(microseconds=1)


def has_constant_offset(local_micros: int, zone: tzinfo) -> bool:
    """Return whether the clocks of a zone skip and repeat no hour within two days of a local time."""
    moment = EPOCH + timedelta(microseconds=local_micros)
    try:
        offsets = {(moment + timedelta(days=d)).replace(tzinfo=zone).utcoffset() for d in (-2, 0, 2)}
    except OverflowError:
        return False
    return len(offsets) == 1


class ConstantKind(Enum):
    """The type of a constant, as far as comparisons distinguish types."""

    NULL = auto()
    BOOLEAN = auto()
    INTEGER = auto()
    DECIMAL = auto()
    FLOAT = auto()
    DOUBLE = auto()
    STRING = auto()
    BINARY = auto()
    DATE = auto()  # days since 1970
    INSTANT = auto()  # microseconds since 1970, UTC: TIMESTAMP
    LOCAL = auto()  # microseconds since 1970, local time without zone: TIMESTAMP_NTZ


@dataclass(frozen=True, slots=True)
class Constant:
    """A typed value written in SQL text."""

    kind: ConstantKind
    value: Any
    whole_digits: int = 0  # that a cast leaves room for before the decimal point
    nanos: int = 0  # that a time has beyond its microseconds; Spark drops them


NULL_CONSTANT = Constant(ConstantKind.NULL, None)
NUMERIC_KINDS = frozenset({ConstantKind.INTEGER, ConstantKind.DECIMAL, ConstantKind.FLOAT, ConstantKind.DOUBLE})

INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
STRING_TYPES = {"TEXT", "VARCHAR", "CHAR"}
MAX_DIGITS = 38  # of a decimal
LONG_DIGITS = 20  # of the decimal to which Spark casts a whole number
NUMBER_PATTERN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
SPECIAL_NUMBERS = frozenset({"nan", "infinity", "+infinity", "-infinity", "inf", "+inf", "-inf"})
INTEGER_PATTERN = re.compile(r" *[+-]?[0-9]+ *")


def parse_constant(node: exp.Expr, zone: tzinfo) -> Constant | None:
    """Return the constant that an expression stands for, or None if it is not a constant."""
    node = node.unnest()
    if isinstance(node, exp.Neg):
        constant = parse_constant(node.this, zone)
        if constant is None or constant.kind not in NUMERIC_KINDS:
            return constant if constant is NULL_CONSTANT else None
        is_decimal = constant.kind is ConstantKind.DECIMAL  # `-` would round it to 28 digits
        return replace(constant, value=constant.value.copy_negate() if is_decimal else -constant.value)
    if isinstance(node, exp.Cast | exp.TryCast):
        inner = parse_constant(node.this, zone)
        # A null that has a type does not compare with every column.
        return None if inner is None or inner is NULL_CONSTANT else _cast_constant(inner, node.to, zone)
    return _parse_literal(node)


def _parse_literal(node: exp.Expr) -> Constant | None:
    if isinstance(node, exp.Null):
        return NULL_CONSTANT
    if isinstance(node, exp.Boolean):
        return Constant(ConstantKind.BOOLEAN, bool(node.this))
    if isinstance(node, exp.HexString):
        digits = str(node.this)
        return Constant(ConstantKind.BINARY, bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2)))
    if isinstance(node, exp.RawString):
        return Constant(ConstantKind.STRING, str(node.this))
    if isinstance(node, exp.Literal):
        text = str(node.this)
        return Constant(ConstantKind.STRING, text) if node.is_string else _parse_number_literal(text)
    return None


def _parse_number_literal(text: str) -> Constant | None:
    if not NUMBER_PATTERN.fullmatch(text):
        return None
    if "e" in text.lower():
        return Constant(ConstantKind.DOUBLE, float(text)) if math.isfinite(float(text)) else None
    if "." in text or int(text) >= 1 << 63:
        return Constant(ConstantKind.DECIMAL, Decimal(text)) if len(text.replace(".", "")) <= MAX_DIGITS else None
    return Constant(ConstantKind.INTEGER, int(text))


def _cast_constant(constant: Constant, target: exp.DataType, zone: tzinfo) -> Constant | None:
    name = target.this.name if isinstance(target.this, exp.DataType.Type) else ""
    result: Constant | None = None
    try:
        parameters = [int(str(p.this)) for p in target.expressions]
        if name in INTEGER_BITS:
            result = _to_integer(constant, INTEGER_BITS[name])
        elif name in {"FLOAT", "DOUBLE"}:
            result = to_floating(constant, name)
        elif name == "DECIMAL":
            result = _to_decimal(constant, *(parameters or [10, 0]))
        elif name in STRING_TYPES:
            result = constant if constant.kind is ConstantKind.STRING and not parameters else None
        elif name == "BOOLEAN":
            result = _to_boolean(constant)
        elif name == "DATE":
            result = _to_date(constant, zone)
        elif name in {"TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ"}:
            result = to_timestamp(constant, zone)
        elif name == "TIMESTAMPNTZ":
            result = to_timestamp_ntz(constant)
    except (ValueError, ArithmeticError, TypeError):
        return None
    return result


def _to_integer(constant: Constant, bits: int) -> Constant | None:
    is_text = constant.kind is ConstantKind.STRING and INTEGER_PATTERN.fullmatch(constant.value)
    if not is_text and constant.kind not in {ConstantKind.INTEGER, ConstantKind.DECIMAL}:
        return None
    value = int(constant.value)
    fits = -(1 << bits - 1) <= value < 1 << bits - 1
    return Constant(ConstantKind.INTEGER, value, LONG_DIGITS) if fits else None


def to_floating(constant: Constant, name: str) -> Constant | None:
    """Cast a constant to FLOAT or DOUBLE; None if Spark does not."""
    value = constant.value
    if constant.kind is ConstantKind.STRING:
        text = value.strip(" ")
        value = float(text) if text.lower() in SPECIAL_NUMBERS or NUMBER_PATTERN.fullmatch(text) else None
    if value is None or constant.kind not in {ConstantKind.STRING, *NUMERIC_KINDS}:
        return None
    if name == "DOUBLE":
        return Constant(ConstantKind.DOUBLE, float(value))
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    # 1e39F is an error, unlike CAST(1e39 AS FLOAT).
    return None if math.isinf(rounded) and math.isfinite(value) else Constant(ConstantKind.FLOAT, rounded)


def _to_decimal(constant: Constant, precision: int, scale: int = 0) -> Constant | None:
    if constant.kind not in {ConstantKind.STRING, ConstantKind.INTEGER, ConstantKind.DECIMAL}:
        return None
    try:
        value = Decimal(constant.value).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    except InvalidOperation:
        return None
    whole_digits = precision - scale
    return Constant(ConstantKind.DECIMAL, value, whole_digits) if abs(value) < Decimal(10) ** whole_digits else None


def _to_boolean(constant: Constant) -> Constant | None:
    if constant.kind is ConstantKind.BOOLEAN:
        return constant
    word = constant.value.strip(" ").lower() if constant.kind is ConstantKind.STRING else ""
    return Constant(ConstantKind.BOOLEAN, word == "true") if word in {"true", "false"} else None


def _to_date(constant: Constant, zone: tzinfo) -> Constant | None:
    if constant.kind is ConstantKind.STRING:
        days = parse_date(constant.value)
        return None if days is None else Constant(ConstantKind.DATE, days)
    if constant.kind in {ConstantKind.INSTANT, ConstantKind.LOCAL}:
        micros = constant.value if constant.kind is ConstantKind.LOCAL else utc_to_local_micros(constant.value, zone)
        return Constant(ConstantKind.DATE, micros // DAY_MICROS)
    return constant if constant.kind is ConstantKind.DATE else None


def parse_instant(text: str, zone: tzinfo) -> Constant | None:
    """Parse a timestamp; without a zone of its own it is read in `zone`. None if the text is no timestamp."""
    if (parsed := parse_timestamp(text)) is None:
        return None
    micros, nanos, own_zone = parsed
    return Constant(ConstantKind.INSTANT, local_to_utc_micros(micros, own_zone or zone), nanos=nanos)


def to_timestamp(constant: Constant, zone: tzinfo) -> Constant | None:
    """Cast a constant to TIMESTAMP; None if Spark does not."""
    if constant.kind is ConstantKind.STRING:
        return parse_instant(constant.value, zone)
    if constant.kind in {ConstantKind.DATE, ConstantKind.LOCAL}:
        local_micros = constant.value * (DAY_MICROS if constant.kind is ConstantKind.DATE else 1)
        return Constant(ConstantKind.INSTANT, local_to_utc_micros(local_micros, zone), nanos=constant.nanos)
    return constant if constant.kind is ConstantKind.INSTANT else None


def to_timestamp_ntz(constant: Constant) -> Constant | None:
    """Cast a constant without zone to TIMESTAMP_NTZ; None if Spark does not, or if it depends on the zone."""
    if constant.kind is ConstantKind.STRING:
        parsed = parse_timestamp(constant.value)
        if parsed is None or parsed[2] is not None:
            return None
        return Constant(ConstantKind.LOCAL, parsed[0], nanos=parsed[1])
    if constant.kind is ConstantKind.DATE:
        return Constant(ConstantKind.LOCAL, constant.value * DAY_MICROS)
    return constant if constant.kind is ConstantKind.LOCAL else None
