"""Delete rows that match a condition.

Whole files are dropped by metadata alone when their partition or their statistics prove that every row matches.
Otherwise the mode of the table decides between rewriting the file (copy-on-write) and adding deletes (merge-on-read).
Deletes keep the spec of the file they belong to.

Isolation: serializable unless `write.delete.isolation-level` says otherwise.
Writes: rewritten files under the current default spec; deletes under the spec of the file they cover.

>>> t.delete().where("region = 'eu'").execute().summary
'2 deleted, 1 file removed'
>>> t.to_arrow()["id"].to_pylist()
[2]
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from neve.commit.isolation import RowCommand
from neve.ops.context import TableContext
from neve.ops.results import DeleteResult
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
from neve.run.change_tally import CHANGE_COLUMNS, CLAUSE_COLUMN, Effects
from neve.run.spark.expressions import ExpressionChecker

_CLAUSE = "DELETE WHERE"
_EFFECTS = Effects(removes=(True,), writes=(False,))


@dataclass(frozen=True)
class Delete(RowStatement[DeleteResult]):
    """A DELETE: `.where(…)`, then `.plan()`, `.explain()` or `.execute()`."""

    condition: RowCondition = None

    command = RowCommand.DELETE
    result_type = DeleteResult

    def where(self, condition: RowCondition) -> Self:
        """Delete the rows for which SQL text, a Column or a PyIceberg expression is true; all rows without it."""
        return replace(self, condition=self._combine_conditions(self.condition, condition))

    @contextmanager
    def _plan(self, context: TableContext) -> Iterator[RowChange]:
        with resolve_subqueries(context, {_CLAUSE: self.condition}) as ready:
            statement = f"DELETE FROM {context.name}"  # noqa: S608 - it is shown, never run
            plan = self._plan_matching(context, statement, self.condition, _CLAUSE, ready.reads_target)
            columns = metadata_columns_in(context, [self.condition])
            target = TargetRows(context, plan.read, self._alias(context), columns)
            condition = ready.values[_CLAUSE]
            where = row_condition(context, condition, target.alias)
            if plan.judge.engine == "spark" and not plan.is_metadata_only and condition is not None:
                checked = condition if isinstance(condition, str) else where
                ExpressionChecker(target.empty_frame()).check_condition(_CLAUSE, checked)

            def positions() -> DataFrame:
                with translate_spark_errors(_CLAUSE):
                    return target.frame().where(where).withColumn(CLAUSE_COLUMN, F.lit(0)).select(*CHANGE_COLUMNS)

            yield RowChange(self.command, plan, _EFFECTS, (), positions)
