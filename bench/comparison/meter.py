"""The cost of a tree of processes while it works: CPU seconds, memory, time."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import psutil

INTERVAL = 0.25


@dataclass(frozen=True)
class Cost:
    """The cost of a job."""

    cpu: float  # seconds of all processes
    seconds: float
    mib: int  # the most memory held at once, shared pages counted once

    def per_run(self, times: int) -> Cost:
        """Return the cost of one of several consecutive runs."""
        return Cost(round(self.cpu / times, 3), round(self.seconds / times, 3), self.mib)


@dataclass
class Meter:
    """Samples the processes of an engine from outside."""

    pid: int
    cpu_by_process: dict[tuple[int, float], float] = field(
        default_factory=dict
    )  # a worker may have ended at the next sample
    peak: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Meter:
        self._sample()
        self.before, self.started, self.peak = sum(self.cpu_by_process.values()), time.monotonic(), 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        seconds = time.monotonic() - self.started
        self._stop.set()
        self._thread.join()
        self._sample()
        self.cost = Cost(round(sum(self.cpu_by_process.values()) - self.before, 2), round(seconds, 2), self.peak >> 20)

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL):
            self._sample()

    def _sample(self) -> None:
        held = 0
        root = psutil.Process(self.pid)
        for process in (root, *root.children(recursive=True)):
            try:
                times, key = process.cpu_times(), (process.pid, process.create_time())
                held += process.memory_full_info().pss
            except psutil.Error:
                continue
            self.cpu_by_process[key] = max(self.cpu_by_process.get(key, 0.0), times.user + times.system)
        self.peak = max(self.peak, held)
