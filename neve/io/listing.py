"""List the files below a location: path, size and modification time, as an Arrow table.

Returned paths start with the prefix exactly as the caller wrote it. Symbolic links are neither followed nor listed, so
that deleting the listed files never leaves the prefix; a caller that only reads may ask for them. The modification time
is null if the storage does not report it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import islice
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs
from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from neve.errors import UnsupportedFeature
from neve.io.files import translate_storage_errors
from neve.io.paths import scheme_of
from neve.io.storage_paths import arrow_filesystem_path, local_file_path

LISTING_SCHEMA = pa.schema([("path", pa.string()), ("size", pa.int64()), ("modified_ms", pa.int64())])
_MODIFIED_KEYS = ("mtime", "LastModified", "last_modified", "updated", "created")  # names in fsspec file systems

Row = tuple[str, int, int | None]


def list_files(io: FileIO, prefix: str, *, follows_links: bool = False) -> pa.Table:
    """List every file below a prefix, at any depth; the table is empty if the location does not exist."""
    prefix = prefix.rstrip("/")
    with translate_storage_errors(prefix, "list"):
        rows = list(_rows(io, prefix, follows_links))
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, LISTING_SCHEMA, strict=True)], schema=LISTING_SCHEMA)


def list_some_paths(io: FileIO, prefix: str, limit: int) -> list[str]:
    """Return the paths of at most `limit` files below a prefix, in no particular order."""
    with translate_storage_errors(prefix, "list"):
        return [path for path, _, _ in islice(_rows(io, prefix.rstrip("/")), limit)]


def _rows(io: FileIO, prefix: str, follows_links: bool = False) -> Iterator[Row]:
    folder = local_file_path(io, prefix)
    if folder is not None:
        yield from _local_rows(folder, prefix, follows_links)
    elif isinstance(io, PyArrowFileIO):
        arrow_files, below = arrow_filesystem_path(io, prefix)
        selector = pyarrow.fs.FileSelector(below, allow_not_found=True, recursive=True)
        for info in arrow_files.get_file_info(selector):
            if info.type == pyarrow.fs.FileType.File:
                modified_ms = None if info.mtime_ns is None else info.mtime_ns // 1_000_000
                yield prefix + info.path[len(below) :], info.size, modified_ms
    elif isinstance(io, FsspecFileIO):
        yield from _fsspec_rows(io, prefix)
    else:
        raise UnsupportedFeature(
            f"Cannot list {prefix} through {type(io).__name__}. Use PyArrowFileIO or FsspecFileIO."
        )


def _local_rows(folder: str, prefix: str, follows_links: bool) -> Iterator[Row]:
    open_folders = [folder]
    while open_folders:
        with suppress(FileNotFoundError), os.scandir(open_folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=follows_links):
                    open_folders.append(entry.path)
                # Python returns names that are not UTF-8 with surrogates; such a name cannot be a path of a table.
                elif entry.is_file(follow_symlinks=follows_links) and not re.search("[\ud800-\udfff]", entry.name):
                    with suppress(FileNotFoundError):  # deleted meanwhile
                        status = entry.stat(follow_symlinks=follows_links)
                        yield prefix + entry.path[len(folder) :], status.st_size, status.st_mtime_ns // 1_000_000


def _fsspec_rows(io: FsspecFileIO, prefix: str) -> Iterator[Row]:
    files = io.get_fs(scheme_of(prefix) or "file", urlsplit(prefix).hostname)
    below = files._strip_protocol(prefix)
    files.invalidate_cache()  # a cached listing would miss what others wrote
    for name, info in files.find(below, detail=True).items():
        if name.endswith("/"):  # some tools leave folder markers
            continue
        modified = next((info[key] for key in _MODIFIED_KEYS if info.get(key) is not None), None)
        if isinstance(modified, str):
            modified = datetime.fromisoformat(modified)
        if isinstance(modified, datetime):
            modified = modified.timestamp()
        yield prefix + name[len(below) :], info["size"], None if modified is None else int(modified * 1_000)
