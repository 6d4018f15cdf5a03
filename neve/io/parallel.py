"""Process many files in threads: remote storage has latency, and decoding runs outside the interpreter lock."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from pyiceberg.io import FileIO

from neve.io.storage_paths import local_file_path

T = TypeVar("T")
U = TypeVar("U")

_REMOTE_READERS = 16  # files read at once from remote storage
_SMALL_BYTES = 2 << 20  # one thread reads this much from a local disk before other threads have started


@cache
def usable_cores() -> int:
    """Return how many cores this process may use: in a container, fewer than the machine has."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # not Linux, or without a quota
        quota, period = map(int, Path("/sys/fs/cgroup/cpu.max").read_text().split())
        cores = min(cores, max(quota // period, 1))
    return cores


def reader_count(io: FileIO, paths: Iterable[str], size: int | None = None) -> int:
    """Return how many of these files are worth reading at once; `size` is their total number of bytes, if known.

    A local disk has no latency to hide: one thread per core, or a single one if there is little to read.
    """
    cores, first = usable_cores(), next(iter(paths), None)
    if first is not None and local_file_path(io, first) is None:
        return max(cores, _REMOTE_READERS)
    return 1 if size is not None and size < _SMALL_BYTES else cores


def map_in_threads(work: Callable[[T], U], items: Sequence[T], threads: int) -> list[U]:
    """Apply `work` to each item in parallel; return the results in the order of the items."""
    if len(items) < 2 or threads < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(len(items), threads)) as pool:
        return list(pool.map(work, items))


def stream_in_threads(work: Callable[[T], U], items: Iterable[T], threads: int) -> Iterator[U]:
    """Apply `work` to each item in parallel; yield the results in the order of the items, a few of them ahead."""
    if threads < 2:
        yield from map(work, items)
        return
    pending: deque[Future[U]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                pending.append(pool.submit(work, item))
                if len(pending) > threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:  # also if the caller stops early
            for future in pending:
                future.cancel()
