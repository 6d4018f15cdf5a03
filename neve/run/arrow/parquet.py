"""Parquet data files, one row group after the other, a bounded batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.io import FileIO

from neve.run.arrow.build import BATCH_ROWS, Rows, Stretch
from neve.run.arrow.ids import FileField, fields_of
from neve.run.arrow.storage import opened, reading

__all__ = ["ParquetData", "open_parquet"]

BATCH_BYTES = 32 << 20  # decoded size a batch is aimed at; a single row may be larger

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class ParquetData:
    """An open Parquet file."""

    path: str
    file: pq.ParquetFile
    stream: Any
    size: int
    kept: Mask | None = None  # the row groups to read, when some are left out
    prunes_nested: bool = True

    @property
    def fields(self) -> tuple[FileField, ...]:
        """The columns of the file."""
        with reading(self.path, "a Parquet schema"):
            return fields_of(self.file.schema_arrow, self.path)

    @property
    def record_count(self) -> int:
        """The rows the footer counts."""
        return int(self.file.metadata.num_rows)

    def restricted(self, kept: Mask) -> ParquetData:
        """The same file without some row groups; positions stay those of the whole file."""
        return replace(self, kept=kept)

    def batches(self, leaves: Sequence[int], part: tuple[int, int] = (0, 1)) -> Iterator[Stretch]:
        """The columns asked for, and their rows; `part` (k of n) takes the row groups whose middle is in it."""
        metadata, start = self.file.metadata, 0
        for ordinal in range(metadata.num_row_groups):
            group = metadata.row_group(ordinal)
            is_kept = self.kept is None or self.kept[ordinal]
            if group.num_rows and is_kept and self._part_of(group, part[1]) == part[0]:
                yield from self._row_group(ordinal, group, leaves, start)
            start += group.num_rows

    def _row_group(self, ordinal: int, group: Any, leaves: Sequence[int], start: int) -> Iterator[Stretch]:
        # One row group per call: the reader buffers the column chunks of all the groups it is given.
        with reading(self.path, "readable Parquet pages"):
            for batch in self.file.reader.iter_batches(
                _batch_rows(group, leaves), row_groups=[ordinal], column_indices=list(leaves), use_threads=False
            ):
                yield Rows(start, batch.num_rows), batch.columns
                start += batch.num_rows

    def _part_of(self, group: Any, parts: int) -> int:
        if parts == 1:
            return 0
        column = group.column(0)
        first = column.dictionary_page_offset or column.data_page_offset
        stored = sum(group.column(i).total_compressed_size for i in range(group.num_columns))
        return min(max((first + stored // 2) * parts // max(self.size, 1), 0), parts - 1)

    def close(self) -> None:
        """Release the file."""
        self.file.close(force=True)
        self.stream.close()


def open_parquet(io: FileIO, path: str, size: int | None) -> ParquetData:
    """Open a Parquet file and read its footer."""
    stream, length = opened(io, path, size)
    try:
        with reading(path, "a Parquet file"):
            file = pq.ParquetFile(
                stream,
                pre_buffer=True,
                page_checksum_verification=True,
                coerce_int96_timestamp_unit="us",
                arrow_extensions_enabled=False,
            )
    except BaseException:
        stream.close()
        raise
    return ParquetData(path, file, stream, length)


def _batch_rows(group: Any, leaves: Sequence[int]) -> int:
    decoded = sum(group.column(leaf).total_uncompressed_size for leaf in leaves)
    return max(1, min(BATCH_ROWS, BATCH_BYTES * group.num_rows // max(decoded, 1)))
