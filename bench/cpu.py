"""CPU seconds of this process and everything it started, including workers that have ended before the next sample.

Spark's Python daemon does not wait for its workers, so the time of a dead worker is lost to its parent. A sampler keeps
the highest sampled value of each process; CPU time after the last sample of a worker is lost, 0.2 seconds at most.
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
    """The CPU time of a tree of processes, sampled by a thread whose own time does not count."""

    cpu_by_process: dict[tuple[int, float], float] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    own: float = 0.0

    def start(self) -> Ledger:
        """Start to sample the processes."""
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def total(self) -> float:
        """CPU seconds so far."""
        self._sample()
        with self.lock:
            return sum(self.cpu_by_process.values()) - self.own

    def _run(self) -> None:
        while True:
            self._sample()
            self.own = time.thread_time()
            time.sleep(INTERVAL)

    def _sample(self) -> None:
        me = psutil.Process()
        with self.lock:
            for process in (me, *me.children(recursive=True)):
                try:
                    times, key = process.cpu_times(), (process.pid, process.create_time())
                except psutil.Error:
                    continue
                self.cpu_by_process[key] = max(self.cpu_by_process.get(key, 0.0), times.user + times.system)


def run_interleaved(
    ledger: Ledger,
    cases: Mapping[str, Callable[[], object]],
    rounds: int,
    warm: int,
    settle: Callable[[], object] = lambda: None,
) -> dict[str, list[float]]:
    """Return CPU seconds of each case in each round, after warm-up rounds; all cases must return the same result.

    `settle` is called before each case and not counted: work that one case left is not a cost of the next one.
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
    """Return the median over the rounds of the ratio of the cost of one case to another."""
    return median(mine / other for mine, other in zip(spent[case], spent[to], strict=True))
