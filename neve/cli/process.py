"""The command as a process: Ctrl-C, the output of Spark, and late imports.

Ctrl-C: Python would leave a call to Spark in the middle, and PySpark's own handler calls Spark from inside such a call;
after either, requests and responses no longer match. Here a call to Spark always ends: another thread cancels the jobs,
the call ends with an error, and the command cleans up as after any other error. If no call to Spark is waiting, the
interrupt is raised at once, and at the latest when the command reports its next step. A second Ctrl-C does not wait.

Output: Spark, its JVM and its workers inherit standard output and standard error of this process. These are redirected
to a temporary file, and the command line writes to copies of the original ones.

Imports: Spark and PyIceberg take seconds to load. Help, completion and usage errors need neither, so the modules of the
command line import only light modules; the `neve` package itself loads its names on first use.
"""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from types import FrameType
from typing import Any, Self, TextIO

from neve.ops.events import Event, subscribe

_CANCEL_INTERVAL_SECONDS = 0.3  # cancel repeatedly: a job may begin right after the first time


@dataclass
class InterruptHandler:
    """Handles Ctrl-C inside a `with` block."""

    is_interrupted: bool = False
    _finished: threading.Event = field(default_factory=threading.Event)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT) or signal.default_int_handler
            self._stack.callback(signal.signal, signal.SIGINT, before)
            signal.signal(signal.SIGINT, self._on_sigint)
            self._stack.enter_context(subscribe(self._on_event))
        return self

    def __exit__(self, *error: object) -> None:
        self._finished.set()
        self._stack.close()

    def _on_event(self, event: Event) -> None:
        if self.is_interrupted:
            raise KeyboardInterrupt
        signal.signal(signal.SIGINT, self._on_sigint)  # again, because Spark installs its own handler when it starts

    def _on_sigint(self, number: int, frame: FrameType | None) -> None:
        is_first, self.is_interrupted = not self.is_interrupted, True
        while frame is not None and not str(frame.f_globals.get("__name__", "")).startswith("py4j."):
            frame = frame.f_back
        is_calling_spark = frame is not None
        if not is_first or not is_calling_spark:
            raise KeyboardInterrupt
        threading.Thread(target=self._cancel_spark_jobs, daemon=True).start()

    def _cancel_spark_jobs(self) -> None:
        """Cancel Spark's jobs until the command has ended."""
        while not self._finished.wait(_CANCEL_INTERVAL_SECONDS):
            context = active_spark_context()
            with suppress(Exception):  # Spark is starting or stopping
                if context is not None:
                    context.cancelAllJobs()


def active_spark_context() -> Any:
    """Return the Spark context of this process, or None if Spark was not started."""
    spark = sys.modules.get("pyspark")
    return None if spark is None else spark.SparkContext._active_spark_context


@contextmanager
def redirect_spark_output() -> Iterator[None]:
    """Hide the output, warnings and logs of Spark until the block ends."""
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)
        if _writes_to_descriptor(sys.stdout, 1) and _writes_to_descriptor(sys.stderr, 2):
            hidden = stack.enter_context(tempfile.TemporaryFile())
            for name, number in (("stdout", 1), ("stderr", 2)):
                stack.enter_context(_redirect_stream(name, number, hidden.fileno()))
        yield


@contextmanager
def _redirect_stream(name: str, descriptor: int, target_descriptor: int) -> Iterator[None]:
    """Redirect a file descriptor, and let the Python stream write to its original target."""
    stream: TextIO = getattr(sys, name)
    stream.flush()
    original = os.dup(descriptor)
    with open(original, "w", encoding=stream.encoding, errors="replace", closefd=False) as ours:
        setattr(sys, name, ours)
        os.dup2(target_descriptor, descriptor)
        try:
            yield
            ours.flush()
        finally:
            os.dup2(original, descriptor)
            setattr(sys, name, stream)
    os.close(original)


def _writes_to_descriptor(stream: TextIO, number: int) -> bool:
    """Return whether a stream writes to its descriptor, and was not replaced by a test or another program."""
    try:
        return stream.fileno() == number
    except (AttributeError, io.UnsupportedOperation, ValueError):
        return False


def lazy_import(module: str, name: str) -> Callable[..., Any]:
    """Return a function that loads its module on the first call."""

    def call(*arguments: Any, **keywords: Any) -> Any:
        return getattr(import_module(module), name)(*arguments, **keywords)

    return call


def is_a(value: object, *classes: tuple[str, str]) -> bool:
    """Check whether a value is an instance of classes given by module and name; an unknown class is an error."""
    return isinstance(value, tuple(getattr(import_module(module), name) for module, name in classes))
