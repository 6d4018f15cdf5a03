"""Change rows that match a condition.

Every expression sees the row as it was, so `SET a = b, b = a` swaps two columns. A value is stored by the rules of
Spark's ANSI store assignment: overflow or the loss of a fraction is an error. A row whose partition changes moves.

If every row of a file matches, the whole file is replaced. In the other files the mode of the table decides:
copy-on-write rewrites the files that hold a match, merge-on-read deletes the old rows by position and writes the new
ones. Row ids are kept.

Isolation: serializable unless `write.update.isolation-level` says otherwise.
Writes: rows under the current default spec; deletes under the spec of the file they cover.

>>> t.update().set("region", "upper(region)").where("id = 1").execute().rows_updated
1
>>> sorted(t.to_arrow()["region"].to_pylist())
['EU', 'eu', 'us']
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Self

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from neve.commit.isolation import RowCommand
from neve.errors import UserError
from neve.ops.context import TableContext
from neve.ops.results import UpdateResult
from neve.ops.rows.assignments import Assignments, refuse_rounded, refuse_truncated
from neve.ops.rows.changed_files import RowChange
from neve.ops.rows.statement import RowStatement
from neve.ops.rows.target_rows import (
    RowCondition,
    TargetRows,
    metadata_columns_in,
    resolve_subqueries,
    row_condition,
    translate_spark_errors,
)
from neve.plan.row_change import ChangePlan, Judge
from neve.run.change_tally import CHANGE_COLUMNS, CLAUSE_COLUMN, FILE_COLUMN, POSITION_COLUMN, Effects
from neve.run.find_rows import read_matching_rows
from neve.run.read.types import first_column_rounded_by_spark
from neve.run.spark.arrow_exchange import collect_table
from neve.run.spark.expressions import ExpressionChecker, SqlOrColumn
from neve.run.spark.input_rows import as_dataframe
from neve.run.spark.read_columns import column_by_name

_WHERE = "UPDATE WHERE"
_EFFECTS = Effects(removes=(True,), writes=(True,))


@dataclass(frozen=True)
class Update(RowStatement[UpdateResult]):
    """An UPDATE: `.set(…)`, `.where(…)`, then `.plan()`, `.explain()` or `.execute()`."""

    assignments: tuple[tuple[str, SqlOrColumn], ...] = ()
    condition: RowCondition = None

    command = RowCommand.UPDATE
    result_type = UpdateResult

    def set(self, column: str | Mapping[str, SqlOrColumn], value: SqlOrColumn | None = None) -> Self:
        """Assign SQL text or a Column to a column or to a field of a struct; a mapping assigns several."""
        if isinstance(column, Mapping):
            return replace(self, assignments=(*self.assignments, *column.items()))
        if value is None:
            raise UserError(f"UPDATE SET {column}: no expression given. Write 'NULL' for a null.")
        return replace(self, assignments=(*self.assignments, (column, value)))

    def where(self, condition: RowCondition) -> Self:
        """Change the rows for which SQL text, a Column or a PyIceberg expression is true; all rows without it."""
        return replace(self, condition=self._combine_conditions(self.condition, condition))

    def _check(self) -> None:
        if not self.assignments:
            raise UserError("UPDATE without SET: say which column gets which value, as in .set('status', \"'done'\").")

    @contextmanager
    def _plan(self, context: TableContext) -> Iterator[RowChange]:
        assignments = Assignments.of(context, self.assignments, self._alias(context), "UPDATE SET")
        texts = {**assignments.values(), _WHERE: self.condition}
        with resolve_subqueries(context, texts) as ready:
            assigned = ", ".join(f"{column} = {value}" for column, value in self.assignments)
            statement = f"UPDATE {context.name} SET {assigned}"  # noqa: S608 - it is shown, never run
            # Rows of whole files go through Spark, which would round such a column; patched rows do not.
            needs_read = first_column_rounded_by_spark(context.metadata.schema()) is not None
            plan = self._plan_matching(context, statement, self.condition, _WHERE, ready.reads_target, needs_read)
            if plan.mode == "merge-on-read":
                refuse_rounded(context, "UPDATE")
            assignments = assignments.with_values(ready.values)
            refuse_truncated([assignments], "UPDATE")
            columns = metadata_columns_in(context, [self.condition, *(v for _, v in self.assignments)])
            if plan.judge.engine == "arrow" and (reason := _reason_for_spark(plan, assignments, columns)):
                plan = replace(plan, judge=Judge("spark", reason))
            read, whole = (TargetRows(context, part, self._alias(context), columns) for part in (plan.read, plan.whole))
            job = _UpdateJob(context, assignments, ready.values[_WHERE], plan.row_filter, read, whole)
            if not plan.is_empty:
                job = job.with_checked_expressions()
            yield RowChange(self.command, plan, _EFFECTS, job.assignments.columns, job.patches, job.local_patches)


def _reason_for_spark(plan: ChangePlan, assignments: Assignments, metadata_columns: tuple[str, ...]) -> str:
    """Return why Spark has to find the rows although Arrow could evaluate the condition; empty if Arrow can."""
    if len(plan.whole.files):
        return "every row of some files changes"
    if metadata_columns:
        return "an expression names a metadata column"
    return "an expression of SET is a Column or has a subquery" if assignments.columns_read() is None else ""


@dataclass(frozen=True)
class _UpdateJob:
    """The rows that an UPDATE changes."""

    context: TableContext
    assignments: Assignments
    where: RowCondition
    expression: BooleanExpression  # the same, as far as files can be evaluated by it
    scanned_rows: TargetRows
    whole_file_rows: TargetRows

    def with_checked_expressions(self) -> _UpdateJob:
        """Add the types of the expressions; reject what does not resolve or fit."""
        expressions = ExpressionChecker(self.scanned_rows.empty_frame())
        if self.where is not None:
            checked = (
                self.where
                if isinstance(self.where, str)
                else row_condition(self.context, self.where, self.scanned_rows.alias)
            )
            expressions.check_condition(_WHERE, checked)
        return replace(self, assignments=self.assignments.with_types(expressions))

    def patches(self) -> DataFrame:
        """The matching rows with the assigned columns; with all columns if whole files change."""
        if not len(self.whole_file_rows.plan.files):
            new = self.assignments.new_columns()
            return self._matching_rows().select(*CHANGE_COLUMNS, *(new[name].alias(name) for name in new))
        return self._whole_rows()

    def local_patches(self) -> pa.Table | None:
        """The same, found in this process; None if the rows are many."""
        schema, names = self.context.metadata.schema(), self.assignments.columns_read()
        fields = [f for f in schema.fields if names is None or f.name.lower() in names]
        found = read_matching_rows(self.scanned_rows.plan, self.context.facts, self.expression, fields)
        if found is None or not found.num_rows:
            return found
        frame = as_dataframe(self.context.spark(), found, schema).alias(self.scanned_rows.alias)
        new = self.assignments.new_columns()
        with translate_spark_errors("UPDATE SET"):
            return collect_table(frame.select(*CHANGE_COLUMNS, *(new[name].alias(name) for name in new)))

    def _whole_rows(self) -> DataFrame:
        parts = []
        if len(self.scanned_rows.plan.files):
            parts.append(self._matching_rows().select(*CHANGE_COLUMNS, *self._new_row_columns(self.scanned_rows)))
        if len(self.whole_file_rows.plan.files):
            no_position = [
                F.lit(None).cast("int").alias(FILE_COLUMN),
                F.lit(None).cast("bigint").alias(POSITION_COLUMN),
            ]
            with translate_spark_errors("UPDATE SET"):
                frame = self.whole_file_rows.frame().withColumn(CLAUSE_COLUMN, F.lit(0))
                parts.append(frame.select(*no_position, CLAUSE_COLUMN, *self._new_row_columns(self.whole_file_rows)))
        return reduce(DataFrame.unionByName, parts)

    def _matching_rows(self) -> DataFrame:
        with translate_spark_errors(_WHERE):
            frame = self.scanned_rows.frame().where(row_condition(self.context, self.where, self.scanned_rows.alias))
            return frame.withColumn(CLAUSE_COLUMN, F.lit(0))

    def _new_row_columns(self, target: TargetRows) -> list[Column]:
        new = self.assignments.new_columns()
        names = [f.name for f in self.context.metadata.schema().fields]
        return [*((new.get(n, column_by_name(n))).alias(n) for n in names), *target.lineage_columns()]
