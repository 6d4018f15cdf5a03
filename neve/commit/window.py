"""The changes of a table between the snapshot that was planned on and the head that the commit is applied to.

`CommitBase` is the state of the table at one attempt. `Window` walks from its head back to the start. It reads only the
manifests that each snapshot wrote itself: manifests carried over from older snapshots would make old entries look new.
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
from neve.model.snapshots import Snapshot, snapshot_operation
from neve.plan.metrics_filter import STATISTICS
from neve.tree.entries import EntryTable, Manifest, Status
from neve.tree.group_by_spec import entries_by_manifest
from neve.tree.partition_types import infer_partition_types
from neve.tree.read import manifests_of, read_entries, with_detail
from neve.tree.tree_writer import TreeWriter, tree_writer_for

FIRST_SEQUENCE_NUMBER = 0
"""The data sequence number of all files of a v1 table."""


class CommitRefused(Exception):
    """A check failed; the commit ends as rejected."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(str(conflict))
        self.conflict = conflict


@dataclass(frozen=True)
class CommitBase:
    """The state of the table at one attempt: the newest metadata, and the head of the target branch.

    With `creates_branch`, a branch that is missing starts at the head of main.
    """

    io: FileIO
    metadata: TableMetadata
    branch: str = MAIN_BRANCH
    creates_branch: bool = False

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
        """The head of the branch; None only for a main branch without snapshots."""
        ref = self.metadata.refs.get(self.branch)
        if ref is None and self.creates_branch:
            ref = self.metadata.refs.get(MAIN_BRANCH)
            return None if ref is None else self.metadata.snapshot_by_id(ref.snapshot_id)
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
        """The writer of the tree of the next snapshot."""
        return tree_writer_for(self.metadata)

    @property
    def next_sequence_number(self) -> int:
        """The sequence number of the new snapshot; 0 for v1, which has none."""
        last: int | None = getattr(self.metadata, "last_sequence_number", None)
        return FIRST_SEQUENCE_NUMBER if last is None else last + 1

    def live_data_files(self, paths: Collection[str]) -> EntryTable:
        """Return the live data files at some paths, with their statistics."""
        manifests = [m for m in self.manifests if not m.is_deletes and m.may_hold_live_files]
        live = read_entries(self.io, manifests, self.specs, live_only=True)
        canonical_paths = canonical_path_all(pa.array(sorted(paths), pa.string()))
        files = live.filter(pc.is_in(canonical_path_all(live["file_path"]), value_set=canonical_paths))
        return with_detail(self.io, files, manifests, STATISTICS)

    def ancestors(self) -> Iterator[Snapshot]:
        """Yield the head and its ancestors, newest first, as far as the metadata still contains them."""
        snapshot, seen = self.parent, set[int]()
        while snapshot is not None and snapshot.snapshot_id not in seen:
            yield snapshot
            seen.add(snapshot.snapshot_id)
            parent_id = snapshot.parent_snapshot_id
            snapshot = None if parent_id is None else self.metadata.snapshot_by_id(parent_id)


@dataclass(frozen=True)
class Window:
    """The snapshots after `start` up to the head, and the files they added and removed."""

    base: CommitBase
    start: int | None
    _entries_by_manifest: dict[str, EntryTable] = field(default_factory=dict, repr=False, compare=False)
    _manifests_by_snapshot: dict[int, tuple[Manifest, ...]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """The snapshots of the window, newest first; raises `CommitRefused` if one of them is missing."""
        snapshots: list[Snapshot] = []
        for snapshot in self.base.ancestors():
            if snapshot.snapshot_id == self.start:
                break
            snapshots.append(snapshot)
        if snapshots and snapshots[-1].parent_snapshot_id != self.start:
            raise CommitRefused(self.broken_history(snapshots[-1]))
        return tuple(snapshots)

    def broken_history(self, oldest: Snapshot) -> Conflict:
        """Return the conflict over a history that does not reach back to the start."""
        since = "the first snapshot" if self.start is None else f"snapshot {self.start}"
        return Conflict(
            Check.HISTORY,
            f"Cannot determine what changed since {since}: the history of branch {self.base.branch!r} reaches back to "
            f"snapshot {oldest.snapshot_id} only. Older snapshots were expired, or the branch was moved.",
            oldest.snapshot_id,
        )

    @cached_property
    def start_sequence_number(self) -> int:
        """The sequence number of the start; 0 if it is unknown, so that every delete file counts."""
        start = None if self.start is None else self.base.metadata.snapshot_by_id(self.start)
        return FIRST_SEQUENCE_NUMBER if start is None else start.sequence_number or FIRST_SEQUENCE_NUMBER

    def snapshots_with(self, operations: Collection[Operation]) -> tuple[Snapshot, ...]:
        """Return the snapshots with one of these operations."""
        return tuple(s for s in self.snapshots if snapshot_operation(s) in operations)

    def entries(
        self,
        operations: Collection[Operation],
        *,
        is_deletes: bool,
        statuses: Collection[Status],
        may_hold: Callable[[Sequence[Manifest]], Any] | None = None,
    ) -> EntryTable:
        """Return the entries with the given statuses that snapshots with these operations wrote themselves."""
        snapshots = self.snapshots_with(operations)
        written = [m for s in snapshots for m in self.manifests_written_by(s) if m.is_deletes == is_deletes]
        manifests = [m for m in written if _may_hold_status(m, statuses)]
        if may_hold is not None:
            manifests = list(compress(manifests, may_hold(manifests)))
        unread = [m for m in manifests if m.path not in self._entries_by_manifest]  # each is read once for all checks
        new_entries = read_entries(self.base.io, unread, self.base.specs, detail=STATISTICS)
        for manifest, own in zip(unread, entries_by_manifest(new_entries, len(unread)), strict=True):
            self._entries_by_manifest[manifest.path] = own
        entries = EntryTable.concat([self._entries_by_manifest[m.path] for m in manifests], self.base.specs)
        ids = pa.array([s.snapshot_id for s in snapshots], pa.int64())
        is_own = pc.is_in(entries["snapshot_id"], value_set=ids)
        return entries.filter(pc.and_(is_own, pc.is_in(entries["status"], value_set=pa.array(statuses, pa.int8()))))

    def manifests_written_by(self, snapshot: Snapshot) -> Iterator[Manifest]:
        """Return the manifests that a snapshot wrote itself, without those carried over."""
        snapshot_id = snapshot.snapshot_id
        if snapshot_id not in self._manifests_by_snapshot:
            is_head = snapshot is self.base.parent
            manifests = self.base.manifests if is_head else manifests_of(self.base.io, self.base.metadata, snapshot)
            self._manifests_by_snapshot[snapshot_id] = manifests
        return (m for m in self._manifests_by_snapshot[snapshot_id] if m.added_snapshot_id == snapshot_id)


def _may_hold_status(manifest: Manifest, statuses: Iterable[Status]) -> bool:
    """Return whether a manifest may hold an entry with one of the statuses; v1 writers left the counts out."""
    counts = {
        Status.ADDED: manifest.added_files,
        Status.EXISTING: manifest.existing_files,
        Status.DELETED: manifest.deleted_files,
    }
    return any(counts.get(status) != 0 for status in statuses)
