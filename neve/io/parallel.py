"""The same work on many files at once: storage is waited for, and decoding runs outside the interpreter lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from typing import TypeVar

from pyiceberg.io import FileIO

from neve.io.storage_paths import local_file_path

T = TypeVar("T")
U = TypeVar("U")

_REMOTE_READERS = 16
"""Files read at once from storage that is waited for."""
_SMALL_BYTES = 2 << 20
"""Bytes that one thread has read from a local disk before others have started and got the interpreter's lock."""


def reader_count(io: FileIO, paths: Iterable[str], size: int | None = None) -> int:
    """How many of some files are worth reading at once, of that many bytes in all, if that is known.

    On a local disk, where nothing is waited for, one a core; and one alone where there is little to read.
    """
    cores, first = cpu_count() or 1, next(iter(paths), None)
    if first is not None and local_file_path(io, first) is None:
        return max(cores, _REMOTE_READERS)
    return 1 if size is not None and size < _SMALL_BYTES else cores


def map_in_threads(work: Callable[[T], U], items: Sequence[T], threads: int) -> list[U]:
    """What the work makes of each item, in their order."""
    if len(items) < 2 or threads < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(len(items), threads)) as pool:
        return list(pool.map(work, items))
