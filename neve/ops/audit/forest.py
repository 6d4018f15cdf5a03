"""All snapshots of a table at once: every manifest once, and which snapshot has which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.io import FileIO

from neve.io.paths import canonical_all
from neve.model.metadata import TableMetadata
from neve.model.partition import Specs
from neve.model.snapshots import Snapshot
from neve.ops.audit.manifests import DETAILS, AuditedManifest, audit_manifest
from neve.ops.audit.roots import Root
from neve.tree.entries import LIVE, MIXED_SPECS, Content, EntryTable, Manifest

__all__ = ["Forest", "Tree", "grow"]

_THREADS = 8

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Tree:
    """A snapshot and the ordinals of its manifests; an incomplete one has manifests that could not be read."""

    snapshot: Snapshot
    path: str
    manifests: Ints
    is_complete: bool


@dataclass(frozen=True)
class Forest:
    """The trees of all snapshots over one set of entries."""

    trees: tuple[Tree, ...]
    manifests: tuple[Manifest, ...]
    entries: EntryTable

    @cached_property
    def is_live(self) -> Mask:
        """Which entries are part of some snapshot."""
        return np.isin(self.entries.numpy("status"), LIVE)

    @cached_property
    def is_data(self) -> Mask:
        """Which entries are data files."""
        return self.entries.numpy("content") == Content.DATA

    @cached_property
    def is_vector(self) -> Mask:
        """Which entries are deletion vectors: position deletes in a Puffin file."""
        puffin = pc.equal(self.entries["file_format"].cast(pa.string()), "PUFFIN").to_numpy()
        return puffin & (self.entries.numpy("content") == Content.POSITION_DELETES)

    @cached_property
    def has_size(self) -> Mask:
        """Which entries tell the size of their file; a vector that lies beside its data file does not."""
        views = np.array([m.is_view for m in self.manifests], bool)
        return ~(self.is_vector & views[self.entries.numpy("manifest")]) if len(views) else ~self.is_vector

    @cached_property
    def is_encrypted(self) -> Mask:
        """Which entries are files that only their key opens."""
        return np.asarray(self.entries["key_metadata"].is_valid().to_numpy(), bool)

    @cached_property
    def paths(self) -> pa.Array:
        """The distinct files, by the one spelling of their paths."""
        return self._encoded.dictionary

    @cached_property
    def file(self) -> Ints:
        """For each entry the number of its file in `paths`."""
        return np.asarray(self._encoded.indices.to_numpy(), np.int64)

    @cached_property
    def referenced(self) -> Ints:
        """For each entry the number of the data file it names, -1 where it names none, -2 where nothing lists it."""
        named = self.entries["referenced_data_file"]
        if named.null_count == len(named):
            return np.full(len(named), -1, np.int64)
        places = pc.index_in(canonical_all(named), value_set=self.paths).fill_null(-2).to_numpy()
        return np.where(named.is_null().to_numpy(), -1, places).astype(np.int64)

    @cached_property
    def _encoded(self) -> pa.DictionaryArray:
        return canonical_all(self.entries["file_path"]).dictionary_encode()

    def live_rows(self, tree: Tree) -> Ints:
        """The rows of the live entries of a snapshot."""
        chosen = np.zeros(len(self.manifests) + 1, bool)
        chosen[tree.manifests] = True
        return np.flatnonzero(self.is_live & chosen[self.entries.numpy("manifest")])

    def first_rows(self, mask: Mask) -> Ints:
        """One row for each distinct file among the entries selected."""
        rows = np.flatnonzero(mask)
        return rows[np.unique(self.file[rows], return_index=True)[1]]


def grow(
    io: FileIO, roots: Sequence[Root], specs: Specs, metadata: TableMetadata
) -> tuple[Forest, tuple[AuditedManifest, ...]]:
    """Read every manifest of some roots once, several at a time."""
    # Two rows that say different things about one manifest are two things to check.
    distinct = {m: i for i, m in enumerate(dict.fromkeys(_known(roots, specs)))}
    with ThreadPoolExecutor(_THREADS) as pool:
        audited = tuple(pool.map(lambda m: audit_manifest(io, m, distinct[m], specs, metadata), distinct))
    tables = [a.entries for a in audited if a.entries is not None]
    entries = EntryTable.concat(tables, specs) if tables else EntryTable.empty(specs, DETAILS)
    readable = {a.manifest for a in audited if a.entries is not None}
    trees = tuple(_tree(root, distinct, readable) for root in roots)
    return Forest(trees, tuple(distinct), entries), audited


def _known(roots: Iterable[Root], specs: Specs) -> Iterator[Manifest]:
    return (m for root in roots for m in root.manifests if m.spec_id in specs.by_id or m.spec_id == MIXED_SPECS)


def _tree(root: Root, ordinals: dict[Manifest, int], readable: set[Manifest]) -> Tree:
    found = [ordinals[m] for m in dict.fromkeys(root.manifests) if m in readable]
    return Tree(
        root.snapshot, root.path, np.array(found, np.int64), root.is_readable and readable.issuperset(root.manifests)
    )
