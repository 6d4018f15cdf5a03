"""What a tree of processes costs while it works: CPU seconds, memory, time."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import psutil

INTERVAL = 0.25


@dataclass(frozen=True)
class Cost:
    """What a job cost."""

    cpu: float  # seconds of all processes
    seconds: float
    mib: int  # the most memory held at once, shared pages counted once

    def of_one(self, times: int) -> Cost:
        """The cost of one of several in a row."""
        return Cost(round(self.cpu / times, 3), round(self.seconds / times, 3), self.mib)


@dataclass
class Meter:
    """Looks at the processes of an engine from outside."""

    pid: int
    seen: dict[tuple[int, float], float] = field(default_factory=dict)  # a worker may be gone when we look again
    peak: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Meter:
        self._look()
        self.before, self.started, self.peak = sum(self.seen.values()), time.monotonic(), 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        seconds = time.monotonic() - self.started
        self._stop.set()
        self._thread.join()
        self._look()
        self.cost = Cost(round(sum(self.seen.values()) - self.before, 2), round(seconds, 2), self.peak >> 20)

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL):
            self._look()

    def _look(self) -> None:
        held = 0
        root = psutil.Process(self.pid)
        for process in (root, *root.children(recursive=True)):
            try:
                times, key = process.cpu_times(), (process.pid, process.create_time())
                held += process.memory_full_info().pss
            except psutil.Error:
                continue
            self.seen[key] = max(self.seen.get(key, 0.0), times.user + times.system)
        self.peak = max(self.peak, held)
