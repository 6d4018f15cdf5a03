"""A scan without Spark: the rows of a plan as a stream of Arrow batches, read here, one file after the other.

For types Spark cannot carry (nanoseconds), for audits, and as a second opinion on what Spark reads.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids, rewrite_not
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.types import NestedField

from neve.model.pyiceberg_private import fields_by_id
from neve.plan.scan import ScanPlan
from neve.predicate.normal import bound
from neve.run.arrow.columns import metadata_columns
from neve.run.arrow.rowfilter import matching
from neve.run.arrow.tasks import ReadTarget
from neve.run.arrow.taskset import file_tasks, groups, tasks_of
from neve.run.arrow.types import Carrier, arrow_schema
from neve.run.facts import TableFacts
from neve.run.files import read_tasks

__all__ = ["read_plan", "read_table"]


def read_table(
    plan: ScanPlan, facts: TableFacts, where: BooleanExpression | None = None, carrier: Carrier = Carrier.EXACT
) -> pa.Table:
    """The live rows of a plan's files as one table."""
    return pa.Table.from_batches(read_plan(plan, facts, where, carrier), arrow_schema(_asked(plan, facts), carrier))


def read_plan(
    plan: ScanPlan, facts: TableFacts, where: BooleanExpression | None = None, carrier: Carrier = Carrier.EXACT
) -> Iterator[pa.RecordBatch]:
    """The live rows of a plan's files, file by file.

    The plan's own predicate has chosen files and is not applied to rows; `where` is, by the rules of SQL. It names
    columns of the schema the plan was made with, whether the plan returns them or not.
    """
    asked = _asked(plan, facts)
    if where is None:
        return _batches(plan, facts, ReadTarget(asked, facts.name_mapping, facts.schemas, carrier))
    known = next(s for s in facts.schemas if s.schema_id == plan.schema.schema_id)
    condition = bind(known, rewrite_not(where), True)
    wide = Schema(*asked.fields, *_beside(asked, known, extract_field_ids(condition)))
    target = ReadTarget(wide, facts.name_mapping, facts.schemas, carrier, bound(where, known))
    return _filtered(_batches(plan, facts, target), wide, condition, len(asked.fields))


def _filtered(
    batches: Iterator[pa.RecordBatch], schema: Schema, condition: BooleanExpression, width: int
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        kept = batch.filter(pa.array(matching(batch, schema, condition)))
        if kept.num_rows:
            yield kept.select(range(width))


def _asked(plan: ScanPlan, facts: TableFacts) -> Schema:
    known = metadata_columns(facts.specs)
    return Schema(*plan.schema.fields, *(known[name] for name in plan.metadata_columns))


def _beside(asked: Schema, known: Schema, ids: set[int]) -> list[NestedField]:
    """The columns a condition needs and the scan does not return."""
    missing = prune_columns(known, ids - set(fields_by_id(asked)), False).fields
    return [f.model_copy(update={"name": f"__where{f.field_id}"}) for f in missing]


def _batches(plan: ScanPlan, facts: TableFacts, target: ReadTarget) -> Iterator[pa.RecordBatch]:
    io = facts.io()
    tasks = tasks_of(plan.files, plan.deletes, plan.attached)
    for group in groups(tasks) if tasks.num_rows else ():
        yield from read_tasks(io, file_tasks(group, facts.specs), target)
