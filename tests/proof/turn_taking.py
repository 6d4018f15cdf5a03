"""Run two operations in turns: in its turn, an operation runs up to its next gate. Any interleaving can be run.

An operation has five gates: at its start, before it reads the table, before its checks, before the swap, and before it
cleans up. Two operations therefore have 252 interleavings. An operation that retries does so within its turn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from neve.catalog.sql import EmbeddedCatalog
from neve.commit.environment import Phase

GATES = 5
_FIRST = (Phase.REFRESH, Phase.CHECK, Phase.SWAP)
TIMEOUT = 60


def interleavings(length: int = GATES) -> Iterator[str]:
    """Yield every interleaving of two operations, as a string of A and B."""
    for chosen in combinations(range(2 * length), length):
        yield "".join("A" if at in chosen else "B" for at in range(2 * length))


@dataclass
class SteppedOperation:
    """One operation in its own thread."""

    work: Callable[[], Any]
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    paused: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    result: Any = None
    error: BaseException | None = None
    is_done: bool = False

    def start(self) -> None:
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        _CURRENT.operation = self
        self.go.acquire()
        try:
            self.result = self.work()
        except BaseException as e:
            self.error = e
        self.is_done = True
        self.paused.release()

    def turn(self) -> None:
        """Run up to the next gate, or to the end."""
        if not self.is_done:
            self.go.release()
            assert self.paused.acquire(timeout=TIMEOUT), "an operation hangs"

    def gate(self) -> None:
        self.paused.release()
        self.go.acquire()


_CURRENT = threading.local()


def observe(phase: Phase, attempt: int) -> None:
    """Pause at the gates of a commit: those of its first attempt, and the clean-up of every attempt."""
    if phase is Phase.CLEAN or (phase in _FIRST and attempt <= 1 and not (phase is Phase.REFRESH and attempt)):
        pause()


def pause() -> None:
    operation = getattr(_CURRENT, "operation", None)
    if operation is not None:
        operation.gate()


class Gated(EmbeddedCatalog):
    """A catalog with a gate before each metadata change that commits no rows: specs, names, properties, versions."""

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
        pause()
        return super().commit_table(table, requirements, updates)


def run_in_turns(order: str, functions: dict[str, Callable[[], Any]]) -> dict[str, SteppedOperation]:
    """Run operations in the turns of `order`; then run each unfinished operation to its end, one after the other."""
    operations = {name: SteppedOperation(work) for name, work in functions.items()}
    for operation in operations.values():
        operation.start()
    for name in order:
        operations[name].turn()
    for operation in operations.values():
        while not operation.is_done:
            operation.turn()
        operation.thread.join(TIMEOUT)
    return operations
