"""Comparisons of a column with constants, in SQL's three-valued logic.

A condition is kept as two expressions: one for the rows where it is true, and one for the rows where it is false. A row
where the condition is null matches neither. Either expression may match too many rows, but never too few; a flag tells
whether it is exact. NOT swaps the two, so that nothing has to be negated: `NOT (x = 1)` takes the rows where `x = 1` is
false, and rows with a null are not among them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from pyiceberg import expressions as ex
from pyiceberg import types as ice
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.literals import BooleanLiteral, Literal, LongLiteral, StringLiteral

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
from neve.predicate.normalize import NanosLiteral, all_of, any_of, in_typed_set, make_expression


@dataclass(frozen=True, slots=True)
class Ternary:
    """A condition: where it may be true, where it may be false, and whether each of the two is exact."""

    true: BooleanExpression
    false: BooleanExpression
    true_exact: bool = True
    false_exact: bool = True

    def negate(self) -> Ternary:
        """Return the condition that is true where this one is false."""
        return Ternary(self.false, self.true, self.false_exact, self.true_exact)


TRUE = Ternary(ex.AlwaysTrue(), ex.AlwaysFalse())
FALSE = Ternary(ex.AlwaysFalse(), ex.AlwaysTrue())
NULL = Ternary(ex.AlwaysFalse(), ex.AlwaysFalse())
UNKNOWN = Ternary(ex.AlwaysTrue(), ex.AlwaysTrue(), False, False)


def conjunction(parts: Sequence[Ternary]) -> Ternary:
    """Combine conditions with AND: true where all are true, false where one is false."""
    # A part that is not exact may be an error in Spark, even where the other parts decide.
    true_exact, false_exact = all(p.true_exact for p in parts), all(p.false_exact for p in parts)
    return Ternary(all_of(p.true for p in parts), any_of(p.false for p in parts), true_exact, false_exact)


def disjunction(parts: Sequence[Ternary]) -> Ternary:
    """Combine conditions with OR: true where one is true, false where all are false."""
    return conjunction([p.negate() for p in parts]).negate()


NEGATED_OPERATORS = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}


@dataclass(frozen=True, slots=True)
class PredicateColumn:
    """A primitive column with its full name; times are compared in a time zone."""

    name: str
    kind: ice.IcebergType
    is_nullable: bool
    zone: tzinfo
    cuts_nanos: bool = False  # Spark compares nanoseconds too, as it reads them: rounded down to microseconds

    def compare(self, operator: str, constant: Constant) -> Ternary:
        """Compare the column, on the left of an operator, with a constant on its right."""
        if constant.kind is ConstantKind.NULL:
            return NULL
        if _is_nan(constant):
            return self._compare_nan(operator)
        position = locate_constant(constant, self.kind, self.zone)
        if position is None:
            return UNKNOWN
        if position.floor is not None and self._may_be_cut:
            return self._compare_nanos_column(operator, position.floor)
        true = self._compare_position(operator, position)
        false = self._compare_position(NEGATED_OPERATORS[operator], position)
        if position.floor is None and constant.kind is ConstantKind.DECIMAL:
            # If a decimal is beyond all whole numbers, Spark answers without reading the column, also for null rows.
            true, false = (side if side is ex.AlwaysFalse() else ex.AlwaysTrue() for side in (true, false))
            return Ternary(true, false, False, False)
        is_exact = operator in {"=", "<>"} or not isinstance(self.kind, ice.UUIDType)
        return Ternary(true, false, is_exact, is_exact)

    def null_safe_equal(self, constant: Constant) -> Ternary:
        """Compare with `<=>`: null equals null, and the result is never null."""
        if constant.kind is ConstantKind.NULL:
            return self.null_condition()
        equal = self.compare("=", constant)
        return Ternary(equal.true, any_of((equal.false, self._is_null())), equal.true_exact, equal.false_exact)

    def in_list(self, constants: Sequence[Constant]) -> Ternary:
        """Return the condition for IN with a list of constants."""
        if not can_compare_one_by_one(constants, self.kind):
            return UNKNOWN
        special = [c for c in constants if c.kind is ConstantKind.NULL or _is_nan(c)]
        plain = [
            c for c in constants if c.kind is not ConstantKind.NULL and not _is_nan(c) and is_canonical(c, self.kind)
        ]
        positions = [locate_constant(c, self.kind, self.zone) for c in plain]
        if self._may_be_cut or None in positions or len(plain) + len(special) < len(constants):
            each = [self.compare("<>", c) if is_canonical(c, self.kind) else UNKNOWN for c in constants]
            return conjunction(each).negate()
        values = {p.floor for p in positions if p is not None and p.is_at_floor and p.floor is not None}
        return conjunction([self._in_typed_set(values).negate(), *(self.compare("<>", c) for c in special)]).negate()

    def in_plain_list(self, values: Sequence[Any]) -> Ternary:
        """Return the condition for IN with a long list of whole numbers or of strings."""
        if isinstance(values[0], int) and isinstance(self.kind, ice.IntegerType | ice.LongType):
            return self._in_typed_set({LongLiteral(v) for v in set(values) if self.kind.min <= v <= self.kind.max})
        if isinstance(values[0], str) and isinstance(self.kind, ice.StringType):
            return self._in_typed_set({StringLiteral(v) for v in set(values)})
        kind = ConstantKind.INTEGER if isinstance(values[0], int) else ConstantKind.STRING
        return self.in_list([Constant(kind, value) for value in values])

    def _in_typed_set(self, values: set[Any]) -> Ternary:
        listed, unlisted = in_typed_set(self.name, values)
        return Ternary(listed, all_of((self._not_null(), unlisted)))

    def like(self, pattern: str) -> Ternary:
        """Return the condition for LIKE; everything after the first wildcard is left to Spark."""
        if not isinstance(self.kind, ice.StringType) or "\\" in pattern:
            return UNKNOWN
        ends = [i for i in (pattern.find("%"), pattern.find("_")) if i >= 0]
        if not ends:
            return self.compare("=", Constant(ConstantKind.STRING, pattern))
        prefix = pattern[: min(ends)]
        has_prefix = self.starts_with(prefix)
        if set(pattern[len(prefix) :]) == {"%"}:
            return has_prefix
        return Ternary(has_prefix.true, self._not_null(), False, False)

    def starts_with(self, prefix: str) -> Ternary:
        """Return the condition that a string starts with a prefix."""
        if not isinstance(self.kind, ice.StringType):
            return UNKNOWN
        if not prefix:
            return Ternary(self._not_null(), ex.AlwaysFalse())
        return Ternary(
            make_expression(ex.StartsWith, self.name, prefix),
            all_of((self._not_null(), make_expression(ex.NotStartsWith, self.name, prefix))),
        )

    def null_condition(self) -> Ternary:
        """Return the condition for IS NULL."""
        return Ternary(self._is_null(), self._not_null())

    def nan_condition(self) -> Ternary:
        """Return the condition for isnan(), which is false for null."""
        if isinstance(self.kind, ice.FloatType | ice.DoubleType):
            return Ternary(make_expression(ex.IsNaN, self.name), make_expression(ex.NotNaN, self.name))
        return FALSE if isinstance(self.kind, ice.IntegerType | ice.LongType | ice.DecimalType) else UNKNOWN

    def compare_day(self, operator: str, constant: Constant) -> Ternary:
        """Compare the day of a timestamp column, on the left of an operator, with a date on its right."""
        days = parse_date(constant.value) if constant.kind is ConstantKind.STRING else constant.value
        if isinstance(self.kind, ice.DateType):
            return self.compare(operator, constant)
        if constant.kind not in {ConstantKind.DATE, ConstantKind.STRING} or days is None:
            return NULL if constant.kind is ConstantKind.NULL else UNKNOWN
        midnights = [days * DAY_MICROS, (days + 1) * DAY_MICROS]
        if isinstance(self.kind, ice.TimestamptzType) and all(has_constant_offset(m, self.zone) for m in midnights):
            midnights = [local_to_utc_micros(m, self.zone) for m in midnights]
        elif not isinstance(self.kind, ice.TimestampType):
            return UNKNOWN
        kind = ConstantKind.LOCAL if isinstance(self.kind, ice.TimestampType) else ConstantKind.INSTANT
        start, end = (Constant(kind, micros) for micros in midnights)
        comparisons = {"<": ("<", start), "<=": ("<", end), ">": (">=", end), ">=": (">=", start)}
        if operator in comparisons:
            return self.compare(*comparisons[operator])
        inside = conjunction([self.compare(">=", start), self.compare("<", end)])
        return inside if operator == "=" else inside.negate()

    def _compare_position(self, operator: str, position: ValuePosition) -> BooleanExpression:
        """Return the expression for the rows whose value is before, at or after a position."""
        if position is BELOW_ALL or position is ABOVE_ALL:
            holds = operator in ({">", ">=", "<>"} if position is BELOW_ALL else {"<", "<=", "<>"})
            return self._not_null() if holds else ex.AlwaysFalse()
        if operator == "=":
            return make_expression(ex.EqualTo, self.name, position.floor) if position.is_at_floor else ex.AlwaysFalse()
        if operator == "<>":
            if isinstance(position.floor, BooleanLiteral):
                return make_expression(ex.EqualTo, self.name, not position.floor.value)
            different = all_of((self._not_null(), make_expression(ex.NotEqualTo, self.name, position.floor)))
            return different if position.is_at_floor else self._not_null()
        comparison = {
            "<": ex.LessThan if position.is_at_floor else ex.LessThanOrEqual,
            "<=": ex.LessThanOrEqual,
            ">": ex.GreaterThan,
            ">=": ex.GreaterThanOrEqual if position.is_at_floor else ex.GreaterThan,
        }[operator]
        expression = make_expression(comparison, self.name, position.floor)
        includes_nan = operator in {">", ">="} and isinstance(self.kind, ice.FloatType | ice.DoubleType)
        return any_of((expression, make_expression(ex.IsNaN, self.name))) if includes_nan else expression

    def _compare_nan(self, operator: str) -> Ternary:
        """Compare with NaN, which equals itself and is greater than everything else."""
        if not isinstance(self.kind, ice.FloatType | ice.DoubleType):
            return UNKNOWN
        is_number = all_of((make_expression(ex.NotNaN, self.name), self._not_null()))
        is_nan = Ternary(make_expression(ex.IsNaN, self.name), is_number)
        always = Ternary(self._not_null(), ex.AlwaysFalse())
        return {
            "=": is_nan,
            "<>": is_nan.negate(),
            ">=": is_nan,
            "<": is_nan.negate(),
            "<=": always,
            ">": always.negate(),
        }[operator]

    @property
    def _may_be_cut(self) -> bool:
        return self.cuts_nanos and isinstance(self.kind, ice.TimestampNanoType | ice.TimestamptzNanoType)

    def _compare_nanos_column(self, operator: str, nanos: Literal[int]) -> Ternary:
        """Include rows that match in either reading: exact, and rounded down."""
        at_least = make_expression(ex.GreaterThanOrEqual, self.name, nanos)
        below = make_expression(ex.LessThan, self.name, nanos)
        below_next_micro = make_expression(ex.LessThan, self.name, NanosLiteral(nanos.value + 1000))
        above = make_expression(ex.GreaterThan, self.name, nanos)
        equal = Ternary(all_of((at_least, below_next_micro)), self._not_null(), False, False)
        return {
            "<": Ternary(below, at_least),
            ">=": Ternary(at_least, below),
            "<=": Ternary(below_next_micro, above, False, False),
            ">": Ternary(above, below_next_micro, False, False),
            "=": equal,
            "<>": equal.negate(),
        }[operator]

    def _is_null(self) -> BooleanExpression:
        return make_expression(ex.IsNull, self.name) if self.is_nullable else ex.AlwaysFalse()

    def _not_null(self) -> BooleanExpression:
        return make_expression(ex.NotNull, self.name) if self.is_nullable else ex.AlwaysTrue()


def _is_nan(constant: Constant) -> bool:
    return constant.kind in {ConstantKind.FLOAT, ConstantKind.DOUBLE} and math.isnan(constant.value)
