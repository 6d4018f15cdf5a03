"""The constants of SQL text: literals, signed numbers and casts of them, as Spark reads them.

A constant that cannot be understood with certainty is None, and what depends on it is left to Spark.

Dates and times as Spark writes them in text, and the clocks of time zones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from enum import Enum, auto
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from sqlglot import exp

from neve.errors import UserError

DAY_MICROS = 86_400_000_000  # microseconds

EPOCH = datetime(1970, 1, 1)
DATE_PATTERN = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?")
TIMESTAMP_PATTERN = re.compile(
    r"""([0-9]{4}-[0-9]{1,2}-[0-9]{1,2})                                          # day
        (?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{1,6}))?)?     # clock
        \s*(Z|[+-][0-9]{1,2}:[0-9]{2}|[A-Za-z][A-Za-z/_]*)?)?                     # zone""",
    re.VERBOSE,
)
OFFSET_PATTERN = re.compile(r"([+-])([0-9]{1,2}):([0-9]{2})")


def parse_date(text: str) -> int | None:
    """The days since 1970 of a date written as year, month and day; the last two may be left out."""
    if not (found := DATE_PATTERN.fullmatch(text.strip())):
        return None
    try:
        return (date(*(int(part or 1) for part in found.groups())) - date(1970, 1, 1)).days
    except ValueError:
        return None


def parse_timestamp(text: str) -> tuple[int, tzinfo | None] | None:
    """The microseconds of a clock since 1970, and the zone when one is written."""
    if not (found := TIMESTAMP_PATTERN.fullmatch(text.strip())):
        return None
    day, *clock, fraction, zone = found.groups()
    hour, minute, second = (int(part or 0) for part in clock)
    days = parse_date(day)
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    micros = ((hour * 60 + minute) * 60 + second) * 1_000_000 + int((fraction or "").ljust(6, "0"))
    try:
        return days * DAY_MICROS + micros, None if zone is None else parse_time_zone(zone)
    except UserError:
        return None


def parse_time_zone(name: str) -> tzinfo:
    """A time zone by its name or offset."""
    if name.upper() in {"Z", "UTC", "GMT", "UT"}:
        return UTC
    if found := OFFSET_PATTERN.fullmatch(name):
        sign = -1 if found[1] == "-" else 1
        return timezone(sign * timedelta(hours=int(found[2]), minutes=int(found[3])))
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UserError(
            f"Unknown time zone {name!r}. Give a name such as 'Europe/Berlin' or an offset such as '+02:00'."
        ) from None


def local_to_utc_micros(local_micros: int, zone: tzinfo) -> int:
    """The microseconds since 1970 UTC at which a clock in a zone shows its microseconds since 1970."""
    moment = (EPOCH + timedelta(microseconds=local_micros)).replace(tzinfo=zone)
    return (moment - EPOCH.replace(tzinfo=UTC)) // timedelta(microseconds=1)


def utc_to_local_micros(utc_micros: int, zone: tzinfo) -> int:
    """What a clock in a zone shows at a moment, both in microseconds since 1970."""
    shown = (EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=utc_micros)).astimezone(zone).replace(tzinfo=None)
    return (shown - EPOCH) // timedelta(microseconds=1)


def has_constant_offset(local_micros: int, zone: tzinfo) -> bool:
    """Whether the offset of a zone is the same a day before and after: clocks there neither skip nor repeat an hour."""
    moment = EPOCH + timedelta(microseconds=local_micros)
    try:
        around = [(moment + timedelta(days=d)).replace(tzinfo=zone).utcoffset() for d in (-2, 0, 2)]
    except OverflowError:
        return False
    return len(set(around)) == 1


class ConstantKind(Enum):
    """The type of a constant, as far as comparisons tell types apart."""

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
    LOCAL = auto()  # microseconds since 1970, of a clock without zone: TIMESTAMP_NTZ


@dataclass(frozen=True, slots=True)
class Constant:
    """A typed value written in SQL text."""

    kind: ConstantKind
    value: Any


NULL_CONSTANT = Constant(ConstantKind.NULL, None)

INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
STRING_TYPES = {"TEXT", "VARCHAR", "CHAR"}
NUMBER_PATTERN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
SPECIAL_NUMBERS = {
    "nan": "nan",
    "infinity": "inf",
    "+infinity": "inf",
    "-infinity": "-inf",
    "inf": "inf",
    "+inf": "inf",
    "-inf": "-inf",
}
INTEGER_PATTERN = re.compile(r"\s*[+-]?[0-9]+\s*")


def parse_constant(node: exp.Expression, zone: tzinfo) -> Constant | None:
    """The constant an expression is, or None when it is not one."""
    if isinstance(node, exp.Paren):
        return parse_constant(node.this, zone)
    if isinstance(node, exp.Neg):
        return _negate_constant(parse_constant(node.this, zone))
    if isinstance(node, exp.Cast | exp.TryCast):
        inner = parse_constant(node.this, zone)
        return None if inner is None else _cast_constant(inner, node.to, zone)
    return _parse_literal(node)


def _parse_literal(node: exp.Expression) -> Constant | None:
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
        return (
            Constant(ConstantKind.STRING, str(node.this)) if node.is_string else _parse_number_literal(str(node.this))
        )
    return None


def _parse_number_literal(text: str) -> Constant | None:
    if not NUMBER_PATTERN.fullmatch(text):
        return None
    if "e" in text.lower():
        return Constant(ConstantKind.DOUBLE, float(text))
    if "." in text:
        return Constant(ConstantKind.DECIMAL, Decimal(text))
    return (
        Constant(ConstantKind.INTEGER, int(text))
        if int(text) < 1 << 63
        else Constant(ConstantKind.DECIMAL, Decimal(text))
    )


def _negate_constant(constant: Constant | None) -> Constant | None:
    if constant is None or constant.kind not in {
        ConstantKind.INTEGER,
        ConstantKind.DECIMAL,
        ConstantKind.FLOAT,
        ConstantKind.DOUBLE,
    }:
        return constant if constant is NULL_CONSTANT else None
    return Constant(constant.kind, -constant.value)


def _cast_constant(constant: Constant, target: exp.DataType, zone: tzinfo) -> Constant | None:
    if constant is NULL_CONSTANT:
        return NULL_CONSTANT
    name = target.this.name if isinstance(target.this, exp.DataType.Type) else ""
    try:
        return _convert_to_type(constant, name, [int(str(p.this)) for p in target.expressions], zone)
    except (ValueError, ArithmeticError, TypeError):
        return None


def _convert_to_type(constant: Constant, name: str, parameters: list[int], zone: tzinfo) -> Constant | None:
    if name in INTEGER_BITS:
        return _to_integer(constant, INTEGER_BITS[name])
    if name in {"FLOAT", "DOUBLE"}:
        return _to_floating(constant, name)
    if name == "DECIMAL":
        return _to_decimal(constant, *(parameters or [10, 0]))
    if name in STRING_TYPES:
        return constant if constant.kind is ConstantKind.STRING and not parameters else None
    return _to_boolean(constant) if name == "BOOLEAN" else _to_temporal(constant, name, zone)


def _to_integer(constant: Constant, bits: int) -> Constant | None:
    is_text = constant.kind is ConstantKind.STRING and INTEGER_PATTERN.fullmatch(constant.value)
    if not is_text and constant.kind not in {ConstantKind.INTEGER, ConstantKind.DECIMAL}:
        return None
    value = int(constant.value)
    return Constant(ConstantKind.INTEGER, value) if -(1 << bits - 1) <= value < 1 << bits - 1 else None


def _to_floating(constant: Constant, name: str) -> Constant | None:
    value = parse_number(constant.value) if constant.kind is ConstantKind.STRING else constant.value
    if value is None or constant.kind not in {
        ConstantKind.STRING,
        ConstantKind.INTEGER,
        ConstantKind.DECIMAL,
        ConstantKind.FLOAT,
        ConstantKind.DOUBLE,
    }:
        return None
    return (
        Constant(ConstantKind.DOUBLE, float(value))
        if name == "DOUBLE"
        else Constant(ConstantKind.FLOAT, float(np.float32(value)))
    )


def parse_number(text: str) -> float | None:
    """A string as the number Spark makes of it, None when it makes none."""
    text = text.strip()
    if text.lower() in SPECIAL_NUMBERS:
        return float(SPECIAL_NUMBERS[text.lower()])
    return float(text) if NUMBER_PATTERN.fullmatch(text) else None


def _to_decimal(constant: Constant, precision: int, scale: int = 0) -> Constant | None:
    if constant.kind not in {ConstantKind.STRING, ConstantKind.INTEGER, ConstantKind.DECIMAL}:
        return None
    try:
        value = Decimal(constant.value).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    except InvalidOperation:
        return None
    return Constant(ConstantKind.DECIMAL, value) if abs(value) < Decimal(10) ** (precision - scale) else None


def _to_boolean(constant: Constant) -> Constant | None:
    if constant.kind is ConstantKind.BOOLEAN:
        return constant
    word = constant.value.strip().lower() if constant.kind is ConstantKind.STRING else ""
    return Constant(ConstantKind.BOOLEAN, word == "true") if word in {"true", "false"} else None


def _to_temporal(constant: Constant, name: str, zone: tzinfo) -> Constant | None:
    if name == "DATE":
        return _to_date(constant, zone)
    if name in {"TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ"}:
        return _to_timestamp(constant, zone)
    return _to_timestamp_ntz(constant) if name == "TIMESTAMPNTZ" else None


def _to_date(constant: Constant, zone: tzinfo) -> Constant | None:
    if constant.kind is ConstantKind.STRING:
        days = parse_date(constant.value)
        return None if days is None else Constant(ConstantKind.DATE, days)
    if constant.kind in {ConstantKind.INSTANT, ConstantKind.LOCAL}:
        moment = constant.value if constant.kind is ConstantKind.LOCAL else utc_to_local_micros(constant.value, zone)
        return Constant(ConstantKind.DATE, moment // DAY_MICROS)
    return constant if constant.kind is ConstantKind.DATE else None


def _to_timestamp(constant: Constant, zone: tzinfo) -> Constant | None:
    if constant.kind is ConstantKind.STRING:
        parsed = parse_timestamp(constant.value)
        return (
            None
            if parsed is None
            else Constant(ConstantKind.INSTANT, local_to_utc_micros(parsed[0], parsed[1] or zone))
        )
    if constant.kind in {ConstantKind.DATE, ConstantKind.LOCAL}:
        clock = constant.value * (DAY_MICROS if constant.kind is ConstantKind.DATE else 1)
        return Constant(ConstantKind.INSTANT, local_to_utc_micros(clock, zone))
    return constant if constant.kind is ConstantKind.INSTANT else None


def _to_timestamp_ntz(constant: Constant) -> Constant | None:
    if constant.kind is ConstantKind.STRING:
        parsed = parse_timestamp(constant.value)
        return None if parsed is None or parsed[1] is not None else Constant(ConstantKind.LOCAL, parsed[0])
    if constant.kind is ConstantKind.DATE:
        return Constant(ConstantKind.LOCAL, constant.value * DAY_MICROS)
    return constant if constant.kind is ConstantKind.LOCAL else None
