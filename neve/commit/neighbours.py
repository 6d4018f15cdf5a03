"""Find the tables that share files or folders with a table, so that nothing of theirs is deleted with it.

The catalog is asked, entry by entry. Table ids do not decide: the same metadata may be registered under two names.

- A *twin* is another entry of the same table: it has the same metadata file, a snapshot of the same tree, or the same
  id in overlapping folders. What one deletes, the other loses, so clean-up is rejected unless the caller allows it.
- A *neighbour* is another table with a folder that contains, equals or lies in one of the table's folders.

Files that a twin or a neighbour references are in use. Where folders are symbolic links, the real folders are compared.

An entry that cannot be read now may be any of these, so clean-up is rejected unless the caller allows it. Metadata that
this process can never read (it is damaged or gone, of a kind that Névé does not know, or of somebody else) counts only
if it is in or around the folders of the table, as far as it says where its table is.

An entry of a separate catalog that nobody can ask leaves traces only once it commits: metadata files that follow each
other and are not in the history of the table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.typedef import EMPTY_DICT

from neve.catalog import refresh_table
from neve.catalog.base import NeveCatalog
from neve.catalog.entries import CatalogEntry, find_entry, folders_of, list_other_entries
from neve.catalog.metadata_files import is_metadata_file, read_metadata, version_of
from neve.commit.reachable_files import find_reachable_files, tree_roots
from neve.display.format import join_with_and
from neve.errors import CorruptFile, LimitExceeded, MissingFile, NeveError, UnsupportedFeature, UserError
from neve.io.files import read_file
from neve.io.listing import list_files
from neve.io.parallel import map_in_threads, reader_count
from neve.io.paths import location_from_property, real_folder, real_path, real_path_all
from neve.model.metadata import TableMetadata, to_neve_metadata

STAGING_FOLDER = "copy-table-staging-"
"""How the name of a folder begins in which metadata is written for a copy elsewhere; Iceberg uses the same name."""

_MAX_REASONS = 3  # of entries that cannot be read
_METADATA_BYTES = 16 << 10  # approximate size of a metadata file
_ADVICE_ON_TWINS = (
    "Drop one of the entries without purge, or call allow_shared() to keep the files that the other one references."
)
_ADVICE_ON_UNREADABLE = (
    "Try again when it can be read, drop the entry if its table is damaged, or allow unreadable entries to clean up "
    "regardless of them."
)
_DENIED = re.compile("access.?denied|forbidden|permission", re.IGNORECASE)


@dataclass(frozen=True)
class Place:
    """Where a table is: its metadata, and the folders of its files."""

    name: str
    metadata: TableMetadata
    metadata_location: str
    io: FileIO = field(repr=False)

    @classmethod
    def of(cls, table: Table, name: str = "") -> Place:
        """Return the place of a table that a catalog has loaded."""
        return cls(name or ".".join(table.name()), to_neve_metadata(table.metadata), table.metadata_location, table.io)

    @cached_property
    def folders(self) -> frozenset[str]:
        """The real folders that the table writes to."""
        return frozenset(map(real_folder, folders_of(self.metadata, self.metadata_location)))

    def overlaps(self, other: Place) -> bool:
        """Return whether a folder of one contains or equals a folder of the other."""
        return any(_overlap(one, two) for one in self.folders for two in other.folders)

    def is_twin(self, other: Place) -> bool:
        """Return whether both are entries of one table. Tables that were copied keep their id, but share no folder."""
        if self._real_metadata_location == other._real_metadata_location:
            return True
        has_same_id, overlaps = self.metadata.table_uuid == other.metadata.table_uuid, self.overlaps(other)
        if has_same_id == overlaps:
            return overlaps
        return not self._tree_roots.isdisjoint(other._tree_roots)

    @cached_property
    def _real_metadata_location(self) -> str:
        return real_path(self.metadata_location)

    @cached_property
    def _tree_roots(self) -> frozenset[str]:
        return frozenset(_real_paths(tree_roots(self.metadata.lazy_snapshots)))

    def paths_in_use(self) -> list[str]:
        """Return every file that the table references."""
        reach = find_reachable_files(self.io, self.metadata, self.metadata_location, live_only=True)
        return [path for paths in reach for path in paths]


@dataclass(frozen=True, slots=True)
class UnreadableEntry:
    """An entry of a catalog that may share files with the table, and why it cannot be read."""

    name: str
    reason: str


class SharedFilesError(UserError):
    """A clean-up was rejected, because it could delete files of another table."""


@dataclass(frozen=True, slots=True)
class AllowedNeighbours:
    """Neighbours that do not stop a clean-up, because the caller knows of them."""

    twins: bool = False  # their files are kept
    unreadable: bool = False  # their files cannot be known


@dataclass(frozen=True)
class Neighbours:
    """The tables that share files or folders with a table."""

    twins: tuple[Place, ...] = ()
    others: tuple[Place, ...] = ()
    unreadable: tuple[UnreadableEntry, ...] = ()

    def refuse_deletion(self, action: str, allowed: AllowedNeighbours, advice: str = "") -> None:
        """Reject an action that would delete files of another entry of the same table, or of one that is not known."""
        if self.twins and not allowed.twins:
            names = join_with_and([twin.name for twin in self.twins])
            raise SharedFilesError(
                f"Cannot {action}: the same table has another entry, {names}, which would lose files. "
                f"{advice or _ADVICE_ON_TWINS}"
            )
        if self.unreadable and not allowed.unreadable:
            names = join_with_and([entry.name for entry in self.unreadable])
            reasons = " ".join(dict.fromkeys(entry.reason for entry in self.unreadable[:_MAX_REASONS]))
            raise SharedFilesError(
                f"Cannot {action}: {names} cannot be read, and may use the same files. {reasons} "
                f"{advice or _ADVICE_ON_UNREADABLE}"
            )

    @cached_property
    def names_by_path(self) -> Mapping[str, str]:
        """The real paths of all files that twins and neighbours reference, with the name of the table."""
        places = (*self.others, *self.twins)
        return {path: place.name for place in places for path in _real_paths(place.paths_in_use())}

    def select_shared(self, paths: Iterable[str]) -> dict[str, str]:
        """Return those of some files that a twin or neighbour references, with its name."""
        if not self.twins and not self.others:
            return {}
        files = list(paths)
        pairs = zip(files, _real_paths(files), strict=True)
        return {path: name for path, real in pairs if (name := self.names_by_path.get(real))}


def find_neighbours(catalog: NeveCatalog, table: Table) -> Neighbours:
    """Find the tables that share files or folders with a table."""
    # The folder is listed before the tables are loaded: what they commit later is not in the list.
    folder = table.metadata_location.rpartition("/")[0]
    paths: list[str] = list_files(table.io, folder)["path"].to_pylist()
    own, entries = Place.of(refresh_table(catalog, table)), list_other_entries(catalog, table, paths)
    locations = [entry.metadata_location or table.metadata_location for entry in entries]
    threads = reader_count(table.io, locations, len(entries) * _METADATA_BYTES)
    places = map_in_threads(lambda entry: _load_place(entry, catalog, own), entries, threads)
    loaded = [place for place in places if isinstance(place, Place)]
    unreadable = tuple(place for place in places if isinstance(place, UnreadableEntry))
    are_twins = [own.is_twin(place) for place in loaded]
    twins = [place for place, is_twin in zip(loaded, are_twins, strict=True) if is_twin]
    others = [p for p, is_twin in zip(loaded, are_twins, strict=True) if not is_twin and own.overlaps(p)]
    twins += _find_other_histories(own, twins, _select_own_metadata_files(paths, folder))
    return Neighbours(tuple(twins), tuple(others), unreadable)


def _select_own_metadata_files(paths: Iterable[str], folder: str) -> list[str]:
    """Return the metadata files in a folder, without those that were written there for a copy elsewhere."""
    staging = f"/{STAGING_FOLDER}"
    return [path for path in paths if is_metadata_file(path) and path.count(staging) == folder.count(staging)]


def _load_place(entry: CatalogEntry, catalog: NeveCatalog, own: Place) -> Place | UnreadableEntry | None:
    """Return the place of an entry; None if its table was dropped, or cannot be read and is elsewhere."""
    try:
        return Place.of(entry.load(catalog), entry.name)
    except NoSuchTableError:
        return None
    except MissingFile as e:
        if (moved := find_entry(catalog, entry)) != entry.metadata_location and moved is not None:  # committed since
            return _load_place(replace(entry, metadata_location=moved), catalog, own)
        error: Exception = e
    except Exception as e:  # every catalog and storage has its own errors
        error = e
    is_lasting = isinstance(error, CorruptFile | LimitExceeded | MissingFile | UnsupportedFeature)
    is_lasting |= _DENIED.search(str(error)) is not None
    if is_lasting and entry.metadata_location is not None and not _may_overlap(entry.metadata_location, catalog, own):
        return None
    reason = str(error) if isinstance(error, NeveError) else f"{type(error).__name__}: {error}".rstrip(" :.") + "."
    return UnreadableEntry(entry.name, reason)


def _may_overlap(metadata_location: str, catalog: NeveCatalog, own: Place) -> bool:
    """Return whether a table may share a folder with another one, by what its metadata file says as plain JSON."""
    folders = [metadata_location.rpartition("/")[0].removesuffix("/metadata")]
    with suppress(Exception):  # it cannot be read: its own folder is all that is known
        io = catalog._load_file_io(EMPTY_DICT, metadata_location)
        document = json.loads(read_file(io, metadata_location))
        properties = document.get("properties", {})
        named = [document["location"], *(properties.get(name) for name in ("write.data.path", "write.metadata.path"))]
        folders += [location_from_property(document["location"], path) for path in named if path]
    return any(_overlap(real_folder(folder), own_folder) for folder in folders for own_folder in own.folders)


def _overlap(one: str, two: str) -> bool:
    return f"{one}/".startswith(f"{two}/") or f"{two}/".startswith(f"{one}/")


def _find_other_histories(own: Place, twins: Sequence[Place], metadata_files: Iterable[str]) -> list[Place]:
    """Return the metadata files that continue the table in a catalog that cannot be asked.

    A writer that is killed or loses a race leaves a metadata file that follows one of the table's history. A file that
    follows another file outside the history shows that the other one was committed, somewhere else.
    """
    history = {path for place in (own, *twins) for path in _real_paths(_metadata_files_of(place))}
    oldest = min(version_of(path) or 0 for path in history)
    newer = [path for path in metadata_files if (version_of(path) or 0) > oldest]
    unknown = [path for path, real in zip(newer, _real_paths(newer), strict=True) if real not in history]
    threads = reader_count(own.io, unknown, len(unknown) * _METADATA_BYTES)
    places = [p for p in map_in_threads(lambda path: _read_place(own, path), unknown, threads) if p is not None]
    return [p for p in places if real_path(_metadata_files_of(p)[0]) not in history and own.is_twin(p)]


def _read_place(own: Place, path: str) -> Place | None:
    try:
        return Place(f"{path} in another catalog", read_metadata(own.io, path), path, own.io)
    except (MissingFile, CorruptFile, LimitExceeded):  # deleted meanwhile, or not finished
        return None


def _metadata_files_of(place: Place) -> list[str]:
    """Return the metadata files of a table: the previous one, or else the first, comes first."""
    log = [entry.metadata_file for entry in place.metadata.metadata_log]
    return [*reversed(log), place.metadata_location]


def _real_paths(paths: Iterable[str]) -> list[str]:
    return list(real_path_all(pa.array(list(paths), pa.string())).to_pylist())
