"""The end of every write: Arrow batches in, data files out, one row per file back.

It runs in a Spark task or in the driver and knows neither. A sink that fails removes the files it made; what it
returns is the only trace of the files it finished, so files of an attempt whose answer is not used are never
referenced.

Writing rows that are already in memory, without a Spark job.

Streams of Arrow batches.

Rows in a table's sort order, for writes that need no Spark.

NaN is greater than every number, as in Spark and in Iceberg.

Local data files that survive a power cut: what a commit names must be on the disk, not in a cache.

Object stores keep what they acknowledge; there is nothing to do for them.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder

from neve.io.files import delete_files, fsync_paths, translate_storage_errors
from neve.io.storage_paths import local_file_path
from neve.run.write.partitioning import FileNames, PartitionRows, apply_transform, column_by_id
from neve.run.write.rolling_writer import RollingWriter, WrittenFile
from neve.run.write.store_assignment import assign_rows, check_assignable
from neve.run.write.target import WriteTarget
from neve.tree.entries import DETAIL, Content, EntryTable, Status


def join_small_batches(batches: Iterable[pa.RecordBatch], min_rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are not small."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= min_rows:
            yield pa.concat_batches(waiting) if len(waiting) > 1 else batch
            waiting, rows = [], 0
    if rows:
        yield pa.concat_batches(waiting)


def make_durable(io: FileIO, paths: Iterable[str], data_path: str) -> None:
    """Wait until files below the data path, and the folders that name them, have reached the disk."""
    files = [target for path in paths if (target := local_file_path(io, path)) is not None]
    top = local_file_path(io, data_path)
    if not files or top is None:
        return
    above = [str(folder) for file in files for folder in PurePosixPath(file).parents]
    folders = {os.path.dirname(top), *(folder for folder in above if folder.startswith(top))}
    for path in (*files, *sorted(folders)):
        with translate_storage_errors(path, "sync"):
            fsync_paths(path)


_MIN_BATCH_ROWS = 65536  # sorting rows out by partition costs per piece, so small batches are joined first


class DataFileWriter:
    """The writers of one task attempt."""

    def __init__(self, target: WriteTarget, names: FileNames, *, is_clustered: bool) -> None:
        self._target, self._names, self._is_clustered = target, iter(names), is_clustered
        self._io, self._partitioner = target.open_io(), target.partitioner
        self._buffered = target.options.buffered_bytes
        self._open: OrderedDict[tuple[object, ...], RollingWriter] = OrderedDict()
        self._files: list[WrittenFile] = []
        self._paths: list[str] = []  # every file ever begun

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch of rows as the caller has them."""
        rows = assign_rows(batch, self._target.file_schema, self._target.arrow_schema)
        for piece in self._partitioner.split_by_partition(rows):
            self._writer_for(piece).write(piece.rows)
        self._make_room()

    def close(self) -> list[WrittenFile]:
        """Finish every file; they have reached the disk when this returns."""
        self._close_all()
        make_durable(self._io, [f.path for f in self._files], self._target.layout.data_path)
        return self._files

    def abandon(self) -> None:
        """Remove every file this sink made, as far as the storage lets it."""
        for writer in self._open.values():
            with suppress(Exception):
                writer.abandon()
        delete_files(self._io, self._paths)

    def _writer_for(self, piece: PartitionRows) -> RollingWriter:
        if piece.key not in self._open:
            if self._is_clustered:
                self._close_all()
            folder = self._partitioner.path(piece.key)
            self._open[piece.key] = RollingWriter(
                self._io, self._target, piece.tuple_row, lambda: self._next_path(folder)
            )
        self._open.move_to_end(piece.key)
        return self._open[piece.key]

    def _next_path(self, folder: str) -> str:
        path = self._target.layout.path(next(self._names), folder)
        self._paths.append(path)
        return path

    def _make_room(self) -> None:
        """Empty the fullest buffers when memory is short, then close the files longest untouched when many are open."""
        waiting = sum(w.waiting_bytes for w in self._open.values())
        fullest = sorted(self._open.values(), key=lambda w: -w.waiting_bytes) if waiting > self._buffered else []
        for writer in fullest:
            if waiting <= self._buffered:
                break
            waiting -= writer.waiting_bytes
            writer.flush()
        has_file = [key for key, writer in self._open.items() if writer.has_file_open]
        for key in has_file[: max(len(has_file) - self._target.options.open_files, 0)]:
            self._close(key)

    def _close_all(self) -> None:
        for key in list(self._open):
            self._close(key)

    def _close(self, key: tuple[object, ...]) -> None:
        self._files += self._open[key].close()
        del self._open[key]  # only now: a writer that fails to close is still abandoned


def write_batches(
    batches: Iterable[pa.RecordBatch], target: WriteTarget, names: FileNames, *, is_clustered: bool
) -> list[WrittenFile]:
    """Write batches of rows; on failure no file of this attempt is left behind."""
    sink = DataFileWriter(target, names, is_clustered=is_clustered)
    try:
        for batch in join_small_batches(batches, _MIN_BATCH_ROWS):
            sink.write(batch)
        return sink.close()
    except BaseException:
        sink.abandon()
        raise


def data_file_entries(files: Sequence[WrittenFile], target: WriteTarget) -> pa.Table:
    """The files as rows of an entry table: added, their sequence numbers and snapshot still to come."""
    columns: dict[str, object] = {
        "manifest": -1,
        "status": int(Status.ADDED),
        "content": int(Content.DATA),
        "file_path": [f.path for f in files],
        "file_format": "PARQUET",
        "spec_id": target.spec_id,
        "record_count": [f.record_count for f in files],
        "file_size_in_bytes": [f.file_size for f in files],
        "sort_order_id": target.write_order.order_id,
    }
    columns |= {name: [f.metrics[name] for f in files] for name in DETAIL.names if name != "key_metadata"}
    return EntryTable.from_columns(columns | _partition_columns(files), target.specs, len(files), DETAIL.names).columns


def _partition_columns(files: Sequence[WrittenFile]) -> dict[str, object]:
    rows = [f.partition for f in files if f.partition is not None]
    if not rows:
        return {}
    table = pa.Table.from_batches(rows)
    return dict(zip(table.column_names, table.columns, strict=True))


SortKey = tuple[pa.Array, str]


def sort_rows(rows: pa.RecordBatch, schema: Schema, order: SortOrder) -> pa.RecordBatch:
    """The rows sorted by a sort order."""
    if not order.fields or rows.num_rows < 2:
        return rows
    keys = [key for field in order.fields for key in _sort_keys(rows, schema, field)]
    table = pa.table([values for values, _ in keys], names=[str(at) for at in range(len(keys))])
    wanted = [(str(at), direction) for at, (_, direction) in enumerate(keys)]
    return rows.take(pc.sort_indices(table, sort_keys=wanted))


def _sort_keys(rows: pa.RecordBatch, schema: Schema, field: SortField) -> list[SortKey]:
    """A sort field as plain keys: nulls and NaNs have keys of their own, since Arrow puts both at one end."""
    source = column_by_id(rows, schema, field.source_id)
    values = apply_transform(field.transform, schema.find_type(field.source_id), source)
    direction = "descending" if field.direction == SortDirection.DESC else "ascending"
    keys = [(values.is_null(), "descending" if field.null_order == NullOrder.NULLS_FIRST else "ascending")]
    if pa.types.is_floating(values.type):
        keys.append((pc.fill_null(pc.is_nan(values), False), direction))
    sortable = values.cast(pa.binary()) if pa.types.is_fixed_size_binary(values.type) else values
    return [*keys, (sortable, direction)]


def write_arrow_table(rows: pa.Table, target: WriteTarget) -> pa.Table:
    """Write an Arrow table to data files from this process; the files as rows of an entry table."""
    target.check()
    check_assignable(rows.schema, target.file_schema)
    if not rows.num_rows:
        return data_file_entries([], target)
    names = FileNames(0, 0, str(uuid4()))
    return data_file_entries(write_batches(_sort_table(rows, target), target, names, is_clustered=True), target)


def _sort_table(rows: pa.Table, target: WriteTarget) -> list[pa.RecordBatch]:
    """The rows, sorted when the table is: everything is at hand, so the order holds across files."""
    batches: list[pa.RecordBatch] = rows.combine_chunks().to_batches()
    if not target.write_order.fields:
        return batches
    whole = pa.concat_batches([assign_rows(b, target.file_schema, target.arrow_schema) for b in batches])
    return [sort_rows(whole, target.schema, target.write_order)]
