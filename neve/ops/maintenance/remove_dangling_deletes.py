"""Remove delete files that apply to no live data file.

They cost every scan that reads their partition, and delete nothing. A delete file is dangling if a scan would read it
for no data file: its data file is gone, all files of its partition are newer, or no file has a value that it deletes.

Isolation: the delete files must apply to nothing when the commit lands, too; otherwise it is planned again.
Writes: no files except manifests; the snapshot is a `replace`.

>>> t.remove_dangling_deletes().execute().summary
'nothing to remove'
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from neve.commit.actions import RemovedFiles, RewriteFiles
from neve.commit.summary import FileCounts
from neve.display.format import plural
from neve.display.html import SummaryMixin
from neve.ops.context import TableContext
from neve.ops.results import one_row
from neve.ops.verb import Execution, PendingCommit, SnapshotVerb
from neve.plan.delete_files import DanglingPlan, dangling_deletes
from neve.plan.metrics_filter import STATISTICS
from neve.tree.entries import DETAIL, Content


@dataclass(frozen=True, slots=True)
class DanglingResult(SummaryMixin):
    """Which delete files were removed. If there were none, no snapshot is made."""

    snapshot_id: int | None = None
    delete_files_removed: int = 0
    vectors_removed: int = 0  # of those
    equality_delete_files_removed: int = 0  # of those
    bytes_removed: int = 0
    attempts: int = 0
    reruns: int = 0  # how often it was planned again after a conflict with a concurrent writer
    seconds: float = 0.0

    @property
    def output_rows(self) -> pa.Table:
        """The result as a row, as Iceberg's procedures return theirs; Iceberg has no such procedure."""
        return one_row(removed_delete_files_count=pa.scalar(self.delete_files_removed, pa.int32()))

    @property
    def summary(self) -> str:
        """What happened, in a few words."""
        removed = self.delete_files_removed
        return f"{plural(removed, 'delete file')} removed" if removed else "nothing to remove"


@dataclass(frozen=True)
class RemoveDanglingDeletes(SnapshotVerb[DanglingPlan, DanglingResult]):
    """A removal of dangling deletes: `.branch(name)`, then `.plan()`, `.explain()` or `.execute()`."""

    title = "removal of dangling deletes"

    def _plan(self, context: TableContext) -> DanglingPlan:
        head = context.head(self.target_branch)
        manifests = context.live_manifests(head)
        deletes = context.live_entries([m for m in manifests if m.is_deletes], DETAIL.names)
        head_id = None if head is None else head.snapshot_id
        if not len(deletes):
            return DanglingPlan(head_id, deletes)
        statistics = STATISTICS if len(deletes.of_content(Content.EQUALITY_DELETES)) else ()
        data = context.live_entries([m for m in manifests if not m.is_deletes], statistics)
        return DanglingPlan(head_id, dangling_deletes(data, deletes), len(deletes))

    def _write(self, context: TableContext, plan: DanglingPlan, execution: Execution) -> PendingCommit:
        """Write nothing: the commit removes the delete files from the table. A later expiry deletes them."""
        if not len(plan.deletes):
            return PendingCommit()
        action = RewriteFiles(
            removed_deletes=RemovedFiles(plan.deletes),
            start_snapshot_id=plan.snapshot_id,
            covered_data_files=frozenset(),
        )
        return PendingCommit(action=action)

    def _result(
        self, context: TableContext, plan: DanglingPlan, written: PendingCommit, execution: Execution
    ) -> DanglingResult:
        committed = execution.committed
        if committed.snapshot_id is None:
            return DanglingResult(reruns=execution.reruns)
        tally = FileCounts.of(plan.deletes)
        return DanglingResult(
            snapshot_id=committed.snapshot_id,
            delete_files_removed=tally.delete_files,
            vectors_removed=tally.vectors,
            equality_delete_files_removed=tally.equality_delete_files,
            bytes_removed=tally.bytes,
            attempts=committed.attempts,
            reruns=execution.reruns,
            seconds=execution.total_seconds,
        )
