"""Boolean expressions in one shape, safe to prune with.

PyIceberg's expressions are given by callers or come from SQL text. The normal form has no NOT, names columns in full,
holds literals of the column's own type, and is balanced: a chain of a hundred thousand ORs is seventeen levels deep.
Expressions mean to us what conditions mean to Spark, and the normal form says so where PyIceberg has it otherwise:

* a comparison with null is not true, so `x <> 1` does not let null through;
* NaN is greater than every number, so `x > 1` on a floating-point column also lets NaN through;
* a required field of an optional struct is null when the struct is;
* a literal outside the range of the column is never in the column, in a list as much as alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundGreaterThan,
    BoundGreaterThanOrEqual,
    BoundLiteralPredicate,
    BoundNotEqualTo,
    BoundNotIn,
    BoundNotStartsWith,
    BoundPredicate,
    BoundSetPredicate,
    EqualTo,
    In,
    IsNaN,
    IsNull,
    LiteralPredicate,
    Not,
    NotEqualTo,
    NotIn,
    NotNull,
    Or,
    Reference,
    SetPredicate,
    UnaryPredicate,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import (
    AboveMax,
    BelowMin,
    FloatLiteral,
    Literal,
    LongAboveMax,
    LongBelowMin,
    LongLiteral,
    TimestampLiteral,
)
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IcebergType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
)

from neve.errors import UnknownName, UnsupportedFeature, UserError

MAX_DEPTH = 60
MAX_NANOS = (1 << 63) - 1000  # a microsecond more can be said of all that are smaller

Operand = tuple[BooleanExpression, bool]


class NanosLiteral(LongLiteral):
    """A nanosecond timestamp as an expression literal; PyIceberg has none."""

    def to(self, type_var: IcebergType) -> Any:
        """The same literal: it is made for one column and never converted; or that it is beyond every value."""
        if abs(self.value) < MAX_NANOS:
            return self
        return LongAboveMax() if self.value > 0 else LongBelowMin()


def normalize_and_bind(
    expression: BooleanExpression, schema: Schema, *, case_sensitive: bool = True
) -> BooleanExpression:
    """An expression in normal form, bound to the fields of a schema."""
    return bind(schema, normalize_expression(expression, schema, case_sensitive=case_sensitive), True)


def normalize_expression(
    expression: BooleanExpression, schema: Schema, *, case_sensitive: bool = True
) -> BooleanExpression:
    """An expression in normal form; a name or a literal that does not fit the schema is an error."""
    return _Normaliser(schema, case_sensitive).normalize(expression, False, 0)


def compared_columns(expression: BooleanExpression, schema: Schema) -> Iterator[NestedField]:
    """The columns that an expression in normal form compares with values; to be null is no comparison."""
    waiting = [expression]
    while waiting:
        match waiting.pop():
            case And() | Or() as both:
                waiting += [both.left, both.right]
            case LiteralPredicate() | SetPredicate() as leaf if isinstance(leaf.term, Reference):
                yield schema.find_field(leaf.term.name)


def all_of(parts: Iterable[BooleanExpression]) -> BooleanExpression:
    """The conjunction of the parts as a balanced tree."""
    kept = _flatten(And, parts)
    if any(part is AlwaysFalse() for part in kept):
        return AlwaysFalse()
    kept = _merge_comparisons(_drop_duplicates([p for p in kept if p is not AlwaysTrue()]), NotEqualTo, NotIn)
    return AlwaysTrue() if not kept else kept[0] if len(kept) == 1 else And(*kept)


def any_of(parts: Iterable[BooleanExpression]) -> BooleanExpression:
    """The disjunction of the parts as a balanced tree."""
    kept = _flatten(Or, parts)
    if any(part is AlwaysTrue() for part in kept):
        return AlwaysTrue()
    kept = _merge_comparisons(_drop_duplicates([p for p in kept if p is not AlwaysFalse()]), EqualTo, In)
    return AlwaysFalse() if not kept else kept[0] if len(kept) == 1 else Or(*kept)


class _Normaliser:
    def __init__(self, schema: Schema, case_sensitive: bool) -> None:
        self.schema, self.case_sensitive = schema, case_sensitive

    def normalize(self, expression: BooleanExpression, negated: bool, depth: int) -> BooleanExpression:
        if depth > MAX_DEPTH:
            raise UserError(
                f"Predicate nested too deeply: over {MAX_DEPTH} levels of AND and OR. Flatten the condition."
            )
        expression, negated = _strip_nots(expression, negated)
        if isinstance(expression, And | Or):
            conjunction = isinstance(expression, And) != negated
            parts = (self.normalize(part, no, depth + 1) for part, no in _operands(expression, negated))
            return all_of(parts) if conjunction else any_of(parts)
        return self.normalize_leaf(~expression if negated else expression)

    def normalize_leaf(self, predicate: BooleanExpression) -> BooleanExpression:
        if predicate is AlwaysTrue() or predicate is AlwaysFalse():
            return predicate
        if not isinstance(predicate, UnboundPredicate) or not isinstance(predicate.term, Reference):
            raise UnsupportedFeature(f"Unsupported predicate {predicate}: give unbound comparisons of plain columns.")
        field = self.find_field(predicate.term.name)
        if field.required and isinstance(predicate, IsNull | NotNull):
            return self.null_test_of_structs(predicate, field)
        found = self.bind_predicate(_literals_in_nanos(predicate, field))
        if found is AlwaysTrue() and isinstance(predicate, LiteralPredicate):
            return self.normalize_leaf(
                _make_expression(NotNull, predicate.term)
            )  # the literal is beyond every value, but null is no value
        return self.with_sql_semantics(found)

    def find_field(self, name: str) -> NestedField:
        try:
            return self.schema.find_field(name, case_sensitive=self.case_sensitive)
        except ValueError:
            raise UnknownName("column", name, self.schema.column_names) from None

    def bind_predicate(self, predicate: UnboundPredicate) -> BooleanExpression:
        try:
            return predicate.bind(self.schema, case_sensitive=self.case_sensitive)
        except (TypeError, ValueError, ArithmeticError) as e:
            raise UserError(
                f"Predicate {predicate} does not fit the table: {e}. Give a literal of the column's type."
            ) from e

    def null_test_of_structs(self, predicate: IsNull | NotNull, field: NestedField) -> BooleanExpression:
        """A required field is null where a struct it is part of is null, and nowhere else."""
        parents = _structs_around(self.schema.as_struct(), field.field_id) or []
        names = [self.schema.find_column_name(p.field_id) or p.name for p in parents if not p.required]
        parts = [_make_expression(type(predicate), Reference(name)) for name in names]
        return any_of(parts) if isinstance(predicate, IsNull) else all_of(parts)

    def with_sql_semantics(self, predicate: BooleanExpression) -> BooleanExpression:
        if not isinstance(predicate, BoundPredicate):
            return predicate
        field = predicate.term.ref().field
        name = Reference(self.schema.find_column_name(field.field_id) or field.name)
        plain = _unbind(predicate, name)
        floating = isinstance(field.field_type, FloatType | DoubleType)
        if floating and isinstance(predicate, BoundGreaterThan | BoundGreaterThanOrEqual):
            return any_of((plain, _make_expression(IsNaN, name)))
        if isinstance(predicate, BoundNotEqualTo | BoundNotIn | BoundNotStartsWith):
            return all_of((plain, self.normalize_leaf(_make_expression(NotNull, name))))
        return plain


def _structs_around(struct: StructType, field_id: int) -> list[NestedField] | None:
    """The struct columns a field is nested in, outermost first; None when it is not there."""
    for field in struct.fields:
        if field.field_id == field_id:
            return []
        if isinstance(field.field_type, StructType):
            inner = _structs_around(field.field_type, field_id)
            if inner is not None:
                return [field, *inner]
    return None


def _make_expression(expression_class: Any, *arguments: Any) -> BooleanExpression:
    """An expression; the signatures of PyIceberg's classes are hidden from type checkers by their base."""
    return expression_class(*arguments)


def _unbind(predicate: BoundPredicate, name: Reference) -> BooleanExpression:
    make: Any = predicate.as_unbound
    if isinstance(predicate, BoundLiteralPredicate):
        return make(name, _round_literal(predicate.literal))
    if isinstance(predicate, BoundSetPredicate):
        inside = {_round_literal(v) for v in predicate.literals if not isinstance(v, AboveMax | BelowMin)}
        return make(name, inside)
    return make(name)


def _round_literal(literal: Literal[Any]) -> Literal[Any]:
    """A literal as the column can hold it: a 32-bit column holds a neighbour of 0.1, never 0.1 itself."""
    return FloatLiteral(float(np.float32(literal.value))) if isinstance(literal, FloatLiteral) else literal


def _literals_in_nanos(predicate: UnboundPredicate, field: NestedField) -> UnboundPredicate:
    if not isinstance(field.field_type, TimestampNanoType | TimestamptzNanoType):
        return predicate
    make: Any = type(predicate)
    if isinstance(predicate, LiteralPredicate):
        return make(predicate.term, _to_nanos_literal(predicate.literal))
    return (
        make(predicate.term, {_to_nanos_literal(v) for v in predicate.literals})
        if isinstance(predicate, SetPredicate)
        else predicate
    )


def _to_nanos_literal(literal: Literal[Any]) -> Literal[Any]:
    return NanosLiteral(literal.value * 1000) if isinstance(literal, TimestampLiteral) else literal


def _strip_nots(expression: BooleanExpression, negated: bool) -> Operand:
    while isinstance(expression, Not):
        expression, negated = expression.child, not negated
    return expression, negated


def _operands(root: BooleanExpression, negated: bool) -> list[Operand]:
    """The operands of a chain of one operator, found without recursion, in order."""
    conjunction = isinstance(root, And) != negated
    found: list[Operand] = []
    waiting: list[Operand] = [(root, negated)]
    while waiting:
        expression, no = _strip_nots(*waiting.pop())
        if isinstance(expression, And | Or) and (isinstance(expression, And) != no) == conjunction:
            waiting += [(expression.right, no), (expression.left, no)]
        else:
            found.append((expression, no))
    return found


def _flatten(operator: type[And] | type[Or], parts: Iterable[BooleanExpression]) -> list[BooleanExpression]:
    found: list[BooleanExpression] = []
    for part in parts:
        found += [p for p, _ in _operands(part, False)] if isinstance(part, operator) else [part]
    return found


def _drop_duplicates(parts: Sequence[BooleanExpression]) -> list[BooleanExpression]:
    seen: set[tuple[type, str]] = set()
    kept = []
    for part in parts:
        if isinstance(part, UnaryPredicate) and isinstance(part.term, Reference):
            if (key := (type(part), part.term.name)) in seen:
                continue
            seen.add(key)
        kept.append(part)
    return kept


def _merge_comparisons(
    parts: list[BooleanExpression], one: type[LiteralPredicate], many: type[SetPredicate]
) -> list[BooleanExpression]:
    """Comparisons of one column with single values as one comparison with the set of them."""
    alike: dict[str, list[Any]] = {}
    for part in parts:
        if isinstance(part, one | many) and isinstance(part.term, Reference):
            alike.setdefault(part.term.name, []).append(part)
    if all(len(group) == 1 for group in alike.values()):
        return parts
    rest = [p for p in parts if not (isinstance(p, one | many) and isinstance(p.term, Reference))]
    return [*(_merge_group(name, group, many) for name, group in alike.items()), *rest]


def _merge_group(name: str, parts: list[Any], many: type[SetPredicate]) -> BooleanExpression:
    sets = (part.literals if isinstance(part, SetPredicate) else {part.literal} for part in parts)
    return parts[0] if len(parts) == 1 else _make_expression(many, name, set().union(*sets))
