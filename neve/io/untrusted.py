"""The last line of defence at the seams: bytes that no check foresaw still end in an error that names their file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from neve.errors import CorruptFile, NeveError
from neve.io.files import out_of_memory

__all__ = ["untrusted"]

_SURPRISES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
    pa.ArrowException,
)


@contextmanager
def untrusted(path: str, expected: str) -> Iterator[None]:
    """Whatever is raised while the contents of a file are taken apart, as an error about that file."""
    try:
        yield
    except NeveError:
        raise
    except MemoryError as e:
        raise out_of_memory(path) from e
    except _SURPRISES as e:
        raise CorruptFile(path, expected, f"{type(e).__name__}: {e}".split("\n", 1)[0]) from e
