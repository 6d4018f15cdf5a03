"""Remove delete files that apply to no live data file.

They cost every scan that meets their partition, and delete nothing. Dangling is a delete file that a scan would read
for no data file: its file is gone, all files of its partition are newer, or no file has a value it deletes.

Isolation: the delete files must apply to nothing when the commit lands too; otherwise it is planned again.
Writes: no files but manifests; the snapshot is a `replace`.

>>> t.remove_dangling_deletes().execute().summary
'nothing to remove'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neve.commit.actions import RemovedFiles, RewriteFiles
from neve.commit.outcome import Committed
from neve.commit.summary import FileCounts
from neve.display.format import plural
from neve.display.html import SummaryMixin
from neve.ops.context import TableContext
from neve.ops.verb import Execution, PendingCommit, SnapshotVerb
from neve.plan.delete_files import DanglingPlan, dangling_deletes
from neve.plan.metrics_filter import STATISTICS
from neve.tree.entries import DETAIL, Content, EntryTable, Manifest
from neve.tree.read import manifests_of, read_entries


@dataclass(frozen=True, slots=True)
class DanglingResult(SummaryMixin):
    """Which delete files were removed. No snapshot is made when there were none."""

    snapshot_id: int | None = None
    delete_files_removed: int = 0
    vectors_removed: int = 0  # of those
    equality_delete_files_removed: int = 0  # of those
    bytes_removed: int = 0
    attempts: int = 0
    reruns: int = 0  # how often it was planned again because another writer got in the way
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """What happened, in a few words."""
        removed = self.delete_files_removed
        return f"{plural(removed, 'delete file')} removed" if removed else "nothing to remove"


@dataclass(frozen=True)
class RemoveDanglingDeletes(SnapshotVerb[DanglingPlan, DanglingResult]):
    """A removal of dangling deletes on its way: `.branch(name)`, then `.plan()`, `.explain()` or `.execute()`."""

    title = "removal of dangling deletes"

    def _plan(self, context: TableContext) -> DanglingPlan:
        head = context.head(self.target_branch)
        manifests = [m for m in manifests_of(context.io, context.metadata, head) if m.may_hold_live_files]
        deletes = _read_live_entries(context, manifests, True, DETAIL.names)
        head_id = None if head is None else head.snapshot_id
        if not len(deletes):
            return DanglingPlan(head_id, deletes)
        statistics = STATISTICS if len(deletes.of_content(Content.EQUALITY_DELETES)) else ()
        data = _read_live_entries(context, manifests, False, statistics)
        return DanglingPlan(head_id, dangling_deletes(data, deletes), len(deletes))

    def _write(self, context: TableContext, plan: DanglingPlan, execution: Execution) -> PendingCommit:
        """Write nothing: the commit takes the delete files out of the table. They are deleted by a later expiry."""
        if not len(plan.deletes):
            return PendingCommit()
        action = RewriteFiles(
            removed_deletes=RemovedFiles(plan.deletes),
            start_snapshot_id=plan.snapshot_id,
            covered_data_files=frozenset(),
        )
        return PendingCommit(action=action)

    def _result(
        self,
        context: TableContext,
        plan: DanglingPlan,
        written: PendingCommit,
        committed: Committed,
        execution: Execution,
    ) -> DanglingResult:
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


def _read_live_entries(
    context: TableContext, manifests: Sequence[Manifest], is_deletes: bool, detail: Sequence[str]
) -> EntryTable:
    chosen = [m for m in manifests if m.is_deletes == is_deletes]
    return read_entries(context.io, chosen, context.specs, detail=detail, live_only=True)
