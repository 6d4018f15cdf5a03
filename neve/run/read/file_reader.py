"""Read data files as a stream of Arrow batches in a table's schema, with deletes applied.

The code runs where the file is read: in an executor's Python worker or on the driver. It does not depend on Spark,
reads every byte through PyIceberg's FileIO, and holds one batch at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema

from neve.errors import CorruptFile
from neve.io.deletion_vectors import PositionSet
from neve.run.read.array_builders import BATCH_ROWS
from neve.run.read.equality_deletes import EqualityIndex
from neve.run.read.formats import DataFile, open_file
from neve.run.read.metadata_columns import POSITION
from neve.run.read.parquet import ParquetData
from neve.run.read.position_deletes import PositionDeleteCache, with_deleted_positions
from neve.run.read.projection import Projection, bind_projection, fields_with_ids
from neve.run.read.row_groups import row_groups_that_may_match, rows_that_may_match
from neve.run.read.tasks import FileTask, ReadTarget


def read_batches(
    io: FileIO, task: FileTask, target: ReadTarget, *, add_position: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of a data file, in file order; `add_position` adds `_pos` as the last column."""
    if add_position:
        target = replace(target, schema=Schema(*target.schema.fields, POSITION))
    return read_tasks(io, [task], target)


def read_tasks(io: FileIO, tasks: Sequence[FileTask], target: ReadTarget) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of several data files, one after the other; a delete file that they share is read once."""
    index = EqualityIndex(io, target)
    for task in with_deleted_positions(io, tasks):
        yield from _read_file(task, index)


class TaskReader:
    """Reads data files whose tasks arrive one by one; a delete file that they share is still read once."""

    def __init__(self, io: FileIO, target: ReadTarget) -> None:
        self._positions = PositionDeleteCache(io)
        self._index = EqualityIndex(io, target)

    def batches(self, task: FileTask) -> Iterator[pa.RecordBatch]:
        """Yield the live rows of a data file, in file order."""
        return _read_file(self._positions.with_deleted_positions(task), self._index)


def _read_file(task: FileTask, index: EqualityIndex) -> Iterator[pa.RecordBatch]:
    target = index.target
    with open_file(index.io, task.path, task.file_format, task.file_size, task.record_count) as opened:
        data: DataFile = opened
        if target.predicate is not None and isinstance(opened, ParquetData):
            fields = fields_with_ids(opened, task.path, target)
            selected = opened.with_row_groups(row_groups_that_may_match(opened, fields, target.predicate))
            data = selected.with_rows(rows_that_may_match(selected, fields, target.predicate, task.part))
        if task.wanted is not None and isinstance(data, ParquetData):
            data = data.with_rows(task.wanted)
        deleted = task.positions
        if task.equality_deletes:
            by_equality = index.deleted_positions(data, task)
            deleted = by_equality if deleted is None else by_equality.union(deleted)
        if deleted is None or not deleted.covers(data.record_count):
            yield from _live_batches(data, task, bind_projection(data, task, target.schema, target), deleted)


def _live_batches(
    data: DataFile, task: FileTask, projection: Projection, deleted: PositionSet | None
) -> Iterator[pa.RecordBatch]:
    end = 0
    for rows, columns in data.batches(projection.leaves, task.part):
        end = rows.start + rows.count
        is_deleted = None if deleted is None else rows.mask_of(deleted.bitmap)
        if is_deleted is not None and is_deleted.all():
            continue
        batch = projection.apply(columns, rows)
        if is_deleted is not None:
            batch = batch.filter(pa.array(~is_deleted))
        for start in range(0, batch.num_rows, BATCH_ROWS):  # a stripe of an ORC file, read as a whole, may be longer
            yield batch.slice(start, BATCH_ROWS)
    is_counted = task.record_count is not None and task.record_count >= 0  # old imports of Avro files did not count
    if data.record_count is None and is_counted and task.record_count != end:
        raise CorruptFile(task.path, f"{task.record_count} rows, as the metadata says", f"{end}")
