"""Evaluate predicates with the value ranges of columns in many files.

The same rules prune manifests by partition summaries, files by partition tuples, and files by column statistics. Each
is given as ranges: bounds, and whether a null, a NaN or an ordinary value may occur. `may_match` returns where some row
may satisfy a bound predicate, `must_match` where every row does.

Bounds may be truncated or too wide, so they need not be values of the column. They only guarantee that no ordinary
value is outside of them, and the rules rely on nothing else.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import expressions as ex
from pyiceberg.expressions import BooleanExpression
from pyiceberg.types import NestedField

from neve.model.values import comparable_array, comparable_scalar

Mask = np.ndarray[Any, np.dtype[np.bool_]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FieldRange:
    """One column in each of many files: the bounds of its ordinary values, and what else it may hold."""

    lower: pa.Array  # comparable values; null: unknown
    upper: pa.Array
    may_hold_null: Mask
    may_hold_nan: Mask
    may_hold_value: Mask  # a value that is neither null nor NaN

    def take(self, rows: np.ndarray[Any, Any]) -> FieldRange:
        """Return the range in the files at the given rows."""
        bounds = (bound.take(pa.array(rows)) for bound in (self.lower, self.upper))
        masks = (mask[rows] for mask in (self.may_hold_null, self.may_hold_nan, self.may_hold_value))
        return FieldRange(*bounds, *masks)

    def overlaps(self, other: FieldRange) -> Mask:
        """Return where both columns may hold the same value, a null or a NaN."""
        disjoint = _true_mask(pc.less(self.upper, other.lower)) | _true_mask(pc.less(other.upper, self.lower))
        return (
            (self.may_hold_null & other.may_hold_null)
            | (self.may_hold_nan & other.may_hold_nan)
            | (self.may_hold_value & other.may_hold_value & ~disjoint)
        )


class Ranges(Protocol):
    """The ranges of the columns of many files, manifests or partitions."""

    def __len__(self) -> int: ...

    def of(self, field: NestedField) -> FieldRange:
        """Return the range of one column."""


Rule = Callable[[FieldRange, Any], Mask]


def evaluate_expression(
    expression: BooleanExpression, evaluate_leaf: Callable[[ex.BoundPredicate], T], constant: Callable[[bool], T]
) -> T:
    """Evaluate a bound expression without NOT: combine the results of its leaves with the operators `&` and `|`."""
    if isinstance(expression, ex.And | ex.Or):
        combine: Callable[[T, T], T] = operator.and_ if isinstance(expression, ex.And) else operator.or_
        left, right = (evaluate_expression(e, evaluate_leaf, constant) for e in (expression.left, expression.right))
        return combine(left, right)
    if isinstance(expression, ex.AlwaysTrue | ex.AlwaysFalse):
        return constant(isinstance(expression, ex.AlwaysTrue))
    if not isinstance(expression, ex.BoundPredicate):
        raise TypeError(f"Cannot evaluate {expression}: it must be bound, and NOT must be rewritten before.")
    return evaluate_leaf(expression)


def may_match(ranges: Ranges, expression: BooleanExpression) -> Mask:
    """Return where some row may satisfy a bound expression without NOT."""
    return _evaluate(ranges, expression, lambda at, predicate: _MAY_MATCH[type(predicate)](at, predicate))


def must_match(ranges: Ranges, expression: BooleanExpression) -> Mask:
    """Return where every row satisfies a bound expression without NOT: no row may satisfy the opposite."""

    def no_row_fails(at: FieldRange, predicate: ex.BoundPredicate) -> Mask:
        opposite: Any = ~predicate
        none_fails = ~_MAY_MATCH[type(opposite)](at, opposite)
        matches_null = isinstance(predicate, ex.BoundNotEqualTo | ex.BoundNotStartsWith)
        if isinstance(predicate, ex.BoundLiteralPredicate) and not matches_null:
            none_fails &= ~at.may_hold_null & ~at.may_hold_nan  # neither x < 1 nor x >= 1 is true for them
        return none_fails

    return _evaluate(ranges, expression, no_row_fails)


def safe_uuid_bounds(lower: pa.Array, upper: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Widen the bounds of a UUID column so that they hold for both orders that writers use.

    Writers compare bytes or, as old writers did, two signed numbers. The two orders agree between bounds of one sign,
    up to ties of the first half; otherwise the bounds are unknown.
    """
    usable = pc.less_equal(lower, upper)
    low = pc.binary_join_element_wise(pc.binary_slice(lower, 0, 8), bytes(8), b"")
    high = pc.binary_join_element_wise(pc.binary_slice(upper, 0, 8), b"\xff" * 8, b"")
    unknown = pa.scalar(None, pa.binary())
    return pc.if_else(usable, low, unknown), pc.if_else(usable, high, unknown)


def _evaluate(ranges: Ranges, expression: BooleanExpression, rule: Rule) -> Mask:
    seen: dict[int, FieldRange] = {}

    def evaluate_leaf(predicate: ex.BoundPredicate) -> Mask:
        field = predicate.term.ref().field
        if field.field_id not in seen:
            seen[field.field_id] = ranges.of(field)
        return rule(seen[field.field_id], predicate)

    return evaluate_expression(expression, evaluate_leaf, lambda value: np.full(len(ranges), value))


# Where some row may match; unknown counts as a match.
_MAY_MATCH: Mapping[type[ex.BoundPredicate], Rule] = {
    ex.BoundIsNull: lambda at, _: at.may_hold_null,
    ex.BoundNotNull: lambda at, _: at.may_hold_nan | at.may_hold_value,
    ex.BoundIsNaN: lambda at, _: at.may_hold_nan,
    ex.BoundNotNaN: lambda at, _: at.may_hold_null | at.may_hold_value,
    ex.BoundLessThan: lambda at, p: at.may_hold_value & ~_true_mask(pc.greater_equal(at.lower, _scalar(p))),
    ex.BoundLessThanOrEqual: lambda at, p: at.may_hold_value & ~_true_mask(pc.greater(at.lower, _scalar(p))),
    ex.BoundGreaterThan: lambda at, p: at.may_hold_value & ~_true_mask(pc.less_equal(at.upper, _scalar(p))),
    ex.BoundGreaterThanOrEqual: lambda at, p: at.may_hold_value & ~_true_mask(pc.less(at.upper, _scalar(p))),
    ex.BoundEqualTo: lambda at, p: at.may_hold_value & ~_excludes_value(at, _scalar(p)),
    ex.BoundNotEqualTo: lambda at, p: _some_value_differs(at, _is_only_value(at, _scalar(p))),
    ex.BoundIn: lambda at, p: at.may_hold_value & _includes_any_literal(at, _sorted_literals(p)),
    ex.BoundNotIn: lambda at, p: _some_value_differs(at, _is_one_literal(at, _sorted_literals(p))),
    ex.BoundStartsWith: lambda at, p: at.may_hold_value & ~_excludes_prefix(at, _scalar(p)),
    ex.BoundNotStartsWith: lambda at, p: at.may_hold_null | (at.may_hold_value & ~_all_start_with(at, _scalar(p))),
}


def _some_value_differs(at: FieldRange, values_are_equal: Mask) -> Mask:
    """Return where there may be a null, a NaN, or an ordinary value other than the ones compared with."""
    return at.may_hold_null | at.may_hold_nan | (at.may_hold_value & ~values_are_equal)


def _true_mask(result: pa.Array) -> Mask:
    return np.asarray(result.fill_null(False).to_numpy(zero_copy_only=False), bool)


def _scalar(predicate: ex.BoundLiteralPredicate) -> pa.Scalar:
    return comparable_scalar(predicate.literal.value, predicate.term.ref().field.field_type)


def _sorted_literals(predicate: ex.BoundSetPredicate) -> pa.Array:
    kind = predicate.term.ref().field.field_type
    values = comparable_array(frozenset(predicate.value_set), kind)
    return values.take(pc.sort_indices(values))


def _excludes_value(at: FieldRange, value: pa.Scalar) -> Mask:
    return _true_mask(pc.greater(at.lower, value)) | _true_mask(pc.less(at.upper, value))


def _is_only_value(at: FieldRange, value: pa.Scalar) -> Mask:
    return _true_mask(pc.equal(at.lower, value)) & _true_mask(pc.equal(at.upper, value))


def _includes_any_literal(at: FieldRange, literals: pa.Array) -> Mask:
    """Return where a literal of a sorted list is between the bounds, by rank; an unknown bound has the extreme one."""
    values = pa.concat_arrays([at.lower, at.upper, literals])
    ranks = pc.rank(values, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    lower, upper, literal = np.split(ranks, [len(at.lower), len(at.lower) + len(at.upper)])
    lower[at.lower.is_null().to_numpy(zero_copy_only=False)] = 0
    first = np.searchsorted(literal, lower)
    return (first < len(literal)) & (literal[np.minimum(first, len(literal) - 1)] <= upper)


def _is_one_literal(at: FieldRange, literals: pa.Array) -> Mask:
    """Return where the bounds allow only one value, and it is in the list."""
    return _true_mask(pc.equal(at.lower, at.upper)) & _includes_any_literal(at, literals)


def _excludes_prefix(at: FieldRange, prefix: pa.Scalar) -> Mask:
    """Return where no value between the bounds starts with the prefix."""
    length = len(prefix.as_py())
    above = pc.greater(pc.binary_slice(at.lower, 0, length), prefix)
    below = pc.less(pc.binary_slice(at.upper, 0, length), prefix)
    return _true_mask(above) | _true_mask(below)


def _all_start_with(at: FieldRange, prefix: pa.Scalar) -> Mask:
    """Return where both bounds, and so everything between them, start with the prefix."""
    length = len(prefix.as_py())
    starts = (pc.equal(pc.binary_slice(bound, 0, length), prefix) for bound in (at.lower, at.upper))
    return np.logical_and(*(_true_mask(s) for s in starts))
