"""Write the rows of one partition to Parquet files of about the target size.

Rows are buffered as Arrow until they fill a row group. The ratio of Arrow bytes to file bytes is estimated from the row
groups written so far, so a file is closed near its target size even if the target is smaller than a row group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from neve.io.files import translate_storage_errors
from neve.io.storage_paths import local_file_path, output_file
from neve.run.write.geo_columns import file_types_of_shapes, with_file_types
from neve.run.write.metrics import RowObservations, file_metrics
from neve.run.write.parquet_options import bloom_filter_options, dictionary_columns, parquet_options
from neve.run.write.target import WriteTarget
from neve.run.write.variant_columns import VariantStream, variant_ids

_NEARLY_FULL = 0.95  # of the target size; another row group would be tiny
_MAX_WAITING_BATCHES = 64  # more batches are joined into one, because each has an overhead
_BATCH_OVERHEAD_BYTES = 4096  # about the memory that Arrow uses for a batch in addition to its values


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A data file that is complete."""

    path: str
    partition: pa.RecordBatch | None
    record_count: int
    file_size: int
    metrics: Mapping[str, list[Any]]


class _OpenFile:
    """A Parquet file being written."""

    def __init__(self, io: FileIO, path: str, target: WriteTarget, first_rows: pa.Table) -> None:
        self.path, self._leaves = path, target.leaves
        self._observed, self._row_groups = RowObservations(), 0
        shapes = file_types_of_shapes(target.schema)
        self._schema = with_file_types(target.arrow_schema, shapes) if shapes else None
        with translate_storage_errors(path, "create"):
            self._stream: Any = output_file(io, local_file_path(io, path) or path).create(overwrite=True)
        if variants := variant_ids(target.schema):
            self._stream = VariantStream(self._stream, variants)
        try:
            properties = target.table_properties
            with_dictionary = dictionary_columns(first_rows, target.leaves, properties.parquet_dict_size)
            options = parquet_options(properties) | {"use_dictionary": with_dictionary}
            options |= bloom_filter_options(first_rows, target.leaves, properties)
            with translate_storage_errors(path, "write"):  # the constructor writes the first bytes
                self._writer = pq.ParquetWriter(self._stream, self._schema or target.arrow_schema, **options)
            self._writer.add_key_value_metadata({"iceberg.schema": target.schema.model_dump_json()})
        except BaseException:
            with suppress(Exception):
                self._stream.close()
            raise

    @property
    def size(self) -> int:
        return int(self._stream.tell())

    def write_row_group(self, rows: pa.Table) -> None:
        self._observed.observe_rows(rows, self._leaves, self._row_groups)
        with translate_storage_errors(self.path, "write"):
            rows = rows if self._schema is None else rows.cast(self._schema)
            self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        self._row_groups += 1

    def close(self, partition: pa.RecordBatch | None) -> WrittenFile:
        with translate_storage_errors(self.path, "write"):
            if isinstance(self._stream, VariantStream):
                self._stream.close_writer(self._writer)
            else:
                self._writer.close()
            size = self.size
            self._stream.close()
        footer = self._writer.writer.metadata
        metrics = file_metrics(footer, self._leaves, self._observed)
        return WrittenFile(self.path, partition, footer.num_rows, size, metrics)

    def abandon(self) -> None:
        with suppress(Exception):
            self._writer.close()  # otherwise it would close itself when garbage collected, on a closed stream
        self._stream.close()


class RollingWriter:
    """Writes the files of one partition in one task."""

    def __init__(
        self, io: FileIO, target: WriteTarget, partition: pa.RecordBatch | None, next_path: Callable[[], str]
    ) -> None:
        self._io, self._target, self._partition, self._next_path = io, target, partition, next_path
        self._row_group_size = target.table_properties.parquet_row_group_size
        self._joined: list[pa.RecordBatch] = []
        self._pieces: list[pa.RecordBatch] = []
        self._file: _OpenFile | None = None
        self._arrow_bytes = self._file_bytes = 1  # written so far, to estimate the ratio of both
        self._row_bytes = 0
        self.finished: list[WrittenFile] = []

    @property
    def waiting_bytes(self) -> int:
        """Memory held by rows that have not reached a file."""
        return self._row_bytes + _BATCH_OVERHEAD_BYTES * len(self._pieces)

    @property
    def has_file_open(self) -> bool:
        """True if rows have reached a file that is not closed yet."""
        return self._file is not None

    def write(self, rows: pa.RecordBatch) -> None:
        """Buffer rows; they are written when they fill a row group."""
        start = 0
        bytes_per_row = max(rows.nbytes / max(rows.num_rows, 1), 1e-9)
        while start < rows.num_rows:  # in slices that do not overshoot a row group
            room = (self._next_row_group_bytes() - self._row_bytes) / bytes_per_row
            count = min(max(int(room) + 1, 1), rows.num_rows - start)
            part = rows.slice(start, count)
            start += count
            self._pieces.append(part)
            self._row_bytes += max(part.nbytes, 1)
            if len(self._pieces) >= _MAX_WAITING_BATCHES:
                self._joined.append(pa.concat_batches(self._pieces))
                self._pieces = []
            if self._row_bytes >= self._next_row_group_bytes():
                self.flush()

    def flush(self) -> None:
        """Write the buffered rows as one row group, and close the file if it has reached its target size."""
        if not self._row_bytes:
            return
        rows = pa.Table.from_batches([*self._joined, *self._pieces])
        self._file = self._file or _OpenFile(self._io, self._next_path(), self._target, rows)
        before = self._file.size
        self._file.write_row_group(rows)
        self._arrow_bytes += self._row_bytes
        self._file_bytes += self._file.size - before
        self._joined, self._pieces, self._row_bytes = [], [], 0
        if self._file.size >= self._target.target_file_size * _NEARLY_FULL:
            self._finish_file()

    def close(self) -> list[WrittenFile]:
        """Write the remaining rows and return the files of the partition."""
        self.flush()
        self._finish_file()
        return self.finished

    def abandon(self) -> None:
        """Close the open file without finishing it."""
        if self._file:
            self._file.abandon()

    def _finish_file(self) -> None:
        if self._file:
            self.finished.append(self._file.close(self._partition))
            self._file = None

    def _next_row_group_bytes(self) -> float:
        """Return the Arrow bytes of the next row group: a full one, or what the file still needs."""
        written = self._file.size if self._file else 0
        ratio = self._arrow_bytes / self._file_bytes
        return min(self._row_group_size, max(self._target.target_file_size - written, 1) * ratio)
