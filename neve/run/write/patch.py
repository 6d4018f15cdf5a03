"""Read a data file and change or delete some of its rows, batch by batch, in file order.

The changes of a file arrive sorted by position and contain only the new values of the assigned columns. Every other
value comes from the file, so it is copied exactly and never passes through Spark. The code runs in a task or on the
driver, and holds one batch of the file and its changes at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.schema import Schema

from neve.errors import CorruptFile
from neve.io.deletion_vectors import decode_vector
from neve.run.change_tally import CLAUSE_COLUMN, POSITION_COLUMN, Effects
from neve.run.read.file_reader import TaskReader
from neve.run.read.metadata_columns import LAST_UPDATED
from neve.run.read.metadata_columns import POSITION as ROW_POSITION
from neve.run.read.tasks import FileTask, ReadTarget, file_tasks
from neve.run.table_facts import TableFacts
from neve.run.write.store_assignment import assign_column, assign_rows, refuse_nulls
from neve.run.write.target import WriteTarget

FILE_TASK_COLUMN = "__neve_head"  # the serialized task that reads a file; set in the row before its changes

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Patch:
    """How files of a table are patched: the columns that change, and the effect of each clause on a row."""

    facts: TableFacts
    target: WriteTarget
    effects: Effects
    assigned_columns: tuple[str, ...]
    only_changed: bool = False  # leave out the rows that stay as they are

    def patched_rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the patched rows of files, in the columns of data files; `batches` hold file tasks and changes."""
        schema = Schema(*self.target.file_schema.fields, ROW_POSITION)
        reader = TaskReader(self.facts.io(), ReadTarget(schema, self.facts.name_mapping, self.facts.schemas))
        stream = _ChangeStream(batches)
        while (task_bytes := stream.next_file_task()) is not None:
            task_table = pa.ipc.open_stream(task_bytes).read_all()
            [task] = file_tasks(task_table.drop_columns(["vector"]), self.facts.specs)
            if (vector := task_table["vector"][0].as_py()) is not None:
                changed = decode_vector(vector, task.path)
                task = replace(task, wanted=changed) if self.only_changed else replace(task, positions=changed)
            for batch in reader.batches(task):
                yield from self._patch_batch(batch, stream, task)
            stream.refuse_unmatched_changes(task)

    def _patch_batch(self, batch: pa.RecordBatch, stream: _ChangeStream, task: FileTask) -> Iterator[pa.RecordBatch]:
        positions = read_positions = batch.column(batch.num_columns - 1).to_numpy()
        without_position = batch.select(list(range(batch.num_columns - 1)))
        rows = assign_rows(without_position, self.target.file_schema, self.target.arrow_schema)
        for changes in stream.changes_up_to(int(read_positions[-1])):
            if not _is_at_positions(read_positions, changes).all():
                raise CorruptFile(task.path, "the rows that were read before", "others: it changed meanwhile")
            # A row may occur in two batches of changes: it is deleted once.
            applicable = changes.filter(pa.array(_is_at_positions(positions, changes)))
            indices = np.searchsorted(positions, applicable.column(POSITION_COLUMN).to_numpy())
            is_written = np.array(self.effects.writes, bool)[applicable.column(CLAUSE_COLUMN).to_numpy()]
            updates = applicable.filter(pa.array(is_written))
            if self.only_changed:
                if updates.num_rows:
                    yield self._changed_rows(rows.take(pa.array(indices[is_written])), updates)
                continue
            order, keep = np.arange(len(positions)), np.ones(len(positions), bool)
            order[indices[is_written]] = len(positions) + np.arange(updates.num_rows)
            keep[indices[~is_written]] = False
            order = order[keep]
            columns = [
                self._patched_column(name, rows.column(name), updates, order, keep) for name in rows.schema.names
            ]
            rows, positions = pa.RecordBatch.from_arrays(columns, schema=rows.schema), positions[keep]
        if rows.num_rows and not self.only_changed:
            yield rows

    def _changed_rows(self, old: pa.RecordBatch, updates: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            self._new_values(name, column.type, updates) if self._changes(name) else column
            for name, column in zip(old.schema.names, old.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=old.schema)

    def _patched_column(
        self, name: str, values: pa.Array, updates: pa.RecordBatch, order: Positions, keep: NDArray[np.bool_]
    ) -> pa.Array:
        if not self._changes(name):
            return values if keep.all() else values.filter(pa.array(keep))
        if not updates.num_rows:
            return values.take(pa.array(order))
        return pa.concat_arrays([values, self._new_values(name, values.type, updates)]).take(pa.array(order))

    def _changes(self, name: str) -> bool:
        return name in self.assigned_columns or (self.target.options.row_lineage and name == LAST_UPDATED.name)

    def _new_values(self, name: str, kind: pa.DataType, updates: pa.RecordBatch) -> pa.Array:
        if name not in self.assigned_columns:
            return pa.nulls(updates.num_rows, kind)  # a changed row gets the number of the commit
        field = self.target.schema.find_field(name)
        new_values = assign_column(updates.column(name), field)
        refuse_nulls(field.required and new_values.null_count, name)
        return new_values


class _ChangeStream:
    """Changes sorted by file and position, read as far as needed; a row with a file task precedes those of a file."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._batch: pa.RecordBatch | None = None

    def next_file_task(self) -> bytes | None:
        """Return the serialized task of the next file; None after the last file."""
        batch = self._next_batch()
        if batch is None:
            return None
        self._batch = batch.slice(1)
        return bytes(batch.column(FILE_TASK_COLUMN)[0].as_py())

    def changes_up_to(self, position: int) -> Iterator[pa.RecordBatch]:
        """Yield the changes of the open file at or before a position."""
        while (batch := self._next_batch()) is not None:
            count = int(np.searchsorted(self._positions_in_open_file(batch), position, side="right"))
            if count:
                self._batch = batch.slice(count)
                yield batch.slice(0, count)
            if count < batch.num_rows:
                return

    def refuse_unmatched_changes(self, task: FileTask) -> None:
        """Raise if there are changes left after the last row of the file."""
        batch = self._next_batch()
        if batch is not None and len(self._positions_in_open_file(batch)):
            raise CorruptFile(task.path, "the rows that were read before", "fewer: it changed meanwhile")

    def _positions_in_open_file(self, batch: pa.RecordBatch) -> Positions:
        """Return the positions of the rows before the next file task."""
        starts_file = batch.column(FILE_TASK_COLUMN).is_valid().to_numpy(zero_copy_only=False)
        end = int(np.argmax(starts_file)) if starts_file.any() else batch.num_rows
        return batch.column(POSITION_COLUMN).slice(0, end).to_numpy()

    def _next_batch(self) -> pa.RecordBatch | None:
        while self._batch is None or not self._batch.num_rows:
            self._batch = next(self._batches, None)
            if self._batch is None:
                return None
        return self._batch


def _is_at_positions(positions: Positions, changes: pa.RecordBatch) -> NDArray[np.bool_]:
    """Return a mask of the changes that are at one of these positions."""
    changed = changes.column(POSITION_COLUMN).to_numpy()
    mask: NDArray[np.bool_] = np.append(positions, -1)[np.searchsorted(positions, changed)] == changed
    return mask
