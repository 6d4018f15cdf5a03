"""Live progress on a terminal, from the events of the verbs and the task counts of Spark.

Two lines are drawn four times a second: the step with a bar and the remaining time, and the counts below. Without a
terminal nothing is drawn.
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
    """Show the progress of the verbs in the block."""
    console = screen.err
    if not console.is_terminal:
        yield
        return
    display = ProgressDisplay(activity)
    with (
        Live(get_renderable=display.render, console=console, refresh_per_second=4, transient=True),
        subscribe(display.on_event),
    ):
        yield


@dataclass
class ProgressDisplay:
    """The latest events, and how they are drawn."""

    activity: str
    clock: Callable[[], float] = time.monotonic
    step: Step = field(default_factory=lambda: Step("begin"))
    progress: Progress | None = None
    step_before_spark: tuple[Step, Progress | None] = (Step("begin"), None)
    started_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.started_at = self.clock()

    def on_event(self, event: Event) -> None:
        """Take in an event of a verb."""
        if isinstance(event, Progress):
            self.progress, self.step = event, Step("rewrite")
        elif event.name != START_SPARK_STEP:
            self.step, self.progress = event, self.progress if event.name in ("commit", "plan") else None
        elif event.done:  # Spark starts in the middle of another step, which continues now
            self.step, self.progress = self.step_before_spark
        else:
            self.step_before_spark = self.step, self.progress
            self.step, self.progress = event, None

    def render(self) -> Group:
        """Draw the two lines."""
        share = self.fraction_done
        if share is None:
            bar: list[Any] = [ProgressBar(width=_BAR_WIDTH, pulse=True, animation_time=self.clock())]
        else:
            part = ProgressBar(total=1, completed=share, width=_BAR_WIDTH)
            bar = [part, Text(f"{share:4.0%}"), Text(self._remaining_time(share))]
        head = Grid.grid(padding=(0, 1))
        head.add_row(Text(replace_unprintable(self.activity)), Text(self.step.name, "cyan"), *bar)
        return Group(head, Text("  " + "   ".join(self._counts()), "dim", no_wrap=True, overflow="ellipsis"))

    @property
    def fraction_done(self) -> float | None:
        """The part of the work that is done, if it is known; a compaction counts bytes."""
        if self.progress is not None and self.progress.bytes:
            return self.progress.bytes_done / self.progress.bytes
        return self.step.done / self.step.total if self.step.total and self.step.done else None

    def _remaining_time(self, share: float) -> str:
        elapsed = self.progress.seconds if self.progress is not None else self._elapsed()
        return f"{_format_duration(elapsed / share - elapsed)} left" if 0 < share < 1 else ""

    def _counts(self) -> Iterator[str]:
        yield _format_duration(self._elapsed())
        if (progress := self.progress) is not None:
            yield f"groups {progress.groups_done}/{progress.groups}"
            yield f"files {progress.files_done}/{progress.files}"
            yield f"{decimal(progress.bytes_done)} of {decimal(progress.bytes)}"
            if progress.seconds and progress.bytes_done:
                yield f"{decimal(int(progress.bytes_done / progress.seconds))}/s"
        elif (step := self.step).total:
            yield f"{step.unit} {step.done}/{step.total}" if step.done else f"{step.total} {step.unit}"
        done, tasks = spark_tasks()
        if tasks:
            yield f"tasks {done}/{tasks}"

    def _elapsed(self) -> float:
        return self.clock() - self.started_at


def spark_tasks() -> tuple[int, int]:
    """Return how many tasks of the running stages are done, and how many there are."""
    context = active_spark_context()
    if context is None:
        return 0, 0
    with suppress(Exception):  # Spark is starting or stopping
        tracker = context.statusTracker()
        stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
        return sum(s.numCompletedTasks for s in stages), sum(s.numTasks for s in stages)
    return 0, 0


def _format_duration(seconds: float) -> str:
    minutes, remaining_seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{remaining_seconds:02}" if hours else f"{minutes}:{remaining_seconds:02}"
