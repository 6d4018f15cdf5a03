"""The same work on many files at once: storage is waited for, and decoding runs outside the interpreter lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from typing import TypeVar

from pyiceberg.io import FileIO

from neve.io.targets import local_target

__all__ = ["in_threads", "readers"]

T = TypeVar("T")
U = TypeVar("U")

_AWAY = 16
"""Files read at once from storage that is waited for."""


def readers(io: FileIO, paths: Iterable[str]) -> int:
    """How many of some files are worth reading at once: one a core on a local disk, where nothing is waited for."""
    cores, first = cpu_count() or 1, next(iter(paths), None)
    return cores if first is None or local_target(io, first) is not None else max(cores, _AWAY)


def in_threads(work: Callable[[T], U], items: Sequence[T], threads: int) -> list[U]:
    """What the work makes of each item, in their order."""
    if len(items) < 2 or threads < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(len(items), threads)) as pool:
        return list(pool.map(work, items))
