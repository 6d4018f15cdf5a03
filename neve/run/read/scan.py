"""A scan without Spark's readers: the rows of a plan as a stream of Arrow batches, one file after the other.

For types Spark cannot carry (nanoseconds), for audits, as a second opinion on what Spark reads; and in the workers of
a Python data source, where Spark's readers are out of reach.

The rows of a batch that meet a predicate, by the rules of SQL: a comparison with null is never met.

As in Spark, NaN equals NaN and is greater than every other number, and 0.0 equals -0.0.
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
    """Which rows of a batch, whose columns are those of the schema, meet a bound predicate without NOT."""
    return visit(predicate, _RowPredicate(batch, schema))


class _RowPredicate(BoundBooleanExpressionVisitor[Mask]):
    def __init__(self, batch: pa.RecordBatch, schema: Schema) -> None:
        self.batch, self.schema = batch, schema

    def column(self, term: BoundTerm) -> pa.Array:
        places = _field_path(self.schema.fields, term.ref().field.field_id)
        return reduce(lambda array, i: pc.struct_field(array, [i]), places[1:], self.batch.column(places[0]))

    def comparison_mask(self, term: BoundTerm, literal: Any, compare: Callable[..., pa.Array], nan: bool) -> Mask:
        column, kind = self.column(term), term.ref().field.field_type
        met = _as_mask(compare(to_comparable(column, kind), comparable_scalar(literal.value, kind)))
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
        values = [comparable_scalar(value, kind) for value in literals]
        return _as_mask(pc.is_in(to_comparable(column, kind), value_set=_array(values), skip_nulls=True))

    def visit_not_in(self, term: BoundTerm, literals: Any) -> Mask:
        return _as_mask(self.column(term).is_valid()) & ~self.visit_in(term, literals)

    def visit_starts_with(self, term: BoundTerm, literal: Any) -> Mask:
        return _as_mask(pc.starts_with(self.column(term), literal.value))

    def visit_not_starts_with(self, term: BoundTerm, literal: Any) -> Mask:
        return _as_mask(pc.invert(pc.starts_with(self.column(term), literal.value)))


def _field_path(fields: Iterable[NestedField], field_id: int) -> list[int]:
    """The ordinals that lead to a field through the structs it is in; empty when it is not there."""
    for place, field in enumerate(fields):
        if field.field_id == field_id:
            return [place]
        if isinstance(field.field_type, StructType) and (inner := _field_path(field.field_type.fields, field_id)):
            return [place, *inner]
    return []


def _is_nan(column: pa.Array) -> Mask:
    return _as_mask(pc.is_nan(column)) if at.is_floating(column.type) else np.zeros(len(column), np.bool_)


def _array(scalars: list[pa.Scalar]) -> pa.Array:
    return pa.array([scalar.as_py() for scalar in scalars], scalars[0].type)


def _as_mask(result: pa.Array) -> Mask:
    return np.asarray(result.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


@dataclass(frozen=True)
class ScanReader:
    """How the tasks of a plan are read, as a value that travels: the columns returned, and a condition on rows."""

    facts: TableFacts
    target: ReadTarget
    column_count: int  # columns returned; those after them are read for the condition
    condition: BooleanExpression | None = None  # bound, without NOT

    @classmethod
    def of(
        cls,
        plan: ScanPlan,
        facts: TableFacts,
        where: BooleanExpression | None = None,
        flavor: ArrowFlavor = ArrowFlavor.EXACT,
    ) -> ScanReader:
        """How a plan is read.

        The plan's own predicate has chosen files and is not applied to rows; `where` is, by the rules of SQL. It names
        columns of the schema the plan was made with, whether the plan returns them or not.
        """
        asked = _asked(plan, facts)
        if where is None:
            return cls(facts, ReadTarget(asked, facts.name_mapping, facts.schemas, flavor), len(asked.fields))
        known = next(s for s in facts.schemas if s.schema_id == plan.schema.schema_id)
        condition = bind(known, rewrite_not(where), True)
        wide = Schema(*asked.fields, *_beside(asked, known, extract_field_ids(condition)))
        target = ReadTarget(wide, facts.name_mapping, facts.schemas, flavor, normalize_and_bind(where, known))
        return cls(facts, target, len(asked.fields), condition)

    @property
    def schema(self) -> pa.Schema:
        """The columns returned."""
        return arrow_schema(Schema(*self.target.schema.fields[: self.column_count]), self.target.flavor)

    def batches(self, tasks: pa.Table) -> Iterator[pa.RecordBatch]:
        """The live rows of the data files in a task table (see `neve.run.read.tasks`)."""
        read = read_tasks(self.facts.io(), file_tasks(tasks, self.facts.specs), self.target)
        return read if self.condition is None else self._filter_batches(read, self.condition)

    def _filter_batches(
        self, batches: Iterator[pa.RecordBatch], condition: BooleanExpression
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept = batch.filter(pa.array(matching_rows_mask(batch, self.target.schema, condition)))
            if kept.num_rows:
                yield kept.select(range(self.column_count))


def read_table(
    plan: ScanPlan,
    facts: TableFacts,
    where: BooleanExpression | None = None,
    flavor: ArrowFlavor = ArrowFlavor.EXACT,
    *,
    count: int | None = None,
) -> pa.Table:
    """The live rows of a plan's files as one table; with a count the first of them, and nothing after is read."""
    batches = read_plan(plan, facts, where, flavor)
    wanted = batches if count is None else _first(batches, count)
    return pa.Table.from_batches(wanted, ScanReader.of(plan, facts, None, flavor).schema)


def _first(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    while count > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, count)
        count -= batch.num_rows


def read_plan(
    plan: ScanPlan, facts: TableFacts, where: BooleanExpression | None = None, flavor: ArrowFlavor = ArrowFlavor.EXACT
) -> Iterator[pa.RecordBatch]:
    """The live rows of a plan's files, file by file, that meet a condition (see `ScanReader.of`)."""
    for entries in (plan.files, plan.deletes):
        refuse_unreadable(entries["file_path"], facts.location)
    reading = ScanReader.of(plan, facts, where, flavor)
    tasks = build_task_table(plan.files, plan.deletes, plan.attached)
    return (batch for group in (group_tasks(tasks) if tasks.num_rows else ()) for batch in reading.batches(group))


def _asked(plan: ScanPlan, facts: TableFacts) -> Schema:
    known = metadata_columns(facts.specs)
    return Schema(*plan.schema.fields, *(known[name] for name in plan.metadata_columns))


def _beside(asked: Schema, known: Schema, ids: set[int]) -> list[NestedField]:
    """The columns a condition needs and the scan does not return."""
    missing = prune_columns(known, ids - set(fields_by_id(asked)), False).fields
    return [f.model_copy(update={"name": f"__where{f.field_id}"}) for f in missing]
