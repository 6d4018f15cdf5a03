"""One data file as a stream of Arrow batches in a table's schema, deletes applied.

Runs wherever the file is read: in an executor's Python worker, or on the driver. It knows nothing of Spark, goes
through PyIceberg's FileIO for every byte, and holds one batch at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyroaring import FrozenBitMap64

from neve.errors import CorruptFile
from neve.io.deletion_vectors import PositionSet
from neve.run.read.array_builders import BATCH_ROWS, RowRange
from neve.run.read.equality_deletes import EqualityIndex
from neve.run.read.formats import DataFile, open_file
from neve.run.read.metadata_columns import POSITION
from neve.run.read.parquet import ParquetData
from neve.run.read.position_deletes import PositionDeleteCache, with_deleted_positions
from neve.run.read.projection import Projection, bind_projection, fields_with_ids
from neve.run.read.row_groups import row_groups_that_may_match
from neve.run.read.tasks import FileTask, ReadTarget


def read_batches(
    io: FileIO, task: FileTask, target: ReadTarget, *, add_position: bool = False
) -> Iterator[pa.RecordBatch]:
    """The live rows of a data file, in file order; `add_position` adds `_pos` as the last column."""
    if add_position:
        target = replace(target, schema=Schema(*target.schema.fields, POSITION))
    return read_tasks(io, [task], target)


def read_tasks(io: FileIO, tasks: Sequence[FileTask], target: ReadTarget) -> Iterator[pa.RecordBatch]:
    """The live rows of several data files, one after the other; a delete file they share is read once."""
    index = EqualityIndex(io, target)
    for task in with_deleted_positions(io, tasks):
        yield from _read_file(task, index)


class TaskReader:
    """Reads data files as they become known, one by one; a delete file they share is read once all the same."""

    def __init__(self, io: FileIO, target: ReadTarget) -> None:
        self._positions = PositionDeleteCache(io)
        self._index = EqualityIndex(io, target)

    def batches(self, task: FileTask) -> Iterator[pa.RecordBatch]:
        """The live rows of a data file, in file order."""
        return _read_file(self._positions.with_deleted_positions(task), self._index)


def _read_file(task: FileTask, index: EqualityIndex) -> Iterator[pa.RecordBatch]:
    target = index.target
    with open_file(index.io, task.path, task.file_format, task.file_size, task.record_count) as opened:
        data = _skip_row_groups(opened, task, target)
        dead = _deleted_positions(data, task, index)
        if dead is None or not dead.covers(data.record_count):
            yield from _live_batches(data, task, bind_projection(data, task, target.schema, target), dead)


def _skip_row_groups(data: DataFile, task: FileTask, target: ReadTarget) -> DataFile:
    """The file without the row groups that hold no row the scan is after."""
    if target.predicate is None or not isinstance(data, ParquetData):
        return data
    fields = fields_with_ids(data, task.path, target)
    return data.with_row_groups(row_groups_that_may_match(data, fields, target.predicate))


def _deleted_positions(data: DataFile, task: FileTask, index: EqualityIndex) -> PositionSet | None:
    if not task.equality_deletes:
        return task.positions
    found = index.deleted_positions(data, task)
    return found if task.positions is None else found.union(task.positions)


def _live_batches(
    data: DataFile, task: FileTask, projection: Projection, dead: PositionSet | None
) -> Iterator[pa.RecordBatch]:
    end = 0
    for rows, columns in data.batches(projection.leaves, task.part):
        end = rows.start + rows.count
        kept = None if dead is None else _live_mask(rows, dead)
        if kept is not None and not kept.any():
            continue
        batch = projection.apply(columns, rows)
        yield from _cut(batch if kept is None else batch.filter(pa.array(kept)))
    is_counted = task.record_count is not None and task.record_count >= 0  # old imports of Avro files did not count
    if data.record_count is None and is_counted and task.record_count != end:
        raise CorruptFile(task.path, f"{task.record_count} rows, as the metadata says", f"{end}")


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces that are not too long: a stripe of an ORC file is read as a whole."""
    for start in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)


def _live_mask(rows: RowRange, dead: PositionSet) -> np.ndarray | None:
    """Which of these rows live; None when all do."""
    here = dead.bitmap & FrozenBitMap64(range(rows.start, rows.start + rows.count))
    if not here:
        return None
    kept = np.ones(rows.count, np.bool_)
    kept[np.frombuffer(here.to_array(), np.int64) - rows.start] = False
    return kept
