"""What is known of a column in each of many files, and what follows from it for a predicate.

Three things are pruned with the same rules: manifests by their partition summaries, files by their partition tuple, and
files by their column statistics. All three are ranges: bounds, and whether a null, a NaN or an ordinary value may be
there. `row_groups_that_may_match` says where some row may satisfy a bound predicate, `must_match` where every row does.

Bounds need not be values of the column: they may be cut short or too wide. What they promise is only that no ordinary
value lies outside them, and no rule here believes more than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression, BoundTerm
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, visit
from pyiceberg.types import IcebergType, NestedField

from neve.model.values import comparable_scalar, comparable_type

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class FieldRange:
    """One column in each of many files: bounds of its ordinary values, and what else may be in it."""

    lower: pa.Array  # comparable values; null: not known
    upper: pa.Array
    may_hold_null: Mask  # may hold a null
    may_hold_nan: Mask  # may hold a NaN
    may_hold_value: Mask  # may hold a value that is neither

    def take(self, rows: np.ndarray[Any, Any]) -> FieldRange:
        """The range in the files at the given rows."""
        at = pa.array(rows)
        return FieldRange(
            self.lower.take(at),
            self.upper.take(at),
            self.may_hold_null[rows],
            self.may_hold_nan[rows],
            self.may_hold_value[rows],
        )

    def overlaps(self, other: FieldRange) -> Mask:
        """Where some value, null or NaN may be in this column and in the other one alike."""
        apart = _true_mask(pc.less(self.upper, other.lower)) | _true_mask(pc.less(other.upper, self.lower))
        return (
            (self.may_hold_null & other.may_hold_null)
            | (self.may_hold_nan & other.may_hold_nan)
            | (self.may_hold_value & other.may_hold_value & ~apart)
        )


class Ranges(Protocol):
    """Many files, manifests or partitions, and the range of each of their columns."""

    def __len__(self) -> int: ...

    def of(self, field: NestedField) -> FieldRange:
        """The range of one column."""


def may_match(ranges: Ranges, expression: BooleanExpression) -> Mask:
    """Where some row may satisfy a bound expression without NOT."""
    return visit(expression, _MayMatchVisitor(ranges))


def must_match(ranges: Ranges, expression: BooleanExpression) -> Mask:
    """Where every row satisfies a bound expression without NOT."""
    return visit(expression, _MustMatchVisitor(ranges))


def safe_uuid_bounds(lower: pa.Array, upper: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Bounds of a UUID column that hold whether their writer compared bytes or, as old writers did, two signed numbers.

    The two orders agree between bounds of one sign, up to ties of the first half; otherwise the bounds tell nothing.
    """
    known = pc.less_equal(lower, upper)
    low = pc.binary_join_element_wise(pc.binary_slice(lower, 0, 8), bytes(8), b"")
    high = pc.binary_join_element_wise(pc.binary_slice(upper, 0, 8), b"\xff" * 8, b"")
    nothing = pa.scalar(None, pa.binary())
    return pc.if_else(known, low, nothing), pc.if_else(known, high, nothing)


class _MaskVisitor(BoundBooleanExpressionVisitor[Mask]):
    """What both readings of a predicate share."""

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self.seen: dict[int, FieldRange] = {}

    def field_range(self, term: BoundTerm) -> FieldRange:
        field = term.ref().field
        if field.field_id not in self.seen:
            self.seen[field.field_id] = self.ranges.of(field)
        return self.seen[field.field_id]

    def visit_true(self) -> Mask:
        return np.ones(len(self.ranges), bool)

    def visit_false(self) -> Mask:
        return np.zeros(len(self.ranges), bool)

    def visit_not(self, child_result: Mask) -> Mask:
        raise ValueError("NOT is rewritten before files are judged")

    def visit_and(self, left_result: Mask, right_result: Mask) -> Mask:
        return left_result & right_result

    def visit_or(self, left_result: Mask, right_result: Mask) -> Mask:
        return left_result | right_result


class _MayMatchVisitor(_MaskVisitor):
    """Where some row may match; what is not known counts as a match."""

    def visit_is_null(self, term: BoundTerm) -> Mask:
        return self.field_range(term).may_hold_null

    def visit_not_null(self, term: BoundTerm) -> Mask:
        at = self.field_range(term)
        return at.may_hold_nan | at.may_hold_value

    def visit_is_nan(self, term: BoundTerm) -> Mask:
        return self.field_range(term).may_hold_nan

    def visit_not_nan(self, term: BoundTerm) -> Mask:
        at = self.field_range(term)
        return at.may_hold_null | at.may_hold_value

    def visit_less_than(self, term: BoundTerm, literal: Any) -> Mask:
        at = self.field_range(term)
        return at.may_hold_value & ~_true_mask(pc.greater_equal(at.lower, _scalar(term, literal)))

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Any) -> Mask:
        at = self.field_range(term)
        return at.may_hold_value & ~_true_mask(pc.greater(at.lower, _scalar(term, literal)))

    def visit_greater_than(self, term: BoundTerm, literal: Any) -> Mask:
        at = self.field_range(term)
        return at.may_hold_value & ~_true_mask(pc.less_equal(at.upper, _scalar(term, literal)))

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Any) -> Mask:
        at = self.field_range(term)
        return at.may_hold_value & ~_true_mask(pc.less(at.upper, _scalar(term, literal)))

    def visit_equal(self, term: BoundTerm, literal: Any) -> Mask:
        at = self.field_range(term)
        return at.may_hold_value & ~_excludes_value(at, _scalar(term, literal))

    def visit_not_equal(self, term: BoundTerm, literal: Any) -> Mask:
        at = self.field_range(term)
        return at.may_hold_null | at.may_hold_nan | (at.may_hold_value & ~_is_only_value(at, _scalar(term, literal)))

    def visit_in(self, term: BoundTerm, literals: Any) -> Mask:
        at = self.field_range(term)
        return at.may_hold_value & _includes_any_literal(at, _sorted_literals(term, literals))

    def visit_not_in(self, term: BoundTerm, literals: Any) -> Mask:
        at = self.field_range(term)
        return (
            at.may_hold_null
            | at.may_hold_nan
            | (at.may_hold_value & ~_is_one_literal(at, _sorted_literals(term, literals)))
        )

    def visit_starts_with(self, term: BoundTerm, literal: Any) -> Mask:
        at = self.field_range(term)
        return at.may_hold_value & ~_excludes_prefix(at, _scalar(term, literal))

    def visit_not_starts_with(self, term: BoundTerm, literal: Any) -> Mask:
        at = self.field_range(term)
        return at.may_hold_null | (at.may_hold_value & ~_all_start_with(at, _scalar(term, literal)))


class _MustMatchVisitor(_MaskVisitor):
    """Where every row matches; what is not known counts as a row that does not."""

    def visit_is_null(self, term: BoundTerm) -> Mask:
        at = self.field_range(term)
        return ~at.may_hold_nan & ~at.may_hold_value

    def visit_not_null(self, term: BoundTerm) -> Mask:
        return ~self.field_range(term).may_hold_null

    def visit_is_nan(self, term: BoundTerm) -> Mask:
        at = self.field_range(term)
        return ~at.may_hold_null & ~at.may_hold_value

    def visit_not_nan(self, term: BoundTerm) -> Mask:
        return ~self.field_range(term).may_hold_nan

    def visit_less_than(self, term: BoundTerm, literal: Any) -> Mask:
        at = self.field_range(term)
        return _every_value_matches(at, _true_mask(pc.less(at.upper, _scalar(term, literal))))

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Any) -> Mask:
        at = self.field_range(term)
        return _every_value_matches(at, _true_mask(pc.less_equal(at.upper, _scalar(term, literal))))

    def visit_greater_than(self, term: BoundTerm, literal: Any) -> Mask:
        at = self.field_range(term)
        return _every_value_matches(at, _true_mask(pc.greater(at.lower, _scalar(term, literal))))

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Any) -> Mask:
        at = self.field_range(term)
        return _every_value_matches(at, _true_mask(pc.greater_equal(at.lower, _scalar(term, literal))))

    def visit_equal(self, term: BoundTerm, literal: Any) -> Mask:
        at = self.field_range(term)
        return _every_value_matches(at, _is_only_value(at, _scalar(term, literal)))

    def visit_not_equal(self, term: BoundTerm, literal: Any) -> Mask:
        at = self.field_range(term)
        return ~at.may_hold_value | _excludes_value(at, _scalar(term, literal))

    def visit_in(self, term: BoundTerm, literals: Any) -> Mask:
        at = self.field_range(term)
        return _every_value_matches(at, _is_one_literal(at, _sorted_literals(term, literals)))

    def visit_not_in(self, term: BoundTerm, literals: Any) -> Mask:
        at = self.field_range(term)
        return ~at.may_hold_value | ~_includes_any_literal(at, _sorted_literals(term, literals))

    def visit_starts_with(self, term: BoundTerm, literal: Any) -> Mask:
        at = self.field_range(term)
        return _every_value_matches(at, _all_start_with(at, _scalar(term, literal)))

    def visit_not_starts_with(self, term: BoundTerm, literal: Any) -> Mask:
        at = self.field_range(term)
        return ~at.may_hold_value | _excludes_prefix(at, _scalar(term, literal))


def _every_value_matches(at: FieldRange, values_match: Mask) -> Mask:
    """Where there is neither null nor NaN, and the ordinary values match."""
    return ~at.may_hold_null & ~at.may_hold_nan & (~at.may_hold_value | values_match)


def _true_mask(result: pa.Array) -> Mask:
    return np.asarray(result.fill_null(False).to_numpy(zero_copy_only=False), bool)


def _type_of(term: BoundTerm) -> IcebergType:
    return term.ref().field.field_type


def _scalar(term: BoundTerm, literal: Any) -> pa.Scalar:
    return comparable_scalar(literal.value, _type_of(term))


def _sorted_literals(term: BoundTerm, literals: Any) -> pa.Array:
    values = pa.array([comparable_scalar(v, _type_of(term)).as_py() for v in literals], comparable_type(_type_of(term)))
    return values.take(pc.sort_indices(values))


def _excludes_value(at: FieldRange, value: pa.Scalar) -> Mask:
    return _true_mask(pc.greater(at.lower, value)) | _true_mask(pc.less(at.upper, value))


def _is_only_value(at: FieldRange, value: pa.Scalar) -> Mask:
    return _true_mask(pc.equal(at.lower, value)) & _true_mask(pc.equal(at.upper, value))


def _includes_any_literal(at: FieldRange, literals: pa.Array) -> Mask:
    """Where a literal of a sorted list lies between the bounds."""
    lower, upper, wanted = _ranks(at, literals)
    first = np.searchsorted(wanted, lower)
    return (first < len(wanted)) & (wanted[np.minimum(first, len(wanted) - 1)] <= upper)


def _is_one_literal(at: FieldRange, literals: pa.Array) -> Mask:
    """Where the bounds leave one value and the list has it."""
    return _true_mask(pc.equal(at.lower, at.upper)) & _includes_any_literal(at, literals)


def _ranks(at: FieldRange, literals: pa.Array) -> tuple[np.ndarray[Any, Any], ...]:
    """Bounds and literals as their places in the common order; a bound that is not known is at the far end."""
    together = pa.concat_arrays([at.lower, at.upper, literals])
    ranks = pc.rank(together, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    lower, upper, wanted = np.split(ranks, [len(at.lower), len(at.lower) + len(at.upper)])
    lower[at.lower.is_null().to_numpy(zero_copy_only=False)] = 0
    return lower, upper, wanted


def _excludes_prefix(at: FieldRange, prefix: pa.Scalar) -> Mask:
    """Where no value between the bounds starts with the prefix."""
    length = len(prefix.as_py())
    above = pc.greater(pc.binary_slice(at.lower, 0, length), prefix)
    below = pc.less(pc.binary_slice(at.upper, 0, length), prefix)
    return _true_mask(above) | _true_mask(below)


def _all_start_with(at: FieldRange, prefix: pa.Scalar) -> Mask:
    """Where both bounds, and so everything between them, start with the prefix."""
    length = len(prefix.as_py())
    starts = (pc.equal(pc.binary_slice(bound, 0, length), prefix) for bound in (at.lower, at.upper))
    return np.logical_and(*(_true_mask(s) for s in starts))
