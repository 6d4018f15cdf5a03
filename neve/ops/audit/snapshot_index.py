"""Check the root of each snapshot, and index the manifests and files of all snapshots.

The root of a snapshot is the file that lists its manifests. Each manifest is read once, however many snapshots have it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.io import FileIO

from neve.io.parallel import map_in_threads
from neve.io.paths import canonical_path_all
from neve.model.metadata import TableMetadata
from neve.model.partition import Specs
from neve.model.snapshots import Snapshot
from neve.ops.audit.findings import Finding
from neve.ops.audit.manifests import AUDIT_DETAIL, AuditedManifest, audit_manifest
from neve.tree.entries import LIVE_STATUSES, MIXED_SPECS, Content, EntryTable, Manifest
from neve.tree.group_by_spec import deletion_vector_mask


@dataclass(frozen=True)
class SnapshotRoot:
    """The manifests of a snapshot, as listed by its root."""

    snapshot: Snapshot
    path: str
    manifests: tuple[Manifest, ...] = ()
    header: Mapping[str, bytes] = field(default_factory=dict)
    bytes: int = 0
    is_readable: bool = True


def root_findings(root: SnapshotRoot, numbers: Mapping[int, int], specs: Specs) -> Iterator[Finding]:
    """Return all violations in a root; `numbers` has the sequence number of each snapshot of the table."""
    yield from header_names_the_snapshot(root)
    yield from manifests_are_distinct(root)
    yield from specs_are_known(root, specs)
    yield from manifest_sequence_numbers_fit(root, numbers)
    yield from adding_snapshots_are_named(root)
    yield from row_ids_are_assigned(root)


def header_names_the_snapshot(root: SnapshotRoot) -> Iterator[Finding]:
    """Check that the root was written for its snapshot."""
    stated = {"snapshot-id": root.snapshot.snapshot_id, "sequence-number": root.snapshot.sequence_number or 0}
    for key, expected in stated.items():
        value = root.header.get(key, b"null")
        if value not in (b"null", str(expected).encode()):
            message = f"The header says {key} {value.decode(errors='replace')}, the table metadata {expected}."
            yield Finding("list-header", root.path, message)


def manifests_are_distinct(root: SnapshotRoot) -> Iterator[Finding]:
    """Check that no manifest is listed twice: its files would be read twice."""
    for path, times in Counter(m.path for m in root.manifests).items():
        if times > 1:
            yield Finding("duplicate-manifest", path, f"Listed {times} times by {root.path}.")


def specs_are_known(root: SnapshotRoot, specs: Specs) -> Iterator[Finding]:
    """Check that the table has the spec of every manifest."""
    for m in root.manifests:
        if m.spec_id not in specs.by_id and m.spec_id != MIXED_SPECS:
            message = f"Of partition spec {m.spec_id}; the table has {sorted(specs.by_id)}."
            yield Finding("unknown-spec", m.path, message)


def manifest_sequence_numbers_fit(root: SnapshotRoot, numbers: Mapping[int, int]) -> Iterator[Finding]:
    """Check that a manifest has the number of the snapshot that added it, not above that of the one that lists it."""
    own = root.snapshot.sequence_number or 0
    for m in root.manifests:
        adder = numbers.get(m.added_snapshot_id, m.sequence_number)
        if m.sequence_number > own:
            message = f"Numbered {m.sequence_number}, above snapshot {root.snapshot.snapshot_id} ({own}) that lists it."
            yield Finding("manifest-sequence-number", m.path, message)
        elif m.sequence_number != adder and not m.is_view:
            message = f"Numbered {m.sequence_number}, but snapshot {m.added_snapshot_id} that added it is {adder}."
            yield Finding("manifest-sequence-number", m.path, message)
        if m.min_sequence_number > m.sequence_number:
            message = f"Oldest number {m.min_sequence_number}, above its own number {m.sequence_number}."
            yield Finding("min-sequence-number", m.path, message)


def adding_snapshots_are_named(root: SnapshotRoot) -> Iterator[Finding]:
    """Check that each manifest names the snapshot that added it: entries inherit that id."""
    for m in root.manifests:
        if cast(int | None, m.added_snapshot_id) is None:  # the type promises it, the bytes do not
            yield Finding("added-snapshot", m.path, f"{root.path} does not say which snapshot added it.")


def row_ids_are_assigned(root: SnapshotRoot) -> Iterator[Finding]:
    """Check that with row lineage every data manifest has a first row id, and no delete manifest has one."""
    if root.snapshot.first_row_id is None:
        return
    for m in root.manifests:
        if m.is_deletes and m.first_row_id is not None:
            yield Finding("row-ids", m.path, f"Holds deletes, but has a first row id {m.first_row_id}.")
        elif not m.is_deletes and m.first_row_id is None and not m.is_inline:  # readers ignore the ids of its files
            message = f"Has no first row id in snapshot {root.snapshot.snapshot_id}, which tracks rows."
            yield Finding("row-ids", m.path, message)


# -- the index -------------------------------------------------------------------------------------------------------

_THREADS = 8

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class SnapshotFiles:
    """A snapshot and the ordinals of its manifests; incomplete if a manifest could not be read."""

    snapshot: Snapshot
    path: str
    manifest_ordinals: Ints
    is_complete: bool


@dataclass(frozen=True)
class SnapshotIndex:
    """The entries of all snapshots, each manifest once. Masks and numbers are per entry."""

    snapshots: tuple[SnapshotFiles, ...]
    manifests: tuple[Manifest, ...]
    entries: EntryTable

    @cached_property
    def is_live(self) -> Mask:
        """The entries that are part of a snapshot."""
        return np.isin(self.entries.numpy("status"), LIVE_STATUSES)

    @cached_property
    def is_data(self) -> Mask:
        """The entries of data files."""
        return self.entries.numpy("content") == Content.DATA

    @cached_property
    def is_vector(self) -> Mask:
        """The entries of deletion vectors: position deletes in a Puffin file."""
        return deletion_vector_mask(self.entries)

    @cached_property
    def has_size(self) -> Mask:
        """The entries with the size of their file; a v4 vector, stored in the entry of its data file, has none."""
        views = np.array([m.is_view for m in self.manifests], bool)
        return ~(self.is_vector & views[self.entries.numpy("manifest")]) if len(views) else ~self.is_vector

    @cached_property
    def is_encrypted(self) -> Mask:
        """The entries of encrypted files."""
        return np.asarray(self.entries["key_metadata"].is_valid().to_numpy(), bool)

    @cached_property
    def paths(self) -> pa.Array:
        """The canonical paths of the distinct files."""
        return self._encoded_paths.dictionary

    @cached_property
    def file_numbers(self) -> Ints:
        """The number of the file in `paths`."""
        return np.asarray(self._encoded_paths.indices.to_numpy(), np.int64)

    @cached_property
    def referenced_file_numbers(self) -> Ints:
        """The number of the data file that the entry names; -1: it names none, -2: no snapshot lists that file."""
        data_files = self.entries["referenced_data_file"]
        if data_files.null_count == len(data_files):
            return np.full(len(data_files), -1, np.int64)
        numbers = pc.index_in(canonical_path_all(data_files), value_set=self.paths).fill_null(-2).to_numpy()
        return np.where(data_files.is_null().to_numpy(), -1, numbers).astype(np.int64)

    @cached_property
    def _encoded_paths(self) -> pa.DictionaryArray:
        return canonical_path_all(self.entries["file_path"]).dictionary_encode()

    def live_entry_rows(self, tree: SnapshotFiles) -> Ints:
        """Return the rows of the live entries of a snapshot."""
        is_listed = np.zeros(len(self.manifests) + 1, bool)
        is_listed[tree.manifest_ordinals] = True
        return np.flatnonzero(self.is_live & is_listed[self.entries.numpy("manifest")])

    def first_row_per_file(self, mask: Mask) -> Ints:
        """Return one row for each distinct file among the selected entries."""
        rows = np.flatnonzero(mask)
        return rows[np.unique(self.file_numbers[rows], return_index=True)[1]]


def build_snapshot_index(
    io: FileIO, roots: Sequence[SnapshotRoot], specs: Specs, metadata: TableMetadata
) -> tuple[SnapshotIndex, tuple[AuditedManifest, ...]]:
    """Read and check each manifest of the roots once, several at a time; manifests of unknown specs are left out."""
    listed = (m for root in roots for m in root.manifests if m.spec_id in specs.by_id or m.spec_id == MIXED_SPECS)
    # Two different rows about one manifest are both checked.
    distinct = {m: i for i, m in enumerate(dict.fromkeys(listed))}
    audited = map_in_threads(lambda m: audit_manifest(io, m, distinct[m], specs, metadata), list(distinct), _THREADS)
    tables = [a.entries for a in audited if a.entries is not None]
    entries = EntryTable.concat(tables, specs) if tables else EntryTable.empty(specs, AUDIT_DETAIL)
    readable = {a.manifest for a in audited if a.entries is not None}
    snapshots = tuple(
        SnapshotFiles(
            root.snapshot,
            root.path,
            np.array([distinct[m] for m in dict.fromkeys(root.manifests) if m in readable], np.int64),
            root.is_readable and readable.issuperset(root.manifests),
        )
        for root in roots
    )
    return SnapshotIndex(snapshots, tuple(distinct), entries), tuple(audited)
