"""The rows of a batch that meet a predicate, by the rules of SQL: a comparison with null is never met.

As in Spark, NaN equals NaN and is greater than every other number, and 0.0 equals -0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types as at
from pyiceberg.expressions import BooleanExpression, BoundTerm
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, visit
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from neve.model.values import ordered, ordered_scalar

__all__ = ["matching"]

Mask = NDArray[np.bool_]


def matching(batch: pa.RecordBatch, schema: Schema, predicate: BooleanExpression) -> Mask:
    """Which rows of a batch, whose columns are those of the schema, meet a bound predicate without NOT."""
    return visit(predicate, _Rows(batch, schema))


class _Rows(BoundBooleanExpressionVisitor[Mask]):
    def __init__(self, batch: pa.RecordBatch, schema: Schema) -> None:
        self.batch, self.schema = batch, schema

    def column(self, term: BoundTerm) -> pa.Array:
        places = _places(self.schema.fields, term.ref().field.field_id)
        return reduce(lambda array, i: pc.struct_field(array, [i]), places[1:], self.batch.column(places[0]))

    def compared(self, term: BoundTerm, literal: Any, compare: Callable[..., pa.Array], nan: bool) -> Mask:
        column, kind = self.column(term), term.ref().field.field_type
        met = _true(compare(ordered(column, kind), ordered_scalar(literal.value, kind)))
        return met | _is_nan(column) if nan else met

    def visit_true(self) -> Mask:
        return np.ones(self.batch.num_rows, np.bool_)

    def visit_false(self) -> Mask:
        return np.zeros(self.batch.num_rows, np.bool_)

    def visit_not(self, child_result: Mask) -> Mask:
        raise ValueError("NOT is rewritten before rows are judged")

    def visit_and(self, left_result: Mask, right_result: Mask) -> Mask:
        return left_result & right_result

    def visit_or(self, left_result: Mask, right_result: Mask) -> Mask:
        return left_result | right_result

    def visit_is_null(self, term: BoundTerm) -> Mask:
        return _true(self.column(term).is_null())

    def visit_not_null(self, term: BoundTerm) -> Mask:
        return _true(self.column(term).is_valid())

    def visit_is_nan(self, term: BoundTerm) -> Mask:
        return _is_nan(self.column(term))

    def visit_not_nan(self, term: BoundTerm) -> Mask:
        return ~_is_nan(self.column(term))

    def visit_less_than(self, term: BoundTerm, literal: Any) -> Mask:
        return self.compared(term, literal, pc.less, nan=False)

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Any) -> Mask:
        return self.compared(term, literal, pc.less_equal, nan=False)

    def visit_greater_than(self, term: BoundTerm, literal: Any) -> Mask:
        return self.compared(term, literal, pc.greater, nan=True)

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Any) -> Mask:
        return self.compared(term, literal, pc.greater_equal, nan=True)

    def visit_equal(self, term: BoundTerm, literal: Any) -> Mask:
        return self.compared(term, literal, pc.equal, nan=False)

    def visit_not_equal(self, term: BoundTerm, literal: Any) -> Mask:
        return self.compared(term, literal, pc.not_equal, nan=True)

    def visit_in(self, term: BoundTerm, literals: Any) -> Mask:
        column, kind = self.column(term), term.ref().field.field_type
        values = [ordered_scalar(value, kind) for value in literals]
        return _true(pc.is_in(ordered(column, kind), value_set=_array(values), skip_nulls=True))

    def visit_not_in(self, term: BoundTerm, literals: Any) -> Mask:
        return _true(self.column(term).is_valid()) & ~self.visit_in(term, literals)

    def visit_starts_with(self, term: BoundTerm, literal: Any) -> Mask:
        return _true(pc.starts_with(self.column(term), literal.value))

    def visit_not_starts_with(self, term: BoundTerm, literal: Any) -> Mask:
        return _true(pc.invert(pc.starts_with(self.column(term), literal.value)))


def _places(fields: Iterable[NestedField], field_id: int) -> list[int]:
    """The ordinals that lead to a field through the structs it is in; empty when it is not there."""
    for place, field in enumerate(fields):
        if field.field_id == field_id:
            return [place]
        if isinstance(field.field_type, StructType) and (inner := _places(field.field_type.fields, field_id)):
            return [place, *inner]
    return []


def _is_nan(column: pa.Array) -> Mask:
    return _true(pc.is_nan(column)) if at.is_floating(column.type) else np.zeros(len(column), np.bool_)


def _array(scalars: list[pa.Scalar]) -> pa.Array:
    return pa.array([scalar.as_py() for scalar in scalars], scalars[0].type)


def _true(result: pa.Array) -> Mask:
    return np.asarray(result.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
