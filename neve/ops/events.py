"""Progress events of running verbs, for anyone who subscribes.

The surfaces subscribe: the function of a `with subscribe(…)` block receives the events of all verbs inside the block,
also of verbs that run inside others; so do the functions of the blocks around it. Raising in the function stops the
work, which leaves the table as it was after the last commit.

>>> events = []
>>> with subscribe(events.append):
...     _ = t.delete().where("region = 'us'").execute()
>>> [event.name for event in events]
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
    """A part of the work that begins or continues."""

    name: str
    done: int = 0
    total: int = 0  # 0: unknown, or not worth counting
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
    """Call a function with every event inside the block."""
    before = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(before)


def emit(event: Event) -> None:
    """Send an event to all subscribers."""
    for listener in _listeners.get():
        listener(event)
