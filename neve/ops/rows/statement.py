"""What UPDATE, DELETE and MERGE have in common: a statement that is built up, planned and executed.

A statement is a value; every call returns a new one. `plan()` and `explain()` show what it would do. `execute()` runs
it. After a conflict with a concurrent writer it runs again on the new state, a few times: the statement is
deterministic, so running it again is what its author meant.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyspark.sql import Column

from neve.commit.isolation import Isolation, RowCommand, isolation_of
from neve.commit.outcome import Check, Committed, Conflict, Outcome, Rejected
from neve.errors import CommitConflict, UnknownName, UnsupportedFeature, UserError
from neve.io.files import delete_files
from neve.ops.context import TableContext
from neve.ops.plan_scan import plan_snapshot_scan
from neve.ops.results import ChangeResult
from neve.ops.rows.apply_change import ChangeExecution
from neve.ops.rows.changed_files import RowChange, WrittenChange, change_result
from neve.ops.rows.target_rows import RowCondition, predicate_of
from neve.ops.verb import Execution, PendingCommit, StageableVerb
from neve.plan.row_change import ChangePlan, Judge, Mode, split_fully_matching
from neve.plan.row_estimate import estimate_rows
from neve.plan.scan import ScanPlan
from neve.run.spark.session import spark_itself

MODES: tuple[Mode, ...] = ("copy-on-write", "merge-on-read")

R = TypeVar("R", bound=ChangeResult)


@dataclass(frozen=True)
class Settings:
    """Settings of one statement that override the properties of the table."""

    mode: Mode | None = None
    isolation: Isolation | None = None
    reruns: int | None = None
    alias: str | None = None


@dataclass(frozen=True)
class RowStatement(StageableVerb[ChangePlan, R]):
    """A statement that changes rows of a table."""

    settings: Settings = field(default_factory=Settings)

    command: ClassVar[RowCommand]
    result_type: ClassVar[type[Any]]

    # -- building ----------------------------------------------------------------------------------------------------

    def mode(self, mode: str) -> Self:
        """Write in this mode, `copy-on-write` or `merge-on-read`, whatever the table's property is."""
        if mode not in MODES:
            raise UnknownName("mode", mode, MODES)
        return self._with_settings(mode=mode)

    def isolation(self, level: str) -> Self:
        """Commit at this level: `serializable` or `snapshot`."""
        if level not in tuple(Isolation):
            raise UnknownName("isolation level", level, [str(i) for i in Isolation])
        return self._with_settings(isolation=Isolation(level))

    def reruns(self, count: int) -> Self:
        """Run the statement again at most this often after a conflict with a concurrent writer; 0 fails at once."""
        if count < 0:
            raise UserError(f"Cannot run a statement again {count} times. Give 0 or more.")
        return self._with_settings(reruns=count)

    def alias(self, name: str) -> Self:
        """Set the name with which columns may be qualified; by default the last part of the table's name."""
        return self._with_settings(alias=name)

    def _with_settings(self, **changes: Any) -> Self:
        return replace(self, settings=replace(self.settings, **changes))

    # -- planning ----------------------------------------------------------------------------------------------------

    @spark_itself()
    def plan(self) -> ChangePlan:
        """Plan which files would be read, dropped, rewritten or given deletes; nothing is run."""
        self._check()
        with self._open_plan(self.context.refreshed()) as change:
            return change.plan

    @abstractmethod
    def _plan(self, context: TableContext) -> AbstractContextManager[RowChange]:
        """Plan the change of rows; its views and cached rows stay open until the commit."""

    # -- running -----------------------------------------------------------------------------------------------------

    @property
    def title(self) -> str:  # type: ignore[override]
        """What errors call the statement."""
        return self.command.value

    def _max_reruns(self, context: TableContext) -> int:
        return context.properties.reruns if self.settings.reruns is None else self.settings.reruns

    def _write(self, context: TableContext, change: RowChange, execution: Execution) -> WrittenChange:
        return ChangeExecution(change.evolved_context or context, change, self._isolation(context), execution).write()

    def _publish(
        self, context: TableContext, change: RowChange, written: PendingCommit, execution: Execution
    ) -> Outcome:
        state = change.evolved_context or context
        if change.before_commit is not None:
            try:
                change.before_commit()
            except BaseException as e:
                delete_files(state.io, set(written.written_files))
                if not isinstance(e, CommitConflict):
                    raise
                # A concurrent writer has changed the columns: the statement is planned again.
                conflicts = cast(tuple[Conflict, ...], e.conflicts)
                return Rejected(conflicts or (Conflict(Check.CONCURRENT_UPDATE, str(e)),))
            execution.has_changed_schema = True
        return super()._publish(state, change, written, execution)

    def _require(self, outcome: Outcome, execution: Execution) -> Committed:
        if not isinstance(outcome, Rejected) or all(c.rule.is_about_input for c in outcome.conflicts):
            return super()._require(outcome, execution)
        reasons = " ".join(str(c) for c in outcome.conflicts)
        again = f" It was run again {execution.reruns} times." if execution.reruns else ""
        added_columns = "The columns of the source were added, and no row was changed"
        effect = added_columns if execution.has_changed_schema else "Nothing was changed"
        raise CommitConflict(
            f"The {self.title} did not land: {reasons}{again} {effect}; run it again when the other writers have "
            "finished.",
            outcome.conflicts,
        )

    def _result(self, context: TableContext, change: RowChange, written: WrittenChange, execution: Execution) -> R:
        result = change_result(change.evolved_context or context, change, written, execution.committed)
        counts = {f.name: getattr(result, f.name) for f in fields(result)}
        return self.result_type(**counts | {"seconds": execution.seconds, "reruns": execution.reruns})

    # -- for the statements ------------------------------------------------------------------------------------------

    def _isolation(self, context: TableContext) -> Isolation:
        return self.settings.isolation or isolation_of(context.properties, self.command)

    def _alias(self, context: TableContext) -> str:
        return self.settings.alias or context.iceberg.name()[-1]

    def _plan_matching(
        self,
        context: TableContext,
        change: str,
        where: RowCondition,
        clause: str,
        reads_itself: bool,
        needs_read: bool = False,
    ) -> ChangePlan:
        """Plan a change of the rows that match a condition.

        Files in which every row matches for certain change as a whole, unless all files have to be read.
        """
        predicate = predicate_of(context, where, self._alias(context), clause)
        read = self._scan_plan(context, predicate.expression)
        whole = read.only(np.zeros(len(read.files), bool))
        if predicate.is_exact and not needs_read:
            read, whole = split_fully_matching(read, predicate.expression, context.metadata)
        statement = change if where is None else f"{change} WHERE {where}"
        plan = self._build_change_plan(context, statement, read, whole, predicate.expression, reads_itself)
        expected = estimate_rows(predicate.expression, context.metadata, read.snapshot_id)
        return replace(plan, judge=Judge.of(predicate, read), expected=expected)

    def _build_change_plan(
        self,
        context: TableContext,
        statement: str,
        read: ScanPlan,
        whole: ScanPlan,
        row_filter: BooleanExpression,
        reads_itself: bool,
        notes: tuple[str, ...] = (),
    ) -> ChangePlan:
        modes = {
            RowCommand.DELETE: context.properties.delete_mode,
            RowCommand.UPDATE: context.properties.update_mode,
            RowCommand.MERGE: context.properties.merge_mode,
        }
        mode = cast(Mode, self.settings.mode or modes[self.command])
        version = context.metadata.format_version
        if mode == "merge-on-read" and version < 2:
            raise UnsupportedFeature(
                f"Cannot {self.command.value} merge-on-read in table {context.name}: format version {version} has no "
                "delete files. Use copy-on-write, or upgrade the table to version 2 or later."
            )
        return ChangePlan(
            statement=statement,
            mode=mode,
            isolation=str(self._isolation(context)),
            format_version=version,
            default_spec_id=context.metadata.default_spec_id,
            read=read,
            whole=whole,
            keeps_whole=self.command is RowCommand.UPDATE,
            row_filter=row_filter,
            conflict_filter=AlwaysTrue() if reads_itself else row_filter,
            reads_itself=reads_itself,
            notes=notes,
        )

    @staticmethod
    def _combine_conditions(first: RowCondition, second: RowCondition) -> RowCondition:
        """Join two conditions that must both hold."""
        match first, second:
            case None, _:
                return second
            case str(), str():
                return f"({first}) AND ({second})"
            case BooleanExpression(), BooleanExpression():
                return And(first, second)
            case Column(), Column():
                return first & second
        raise UserError("Give all conditions of a statement in one form: SQL text, Columns or PyIceberg expressions.")

    def _scan_plan(self, context: TableContext, predicate: BooleanExpression | None) -> ScanPlan:
        facts = context.facts
        always = ("value_counts",) if facts.columns_that_may_be_missing(facts.schema) else ()
        head = self._destination(context).head(context)
        return plan_snapshot_scan(context.io, context.metadata, head, where=predicate, always_read=always)
