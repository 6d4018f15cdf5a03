"""Ctrl-C while Spark works.

Python would leave a call to Spark in the middle, and PySpark's own handler calls Spark from inside such a call; after
either, answers and questions no longer fit together. Here a call to Spark is never left: another thread cancels the
jobs, the call ends with an error, and the verb cleans up as after any other error. Where no call to Spark is waiting
the interrupt is raised at once, and at the latest when the verb tells its next step. A second Ctrl-C does not wait.

Keep the screen to ourselves: what Spark, its JVM and its workers print goes elsewhere.

They inherit the standard output and the standard error of this process, so those become a file nobody sees, and the
command line writes to copies of the old ones.

Functions and classes of modules that are loaded when they are called for.

Spark and PyIceberg take seconds to load. Help, completion and wrong usage need neither, so the modules of the command
line import light things only; the `neve` package loads its names late by itself.
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

_CANCEL_INTERVAL_SECONDS = 0.3  # seconds between two words to Spark: a job may begin right after the first


@dataclass
class InterruptHandler:
    """The handling of Ctrl-C for the time of a block."""

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

    def __exit__(self, *ended: object) -> None:
        self._finished.set()
        self._stack.close()

    def _on_event(self, event: Event) -> None:
        """Stop at the next step; and take the handler back from Spark, which brings its own when it starts."""
        if self.is_interrupted:
            raise KeyboardInterrupt
        signal.signal(signal.SIGINT, self._on_sigint)

    def _on_sigint(self, number: int, frame: FrameType | None) -> None:
        is_first, self.is_interrupted = not self.is_interrupted, True
        if not is_first or not _is_calling_spark(frame):
            raise KeyboardInterrupt
        threading.Thread(target=self._cancel_spark_jobs, daemon=True).start()

    def _cancel_spark_jobs(self) -> None:
        """Cancel what Spark runs until the verb has come to its end."""
        while not self._finished.wait(_CANCEL_INTERVAL_SECONDS):
            context = active_spark_context()
            with suppress(Exception):  # Spark is starting or stopping
                if context is not None:
                    context.cancelAllJobs()


def active_spark_context() -> Any:
    """The Spark of this process, if somebody has started it."""
    spark = sys.modules.get("pyspark")
    return None if spark is None else spark.SparkContext._active_spark_context


def _is_calling_spark(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("py4j."):
            return True
        frame = frame.f_back
    return False


@contextmanager
def redirect_spark_output() -> Iterator[None]:
    """Have the screen free of what others print, until the block ends."""
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)
        if _writes_to_descriptor(sys.stdout, 1) and _writes_to_descriptor(sys.stderr, 2):
            aside = stack.enter_context(tempfile.TemporaryFile())
            for name, number in (("stdout", 1), ("stderr", 2)):
                stack.enter_context(_redirect_stream(name, number, aside.fileno()))
        yield


@contextmanager
def _redirect_stream(name: str, descriptor: int, target_descriptor: int) -> Iterator[None]:
    """Point a descriptor elsewhere, and the stream of this process to where it pointed."""
    stream: TextIO = getattr(sys, name)
    stream.flush()
    kept = os.dup(descriptor)
    with open(kept, "w", encoding=stream.encoding, errors="replace", closefd=False) as ours:
        setattr(sys, name, ours)
        os.dup2(target_descriptor, descriptor)
        try:
            yield
            ours.flush()
        finally:
            os.dup2(kept, descriptor)
            setattr(sys, name, stream)
    os.close(kept)


def _writes_to_descriptor(stream: TextIO, number: int) -> bool:
    """Whether a stream writes to its descriptor, and was not replaced by a test or another program."""
    try:
        return stream.fileno() == number
    except (AttributeError, io.UnsupportedOperation, ValueError):
        return False


def lazy_import(module: str, name: str) -> Callable[..., Any]:
    """A function that loads its module on the first call."""

    def call(*given: Any, **named: Any) -> Any:
        return getattr(import_module(module), name)(*given, **named)

    return call


def is_a(value: object, *classes: tuple[str, str]) -> bool:
    """Whether a value is of one of some classes, told by module and name; a class that is not there is an error."""
    return isinstance(value, tuple(getattr(import_module(module), name) for module, name in classes))
