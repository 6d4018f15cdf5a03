"""Write deleted positions: deletion vectors in Puffin files from format version 3 on, position delete files before.

Each delete keeps the spec and the partition of its data file. A position delete file belongs to one data file or, with
the granularity `partition`, to the data files of one partition; its rows are sorted by file and position.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from neve.io.deletion_vectors import PositionSet
from neve.io.files import delete_files, translate_storage_errors, write_new_file
from neve.io.puffin import pack_vectors
from neve.io.storage_paths import local_file_path, output_file
from neve.run.read.metadata_columns import DELETE_PATH_ID, DELETE_POSITION_ID
from neve.run.write.data_files import join_small_batches, make_durable
from neve.run.write.parquet_options import parquet_options
from neve.run.write.target import WriteTarget
from neve.tree.entries import Content, EntryTable, Status

_BATCH_ROWS = 1 << 20
_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {b"PARQUET:field_id": str(DELETE_PATH_ID).encode()}),
        pa.field("pos", pa.int64(), False, {b"PARQUET:field_id": str(DELETE_POSITION_ID).encode()}),
    ]
)


@dataclass(frozen=True)
class DeletedPositions:
    """Data files, and the positions that are deleted from each."""

    files: EntryTable
    positions: Sequence[PositionSet]

    def take(self, rows: np.ndarray) -> DeletedPositions:
        """Return some of the files, by row number."""
        return DeletedPositions(self.files.take(rows), [self.positions[int(r)] for r in rows])


def write_deletes(deleted: DeletedPositions, target: WriteTarget) -> EntryTable:
    """Write the deletes in the form that the table's format version has, and return them as added entries."""
    if not len(deleted.files):
        return EntryTable.empty(target.specs)
    if target.format_version >= 3:
        return _write_vectors(deleted, target)
    if target.table_properties.delete_granularity == "file":
        groups = [np.array([row]) for row in range(len(deleted.files))]
    else:
        codes, _ = deleted.files.partition_codes()
        groups = [np.flatnonzero(codes == code) for code in np.unique(codes)]
    writer = _PositionDeleteWriter(target, target.open_io())
    try:
        return EntryTable.concat([writer.write(deleted.take(rows)) for rows in groups], target.specs)
    except BaseException:
        delete_files(writer.io, writer.started_paths)
        raise


def _write_vectors(deleted: DeletedPositions, target: WriteTarget) -> EntryTable:
    """Write all vectors of a commit to one Puffin file."""
    paths = deleted.files["file_path"].to_pylist()
    data, rows = pack_vectors(zip(paths, deleted.positions, strict=True))
    path = target.layout.path(f"{uuid4()}-deletes.puffin", "")
    write_new_file(target.open_io(), path, data)
    return _delete_entries(
        deleted.files,
        file_path=path,
        file_format="PUFFIN",
        file_size_in_bytes=len(data),
        record_count=rows["record_count"],
        referenced_data_file=paths,
        content_offset=rows["content_offset"],
        content_size_in_bytes=rows["content_size_in_bytes"],
    )


def _delete_entries(files: EntryTable, **columns: object) -> EntryTable:
    """Return entries of delete files with the spec and partition of their data files."""
    partition = {u.column: files[u.column] for u in files.specs.union}
    constants = {"manifest": -1, "status": int(Status.ADDED), "content": int(Content.POSITION_DELETES)}
    detail = [name for name in columns if name in ("lower_bounds", "upper_bounds", "value_counts", "null_value_counts")]
    all_columns = {**constants, "spec_id": files["spec_id"], **partition, **columns}
    return EntryTable.from_columns(all_columns, files.specs, len(files), detail)


@dataclass(frozen=True)
class _PositionDeleteWriter:
    target: WriteTarget
    io: FileIO
    started_paths: list[str] = field(default_factory=list)  # finished or not

    def write(self, deleted: DeletedPositions) -> EntryTable:
        """Write one delete file for data files of one partition."""
        order = np.argsort(np.array(deleted.files["file_path"].to_pylist(), object))
        deleted = deleted.take(order)
        path = self.target.layout.path(f"{uuid4()}-deletes.parquet", "")
        self.started_paths.append(path)
        rows = sum(p.cardinality for p in deleted.positions)
        options = parquet_options(self.target.table_properties)
        with (
            translate_storage_errors(path, "write"),
            output_file(self.io, local_file_path(self.io, path) or path).create() as stream,
        ):
            with pq.ParquetWriter(stream, _SCHEMA, **options) as writer:
                writer.add_key_value_metadata({"delete-type": "position"})
                for batch in join_small_batches(_position_batches(deleted), _BATCH_ROWS):
                    writer.write_batch(batch)
            size = int(stream.tell())
        make_durable(self.io, [path], self.target.layout.data_path)
        names = deleted.files["file_path"].to_pylist()
        lowest = min(int(p.bitmap.min()) for p in deleted.positions)
        highest = max(p.maximum or 0 for p in deleted.positions)
        return _delete_entries(
            deleted.files.take([0]),
            file_path=path,
            file_format="PARQUET",
            file_size_in_bytes=size,
            record_count=rows,
            referenced_data_file=[names[0] if len(names) == 1 else None],
            value_counts=[_metric_pairs(rows, rows)],
            null_value_counts=[_metric_pairs(0, 0)],
            lower_bounds=[_metric_pairs(names[0].encode(), struct.pack("<q", lowest))],
            upper_bounds=[_metric_pairs(names[-1].encode(), struct.pack("<q", highest))],
        )


def _position_batches(deleted: DeletedPositions) -> Iterator[pa.RecordBatch]:
    for path, positions in zip(deleted.files["file_path"].to_pylist(), deleted.positions, strict=True):
        values = positions.positions()
        for start in range(0, len(values), _BATCH_ROWS):
            batch = pa.array(values[start : start + _BATCH_ROWS])
            yield pa.RecordBatch.from_arrays([pa.repeat(pa.scalar(path), len(batch)), batch], schema=_SCHEMA)


def _metric_pairs(path_value: object, position_value: object) -> list[dict[str, object]]:
    return [{"key": DELETE_PATH_ID, "value": path_value}, {"key": DELETE_POSITION_ID, "value": position_value}]
