"""Parquet data files, one row group after the other, a bounded batch at a time.

What Arrow tells in Python about a column chunk ends the process when the footer contradicts itself, so nobody asks it:
statistics come from the bytes of the footer (`neve.io.parquet_footer`), and sizes are those of whole row groups.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.io import FileIO

from neve.errors import CorruptFile
from neve.io.parquet_footer import read_footer
from neve.io.untrusted import open_checked_file, translate_decoder_errors
from neve.run.read.array_builders import BATCH_ROWS, ColumnBatch, RowRange
from neve.run.read.field_ids import FileField, file_fields

BATCH_BYTES = 32 << 20  # decoded size a batch is aimed at; a single row may be larger

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class ParquetData:
    """An open Parquet file."""

    path: str
    file: pq.ParquetFile
    stream: Any
    footer: bytes
    row_group_mask: Mask | None = None  # the row groups to read, when some are left out
    prunes_nested: bool = True

    @property
    def fields(self) -> tuple[FileField, ...]:
        """The columns of the file."""
        with translate_decoder_errors(self.path, "a Parquet schema"):
            found = file_fields(self.file.schema_arrow, self.path)
        counted = found[-1].leaves.stop if found else 0
        if counted != self.leaf_count:  # columns are read by these numbers: others would be taken for them
            kinds = f"{counted} columns of single values in {self.file.schema_arrow.types}"
            raise CorruptFile(self.path, f"{self.leaf_count} columns of single values", kinds)
        return found

    @property
    def record_count(self) -> int:
        """The rows the footer counts."""
        return int(self.file.metadata.num_rows)

    @property
    def row_group_count(self) -> int:
        """How many row groups the file has."""
        return int(self.file.metadata.num_row_groups)

    @property
    def leaf_count(self) -> int:
        """How many columns of single values the schema has; each row group has a chunk of each."""
        return int(self.file.metadata.num_columns)

    def with_row_groups(self, kept: Mask) -> ParquetData:
        """The same file without some row groups; positions stay those of the whole file."""
        return replace(self, row_group_mask=kept)

    def batches(self, leaves: Sequence[int], part: tuple[int, int] = (0, 1)) -> Iterator[ColumnBatch]:
        """The columns asked for, and their rows; `part` (k of n) takes the row groups whose middle is in it."""
        metadata, start = self.file.metadata, 0
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        parts = _parts([max(g.total_byte_size, 0) for g in groups], part[1])
        for ordinal, group in enumerate(groups):
            is_kept = self.row_group_mask is None or self.row_group_mask[ordinal]
            if group.num_rows and is_kept and parts[ordinal] == part[0]:
                yield from self._read_row_group(ordinal, group, leaves, start)
            start += group.num_rows

    def _read_row_group(self, ordinal: int, group: Any, leaves: Sequence[int], start: int) -> Iterator[ColumnBatch]:
        # One row group per call: the reader buffers the column chunks of all the groups it is given.
        end = start + group.num_rows
        with translate_decoder_errors(self.path, "readable Parquet pages"):
            for batch in self.file.reader.iter_batches(
                _batch_rows(group), row_groups=[ordinal], column_indices=list(leaves), use_threads=False
            ):
                yield RowRange(start, batch.num_rows), batch.columns
                start += batch.num_rows
        if start != end:
            raise CorruptFile(
                self.path, f"{group.num_rows} rows in row group {ordinal}", f"{start + group.num_rows - end}"
            )

    def close(self) -> None:
        """Release the file."""
        self.file.close(force=True)
        self.stream.close()


def open_parquet(io: FileIO, path: str, size: int | None) -> ParquetData:
    """Open a Parquet file and read its footer."""
    stream, length = open_checked_file(io, path, size)
    try:
        footer = read_footer(stream, length, path)
        with translate_decoder_errors(path, "a Parquet file"):
            file = pq.ParquetFile(
                stream,
                metadata=_parsed(footer),
                pre_buffer=True,
                page_checksum_verification=True,
                coerce_int96_timestamp_unit="us",
                arrow_extensions_enabled=False,
            )
    except BaseException:
        stream.close()
        raise
    return ParquetData(path, file, stream, footer)


def _parsed(footer: bytes) -> pq.FileMetaData:
    """What Arrow makes of a footer that was read already."""
    return pq.read_metadata(pa.BufferReader(b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1"))


def _parts(sizes: Sequence[int], parts: int) -> list[int]:
    """The part each row group is in: that of the middle of its bytes."""
    sizes = [size or 1 for size in sizes]
    total, ends = sum(sizes), accumulate(sizes)
    return [min((2 * end - size) * parts // (2 * total), parts - 1) for size, end in zip(sizes, ends, strict=True)]


def _batch_rows(group: Any) -> int:
    """How many rows to decode at a time, as if all columns were asked for."""
    return max(1, min(BATCH_ROWS, BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1)))
