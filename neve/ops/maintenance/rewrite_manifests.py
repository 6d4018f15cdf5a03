"""Rewrite the manifests of a table: small ones become one, large ones several, with neighbouring partitions together.

A manifest is opened when its partition ranges meet a filter; manifests with narrow ranges are opened less often. All
specs are included by default: in an evolved table most manifests belong to old specs, and would never be rewritten
otherwise. Manifests that are good already are left alone.

Isolation: commits beside anything that leaves the manifests in place; otherwise it is planned again. The files stay the
same, with their snapshot, sequence numbers and row ids.
Writes: manifests of existing files, each of one spec and kind, of about `commit.manifest.target-size-bytes`.

>>> for i in range(3):
...     _ = t.append([{"id": i, "region": "eu"}])
>>> t.rewrite_manifests().cluster_by("region").execute().summary
'4 manifests with 5 files rewritten to 1'
>>> t.rewrite_manifests().execute().summary
'nothing to rewrite'
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from neve.commit.actions import RewriteManifests as Replacement
from neve.display.format import plural
from neve.display.html import SummaryMixin
from neve.errors import UserError
from neve.ops.context import TableContext
from neve.ops.results import one_row
from neve.ops.verb import Execution, PendingCommit, SnapshotVerb
from neve.plan.manifests import ManifestPlan, plan_manifests, regroup_entries
from neve.tree.entries import DETAIL, EntryTable
from neve.tree.read import manifests_of, read_entries, with_detail


@dataclass(frozen=True, slots=True)
class RewriteManifestsResult(SummaryMixin):
    """What a rewrite of manifests did. If there was nothing to do, no snapshot is made."""

    snapshot_id: int | None = None
    manifests_rewritten: int = 0
    manifests_added: int = 0
    manifests_kept: int = 0
    files: int = 0  # live files that the rewritten manifests hold
    attempts: int = 0
    reruns: int = 0  # how often it was planned again after a conflict with a concurrent writer
    seconds: float = 0.0

    @property
    def output_rows(self) -> pa.Table:
        """The row that Iceberg's procedure returns."""
        return one_row(
            rewritten_manifests_count=pa.scalar(self.manifests_rewritten, pa.int32()),
            added_manifests_count=pa.scalar(self.manifests_added, pa.int32()),
        )

    @property
    def summary(self) -> str:
        """What happened, in a few words."""
        if self.snapshot_id is None:
            return "nothing to rewrite"
        manifests = plural(self.manifests_rewritten, "manifest")
        return f"{manifests} with {plural(self.files, 'file')} rewritten to {self.manifests_added}"


@dataclass(frozen=True)
class RewriteManifests(SnapshotVerb[ManifestPlan, RewriteManifestsResult]):
    """A rewrite of manifests: `.cluster_by(…)`, then `.plan()`, `.explain()` or `.execute()`."""

    spec_id: int | None = None
    fields: tuple[str, ...] | None = None

    title = "rewrite of manifests"

    # -- building ----------------------------------------------------------------------------------------------------

    def spec(self, spec_id: int) -> Self:
        """Rewrite the manifests of one partition spec only."""
        return replace(self, spec_id=spec_id)

    def cluster_by(self, *fields: str) -> Self:
        """Put files together that are close in these partition fields.

        By default all fields count, in the order of the spec. If a spec lacks some of the fields, the others count.
        """
        if not fields:
            raise UserError("Name the partition fields to cluster by, or leave cluster_by out to use all of them.")
        return replace(self, fields=fields)

    # -- planning ----------------------------------------------------------------------------------------------------

    def _plan(self, context: TableContext) -> ManifestPlan:
        head = context.head(self.target_branch)
        # A view of a manifest goes where the manifest goes.
        manifests = [m for m in manifests_of(context.io, context.metadata, head) if not m.is_view]
        return plan_manifests(
            manifests,
            lambda group: read_entries(context.io, group, context.specs, live_only=True),
            context.specs,
            context.properties.manifest_target_size,
            spec_id=self.spec_id,
            sort_by=self.fields,
            snapshot_id=None if head is None else head.snapshot_id,
        )

    # -- running -----------------------------------------------------------------------------------------------------

    def _write(self, context: TableContext, plan: ManifestPlan, execution: Execution) -> PendingCommit:
        """Read the entries of the new manifests; the commit writes them."""
        if not plan.groups:
            return PendingCommit()
        groups: list[EntryTable] = []
        with execution.phase("read manifests"):
            for group in plan.groups:
                detailed = with_detail(context.io, group.entries, group.manifests, DETAIL.names)
                groups += regroup_entries(group, detailed, self.fields)
        removed = frozenset(m.path for g in plan.groups for m in g.manifests)
        return PendingCommit(action=Replacement(removed, tuple(groups)))

    def _result(
        self, context: TableContext, plan: ManifestPlan, written: PendingCommit, execution: Execution
    ) -> RewriteManifestsResult:
        committed = execution.committed
        if committed.snapshot_id is None:
            return RewriteManifestsResult(manifests_kept=plan.manifests_kept, reruns=execution.reruns)
        return RewriteManifestsResult(
            snapshot_id=committed.snapshot_id,
            manifests_rewritten=plan.manifests,
            manifests_added=int(committed.summary.get("manifests-created", 0)),
            manifests_kept=plan.manifests_kept,
            files=plan.files,
            attempts=committed.attempts,
            reruns=execution.reruns,
            seconds=execution.total_seconds,
        )
