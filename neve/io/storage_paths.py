"""Map a stored path to a file: the storage that PyIceberg would use, and the file's name there.

PyIceberg's own implementations get two corrections. A local file is opened by its plain path, whichever form the table
stores. A name in an object store is not parsed as a URI: this would drop everything after a `#` or `?`, and so read or
delete another object. Any other `FileIO` gets the path as it is stored.
"""

from __future__ import annotations

import os
import stat
from urllib.parse import urlsplit

from pyarrow.fs import FileSystem
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from neve.errors import TableError
from neve.io.paths import local_path, scheme_of


def local_file_path(io: FileIO, path: str) -> str | None:
    """Return the plain path of a file that PyIceberg would look for on the local disk; None for any other file."""
    if not isinstance(io, (PyArrowFileIO, FsspecFileIO)):
        return None
    if scheme_of(path) is None and io.properties.get("DEFAULT_SCHEME", "file") != "file":
        return None
    return local_path(path)


def arrow_filesystem_path(io: PyArrowFileIO, path: str) -> tuple[FileSystem, str]:
    """Return the Arrow file system of a path, and the full name of the file there."""
    scheme, host, name = io.parse_location(path, io.properties)
    if _has_uri_delimiters(path):
        name = path[path.index(name, len(scheme)) :]
    return io.fs_by_scheme(scheme, host), name


def input_file(io: FileIO, path: str) -> InputFile:
    """Return the file to read."""
    file = _file_with_full_name(io, path)
    # Not `or`: `bool(file)` is the length of the file, which costs a request.
    return io.new_input(local_file_path(io, path) or path) if file is None else file


def checked_input_file(io: FileIO, path: str) -> InputFile:
    """Return the file to read after checking that it is a regular file: opening a pipe or a device may never end."""
    if (target := local_file_path(io, path)) is not None:
        check_is_file(target, path)
    return input_file(io, path)


def check_is_file(target: str, path: str) -> None:
    """Reject a local path that is not a regular file; `path` is its form in the table, for the error."""
    if not stat.S_ISREG(os.stat(target).st_mode):
        raise TableError(f"Cannot read {path}: it is a folder, a pipe or a device, not a file.")


def output_file(io: FileIO, path: str) -> OutputFile:
    """Return the file to write, if it is not local."""
    file = _file_with_full_name(io, path)
    return io.new_output(path) if file is None else file


def delete_remote_file(io: FileIO, path: str) -> None:
    """Delete a file that is not local."""
    if isinstance(io, PyArrowFileIO) and _has_uri_delimiters(path):
        files, name = arrow_filesystem_path(io, path)
        files.delete_file(name)
    elif isinstance(io, FsspecFileIO):  # its own `delete` treats `*`, `?` and `[` as patterns
        files = io.get_fs(scheme_of(path) or "file", urlsplit(path).hostname)
        files.rm_file(files._strip_protocol(path))
    else:
        io.delete(path)


def _file_with_full_name(io: FileIO, path: str) -> PyArrowFile | None:
    """Return a file that PyArrowFileIO would look for under a truncated name; None for any other file."""
    if not isinstance(io, PyArrowFileIO) or not _has_uri_delimiters(path) or local_file_path(io, path) is not None:
        return None
    files, name = arrow_filesystem_path(io, path)
    return PyArrowFile(path, name, files)


def _has_uri_delimiters(path: str) -> bool:
    return scheme_of(path) is not None and ("#" in path or "?" in path)
