"""Write the files of a row change, in either mode.

*Merge-on-read*: one job writes the new rows and tells which positions of which files they replace; those become
deletes. *Copy-on-write*: one job tells which rows change, another rewrites the files that hold them. A file no live row
of which stays is dropped in both modes.

Everything written belongs to the commit. What is written before an error is deleted again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from neve.commit.actions import Action, DeleteFiles, Overwrite, RemovedFiles, RowDelta
from neve.commit.isolation import Isolation, RowCommand, with_conflict_checks
from neve.errors import UserError, WriteFailed
from neve.io.deletion_vectors import PositionSet
from neve.io.files import delete_files
from neve.ops.context import TableContext
from neve.ops.rows.changed_files import TouchedFiles, WrittenChange, merge_with_existing_deletes, paths_of
from neve.ops.verb import Execution
from neve.plan.row_change import ChangePlan, stays_in_partition_and_order
from neve.run.change_tally import CLAUSE_COLUMN, FILE_COLUMN, Effects, Tally
from neve.run.read.tasks import build_task_table
from neve.run.read.types import ArrowFlavor, arrow_type
from neve.run.spark.patch import PatchJob
from neve.run.spark.session import quiet_errors
from neve.run.spark.write import count_changes, write_changes
from neve.run.spark.writing_job import persisted
from neve.run.write.delete_files import write_deletes
from neve.run.write.patch import Patch
from neve.run.write.target import WriteOptions, WriteTarget
from neve.tree.entries import EntryTable


@dataclass(frozen=True)
class RowChange:
    """The rows a statement concerns, and what becomes of them."""

    command: RowCommand
    plan: ChangePlan
    effects: Effects
    assigned_columns: tuple[str, ...]  # the columns some clause assigns to, in files that exist
    # Frames are made when they are needed; each has `CHANGE_COLUMNS`.
    positions: Callable[[], DataFrame]  # the rows of files that exist, without values
    patches: Callable[[], DataFrame]  # those, with the columns assigned, and new rows with all columns
    rows: Callable[[], DataFrame]  # those, with all columns
    is_unique: bool = True  # a row met twice is an error
    inserts: bool = False  # some rows may be new
    remaining_inserts: Callable[[PositionSet], DataFrame | None] | None = (
        None  # new rows, known once it is which source rows match
    )
    ambiguity_message: str = ""
    is_pruned: bool = False  # the keys of a source ruled out files
    evolved_context: TableContext | None = None  # the table as the change foresees it, when that is not as it is
    before_commit: Callable[[], None] | None = None  # what must land before the rows


@dataclass
class ChangeExecution:
    """One attempt at a row change: the files it has written so far."""

    context: TableContext
    change: RowChange
    isolation: Isolation
    execution: Execution
    written_paths: list[str] = field(default_factory=list)

    def write(self) -> WrittenChange:
        """Write what the change needs; the result holds the action that commits it."""
        try:
            with quiet_errors():
                return self._write()
        except (WriteFailed, PySparkException) as e:
            delete_files(self.context.io, set(self.written_paths))
            raise _as_user_error(self.change, e) from e
        except BaseException:
            delete_files(self.context.io, set(self.written_paths))
            raise

    def _write(self) -> WrittenChange:
        change, plan = self.change, self.change.plan
        nothing = WrittenChange.nothing(Tally({}, len(change.effects)), self.context.specs)
        if plan.is_empty and not change.inserts:
            return nothing
        if change.command is RowCommand.DELETE and plan.is_metadata_only:
            return replace(nothing, action=DeleteFiles(row_filter=plan.row_filter))
        written = self._write_merge_on_read() if plan.mode == "merge-on-read" else self._write_copy_on_write()
        if written.is_empty:
            return written
        return replace(written, action=self._action(written), written_files=tuple(self.written_paths))

    # -- the modes ---------------------------------------------------------------------------------------------------

    def _write_merge_on_read(self) -> WrittenChange:
        change, plan = self.change, self.change.plan
        if any(change.effects.writes):
            with self.execution.phase("write"):
                added, tally = write_changes(change.rows(), self._write_target(), change.effects)
            self.written_paths += added["file_path"].to_pylist()
        else:
            added, tally = None, self._count(change.positions)
        self._refuse_ambiguous(tally)
        touched = TouchedFiles.of(plan.read, tally)
        rest, tally = self._write_remaining_inserts(tally)
        with self.execution.phase("fold"):
            dropped, partly = merge_with_existing_deletes(self.context, touched).split_emptied_files()
        with self.execution.phase("deletes"):
            deletes = write_deletes(partly.deleted_positions, self._write_target())
        self.written_paths += deletes["file_path"].to_pylist()
        gone = EntryTable.concat([plan.whole.files, dropped.deleted_positions.files], self.context.specs)
        files = self._entry_table(rest if added is None else [added, *rest])
        return WrittenChange(tally, files, deletes, gone, partly.superseded_deletes, touched.files)

    def _write_copy_on_write(self) -> WrittenChange:
        change = self.change
        if not any(change.effects.writes):
            return self._rewrite_files(self._count(change.positions), None)
        with persisted(change.patches()) as changes:
            return self._rewrite_files(self._count(lambda: changes), changes)

    def _count(self, rows: Callable[[], DataFrame]) -> Tally:
        with self.execution.phase("scan"):
            return count_changes(rows(), self.change.effects)

    def _rewrite_files(self, tally: Tally, changes: DataFrame | None) -> WrittenChange:
        """The files that hold a match, rewritten; and the rows that belong to no file yet."""
        self._refuse_ambiguous(tally)
        specs, touched = self.context.specs, TouchedFiles.of(self.change.plan.read, tally)
        patched = [*self._patch_files(touched, tally, changes), *self._write_new_rows(tally, changes)]
        rest, tally = self._write_remaining_inserts(tally)
        gone = EntryTable.concat([self.change.plan.whole.files, touched.files], specs)
        added = self._entry_table([*patched, *rest])
        return WrittenChange(tally, added, EntryTable.empty(specs), gone, None, touched.files)

    def _patch_files(self, touched: TouchedFiles, tally: Tally, changes: DataFrame | None) -> Iterator[pa.Table]:
        if not len(touched.files):
            return
        stays = stays_in_partition_and_order(touched.files, self.context.metadata, self._assigned_ids())
        for mask, is_placed in ((stays, True), (~stays, False)):
            if mask.any():
                patching = self._patch_job(touched.only(mask), tally, changes)
                # better many small files, and in no order, than values that Spark would round
                other = patching.write_redistributed if self._is_carried() else patching.write_unsorted
                with self.execution.phase("rewrite"):
                    files = (patching.write_in_place if is_placed else other)()
                self.written_paths += files["file_path"].to_pylist()
                yield files

    def _patch_job(self, touched: TouchedFiles, tally: Tally, changes: DataFrame | None) -> PatchJob:
        tasks = build_task_table(touched.files, touched.plan.deletes, touched.plan.attached)
        patch = Patch(self.context.facts, self._write_target(), self.change.effects, self.change.assigned_columns)
        spark = self.context.spark()
        if changes is None:
            return PatchJob(spark, patch, tasks, removed_positions=tally.removed_positions)
        chosen = spark.createDataFrame(pa.table({FILE_COLUMN: touched.files["ordinal"]}))
        changed = changes.where(F.col(FILE_COLUMN).isNotNull()).join(F.broadcast(chosen), FILE_COLUMN, "left_semi")
        removes = [n for n, goes in enumerate(self.change.effects.removes) if goes]
        return PatchJob(spark, patch, tasks, changes=changed.where(F.col(CLAUSE_COLUMN).isin(removes)))

    def _write_new_rows(self, tally: Tally, changes: DataFrame | None) -> Iterator[pa.Table]:
        """Rows that come from no file that is patched: inserted ones, and those of files that change as a whole."""
        if changes is None or not tally.has_new_rows:
            return
        with self.execution.phase("write"):
            rows = changes.where(F.col(FILE_COLUMN).isNull())
            files, _ = write_changes(rows, self._write_target(), self.change.effects)
        self.written_paths += files["file_path"].to_pylist()
        yield files

    def _write_remaining_inserts(self, tally: Tally) -> tuple[list[pa.Table], Tally]:
        """The new rows that could not be known before; and everything counted."""
        rows = (
            None if self.change.remaining_inserts is None else self.change.remaining_inserts(tally.matched_source_rows)
        )
        if rows is None:
            return [], tally
        with self.execution.phase("insert"):
            files, more = write_changes(rows, self._write_target(), self.change.effects)
        self.written_paths += files["file_path"].to_pylist()
        return [files], tally.union(more)

    def _action(self, written_change: WrittenChange) -> Action:
        plan = self.change.plan
        start, conflict = plan.snapshot_id, plan.conflict_filter
        gone = (
            RemovedFiles(written_change.removed_data, manifests=plan.read.manifests)
            if len(written_change.removed_data)
            else RemovedFiles()
        )
        if plan.mode == "merge-on-read" or not len(written_change.removed_data):
            delta = RowDelta(
                added_data=written_change.added_data or None,
                added_deletes=written_change.added_deletes or None,
                removed_data=gone,
                removed_deletes=RemovedFiles(written_change.removed_deletes, manifests=plan.read.delete_manifests),
                referenced_data_files=frozenset(written_change.touched_files["file_path"].to_pylist())
                - paths_of(written_change.removed_data),
                vector_targets=RemovedFiles(written_change.touched_files, manifests=plan.read.manifests),
                conflict_filter=conflict,
                start_snapshot_id=start,
            )
            return with_conflict_checks(delta, self.change.command, self.isolation, reads_itself=plan.reads_itself)
        overwrite = Overwrite(
            added=written_change.added_data or None,
            removed=gone,
            conflict_filter=conflict,
            start_snapshot_id=start,
        )
        return with_conflict_checks(overwrite, self.change.command, self.isolation, reads_itself=plan.reads_itself)

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _write_target(self) -> WriteTarget:
        modes = {
            RowCommand.DELETE: self.context.properties.delete_distribution_mode,
            RowCommand.UPDATE: self.context.properties.update_distribution_mode,
            RowCommand.MERGE: self.context.properties.merge_distribution_mode,
        }
        options = WriteOptions(
            distribution=modes[self.change.command] or "hash",  # type: ignore[arg-type]
            row_lineage=self.context.metadata.format_version >= 3,
        )
        return WriteTarget.of(self.context.metadata, self.context.facts.io_properties, options=options)

    def _assigned_ids(self) -> set[int]:
        schema = self.context.metadata.schema()
        return {i for name in self.change.assigned_columns for i in _ids_below(schema, name)}

    def _is_carried(self) -> bool:
        """Whether Spark holds the values of every column without changing them."""
        kinds = [f.field_type for f in self.context.metadata.schema().fields]
        return all(arrow_type(k, ArrowFlavor.SPARK) == arrow_type(k, ArrowFlavor.EXACT) for k in kinds)

    def _entry_table(self, files: list[pa.Table]) -> EntryTable:
        return EntryTable.concat([EntryTable(f, self.context.specs) for f in files], self.context.specs)

    def _refuse_ambiguous(self, tally: Tally) -> None:
        if self.change.is_unique and tally.ambiguous_files():
            raise UserError(self.change.ambiguity_message)


def _as_user_error(change: RowChange, error: Exception) -> Exception:
    """What a value in the data did to a statement, without Spark's stacks."""
    cause = error.__cause__ if isinstance(error, WriteFailed) else error
    said = str(cause).strip().splitlines()[0] if cause is not None and str(cause).strip() else str(error)
    return UserError(f"{change.plan.statement.splitlines()[0]}: {said}")


def _ids_below(schema: Any, name: str) -> set[int]:
    """A column and everything inside it."""
    names = [n for n in schema.column_names if n == name or n.startswith(f"{name}.")]
    return {schema.find_field(n).field_id for n in names}
