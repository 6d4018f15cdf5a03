"""Scan without Spark's readers: return the rows of a plan as a stream of Arrow batches, one file after the other.

This is used for types that Spark does not have (nanoseconds), for audits, to check what Spark reads, and in the workers
of a Python data source, where Spark's readers are not available.

Predicates are evaluated by the rules of SQL: a comparison with null never matches. As in Spark, NaN equals NaN and is
greater than every other number, and 0.0 equals -0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types as at
from pyiceberg.expressions import BooleanExpression, BoundTerm
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, bind, extract_field_ids, rewrite_not, visit
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.types import NestedField, StructType

from neve.io.paths import refuse_unreadable
from neve.model.pyiceberg_private import fields_by_id
from neve.model.values import comparable_scalar, to_comparable
from neve.plan.scan import ScanPlan
from neve.predicate.normalize import normalize_and_bind
from neve.run.read.file_reader import read_tasks
from neve.run.read.metadata_columns import metadata_columns
from neve.run.read.tasks import ReadTarget, build_task_table, file_tasks, group_tasks
from neve.run.read.types import ArrowFlavor, arrow_schema
from neve.run.table_facts import TableFacts

Mask = NDArray[np.bool_]


def matching_rows_mask(batch: pa.RecordBatch, schema: Schema, predicate: BooleanExpression) -> Mask:
    """Return a mask of the rows of a batch that match a bound predicate without NOT; the schema is the batch's."""
    return visit(predicate, _RowPredicate(batch, schema))


class _RowPredicate(BoundBooleanExpressionVisitor[Mask]):
    def __init__(self, batch: pa.RecordBatch, schema: Schema) -> None:
        self.batch, self.schema = batch, schema

    def column(self, term: BoundTerm) -> pa.Array:
        path = _field_path(self.schema.fields, term.ref().field.field_id)
        return reduce(lambda array, i: pc.struct_field(array, [i]), path[1:], self.batch.column(path[0]))

    def comparison_mask(self, term: BoundTerm, literal: Any, compare: Callable[..., pa.Array], nan: bool) -> Mask:
        column, kind = self.column(term), term.ref().field.field_type
        is_match = _as_mask(compare(to_comparable(column, kind), comparable_scalar(literal.value, kind)))
        return is_match | _is_nan(column) if nan else is_match

    def visit_true(self) -> Mask:
        return np.ones(self.batch.num_rows, np.bool_)

    def visit_false(self) -> Mask:
        return np.zeros(self.batch.num_rows, np.bool_)

    def visit_not(self, child_result: Mask) -> Mask:
        raise ValueError("NOT is rewritten before rows are evaluated")

    def visit_and(self, left_result: Mask, right_result: Mask) -> Mask:
        return left_result & right_result

    def visit_or(self, left_result: Mask, right_result: Mask) -> Mask:
        return left_result | right_result

    def visit_is_null(self, term: BoundTerm) -> Mask:
        return _as_mask(self.column(term).is_null())

    def visit_not_null(self, term: BoundTerm) -> Mask:
        return _as_mask(self.column(term).is_valid())

    def visit_is_nan(self, term: BoundTerm) -> Mask:
        return _is_nan(self.column(term))

    def visit_not_nan(self, term: BoundTerm) -> Mask:
        return ~_is_nan(self.column(term))

    def visit_less_than(self, term: BoundTerm, literal: Any) -> Mask:
        return self.comparison_mask(term, literal, pc.less, nan=False)

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Any) -> Mask:
        return self.comparison_mask(term, literal, pc.less_equal, nan=False)

    def visit_greater_than(self, term: BoundTerm, literal: Any) -> Mask:
        return self.comparison_mask(term, literal, pc.greater, nan=True)

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Any) -> Mask:
        return self.comparison_mask(term, literal, pc.greater_equal, nan=True)

    def visit_equal(self, term: BoundTerm, literal: Any) -> Mask:
        return self.comparison_mask(term, literal, pc.equal, nan=False)

    def visit_not_equal(self, term: BoundTerm, literal: Any) -> Mask:
        return self.comparison_mask(term, literal, pc.not_equal, nan=True)

    def visit_in(self, term: BoundTerm, literals: Any) -> Mask:
        column, kind = self.column(term), term.ref().field.field_type
        scalars = [comparable_scalar(value, kind) for value in literals]
        values = pa.array([scalar.as_py() for scalar in scalars], scalars[0].type)
        return _as_mask(pc.is_in(to_comparable(column, kind), value_set=values, skip_nulls=True))

    def visit_not_in(self, term: BoundTerm, literals: Any) -> Mask:
        return _as_mask(self.column(term).is_valid()) & ~self.visit_in(term, literals)

    def visit_starts_with(self, term: BoundTerm, literal: Any) -> Mask:
        return _as_mask(pc.starts_with(self.column(term), literal.value))

    def visit_not_starts_with(self, term: BoundTerm, literal: Any) -> Mask:
        return _as_mask(pc.invert(pc.starts_with(self.column(term), literal.value)))


def _field_path(fields: Iterable[NestedField], field_id: int) -> list[int]:
    """Return the ordinals that lead through structs to a field; empty if it does not exist."""
    for ordinal, field in enumerate(fields):
        if field.field_id == field_id:
            return [ordinal]
        if isinstance(field.field_type, StructType) and (inner := _field_path(field.field_type.fields, field_id)):
            return [ordinal, *inner]
    return []


def _is_nan(column: pa.Array) -> Mask:
    return _as_mask(pc.is_nan(column)) if at.is_floating(column.type) else np.zeros(len(column), np.bool_)


def _as_mask(result: pa.Array) -> Mask:
    return np.asarray(result.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


@dataclass(frozen=True)
class ScanReader:
    """Reads the tasks of a plan: the columns to return and a condition on rows. It can be sent to other processes."""

    facts: TableFacts
    target: ReadTarget
    column_count: int  # columns returned; the columns after them are read for the condition only
    condition: BooleanExpression | None = None  # bound, without NOT

    @classmethod
    def of(
        cls,
        plan: ScanPlan,
        facts: TableFacts,
        where: BooleanExpression | None = None,
        flavor: ArrowFlavor = ArrowFlavor.EXACT,
    ) -> ScanReader:
        """Build the reader of a plan.

        The plan's own predicate has selected files and is not applied to rows; `where` is, by the rules of SQL. It may
        use all columns of the schema that the plan was made with, whether the plan returns them or not.
        """
        metadata_fields = metadata_columns(facts.specs)
        result = Schema(*plan.schema.fields, *(metadata_fields[name] for name in plan.metadata_columns))
        if where is None:
            return cls(facts, ReadTarget(result, facts.name_mapping, facts.schemas, flavor), len(result.fields))
        schema = next(s for s in facts.schemas if s.schema_id == plan.schema.schema_id)
        condition = bind(schema, rewrite_not(where), True)
        only_for_condition = prune_columns(schema, extract_field_ids(condition) - set(fields_by_id(result)), False)
        extra_fields = (f.model_copy(update={"name": f"__where{f.field_id}"}) for f in only_for_condition.fields)
        with_condition = Schema(*result.fields, *extra_fields)
        row_group_predicate = normalize_and_bind(where, schema)
        target = ReadTarget(with_condition, facts.name_mapping, facts.schemas, flavor, row_group_predicate)
        return cls(facts, target, len(result.fields), condition)

    @property
    def schema(self) -> pa.Schema:
        """The columns returned."""
        return arrow_schema(Schema(*self.target.schema.fields[: self.column_count]), self.target.flavor)

    def batches(self, tasks: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the live rows of the data files in a task table (see `neve.run.read.tasks`)."""
        for batch in read_tasks(self.facts.io(), file_tasks(tasks, self.facts.specs), self.target):
            if self.condition is None:
                yield batch
                continue
            matching = batch.filter(pa.array(matching_rows_mask(batch, self.target.schema, self.condition)))
            if matching.num_rows:
                yield matching.select(range(self.column_count))


def read_table(
    plan: ScanPlan,
    facts: TableFacts,
    where: BooleanExpression | None = None,
    flavor: ArrowFlavor = ArrowFlavor.EXACT,
    *,
    count: int | None = None,
) -> pa.Table:
    """Return the live rows of a plan's files as one table; with `count`, read only the first rows and then stop."""
    batches = read_plan(plan, facts, where, flavor)
    schema = ScanReader.of(plan, facts, None, flavor).schema
    if count is None:
        return pa.Table.from_batches(batches, schema)
    first_batches = []
    while count > 0 and (batch := next(batches, None)) is not None:
        first_batches.append(batch.slice(0, count))
        count -= batch.num_rows
    return pa.Table.from_batches(first_batches, schema)


def read_plan(
    plan: ScanPlan, facts: TableFacts, where: BooleanExpression | None = None, flavor: ArrowFlavor = ArrowFlavor.EXACT
) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of a plan's files that match a condition, file by file (see `ScanReader.of`)."""
    for entries in (plan.files, plan.deletes):
        refuse_unreadable(entries["file_path"], facts.location)
    reader = ScanReader.of(plan, facts, where, flavor)
    tasks = build_task_table(plan.files, plan.deletes, plan.attached)
    return (batch for group in (group_tasks(tasks) if tasks.num_rows else ()) for batch in reader.batches(group))
