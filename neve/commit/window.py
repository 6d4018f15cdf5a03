"""What happened to a table between the snapshot a plan was made on and the head it is to be committed on.

`CommitBase` is the table as one attempt finds it. `Window` walks from its head back to the start and reads only the
manifests that the snapshots on the way wrote themselves: carried-over manifests would make old entries look new.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation

from neve.commit.outcome import Check, Conflict
from neve.errors import UnknownName, UserError
from neve.io.paths import canonical_path_all
from neve.model.metadata import TableMetadata
from neve.model.partition import Specs
from neve.model.properties import TableProperties, properties_of
from neve.model.snapshots import Snapshot
from neve.plan.metrics_filter import STATISTICS
from neve.tree.entries import EntryTable, Manifest, Status
from neve.tree.group_by_spec import entries_by_manifest
from neve.tree.partition_types import infer_partition_types
from neve.tree.read import manifests_of, read_entries, with_detail
from neve.tree.tree_writer import TreeWriter, tree_writer_for

FIRST_SEQUENCE_NUMBER = 0
"""The data sequence number of everything in a v1 table."""


class CommitRefused(Exception):
    """A check failed where its finding could not be returned; the commit ends as rejected."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(str(conflict))
        self.conflict = conflict


@dataclass(frozen=True)
class CommitBase:
    """The table as one attempt finds it: the newest metadata, and the head of the branch to be moved."""

    io: FileIO
    metadata: TableMetadata
    branch: str = MAIN_BRANCH

    @cached_property
    def specs(self) -> Specs:
        """The partition specs of the table."""
        specs = Specs.of(self.metadata)
        return infer_partition_types(self.io, specs, self.manifests) if specs.untyped_fields else specs

    @cached_property
    def properties(self) -> TableProperties:
        """The properties of the table."""
        return properties_of(self.metadata.properties)

    @cached_property
    def parent(self) -> Snapshot | None:
        """The head of the branch; only main may have none yet."""
        ref = self.metadata.refs.get(self.branch)
        if ref is None:
            if self.branch == MAIN_BRANCH:
                return None
            raise UnknownName("branch", self.branch, self.metadata.refs, "the table")
        if ref.snapshot_ref_type != SnapshotRefType.BRANCH:
            raise UserError(f"Cannot commit to {self.branch!r}: it is a tag, and tags do not move. Name a branch.")
        return self.metadata.snapshot_by_id(ref.snapshot_id)

    @property
    def format_version(self) -> int:
        """The format version of the table."""
        return int(self.metadata.format_version)

    @cached_property
    def manifests(self) -> tuple[Manifest, ...]:
        """The manifests of the head."""
        return manifests_of(self.io, self.metadata, self.parent)

    @cached_property
    def tree_writer(self) -> TreeWriter:
        """How the tree of the next snapshot is spelled."""
        return tree_writer_for(self.metadata)

    @property
    def next_sequence_number(self) -> int:
        """The sequence number the new snapshot takes; v1 has none."""
        last: int | None = getattr(self.metadata, "last_sequence_number", None)
        return FIRST_SEQUENCE_NUMBER if last is None else last + 1

    def live_data_files(self, paths: Collection[str]) -> EntryTable:
        """The live data files at some paths, with their statistics."""
        manifests = [m for m in self.manifests if not m.is_deletes and m.may_hold_live_files]
        live = read_entries(self.io, manifests, self.specs, live_only=True)
        wanted = canonical_path_all(pa.array(sorted(paths), pa.string()))
        found = live.filter(pc.is_in(canonical_path_all(live["file_path"]), value_set=wanted))
        return with_detail(self.io, found, manifests, STATISTICS)

    def ancestors(self) -> Iterator[Snapshot]:
        """The head and the snapshots before it, newest first, as far as they are still known."""
        snapshot, seen = self.parent, set[int]()
        while snapshot is not None and snapshot.snapshot_id not in seen:
            yield snapshot
            seen.add(snapshot.snapshot_id)
            before = snapshot.parent_snapshot_id
            snapshot = None if before is None else self.metadata.snapshot_by_id(before)


@dataclass(frozen=True)
class Window:
    """The snapshots after `start` up to the head, and the files they added and removed."""

    base: CommitBase
    start: int | None
    _entries_by_manifest: dict[str, EntryTable] = field(default_factory=dict, repr=False, compare=False)
    _manifests_by_snapshot: dict[int, tuple[Manifest, ...]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """The snapshots of the window, newest first; refused when one between start and head is gone."""
        found: list[Snapshot] = []
        for snapshot in self.base.ancestors():
            if snapshot.snapshot_id == self.start:
                break
            found.append(snapshot)
        if found and found[-1].parent_snapshot_id != self.start:
            raise CommitRefused(self.broken_history(found[-1]))
        return tuple(found)

    def broken_history(self, oldest: Snapshot) -> Conflict:
        """The conflict over a history that is no longer known back to the start."""
        since = "the first snapshot" if self.start is None else f"snapshot {self.start}"
        return Conflict(
            Check.HISTORY,
            f"Cannot tell what changed since {since}: the history of branch {self.base.branch!r} is known back to "
            f"snapshot {oldest.snapshot_id} only. Older ones were expired, or the branch was moved.",
            oldest.snapshot_id,
        )

    @cached_property
    def start_sequence_number(self) -> int:
        """The sequence number of the start; 0 when it is not known, so that every delete file counts."""
        start = None if self.start is None else self.base.metadata.snapshot_by_id(self.start)
        return FIRST_SEQUENCE_NUMBER if start is None else start.sequence_number or FIRST_SEQUENCE_NUMBER

    def snapshots_with(self, operations: Collection[Operation]) -> tuple[Snapshot, ...]:
        """The snapshots of the window with one of these operations."""
        return tuple(s for s in self.snapshots if _operation(s) in operations)

    def entries(
        self,
        operations: Collection[Operation],
        *,
        is_deletes: bool,
        statuses: Collection[Status],
        may_hold: Callable[[Sequence[Manifest]], Any] | None = None,
    ) -> EntryTable:
        """The entries of given statuses that snapshots with these operations wrote for themselves."""
        snapshots = self.snapshots_with(operations)
        written = [m for s in snapshots for m in self.manifests_written_by(s) if m.is_deletes == is_deletes]
        manifests = [m for m in written if _may_hold_status(m, statuses)]
        if may_hold is not None:
            manifests = list(compress(manifests, may_hold(manifests)))
        entries = self._entries_of(manifests)
        ids = pa.array([s.snapshot_id for s in snapshots], pa.int64())
        by_them = pc.is_in(entries["snapshot_id"], value_set=ids)
        return entries.filter(pc.and_(by_them, pc.is_in(entries["status"], value_set=pa.array(statuses, pa.int8()))))

    def manifests_written_by(self, snapshot: Snapshot) -> Iterator[Manifest]:
        """The manifests a snapshot wrote itself, carried-over ones left out."""
        manifests = self.base.manifests if snapshot is self.base.parent else self._listed(snapshot)
        return (m for m in manifests if m.added_snapshot_id == snapshot.snapshot_id)

    def _listed(self, snapshot: Snapshot) -> tuple[Manifest, ...]:
        if snapshot.snapshot_id not in self._manifests_by_snapshot:
            self._manifests_by_snapshot[snapshot.snapshot_id] = manifests_of(self.base.io, self.base.metadata, snapshot)
        return self._manifests_by_snapshot[snapshot.snapshot_id]

    def _entries_of(self, manifests: list[Manifest]) -> EntryTable:
        """The entries of some manifests, each read once for all checks."""
        missing = [m for m in manifests if m.path not in self._entries_by_manifest]
        read = read_entries(self.base.io, missing, self.base.specs, detail=STATISTICS)
        for manifest, own in zip(missing, entries_by_manifest(read, len(missing)), strict=True):
            self._entries_by_manifest[manifest.path] = own
        return EntryTable.concat([self._entries_by_manifest[m.path] for m in manifests], self.base.specs)


def _may_hold_status(manifest: Manifest, statuses: Iterable[Status]) -> bool:
    """Whether a manifest may hold an entry of one of the statuses; v1 writers left the counts out."""
    counts = {
        Status.ADDED: manifest.added_files,
        Status.EXISTING: manifest.existing_files,
        Status.DELETED: manifest.deleted_files,
    }
    return any(counts.get(status) != 0 for status in statuses)


def _operation(snapshot: Snapshot) -> Operation:
    """What a snapshot did; one that does not tell may have done anything, so it counts as an overwrite."""
    return Operation.OVERWRITE if snapshot.summary is None else snapshot.summary.operation
