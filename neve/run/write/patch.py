"""A data file with some of its rows changed or gone: read, patched batch by batch, in the order of the file.

The changes of a file come sorted by position and carry the new values of the assigned columns only; every other value
is taken from the file, so it is copied exactly and never passes through Spark. Runs in a task or in the driver, and
holds one batch of the file and the changes that fall into it.
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

FILE_TASK_COLUMN = "__neve_head"  # the task that reads a file, in the row that opens its changes

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Patch:
    """How files of a table are patched: the columns that change, and what each clause does to a row."""

    facts: TableFacts
    target: WriteTarget
    effects: Effects
    assigned_columns: tuple[str, ...]  # the columns assigned to

    def patched_rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the files whose heads and changes come in, patched, as the data files have them."""
        reader = TaskReader(self.facts.io(), self._read_target)
        stream = _ChangeStream(batches)
        while (head := stream.next_file_task()) is not None:
            task = _decode_file_task(head, self.facts)
            for batch in reader.batches(task):
                yield from self._patch_batch(batch, stream, task)
            stream.refuse_unmatched_changes(task)

    @property
    def _read_target(self) -> ReadTarget:
        schema = Schema(*self.target.file_schema.fields, ROW_POSITION)
        return ReadTarget(schema, self.facts.name_mapping, self.facts.schemas)

    def _patch_batch(self, batch: pa.RecordBatch, stream: _ChangeStream, task: FileTask) -> Iterator[pa.RecordBatch]:
        positions = read = batch.column(batch.num_columns - 1).to_numpy()
        whole = batch.select(list(range(batch.num_columns - 1)))
        rows = assign_rows(whole, self.target.file_schema, self.target.arrow_schema)
        for changed in stream.changes_up_to(int(read[-1])):
            _refuse_others(read, changed, task)
            # A row may be met twice, here in two batches of changes: it is deleted once.
            left = changed.filter(pa.array(_is_at_positions(positions, changed)))
            rows, positions = self._apply_changes(rows, positions, left)
        if rows.num_rows:
            yield rows

    def _apply_changes(
        self, rows: pa.RecordBatch, positions: Positions, changed: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, Positions]:
        at = np.searchsorted(positions, changed.column(POSITION_COLUMN).to_numpy())
        is_written = np.array(self.effects.writes, bool)[changed.column(CLAUSE_COLUMN).to_numpy()]
        new = changed.filter(pa.array(is_written))
        order, keep = np.arange(len(positions)), np.ones(len(positions), bool)
        order[at[is_written]] = len(positions) + np.arange(new.num_rows)
        keep[at[~is_written]] = False
        order = order[keep]
        columns = [self._patched_column(name, rows.column(name), new, order, keep) for name in rows.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=rows.schema), positions[keep]

    def _patched_column(
        self, name: str, values: pa.Array, new: pa.RecordBatch, order: Positions, keep: NDArray[np.bool_]
    ) -> pa.Array:
        if name not in self.assigned_columns and not self._is_change_mark(name):
            return values if keep.all() else values.filter(pa.array(keep))
        if not new.num_rows:
            return values.take(pa.array(order))
        return pa.concat_arrays([values, self._new_values(name, new, values.type)]).take(pa.array(order))

    def _new_values(self, name: str, new: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
        if self._is_change_mark(name):
            return pa.nulls(new.num_rows, kind)  # a changed row takes the number of the commit
        field = self.target.schema.find_field(name)
        values = assign_column(new.column(name), field)
        refuse_nulls(field.required and values.null_count, name)
        return values

    def _is_change_mark(self, name: str) -> bool:
        return self.target.options.row_lineage and name == LAST_UPDATED.name


class _ChangeStream:
    """Batches sorted by file and position, read as far as they are needed; a row with a head opens each file."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._held: pa.RecordBatch | None = None

    def next_file_task(self) -> bytes | None:
        """The head of the next file, or nothing when all files were opened."""
        held = self._next_batch()
        if held is None:
            return None
        self._held = held.slice(1)
        return bytes(held.column(FILE_TASK_COLUMN)[0].as_py())

    def changes_up_to(self, position: int) -> Iterator[pa.RecordBatch]:
        """The changes of the open file that lie at or before a position."""
        while (held := self._next_batch()) is not None:
            here = self._positions_in_open_file(held)
            count = int(np.searchsorted(here, position, side="right"))
            if count:
                self._held = held.slice(count)
                yield held.slice(0, count)
            if count < held.num_rows:
                return

    def refuse_unmatched_changes(self, task: FileTask) -> None:
        """Stop when changes are left that no row of the file answered to."""
        held = self._next_batch()
        if held is not None and len(self._positions_in_open_file(held)):
            raise CorruptFile(task.path, "the rows that were read before", "fewer: it changed meanwhile")

    def _positions_in_open_file(self, held: pa.RecordBatch) -> Positions:
        """The positions of the rows before the next head."""
        heads = held.column(FILE_TASK_COLUMN).is_valid().to_numpy(zero_copy_only=False)
        end = int(np.argmax(heads)) if heads.any() else held.num_rows
        return held.column(POSITION_COLUMN).slice(0, end).to_numpy()

    def _next_batch(self) -> pa.RecordBatch | None:
        while self._held is None or not self._held.num_rows:
            self._held = next(self._batches, None)
            if self._held is None:
                return None
        return self._held


def _decode_file_task(head: bytes, facts: TableFacts) -> FileTask:
    table = pa.ipc.open_stream(head).read_all()
    [task] = file_tasks(table.drop_columns(["gone"]), facts.specs)
    gone = table["gone"][0].as_py()
    return task if gone is None else replace(task, positions=decode_vector(gone, task.path))


def _refuse_others(read: Positions, changed: pa.RecordBatch, task: FileTask) -> None:
    """Stop when a changed row is not among the rows that were read."""
    if not _is_at_positions(read, changed).all():
        raise CorruptFile(task.path, "the rows that were read before", "others: it changed meanwhile")


def _is_at_positions(positions: Positions, changed: pa.RecordBatch) -> NDArray[np.bool_]:
    """Which changed rows are at one of these positions."""
    wanted = changed.column(POSITION_COLUMN).to_numpy()
    found: NDArray[np.bool_] = np.append(positions, -1)[np.searchsorted(positions, wanted)] == wanted
    return found
