"""Write the files of a row change, in either mode.

First the rows are found, with their new values: by Arrow in this process, or by a Spark job that reads only the columns
that the statement names. Then they are carried: Arrow reads the other columns from the files. *Merge-on-read* writes
the changed rows, and deletes for their old positions; *copy-on-write* rewrites the files that hold them. In both modes
a file without remaining live rows is dropped. Rows that belong to no file, and those of files that change as a whole,
are written from Spark.

All written files belong to the commit. After an error they are deleted again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from neve.commit.actions import Action, DeleteFiles, Overwrite, RemovedFiles, RowDelta
from neve.commit.isolation import Isolation, RowCommand, with_conflict_checks
from neve.errors import UserError, WriteFailed
from neve.io.files import delete_files
from neve.ops.context import TableContext
from neve.ops.rows.changed_files import RowChange, TouchedFiles, WrittenChange, merge_with_existing_deletes, paths_of
from neve.ops.scan import is_exact_in_spark
from neve.ops.verb import Execution
from neve.plan.row_change import stays_in_partition_and_order
from neve.run.change_tally import CHANGE_COLUMNS, CLAUSE_COLUMN, FILE_COLUMN, Tally
from neve.run.find_rows import tally_matching_rows, tally_rows
from neve.run.read.tasks import build_task_table
from neve.run.spark.patch import PatchJob
from neve.run.spark.session import quiet_errors
from neve.run.spark.write import collect_changes, count_changes, write_changes
from neve.run.spark.writing_job import LocalLimits, persisted
from neve.run.write.data_files import write_arrow_table
from neve.run.write.delete_files import write_deletes
from neve.run.write.patch import Patch
from neve.run.write.target import WriteOptions, WriteTarget
from neve.tree.entries import EntryTable


@dataclass
class ChangeExecution:
    """One attempt at a row change, and the files it has written so far."""

    context: TableContext
    change: RowChange
    isolation: Isolation
    execution: Execution
    written_paths: list[str] = field(default_factory=list)

    def write(self) -> WrittenChange:
        """Write the files of the change; the result holds the action that commits them."""
        try:
            with quiet_errors():
                return self._write()
        except BaseException as e:
            delete_files(self.context.io, set(self.written_paths))
            if not isinstance(e, WriteFailed | PySparkException):
                raise
            # A value in the data caused it: report its first line, without Spark's stack traces.
            cause = e.__cause__ if isinstance(e, WriteFailed) else e
            reason = str(cause).strip().splitlines()[0] if cause is not None and str(cause).strip() else str(e)
            raise UserError(f"{self.change.plan.statement.splitlines()[0]}: {reason}") from e

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
        added: list[pa.Table] = []
        if not any(change.effects.writes):
            tally = self._count()
        elif change.adds_whole_rows:
            with self.execution.phase("write"):
                files, tally = write_changes(change.patches(), self._write_target(), change.effects)
            self.written_paths += files["file_path"].to_pylist()
            added.append(files)
        else:
            with self._find_patches() as (tally, changes):
                self._refuse_ambiguous(tally)
                added = self._write_changed_rows(TouchedFiles.of(plan.read, tally), tally, changes)
        self._refuse_ambiguous(tally)
        touched = TouchedFiles.of(plan.read, tally)
        inserted, tally = self._write_remaining_inserts(tally)
        with self.execution.phase("fold"):
            emptied, partly_deleted = merge_with_existing_deletes(self.context, touched).split_emptied_files()
        with self.execution.phase("deletes"):
            deletes = write_deletes(partly_deleted.deleted_positions, self._write_target())
        self.written_paths += deletes["file_path"].to_pylist()
        removed = EntryTable.concat([plan.whole.files, emptied.deleted_positions.files], self.context.specs)
        data = self._entry_table([*added, *inserted])
        return WrittenChange(tally, data, deletes, removed, partly_deleted.superseded_deletes, touched.files)

    def _write_copy_on_write(self) -> WrittenChange:
        change = self.change
        if not any(change.effects.writes):
            return self._rewrite_files(self._count(), None)
        with self._find_patches() as (tally, changes):
            return self._rewrite_files(tally, changes)

    @contextmanager
    def _find_patches(self) -> Iterator[tuple[Tally, DataFrame | pa.Table | None]]:
        """Find the rows to change, with their new values; few of them are brought into this process."""
        change = self.change
        if not len(change.plan.read.files) and not change.adds_whole_rows:
            yield Tally({}, len(change.effects)), None
            return
        with self.execution.phase("scan"):
            found = change.local_patches() if change.plan.judge.engine == "arrow" else None
        if found is not None:
            yield tally_rows(found.to_batches(), change.effects), found
            return
        with persisted(change.patches()) as changes:
            with self.execution.phase("scan"):
                tally, found = collect_changes(changes, change.effects)
            yield tally, changes if found is None or tally.has_new_rows else found

    def _write_changed_rows(
        self, touched: TouchedFiles, tally: Tally, changes: DataFrame | pa.Table | None
    ) -> list[pa.Table]:
        if not len(touched.files):
            return []
        job = self._patch_job(touched, tally, changes).of_changed_rows()
        with self.execution.phase("write"):
            files = job.write_together() if job.has_few_changes else self._redistribute(job)
        self.written_paths += files["file_path"].to_pylist()
        return [files]

    def _count(self) -> Tally:
        change, plan = self.change, self.change.plan
        with self.execution.phase("scan"):
            if plan.judge.engine == "arrow" and change.command is RowCommand.DELETE:
                return tally_matching_rows(plan.read, self.context.facts, plan.row_filter, change.effects)
            if plan.judge.engine == "arrow" and (found := change.local_patches()) is not None:
                return tally_rows(found.to_batches(), change.effects)
            return count_changes(change.patches(), change.effects)

    def _rewrite_files(self, tally: Tally, changes: DataFrame | pa.Table | None) -> WrittenChange:
        """Rewrite the files that hold a match, and write the rows that belong to no file yet."""
        self._refuse_ambiguous(tally)
        specs, touched = self.context.specs, TouchedFiles.of(self.change.plan.read, tally)
        patched = list(self._patch_files(touched, tally, changes))
        # Inserted rows, and those of files that change as a whole, belong to no file.
        if isinstance(changes, DataFrame) and tally.has_new_rows:
            with self.execution.phase("write"):
                rows = changes.where(F.col(FILE_COLUMN).isNull())
                patched.append(write_changes(rows, self._write_target(), self.change.effects)[0])
            self.written_paths += patched[-1]["file_path"].to_pylist()
        inserted, tally = self._write_remaining_inserts(tally)
        removed = EntryTable.concat([self.change.plan.whole.files, touched.files], specs)
        added = self._entry_table([*patched, *inserted])
        return WrittenChange(tally, added, EntryTable.empty(specs), removed, None, touched.files)

    def _patch_files(
        self, touched: TouchedFiles, tally: Tally, changes: DataFrame | pa.Table | None
    ) -> Iterator[pa.Table]:
        if not len(touched.files):
            return
        schema = self.context.metadata.schema()
        names = [  # the assigned columns and everything inside them
            name
            for column in self.change.assigned_columns
            for name in schema.column_names
            if name == column or name.startswith(f"{column}.")
        ]
        assigned_ids = {schema.find_field(name).field_id for name in names}
        stays = stays_in_partition_and_order(touched.files, self.context.metadata, assigned_ids)
        for mask, is_in_place in ((stays, True), (~stays, False)):
            if not mask.any():
                continue
            job = self._patch_job(touched.only(mask), tally, changes)
            with self.execution.phase("rewrite"):
                files = job.write_in_place() if is_in_place else self._redistribute(job)
            self.written_paths += files["file_path"].to_pylist()
            yield files

    def _redistribute(self, job: PatchJob) -> pa.Table:
        if job.exchanges_columns or is_exact_in_spark(self.context.metadata.schema()):
            return job.write_redistributed()
        return job.write_unsorted()  # many small unsorted files are better than values rounded by Spark

    def _patch_job(self, touched: TouchedFiles, tally: Tally, changes: DataFrame | pa.Table | None) -> PatchJob:
        tasks = build_task_table(touched.files, touched.plan.deletes, touched.plan.attached)
        patch = Patch(self.context.facts, self._write_target(), self.change.effects, self.change.assigned_columns)
        context = self.context
        limits = LocalLimits.of(context.running_spark())
        job = PatchJob(context.spark, patch, tasks, tally.removed_positions, limits, context.running_spark)
        if changes is None:
            return job
        removes = [number for number, is_removed in enumerate(self.change.effects.removes) if is_removed]
        if isinstance(changes, pa.Table):
            is_chosen = pc.is_in(changes[FILE_COLUMN], value_set=touched.files["ordinal"].combine_chunks())
            is_removed = pc.is_in(changes[CLAUSE_COLUMN], value_set=pa.array(removes, changes[CLAUSE_COLUMN].type))
            return replace(job, changes=changes.filter(pc.and_(is_chosen, is_removed)))
        chosen = self.context.spark().createDataFrame(pa.table({FILE_COLUMN: touched.files["ordinal"]}))
        changed = changes.where(F.col(FILE_COLUMN).isNotNull()).join(F.broadcast(chosen), FILE_COLUMN, "left_semi")
        return replace(job, changes=changed.where(F.col(CLAUSE_COLUMN).isin(removes)))

    def _write_remaining_inserts(self, tally: Tally) -> tuple[list[pa.Table], Tally]:
        """Write the new rows that depend on the matches; returns their files and the tally of all rows."""
        remaining = self.change.remaining_inserts
        rows = None if remaining is None else remaining(tally.matched_source_rows)
        if rows is None:
            return [], tally
        with self.execution.phase("insert"):
            files = write_arrow_table(rows.drop_columns([*CHANGE_COLUMNS]), self._write_target())
        self.written_paths += files["file_path"].to_pylist()
        return [files], tally.union(tally_rows(rows.to_batches(), self.change.effects))

    def _action(self, written: WrittenChange) -> Action:
        plan = self.change.plan
        removed = (
            RemovedFiles(written.removed_data, manifests=plan.read.manifests)
            if len(written.removed_data)
            else RemovedFiles()
        )
        if plan.mode == "merge-on-read" or not len(written.removed_data):
            delta = RowDelta(
                added_data=written.added_data or None,
                added_deletes=written.added_deletes or None,
                removed_data=removed,
                removed_deletes=RemovedFiles(written.removed_deletes, manifests=plan.read.delete_manifests),
                referenced_data_files=paths_of(written.touched_files) - paths_of(written.removed_data),
                vector_targets=RemovedFiles(written.touched_files, manifests=plan.read.manifests),
                conflict_filter=plan.conflict_filter,
                start_snapshot_id=plan.snapshot_id,
            )
            return with_conflict_checks(delta, self.change.command, self.isolation, reads_itself=plan.reads_itself)
        overwrite = Overwrite(
            added=written.added_data or None,
            removed=removed,
            conflict_filter=plan.conflict_filter,
            start_snapshot_id=plan.snapshot_id,
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

    def _entry_table(self, files: list[pa.Table]) -> EntryTable:
        return EntryTable.concat([EntryTable(f, self.context.specs) for f in files], self.context.specs)

    def _refuse_ambiguous(self, tally: Tally) -> None:
        if self.change.is_unique and tally.ambiguous_files():
            raise UserError(self.change.ambiguity_message)
