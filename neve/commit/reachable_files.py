"""Find the files that table metadata leads to, and the files that become unreachable when snapshots are removed.

No folder is listed: a file that no metadata names may belong to someone else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from neve.display.format import plural
from neve.errors import MissingFile
from neve.io.parallel import map_in_threads, reader_count
from neve.io.paths import is_inside_all, may_be_table_location, real_path_all
from neve.model.metadata import TableMetadata
from neve.model.partition import Specs
from neve.model.properties import properties_of
from neve.model.snapshots import Snapshot, tree_root_location
from neve.tree.entries import Content, EntryTable, Manifest
from neve.tree.partition_types import manifest_reader_count
from neve.tree.read import manifests_of, read_entries

S = TypeVar("S")
T = TypeVar("T")
Paths = tuple[str, ...]
ManifestsByPath = dict[str, Manifest]

_LIST_BYTES = 8 << 10  # approximate size of the manifest list of a snapshot


@dataclass(frozen=True)
class ReachableFiles:
    """The files of a table in the order of deletion: a file is deleted before the files that lead to it."""

    files: Paths = ()  # data files, delete files and vectors
    manifests: Paths = ()
    lists: Paths = ()
    statistics_and_metadata: Paths = ()

    def __iter__(self) -> Iterator[Paths]:
        return iter((self.files, self.manifests, self.lists, self.statistics_and_metadata))

    def __len__(self) -> int:
        return sum(map(len, self))

    def without(self, paths: Collection[str]) -> ReachableFiles:
        """Return the value without some files."""
        return ReachableFiles(*(tuple(p for p in kind if p not in paths) for kind in self)) if paths else self


def find_reachable_files(
    io: FileIO, metadata: TableMetadata, metadata_location: str, *, live_only: bool = False
) -> ReachableFiles:
    """Return the files of all snapshots, also staged ones, and removed files unless `live_only`, from all manifests."""
    manifests = distinct_manifests(io, metadata, metadata.lazy_snapshots)
    entries = _read_entries_one_by_one(io, manifests.values(), Specs.of(metadata), live_only=live_only)
    statistics = [*metadata.statistics, *metadata.partition_statistics]
    log = (entry.metadata_file for entry in metadata.metadata_log)
    others = (*(file.statistics_path for file in statistics), *log, metadata_location)
    return ReachableFiles(
        tuple(pc.unique(entries["file_path"]).drop_null().to_pylist()),
        tuple(_manifest_file_paths(manifests)),
        tuple(tree_roots(metadata.lazy_snapshots)),
        tuple(dict.fromkeys(others)),
    )


def distinct_manifests(io: FileIO, metadata: TableMetadata, snapshots: Iterable[Snapshot]) -> ManifestsByPath:
    """Return the manifests of some snapshots, each once."""
    return {m.path: m for _, manifests in manifests_by_snapshot(io, metadata, snapshots) for m in manifests}


def manifests_by_snapshot(
    io: FileIO, metadata: TableMetadata, snapshots: Iterable[Snapshot] | None = None
) -> list[tuple[Snapshot, tuple[Manifest, ...]]]:
    """Return the manifests of some snapshots, by default of all."""
    listed = list(metadata.lazy_snapshots if snapshots is None else snapshots)
    lists = map_in_threads(lambda s: manifests_of(io, metadata, s), listed, _threads(io, metadata, listed))
    return list(zip(listed, lists, strict=True))


def _threads(io: FileIO, metadata: TableMetadata, snapshots: Sequence[Snapshot]) -> int:
    return reader_count(io, [metadata.location], len(snapshots) * _LIST_BYTES)


def _read_entries_one_by_one(
    io: FileIO, manifests: Iterable[Manifest], specs: Specs, *, live_only: bool = True
) -> EntryTable:
    # one by one, because a file may be live in manifests of several snapshots
    all_manifests = list(manifests)
    tables = map_in_threads(
        lambda m: read_entries(io, [m], specs, live_only=live_only),
        all_manifests,
        manifest_reader_count(io, all_manifests),
    )
    return EntryTable.concat(tables, specs)


def _manifest_file_paths(manifests: ManifestsByPath) -> list[str]:
    return list(dict.fromkeys(m.file for m in manifests.values() if not m.is_inline))


def tree_roots(snapshots: Iterable[Snapshot]) -> Iterator[str]:
    """Return the files that list the manifests of snapshots."""
    # the first writers listed manifests in the metadata itself, so a snapshot may have no list
    return (path for s in snapshots if (path := tree_root_location(s)))


@dataclass(frozen=True)
class UnreachableFiles:
    """The files that become unreachable when snapshots are removed from a table, by kind."""

    data_files: Paths = ()
    position_deletes: Paths = ()  # delete files and files of vectors
    equality_deletes: Paths = ()
    manifests: Paths = ()
    lists: Paths = ()
    statistics: Paths = ()
    outside: Paths = field(default=(), repr=False)
    """Files outside the locations of the table: they were imported, may belong to another table too, and stay."""
    shared: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Files that another table references: they stay. The values are the names of the other tables."""
    missing: Paths = field(default=(), repr=False)
    """Manifests and lists that were missing already, so the files that only they listed are unknown."""

    @property
    def in_deletion_order(self) -> ReachableFiles:
        """The files in the order of deletion."""
        files = (*self.data_files, *self.position_deletes, *self.equality_deletes)
        return ReachableFiles(files, self.manifests, self.lists, self.statistics)

    @property
    def counts(self) -> list[str]:
        """The number of files of each kind, as text."""
        return [plural(count, word) for name, word in _KINDS.items() if (count := len(getattr(self, name)))]

    def __len__(self) -> int:
        return len(self.in_deletion_order)

    def __str__(self) -> str:
        return ", ".join(self.counts) or "nothing"

    def without(self, paths: Collection[str]) -> UnreachableFiles:
        """Return the value without some files."""
        kept: dict[str, Any] = {name: tuple(p for p in getattr(self, name) if p not in paths) for name in _KINDS}
        return replace(self, **kept)

    def keep_shared(self, shared: Mapping[str, str]) -> UnreachableFiles:
        """Return the value with files that other tables reference moved to `shared`."""
        return replace(self.without(shared.keys()), shared=shared)

    def restrict_to(self, roots: Sequence[str]) -> UnreachableFiles:
        """Return the value with files that are below none of the roots moved to `outside`."""
        outside: list[str] = []
        inside: dict[str, Any] = {}
        for name in _KINDS:
            paths = pa.array(getattr(self, name), pa.string())
            is_inside = is_inside_all(paths, roots)
            inside[name] = tuple(paths.filter(is_inside).to_pylist())
            outside += paths.filter(pc.invert(is_inside)).to_pylist()
        return replace(self, **inside, outside=(*self.outside, *outside))


_KINDS = {
    "data_files": "data file",
    "position_deletes": "position delete file",
    "equality_deletes": "equality delete file",
    "manifests": "manifest",
    "lists": "manifest list",
    "statistics": "statistics file",
}


def find_unreachable_files(
    io: FileIO, before: TableMetadata, after: TableMetadata, *, metadata_only: bool = False
) -> UnreachableFiles:
    """Return the files that removed snapshots lead to and no remaining snapshot does.

    A snapshot is removed if `before` has it and `after` does not. A file is in use if it is live in a snapshot; entries
    of removed files do not count. An unreadable manifest of a remaining snapshot is an error; manifests and lists of
    removed snapshots may be missing already.
    """
    removed_ids = before.lazy_snapshots.positions.keys() - after.lazy_snapshots.positions.keys()
    removed = [s for s in before.lazy_snapshots if s.snapshot_id in removed_ids]
    remaining = distinct_manifests(io, after, after.lazy_snapshots)
    lists, missing_lists = _read_existing(lambda s: manifests_of(io, before, s), removed, _threads(io, before, removed))
    manifests = {m.path: m for listed in lists for m in listed if m.path not in remaining}
    files, missing_manifests = EntryTable.empty(Specs.of(before)), Paths()
    if not metadata_only:
        files, missing_manifests = _unreachable_entries(io, before, manifests, after, remaining)
    # a file of several vectors is one file
    data, positions, equality = (
        tuple(pc.unique(files.of_content(content)["file_path"]).to_pylist())
        for content in (Content.DATA, Content.POSITION_DELETES, Content.EQUALITY_DELETES)
    )
    statistics = [f for f in (*before.statistics, *before.partition_statistics) if f.snapshot_id in removed_ids]
    used_statistics = [f.statistics_path for f in (*after.statistics, *after.partition_statistics)]
    return UnreachableFiles(
        data,
        positions,
        equality,
        manifests=tuple(_paths_not_in(_manifest_file_paths(manifests), _manifest_file_paths(remaining))),
        lists=tuple(_paths_not_in(tree_roots(removed), tree_roots(after.lazy_snapshots))),
        statistics=tuple(_paths_not_in([f.statistics_path for f in statistics], used_statistics)),
        missing=(*missing_lists, *missing_manifests),
    )


def _read_existing(read: Callable[[S], T], sources: Sequence[S], threads: int) -> tuple[list[T], Paths]:
    """Read from each source; returns what was read, and the paths of the files that are missing already."""

    def read_one(source: S) -> T | MissingFile:
        try:
            return read(source)
        except MissingFile as e:
            return e

    results = map_in_threads(read_one, sources, threads)
    missing = tuple(result.path for result in results if isinstance(result, MissingFile))
    return [result for result in results if not isinstance(result, MissingFile)], missing


def _unreachable_entries(
    io: FileIO, before: TableMetadata, manifests: ManifestsByPath, after: TableMetadata, remaining: ManifestsByPath
) -> tuple[EntryTable, Paths]:
    """Return the live files of manifests that are live in no remaining manifest, and the missing manifests."""
    specs, old = Specs.of(before), list(manifests.values())
    tables, missing = _read_existing(
        lambda m: read_entries(io, [m], specs, live_only=True), old, manifest_reader_count(io, old)
    )
    entries = EntryTable.concat(tables, specs)
    if not len(entries):
        return entries, missing
    live = _read_entries_one_by_one(io, [m for m in remaining.values() if m.may_hold_live_files], Specs.of(after))
    in_use = pc.is_in(real_path_all(entries["file_path"]), value_set=real_path_all(live["file_path"]))
    return entries.filter(pc.invert(in_use)), missing


def _paths_not_in(paths: Iterable[str], others: Iterable[str]) -> list[str]:
    """Return the paths, each once, that are not among the others; two names of one local file are the same path."""
    column = pa.array(dict.fromkeys(paths), pa.string())
    excluded = real_path_all(pa.array(list(others), pa.string()))
    return list(column.filter(pc.invert(pc.is_in(real_path_all(column), value_set=excluded))).to_pylist())


def roots_of(metadata: TableMetadata, metadata_location: str = "") -> Paths:
    """Return the locations that a table writes to; a file elsewhere was imported, and may belong to others too.

    The metadata comes from storage, and files below these locations may be deleted. A location that is implausible
    given the metadata file in the catalog is left out.
    """
    properties = properties_of(metadata.properties)
    locations = (metadata.location, properties.data_path, properties.metadata_path)
    return tuple(path for path in locations if path and may_be_table_location(path, metadata_location))
