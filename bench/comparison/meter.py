"""The cost of a tree of processes while it works: CPU seconds, time, memory, bytes."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any

import psutil

INTERVAL = 0.25


@dataclass(frozen=True)
class Cost:
    """The cost of a job."""

    cpu: float  # seconds of all processes
    seconds: float
    mib: int  # the most memory held at once, shared pages counted once
    mib_read: float  # by system calls: from files, whether cached or not, and from other processes
    mib_written: float
    spark_jobs: float | None = None  # None for engines without a Spark of their own

    def per_run(self, times: int) -> Cost:
        """Return the cost of one of several consecutive runs."""
        return replace(
            self,
            cpu=round(self.cpu / times, 3),
            seconds=round(self.seconds / times, 3),
            mib_read=round(self.mib_read / times, 2),
            mib_written=round(self.mib_written / times, 2),
            spark_jobs=None if self.spark_jobs is None else self.spark_jobs / times,
        )


def summarize(rounds: Sequence[Cost]) -> dict[str, Any]:
    """Return the median of each figure over the rounds, and the least and the most CPU seconds."""
    figures = [asdict(cost) for cost in rounds]
    medians = {
        name: None if value is None else round(median(each[name] for each in figures), 3)
        for name, value in figures[0].items()
    }
    cpu = [cost.cpu for cost in rounds]
    return {**medians, "least_cpu": min(cpu), "most_cpu": max(cpu), "rounds": len(rounds)}


@dataclass(frozen=True)
class Usage:
    """What a process has used since it started."""

    cpu: float = 0.0
    read: int = 0
    written: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.cpu + other.cpu, self.read + other.read, self.written + other.written)


@dataclass
class Meter:
    """Samples the processes of an engine from outside."""

    pid: int
    by_process: dict[tuple[int, float], Usage] = field(default_factory=dict)  # a worker may end before the next sample
    peak: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Meter:
        self._sample()
        self.before, self.started, self.peak = self._total(), time.monotonic(), 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        seconds = time.monotonic() - self.started
        self._stop.set()
        self._thread.join()
        self._sample()
        before, after = self.before, self._total()
        self.cost = Cost(
            cpu=round(after.cpu - before.cpu, 2),
            seconds=round(seconds, 2),
            mib=self.peak >> 20,
            mib_read=(after.read - before.read) / (1 << 20),
            mib_written=(after.written - before.written) / (1 << 20),
        )

    def _total(self) -> Usage:
        return sum(self.by_process.values(), Usage())

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL):
            self._sample()

    def _sample(self) -> None:
        held = 0
        root = psutil.Process(self.pid)
        for process in (root, *root.children(recursive=True)):
            try:
                key, times, calls = (process.pid, process.create_time()), process.cpu_times(), process.io_counters()
                held += process.memory_full_info().pss
            except psutil.Error:
                continue
            self.by_process[key] = Usage(times.user + times.system, calls.read_chars, calls.write_chars)
        self.peak = max(self.peak, held)
