"""An engine of the comparison: the jobs it supports, each with its preparation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from bench.comparison.inputs import Inputs


@dataclass(frozen=True)
class Job:
    """A job to measure, its preparation before every round, and a check of its result."""

    run: Callable[[], Any]
    ready: Callable[[], Any] = lambda: None
    answer: Callable[[], Any] = lambda: None
    """Equal for all engines that have done the job."""


class Engine(Protocol):
    """An engine, started once, for inputs of several sizes."""

    name: str

    def jobs(self, inputs: Inputs) -> dict[str, Job]:
        """Return the jobs that it supports, by name."""

    def spark_jobs(self) -> int | None:
        """Return the number of jobs that its Spark has run so far; None if it has none."""

    def stop(self) -> None:
        """Stop the engine."""
