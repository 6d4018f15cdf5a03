"""Write Arrow batches to data files, and return one entry row per file.

The code runs in a Spark task or on the driver and does not depend on either. A writer that fails removes its files.
Only its return value refers to the finished files, so files of an attempt whose result is not used are never
referenced.

Rows that are already in memory are written without a Spark job (`write_arrow_table`); they are sorted here if the table
has a sort order. NaN is greater than every number, as in Spark and in Iceberg.

Local files are synced to the disk, so that a commit never refers to a file that a power cut can take away. Object
stores keep what they acknowledge, so nothing is done for them.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from operator import attrgetter
from pathlib import PurePosixPath
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder

from neve.io.files import delete_files, fsync_paths, translate_storage_errors
from neve.io.parallel import map_in_threads, usable_cores
from neve.io.storage_paths import local_file_path
from neve.run.write.conversions import decoded_bytes, is_encoded
from neve.run.write.partitioning import FileNames, PartitionRows, apply_transform, column_by_id
from neve.run.write.rolling_writer import RollingWriter, WrittenFile
from neve.run.write.store_assignment import assign_rows, check_assignable
from neve.run.write.target import WriteTarget
from neve.tree.entries import DETAIL, Content, EntryTable, Status

Rows = Any  # pa.Table or pa.RecordBatch

# Splitting a batch by partition has a fixed cost, so small batches are joined first: up to so many rows or bytes.
_MIN_BATCH_ROWS, _MIN_BATCH_BYTES = 65536, 32 << 20
_MIN_ASSIGNED_ROWS = 8192  # the same for store assignment, where no rows are moved
_MAX_GROUP_BYTES = 1 << 30  # of rows in memory that are handled together; Arrow limits a column of text to 2 GiB
_SHARE_BYTES = 256 << 20  # of a table in memory that is worth a thread, and files of its own


def join_small_batches(
    batches: Iterable[pa.RecordBatch], min_rows: int, min_bytes: int = _MIN_BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """Join batches until each has at least `min_rows` rows or `min_bytes` bytes, except the last."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        pending.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= min_rows or size >= min_bytes:
            yield pa.concat_batches(pending) if len(pending) > 1 else batch
            pending, rows, size = [], 0, 0
    if rows:
        yield pa.concat_batches(pending)


def make_durable(io: FileIO, paths: Iterable[str], data_path: str) -> None:
    """Wait until files below the data path, and their folders, have reached the disk."""
    files = [target for path in paths if (target := local_file_path(io, path)) is not None]
    top = local_file_path(io, data_path)
    if not files or top is None:
        return
    parents = [str(folder) for file in files for folder in PurePosixPath(file).parents]
    folders = {os.path.dirname(top), *(folder for folder in parents if folder.startswith(top))}
    for path in (*files, *sorted(folders)):
        with translate_storage_errors(path, "sync"):
            fsync_paths(path)


class DataFileWriter:
    """The writers of one task attempt."""

    def __init__(self, target: WriteTarget, names: FileNames, *, is_clustered: bool) -> None:
        self._target, self._names, self._is_clustered = target, iter(names), is_clustered
        self._io, self._partitioner = target.open_io(), target.partitioner
        self._max_buffered_bytes = target.options.buffered_bytes
        self._open: OrderedDict[tuple[object, ...], RollingWriter] = OrderedDict()
        self._files: list[WrittenFile] = []
        self._started_paths: list[str] = []  # finished or not

    def write(self, pieces: Iterable[PartitionRows]) -> None:
        """Write rows of some partitions, in the columns of the files."""
        for piece in pieces:
            self._writer_for(piece).write(piece.rows)
        buffered = sum(w.waiting_bytes for w in self._open.values())
        if buffered > self._max_buffered_bytes:  # memory is short: flush the fullest buffers
            for writer in sorted(self._open.values(), key=lambda w: -w.waiting_bytes):
                if buffered <= self._max_buffered_bytes:
                    break
                buffered -= writer.waiting_bytes
                writer.flush()
        with_open_file = [key for key, writer in self._open.items() if writer.has_file_open]
        # The least recently used files are closed when too many are open.
        for key in with_open_file[: max(len(with_open_file) - self._target.options.open_files, 0)]:
            self._close(key)

    def close(self) -> list[WrittenFile]:
        """Finish every file; they have reached the disk when this returns."""
        self._close_all()
        make_durable(self._io, [f.path for f in self._files], self._target.layout.data_path)
        return self._files

    def abandon(self) -> None:
        """Remove every file of this writer, as far as the storage allows."""
        for writer in self._open.values():
            with suppress(Exception):
                writer.abandon()
        delete_files(self._io, self._started_paths)

    def _writer_for(self, piece: PartitionRows) -> RollingWriter:
        if piece.key not in self._open:
            if self._is_clustered:
                self._close_all()
            folder = self._partitioner.path(piece.key)

            def next_path() -> str:
                self._started_paths.append(self._target.layout.path(next(self._names), folder))
                return self._started_paths[-1]

            self._open[piece.key] = RollingWriter(self._io, self._target, piece.tuple_row, next_path)
        self._open.move_to_end(piece.key)
        return self._open[piece.key]

    def _close_all(self) -> None:
        for key in list(self._open):
            self._close(key)

    def _close(self, key: tuple[object, ...]) -> None:
        self._files += self._open[key].close()
        del self._open[key]  # only now: a writer that fails to close is still abandoned


def write_batches(
    batches: Iterable[pa.RecordBatch], target: WriteTarget, names: FileNames, *, is_clustered: bool
) -> list[WrittenFile]:
    """Write batches of rows, after store assignment to the table's columns; a failed write leaves no files behind."""
    partitioner = target.partitioner
    assigned = _assigned_batches(batches, target, _MIN_BATCH_ROWS if partitioner.separates_rows else _MIN_ASSIGNED_ROWS)
    # Rows of clustered batches are written at once, and need not be copied one partition at a time.
    groups = (partitioner.split_by_partition(rows, copies=not is_clustered) for rows in assigned)
    return _write_all(groups, target, names, is_clustered)


def write_pieces(
    pieces: Iterable[PartitionRows], target: WriteTarget, names: FileNames, *, is_clustered: bool
) -> list[WrittenFile]:
    """Write rows that are already split by partition and in the columns of the files."""
    return _write_all(([piece] for piece in pieces), target, names, is_clustered)


def _write_all(
    groups: Iterable[Iterable[PartitionRows]], target: WriteTarget, names: FileNames, is_clustered: bool
) -> list[WrittenFile]:
    writer = DataFileWriter(target, names, is_clustered=is_clustered)
    try:
        for pieces in groups:
            writer.write(pieces)
        return writer.close()
    except BaseException:
        writer.abandon()
        raise


def data_file_entries(files: Sequence[WrittenFile], target: WriteTarget) -> pa.Table:
    """Return the files as rows of an entry table: added, without sequence numbers and snapshot id yet."""
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
    if partition_rows := [f.partition for f in files if f.partition is not None]:
        partitions = pa.Table.from_batches(partition_rows)
        columns |= dict(zip(partitions.column_names, partitions.columns, strict=True))
    return EntryTable.from_columns(columns, target.specs, len(files), DETAIL.names).columns


def sort_rows(batches: Sequence[pa.RecordBatch], schema: Schema, order: SortOrder) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some batches sorted by a sort order: in one batch, unless a column is too large for that."""
    by_column = zip(*(batch.columns for batch in batches), strict=True)
    sizes = [sum(values.nbytes for values in column) for column in by_column]
    if max(sizes) <= _MAX_GROUP_BYTES:
        batches = [pa.concat_batches(batches)]
    keys = [_sort_keys(batch, schema, order) for batch in batches]
    columns = [pa.chunked_array([values for values, _ in column]) for column in zip(*keys, strict=True)]
    names = [str(i) for i in range(len(columns))]
    sort_keys = list(zip(names, (direction for _, direction in keys[0]), strict=True))
    indices = pc.sort_indices(pa.table(columns, names=names), sort_keys=sort_keys)
    if len(batches) == 1:
        yield batches[0].take(indices)
        return
    for share in np.array_split(indices.to_numpy().astype(np.int64), sum(sizes) // _MAX_GROUP_BYTES + 1):
        yield from _take_rows(batches, share)


def _sort_keys(rows: pa.RecordBatch, schema: Schema, order: SortOrder) -> list[tuple[pa.Array, str]]:
    """Return columns to sort by, with directions; nulls and NaNs have their own, because Arrow puts both at one end."""
    keys: list[tuple[pa.Array, str]] = []
    for field in order.fields:
        source = column_by_id(rows, schema, field.source_id)
        name = schema.find_column_name(field.source_id) or ""
        values = apply_transform(field.transform, schema.find_type(field.source_id), source, name)
        direction = "descending" if field.direction == SortDirection.DESC else "ascending"
        keys.append((values.is_null(), "descending" if field.null_order == NullOrder.NULLS_FIRST else "ascending"))
        if pa.types.is_floating(values.type):
            keys.append((pc.fill_null(pc.is_nan(values), False), direction))
        keys.append((values.cast(pa.binary()) if pa.types.is_fixed_size_binary(values.type) else values, direction))
    return keys


def _take_rows(batches: Sequence[pa.RecordBatch], indices: NDArray[np.integer]) -> Iterator[pa.RecordBatch]:
    """Yield rows by their indices over all batches, in batches of at most 1 GiB."""
    ends = np.cumsum([batch.num_rows for batch in batches])
    numbers = np.searchsorted(ends, indices, side="right")
    parts = [
        batch.take(pa.array(indices[numbers == number] - (ends[number] - batch.num_rows)))
        for number, batch in enumerate(batches)
    ]
    if len(indices) > 1 and sum(part.nbytes for part in parts) > _MAX_GROUP_BYTES:
        del parts
        for half in np.array_split(indices, 2):
            yield from _take_rows(batches, half)
    else:
        positions = np.argsort(np.argsort(numbers, kind="stable"))  # in the parts, one after the other
        yield pa.concat_batches(parts).take(pa.array(positions))


def write_arrow_table(rows: pa.Table, target: WriteTarget) -> pa.Table:
    """Write an Arrow table to data files from this process, and return the files as rows of an entry table.

    A large table is written in shares, as many at the same time as there are cores.
    """
    target.check()
    check_assignable(rows.schema, target.file_schema)
    write_id, finished = str(uuid4()), list[WrittenFile]()
    # All rows are in memory, so the order of a sorted table can hold across files.
    count = 1 if target.write_order.fields else min(usable_cores(), rows.nbytes // _SHARE_BYTES + 1)
    share_rows = -(-rows.num_rows // count)

    def write_share(number: int) -> list[WrittenFile]:
        share = _slice(rows, number * share_rows, share_rows)
        files = _write_all(_rows_by_partition(share, target), target, FileNames(number, 0, write_id), is_clustered=True)
        finished.extend(files)
        return files

    try:
        shares = map_in_threads(write_share, range(count if rows.num_rows else 0), count)
    except BaseException:
        delete_files(target.open_io(), [f.path for f in finished])
        raise
    return data_file_entries([file for share in shares for file in share], target)


def write_stream(batches: pa.RecordBatchReader, target: WriteTarget) -> pa.Table:
    """Write rows as they arrive, and return the files as rows of an entry table; the order of the rows stays."""
    target.check()
    check_assignable(batches.schema, target.file_schema)
    names = FileNames(0, 0, str(uuid4()))
    return data_file_entries(write_batches(batches, target, names, is_clustered=False), target)


def _rows_by_partition(rows: pa.Table, target: WriteTarget) -> Iterator[Iterator[PartitionRows]]:
    """Yield groups of rows, each one partition after the other: of up to 1 GiB, or all rows if they are sorted."""
    if target.write_order.fields:
        assigned = list(_assigned_batches(rows.to_batches(), target, _MIN_BATCH_ROWS))
        for ordered in sort_rows(assigned, target.schema, target.write_order):
            yield target.partitioner.split_by_partition(ordered, copies=False)
        return
    for group in _split_by_size(rows, _size_function(rows.schema)):
        pieces = dict[tuple[object, ...], list[PartitionRows]]()
        for batch in _assigned_batches(group.to_batches(), target, _MIN_BATCH_ROWS):
            for piece in target.partitioner.split_by_partition(batch, copies=False):
                pieces.setdefault(piece.key, []).append(piece)
        yield chain.from_iterable(pieces.values())


def _assigned_batches(
    batches: Iterable[pa.RecordBatch], target: WriteTarget, min_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield batches after store assignment, small ones joined, none larger than 1 GiB."""
    source = iter(batches)
    if (first := next(source, None)) is None:
        return
    size = _size_function(first.schema)
    parts = (part for batch in chain([first], source) for part in _split_by_size(batch, size))
    if size is _decoded_size:  # store assignment decodes; Arrow cannot join all dictionaries
        yield from join_small_batches((_assign(part, target) for part in parts), min_rows)
    else:  # store assignment has a cost for each batch
        yield from (_assign(batch, target) for batch in join_small_batches(parts, min_rows))


def _split_by_size(rows: Rows, size: Callable[[Rows], int]) -> Iterator[Rows]:
    """Halve rows until each part is a single row or has at most 1 GiB: a column of text can have 2 GiB."""
    if rows.num_rows < 2 or size(rows) <= _MAX_GROUP_BYTES:
        yield rows
        return
    half = rows.num_rows // 2
    for part in (rows.slice(0, half), rows.slice(half)):
        yield from _split_by_size(part, size)


def _size_function(schema: pa.Schema) -> Callable[[Rows], int]:
    return _decoded_size if any(map(is_encoded, schema.types)) else attrgetter("nbytes")


def _decoded_size(rows: Rows) -> int:
    columns = (getattr(column, "chunks", [column]) for column in rows.columns)
    return sum(decoded_bytes(values) for chunks in columns for values in chunks)


def _slice(rows: pa.Table, start: int, count: int) -> pa.Table:
    return rows.slice(start, min(count, rows.num_rows - start))  # Arrow lengthens a table without columns


def _assign(rows: pa.RecordBatch, target: WriteTarget) -> pa.RecordBatch:
    return assign_rows(rows, target.file_schema, target.arrow_schema)
