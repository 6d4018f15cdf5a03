"""How a row read by Spark is matched with facts about its file: by one long where possible, else by path.

The size of a file is in the manifest, and Spark knows it for every row. Where sizes differ they make a key that is
joined several times faster than a path. A key that matches nothing would let deleted rows live again, so rows that find
no match stop the query.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from neve.io.paths import spark_uri_all
from neve.run.facts import TableFacts
from neve.tree.entries import EntryTable

__all__ = ["CHUNK_BITS", "FileKeys", "split_by_size", "stop_without_match"]

CHUNK_BITS = 16  # rows in a chunk, as a power of two
_KEY_BITS = 20  # of a chunk number inside a key
_MOST_CHUNKS, _LARGEST = 1 << _KEY_BITS, 1 << (62 - _KEY_BITS)


@dataclass(frozen=True)
class FileKeys:
    """The keys of a set of files, on the side of the manifests and on the side of Spark."""

    values: pa.Array  # one per file: its size, or the URI Spark shows
    by_size: bool

    @classmethod
    def of(cls, files: EntryTable, facts: TableFacts) -> FileKeys:
        """Sizes if they differ, else paths."""
        if is_told_by_size(files).all():
            return cls(files["file_size_in_bytes"].combine_chunks(), True)
        return cls(spark_uri_all(files["file_path"], facts.schemes), False)

    @property
    def column(self) -> Column:
        """The key of the file a row comes from; to be selected straight from the read."""
        return F.col("_metadata.file_size" if self.by_size else "_metadata.file_path")

    def chunk_keys(self, file: np.ndarray, chunk: np.ndarray) -> list[pa.Array]:
        """The columns that tell a stretch of rows of a file apart, for files and chunk numbers side by side."""
        if self.by_size:
            return [pa.array((self.values.to_numpy()[file] << _KEY_BITS) | chunk)]
        return [self.values.take(pa.array(file)), pa.array(chunk)]

    def chunk_columns(self, key: Column, row: Column) -> list[Column]:
        """The same columns from the key of a row and its position."""
        chunk = F.shiftright(row, CHUNK_BITS)
        return [F.shiftleft(key, _KEY_BITS).bitwiseOR(chunk)] if self.by_size else [key, chunk]


def is_told_by_size(files: EntryTable) -> np.ndarray:
    """Which files no other file of the set has the size of."""
    size, rows = files.numpy("file_size_in_bytes"), files.numpy("record_count")
    _, where, times = np.unique(size, return_inverse=True, return_counts=True)
    return (times[where] == 1) & (size < _LARGEST) & (rows < _MOST_CHUNKS << CHUNK_BITS)


def split_by_size(files: EntryTable) -> list[np.ndarray]:
    """The rows of a set of files in at most two groups: those told apart by size, and the others."""
    told = is_told_by_size(files)
    return [rows for rows in (np.flatnonzero(told), np.flatnonzero(~told)) if len(rows)]


def stop_without_match(matched: Column, keep: Column, what: str) -> Column:
    """A condition that keeps rows, and stops the query at one that found no match."""
    message = (
        f"A row of a data file has no {what}: the size, path or row count of its file is not the one in the manifest."
    )
    return F.when(matched.isNull(), F.raise_error(F.lit(message)).cast("boolean")).otherwise(keep)
