"""Read Parquet data files row group by row group, in batches of bounded size; of few wanted rows, only their pages.

Arrow's Python API for column chunks crashes the process if the footer is inconsistent, so it is not used: statistics
come from the bytes of the footer (`neve.io.parquet_footer`), and sizes are those of whole row groups.
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
from neve.io.deletion_vectors import PositionSet
from neve.io.parquet_footer import read_footer
from neve.io.parquet_pages import find_pages, read_pages
from neve.io.untrusted import open_checked_file, translate_decoder_errors
from neve.run.read.array_builders import BATCH_ROWS, ColumnBatch, FileRows
from neve.run.read.field_ids import FileField, file_fields

BATCH_BYTES = 32 << 20  # target for the decoded size of a batch; a single row may be larger

_MIN_ROWS_PER_WANTED = 100  # of a row group: where one row in a hundred is wanted, nearly every page holds one
_MAX_PAGE_SHARE = 0.7  # of the rows of a row group: beyond it, single pages save less than they cost

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class ParquetData:
    """An open Parquet file."""

    path: str
    file: pq.ParquetFile
    stream: Any
    footer: bytes
    row_group_mask: Mask | None = None  # the row groups to read, when some are left out
    wanted: PositionSet | None = None  # the rows to read, when other rows may be left out
    prunes_nested: bool = True

    @property
    def fields(self) -> tuple[FileField, ...]:
        """The columns of the file."""
        with translate_decoder_errors(self.path, "a Parquet schema"):
            fields = file_fields(self.file.schema_arrow, self.path)
        counted = fields[-1].leaves.stop if fields else 0
        if counted != self.leaf_count:  # columns are read by these numbers: a shift would read the wrong ones
            actual = f"{counted} columns of single values in {self.file.schema_arrow.types}"
            raise CorruptFile(self.path, f"{self.leaf_count} columns of single values", actual)
        return fields

    @property
    def record_count(self) -> int:
        """The number of rows according to the footer."""
        return int(self.file.metadata.num_rows)

    @property
    def row_group_count(self) -> int:
        """The number of row groups."""
        return int(self.file.metadata.num_row_groups)

    @property
    def leaf_count(self) -> int:
        """The number of primitive columns in the schema; each row group has a chunk of each."""
        return int(self.file.metadata.num_columns)

    def with_row_groups(self, mask: Mask) -> ParquetData:
        """Return the same file with only some row groups; positions stay those of the whole file."""
        return replace(self, row_group_mask=mask)

    def with_rows(self, wanted: PositionSet) -> ParquetData:
        """Return the same file with these rows, and perhaps others; positions stay those of the whole file."""
        return replace(self, wanted=wanted)

    def batches(self, leaves: Sequence[int], part: tuple[int, int] = (0, 1)) -> Iterator[ColumnBatch]:
        """Yield the requested columns and their rows; `part` (k of n) selects the row groups whose middle is in it."""
        metadata, start = self.file.metadata, 0
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        sizes = [max(group.total_byte_size, 1) for group in groups]
        total, ends = sum(sizes), list(accumulate(sizes))
        for ordinal, group in enumerate(groups):
            is_selected = self.row_group_mask is None or self.row_group_mask[ordinal]
            middle_part = (2 * ends[ordinal] - sizes[ordinal]) * part[1] // (2 * total)
            rows = FileRows(start, group.num_rows)
            if group.num_rows and is_selected and min(middle_part, part[1] - 1) == part[0]:
                wanted = None if self.wanted is None else self.wanted.between(start, start + group.num_rows)
                if wanted is None or len(wanted):
                    chosen = None if wanted is None else self._read_rows(ordinal, rows, leaves, wanted)
                    yield from self._read_row_group(ordinal, group, leaves, start) if chosen is None else [chosen]
            start += group.num_rows

    def _read_rows(
        self, ordinal: int, group: FileRows, leaves: Sequence[int], wanted: NDArray[np.int64]
    ) -> ColumnBatch | None:
        """Read some rows of a row group by their pages; None if that is not possible, or not worth it."""
        if not leaves or len(wanted) * _MIN_ROWS_PER_WANTED > group.count:
            return None
        columns = find_pages(self.stream, self.footer, self.path, ordinal, leaves)
        rows = wanted - group.start
        if (
            columns is None
            or max(c.row_counts(c.pages_with(rows)).sum() for c in columns) > group.count * _MAX_PAGE_SHARE
        ):
            return None
        arrays = read_pages(self.stream, self.path, columns, rows)
        types = {f.leaves.start: f.type for f in self.fields}
        if arrays is None or any(a.type != types[leaf] for a, leaf in zip(arrays, leaves, strict=True)):
            return None
        return FileRows(int(wanted[0]), len(wanted), wanted), arrays

    def _read_row_group(self, ordinal: int, group: Any, leaves: Sequence[int], start: int) -> Iterator[ColumnBatch]:
        # One row group per call: the reader buffers the column chunks of all groups that it gets.
        # Batches are sized as if all columns were read.
        batch_rows = max(1, min(BATCH_ROWS, BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1)))
        row_count = 0
        with translate_decoder_errors(self.path, "readable Parquet pages"):
            for batch in self.file.reader.iter_batches(
                batch_rows, row_groups=[ordinal], column_indices=list(leaves), use_threads=False
            ):
                yield FileRows(start + row_count, batch.num_rows), batch.columns
                row_count += batch.num_rows
        if row_count != group.num_rows:
            raise CorruptFile(self.path, f"{group.num_rows} rows in row group {ordinal}", f"{row_count}")

    def close(self) -> None:
        """Release the file."""
        self.file.close(force=True)
        self.stream.close()


def open_parquet(io: FileIO, path: str, size: int | None) -> ParquetData:
    """Open a Parquet file and read its footer."""
    stream, length = open_checked_file(io, path, size)
    try:
        footer = read_footer(stream, length, path)
        whole_footer = pa.BufferReader(b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1")
        with translate_decoder_errors(path, "a Parquet file"):
            file = pq.ParquetFile(
                stream,
                metadata=pq.read_metadata(whole_footer),
                pre_buffer=True,
                page_checksum_verification=True,
                coerce_int96_timestamp_unit="us",
                arrow_extensions_enabled=False,
            )
    except BaseException:
        stream.close()
        raise
    return ParquetData(path, file, stream, footer)
