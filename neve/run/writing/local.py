"""Writing rows that are already in memory, without a Spark job."""

from __future__ import annotations

from uuid import uuid4

import pyarrow as pa

from neve.run.writing.assignment import assigned, check_assignable
from neve.run.writing.layout import FileNames
from neve.run.writing.ordering import sorted_rows
from neve.run.writing.sink import file_rows, write_batches
from neve.run.writing.target import WriteTarget

__all__ = ["write_arrow"]


def write_arrow(rows: pa.Table, target: WriteTarget) -> pa.Table:
    """Write an Arrow table to data files from this process; the files as rows of an entry table."""
    target.check()
    check_assignable(rows.schema, target.file_schema)
    if not rows.num_rows:
        return file_rows([], target)
    names = FileNames(0, 0, str(uuid4()))
    return file_rows(write_batches(_ordered(rows, target), target, names, is_clustered=True), target)


def _ordered(rows: pa.Table, target: WriteTarget) -> list[pa.RecordBatch]:
    """The rows, sorted when the table is: everything is at hand, so the order holds across files."""
    batches: list[pa.RecordBatch] = rows.combine_chunks().to_batches()
    if not target.order.fields:
        return batches
    whole = pa.concat_batches([assigned(b, target.file_schema, target.arrow_schema) for b in batches])
    return [sorted_rows(whole, target.schema, target.order)]
