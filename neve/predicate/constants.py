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

DAY = 86_400_000_000  # microseconds

EPOCH = datetime(1970, 1, 1)
DATE = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?")
TIMESTAMP = re.compile(
    r"""([0-9]{4}-[0-9]{1,2}-[0-9]{1,2})                                          # day
        (?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{1,6}))?)?     # clock
        \s*(Z|[+-][0-9]{1,2}:[0-9]{2}|[A-Za-z][A-Za-z/_]*)?)?                     # zone""",
    re.VERBOSE,
)
OFFSET = re.compile(r"([+-])([0-9]{1,2}):([0-9]{2})")


def parse_date(text: str) -> int | None:
    """The days since 1970 of a date written as year, month and day; the last two may be left out."""
    if not (found := DATE.fullmatch(text.strip())):
        return None
    try:
        return (date(*(int(part or 1) for part in found.groups())) - date(1970, 1, 1)).days
    except ValueError:
        return None


def parse_timestamp(text: str) -> tuple[int, tzinfo | None] | None:
    """The microseconds of a clock since 1970, and the zone when one is written."""
    if not (found := TIMESTAMP.fullmatch(text.strip())):
        return None
    day, *clock, fraction, zone = found.groups()
    hour, minute, second = (int(part or 0) for part in clock)
    days = parse_date(day)
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    micros = ((hour * 60 + minute) * 60 + second) * 1_000_000 + int((fraction or "").ljust(6, "0"))
    try:
        return days * DAY + micros, None if zone is None else zone_of(zone)
    except UserError:
        return None


def zone_of(name: str) -> tzinfo:
    """A time zone by its name or offset."""
    if name.upper() in {"Z", "UTC", "GMT", "UT"}:
        return UTC
    if found := OFFSET.fullmatch(name):
        sign = -1 if found[1] == "-" else 1
        return timezone(sign * timedelta(hours=int(found[2]), minutes=int(found[3])))
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UserError(
            f"Unknown time zone {name!r}. Give a name such as 'Europe/Berlin' or an offset such as '+02:00'."
        ) from None


def instant(clock: int, zone: tzinfo) -> int:
    """The microseconds since 1970 UTC at which a clock in a zone shows its microseconds since 1970."""
    moment = (EPOCH + timedelta(microseconds=clock)).replace(tzinfo=zone)
    return (moment - EPOCH.replace(tzinfo=UTC)) // timedelta(microseconds=1)


def local(moment: int, zone: tzinfo) -> int:
    """What a clock in a zone shows at a moment, both in microseconds since 1970."""
    shown = (EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=moment)).astimezone(zone).replace(tzinfo=None)
    return (shown - EPOCH) // timedelta(microseconds=1)


def is_steady(clock: int, zone: tzinfo) -> bool:
    """Whether the offset of a zone is the same a day before and after: clocks there neither skip nor repeat an hour."""
    moment = EPOCH + timedelta(microseconds=clock)
    try:
        around = [(moment + timedelta(days=d)).replace(tzinfo=zone).utcoffset() for d in (-2, 0, 2)]
    except OverflowError:
        return False
    return len(set(around)) == 1


class Kind(Enum):
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

    kind: Kind
    value: Any


NULL = Constant(Kind.NULL, None)

INTEGERS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
TEXT = {"TEXT", "VARCHAR", "CHAR"}
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
WORDS = {
    "nan": "nan",
    "infinity": "inf",
    "+infinity": "inf",
    "-infinity": "-inf",
    "inf": "inf",
    "+inf": "inf",
    "-inf": "-inf",
}
WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")


def constant(node: exp.Expression, zone: tzinfo) -> Constant | None:
    """The constant an expression is, or None when it is not one."""
    if isinstance(node, exp.Paren):
        return constant(node.this, zone)
    if isinstance(node, exp.Neg):
        return _negative(constant(node.this, zone))
    if isinstance(node, exp.Cast | exp.TryCast):
        inner = constant(node.this, zone)
        return None if inner is None else _cast(inner, node.to, zone)
    return _literal(node)


def _literal(node: exp.Expression) -> Constant | None:
    if isinstance(node, exp.Null):
        return NULL
    if isinstance(node, exp.Boolean):
        return Constant(Kind.BOOLEAN, bool(node.this))
    if isinstance(node, exp.HexString):
        digits = str(node.this)
        return Constant(Kind.BINARY, bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2)))
    if isinstance(node, exp.RawString):
        return Constant(Kind.STRING, str(node.this))
    if isinstance(node, exp.Literal):
        return Constant(Kind.STRING, str(node.this)) if node.is_string else _number(str(node.this))
    return None


def _number(text: str) -> Constant | None:
    if not NUMBER.fullmatch(text):
        return None
    if "e" in text.lower():
        return Constant(Kind.DOUBLE, float(text))
    if "." in text:
        return Constant(Kind.DECIMAL, Decimal(text))
    return Constant(Kind.INTEGER, int(text)) if int(text) < 1 << 63 else Constant(Kind.DECIMAL, Decimal(text))


def _negative(found: Constant | None) -> Constant | None:
    if found is None or found.kind not in {Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE}:
        return found if found is NULL else None
    return Constant(found.kind, -found.value)


def _cast(found: Constant, target: exp.DataType, zone: tzinfo) -> Constant | None:
    if found is NULL:
        return NULL
    name = target.this.name if isinstance(target.this, exp.DataType.Type) else ""
    try:
        return _converted(found, name, [int(str(p.this)) for p in target.expressions], zone)
    except (ValueError, ArithmeticError, TypeError):
        return None


def _converted(found: Constant, name: str, parameters: list[int], zone: tzinfo) -> Constant | None:
    if name in INTEGERS:
        return _integer(found, INTEGERS[name])
    if name in {"FLOAT", "DOUBLE"}:
        return _floating(found, name)
    if name == "DECIMAL":
        return _decimal(found, *(parameters or [10, 0]))
    if name in TEXT:
        return found if found.kind is Kind.STRING and not parameters else None
    return _boolean(found) if name == "BOOLEAN" else _temporal(found, name, zone)


def _integer(found: Constant, bits: int) -> Constant | None:
    is_text = found.kind is Kind.STRING and WHOLE.fullmatch(found.value)
    if not is_text and found.kind not in {Kind.INTEGER, Kind.DECIMAL}:
        return None
    value = int(found.value)
    return Constant(Kind.INTEGER, value) if -(1 << bits - 1) <= value < 1 << bits - 1 else None


def _floating(found: Constant, name: str) -> Constant | None:
    value = number_of(found.value) if found.kind is Kind.STRING else found.value
    if value is None or found.kind not in {Kind.STRING, Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE}:
        return None
    return Constant(Kind.DOUBLE, float(value)) if name == "DOUBLE" else Constant(Kind.FLOAT, float(np.float32(value)))


def number_of(text: str) -> float | None:
    """A string as the number Spark makes of it, None when it makes none."""
    text = text.strip()
    if text.lower() in WORDS:
        return float(WORDS[text.lower()])
    return float(text) if NUMBER.fullmatch(text) else None


def _decimal(found: Constant, precision: int, scale: int = 0) -> Constant | None:
    if found.kind not in {Kind.STRING, Kind.INTEGER, Kind.DECIMAL}:
        return None
    try:
        value = Decimal(found.value).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    except InvalidOperation:
        return None
    return Constant(Kind.DECIMAL, value) if abs(value) < Decimal(10) ** (precision - scale) else None


def _boolean(found: Constant) -> Constant | None:
    if found.kind is Kind.BOOLEAN:
        return found
    word = found.value.strip().lower() if found.kind is Kind.STRING else ""
    return Constant(Kind.BOOLEAN, word == "true") if word in {"true", "false"} else None


def _temporal(found: Constant, name: str, zone: tzinfo) -> Constant | None:
    if name == "DATE":
        return _date(found, zone)
    if name in {"TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ"}:
        return _timestamp(found, zone)
    return _clock(found) if name == "TIMESTAMPNTZ" else None


def _date(found: Constant, zone: tzinfo) -> Constant | None:
    if found.kind is Kind.STRING:
        days = parse_date(found.value)
        return None if days is None else Constant(Kind.DATE, days)
    if found.kind in {Kind.INSTANT, Kind.LOCAL}:
        moment = found.value if found.kind is Kind.LOCAL else local(found.value, zone)
        return Constant(Kind.DATE, moment // DAY)
    return found if found.kind is Kind.DATE else None


def _timestamp(found: Constant, zone: tzinfo) -> Constant | None:
    if found.kind is Kind.STRING:
        parsed = parse_timestamp(found.value)
        return None if parsed is None else Constant(Kind.INSTANT, instant(parsed[0], parsed[1] or zone))
    if found.kind in {Kind.DATE, Kind.LOCAL}:
        clock = found.value * (DAY if found.kind is Kind.DATE else 1)
        return Constant(Kind.INSTANT, instant(clock, zone))
    return found if found.kind is Kind.INSTANT else None


def _clock(found: Constant) -> Constant | None:
    if found.kind is Kind.STRING:
        parsed = parse_timestamp(found.value)
        return None if parsed is None or parsed[1] is not None else Constant(Kind.LOCAL, parsed[0])
    if found.kind is Kind.DATE:
        return Constant(Kind.LOCAL, found.value * DAY)
    return found if found.kind is Kind.LOCAL else None
