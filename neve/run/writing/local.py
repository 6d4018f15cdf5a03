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
    whole = assigned(rows.combine_chunks().to_batches()[0], target.file_schema)
    ordered = sorted_rows(whole, target.schema, target.order)
    names = FileNames(0, 0, str(uuid4()))
    return file_rows(write_batches([ordered], target, names, is_clustered=True), target)
