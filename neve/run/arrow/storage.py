"""Opening a file a table names, and telling what is wrong with it when that fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO

from neve.errors import CorruptFile, MissingFile

__all__ = ["opened", "reading"]


def opened(io: FileIO, path: str, size: int | None) -> Any:
    """A seekable stream over a file, whose length must be the one the metadata gives."""
    with reading(path, "a readable file"):
        stream = io.new_input(path).open(seekable=True)
    found = stream.seek(0, 2) or stream.tell()
    stream.seek(0)
    if size is not None and size != found:
        stream.close()
        raise CorruptFile(path, f"{size} bytes, as the metadata says", f"{found}")
    return stream


@contextmanager
def reading(path: str, expected: str) -> Iterator[None]:
    """Turn what a decoder says about damaged bytes into an error that names the file.

    Arrow reports damage as an `OSError` without a number; a failing disk or network has one, and stays as it is.
    """
    try:
        yield
    except FileNotFoundError:
        raise MissingFile(path) from None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise CorruptFile(path, expected, _first_line(error)) from error
    except OSError as error:
        if error.errno is not None or isinstance(error, PermissionError):
            raise
        raise CorruptFile(path, expected, _first_line(error)) from error


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:200].rstrip(".")
