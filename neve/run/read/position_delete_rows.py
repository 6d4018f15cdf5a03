"""Read position deletes as rows: which row of which data file each deletes, and where that is stored.

The columns are those of Iceberg's metadata table `position_deletes`. They have field ids of their own, so a position
delete file is read like a data file. The rows of a deletion vector are made from its bitmap: its task is that of its
data file, with the vector as the only delete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

from neve.io.deletion_vectors import PositionSet
from neve.model.partition import Specs
from neve.run.read.array_builders import BATCH_ROWS, FileRows
from neve.run.read.file_reader import read_tasks
from neve.run.read.metadata_columns import (
    DELETE_PATH_ID,
    DELETE_POSITION_ID,
    FILE,
    SPEC_ID,
    CountingColumn,
    computed_columns,
    partition_column,
)
from neve.run.read.position_deletes import with_deleted_positions
from neve.run.read.projection import ProjectionSource, compile_projection
from neve.run.read.tasks import FileTask, ReadTarget, build_task_table
from neve.run.read.types import ArrowFlavor
from neve.tree.entries import EntryTable

_ROW_ID, _CONTENT_OFFSET_ID, _CONTENT_SIZE_ID = 2147483544, 2147483641, 2147483640


def position_deletes_target(schema: Schema, specs: Specs, format_version: int, flavor: ArrowFlavor) -> ReadTarget:
    """Return the columns of the rows, for a table with a schema; `row` has the deleted values, if the file has them."""
    fields = [
        NestedField(DELETE_PATH_ID, "file_path", StringType()),
        NestedField(DELETE_POSITION_ID, "pos", LongType()),
        NestedField(_ROW_ID, "row", StructType(*schema.fields)),
        *([partition_column(specs).model_copy(update={"name": "partition"})] if specs.union else []),
        SPEC_ID.model_copy(update={"name": "spec_id"}),
        FILE.model_copy(update={"name": "delete_file_path"}),
    ]
    if format_version >= 3:
        fields.append(NestedField(_CONTENT_OFFSET_ID, "content_offset", LongType()))
        fields.append(NestedField(_CONTENT_SIZE_ID, "content_size_in_bytes", LongType()))
    return ReadTarget(Schema(*fields), flavor=flavor)


def position_delete_tasks(deletes: EntryTable) -> pa.Table:
    """Return a task for each position delete file and each vector (see `neve.run.read.tasks`)."""
    is_vector = deletes["content_offset"].is_valid()
    files, vectors = deletes.filter(pc.invert(is_vector)), deletes.filter(is_vector)
    # As files to read: Spark's tasks are cut by the bytes that they read.
    data_files = vectors.with_columns(
        file_path=vectors["referenced_data_file"], file_size_in_bytes=vectors["content_size_in_bytes"]
    )
    numbers = np.arange(len(vectors))
    pairs = pa.table({"file": numbers + len(files), "delete": numbers})
    return build_task_table(EntryTable.concat([files, data_files], deletes.specs), vectors, pairs)


def read_position_delete_rows(io: FileIO, tasks: Sequence[FileTask], target: ReadTarget) -> Iterator[pa.RecordBatch]:
    """Yield the rows of position delete files, then those of vectors; vectors in one Puffin file are read together."""
    yield from read_tasks(io, [task for task in tasks if not task.deletes], target)
    vectors = [task for task in tasks if task.deletes]
    for task, read in zip(vectors, with_deleted_positions(io, vectors), strict=True):
        yield from _rows_of_vector(task, read.positions or PositionSet(), target)


def _rows_of_vector(task: FileTask, deleted: PositionSet, target: ReadTarget) -> Iterator[pa.RecordBatch]:
    (vector,) = task.deletes
    source = ProjectionSource(
        path=vector.path,
        fields=(),
        constants={
            DELETE_PATH_ID: task.path,
            _CONTENT_OFFSET_ID: vector.content_offset,
            _CONTENT_SIZE_ID: vector.content_size,
        },
        computed_columns={
            **computed_columns(replace(task, path=vector.path), target.schema, target.flavor),
            DELETE_POSITION_ID: CountingColumn(),
        },
        fallback_columns={},
        prunes_nested=False,
    )
    projection = compile_projection(target.schema, source, target.flavor)
    positions = deleted.positions()
    for start in range(0, len(positions), BATCH_ROWS):
        part = positions[start : start + BATCH_ROWS]
        yield projection.apply([], FileRows(0, len(part), part))
