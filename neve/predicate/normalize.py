"""Normalize boolean expressions, so that files can be pruned with them safely.

Expressions are PyIceberg's; callers give them, or they come from SQL text. The normal form contains no NOT, uses full
column names and literals of the column's type, and is balanced: a chain of a hundred thousand ORs is seventeen levels
deep. Expressions follow the rules of Spark, and the normal form spells them out where PyIceberg has other rules:

* a comparison with null is not true, so `x <> 1` does not match null;
* NaN is greater than every number, so `x > 1` on a floating-point column also matches NaN;
* a required field of an optional struct is null if the struct is null;
* a literal outside the range of the column never matches, neither alone nor in a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from pyiceberg import expressions as ex
from pyiceberg import types as ice
from pyiceberg.expressions import BooleanExpression, literals
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema

from neve.errors import UnknownName, UnsupportedFeature, UserError
from neve.model.pyiceberg_private import make_set_predicate

MAX_DEPTH = 60
MAX_NANOS = (1 << 63) - 1000  # leaves room to add a microsecond to any smaller value

Operand = tuple[BooleanExpression, bool]


class NanosLiteral(literals.LongLiteral):
    """A nanosecond timestamp as an expression literal; PyIceberg has none."""

    def to(self, type_var: ice.IcebergType) -> Any:
        """Return the same literal, which is never converted, or a literal that is beyond every value."""
        if abs(self.value) < MAX_NANOS:
            return self
        return literals.LongAboveMax() if self.value > 0 else literals.LongBelowMin()


class TypedIn(ex.In):
    """IN with literals of the column's own type, which are not converted when it is bound: there may be many."""

    def bind(self, schema: Schema, case_sensitive: bool = True) -> ex.BoundSetPredicate:
        """Return the bound expression."""
        return make_set_predicate(ex.BoundIn, self.term.bind(schema, case_sensitive), self.literals)


class TypedNotIn(ex.NotIn):
    """NOT IN with literals of the column's own type."""

    def bind(self, schema: Schema, case_sensitive: bool = True) -> ex.BoundSetPredicate:
        """Return the bound expression."""
        return make_set_predicate(ex.BoundNotIn, self.term.bind(schema, case_sensitive), self.literals)


def in_typed_set(name: str, values: set[Any]) -> tuple[BooleanExpression, BooleanExpression]:
    """Return IN and NOT IN with literals of the column's own type."""
    if len(values) < 2:
        return make_expression(ex.In, name, values), make_expression(ex.NotIn, name, values)
    term = ex.Reference(name)
    return make_set_predicate(TypedIn, term, values), make_set_predicate(TypedNotIn, term, values)


def normalize_and_bind(
    expression: BooleanExpression, schema: Schema, *, case_sensitive: bool = True
) -> BooleanExpression:
    """Normalize an expression and bind it to the fields of a schema."""
    return bind(schema, normalize_expression(expression, schema, case_sensitive=case_sensitive), True)


def normalize_expression(
    expression: BooleanExpression, schema: Schema, *, case_sensitive: bool = True
) -> BooleanExpression:
    """Normalize an expression; a name or a literal that does not fit the schema is an error."""
    return _Normalizer(schema, case_sensitive).normalize(expression, False, 0)


def compared_columns(expression: BooleanExpression, schema: Schema) -> Iterator[ice.NestedField]:
    """Yield the columns that a normalized expression compares with values; null tests do not count."""
    waiting = [expression]
    while waiting:
        match waiting.pop():
            case ex.And() | ex.Or() as both:
                waiting += [both.right, both.left]
            case ex.LiteralPredicate() | ex.SetPredicate() as leaf if isinstance(leaf.term, ex.Reference):
                yield schema.find_field(leaf.term.name)


def all_of(parts: Iterable[BooleanExpression]) -> BooleanExpression:
    """Combine the parts with AND, as a balanced tree."""
    return _combine(ex.And, parts, ex.AlwaysTrue(), ex.AlwaysFalse(), ex.NotEqualTo, ex.NotIn)


def any_of(parts: Iterable[BooleanExpression]) -> BooleanExpression:
    """Combine the parts with OR, as a balanced tree."""
    return _combine(ex.Or, parts, ex.AlwaysFalse(), ex.AlwaysTrue(), ex.EqualTo, ex.In)


def _combine(
    operator: type[ex.And] | type[ex.Or],
    parts: Iterable[BooleanExpression],
    neutral: BooleanExpression,
    absorbing: BooleanExpression,
    one: type[ex.LiteralPredicate],
    many: type[ex.SetPredicate],
) -> BooleanExpression:
    operands: list[BooleanExpression] = []
    for part in parts:
        operands += [p for p, _ in _operands(part, False)] if isinstance(part, operator) else [part]
    if any(part is absorbing for part in operands):
        return absorbing
    seen: set[tuple[type, str]] = set()
    distinct = []
    for part in operands:
        if isinstance(part, ex.UnaryPredicate) and isinstance(part.term, ex.Reference):
            if (key := (type(part), part.term.name)) in seen:
                continue
            seen.add(key)
        if part is not neutral:
            distinct.append(part)
    operands = _merge_comparisons(distinct, one, many)
    if len(operands) > 1:
        return operator(*operands)
    return operands[0] if operands else neutral


class _Normalizer:
    def __init__(self, schema: Schema, case_sensitive: bool) -> None:
        self.schema, self.case_sensitive = schema, case_sensitive

    def normalize(self, expression: BooleanExpression, negated: bool, depth: int) -> BooleanExpression:
        if depth > MAX_DEPTH:
            raise UserError(
                f"Predicate nested too deeply: over {MAX_DEPTH} levels of AND and OR. Flatten the condition."
            )
        expression, negated = _strip_nots(expression, negated)
        if isinstance(expression, ex.And | ex.Or):
            conjunction = isinstance(expression, ex.And) != negated
            parts = (self.normalize(part, is_not, depth + 1) for part, is_not in _operands(expression, negated))
            return all_of(parts) if conjunction else any_of(parts)
        return self.normalize_leaf(~expression if negated else expression)

    def normalize_leaf(self, predicate: BooleanExpression) -> BooleanExpression:
        if predicate is ex.AlwaysTrue() or predicate is ex.AlwaysFalse():
            return predicate
        if not isinstance(predicate, ex.UnboundPredicate) or not isinstance(predicate.term, ex.Reference):
            raise UnsupportedFeature(f"Unsupported predicate {predicate}: give unbound comparisons of plain columns.")
        field = self.find_field(predicate.term.name)
        if field.required and isinstance(predicate, ex.IsNull | ex.NotNull):
            return self.null_test_of_structs(predicate, field)
        if isinstance(predicate, TypedIn):
            return predicate
        bound = self.bind_predicate(_literals_in_nanos(predicate, field))
        if bound is ex.AlwaysTrue() and isinstance(predicate, ex.LiteralPredicate):
            # The literal is beyond every value, so all rows match except those with null.
            return self.normalize_leaf(make_expression(ex.NotNull, predicate.term))
        return self.with_sql_semantics(bound)

    def find_field(self, name: str) -> ice.NestedField:
        try:
            return self.schema.find_field(name, case_sensitive=self.case_sensitive)
        except ValueError:
            raise UnknownName("column", name, self.schema.column_names) from None

    def bind_predicate(self, predicate: ex.UnboundPredicate) -> BooleanExpression:
        try:
            return predicate.bind(self.schema, case_sensitive=self.case_sensitive)
        except (TypeError, ValueError, ArithmeticError) as e:
            raise UserError(
                f"Predicate {predicate} does not fit the table: {e}. Give a literal of the column's type."
            ) from e

    def null_test_of_structs(self, predicate: ex.IsNull | ex.NotNull, field: ice.NestedField) -> BooleanExpression:
        """Test the structs around a required field: it is null if one of them is null, and only then."""
        parents = _structs_around(self.schema.as_struct(), field.field_id) or []
        names = [self.schema.find_column_name(p.field_id) or p.name for p in parents if not p.required]
        parts = [make_expression(type(predicate), ex.Reference(name)) for name in names]
        return any_of(parts) if isinstance(predicate, ex.IsNull) else all_of(parts)

    def with_sql_semantics(self, predicate: BooleanExpression) -> BooleanExpression:
        if not isinstance(predicate, ex.BoundPredicate):
            return predicate
        field = predicate.term.ref().field
        name = ex.Reference(self.schema.find_column_name(field.field_id) or field.name)
        make: Any = predicate.as_unbound
        if isinstance(predicate, ex.BoundLiteralPredicate):
            unbound = make(name, _round_literal(predicate.literal))
        elif isinstance(predicate, ex.BoundSetPredicate):
            in_range = [v for v in predicate.literals if not isinstance(v, literals.AboveMax | literals.BelowMin)]
            unbound = make(name, set(map(_round_literal, in_range)))
        else:
            unbound = make(name)
        is_floating = isinstance(field.field_type, ice.FloatType | ice.DoubleType)
        if is_floating and isinstance(predicate, ex.BoundGreaterThan | ex.BoundGreaterThanOrEqual):
            return any_of((unbound, make_expression(ex.IsNaN, name)))
        if isinstance(predicate, ex.BoundNotEqualTo | ex.BoundNotIn | ex.BoundNotStartsWith):
            return all_of((unbound, self.normalize_leaf(make_expression(ex.NotNull, name))))
        return unbound


def _structs_around(struct: ice.StructType, field_id: int) -> list[ice.NestedField] | None:
    """Return the struct columns around a field, outermost first; None if the field is not there."""
    for field in struct.fields:
        if field.field_id == field_id:
            return []
        if isinstance(field.field_type, ice.StructType):
            inner = _structs_around(field.field_type, field_id)
            if inner is not None:
                return [field, *inner]
    return None


def make_expression(expression_class: Any, *arguments: Any) -> BooleanExpression:
    """Create an expression; the base class hides the signatures of PyIceberg's classes from type checkers."""
    return expression_class(*arguments)


def _round_literal(literal: literals.Literal[Any]) -> literals.Literal[Any]:
    """Round a literal to what the column can hold: a 32-bit column holds a neighbour of 0.1, never 0.1 itself."""
    is_float = isinstance(literal, literals.FloatLiteral)
    return literals.FloatLiteral(float(np.float32(literal.value))) if is_float else literal


def _literals_in_nanos(predicate: ex.UnboundPredicate, field: ice.NestedField) -> ex.UnboundPredicate:
    if not isinstance(field.field_type, ice.TimestampNanoType | ice.TimestamptzNanoType):
        return predicate
    make: Any = type(predicate)
    if isinstance(predicate, ex.LiteralPredicate):
        return make(predicate.term, _to_nanos_literal(predicate.literal))
    if isinstance(predicate, ex.SetPredicate):
        return make(predicate.term, {_to_nanos_literal(v) for v in predicate.literals})
    return predicate


def _to_nanos_literal(literal: literals.Literal[Any]) -> literals.Literal[Any]:
    return NanosLiteral(literal.value * 1000) if isinstance(literal, literals.TimestampLiteral) else literal


def _strip_nots(expression: BooleanExpression, negated: bool) -> Operand:
    while isinstance(expression, ex.Not):
        expression, negated = expression.child, not negated
    return expression, negated


def _operands(root: BooleanExpression, negated: bool) -> list[Operand]:
    """Return the operands of a chain of one operator, in order, without recursion."""
    conjunction = isinstance(root, ex.And) != negated
    operands: list[Operand] = []
    waiting: list[Operand] = [(root, negated)]
    while waiting:
        expression, is_not = _strip_nots(*waiting.pop())
        if isinstance(expression, ex.And | ex.Or) and (isinstance(expression, ex.And) != is_not) == conjunction:
            waiting += [(expression.right, is_not), (expression.left, is_not)]
        else:
            operands.append((expression, is_not))
    return operands


def _merge_comparisons(
    parts: list[BooleanExpression], one: type[ex.LiteralPredicate], many: type[ex.SetPredicate]
) -> list[BooleanExpression]:
    """Merge comparisons of one column with single values into one comparison with a set."""
    groups: dict[str, list[Any]] = {}
    others = []
    for part in parts:
        if isinstance(part, one | many) and isinstance(part.term, ex.Reference):
            groups.setdefault(part.term.name, []).append(part)
        else:
            others.append(part)
    if all(len(group) == 1 for group in groups.values()):
        return parts
    merged = []
    for name, group in groups.items():
        sets = (part.literals if isinstance(part, ex.SetPredicate) else {part.literal} for part in group)
        merged.append(group[0] if len(group) == 1 else make_expression(many, name, set().union(*sets)))
    return [*merged, *others]
