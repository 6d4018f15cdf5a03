"""Make the changes of another snapshot current: of one that was staged and audited, or of another branch.

If the current snapshot is the parent of the other one, `main` moves to it, whatever it changed. Otherwise its changes
are applied to the current state in a new snapshot, with the same data files: of an append, or of an overwrite of
partitions. The summary of the new snapshot names the source, and the WAP id that is published with it. Nothing is
applied twice.

Isolation: files that the source removed must still be in the table, and partitions that it replaced must have no files
that were added since.
Writes: manifests, for the data files of the source in their own specs; or table metadata only.

>>> t.append([{"id": 4, "region": "eu"}], stage="nightly").rows_added, t.scan().count()
(1, 3)
>>> t.publish_changes("nightly").summary, t.scan().count()
('main moved to the snapshot', 4)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.snapshots import Snapshot

from neve.commit.actions import CherryPick, RemovedFiles
from neve.commit.outcome import Check, Committed, Conflict, Outcome, Rejected
from neve.display.html import SummaryMixin
from neve.errors import CommitConflict
from neve.model.snapshots import PUBLISHED_WAP_ID, SOURCE_SNAPSHOT_ID, STAGED_WAP_ID, summary_value
from neve.ops.context import TableContext
from neve.ops.metadata.refs import point_ref
from neve.ops.results import one_row
from neve.ops.verb import Execution, PendingCommit, Verb
from neve.plan.cherry_pick import CherryPickPlan, plan_cherry_pick, snapshot_staged_as
from neve.tree.entries import DETAIL, EntryTable, Status
from neve.tree.read import manifests_of, read_entries


@dataclass(frozen=True, slots=True)
class CherryPickResult(SummaryMixin):
    """Which snapshot was picked, and which one is current after it."""

    source_snapshot_id: int
    current_snapshot_id: int
    attempts: int = 0
    reruns: int = 0  # how often it was planned again after a conflict with a concurrent writer

    @property
    def output_rows(self) -> pa.Table:
        """The row that Iceberg's procedures return."""
        return one_row(
            source_snapshot_id=pa.scalar(self.source_snapshot_id, pa.int64()),
            current_snapshot_id=pa.scalar(self.current_snapshot_id, pa.int64()),
        )

    @property
    def summary(self) -> str:
        """What happened, in a few words."""
        is_same = self.source_snapshot_id == self.current_snapshot_id
        return "main moved to the snapshot" if is_same else "changes applied in a new snapshot"


@dataclass(frozen=True)
class CherryPickSnapshot(Verb[CherryPickPlan, CherryPickResult]):
    """A cherry-pick of the snapshot with an id, or of the one that was staged under a WAP id."""

    snapshot_id: int | None = None
    wap_id: str | None = None

    title = "cherry-pick"

    def _plan(self, context: TableContext) -> CherryPickPlan:
        if self.wap_id is not None:
            source = snapshot_staged_as(context.name, context.metadata, self.wap_id)
        else:
            source = cast(Snapshot, context.snapshot(self.snapshot_id))  # an unknown id is an error
        return plan_cherry_pick(context.name, context.ancestors(context.head()), source)

    def _write(self, context: TableContext, plan: CherryPickPlan, execution: Execution) -> PendingCommit:
        """Write nothing: the data files are those of the source, which keeps them if the commit is rejected."""
        if plan.fast_forwards:
            return PendingCommit()
        added, removed = _changed_data_files(context, plan.source)
        return PendingCommit(action=CherryPick(plan.source, added, RemovedFiles(removed)))

    def _commit(
        self, context: TableContext, plan: CherryPickPlan, written: PendingCommit, execution: Execution
    ) -> Outcome:
        if written.action is not None:
            wap_id = summary_value(plan.source, STAGED_WAP_ID)
            published = {} if wap_id is None else {PUBLISHED_WAP_ID: wap_id}
            properties = {SOURCE_SNAPSHOT_ID: str(plan.source.snapshot_id), **published}
            return context.commit(written.action, properties=properties)
        try:
            point_ref(context, "main", plan.source.snapshot_id)
        except CommitConflict as e:  # main has moved: the changes may have to be applied again
            return Rejected((Conflict(Check.HISTORY, str(e)),))
        return Committed(plan.source.snapshot_id, context.iceberg.metadata_location, 1)

    def _result(
        self, context: TableContext, plan: CherryPickPlan, written: PendingCommit, execution: Execution
    ) -> CherryPickResult:
        committed = execution.committed
        current = committed.snapshot_id or plan.current_snapshot_id or plan.source.snapshot_id
        return CherryPickResult(plan.source.snapshot_id, current, committed.attempts, execution.reruns)


def _changed_data_files(context: TableContext, snapshot: Snapshot) -> tuple[EntryTable, EntryTable]:
    """Read the data files that a snapshot added, and those that it removed."""
    snapshot_id = snapshot.snapshot_id
    manifests = [
        manifest
        for manifest in manifests_of(context.io, context.metadata, snapshot)
        if manifest.added_snapshot_id == snapshot_id and not manifest.is_deletes
    ]
    entries = read_entries(context.io, manifests, context.specs, detail=DETAIL.names)
    own = entries.filter(pc.equal(entries["snapshot_id"], snapshot_id))
    added, removed = (own.filter(pc.equal(own["status"], int(s))) for s in (Status.ADDED, Status.DELETED))
    return added, removed
