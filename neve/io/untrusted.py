"""Open files that a table refers to, and turn every failure to read them into an error that names the file.

This is the last defence against damaged bytes that no other check has caught.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO

from neve.errors import CorruptFile, NeveError, TableError
from neve.io.files import out_of_memory_error, translate_storage_errors
from neve.io.storage_paths import checked_input_file

_UNEXPECTED_ERRORS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, NotImplementedError, RecursionError),
    *(TypeError, ValueError, struct.error, pa.ArrowException),
)


@contextmanager
def translate_parse_errors(path: str, expected: str) -> Iterator[None]:
    """Turn any exception raised while parsing a file into an error about that file."""
    try:
        yield
    except NeveError:
        raise
    except MemoryError as e:
        raise out_of_memory_error(path) from e
    except _UNEXPECTED_ERRORS as e:
        raise CorruptFile(path, expected, f"{type(e).__name__}: {e}".split("\n", 1)[0]) from e


def open_checked_file(io: FileIO, path: str, size: int | None) -> tuple[Any, int]:
    """Open a seekable stream over a file; return it and its length, which must match the metadata."""
    with translate_storage_errors(path, "read"):
        stream = checked_input_file(io, path).open(seekable=True)
        stream.seek(0, os.SEEK_END)
        length = int(stream.tell())
        stream.seek(0)
    if size is not None and size != length:
        stream.close()
        raise CorruptFile(path, f"{size} bytes, as the metadata says", f"{length}")
    return stream, length


@contextmanager
def translate_decoder_errors(path: str, expected: str) -> Iterator[None]:
    """Turn a decoder's exception about damaged bytes into an error that names the file.

    Arrow reports damage as an `OSError` without an error number; a failing disk or network has one.
    """
    try:
        yield
    except NeveError:
        raise
    except MemoryError as error:
        raise out_of_memory_error(path) from error
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise CorruptFile(path, expected, _first_line(error)) from error
    except OSError as error:
        if error.errno is not None:
            raise TableError(f"Cannot read {path}: {error}") from error
        raise CorruptFile(path, expected, _first_line(error)) from error


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:200].rstrip(".")
