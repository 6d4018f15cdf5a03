"""Live progress on a terminal, fed by what the verbs tell and by what Spark says of its tasks.

Two lines that are drawn anew four times a second: the step with a bar and the time left, and below it what was counted.
Off a terminal nothing is drawn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group
from rich.filesize import decimal
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table as Grid
from rich.text import Text

from neve.cli.console import Screen
from neve.cli.process import running_spark
from neve.display.html import plain
from neve.ops.events import Event, Progress, Step, listening

STARTING = "start Spark"
_BAR = 28


@contextmanager
def watched(screen: Screen, doing: str) -> Iterator[None]:
    """Show how far the verbs in the block are."""
    console = screen.err
    if not console.is_terminal:
        yield
        return
    watch = Watch(doing)
    with Live(get_renderable=watch.drawn, console=console, refresh_per_second=4, transient=True), listening(watch.told):
        yield


@dataclass
class Watch:
    """What has been told so far, and how it is drawn."""

    doing: str
    clock: Callable[[], float] = time.monotonic
    step: Step = field(default_factory=lambda: Step("begin"))
    progress: Progress | None = None
    before: tuple[Step, Progress | None] = (Step("begin"), None)
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    def told(self, event: Event) -> None:
        """Take in what a verb tells."""
        if isinstance(event, Progress):
            self.progress, self.step = event, Step("rewrite")
            return
        if event.name == STARTING:
            self._begun_or_over(event)
            return
        if event.name not in ("commit", "plan"):
            self.progress = None
        self.step = event

    def _begun_or_over(self, event: Step) -> None:
        """Spark starts in the middle of something else, which goes on when it is there."""
        if event.done:
            self.step, self.progress = self.before
        else:
            self.before = self.step, self.progress
            self.step, self.progress = event, None

    def drawn(self) -> Group:
        """The two lines as they are now."""
        head = Grid.grid(padding=(0, 1))
        head.add_row(Text(plain(self.doing)), Text(self.step.name, "cyan"), *self._bar())
        return Group(head, Text("  " + "   ".join(self._counts()), "dim", no_wrap=True, overflow="ellipsis"))

    @property
    def share(self) -> float | None:
        """How much of the work is done, when that is known: of a compaction by bytes."""
        if self.progress is not None and self.progress.bytes:
            return self.progress.bytes_done / self.progress.bytes
        return self.step.done / self.step.total if self.step.total and self.step.done else None

    def _bar(self) -> list[Any]:
        share = self.share
        if share is None:
            return [ProgressBar(width=_BAR, pulse=True, animation_time=self.clock())]
        return [ProgressBar(total=1, completed=share, width=_BAR), Text(f"{share:4.0%}"), Text(self._left(share))]

    def _left(self, share: float) -> str:
        """The time left, at the rate so far."""
        gone = self.progress.seconds if self.progress is not None else self._elapsed()
        return "" if not 0 < share < 1 else f"{_time(gone / share - gone)} left"

    def _counts(self) -> Iterator[str]:
        yield _time(self._elapsed())
        now = self.progress
        if now is not None:
            yield f"groups {now.groups_done}/{now.groups}"
            yield f"files {now.files_done}/{now.files}"
            yield f"{decimal(now.bytes_done)} of {decimal(now.bytes)}"
            if now.seconds and now.bytes_done:
                yield f"{decimal(int(now.bytes_done / now.seconds))}/s"
        elif self.step.total:
            yield (
                f"{self.step.unit} {self.step.done}/{self.step.total}"
                if self.step.done
                else (f"{self.step.total} {self.step.unit}")
            )
        done, tasks = spark_tasks()
        if tasks:
            yield f"tasks {done}/{tasks}"

    def _elapsed(self) -> float:
        return self.clock() - self.started


def spark_tasks() -> tuple[int, int]:
    """How many tasks of the stages that run now are done, and how many there are."""
    context = running_spark()
    if context is None:
        return 0, 0
    with suppress(Exception):  # Spark is being stopped, or the question came at a bad time
        tracker = context.statusTracker()
        stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
        return sum(s.numCompletedTasks for s in stages), sum(s.numTasks for s in stages)
    return 0, 0


def _time(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
