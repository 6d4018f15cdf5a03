"""The constants of SQL text: literals, signed numbers and casts of them, as Spark reads them.

A constant that cannot be understood with certainty is None, and what depends on it is left to Spark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import tzinfo
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from enum import Enum, auto
from typing import Any

import numpy as np
from sqlglot import exp

from neve.predicate.times import DAY, instant, local, parse_date, parse_timestamp

__all__ = ["Constant", "Kind", "constant", "number_of"]


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
