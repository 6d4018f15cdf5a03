"""Comparisons of a column with constants as three-valued conditions.

Conditions of SQL's three-valued logic as two expressions: for the rows where it is true, and where it is false.

A row where a condition is null is in neither. Either expression may let through too much, never too little; a flag says
whether it is exact. NOT swaps the two, so nothing has to be negated: `NOT (x = 1)` takes the rows where `x = 1` is
false, and a null is not among them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    StartsWith,
)
from pyiceberg.expressions.literals import BooleanLiteral
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    UUIDType,
)

from neve.predicate.coercion import ABOVE, BELOW, Cut, alike, canonical, cut
from neve.predicate.constants import DAY, Constant, Kind, instant, is_steady, parse_date
from neve.predicate.normalize import NanosLiteral, all_of, any_of


@dataclass(frozen=True, slots=True)
class Ternary:
    """A condition: where it may be true, where it may be false, and whether each of the two is exact."""

    true: BooleanExpression
    false: BooleanExpression
    true_exact: bool = True
    false_exact: bool = True

    def negated(self) -> Ternary:
        """The condition that is true where this one is false."""
        return Ternary(self.false, self.true, self.false_exact, self.true_exact)

    def inexact(self) -> Ternary:
        """The same condition, known to let through too much."""
        return Ternary(self.true, self.false, False, False)


TRUE = Ternary(AlwaysTrue(), AlwaysFalse())
FALSE = Ternary(AlwaysFalse(), AlwaysTrue())
NULL = Ternary(AlwaysFalse(), AlwaysFalse())
UNKNOWN = Ternary(AlwaysTrue(), AlwaysTrue(), False, False)


def conjunction(parts: Sequence[Ternary]) -> Ternary:
    """AND: true where all are, false where one is."""
    true, false = all_of(p.true for p in parts), any_of(p.false for p in parts)
    return Ternary(
        true,
        false,
        all(p.true_exact for p in parts) or any(p.true_exact and p.true is AlwaysFalse() for p in parts),
        all(p.false_exact for p in parts) or any(p.false_exact and p.false is AlwaysTrue() for p in parts),
    )


def disjunction(parts: Sequence[Ternary]) -> Ternary:
    """OR: true where one is, false where all are."""
    return conjunction([p.negated() for p in parts]).negated()


NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}


@dataclass(frozen=True, slots=True)
class Column:
    """A primitive column by its full name, to be compared under the clock of a time zone."""

    name: str
    kind: IcebergType
    is_nullable: bool
    zone: tzinfo

    def compare(self, operator: str, constant: Constant) -> Ternary:
        """The column on the left of an operator, a constant on its right."""
        if constant.kind is Kind.NULL:
            return NULL
        if constant.kind in {Kind.FLOAT, Kind.DOUBLE} and math.isnan(constant.value):
            return self._beside_nan(operator)
        place = cut(constant, self.kind, self.zone)
        if place is None:
            return UNKNOWN
        if isinstance(self.kind, TimestampNanoType | TimestamptzNanoType):
            return self._beside_micros(operator, place)
        found = Ternary(self._at(operator, place), self._at(NEGATED[operator], place))
        if place.floor is None and constant.kind is Kind.DECIMAL:
            return self._with_null(found)
        is_exact = operator in {"=", "<>"} or not isinstance(self.kind, UUIDType)
        return found if is_exact else found.inexact()

    def same(self, constant: Constant) -> Ternary:
        """`<=>`: equal, where null equals null; never null itself."""
        if constant.kind is Kind.NULL:
            return self.null()
        equal = self.compare("=", constant)
        return Ternary(equal.true, any_of((equal.false, self._is_null())), equal.true_exact, equal.false_exact)

    def among(self, constants: Sequence[Constant]) -> Ternary:
        """IN a list of constants."""
        if not alike(constants, self.kind):
            return UNKNOWN
        plain = [c for c in constants if c.kind is not Kind.NULL and canonical(c, self.kind) and not _is_nan(c)]
        places = [cut(c, self.kind, self.zone) for c in plain]
        special = [c for c in constants if c.kind is Kind.NULL or _is_nan(c)]
        nanos = isinstance(self.kind, TimestampNanoType | TimestamptzNanoType)
        if nanos or None in places or len(plain) + len(special) < len(constants):
            return self._among_each(constants)
        values = {p.floor for p in places if p is not None and p.on and p.floor is not None}
        listed = Ternary(make(In, self.name, values), all_of((self._not_null(), make(NotIn, self.name, values))))
        return conjunction([listed.negated(), *(self.compare("<>", c) for c in special)]).negated()

    def like(self, pattern: str) -> Ternary:
        """LIKE a pattern; what follows the first wildcard is left to Spark."""
        if not isinstance(self.kind, StringType) or "\\" in pattern:
            return UNKNOWN
        ends = [i for i in (pattern.find("%"), pattern.find("_")) if i >= 0]
        if not ends:
            return self.compare("=", Constant(Kind.STRING, pattern))
        prefix = pattern[: min(ends)]
        found = self.starts_with(prefix)
        if set(pattern[len(prefix) :]) == {"%"}:
            return found
        return Ternary(found.true, self._not_null(), False, False)

    def starts_with(self, prefix: str) -> Ternary:
        """Whether a string starts with a prefix."""
        if not isinstance(self.kind, StringType):
            return UNKNOWN
        if not prefix:
            return Ternary(self._not_null(), AlwaysFalse())
        return Ternary(
            make(StartsWith, self.name, prefix), all_of((self._not_null(), make(NotStartsWith, self.name, prefix)))
        )

    def null(self) -> Ternary:
        """IS NULL."""
        return Ternary(self._is_null(), self._not_null())

    def nan(self) -> Ternary:
        """isnan(): false for null."""
        if isinstance(self.kind, FloatType | DoubleType):
            return Ternary(make(IsNaN, self.name), make(NotNaN, self.name))
        return TRUE.negated()

    def compare_day(self, operator: str, constant: Constant) -> Ternary:
        """The day of a timestamp column on the left of an operator, a date on its right."""
        days = parse_date(constant.value) if constant.kind is Kind.STRING else constant.value
        if isinstance(self.kind, DateType):
            return self.compare(operator, constant)
        if constant.kind not in {Kind.DATE, Kind.STRING} or days is None:
            return NULL if constant.kind is Kind.NULL else UNKNOWN
        edges = [self._midnight(d) for d in (days, days + 1)]
        if None in edges:
            return UNKNOWN
        start, end = (Constant(Kind.LOCAL if isinstance(self.kind, TimestampType) else Kind.INSTANT, e) for e in edges)
        steps = {"<": ("<", start), "<=": ("<", end), ">": (">=", end), ">=": (">=", start)}
        if operator in steps:
            return self.compare(*steps[operator])
        inside = conjunction([self.compare(">=", start), self.compare("<", end)])
        return inside if operator == "=" else inside.negated()

    def _midnight(self, days: int) -> int | None:
        if isinstance(self.kind, TimestampType):
            return days * DAY
        steady = isinstance(self.kind, TimestamptzType) and is_steady(days * DAY, self.zone)
        return instant(days * DAY, self.zone) if steady else None

    def _at(self, operator: str, place: Cut) -> BooleanExpression:
        """Where the column is before, at or after a place."""
        if place is BELOW or place is ABOVE:
            holds = operator in ({">", ">=", "<>"} if place is BELOW else {"<", "<=", "<>"})
            return self._not_null() if holds else AlwaysFalse()
        if operator in {"=", "<>"}:
            return self._equal(operator, place)
        comparison = {
            "<": LessThan if place.on else LessThanOrEqual,
            "<=": LessThanOrEqual,
            ">": GreaterThan,
            ">=": GreaterThanOrEqual if place.on else GreaterThan,
        }[operator]
        found = make(comparison, self.name, place.floor)
        upwards = operator in {">", ">="} and isinstance(self.kind, FloatType | DoubleType)
        return any_of((found, make(IsNaN, self.name))) if upwards else found

    def _equal(self, operator: str, place: Cut) -> BooleanExpression:
        if operator == "=":
            return make(EqualTo, self.name, place.floor) if place.on else AlwaysFalse()
        if isinstance(place.floor, BooleanLiteral):
            return make(EqualTo, self.name, not place.floor.value)
        different = all_of((self._not_null(), make(NotEqualTo, self.name, place.floor)))
        return different if place.on else self._not_null()

    @staticmethod
    def _with_null(found: Ternary) -> Ternary:
        """Beside a decimal beyond all whole numbers Spark answers without looking at the column, null or not."""
        true, false = (side if side is AlwaysFalse() else AlwaysTrue() for side in (found.true, found.false))
        return Ternary(true, false, False, False)

    def _beside_nan(self, operator: str) -> Ternary:
        """NaN equals itself and is greater than everything else."""
        if not isinstance(self.kind, FloatType | DoubleType):
            return UNKNOWN
        nan, number = make(IsNaN, self.name), all_of((make(NotNaN, self.name), self._not_null()))
        greater_or_equal = Ternary(nan, number)
        always = Ternary(self._not_null(), AlwaysFalse())
        return {
            "=": greater_or_equal,
            "<>": greater_or_equal.negated(),
            ">=": greater_or_equal,
            "<": greater_or_equal.negated(),
            "<=": always,
            ">": always.negated(),
        }[operator]

    def _beside_micros(self, operator: str, place: Cut) -> Ternary:
        """A nanosecond column: Spark may see it cut to microseconds, so both readings are let through."""
        if place.floor is None:
            return Ternary(self._at(operator, place), self._at(NEGATED[operator], place))
        first = make(GreaterThanOrEqual, self.name, place.floor)
        before = make(LessThan, self.name, place.floor)
        until = make(LessThan, self.name, NanosLiteral(place.floor.value + 1000))
        after = make(GreaterThan, self.name, place.floor)
        equal = Ternary(all_of((first, until)), self._not_null(), False, False)
        return {
            "<": Ternary(before, first),
            ">=": Ternary(first, before),
            "<=": Ternary(until, after, False, False),
            ">": Ternary(after, until, False, False),
            "=": equal,
            "<>": equal.negated(),
        }[operator]

    def _among_each(self, constants: Sequence[Constant]) -> Ternary:
        each = [self.compare("<>", c) if canonical(c, self.kind) else UNKNOWN for c in constants]
        return conjunction(each).negated()

    def _is_null(self) -> BooleanExpression:
        return make(IsNull, self.name) if self.is_nullable else AlwaysFalse()

    def _not_null(self) -> BooleanExpression:
        return make(NotNull, self.name) if self.is_nullable else AlwaysTrue()


def _is_nan(constant: Constant) -> bool:
    return constant.kind in {Kind.FLOAT, Kind.DOUBLE} and math.isnan(constant.value)


def make(maker: Any, *arguments: Any) -> BooleanExpression:
    """An expression of PyIceberg's; its constructors take arguments that type checkers do not see."""
    return maker(*arguments)
