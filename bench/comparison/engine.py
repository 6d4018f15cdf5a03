"""What an engine is to the comparison: jobs it can do, each with what must be ready before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from bench.comparison.inputs import Inputs


@dataclass(frozen=True)
class Job:
    """Something to measure, what comes before it, and what tells afterwards whether it was done right."""

    run: Callable[[], Any]
    ready: Callable[[], Any] = lambda: None
    answer: Callable[[], Any] = lambda: None
    """Equal for all engines that have done the job."""


class Engine(Protocol):
    """An engine, started once; it works on inputs of several sizes."""

    name: str

    def jobs(self, inputs: Inputs) -> dict[str, Job]:
        """The jobs it can do, by their names."""

    def stop(self) -> None:
        """End what was started."""
