"""The folders of a table, and what in them belongs to other tables: where orphans may be searched.

Other tables are known from the catalog, and from metadata files in storage: a table that this catalog does not list may
be in the same place.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from neve.catalog.metadata_files import read_metadata
from neve.commit.cleanup import Prefixes, find_orphans
from neve.commit.neighbours import Neighbours, find_neighbours
from neve.commit.reachable_files import find_reachable_files, roots_of
from neve.errors import CorruptFile, MissingFile, UserError
from neve.io.files import read_range
from neve.io.listing import list_files
from neve.io.parallel import map_in_threads, reader_count
from neve.io.paths import canonical_path, canonical_path_all, has_folders, is_inside, is_inside_all, real_folder
from neve.ops.context import TableContext

_METADATA_NAME_PATTERN = r"/[^/]*\.metadata\.json(\.gz)?$"
_METADATA_PATH_PATTERN = f"/metadata{_METADATA_NAME_PATTERN}"
_HEAD_BYTES = 4 << 10  # of a metadata file; the id of the table is near its beginning
_UUID_PATTERN = re.compile(rb'"table-uuid"\s*:\s*"([^"]*)"')
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class TableFolders:
    """A location to search for orphans, the files that the table references, and the tables around it."""

    context: TableContext
    location: str
    reachable_paths: pa.Array
    neighbours: Neighbours

    @classmethod
    def of(cls, context: TableContext, location: str) -> TableFolders:
        """Read the metadata of the table, and ask the catalog for other tables."""
        return cls(context, location, reachable_paths(context), find_neighbours(context.catalog, context.iceberg))

    @cached_property
    def _write_folders(self) -> frozenset[str]:
        return frozenset(canonical_path(root).rstrip("/") for root in write_locations(self.context))

    @cached_property
    def _own_folders(self) -> frozenset[str]:
        return self._write_folders | {canonical_path(folder) for folder in _table_folders_in(self.reachable_paths)}

    @cached_property
    def has_own_files(self) -> bool:
        """False if the table neither writes to the location nor has a file in it: everything would be an orphan."""
        is_own = canonical_path(self.location) in self._write_folders or is_inside(self.location, *self._write_folders)
        return is_own or pc.any(is_inside_all(self.reachable_paths, [self.location])).as_py() is True

    @cached_property
    def folders_of_writers(self) -> tuple[str, ...]:
        """The folders for data and metadata, and those directly in the location in which the table has files."""
        location, metadata_folder = self.location, self.context.iceberg.metadata_location.rpartition("/")[0]
        requested = (path for path in write_locations(self.context) if path != self.context.metadata.location)
        fixed = [f"{location}/data", f"{location}/metadata", metadata_folder, *requested]
        prefix = canonical_path(location).rstrip("/") + "/"
        paths = canonical_path_all(self.reachable_paths)
        below = pc.utf8_slice_codeunits(paths.filter(pc.starts_with(paths, prefix)), len(prefix))
        folders = pc.unique(pc.extract_regex(below, r"^(?P<folder>[^/]+)/").field("folder").drop_null())
        return (*fixed, *(f"{location}/{folder}" for folder in folders.to_pylist()))

    def is_in_folder_of_writers(self, paths: Any) -> pa.Array:
        """Return which files are in such a folder."""
        canonical = canonical_path_all(paths)
        mask = pc.and_(pc.is_null(canonical), False)
        for folder in self.folders_of_writers:
            mask = pc.or_(mask, pc.starts_with(canonical, f"{canonical_path(folder).rstrip('/')}/"))
        return mask

    def find_other_tables(self, stored_paths: Any) -> tuple[str, ...]:
        """Return the folders inside the location that belong to other tables."""
        found = {f for f in _table_folders_in(stored_paths) if canonical_path(f) not in self._own_folders}
        real, own = real_folder(self.location), {real_folder(folder) for folder in self._own_folders}
        for place in self.neighbours.others:
            inside = (folder for folder in place.folders if is_inside(folder, real) and folder not in own)
            found |= {self.location + folder[len(real) :] for folder in inside}
        return tuple(sorted(found))

    def refuse_inside_others(self) -> None:
        """Reject a location below the folder of another table."""
        location, own = self.location, canonical_path(self.context.metadata.location).rstrip("/")
        if canonical_path(location).rstrip("/") == own:
            return  # the table's own location, whatever is around it
        folder = location.rpartition("/")[0]
        while canonical_path(folder).rstrip("/") not in self._own_folders and has_folders(folder):
            tables = _table_folders_in(list_files(self.context.io, f"{folder}/metadata")["path"])
            if folder in tables and canonical_path(folder) not in self._own_folders:
                raise UserError(f"Cannot remove orphan files in {location}: {folder} holds another table.")
            folder = folder.rpartition("/")[0]

    def refuse_shared_metadata(self, stored: pa.Table, prefixes: Prefixes) -> None:
        """Reject a table whose metadata folder also holds the metadata of another table."""
        context = self.context
        folder = context.iceberg.metadata_location.rpartition("/")[0]
        files = stored if is_inside(folder, self.location) else list_files(context.io, folder)
        folders = pc.replace_substring_regex(canonical_path_all(files["path"]), _METADATA_NAME_PATTERN, "")
        files = files.filter(pc.equal(folders, canonical_path(folder)))
        unknown = files.filter(find_orphans(files["path"], self.reachable_paths, prefixes).orphans)
        metadata_files = unknown.sort_by("path").select(["path", "size"]).to_pylist()
        # Every metadata file has the id of its table near its beginning, so only a few bytes of each are read.
        io, ids_of_table = context.io, (None, str(context.metadata.table_uuid))
        threads = reader_count(io, (f["path"] for f in metadata_files), len(metadata_files) * _HEAD_BYTES)
        table_ids = map_in_threads(lambda f: _read_table_uuid(io, f["path"], f["size"]), metadata_files, threads)
        others = (f["path"] for f, i in zip(metadata_files, table_ids, strict=True) if i not in ids_of_table)
        if path := next((path for path in others if _has_snapshots(io, path)), None):
            raise UserError(
                f"Cannot remove orphan files of table {context.name}: {path} is the metadata of another table, whose "
                "files would be taken for orphans. If that table is gone, delete its metadata files first."
            )


def reachable_paths(context: TableContext) -> pa.Array:
    """Return the paths of all files that the table references."""
    reach = find_reachable_files(context.io, context.metadata, context.iceberg.metadata_location, live_only=True)
    return pa.array([path for paths in reach for path in paths], pa.string())


def write_locations(context: TableContext) -> tuple[str, ...]:
    """Return the locations that the table writes to."""
    return roots_of(context.metadata, context.iceberg.metadata_location)


def _table_folders_in(paths: Any) -> set[str]:
    """Return the folders above the metadata files among some paths."""
    metadata_paths = paths.filter(pc.match_substring_regex(paths, _METADATA_PATH_PATTERN))
    return {path.rsplit("/", 2)[0] for path in metadata_paths.to_pylist()}


def _read_table_uuid(io: FileIO, path: str, size: int) -> str | None:
    """Return the table id in the head of a metadata file; None if it has none, as in early files of version 1."""
    try:
        head = read_range(io, path, 0, min(size, _HEAD_BYTES))
        if head[:2] == _GZIP_MAGIC:
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
    except (MissingFile, CorruptFile, zlib.error):  # deleted meanwhile, or not finished
        return None
    match = _UUID_PATTERN.search(head)
    return match[1].decode(errors="replace").lower() if match else None


def _has_snapshots(io: FileIO, path: str) -> bool:
    try:
        return bool(read_metadata(io, path).snapshots)
    except (MissingFile, CorruptFile):
        return False
