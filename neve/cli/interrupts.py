"""Ctrl-C while Spark works.

Python would leave a call to Spark in the middle, and PySpark's own handler calls Spark from inside such a call; after
either, answers and questions no longer fit together. Here a call to Spark is never left: another thread cancels the
jobs, the call ends with an error, and the verb cleans up as after any other error. Where no call to Spark is waiting
the interrupt is raised at once, and at the latest when the verb tells its next step. A second Ctrl-C does not wait.
"""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Self

from neve.ops.events import Event, listening

__all__ = ["Interrupts", "running_spark"]

_BETWEEN = 0.3  # seconds between two words to Spark: a job may begin right after the first


@dataclass
class Interrupts:
    """The handling of Ctrl-C for the time of a block."""

    asked: bool = False
    _over: threading.Event = field(default_factory=threading.Event)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT) or signal.default_int_handler
            self._stack.callback(signal.signal, signal.SIGINT, before)
            signal.signal(signal.SIGINT, self._pressed)
            self._stack.enter_context(listening(self._told))
        return self

    def __exit__(self, *ended: object) -> None:
        self._over.set()
        self._stack.close()

    def _told(self, event: Event) -> None:
        """Stop at the next step; and take the handler back from Spark, which brings its own when it starts."""
        if self.asked:
            raise KeyboardInterrupt
        signal.signal(signal.SIGINT, self._pressed)

    def _pressed(self, number: int, frame: FrameType | None) -> None:
        is_first, self.asked = not self.asked, True
        if not is_first or not _is_calling_spark(frame):
            raise KeyboardInterrupt
        threading.Thread(target=self._cancel, daemon=True).start()

    def _cancel(self) -> None:
        """Cancel what Spark runs until the verb has come to its end."""
        while not self._over.wait(_BETWEEN):
            context = running_spark()
            with suppress(Exception):  # Spark is starting or stopping
                if context is not None:
                    context.cancelAllJobs()


def running_spark() -> Any:
    """The Spark of this process, if somebody has started it."""
    spark = sys.modules.get("pyspark")
    return None if spark is None else spark.SparkContext._active_spark_context


def _is_calling_spark(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("py4j."):
            return True
        frame = frame.f_back
    return False
