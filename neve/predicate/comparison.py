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

from neve.predicate.coercion import (
    ABOVE_ALL,
    BELOW_ALL,
    ValuePosition,
    can_compare_one_by_one,
    is_canonical,
    locate_constant,
)
from neve.predicate.constants import (
    DAY_MICROS,
    Constant,
    ConstantKind,
    has_constant_offset,
    local_to_utc_micros,
    parse_date,
)
from neve.predicate.normalize import NanosLiteral, all_of, any_of


@dataclass(frozen=True, slots=True)
class Ternary:
    """A condition: where it may be true, where it may be false, and whether each of the two is exact."""

    true: BooleanExpression
    false: BooleanExpression
    true_exact: bool = True
    false_exact: bool = True

    def negate(self) -> Ternary:
        """The condition that is true where this one is false."""
        return Ternary(self.false, self.true, self.false_exact, self.true_exact)

    def as_inexact(self) -> Ternary:
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
    return conjunction([p.negate() for p in parts]).negate()


NEGATED_OPERATORS = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}


@dataclass(frozen=True, slots=True)
class PredicateColumn:
    """A primitive column by its full name, to be compared under the clock of a time zone."""

    name: str
    kind: IcebergType
    is_nullable: bool
    zone: tzinfo

    def compare(self, operator: str, constant: Constant) -> Ternary:
        """The column on the left of an operator, a constant on its right."""
        if constant.kind is ConstantKind.NULL:
            return NULL
        if constant.kind in {ConstantKind.FLOAT, ConstantKind.DOUBLE} and math.isnan(constant.value):
            return self._compare_nan(operator)
        place = locate_constant(constant, self.kind, self.zone)
        if place is None:
            return UNKNOWN
        if isinstance(self.kind, TimestampNanoType | TimestamptzNanoType):
            return self._compare_nanos_column(operator, place)
        found = Ternary(
            self._compare_position(operator, place), self._compare_position(NEGATED_OPERATORS[operator], place)
        )
        if place.floor is None and constant.kind is ConstantKind.DECIMAL:
            return self._allow_null_rows(found)
        is_exact = operator in {"=", "<>"} or not isinstance(self.kind, UUIDType)
        return found if is_exact else found.as_inexact()

    def null_safe_equal(self, constant: Constant) -> Ternary:
        """`<=>`: equal, where null equals null; never null itself."""
        if constant.kind is ConstantKind.NULL:
            return self.null_condition()
        equal = self.compare("=", constant)
        return Ternary(equal.true, any_of((equal.false, self._is_null())), equal.true_exact, equal.false_exact)

    def in_list(self, constants: Sequence[Constant]) -> Ternary:
        """IN a list of constants."""
        if not can_compare_one_by_one(constants, self.kind):
            return UNKNOWN
        plain = [
            c for c in constants if c.kind is not ConstantKind.NULL and is_canonical(c, self.kind) and not _is_nan(c)
        ]
        places = [locate_constant(c, self.kind, self.zone) for c in plain]
        special = [c for c in constants if c.kind is ConstantKind.NULL or _is_nan(c)]
        nanos = isinstance(self.kind, TimestampNanoType | TimestamptzNanoType)
        if nanos or None in places or len(plain) + len(special) < len(constants):
            return self._in_list_one_by_one(constants)
        values = {p.floor for p in places if p is not None and p.is_at_floor and p.floor is not None}
        listed = Ternary(
            make_expression(In, self.name, values),
            all_of((self._not_null(), make_expression(NotIn, self.name, values))),
        )
        return conjunction([listed.negate(), *(self.compare("<>", c) for c in special)]).negate()

    def like(self, pattern: str) -> Ternary:
        """LIKE a pattern; what follows the first wildcard is left to Spark."""
        if not isinstance(self.kind, StringType) or "\\" in pattern:
            return UNKNOWN
        ends = [i for i in (pattern.find("%"), pattern.find("_")) if i >= 0]
        if not ends:
            return self.compare("=", Constant(ConstantKind.STRING, pattern))
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
            make_expression(StartsWith, self.name, prefix),
            all_of((self._not_null(), make_expression(NotStartsWith, self.name, prefix))),
        )

    def null_condition(self) -> Ternary:
        """IS NULL."""
        return Ternary(self._is_null(), self._not_null())

    def nan_condition(self) -> Ternary:
        """isnan(): false for null."""
        if isinstance(self.kind, FloatType | DoubleType):
            return Ternary(make_expression(IsNaN, self.name), make_expression(NotNaN, self.name))
        return TRUE.negate()

    def compare_day(self, operator: str, constant: Constant) -> Ternary:
        """The day of a timestamp column on the left of an operator, a date on its right."""
        days = parse_date(constant.value) if constant.kind is ConstantKind.STRING else constant.value
        if isinstance(self.kind, DateType):
            return self.compare(operator, constant)
        if constant.kind not in {ConstantKind.DATE, ConstantKind.STRING} or days is None:
            return NULL if constant.kind is ConstantKind.NULL else UNKNOWN
        edges = [self._midnight(d) for d in (days, days + 1)]
        if None in edges:
            return UNKNOWN
        start, end = (
            Constant(ConstantKind.LOCAL if isinstance(self.kind, TimestampType) else ConstantKind.INSTANT, e)
            for e in edges
        )
        steps = {"<": ("<", start), "<=": ("<", end), ">": (">=", end), ">=": (">=", start)}
        if operator in steps:
            return self.compare(*steps[operator])
        inside = conjunction([self.compare(">=", start), self.compare("<", end)])
        return inside if operator == "=" else inside.negate()

    def _midnight(self, days: int) -> int | None:
        if isinstance(self.kind, TimestampType):
            return days * DAY_MICROS
        steady = isinstance(self.kind, TimestamptzType) and has_constant_offset(days * DAY_MICROS, self.zone)
        return local_to_utc_micros(days * DAY_MICROS, self.zone) if steady else None

    def _compare_position(self, operator: str, place: ValuePosition) -> BooleanExpression:
        """Where the column is before, at or after a place."""
        if place is BELOW_ALL or place is ABOVE_ALL:
            holds = operator in ({">", ">=", "<>"} if place is BELOW_ALL else {"<", "<=", "<>"})
            return self._not_null() if holds else AlwaysFalse()
        if operator in {"=", "<>"}:
            return self._equal_position(operator, place)
        comparison = {
            "<": LessThan if place.is_at_floor else LessThanOrEqual,
            "<=": LessThanOrEqual,
            ">": GreaterThan,
            ">=": GreaterThanOrEqual if place.is_at_floor else GreaterThan,
        }[operator]
        found = make_expression(comparison, self.name, place.floor)
        upwards = operator in {">", ">="} and isinstance(self.kind, FloatType | DoubleType)
        return any_of((found, make_expression(IsNaN, self.name))) if upwards else found

    def _equal_position(self, operator: str, place: ValuePosition) -> BooleanExpression:
        if operator == "=":
            return make_expression(EqualTo, self.name, place.floor) if place.is_at_floor else AlwaysFalse()
        if isinstance(place.floor, BooleanLiteral):
            return make_expression(EqualTo, self.name, not place.floor.value)
        different = all_of((self._not_null(), make_expression(NotEqualTo, self.name, place.floor)))
        return different if place.is_at_floor else self._not_null()

    @staticmethod
    def _allow_null_rows(found: Ternary) -> Ternary:
        """Beside a decimal beyond all whole numbers Spark answers without looking at the column, null or not."""
        true, false = (side if side is AlwaysFalse() else AlwaysTrue() for side in (found.true, found.false))
        return Ternary(true, false, False, False)

    def _compare_nan(self, operator: str) -> Ternary:
        """NaN equals itself and is greater than everything else."""
        if not isinstance(self.kind, FloatType | DoubleType):
            return UNKNOWN
        nan, number = make_expression(IsNaN, self.name), all_of((make_expression(NotNaN, self.name), self._not_null()))
        greater_or_equal = Ternary(nan, number)
        always = Ternary(self._not_null(), AlwaysFalse())
        return {
            "=": greater_or_equal,
            "<>": greater_or_equal.negate(),
            ">=": greater_or_equal,
            "<": greater_or_equal.negate(),
            "<=": always,
            ">": always.negate(),
        }[operator]

    def _compare_nanos_column(self, operator: str, place: ValuePosition) -> Ternary:
        """A nanosecond column: Spark may see it cut to microseconds, so both readings are let through."""
        if place.floor is None:
            return Ternary(
                self._compare_position(operator, place), self._compare_position(NEGATED_OPERATORS[operator], place)
            )
        first = make_expression(GreaterThanOrEqual, self.name, place.floor)
        before = make_expression(LessThan, self.name, place.floor)
        until = make_expression(LessThan, self.name, NanosLiteral(place.floor.value + 1000))
        after = make_expression(GreaterThan, self.name, place.floor)
        equal = Ternary(all_of((first, until)), self._not_null(), False, False)
        return {
            "<": Ternary(before, first),
            ">=": Ternary(first, before),
            "<=": Ternary(until, after, False, False),
            ">": Ternary(after, until, False, False),
            "=": equal,
            "<>": equal.negate(),
        }[operator]

    def _in_list_one_by_one(self, constants: Sequence[Constant]) -> Ternary:
        each = [self.compare("<>", c) if is_canonical(c, self.kind) else UNKNOWN for c in constants]
        return conjunction(each).negate()

    def _is_null(self) -> BooleanExpression:
        return make_expression(IsNull, self.name) if self.is_nullable else AlwaysFalse()

    def _not_null(self) -> BooleanExpression:
        return make_expression(NotNull, self.name) if self.is_nullable else AlwaysTrue()


def _is_nan(constant: Constant) -> bool:
    return constant.kind in {ConstantKind.FLOAT, ConstantKind.DOUBLE} and math.isnan(constant.value)


def make_expression(expression_class: Any, *arguments: Any) -> BooleanExpression:
    """An expression of PyIceberg's; its constructors take arguments that type checkers do not see."""
    return expression_class(*arguments)
