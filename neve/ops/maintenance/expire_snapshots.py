"""Expire old snapshots, and delete the files that only they reference.

Snapshots older than a time expire, except the newest few of each branch and those that a branch or tag points at;
branches and tags that are too old expire first. Snapshots can also be named. Files are deleted only after the change of
the table is known to have landed, and only if no remaining snapshot has them as live. A file outside the table's
locations stays, as it may belong to another table too, and so does a file that another table of the catalog references.
If the same table has another entry in the catalog, an expiry needs `allow_shared()`; if an entry cannot be read, it
needs `allow_unreadable()`.

Isolation: lands only if no branch or tag has moved; otherwise everything is planned again.
Writes: table metadata only. Deletes data files, delete files, manifests, manifest lists and statistics.

>>> _ = t.overwrite([{"id": 4, "region": "eu"}])
>>> from datetime import datetime, timezone
>>> expire = t.expire_snapshots().older_than(datetime.now(timezone.utc)).retain_last(1)
>>> len(expire.plan().snapshot_ids)
1
>>> expire.execute().summary
'1 snapshot expired, 2 data files, 1 manifest and 1 manifest list deleted'
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import Literal, Self, cast, get_args

import pyarrow as pa

from neve.catalog.rest import RestCatalogMixin
from neve.commit.cleanup import delete_reachable_files
from neve.commit.expiry import Expiry, unused_specs_and_schemas
from neve.commit.neighbours import AllowedNeighbours, SharedFilesError, find_neighbours
from neve.commit.reachable_files import UnreachableFiles, find_unreachable_files, roots_of
from neve.display.format import join_with_and, plural
from neve.display.html import ExplainMixin, SummaryMixin
from neve.errors import UnknownName, UserError
from neve.model.metadata import TableMetadata
from neve.model.metadata_updates import apply_updates
from neve.ops.context import TableContext
from neve.ops.events import Step, emit
from neve.ops.metadata.evolve import RequirementsAndUpdates, commit_updates
from neve.ops.results import milliseconds, one_row
from neve.ops.verb import Execution, Verb
from neve.plan.retention import RetentionRules, decide_retention

CleanupLevel = Literal["all", "metadata", "none"]


@dataclass(frozen=True)
class ExpirePlan(ExplainMixin):
    """What an expiry removes from a table, and the files it deletes."""

    expiry: Expiry
    kept: tuple[int, ...]  # the snapshots that remain
    left: UnreachableFiles

    @property
    def snapshot_ids(self) -> tuple[int, ...]:
        """The snapshots that expire."""
        return self.expiry.snapshot_ids

    @property
    def refs(self) -> tuple[str, ...]:
        """The branches and tags that expire."""
        return self.expiry.refs

    @property
    def files(self) -> tuple[str, ...]:
        """The files to delete, in the order of deletion."""
        return tuple(path for paths in self.left.in_deletion_order for path in paths)

    def explain(self) -> str:
        """Describe the plan in words."""
        total = len(self.kept) + len(self.snapshot_ids)
        lines = [f"expire {len(self.snapshot_ids)} of {plural(total, 'snapshot')}"]
        lines += [f"  snapshot {i}" for i in self.snapshot_ids]
        lines += [f"  branch or tag {name!r}" for name in self.refs]
        lines += [f"  partition spec {i}" for i in self.expiry.spec_ids]
        lines += [f"  schema {i}" for i in self.expiry.schema_ids]
        lines += [f"delete {files}" for files in self.left.counts]
        lines += [f"keep {plural(len(self.left.outside), 'file')} outside the table"] if self.left.outside else []
        shared = Counter(self.left.shared.values())
        lines += [f"keep {plural(count, 'file')} that {name} references" for name, count in shared.items()]
        lines += [f"{path} is missing already" for path in self.left.missing]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ExpireResult(SummaryMixin):
    """What an expiry did. Files that could not be deleted are orphans, and reported with the reason.

    >>> ExpireResult((1, 2), spec_ids=(0,)).summary
    '2 snapshots and 1 spec expired'
    """

    snapshot_ids: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()
    spec_ids: tuple[int, ...] = ()
    schema_ids: tuple[int, ...] = ()
    deleted: UnreachableFiles = field(default_factory=UnreachableFiles)
    files_kept: Mapping[str, str] = field(default_factory=dict)  # unreferenced files that stay, with the reason
    attempts: int = 0
    seconds: float = 0.0

    @property
    def files_deleted(self) -> int:
        """The number of deleted files."""
        return len(self.deleted)

    @property
    def output_rows(self) -> pa.Table:
        """The row that Iceberg's procedure returns."""
        counts = {
            "deleted_data_files_count": self.deleted.data_files,
            "deleted_position_delete_files_count": self.deleted.position_deletes,
            "deleted_equality_delete_files_count": self.deleted.equality_deletes,
            "deleted_manifest_files_count": self.deleted.manifests,
            "deleted_manifest_lists_count": self.deleted.lists,
            "deleted_statistics_files_count": self.deleted.statistics,
        }
        return one_row(**{name: pa.scalar(len(files), pa.int64()) for name, files in counts.items()})

    @property
    def summary(self) -> str:
        """What happened, in a few words."""
        if not (self.snapshot_ids or self.refs or self.spec_ids or self.schema_ids):
            return "nothing to expire"
        others = {"ref": self.refs, "spec": self.spec_ids, "schema": self.schema_ids}
        expired = [plural(len(self.snapshot_ids), "snapshot")]
        expired += [plural(len(ids), noun) for noun, ids in others.items() if ids]
        deleted = self.deleted.counts
        return f"{join_with_and(expired)} expired{f', {join_with_and(deleted)} deleted' if deleted else ''}"


@dataclass(frozen=True)
class ExpireSnapshots(Verb[ExpirePlan, ExpireResult]):
    """An expiry of snapshots: options, then `.plan()`, `.explain()` or `.execute()`."""

    cut_off_ms: int | None = None
    min_snapshots: int | None = None
    named_ids: frozenset[int] = frozenset()
    cleans_metadata: bool = False
    level: CleanupLevel = "all"
    allowed: AllowedNeighbours = field(default_factory=AllowedNeighbours)

    title = "expiry of snapshots"

    # -- building ----------------------------------------------------------------------------------------------------

    def older_than(self, time: datetime | int) -> Self:
        """Expire snapshots older than a datetime, or than milliseconds since 1970.

        By default the table's property `history.expire.max-snapshot-age-ms` decides; a branch may have its own age.
        """
        return replace(self, cut_off_ms=milliseconds(time, "older_than"))

    def retain_last(self, count: int) -> Self:
        """Keep at least this many snapshots of each branch; `history.expire.min-snapshots-to-keep` by default."""
        if type(count) is not int or count < 1:
            raise UserError(f"Cannot retain the last {count!r} snapshots. Give 1 or more.")
        return replace(self, min_snapshots=count)

    def snapshot_ids(self, *ids: int) -> Self:
        """Expire these snapshots, whatever their age; one that a branch or tag points at is rejected."""
        if wrong := [i for i in ids if type(i) is not int]:
            raise UserError(f"Cannot expire snapshot {wrong[0]!r}: give the numbers of snapshots, one after the other.")
        return replace(self, named_ids=self.named_ids | frozenset(ids))

    def clean_expired_metadata(self, value: bool = True) -> Self:
        """Drop also partition specs and schemas that no snapshot needs any more."""
        return replace(self, cleans_metadata=value)

    def cleanup(self, level: str) -> Self:
        """Choose the files to delete: `all`, only those of `metadata`, or `none`."""
        if level not in get_args(CleanupLevel):
            raise UnknownName("clean-up level", level, get_args(CleanupLevel))
        return replace(self, level=cast(CleanupLevel, level))

    def allow_shared(self, value: bool = True) -> Self:
        """Expire snapshots although the same table has another entry; files that the other entry needs are kept."""
        return replace(self, allowed=replace(self.allowed, twins=value))

    def allow_unreadable(self, value: bool = True) -> Self:
        """Expire snapshots although an entry cannot be read, which may need the files: they are deleted."""
        return replace(self, allowed=replace(self.allowed, unreadable=value))

    # -- planning ----------------------------------------------------------------------------------------------------

    def _plan(self, context: TableContext) -> ExpirePlan:
        context.refuse_to_delete_files("expire snapshots of")
        positions = context.metadata.lazy_snapshots.positions
        for snapshot_id in sorted(self.named_ids - positions.keys()):
            raise UnknownName("snapshot", snapshot_id, positions, f"table {context.name}")
        return self._plan_expiry(context)

    def _plan_expiry(self, context: TableContext) -> ExpirePlan:
        metadata = context.metadata
        now, properties = context.environment.now_ms(), context.properties
        rules = RetentionRules(
            now_ms=now,
            older_than_ms=now - properties.max_snapshot_age_ms if self.cut_off_ms is None else self.cut_off_ms,
            retain_last=properties.min_snapshots_to_keep if self.min_snapshots is None else self.min_snapshots,
            max_ref_age_ms=properties.max_ref_age_ms,
            snapshot_ids=self.named_ids,
        )
        retention = decide_retention(metadata, rules)
        unused = (
            unused_specs_and_schemas(context.io, metadata, retention.retained) if self.cleans_metadata else ((), ())
        )
        expiry = Expiry(retention.expired, retention.expired_refs, *unused)
        after = apply_updates(metadata, expiry.updates())
        return ExpirePlan(expiry, retention.retained, self._unreachable_files(context, metadata, after))

    def _unreachable_files(
        self, context: TableContext, before: TableMetadata, after: TableMetadata
    ) -> UnreachableFiles:
        if self.level == "none":
            return UnreachableFiles()
        unreachable = find_unreachable_files(context.io, before, after, metadata_only=self.level == "metadata")
        unreachable = unreachable.restrict_to(roots_of(before, context.iceberg.metadata_location))
        if not len(unreachable):
            return unreachable
        neighbours = find_neighbours(context.catalog, context.iceberg)
        neighbours.refuse_deletion(f"expire snapshots of table {context.name}", self.allowed)
        return unreachable.keep_shared(neighbours.select_shared(chain.from_iterable(unreachable.in_deletion_order)))

    # -- running -----------------------------------------------------------------------------------------------------

    def _write(self, context: TableContext, plan: ExpirePlan, execution: Execution) -> ExpireResult:
        """Remove the snapshots from the metadata, then delete the files that only they reference."""
        attempts = [(context.metadata, plan)]

        def change(state: TableContext) -> RequirementsAndUpdates:
            if state is not context:  # a concurrent writer has changed the table
                emit(Step("plan"))
                attempts.append((state.metadata, self._plan_expiry(state)))
            expiry, is_served = attempts[-1][1].expiry, isinstance(state.catalog, RestCatalogMixin)
            requirements = expiry.requirements(state.metadata, checked_by_server=is_served)
            return requirements, expiry.updates(one_by_one=is_served)

        commit_updates(context, change, self.title)
        before, landed = attempts[-1]
        if not landed.expiry:
            return ExpireResult(attempts=len(attempts))
        unreachable, after = landed.left, context.refreshed().metadata
        rejected: dict[str, str] = {}
        if after.lazy_snapshots.positions.keys() - set(landed.kept):
            try:  # concurrent snapshots may reference some of the files
                unreachable = self._unreachable_files(context, before, after)
            except SharedFilesError as e:  # the snapshots have expired, but their files stay
                rejected = dict.fromkeys(chain.from_iterable(unreachable.in_deletion_order), str(e))
                unreachable = unreachable.without(rejected)
        emit(Step("delete files", total=len(unreachable), unit="files"))
        roots = roots_of(before, context.iceberg.metadata_location)
        kept = delete_reachable_files(context.io, unreachable.in_deletion_order, roots)
        outside = dict.fromkeys(unreachable.outside, "it lies outside the table")
        shared = {path: f"{name} references it" for path, name in unreachable.shared.items()}
        return ExpireResult(
            landed.snapshot_ids,
            landed.refs,
            landed.expiry.spec_ids,
            landed.expiry.schema_ids,
            deleted=unreachable.without(kept),
            files_kept=outside | shared | rejected | kept,
            attempts=len(attempts),
            seconds=execution.total_seconds,
        )
