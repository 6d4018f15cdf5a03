"""Whole files and parts of files, through any PyIceberg `FileIO`.

What `FileIO` leaves out: reading within a limit, creating a file that was not there (durably, where the disk is ours),
deleting many files.

Errors name the file: `MissingFile` when it is not there, `TableError` with its cause when the storage fails.

Local files that survive a power cut: what metadata names must be on the disk, not in a cache.
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
    """Wait until files, and the entries of folders, have reached the disk."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as e:
            if e.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that cannot sync a folder
                raise
        finally:
            os.close(handle)


DEFAULT_LIMIT = 1 << 30
_MAX_GAP_BYTES = 64 << 10  # reading this much for nothing is cheaper than another request
_MAX_READ_BYTES = 32 << 20
_THREADS = 16
PART_FILE_PATTERN = r"/\.[0-9a-f]{32}\.part$"
"""The end of the path of a local file that a writer of this engine did not finish."""
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
_FAILURES = (OSError, ValueError, NotImplementedError, ImportError)  # also: a scheme or a name nobody knows


def read_file(io: FileIO, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
    """All bytes of a file that is at most `limit` long."""
    with _open_stream(io, path) as stream:
        size = stream.seek(0, os.SEEK_END)
        return _read_bytes(stream, path, 0, size, size, limit)


def read_range(io: FileIO, path: str, offset: int, length: int, limit: int = DEFAULT_LIMIT) -> bytes:
    """`length` bytes of a file from `offset` on."""
    return read_many_ranges(io, path, [(offset, length)], limit)[0]


def read_many_ranges(
    io: FileIO, path: str, ranges: Sequence[tuple[int, int]], limit: int = DEFAULT_LIMIT
) -> list[bytes]:
    """Several (offset, length) parts of a file, opened once; parts that lie near one another are read together."""
    parts: dict[tuple[int, int], bytes] = {}
    with _open_stream(io, path) as stream:
        size = stream.seek(0, os.SEEK_END)
        for group in _group_nearby_ranges(ranges):
            start, end = group[0][0], max(offset + length for offset, length in group)
            data = _read_bytes(stream, path, start, end - start, size, limit)
            parts |= {(offset, length): data[offset - start : offset - start + length] for offset, length in group}
    return [parts[wanted] for wanted in ranges]


def file_size(io: FileIO, path: str) -> int:
    """The length of a file in bytes."""
    with translate_storage_errors(path, "read"):
        return len(input_file(io, path))


def file_exists(io: FileIO, path: str) -> bool:
    """Whether there is a file at a path."""
    with translate_storage_errors(path, "look for"):
        return input_file(io, path).exists()


def write_new_file(io: FileIO, path: str, data: bytes) -> None:
    """Create a file; one that is there already is left alone and is an error.

    On a local disk the file appears complete or not at all, and has reached the disk when this returns. An object store
    makes an object visible only when it is complete, but there a second writer of the same name is noticed only by
    looking before writing: names must be unique.
    """
    target = local_file_path(io, path)
    with translate_storage_errors(path, "create"):
        if target is None:
            _write_remote(io, path, data)
        else:
            _write_local(target, data)


def is_part_file(path: str) -> bool:
    """Whether a path is that of a local file which was not finished, by a writer of this engine."""
    return re.search(PART_FILE_PATTERN, path) is not None


def delete_files(io: FileIO, paths: Iterable[str], roots: Sequence[str] | None = None) -> dict[str, str]:
    """Delete files; the answer says which ones could not be deleted, and why. A file that is not there is no failure.

    With roots, a path that is not below one of them is an error before anything is deleted, and a local file that is
    reached through a symbolic link leading out of them stays.
    """
    wanted = list(dict.fromkeys(paths))
    if roots is not None:
        refuse_outside(pa.array(wanted, pa.string()), roots, "delete")
    with ThreadPoolExecutor(_THREADS) as pool:
        reasons = pool.map(lambda path: _try_delete(io, path, roots), wanted)
    return {path: reason for path, reason in zip(wanted, reasons, strict=True) if reason}


@contextmanager
def _open_stream(io: FileIO, path: str) -> Iterator[Any]:
    with translate_storage_errors(path, "read"), checked_input_file(io, path).open() as stream:
        yield stream


@contextmanager
def translate_storage_errors(path: str, action: str) -> Iterator[None]:
    """Failures of the storage as errors that name the file."""
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
    """A file that asks for more than there is: too large for this machine, or made to be."""
    return TableError(
        f"Cannot read {path}: it needs more memory than this process has. It may be a decompression bomb."
    )


def _read_bytes(stream: Any, path: str, offset: int, length: int, size: int, limit: int) -> bytes:
    if length > limit:
        raise LimitExceeded(f"{path} ({length} bytes to read)", limit, "Raise the limit if the file is to be trusted.")
    if offset < 0 or length < 0 or offset + length > size:
        raise CorruptFile(path, f"{length} bytes from byte {offset} on", f"a file of {size} bytes")
    stream.seek(offset)
    data = stream.read(length)
    if len(data) != length:
        raise CorruptFile(path, f"{length} bytes from byte {offset} on", f"{len(data)}")
    return bytes(data)


def _group_nearby_ranges(ranges: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """The ranges in groups worth reading in one go."""
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


def _write_remote(io: FileIO, path: str, data: bytes) -> None:
    stream = output_file(io, path).create(overwrite=False)
    try:
        with stream:
            stream.write(data)
    except BaseException:
        with suppress(Exception):
            delete_remote_file(io, path)
        raise


def _write_local(target: str, data: bytes) -> None:
    folder = os.path.dirname(target)
    _make_folder(folder)
    part = os.path.join(folder, f".{uuid.uuid4().hex}.part")
    try:
        _write_synced(part, data)
        _link_into_place(part, target, data)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(part)
    try:
        fsync_paths(folder)
    except BaseException:
        os.unlink(target)
        raise


def _link_into_place(part: str, target: str, data: bytes) -> None:
    """Give a finished file its name; unlike a rename, a link fails when the name is taken."""
    try:
        os.link(part, target)
    except OSError as e:
        if e.errno not in _NO_LINKS:
            raise
        _write_synced(target, data)


def _write_synced(path: str, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)
    except BaseException:
        os.unlink(path)
        raise


def _make_folder(folder: str) -> None:
    """Create a folder and those above it; each is an entry in its parent, which has to reach the disk too."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    _make_folder(parent)
    with suppress(FileExistsError):
        os.mkdir(folder)
    fsync_paths(parent)


def _try_delete(io: FileIO, path: str, roots: Sequence[str] | None) -> str | None:
    """Why a file could not be deleted."""
    target = local_file_path(io, path)
    try:
        if target is not None and roots is not None and not _really_inside(target, roots):
            return "it is reached through a symbolic link that leads out of the table"
        if target is not None:
            os.unlink(target)
        else:
            delete_remote_file(io, path)
    except FileNotFoundError:
        return None
    except Exception as e:  # a deletion that fails must not stop the others; the caller reports it
        return str(e) or type(e).__name__
    return None


def _really_inside(target: str, roots: Sequence[str]) -> bool:
    folder = os.path.realpath(os.path.dirname(target))
    real = [os.path.realpath(local) for local in map(local_path, roots) if local is not None]
    return any(os.path.commonpath([folder, root]) == root for root in real)
