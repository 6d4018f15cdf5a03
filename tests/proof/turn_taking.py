"""Two operations that take turns: each runs up to its next gate when it is its turn, so that any order can be played.

The gates of an operation are where it begins, before it reads the table, before its checks, before the swap, and before
it cleans up: five, so that two operations can be merged in 252 ways. An operation that has to try again does so in the
turn it is in.
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
PATIENCE = 60


def merges(length: int = GATES) -> Iterator[str]:
    """Every way to merge two sequences of turns, as words of A and B."""
    for chosen in combinations(range(2 * length), length):
        yield "".join("A" if at in chosen else "B" for at in range(2 * length))


@dataclass
class Player:
    """One operation in a thread of its own."""

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
        _HERE.player = self
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
            assert self.paused.acquire(timeout=PATIENCE), "an operation hangs"

    def gate(self) -> None:
        self.paused.release()
        self.go.acquire()


_HERE = threading.local()


def observe(phase: Phase, attempt: int) -> None:
    """The gates of a commit: those of its first attempt, and the clean-up of any."""
    if phase is Phase.CLEAN or (phase in _FIRST and attempt <= 1 and not (phase is Phase.REFRESH and attempt)):
        pause()


def pause() -> None:
    player = getattr(_HERE, "player", None)
    if player is not None:
        player.gate()


class Gated(EmbeddedCatalog):
    """A catalog with a gate before each change that is no commit of rows: of specs, names, properties, versions."""

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
        pause()
        return super().commit_table(table, requirements, updates)


def play(order: str, works: dict[str, Callable[[], Any]]) -> dict[str, Player]:
    """Let operations take turns as a word says; whoever has not finished then goes on alone, one after the other."""
    players = {name: Player(work) for name, work in works.items()}
    for player in players.values():
        player.start()
    for name in order:
        players[name].turn()
    for player in players.values():
        while not player.is_done:
            player.turn()
        player.thread.join(PATIENCE)
    return players
