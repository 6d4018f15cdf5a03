"""From a plan and the rows it concerns to files and a commit, in either mode.

*Merge-on-read*: one job writes the new rows and tells which positions of which files they replace; those become
deletes. *Copy-on-write*: one job tells which rows change, another rewrites the files that hold them. A file no live row
of which stays is dropped in both modes.

Everything written belongs to the commit. What is written before an error is deleted again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from neve.commit.actions import Action, DeleteFiles, Overwrite, Removed, RowDelta
from neve.commit.isolation import Command, Isolation, guarded
from neve.commit.outcome import Check, Committed, Conflict, Outcome, Rejected
from neve.commit.protocol import commit
from neve.errors import CommitConflict, UserError, WriteFailed
from neve.io.deletion_vectors import PositionSet
from neve.io.files import delete_all
from neve.ops.context import TableContext
from neve.ops.events import Step, tell
from neve.ops.plan_scan import plan as plan_of
from neve.ops.results import ChangeResult
from neve.ops.rows.changed_files import Made, Touched, by_spec, folded, live_rows, paths_of, result_of
from neve.plan.row_change import ChangePlan, in_two, keep_their_place
from neve.plan.scan import ScanPlan
from neve.run.change_tally import CLAUSE, FILE, Effects, Tally
from neve.run.read.tasks import tasks_of
from neve.run.read.types import Carrier, arrow_type
from neve.run.spark.patch import Patching
from neve.run.spark.session import quiet_errors
from neve.run.spark.write import count_changes, write_changes
from neve.run.spark.writing_job import kept
from neve.run.write.delete_files import write_deletes
from neve.run.write.patch import Patch
from neve.run.write.target import WriteOptions, WriteTarget
from neve.tree.entries import EntryTable

T = TypeVar("T")


@dataclass(frozen=True)
class Change:
    """The rows a statement concerns, and what becomes of them."""

    command: Command
    plan: ChangePlan
    effects: Effects
    assigned: tuple[str, ...]  # the columns some clause assigns to, in files that exist
    # Frames are made when they are needed; each has `CHANGE_COLUMNS`.
    positions: Callable[[], DataFrame]  # the rows of files that exist, without values
    patches: Callable[[], DataFrame]  # those, with the columns assigned, and new rows with all columns
    rows: Callable[[], DataFrame]  # those, with all columns
    is_unique: bool = True  # a row met twice is an error
    inserts: bool = False  # some rows may be new
    rest: Callable[[PositionSet], DataFrame | None] | None = None  # new rows, known once it is which source rows match
    ambiguity: str = ""
    is_pruned: bool = False  # the keys of a source ruled out files
    context: TableContext | None = None  # the table as the change foresees it, when that is not as it is
    before_commit: Callable[[], None] | None = None  # what must land before the rows


@dataclass(frozen=True)
class Applied:
    """A change that was committed, or was not due."""

    outcome: Outcome
    result: ChangeResult
    tally: Tally
    is_pruned: bool = False
    is_evolved: bool = False  # what must land before the rows has landed


@dataclass
class Applying:
    """One run of a statement: its clock and the files it has written so far."""

    context: TableContext
    change: Change
    isolation: Isolation
    branch: str
    properties: Mapping[str, str]
    seconds: dict[str, float] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    is_evolved: bool = False

    def run(self) -> Applied:
        """Write what the change needs and commit it."""
        try:
            with quiet_errors():
                return self._run()
        except (WriteFailed, PySparkException) as e:
            self._undo()
            raise _as_user_error(self.change, e) from e
        except BaseException:
            self._undo()
            raise

    def _run(self) -> Applied:
        plan = self.change.plan
        if plan.is_empty and not self.change.inserts:
            return self._nothing(self._tally_of_nothing())
        if self.change.command is Command.DELETE and plan.is_metadata_only:
            return self._dropped()
        made = self._merged_on_read() if plan.mode == "merge-on-read" else self._copied_on_write()
        if made.is_empty:
            return self._nothing(made.tally)
        return self._committed(made)

    # -- the modes ---------------------------------------------------------------------------------------------------

    def _merged_on_read(self) -> Made:
        change, plan = self.change, self.change.plan
        if any(change.effects.writes):
            added, tally = self._phase("write", lambda: write_changes(change.rows(), self._target(), change.effects))
            self._own(added["file_path"].to_pylist())
        else:
            added, tally = None, self._phase("scan", lambda: count_changes(change.positions(), change.effects))
        self._refuse_ambiguous(tally)
        touched = Touched.of(plan.read, tally)
        rest, tally = self._rest(tally)
        all_gone = self._phase("fold", lambda: folded(self.context, touched))
        dropped, partly = all_gone.in_two()
        deletes = self._phase("deletes", lambda: write_deletes(partly.deleted, self._target()))
        self._own(deletes["file_path"].to_pylist())
        gone = EntryTable.concat([plan.whole.files, dropped.deleted.files], self.context.specs)
        files = EntryTable.concat([self._entries(a) for a in (added, *rest)], self.context.specs)
        return Made(tally, files, deletes, gone, partly.superseded, touched.files)

    def _copied_on_write(self) -> Made:
        change = self.change
        if not any(change.effects.writes):
            tally = self._phase("scan", lambda: count_changes(change.positions(), change.effects))
            return self._rewritten(tally, None)
        with kept(change.patches()) as changes:
            tally = self._phase("scan", lambda: count_changes(changes, change.effects))
            return self._rewritten(tally, changes)

    def _rewritten(self, tally: Tally, changes: DataFrame | None) -> Made:
        """The files that hold a match, rewritten; and the rows that belong to no file yet."""
        self._refuse_ambiguous(tally)
        touched = Touched.of(self.change.plan.read, tally)
        patched = [*self._patched(touched, tally, changes), *self._new_rows(tally, changes)]
        rest, tally = self._rest(tally)
        added = [*patched, *rest]
        files = EntryTable.concat([self._entries(a) for a in added], self.context.specs)
        gone = EntryTable.concat([self.change.plan.whole.files, touched.files], self.context.specs)
        return Made(tally, files, EntryTable.empty(self.context.specs), gone, None, touched.files)

    def _patched(self, touched: Touched, tally: Tally, changes: DataFrame | None) -> Iterator[pa.Table]:
        if not len(touched.files):
            return
        stays = keep_their_place(touched.files, self.context.metadata, self._assigned_ids())
        for mask, is_placed in ((stays, True), (~stays, False)):
            if mask.any():
                patching = self._patching(touched.only(mask), tally, changes)
                # better many small files, and in no order, than values that Spark would round
                other = patching.moving if self._is_carried() else patching.in_no_order
                files = self._phase("rewrite", patching.in_place if is_placed else other)
                self._own(files["file_path"].to_pylist())
                yield files

    def _patching(self, touched: Touched, tally: Tally, changes: DataFrame | None) -> Patching:
        tasks = tasks_of(touched.files, touched.plan.deletes, touched.plan.attached)
        patch = Patch(self.context.facts, self._target(), self.change.effects, self.change.assigned)
        spark = self.context.spark()
        if changes is None:
            return Patching(spark, patch, tasks, gone=tally.gone)
        chosen = spark.createDataFrame(pa.table({FILE: touched.files["ordinal"]}))
        changed = changes.where(F.col(FILE).isNotNull()).join(F.broadcast(chosen), FILE, "left_semi")
        removes = [n for n, goes in enumerate(self.change.effects.removes) if goes]
        return Patching(spark, patch, tasks, changes=changed.where(F.col(CLAUSE).isin(removes)))

    def _new_rows(self, tally: Tally, changes: DataFrame | None) -> Iterator[pa.Table]:
        """Rows that come from no file that is patched: inserted ones, and those of files that change as a whole."""
        if changes is None or not tally.has_new_rows:
            return
        rows = changes.where(F.col(FILE).isNull())
        files = self._phase("write", lambda: write_changes(rows, self._target(), self.change.effects)[0])
        self._own(files["file_path"].to_pylist())
        yield files

    def _rest(self, tally: Tally) -> tuple[list[pa.Table], Tally]:
        """The new rows that could not be known before; and everything counted."""
        rows = None if self.change.rest is None else self.change.rest(tally.seen)
        if rows is None:
            return [], tally
        files, more = self._phase("insert", lambda: write_changes(rows, self._target(), self.change.effects))
        self._own(files["file_path"].to_pylist())
        return [files], tally.united(more)

    # -- commit ------------------------------------------------------------------------------------------------------

    def _dropped(self) -> Applied:
        """A DELETE of whole files: metadata only, decided again on what is there when it commits."""
        plan = self.change.plan
        outcome = self._phase("commit", lambda: self._commit(DeleteFiles(row_filter=plan.row_filter)))
        result = ChangeResult(None, plan.mode, attempts=getattr(outcome, "attempts", 0), seconds=self.seconds)
        if isinstance(outcome, Committed):
            try:
                gone = self._gone_with(outcome)
            except Exception:  # it has landed: no error may say otherwise
                gone = plan.whole
            result = replace(
                result,
                snapshot_id=outcome.snapshot_id,
                rows_deleted=live_rows(self.context, gone),
                files_removed=len(gone.files),
                files_removed_by_spec=by_spec(gone.files),
            )
        return Applied(outcome, result, self._tally_of_nothing())

    def _gone_with(self, landed: Committed) -> ScanPlan:
        """The files that a DELETE of whole files took: those there when it landed, which may not be those planned."""
        plan, now = self.change.plan, self.context.refreshed()
        made = now.metadata.snapshot_by_id(landed.snapshot_id) if landed.snapshot_id is not None else None
        if made is None or made.parent_snapshot_id in (None, plan.snapshot_id):
            return plan.whole
        before = now.metadata.snapshot_by_id(made.parent_snapshot_id)
        if before is None:  # expired since
            return plan.whole
        found = plan_of(now.io, now.metadata, before, where=plan.row_filter)
        return in_two(found, plan.row_filter, now.metadata)[1]

    def _committed(self, made: Made) -> Applied:
        outcome = self._phase("commit", lambda: self._commit(self._action(made)))
        change = self.change
        is_counted = isinstance(outcome, Committed) and not change.plan.keeps_whole
        dropped = live_rows(self.context, change.plan.whole) if is_counted else 0
        result = result_of(change.plan, change.effects, made, outcome, dropped, change.is_unique)
        result = replace(result, seconds=self.seconds)
        return Applied(outcome, result, made.tally, change.is_pruned, self.is_evolved)

    def _action(self, made: Made) -> Action:
        plan = self.change.plan
        start, conflict = plan.snapshot_id, plan.conflict_filter
        gone = Removed(made.gone, manifests=plan.read.manifests) if len(made.gone) else Removed()
        if plan.mode == "merge-on-read" or not len(made.gone):
            delta = RowDelta(
                added_data=made.added or None,
                added_deletes=made.deletes or None,
                removed_data=gone,
                removed_deletes=Removed(made.superseded, manifests=plan.read.delete_manifests),
                referenced=frozenset(made.touched["file_path"].to_pylist()) - paths_of(made.gone),
                homes=Removed(made.touched, manifests=plan.read.manifests),
                conflict_filter=conflict,
                start_snapshot_id=start,
            )
            return guarded(delta, self.change.command, self.isolation, reads_itself=plan.reads_itself)
        overwrite = Overwrite(
            added=made.added or None,
            removed=gone,
            conflict_filter=conflict,
            start_snapshot_id=start,
        )
        return guarded(overwrite, self.change.command, self.isolation, reads_itself=plan.reads_itself)

    def _commit(self, action: Action) -> Outcome:
        if self.change.before_commit is not None:
            try:
                self.change.before_commit()
            except CommitConflict as e:  # another writer has changed the columns: the statement is planned anew
                self._undo()
                why = cast(tuple[Conflict, ...], e.conflicts)
                return Rejected(why or (Conflict(Check.CONCURRENT_UPDATE, str(e)),))
            self.is_evolved = True
        owned, self.written = self.written, []  # from here on the commit decides what becomes of them
        return commit(
            self.context.catalog,
            self.context.iceberg,
            action,
            branch=self.branch,
            properties=self.properties,
            environment=self.context.environment,
            owned=owned,
        )

    def _nothing(self, tally: Tally) -> Applied:
        result = ChangeResult(
            None, self.change.plan.mode, files_scanned=len(self.change.plan.read.files), seconds=self.seconds
        )
        return Applied(Committed(None, "", 0), result, tally, self.change.is_pruned)

    def _tally_of_nothing(self) -> Tally:
        return Tally({}, len(self.change.effects))

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _target(self) -> WriteTarget:
        modes = {
            Command.DELETE: self.context.properties.delete_distribution_mode,
            Command.UPDATE: self.context.properties.update_distribution_mode,
            Command.MERGE: self.context.properties.merge_distribution_mode,
        }
        options = WriteOptions(
            distribution=modes[self.change.command] or "hash",  # type: ignore[arg-type]
            row_lineage=self.context.metadata.format_version >= 3,
        )
        return WriteTarget.of(self.context.metadata, self.context.facts.io_properties, options=options)

    def _assigned_ids(self) -> set[int]:
        schema = self.context.metadata.schema()
        return {i for name in self.change.assigned for i in _ids_below(schema, name)}

    def _is_carried(self) -> bool:
        """Whether Spark holds the values of every column without changing them."""
        kinds = [f.field_type for f in self.context.metadata.schema().fields]
        return all(arrow_type(k, Carrier.SPARK) == arrow_type(k, Carrier.EXACT) for k in kinds)

    def _entries(self, files: pa.Table | None) -> EntryTable:
        return EntryTable.empty(self.context.specs) if files is None else EntryTable(files, self.context.specs)

    def _refuse_ambiguous(self, tally: Tally) -> None:
        if self.change.is_unique and tally.ambiguous_files():
            raise UserError(self.change.ambiguity)

    def _own(self, paths: list[str]) -> None:
        self.written += paths

    def _undo(self) -> None:
        if self.written:
            delete_all(self.context.io, set(self.written))
            self.written = []

    def _phase(self, name: str, work: Callable[[], T]) -> T:
        tell(Step(name))
        started = time.perf_counter()
        try:
            return work()
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0) + time.perf_counter() - started, 3)


def _as_user_error(change: Change, error: Exception) -> Exception:
    """What a value in the data did to a statement, without Spark's stacks."""
    cause = error.__cause__ if isinstance(error, WriteFailed) else error
    said = str(cause).strip().splitlines()[0] if cause is not None and str(cause).strip() else str(error)
    return UserError(f"{change.plan.statement.splitlines()[0]}: {said}")


def _ids_below(schema: Any, name: str) -> set[int]:
    """A column and everything inside it."""
    names = [n for n in schema.column_names if n == name or n.startswith(f"{name}.")]
    return {schema.find_field(n).field_id for n in names}
