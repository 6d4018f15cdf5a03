"""CPU seconds of this process and everything it started, also of workers that are gone by the time we look.

Spark's Python daemon does not wait for its workers, so the time of a dead worker is lost to its parent. A sampler keeps
the highest value ever seen of each process; what a worker used after the last look at it is lost, 0.2 seconds at most.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median

import psutil

INTERVAL = 0.2


@dataclass
class Ledger:
    """The CPU time of a tree of processes, kept by a thread whose own time does not count."""

    seen: dict[tuple[int, float], float] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    own: float = 0.0

    def start(self) -> Ledger:
        """Begin to look at the processes."""
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def total(self) -> float:
        """CPU seconds so far."""
        self._look()
        with self.lock:
            return sum(self.seen.values()) - self.own

    def _run(self) -> None:
        while True:
            self._look()
            self.own = time.thread_time()
            time.sleep(INTERVAL)

    def _look(self) -> None:
        me = psutil.Process()
        with self.lock:
            for process in (me, *me.children(recursive=True)):
                try:
                    times, key = process.cpu_times(), (process.pid, process.create_time())
                except psutil.Error:
                    continue
                self.seen[key] = max(self.seen.get(key, 0.0), times.user + times.system)


def interleaved(
    ledger: Ledger,
    cases: Mapping[str, Callable[[], object]],
    rounds: int,
    warm: int,
    settle: Callable[[], object] = lambda: None,
) -> dict[str, list[float]]:
    """CPU seconds of each case in each round, after some rounds to warm up; all cases must give the same answer.

    `settle` is called before each case and not counted: what one case left to do is not the next one's cost.
    """
    spent: dict[str, list[float]] = {name: [] for name in cases}
    for round_ in range(warm + rounds):
        for name, case in cases.items():
            settle()
            before = ledger.total()
            case()
            if round_ >= warm:
                spent[name].append(ledger.total() - before)
    return spent


def ratio(spent: Mapping[str, list[float]], case: str, to: str) -> float:
    """The median over the rounds of one case's cost in terms of another's."""
    return median(mine / other for mine, other in zip(spent[case], spent[to], strict=True))
