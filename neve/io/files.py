"""Read, create and delete files through any PyIceberg `FileIO`.

This module adds what `FileIO` lacks: reading within a size limit, creating a file only if it does not exist, and
deleting many files. New local files are synced, because files that metadata refers to must survive a power cut.

Errors name the file: `MissingFile` if it does not exist, `TableError` with its cause if the storage fails.
"""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO

from neve.errors import CorruptFile, LimitExceeded, MissingFile, NeveError, TableError
from neve.io.paths import local_path, refuse_outside
from neve.io.storage_paths import checked_input_file, delete_remote_file, input_file, local_file_path, output_file


def fsync_paths(*paths: str) -> None:
    """Wait until files, and the entries of folders, are on the disk."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as e:
            if e.errno not in (errno.EINVAL, errno.ENOTSUP):  # not every file system can sync a folder
                raise
        finally:
            os.close(handle)


DEFAULT_LIMIT = 1 << 30
_MAX_GAP_BYTES = 64 << 10  # reading this many unused bytes is cheaper than another request
_MAX_READ_BYTES = 32 << 20
_COPY_BYTES = 8 << 20
_THREADS = 16
PART_FILE_PATTERN = r"/\.[0-9a-f]{32}\.part$"
"""How the path of an unfinished local file ends, if this engine wrote it."""
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
_FAILURES = (OSError, ValueError, NotImplementedError, ImportError)  # also raised for unknown schemes and invalid names


def read_file(io: FileIO, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
    """Read a whole file of at most `limit` bytes."""
    with _open_stream(io, path) as stream:
        size = stream.seek(0, os.SEEK_END)
        return _read_bytes(stream, path, 0, size, size, limit)


def read_range(io: FileIO, path: str, offset: int, length: int, limit: int = DEFAULT_LIMIT) -> bytes:
    """Read `length` bytes of a file, starting at `offset`."""
    return read_many_ranges(io, path, [(offset, length)], limit)[0]


def read_many_ranges(
    io: FileIO, path: str, ranges: Sequence[tuple[int, int]], limit: int = DEFAULT_LIMIT
) -> list[bytes]:
    """Read several (offset, length) ranges of a file, which is opened once; ranges close together are read together."""
    parts: dict[tuple[int, int], bytes] = {}
    with _open_stream(io, path) as stream:
        size = stream.seek(0, os.SEEK_END)
        for group in _group_nearby_ranges(ranges):
            start, end = group[0][0], max(offset + length for offset, length in group)
            data = _read_bytes(stream, path, start, end - start, size, limit)
            parts |= {(offset, length): data[offset - start : offset - start + length] for offset, length in group}
    return [parts[offset, length] for offset, length in ranges]


def file_size(io: FileIO, path: str) -> int:
    """Return the length of a file in bytes."""
    with translate_storage_errors(path, "read"):
        return len(input_file(io, path))


def write_new_file(io: FileIO, path: str, data: bytes) -> None:
    """Create a file; raise an error if it already exists.

    On a local disk the file appears complete or not at all, and it is on the disk when this function returns. An object
    store also shows only complete objects, but it detects an existing object only by a check before the write. So names
    must be unique.
    """
    _write_new_file(io, path, [data])


def copy_file(io: FileIO, source: str, target: str) -> int:
    """Copy a file to a path where no file is, a part at a time, and return its size; the copy is as `write_new_file`'s.

    Raises `TableError` if the copy has another size, and removes it.
    """
    with _open_stream(io, source) as stream:
        size = int(stream.seek(0, os.SEEK_END))
        stream.seek(0)
        _write_new_file(io, target, _parts_of(stream))
    if (copied := file_size(io, target)) != size:
        delete_files(io, [target])
        raise TableError(f"Cannot copy {source} to {target}: the copy has {copied} bytes instead of {size}. Try again.")
    return size


def _parts_of(stream: Any) -> Iterator[bytes]:
    while part := stream.read(_COPY_BYTES):
        yield bytes(part)


def _write_new_file(io: FileIO, path: str, parts: Iterable[bytes]) -> None:
    target = local_file_path(io, path)
    with translate_storage_errors(path, "create"):
        if target is not None:
            _write_local(target, parts)
            return
        stream = output_file(io, path).create(overwrite=False)
        try:
            with stream:
                for part in parts:
                    stream.write(part)
        except BaseException:
            with suppress(Exception):
                delete_remote_file(io, path)
            raise


def is_part_file(path: str) -> bool:
    """Return whether a path belongs to an unfinished local file of this engine."""
    return re.search(PART_FILE_PATTERN, path) is not None


def delete_files(io: FileIO, paths: Iterable[str], roots: Sequence[str] | None = None) -> dict[str, str]:
    """Delete files; return the ones that could not be deleted, and why. A missing file is not a failure.

    With roots, a path outside all of them raises an error before anything is deleted. A local file whose path leads out
    of the roots through a symbolic link is not deleted.
    """
    unique_paths = list(dict.fromkeys(paths))
    if roots is not None:
        refuse_outside(pa.array(unique_paths, pa.string()), roots, "delete")
    with ThreadPoolExecutor(_THREADS) as pool:
        reasons = pool.map(lambda path: _try_delete(io, path, roots), unique_paths)
    return {path: reason for path, reason in zip(unique_paths, reasons, strict=True) if reason}


@contextmanager
def _open_stream(io: FileIO, path: str) -> Iterator[Any]:
    with translate_storage_errors(path, "read"), checked_input_file(io, path).open() as stream:
        yield stream


@contextmanager
def translate_storage_errors(path: str, action: str) -> Iterator[None]:
    """Turn storage failures into errors that name the file."""
    try:
        yield
    except NeveError:
        raise
    except FileNotFoundError as e:
        raise (MissingFile(path) if action == "read" else TableError(f"Cannot {action} {path}: {e}")) from e
    except FileExistsError as e:
        raise TableError(f"Cannot {action} {path}: there is a file already, and files are never overwritten.") from e
    except _FAILURES as e:
        raise TableError(f"Cannot {action} {path}: {e}") from e
    except MemoryError as e:
        raise out_of_memory_error(path) from e


def out_of_memory_error(path: str) -> TableError:
    """Return the error for a file that needs more memory than there is, perhaps on purpose."""
    return TableError(
        f"Cannot read {path}: it needs more memory than this process has. It may be a decompression bomb."
    )


def _read_bytes(stream: Any, path: str, offset: int, length: int, size: int, limit: int) -> bytes:
    if length > limit:
        raise LimitExceeded(f"{path} ({length} bytes to read)", limit, "Raise the limit if you trust the file.")
    if offset < 0 or length < 0 or offset + length > size:
        raise CorruptFile(path, f"{length} bytes from byte {offset} on", f"a file of {size} bytes")
    stream.seek(offset)
    data = stream.read(length)
    if len(data) != length:
        raise CorruptFile(path, f"{length} bytes from byte {offset} on", f"{len(data)}")
    return bytes(data)


def _group_nearby_ranges(ranges: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Group the ranges that are worth reading in one request."""
    group: list[tuple[int, int]] = []
    end = 0
    for offset, length in sorted(set(ranges)):
        if group and (offset - end > _MAX_GAP_BYTES or max(end, offset + length) - group[0][0] > _MAX_READ_BYTES):
            yield group
            group = []
        end = max(end, offset + length) if group else offset + length
        group.append((offset, length))
    if group:
        yield group


def _write_local(target: str, parts: Iterable[bytes]) -> None:
    folder = os.path.dirname(target)
    _make_folder(folder)
    part = os.path.join(folder, f".{uuid.uuid4().hex}.part")
    try:
        _write_synced(part, parts)
        try:
            os.link(part, target)  # unlike a rename, a link fails if the name is taken
        except OSError as e:
            if e.errno not in _NO_LINKS:
                raise
            with open(part, "rb") as file:
                _write_synced(target, _parts_of(file))
    finally:
        with suppress(FileNotFoundError):
            os.unlink(part)
    try:
        fsync_paths(folder)
    except BaseException:
        os.unlink(target)
        raise


def _write_synced(path: str, parts: Iterable[bytes]) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with open(handle, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(handle)
    except BaseException:
        os.unlink(path)
        raise


def _make_folder(folder: str) -> None:
    """Create a folder and its parents; each is an entry in its parent folder, which must be synced too."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    _make_folder(parent)
    with suppress(FileExistsError):
        os.mkdir(folder)
    fsync_paths(parent)


def _try_delete(io: FileIO, path: str, roots: Sequence[str] | None) -> str | None:
    """Delete a file; return the reason if that fails."""
    target = local_file_path(io, path)
    try:
        if target is not None and roots is not None and not _is_really_inside(target, roots):
            return "it is reached through a symbolic link that leads out of the table"
        if target is not None:
            os.unlink(target)
        else:
            delete_remote_file(io, path)
    except FileNotFoundError:
        return None
    except Exception as e:  # a failed deletion must not stop the others; the caller reports it
        return str(e) or type(e).__name__
    return None


def _is_really_inside(target: str, roots: Sequence[str]) -> bool:
    folder = os.path.realpath(os.path.dirname(target))
    real_roots = [os.path.realpath(local) for local in map(local_path, roots) if local is not None]
    return any(os.path.commonpath([folder, root]) == root for root in real_roots)
