"""The same work on many files at once: storage is waited for, and decoding runs outside the interpreter lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from typing import TypeVar

__all__ = ["in_threads"]

T = TypeVar("T")
U = TypeVar("U")


def in_threads(work: Callable[[T], U], items: Sequence[T]) -> list[U]:
    """What the work makes of each item, in their order."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(len(items), (cpu_count() or 1) + 2)) as pool:
        return list(pool.map(work, items))
