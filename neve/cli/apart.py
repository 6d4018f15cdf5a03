"""Keep the screen to ourselves: what Spark, its JVM and its workers print goes elsewhere.

They inherit the standard output and the standard error of this process, so those become a file nobody sees, and the
command line writes to copies of the old ones.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TextIO

__all__ = ["spark_apart"]


@contextmanager
def spark_apart() -> Iterator[None]:
    """Have the screen free of what others print, until the block ends."""
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)
        if _is_ours(sys.stdout, 1) and _is_ours(sys.stderr, 2):
            aside = stack.enter_context(tempfile.TemporaryFile())
            for name, number in (("stdout", 1), ("stderr", 2)):
                stack.enter_context(_moved(name, number, aside.fileno()))
        yield


@contextmanager
def _moved(name: str, number: int, aside: int) -> Iterator[None]:
    """Point a descriptor elsewhere, and the stream of this process to where it pointed."""
    stream: TextIO = getattr(sys, name)
    stream.flush()
    kept = os.dup(number)
    with open(kept, "w", encoding=stream.encoding, errors="replace", closefd=False) as ours:
        setattr(sys, name, ours)
        os.dup2(aside, number)
        try:
            yield
            ours.flush()
        finally:
            os.dup2(kept, number)
            setattr(sys, name, stream)
    os.close(kept)


def _is_ours(stream: TextIO, number: int) -> bool:
    """Whether a stream writes to its descriptor, and was not replaced by a test or another program."""
    try:
        return stream.fileno() == number
    except (AttributeError, io.UnsupportedOperation, ValueError):
        return False
