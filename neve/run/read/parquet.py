"""Read Parquet data files row group by row group, in batches of bounded size; of few wanted rows, only their pages.

Arrow's Python API for column chunks crashes the process if the footer is inconsistent, so it is not used: statistics
come from the bytes of the footer (`neve.io.parquet_footer`), and sizes are those of whole row groups.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import types as at
from pyiceberg.io import FileIO

from neve.errors import CorruptFile
from neve.io.deletion_vectors import PositionSet
from neve.io.parquet_footer import ChunkStatistics, Footer, dictionary_columns, read_footer
from neve.io.parquet_pages import ARROW_OPTIONS, find_pages, page_statistics, read_pages
from neve.io.untrusted import open_checked_file, translate_decoder_errors
from neve.run.read.array_builders import BATCH_ROWS, ColumnBatch, FileRows
from neve.run.read.field_ids import FileField, file_fields

BATCH_BYTES = 32 << 20  # target for the decoded size of a batch; a single row may be larger

_MAX_CHOSEN_BYTES = 64 << 20  # of rows that are read by their pages, and returned as one batch
_MAX_PAGE_SHARE = 0.7  # of the rows of a row group: beyond it, single pages save less than they cost
_MAX_TAKEN_SHARE = 0.3  # of the rows of a batch: beyond it, taking them costs more than it saves
_MIN_DICTIONARY_ROWS = 20_000  # of a file: for fewer, looking for dictionaries takes longer than they save

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class ParquetData:
    """An open Parquet file."""

    path: str
    file: pq.ParquetFile
    stream: Any
    footer: Footer
    size: int
    row_group_mask: Mask | None = None  # the row groups to read, when some are left out
    wanted: PositionSet | None = None  # the rows to read, when other rows may be left out
    dictionaries: Sequence[str] = ()  # the columns that are read as dictionaries
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
    def instants_without_zone(self) -> frozenset[int]:
        """The leaves that hold times of 96 bits: instants, for which Arrow returns times without a zone."""
        schema = self.file.metadata.schema
        return frozenset(leaf for leaf in range(self.leaf_count) if schema.column(leaf).physical_type == "INT96")

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
        return replace(self, wanted=wanted if self.wanted is None else wanted.intersection(self.wanted))

    def selected_row_groups(self, part: tuple[int, int] = (0, 1)) -> Iterator[tuple[int, FileRows]]:
        """Yield the number and the rows of each row group to read: those whose middle is in part k of n."""
        groups = [self.file.metadata.row_group(ordinal) for ordinal in range(self.row_group_count)]
        sizes = [max(group.total_byte_size, 1) for group in groups]
        total, ends, start = sum(sizes), list(accumulate(sizes)), 0
        for ordinal, group in enumerate(groups):
            is_selected = self.row_group_mask is None or self.row_group_mask[ordinal]
            middle_part = (2 * ends[ordinal] - sizes[ordinal]) * part[1] // (2 * total)
            if group.num_rows and is_selected and min(middle_part, part[1] - 1) == part[0]:
                yield ordinal, FileRows(start, group.num_rows)
            start += group.num_rows

    def page_statistics(self, row_group: int, leaves: Sequence[int]) -> list[tuple[Any, list[ChunkStatistics]]] | None:
        """Return the first rows and the statistics of the pages of some columns; None if the file has none."""
        return page_statistics(self.stream, self.footer, row_group, leaves)

    def batches(self, leaves: Sequence[int], part: tuple[int, int] = (0, 1)) -> Iterator[ColumnBatch]:
        """Yield the requested columns and their rows, in one part of the file."""
        for ordinal, group in self.selected_row_groups(part):
            if self.wanted is None:
                yield from self._read_row_group(ordinal, group, leaves)
            elif len(wanted := self.wanted.between(group.start, group.start + group.count)):
                if (chosen := self._read_rows(ordinal, group, leaves, wanted)) is not None:
                    yield chosen
                else:
                    yield from _take_rows(self._read_row_group(ordinal, group, leaves), wanted)

    def _read_rows(
        self, ordinal: int, group: FileRows, leaves: Sequence[int], wanted: NDArray[np.int64]
    ) -> ColumnBatch | None:
        """Read some rows of a row group by their pages; None if that is not possible, or not worth it."""
        max_rows = min(group.count * _MAX_PAGE_SHARE, _MAX_CHOSEN_BYTES / self._bytes_per_row(ordinal))
        if not leaves or len(wanted) > max_rows:
            return None
        columns, rows = find_pages(self.stream, self.footer, ordinal, leaves), wanted - group.start
        if columns is None:
            return None
        if max(c.row_counts(c.pages_with(rows)).sum() for c in columns) > group.count * _MAX_PAGE_SHARE:
            return None
        arrays = read_pages(self.stream, self.path, columns, rows, self.dictionaries)
        types = {f.leaves.start: _value_type(f.type) for f in self.fields}
        if arrays is None or any(_value_type(a.type) != types[leaf] for a, leaf in zip(arrays, leaves, strict=True)):
            return None
        return FileRows(int(wanted[0]), len(wanted), wanted), arrays

    def _bytes_per_row(self, row_group: int) -> float:
        group = self.file.metadata.row_group(row_group)
        return max(group.total_byte_size / group.num_rows, 1)

    def _read_row_group(self, ordinal: int, group: FileRows, leaves: Sequence[int]) -> Iterator[ColumnBatch]:
        # One row group per call: the reader buffers the column chunks of all groups that it gets.
        # Batches are sized as if all columns were read.
        batch_rows = max(1, min(BATCH_ROWS, int(BATCH_BYTES / self._bytes_per_row(ordinal))))
        row_count = 0
        with translate_decoder_errors(self.path, "readable Parquet pages"):
            for batch in self.file.reader.iter_batches(
                batch_rows, row_groups=[ordinal], column_indices=list(leaves), use_threads=False
            ):
                yield FileRows(group.start + row_count, batch.num_rows), batch.columns
                row_count += batch.num_rows
        if row_count != group.count:
            raise CorruptFile(self.path, f"{group.count} rows in row group {ordinal}", f"{row_count}")

    def close(self) -> None:
        """Release the file."""
        self.file.close(force=True)
        self.stream.close()


def open_parquet(io: FileIO, path: str, size: int | None) -> ParquetData:
    """Open a Parquet file and read its footer."""
    stream, length = open_checked_file(io, path, size)
    try:
        footer = read_footer(stream, length, path)
        whole_footer = pa.BufferReader(b"PAR1" + footer.raw + struct.pack("<I", len(footer.raw)) + b"PAR1")
        with translate_decoder_errors(path, "a Parquet file"):
            metadata = pq.read_metadata(whole_footer)
            dictionaries = _columns_to_read_as_dictionaries(metadata, footer)
            file = pq.ParquetFile(
                stream, metadata=metadata, read_dictionary=dictionaries, pre_buffer=True, **ARROW_OPTIONS
            )
    except BaseException:
        stream.close()
        raise
    return ParquetData(path, file, stream, footer, length, dictionaries=dictionaries)


def _columns_to_read_as_dictionaries(metadata: pq.FileMetaData, footer: Footer) -> list[str]:
    """Return the columns that Arrow reads faster if it need not repeat the values for every row."""
    if metadata.num_rows < _MIN_DICTIONARY_ROWS:
        return []
    names = dictionary_columns(footer)
    fields = metadata.schema.to_arrow_schema()
    return [f.name for f in fields if f.name in names and (at.is_string(f.type) or at.is_binary(f.type))]


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if at.is_dictionary(kind) else kind


def _take_rows(batches: Iterable[ColumnBatch], wanted: NDArray[np.int64]) -> Iterator[ColumnBatch]:
    """Yield the wanted rows of batches of consecutive rows; whole batches where most rows are wanted."""
    for rows, columns in batches:
        first, end = np.searchsorted(wanted, [rows.start, rows.start + rows.count])
        if end - first > rows.count * _MAX_TAKEN_SHARE:
            yield rows, columns
        elif end > first:
            chosen = wanted[first:end]
            indices = pa.array(chosen - rows.start)
            yield FileRows(int(chosen[0]), len(chosen), chosen), [column.take(indices) for column in columns]
