"""Project a predicate on rows to a predicate on the partition tuple of one spec.

The inclusive projection is true for every partition that may hold a matching row; the strict projection only for
partitions in which every row matches. Columns of the tuple have the names of the entry table. Their types come from the
newest schema that contains the source column, so a spec whose source column was dropped can still be evaluated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundPredicate,
    EqualTo,
    GreaterThan,
    In,
    LessThanOrEqual,
    NotEqualTo,
    NotIn,
    Or,
    SetPredicate,
    UnboundPredicate,
)
from pyiceberg.expressions.visitors import BooleanExpressionVisitor, bind, visit
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, TimeTransform, TruncateTransform, UnknownTransform
from pyiceberg.types import DateType, IntegerType, LongType, NestedField

from neve.model.partition import Specs
from neve.predicate.normalize import all_of, any_of, make_expression

_MAX_INT, _MAX_LONG = (1 << 31) - 1, (1 << 63) - 1


def inclusive_projection(bound: BooleanExpression, specs: Specs, spec_id: int) -> BooleanExpression:
    """Project a bound predicate to the tuples of a spec; true for every tuple that may hold a matching row."""
    return bind(tuple_schema(specs, spec_id), visit(bound, _InclusiveProjection(specs, spec_id)), True)


def strict_projection(bound: BooleanExpression, specs: Specs, spec_id: int) -> BooleanExpression:
    """Project a bound predicate to the tuples of a spec; true only for tuples in which every row matches."""
    return bind(tuple_schema(specs, spec_id), visit(bound, _StrictProjection(specs, spec_id)), True)


def tuple_schema(specs: Specs, spec_id: int) -> Schema:
    """Return the partition tuple of a spec as a schema, with the column names of an entry table."""
    named = zip(specs.columns(spec_id), specs.partition_type(spec_id).fields, strict=True)
    return Schema(*(NestedField(f.field_id, column, f.field_type, required=False) for column, f in named))


class _Projection(BooleanExpressionVisitor[BooleanExpression], ABC):
    combine: ClassVar[Callable[[Iterable[BooleanExpression]], BooleanExpression]]  # joins the projections of all fields

    def __init__(self, specs: Specs, spec_id: int) -> None:
        self.specs = specs
        self.fields = tuple(zip(specs.columns(spec_id), specs[spec_id].fields, strict=True))

    def visit_bound_predicate(self, predicate: BoundPredicate) -> BooleanExpression:
        """Project through every partition field whose source is the column of the predicate."""
        source = predicate.term.ref().field.field_id
        fields = [(field, column) for column, field in self.fields if field.source_id == source]
        for field, _ in fields:
            if isinstance(field.transform, UnknownTransform):
                raise ValueError(f"unknown transform {field.transform!r} of partition field {field.name}")
        projected = (self.project_field(predicate, field, column) for field, column in fields)
        return type(self).combine([part for part in projected if part is not None])

    @abstractmethod
    def project_field(
        self, predicate: BoundPredicate, field: PartitionField, column: str
    ) -> BooleanExpression | None: ...

    def follows_old_rounding(self, field: PartitionField) -> bool:
        """Return whether old writers rounded times before 1970 towards 1970, one unit too high."""
        is_date = isinstance(field.transform, DayTransform) and isinstance(self.specs.source_type(field), DateType)
        return isinstance(field.transform, TimeTransform) and not is_date

    def visit_true(self) -> BooleanExpression:
        return AlwaysTrue()

    def visit_false(self) -> BooleanExpression:
        return AlwaysFalse()

    def visit_not(self, child_result: BooleanExpression) -> BooleanExpression:
        raise ValueError("NOT is rewritten before a predicate is projected")

    def visit_and(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return And(left_result, right_result)

    def visit_or(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return Or(left_result, right_result)

    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> BooleanExpression:
        raise ValueError(f"{predicate} is not bound")


def _overflow_ranges(predicate: BoundPredicate, field: PartitionField) -> Iterator[tuple[int, int]]:
    """Yield the ranges of truncated values that may hold the smallest numbers.

    Truncating these overflows, and writers put them among the largest. A column of longs may have been a column of
    ints when its files were written.
    """
    kind, transform = predicate.term.ref().field.field_type, field.transform
    if isinstance(transform, TruncateTransform) and isinstance(kind, IntegerType | LongType):
        for largest in (_MAX_INT, _MAX_LONG) if isinstance(kind, LongType) else (_MAX_INT,):
            yield largest - transform.width, largest


class _InclusiveProjection(_Projection):
    combine = all_of

    def project_field(self, predicate: BoundPredicate, field: PartitionField, column: str) -> BooleanExpression | None:
        projected = field.transform.project(column, predicate)
        if projected is None:
            return None
        if self.follows_old_rounding(field):
            return _with_next_units(projected, LessThanOrEqual, EqualTo, In)  # includes the next units
        overflows = (
            all_of((make_expression(GreaterThan, column, low), make_expression(LessThanOrEqual, column, high)))
            for low, high in _overflow_ranges(predicate, field)
        )
        return any_of((projected, *overflows))


class _StrictProjection(_Projection):
    combine = any_of

    def project_field(self, predicate: BoundPredicate, field: PartitionField, column: str) -> BooleanExpression | None:
        projected = field.transform.strict_project(column, predicate)
        if projected is None:
            return None
        if self.follows_old_rounding(field):
            return _with_next_units(projected, GreaterThan, NotEqualTo, NotIn)  # excludes the next units
        no_overflows = (
            any_of((make_expression(LessThanOrEqual, column, low), make_expression(GreaterThan, column, high)))
            for low, high in _overflow_ranges(predicate, field)
        )
        return all_of((projected, *no_overflows))


def _with_next_units(predicate: UnboundPredicate, comparison: Any, single: Any, several: Any) -> UnboundPredicate:
    """Let a predicate on time units treat the unit after each negative one like that unit."""
    if isinstance(predicate, comparison) and predicate.literal.value < 0:
        return comparison(predicate.term, predicate.literal.value + 1)
    if isinstance(predicate, single | several):
        literals = predicate.literals if isinstance(predicate, SetPredicate) else {predicate.literal}
        values = {v.value for v in literals}
        return several(predicate.term, values | {v + 1 for v in values if v < 0})
    return predicate
