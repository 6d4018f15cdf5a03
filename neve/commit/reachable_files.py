"""Every file a table's metadata leads to, and what is left when some snapshots go: what may be deleted, and what not.

Nothing is found by listing a folder: a file that no metadata names may belong to someone else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from neve.display.format import plural
from neve.errors import MissingFile
from neve.io.parallel import map_in_threads, reader_count
from neve.io.paths import canonical_path_all, is_inside_all, may_be_table_location
from neve.model.metadata import TableMetadata
from neve.model.partition import Specs
from neve.model.properties import properties_of
from neve.model.snapshots import Snapshot, tree_root_location
from neve.tree.entries import Content, EntryTable, Manifest
from neve.tree.partition_types import manifest_reader_count
from neve.tree.read import manifests_of, read_entries

T = TypeVar("T")
Paths = tuple[str, ...]
ManifestsByPath = dict[Hashable, Manifest]

_LIST_BYTES = 8 << 10  # bytes, about, of the list of a snapshot


@dataclass(frozen=True)
class ReachableFiles:
    """The files of a table, in the order in which they can go: what leads to a file goes after it."""

    files: Paths = ()  # data files, delete files and vectors
    manifests: Paths = ()
    lists: Paths = ()
    statistics_and_metadata: Paths = ()  # statistics and table metadata

    def __iter__(self) -> Iterator[Paths]:
        return iter((self.files, self.manifests, self.lists, self.statistics_and_metadata))

    def __len__(self) -> int:
        return sum(map(len, self))


def find_reachable_files(
    io: FileIO, metadata: TableMetadata, metadata_location: str, *, live_only: bool = False
) -> ReachableFiles:
    """The files of all snapshots, also staged ones; tombstones are included unless only live files are asked for.

    A manifest that cannot be read is an error.
    """
    manifests = distinct_manifests(io, metadata, metadata.lazy_snapshots)
    entries = _read_entries_one_by_one(io, manifests.values(), Specs.of(metadata), live_only=live_only)
    statistics = [*metadata.statistics, *metadata.partition_statistics]
    log = (entry.metadata_file for entry in metadata.metadata_log)
    others = (*(file.statistics_path for file in statistics), *log, metadata_location)
    return ReachableFiles(
        tuple(pc.unique(entries["file_path"]).drop_null().to_pylist()),
        tuple(_manifest_file_paths(manifests)),
        tuple(_list_paths(metadata.lazy_snapshots)),
        tuple(dict.fromkeys(others)),
    )


def distinct_manifests(io: FileIO, metadata: TableMetadata, snapshots: Iterable[Snapshot]) -> ManifestsByPath:
    """The manifests of some snapshots, each once."""
    listed = _read_each_list(io, metadata, list(snapshots), lambda s: manifests_of(io, metadata, s))
    return _manifests_by_path(m for manifests in listed for m in manifests)


def _read_each_list(
    io: FileIO, metadata: TableMetadata, snapshots: Sequence[Snapshot], read: Callable[[Snapshot], T]
) -> list[T]:
    """What is read of the list of each snapshot."""
    return map_in_threads(read, snapshots, reader_count(io, [metadata.location], len(snapshots) * _LIST_BYTES))


def _read_entries_one_by_one(
    io: FileIO, manifests: Iterable[Manifest], specs: Specs, *, live_only: bool = True
) -> EntryTable:
    """The files of manifests of several snapshots, read one by one: a file may be live in many of them."""
    every = list(manifests)
    read = map_in_threads(
        lambda m: read_entries(io, [m], specs, live_only=live_only), every, manifest_reader_count(io, every)
    )
    return EntryTable.concat(read, specs)


def _manifests_by_path(manifests: Iterable[Manifest]) -> ManifestsByPath:
    return {m.path: m for m in manifests}


def _manifest_file_paths(manifests: ManifestsByPath) -> list[str]:
    """The files that manifests lie in."""
    return list(dict.fromkeys(m.file for m in manifests.values() if not m.is_inline))


def _list_paths(snapshots: Iterable[Snapshot]) -> Iterator[str]:
    """Where the snapshots list their files; the first writers listed them in the metadata itself."""
    return (path for s in snapshots if (path := tree_root_location(s)))


@dataclass(frozen=True)
class UnreachableFiles:
    """The files that lose all that led to them when snapshots leave a table, by kind."""

    data_files: Paths = ()
    position_deletes: Paths = ()  # delete files and files of vectors
    equality_deletes: Paths = ()
    manifests: Paths = ()
    lists: Paths = ()
    statistics: Paths = ()
    outside: Paths = field(default=(), repr=False)
    """Files outside the places of the table: they were brought in, may belong to another table too, and stay."""
    missing: Paths = field(default=(), repr=False)
    """Manifests and lists that were gone already, so what only they led to is not known."""

    @property
    def in_deletion_order(self) -> ReachableFiles:
        """The files in the order in which they can go."""
        files = (*self.data_files, *self.position_deletes, *self.equality_deletes)
        return ReachableFiles(files, self.manifests, self.lists, self.statistics)

    @property
    def counts(self) -> list[str]:
        """How many files there are of each kind, in words."""
        return [plural(count, word) for name, word in _KINDS.items() if (count := len(getattr(self, name)))]

    def __len__(self) -> int:
        return len(self.in_deletion_order)

    def __str__(self) -> str:
        return ", ".join(self.counts) or "nothing"

    def without(self, paths: Collection[str]) -> UnreachableFiles:
        """The same without some files."""
        return replace(self, **{name: tuple(p for p in getattr(self, name) if p not in paths) for name in _KINDS})

    def restrict_to(self, roots: Sequence[str]) -> UnreachableFiles:
        """The same with the files that do not lie below one of the roots set apart."""
        apart: list[str] = []
        kept: dict[str, Paths] = {}
        for name in _KINDS:
            paths = pa.array(getattr(self, name), pa.string())
            is_inside = is_inside_all(paths, roots)
            kept[name] = tuple(paths.filter(is_inside).to_pylist())
            apart += paths.filter(pc.invert(is_inside)).to_pylist()
        return replace(self, **kept, outside=(*self.outside, *apart))


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
    """What the snapshots that are no longer in `after` lead to, and none of those that are.

    A file is in use when a snapshot has it as live; tombstones need no file. A manifest of a snapshot that stays and
    cannot be read is an error; one of a snapshot that goes may be gone already.
    """
    gone = before.lazy_snapshots.positions.keys() - after.lazy_snapshots.positions.keys()
    expired = [s for s in before.lazy_snapshots if s.snapshot_id in gone]
    kept = distinct_manifests(io, after, after.lazy_snapshots)
    found, missing = _manifests_and_missing_lists(io, before, expired)
    only = {key: manifest for key, manifest in found.items() if key not in kept}
    files, also_missing = (
        (EntryTable.empty(Specs.of(before)), ()) if metadata_only else _entries_only_in(io, before, only, after, kept)
    )
    statistics = (*before.statistics, *before.partition_statistics)
    in_use = [f.statistics_path for f in (*after.statistics, *after.partition_statistics)]
    return UnreachableFiles(
        **{name: _paths(files, content) for name, content in _CONTENTS.items()},
        manifests=tuple(_paths_not_in(_manifest_file_paths(only), _manifest_file_paths(kept))),
        lists=tuple(_paths_not_in(_list_paths(expired), _list_paths(after.lazy_snapshots))),
        statistics=tuple(_paths_not_in([f.statistics_path for f in statistics if f.snapshot_id in gone], in_use)),
        missing=(*missing, *also_missing),
    )


_CONTENTS = {
    "data_files": Content.DATA,
    "position_deletes": Content.POSITION_DELETES,
    "equality_deletes": Content.EQUALITY_DELETES,
}


def _manifests_and_missing_lists(
    io: FileIO, metadata: TableMetadata, snapshots: Sequence[Snapshot]
) -> tuple[ManifestsByPath, Paths]:
    """The manifests of snapshots that go, and the lists of those that are gone already."""

    def one(snapshot: Snapshot) -> tuple[Manifest, ...] | str:
        try:
            return manifests_of(io, metadata, snapshot)
        except MissingFile as e:
            return e.path

    listed = _read_each_list(io, metadata, snapshots, one)
    found = _manifests_by_path(m for manifests in listed if not isinstance(manifests, str) for m in manifests)
    return found, tuple(path for path in listed if isinstance(path, str))


def _entries_only_in(
    io: FileIO, before: TableMetadata, only: ManifestsByPath, after: TableMetadata, kept: ManifestsByPath
) -> tuple[EntryTable, Paths]:
    """The live files of manifests that go, without those that are live in a manifest that stays."""
    specs = Specs.of(before)

    def one(manifest: Manifest) -> EntryTable | str:
        try:
            return read_entries(io, [manifest], specs, live_only=True)
        except MissingFile as e:
            return e.path

    read = map_in_threads(one, list(only.values()), manifest_reader_count(io, only.values()))
    entries = EntryTable.concat([t for t in read if not isinstance(t, str)], specs)
    missing = tuple(path for path in read if isinstance(path, str))
    if not len(entries):
        return entries, missing
    live = _read_entries_one_by_one(io, [m for m in kept.values() if m.may_hold_live_files], Specs.of(after))
    in_use = pc.is_in(canonical_path_all(entries["file_path"]), value_set=canonical_path_all(live["file_path"]))
    return entries.filter(pc.invert(in_use)), missing


def _paths(files: EntryTable, content: Content) -> Paths:
    """The paths of the files of one kind; a file of several vectors is one file."""
    return tuple(pc.unique(files.of_content(content)["file_path"]).to_pylist())


def _paths_not_in(paths: Iterable[str], others: Iterable[str]) -> list[str]:
    """The paths, each once, that are not among the others, however those are spelt."""
    column = pa.array(dict.fromkeys(paths), pa.string())
    known = canonical_path_all(pa.array(list(others), pa.string()))
    return list(column.filter(pc.invert(pc.is_in(canonical_path_all(column), value_set=known))).to_pylist())


def roots_of(metadata: TableMetadata, metadata_location: str = "") -> Paths:
    """The places a table writes to; a file elsewhere was brought in, and may be someone else's too.

    The metadata comes from storage, and what is below these places may be deleted: a place that is implausible beside
    the metadata file that the catalog names is left out.
    """
    properties = properties_of(metadata.properties)
    places = (metadata.location, properties.data_path, properties.metadata_path)
    return tuple(place for place in places if place and may_be_table_location(place, metadata_location))
