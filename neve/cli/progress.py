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
from neve.cli.process import active_spark_context
from neve.display.html import replace_unprintable
from neve.ops.events import Event, Progress, Step, subscribe

START_SPARK_STEP = "start Spark"
_BAR_WIDTH = 28


@contextmanager
def show_progress(screen: Screen, activity: str) -> Iterator[None]:
    """Show how far the verbs in the block are."""
    console = screen.err
    if not console.is_terminal:
        yield
        return
    watch = ProgressDisplay(activity)
    with (
        Live(get_renderable=watch.render, console=console, refresh_per_second=4, transient=True),
        subscribe(watch.on_event),
    ):
        yield


@dataclass
class ProgressDisplay:
    """What has been told so far, and how it is drawn."""

    activity: str
    clock: Callable[[], float] = time.monotonic
    step: Step = field(default_factory=lambda: Step("begin"))
    progress: Progress | None = None
    step_before_spark: tuple[Step, Progress | None] = (Step("begin"), None)
    started_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.started_at = self.clock()

    def on_event(self, event: Event) -> None:
        """Take in what a verb tells."""
        if isinstance(event, Progress):
            self.progress, self.step = event, Step("rewrite")
            return
        if event.name == START_SPARK_STEP:
            self._start_or_end_spark_step(event)
            return
        if event.name not in ("commit", "plan"):
            self.progress = None
        self.step = event

    def _start_or_end_spark_step(self, event: Step) -> None:
        """Spark starts in the middle of something else, which goes on when it is there."""
        if event.done:
            self.step, self.progress = self.step_before_spark
        else:
            self.step_before_spark = self.step, self.progress
            self.step, self.progress = event, None

    def render(self) -> Group:
        """The two lines as they are now."""
        head = Grid.grid(padding=(0, 1))
        head.add_row(Text(replace_unprintable(self.activity)), Text(self.step.name, "cyan"), *self._bar())
        return Group(head, Text("  " + "   ".join(self._counts()), "dim", no_wrap=True, overflow="ellipsis"))

    @property
    def fraction_done(self) -> float | None:
        """How much of the work is done, when that is known: of a compaction by bytes."""
        if self.progress is not None and self.progress.bytes:
            return self.progress.bytes_done / self.progress.bytes
        return self.step.done / self.step.total if self.step.total and self.step.done else None

    def _bar(self) -> list[Any]:
        share = self.fraction_done
        if share is None:
            return [ProgressBar(width=_BAR_WIDTH, pulse=True, animation_time=self.clock())]
        return [ProgressBar(total=1, completed=share, width=_BAR_WIDTH), Text(f"{share:4.0%}"), Text(self._left(share))]

    def _left(self, share: float) -> str:
        """The time left, at the rate so far."""
        gone = self.progress.seconds if self.progress is not None else self._elapsed()
        return "" if not 0 < share < 1 else f"{_format_duration(gone / share - gone)} left"

    def _counts(self) -> Iterator[str]:
        yield _format_duration(self._elapsed())
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
        return self.clock() - self.started_at


def spark_tasks() -> tuple[int, int]:
    """How many tasks of the stages that run now are done, and how many there are."""
    context = active_spark_context()
    if context is None:
        return 0, 0
    with suppress(Exception):  # Spark is being stopped, or the question came at a bad time
        tracker = context.statusTracker()
        stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
        return sum(s.numCompletedTasks for s in stages), sum(s.numTasks for s in stages)
    return 0, 0


def _format_duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
