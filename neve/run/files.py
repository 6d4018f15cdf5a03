"""One data file as a stream of Arrow batches in a table's schema, deletes applied.

Runs wherever the file is read: in an executor's Python worker, or on the driver. It knows nothing of Spark, goes
through PyIceberg's FileIO for every byte, and holds one batch at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping

from neve.errors import CorruptFile, UnsupportedFeature
from neve.run.arrow.columns import POSITION
from neve.run.arrow.ids import identified
from neve.run.arrow.lineage import computed_columns, lineage_columns
from neve.run.arrow.parquet import ParquetData, open_parquet
from neve.run.arrow.project import Projection, Source, compile_projection
from neve.run.arrow.tasks import DeleteFile, EqualityDeletes, FileTask
from neve.run.arrow.types import Carrier

__all__ = ["Carrier", "DeleteFile", "EqualityDeletes", "FileTask", "Reading", "read_batches"]


@dataclass(frozen=True)
class Reading:
    """What is the same for every file of a scan."""

    schema: Schema  # the columns of the result, metadata columns included, in order
    name_mapping: NameMapping | None = None
    schemas: Sequence[Schema] = field(default_factory=tuple)  # of the table, the current one first
    carrier: Carrier = Carrier.EXACT


def read_batches(
    io: FileIO, task: FileTask, reading: Reading, *, with_positions: bool = False
) -> Iterator[pa.RecordBatch]:
    """The live rows of a data file, in file order; `with_positions` adds `_pos` as the last column."""
    schema = Schema(*reading.schema.fields, POSITION) if with_positions else reading.schema
    data = _open(io, task)
    try:
        _check_count(task, data.record_count)
        projection = _projection(data, task, reading, schema)
        for rows, columns in data.batches(projection.leaves, task.part):
            batch = projection.apply(columns, rows)
            if batch.num_rows:
                yield batch
    finally:
        data.close()


def _open(io: FileIO, task: FileTask) -> ParquetData:
    if task.file_format.upper() != "PARQUET":
        raise UnsupportedFeature(f"Cannot read data file {task.path}: unknown format {task.file_format}.")
    return open_parquet(io, task.path, task.file_size)


def _check_count(task: FileTask, found: int) -> None:
    if task.record_count is not None and task.record_count != found:
        raise CorruptFile(task.path, f"{task.record_count} rows, as the metadata says", f"{found}")


def _projection(data: ParquetData, task: FileTask, reading: Reading, schema: Schema) -> Projection:
    source = Source(
        path=task.path,
        fields=identified(data.fields, task.path, reading.name_mapping, reading.schemas or [reading.schema]),
        constants=task.partition,
        computed=computed_columns(task, schema, reading.carrier),
        fallback=lineage_columns(task, reading.carrier),
        prunes_nested=data.prunes_nested,
    )
    return compile_projection(schema, source, reading.carrier)
