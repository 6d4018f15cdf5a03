"""Batch writes: workers write data files, the driver commits them once.

Rows arrive in Spark's order, because a Python source cannot request them clustered or sorted. So a task keeps files of
several partitions open, and no file claims the sort order of the table. `Table.append` arranges rows first.

A row that cannot be stored does not fail its task, because Spark would retry the task in vain. The task returns the
reason instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import types as sp

from neve.commit.actions import Append
from neve.commit.outcome import require_committed
from neve.errors import TableError, UserError
from neve.io.files import delete_files
from neve.model.metadata import are_different_tables, table_identity
from neve.ops.context import TableContext
from neve.ops.write.append import WriteAction, with_added_files
from neve.ops.write.overwrite import overwrite_of, partition_overwrite_of
from neve.run.spark.store_assignment import check_spark_schema
from neve.run.write.target import WriteOptions as FileOptions
from neve.run.write.target import WriteTarget
from neve.source.options import TableOptions, WriteOptions
from neve.source.workers import FileWriter, TaskCommitMessage
from neve.tree.entries import EntryTable

CommitMessages = Sequence[TaskCommitMessage | None]  # one per task; None: the task returned none


@dataclass(frozen=True)
class TableWrite:
    """A write to a table: how files are written, and how they change the table."""

    table: TableOptions
    options: WriteOptions
    files: FileWriter
    change: WriteAction  # without the files to add, which are not written yet

    @classmethod
    def of(cls, table: TableOptions, options: WriteOptions, schema: sp.StructType, overwrite: bool) -> TableWrite:
        """Prepare a write of rows with this schema; a schema that cannot be stored is rejected before any job runs."""
        context = table.context()
        head = context.head(options.branch)  # an unknown branch is an error before any row is written
        file_options = FileOptions(target_file_size=options.target_file_size, is_sorted=False)
        target = WriteTarget.of(context.metadata, context.facts.io_properties, options=file_options)
        target.check()
        check_spark_schema(schema, target.file_schema)
        files = FileWriter(target, str(uuid4()), table_identity(context.metadata))
        return cls(table, options, files, _change_without_files(context, head, options, overwrite))

    @property
    def operation_name(self) -> str:
        """The name of the write in errors."""
        return "append" if isinstance(self.change, Append) else "overwrite"

    def commit(self, messages: CommitMessages) -> None:
        """Commit the files of all tasks."""
        context = self.table.context()
        files = self.collect_files(messages, context)
        outcome = context.commit(
            with_added_files(self.change, files),
            branch=self.options.branch,
            properties=self.options.snapshot_properties,
            written_files=files["file_path"].to_pylist(),
        )
        require_committed(outcome, self.operation_name)

    def abort(self, messages: CommitMessages) -> None:
        """Clean up after a failure, unless a commit may have started.

        Spark also aborts if the commit failed or its response was lost. The commit itself deletes files that provably
        did not land; any other file may be in the table. A commit starts only when every task has returned a message.
        """
        if any(m is None for m in messages):
            self.undo(messages)

    def collect_files(self, messages: CommitMessages, context: TableContext) -> EntryTable:
        """Return the files of all tasks; if a task could not store its rows, delete the files of the others."""
        results = [m for m in messages if m is not None]
        problem = next((m.problem for m in results if m.problem is not None), None)
        if problem is not None:
            self.undo(results)
            raise UserError(problem)
        if any(are_different_tables(m.table_id, table_identity(context.metadata)) for m in results):
            self.undo(results)
            raise TableError(
                f"Table {context.name} was dropped and created again while rows were written. None of them landed."
            )
        return EntryTable.concat([m.entries() for m in results], context.specs)

    def undo(self, messages: CommitMessages) -> None:
        """Delete the files that tasks wrote; nothing refers to them."""
        paths = [path for m in messages if m is not None for path in m.entries()["file_path"].to_pylist()]
        delete_files(self.files.target.open_io(), paths)


def _change_without_files(
    context: TableContext, head: Snapshot | None, options: WriteOptions, overwrite: bool
) -> WriteAction:
    if not overwrite:
        return Append()
    if options.overwrite_mode == "dynamic":
        return partition_overwrite_of(head, options.isolation)
    return overwrite_of(context, head, options.overwrite_where, options.isolation)
