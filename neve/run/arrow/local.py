"""A scan without Spark's readers: the rows of a plan as a stream of Arrow batches, one file after the other.

For types Spark cannot carry (nanoseconds), for audits, as a second opinion on what Spark reads; and in the workers of
a Python data source, where Spark's readers are out of reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids, rewrite_not
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.types import NestedField

from neve.io.paths import refuse_unreadable
from neve.model.pyiceberg_private import fields_by_id
from neve.plan.scan import ScanPlan
from neve.predicate.normalize import bound
from neve.run.arrow.columns import metadata_columns
from neve.run.arrow.rowfilter import matching
from neve.run.arrow.tasks import ReadTarget
from neve.run.arrow.taskset import file_tasks, groups, tasks_of
from neve.run.arrow.types import Carrier, arrow_schema
from neve.run.facts import TableFacts
from neve.run.files import read_tasks

__all__ = ["Reading", "read_plan", "read_table"]


@dataclass(frozen=True)
class Reading:
    """How the tasks of a plan are read, as a value that travels: the columns returned, and a condition on rows."""

    facts: TableFacts
    target: ReadTarget
    width: int  # columns returned; those after them are read for the condition
    condition: BooleanExpression | None = None  # bound, without NOT

    @classmethod
    def of(
        cls, plan: ScanPlan, facts: TableFacts, where: BooleanExpression | None = None, carrier: Carrier = Carrier.EXACT
    ) -> Reading:
        """How a plan is read.

        The plan's own predicate has chosen files and is not applied to rows; `where` is, by the rules of SQL. It names
        columns of the schema the plan was made with, whether the plan returns them or not.
        """
        asked = _asked(plan, facts)
        if where is None:
            return cls(facts, ReadTarget(asked, facts.name_mapping, facts.schemas, carrier), len(asked.fields))
        known = next(s for s in facts.schemas if s.schema_id == plan.schema.schema_id)
        condition = bind(known, rewrite_not(where), True)
        wide = Schema(*asked.fields, *_beside(asked, known, extract_field_ids(condition)))
        target = ReadTarget(wide, facts.name_mapping, facts.schemas, carrier, bound(where, known))
        return cls(facts, target, len(asked.fields), condition)

    @property
    def schema(self) -> pa.Schema:
        """The columns returned."""
        return arrow_schema(Schema(*self.target.schema.fields[: self.width]), self.target.carrier)

    def batches(self, tasks: pa.Table) -> Iterator[pa.RecordBatch]:
        """The live rows of the data files in a task table (see `neve.run.arrow.taskset`)."""
        read = read_tasks(self.facts.io(), file_tasks(tasks, self.facts.specs), self.target)
        return read if self.condition is None else self._filtered(read, self.condition)

    def _filtered(self, batches: Iterator[pa.RecordBatch], condition: BooleanExpression) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept = batch.filter(pa.array(matching(batch, self.target.schema, condition)))
            if kept.num_rows:
                yield kept.select(range(self.width))


def read_table(
    plan: ScanPlan,
    facts: TableFacts,
    where: BooleanExpression | None = None,
    carrier: Carrier = Carrier.EXACT,
    *,
    count: int | None = None,
) -> pa.Table:
    """The live rows of a plan's files as one table; with a count the first of them, and nothing after is read."""
    batches = read_plan(plan, facts, where, carrier)
    wanted = batches if count is None else _first(batches, count)
    return pa.Table.from_batches(wanted, Reading.of(plan, facts, None, carrier).schema)


def _first(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    while count > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, count)
        count -= batch.num_rows


def read_plan(
    plan: ScanPlan, facts: TableFacts, where: BooleanExpression | None = None, carrier: Carrier = Carrier.EXACT
) -> Iterator[pa.RecordBatch]:
    """The live rows of a plan's files, file by file, that meet a condition (see `Reading.of`)."""
    for entries in (plan.files, plan.deletes):
        refuse_unreadable(entries["file_path"], facts.location)
    reading = Reading.of(plan, facts, where, carrier)
    tasks = tasks_of(plan.files, plan.deletes, plan.attached)
    return (batch for group in (groups(tasks) if tasks.num_rows else ()) for batch in reading.batches(group))


def _asked(plan: ScanPlan, facts: TableFacts) -> Schema:
    known = metadata_columns(facts.specs)
    return Schema(*plan.schema.fields, *(known[name] for name in plan.metadata_columns))


def _beside(asked: Schema, known: Schema, ids: set[int]) -> list[NestedField]:
    """The columns a condition needs and the scan does not return."""
    missing = prune_columns(known, ids - set(fields_by_id(asked)), False).fields
    return [f.model_copy(update={"name": f"__where{f.field_id}"}) for f in missing]
