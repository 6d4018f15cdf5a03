"""Project a predicate on rows to a predicate on the partition tuple of one spec.

The inclusive projection is true for every partition that may hold a matching row; the strict projection only for
partitions in which every row matches. Columns of the tuple have the names of the entry table. Their types come from the
newest schema that contains the source column, so a spec whose source column was dropped can still be evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    BooleanExpression,
    BoundPredicate,
    EqualTo,
    GreaterThan,
    In,
    LessThanOrEqual,
    NotEqualTo,
    NotIn,
    SetPredicate,
)
from pyiceberg.expressions.visitors import bind
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, TimeTransform, TruncateTransform, UnknownTransform
from pyiceberg.types import DateType, IntegerType, LongType, NestedField

from neve.model.partition import Specs
from neve.plan.ranges import evaluate_expression
from neve.predicate.normalize import all_of, any_of, make_expression

_MAX_INT, _MAX_LONG = (1 << 31) - 1, (1 << 63) - 1


def project_to_partition(
    bound: BooleanExpression, specs: Specs, spec_id: int, *, is_strict: bool = False
) -> BooleanExpression:
    """Project a bound predicate to the tuples of a spec, inclusive or strict."""
    fields = tuple(zip(specs.columns(spec_id), specs[spec_id].fields, strict=True))

    def project_leaf(predicate: BoundPredicate) -> BooleanExpression:
        """Project through every partition field whose source is the column of the predicate."""
        source = predicate.term.ref().field.field_id
        parts = []
        for column, field in fields:
            if field.source_id == source:
                if isinstance(field.transform, UnknownTransform):
                    raise ValueError(f"unknown transform {field.transform!r} of partition field {field.name}")
                parts.append(_project_field(predicate, field, column, specs, is_strict))
        return (any_of if is_strict else all_of)(part for part in parts if part is not None)

    projected = evaluate_expression(bound, project_leaf, lambda value: AlwaysTrue() if value else AlwaysFalse())
    named = zip(specs.columns(spec_id), specs.partition_type(spec_id).fields, strict=True)
    tuple_schema = Schema(*(NestedField(f.field_id, column, f.field_type, required=False) for column, f in named))
    return bind(tuple_schema, projected, True)


def _project_field(
    predicate: BoundPredicate, field: PartitionField, column: str, specs: Specs, is_strict: bool
) -> BooleanExpression | None:
    transform = field.transform
    projected = (transform.strict_project if is_strict else transform.project)(column, predicate)
    if projected is None:
        return None
    is_date = isinstance(transform, DayTransform) and isinstance(specs.source_type(field), DateType)
    if isinstance(transform, TimeTransform) and not is_date:
        # Old writers rounded times before 1970 towards 1970, one unit too high: include or exclude the next units.
        kinds: tuple[Any, ...] = (GreaterThan, NotEqualTo, NotIn) if is_strict else (LessThanOrEqual, EqualTo, In)
        comparison, single, several = kinds
        if isinstance(projected, comparison) and projected.literal.value < 0:
            return comparison(projected.term, projected.literal.value + 1)
        if isinstance(projected, single | several):
            literals = projected.literals if isinstance(projected, SetPredicate) else {projected.literal}
            values = {v.value for v in literals}
            return several(projected.term, values | {v + 1 for v in values if v < 0})
        return projected
    overflows = _overflow_ranges(predicate, field, column)
    return all_of((projected, *(~each for each in overflows))) if is_strict else any_of((projected, *overflows))


def _overflow_ranges(predicate: BoundPredicate, field: PartitionField, column: str) -> Iterator[BooleanExpression]:
    """Yield the ranges of truncated values that may hold the smallest numbers.

    Truncating these overflows, and writers put them among the largest. A column of longs may have been a column of
    ints when its files were written.
    """
    kind, transform = predicate.term.ref().field.field_type, field.transform
    if isinstance(transform, TruncateTransform) and isinstance(kind, IntegerType | LongType):
        for largest in (_MAX_INT, _MAX_LONG) if isinstance(kind, LongType) else (_MAX_INT,):
            above_lowest = make_expression(GreaterThan, column, largest - transform.width)
            yield all_of((above_lowest, make_expression(LessThanOrEqual, column, largest)))
