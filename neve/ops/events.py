"""What a verb tells while it runs: whoever listens sees how far it is, and nobody has to.

Listening is for the surfaces: what is told inside a `with listening(…)` block goes to its function, from verbs that run
inside others too, and to those of the blocks around it. Raising in the function stops the work, which leaves the table
as it was after the last commit.

>>> told = []
>>> with listening(told.append):
...     _ = t.delete().where("region = 'us'").execute()
>>> [event.name for event in told]
['plan', 'commit']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Step:
    """A part of the work that begins, or goes on."""

    name: str
    done: int = 0
    total: int = 0  # 0: not known, or not worth counting
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a compaction is."""

    groups_done: int = 0  # rewritten or failed
    groups: int = 0  # grows when groups have to be rewritten again
    bytes_done: int = 0
    bytes: int = 0
    seconds: float = 0.0
    files_done: int = 0
    files: int = 0


Event: TypeAlias = Step | Progress

_listeners: ContextVar[tuple[Callable[[Event], object], ...]] = ContextVar("listeners", default=())


@contextmanager
def subscribe(listener: Callable[[Event], object]) -> Iterator[None]:
    """Have a function told what happens inside the block."""
    before = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(before)


def emit(event: Event) -> None:
    """Tell whoever listens."""
    for told in _listeners.get():
        told(event)
