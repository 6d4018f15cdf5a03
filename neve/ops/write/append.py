"""Add rows to a table.

Isolation: an append never conflicts with a concurrent writer; after a lost race it is committed on the new state.
Writes: data files under the current default spec, one manifest for them.

>>> t.append([{"id": 4, "region": "asia"}]).rows_added
1
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow.compute as pc
from pyiceberg.table.snapshots import Snapshot

from neve.commit.actions import Append, Overwrite, ReplacePartitions
from neve.commit.summary import refuse_reserved_properties
from neve.ops.context import TableContext
from neve.ops.results import WriteResult
from neve.ops.verb import Execution, PendingCommit, StageableVerb
from neve.run.spark.input_rows import write_rows
from neve.run.write.target import WriteTarget
from neve.tree.entries import EntryTable

WriteAction: TypeAlias = Append | Overwrite | ReplacePartitions


@dataclass(frozen=True)
class WritePlan:
    """The action of a write, still without its files, and the target they are written to."""

    action: WriteAction
    target: WriteTarget

    def explain(self) -> str:
        """Describe the plan in words."""
        return f"{type(self.action).__name__} under partition spec {self.target.spec_id}"


@dataclass(frozen=True)
class WrittenRows(PendingCommit):
    """The data files that hold the new rows."""

    files: EntryTable


@dataclass(frozen=True)
class WriteRows(StageableVerb[WritePlan, WriteResult]):
    """A verb that writes the caller's rows; it is not run again, as the rows may be readable only once."""

    rows: Any = None

    def _check(self) -> None:
        refuse_reserved_properties(self.properties)

    def _start(self) -> TableContext:
        return self.context  # `Table` has just refreshed it

    def _max_reruns(self, context: TableContext) -> int:
        return 0

    @abstractmethod
    def _action(self, context: TableContext, head: Snapshot | None) -> WriteAction:
        """Return the action on a state with this newest snapshot, without the files."""

    def _plan(self, context: TableContext) -> WritePlan:
        head = self._destination(context).head(context)  # an unknown branch is an error before any row is written
        return WritePlan(self._action(context, head), WriteTarget.of(context.metadata, context.facts.io_properties))

    def _write(self, context: TableContext, plan: WritePlan, execution: Execution) -> WrittenRows:
        with execution.phase("write"):
            files = EntryTable(write_rows(self.rows, plan.target), context.specs)
        action = with_added_files(plan.action, files)
        return WrittenRows(files, action=action, written_files=files["file_path"].to_pylist())

    def _result(
        self, context: TableContext, plan: WritePlan, written: WrittenRows, execution: Execution
    ) -> WriteResult:
        return write_result(written.files, execution)


@dataclass(frozen=True)
class AppendRows(WriteRows):
    """An append; without rows, no snapshot is made."""

    title = "append"

    def _action(self, context: TableContext, head: Snapshot | None) -> Append:
        return Append()


def write_result(files: EntryTable, execution: Execution) -> WriteResult:
    """Describe a write by its new files and its commit."""
    committed = execution.committed
    return WriteResult(
        snapshot_id=committed.snapshot_id,
        rows_added=pc.sum(files["record_count"]).as_py() or 0,
        files_added=len(files),
        bytes_added=pc.sum(files["file_size_in_bytes"]).as_py() or 0,
        files_added_by_spec=files.count_by_spec(),
        files_removed=int(committed.summary.get("deleted-data-files", 0)),
        rows_removed=int(committed.summary.get("deleted-records", 0)),
        attempts=committed.attempts,
        seconds=execution.seconds,
    )


def with_added_files(action: WriteAction, files: EntryTable) -> WriteAction:
    """Add the written files to the action; without files, no partition is replaced."""
    if isinstance(action, Append):
        return replace(action, files=files)
    if isinstance(action, ReplacePartitions) and not len(files):
        return Append(files)
    return replace(action, added=files)
