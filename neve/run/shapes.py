"""What a data file is made of, as far as a reader must know before it reads: the field ids it carries.

A manifest does not say whether a file carries field ids, nor which columns it has; the footer does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from pyiceberg.io import FileIO

from neve.run.arrow.formats import open_file
from neve.run.arrow.ids import FileField

__all__ = ["Shape", "shape_of", "shapes_of"]

Shape = frozenset[int]  # the field ids of a file at every depth; empty when it carries none

_THREADS = 16


def shapes_of(io: FileIO, files: Sequence[tuple[str, int]]) -> list[Shape]:
    """The shapes of Parquet files given by path and size, several at a time."""
    if len(files) < 2:
        return [shape_of(io, *file) for file in files]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda file: shape_of(io, *file), files))


def shape_of(io: FileIO, path: str, size: int) -> Shape:
    """The field ids of a Parquet file."""
    with open_file(io, path, "PARQUET", size, None) as data:
        return _kept_once(frozenset(_ids(data.fields)))


@lru_cache(1024)
def _kept_once(shape: Shape) -> Shape:
    return shape


def _ids(fields: Iterable[FileField]) -> Iterator[int]:
    for field in fields:
        if field.field_id is not None:
            yield field.field_id
        yield from _ids(field.children)
