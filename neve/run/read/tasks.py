"""Tasks of a scan: what is needed to read each data file, as values that can be sent to other processes.

The driver builds a table of tasks, column by column, and cuts it into groups. A row is a data file, or a part of one,
with its union tuple and the list of its deletes. The process that reads a group turns its rows into `FileTask` values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.transforms import IdentityTransform

from neve.io.deletion_vectors import PositionSet
from neve.model.partition import Specs
from neve.run.read.types import ArrowFlavor
from neve.tree.entries import Content, EntryTable


@dataclass(frozen=True)
class ReadTarget:
    """Settings that are the same for every file of a scan."""

    schema: Schema  # the columns of the result, metadata columns included, in order
    name_mapping: NameMapping | None = None
    schemas: Sequence[Schema] = ()  # of the table, the current one first: they name the columns of files without ids
    flavor: ArrowFlavor = ArrowFlavor.EXACT
    predicate: BooleanExpression | None = None  # bound, without NOT: row groups without a matching row are skipped


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A delete file, or a deletion vector inside a Puffin file (then with its offset and size)."""

    path: str
    file_format: str = "PARQUET"
    file_size: int | None = None
    record_count: int | None = None
    content_offset: int | None = None
    content_size: int | None = None


@dataclass(frozen=True, slots=True)
class EqualityDeletes:
    """Delete files with the same key columns: they delete every row that equals one of their rows in these columns."""

    files: tuple[DeleteFile, ...]
    keys: tuple[int, ...]  # field ids, also of columns inside structs


@dataclass(frozen=True)
class FileTask:
    """One data file, or one part of it, with the deletes that apply to it."""

    path: str
    file_format: str = "PARQUET"
    file_size: int | None = None
    record_count: int | None = None
    spec_id: int = 0
    partition: Mapping[int, Any] = field(default_factory=dict)  # identity partition values by id of the source column
    union_tuple: Sequence[Any] = ()  # for the column `_partition`
    first_row_id: int | None = None
    sequence_number: int | None = None
    positions: PositionSet | None = None  # rows known to be deleted
    deletes: tuple[DeleteFile, ...] = ()  # position delete files and vectors still to be read
    equality_deletes: tuple[EqualityDeletes, ...] = ()
    ordinal: int = -1  # its index in a numbered plan
    part: tuple[int, int] = (0, 1)  # k of n equal byte ranges; only Parquet files are divided
    wanted: PositionSet | None = None  # rows that matter: row groups without any of them may be skipped


SPLIT_BYTES = 128 << 20
_OPEN_COST_BYTES = 4 << 20  # the cost of opening a file, in bytes read
_MIN_GROUP_BYTES = 8 * _OPEN_COST_BYTES  # a smaller group is not worth a task
_TARGET_GROUPS = 16  # a scan is cut into this many groups if they are large enough
_MAX_PARTS = 10_000

_COMMON_COLUMNS = ("file_path", "file_format", "file_size_in_bytes", "record_count")
_FILE_COLUMNS = (*_COMMON_COLUMNS, "spec_id", "first_row_id", "sequence_number")
DELETE_FILE_COLUMNS = (*_COMMON_COLUMNS, "content_offset", "content_size_in_bytes")  # the fields of a `DeleteFile`
_DELETE_COLUMNS = ("content", *DELETE_FILE_COLUMNS, "equality_ids")


def build_task_table(files: EntryTable, deletes: EntryTable, attached: pa.Table) -> pa.Table:
    """Return a row per data file; `attached` pairs the row numbers of files and of deletes that apply to them."""
    names = [*_FILE_COLUMNS, *(u.column for u in files.specs.union)]
    table = files.columns.select([*names, "ordinal"] if has_ordinals(files) else names)
    counts = np.bincount(attached["file"].to_numpy(), minlength=len(files))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    order = np.argsort(attached["file"].to_numpy(), kind="stable")
    sorted_deletes = deletes.columns.select(_DELETE_COLUMNS).take(attached["delete"].take(order)).combine_chunks()
    arrays = [_decode_dictionary(sorted_deletes.column(name)) for name in _DELETE_COLUMNS]
    lists = pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(arrays, names=_DELETE_COLUMNS))
    table = table.set_column(1, "file_format", _decode_dictionary(table.column("file_format")))
    zeros = np.zeros(len(files), np.int32)
    columns = {"deletes": lists, "part": pa.array(zeros), "parts": pa.array(zeros + 1)}
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


def with_ordinals(files: EntryTable) -> EntryTable:
    """Return the same files with a column `ordinal`: their index, which a file keeps when others are left out."""
    if has_ordinals(files):
        return files
    ordinals = pa.array(np.arange(len(files), dtype=np.int32))
    return EntryTable(files.columns.append_column("ordinal", ordinals), files.specs)


def has_ordinals(files: EntryTable) -> bool:
    """Check whether files have the column `ordinal`."""
    return "ordinal" in files.columns.schema.names


def _decode_dictionary(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def split_large_files(tasks: pa.Table, split_bytes: int = SPLIT_BYTES) -> pa.Table:
    """Return the same files, with large Parquet files divided into several parts."""
    sizes = tasks["file_size_in_bytes"].to_numpy()
    is_parquet = pc.equal(tasks["file_format"], "PARQUET").to_numpy()
    parts = np.clip(np.where(is_parquet, -(-sizes // split_bytes), 1), 1, _MAX_PARTS)
    if not len(parts) or parts.max() == 1:
        return tasks
    rows = np.repeat(np.arange(len(parts)), parts)
    part = np.arange(len(rows)) - np.repeat(np.cumsum(parts) - parts, parts)
    tasks = tasks.take(pa.array(rows))
    for name, values in (("part", part), ("parts", parts[rows])):
        tasks = tasks.set_column(tasks.schema.get_field_index(name), name, pa.array(values, pa.int32()))
    return tasks


def group_tasks(tasks: pa.Table, split_bytes: int = SPLIT_BYTES) -> Iterator[pa.Table]:
    """Join neighbouring tasks into groups that are worth a Spark task; a small scan still gives several groups."""
    costs = tasks["file_size_in_bytes"].to_numpy() // tasks["parts"].to_numpy() + _OPEN_COST_BYTES
    group_bytes = _group_bytes(int(costs.sum()), split_bytes)
    preceding_bytes = np.cumsum(costs) - costs
    starts = np.flatnonzero(np.diff(preceding_bytes // group_bytes, prepend=-1))
    for start, end in zip(starts, np.append(starts, len(costs))[1:], strict=True):
        yield tasks.slice(int(start), int(end - start))


def group_count(sizes: np.ndarray[Any, Any], split_bytes: int = SPLIT_BYTES) -> int:
    """Return the number of groups that files of these sizes are worth; at most one per file."""
    total = int((sizes + _OPEN_COST_BYTES).sum())
    return max(1, min(len(sizes), -(-total // _group_bytes(total, split_bytes))))


def _group_bytes(total: int, split_bytes: int) -> int:
    return min(split_bytes, max(_MIN_GROUP_BYTES, total // _TARGET_GROUPS))


def file_tasks(tasks: pa.Table, specs: Specs) -> list[FileTask]:
    """Return the rows of a task table as tasks."""
    union = {u.column: tasks[u.column] for u in specs.union}
    rows = tasks.drop_columns(list(union)).to_pylist()
    return [_task_from_row(row, {name: union[name][i] for name in union}, specs) for i, row in enumerate(rows)]


def _task_from_row(row: Mapping[str, Any], union: Mapping[str, pa.Scalar], specs: Specs) -> FileTask:
    spec_id = row["spec_id"]
    spec_fields = zip(specs[spec_id].fields, specs.columns(spec_id), strict=True)
    position_deletes = (d for d in row["deletes"] if d["content"] == Content.POSITION_DELETES)
    equality_deletes: dict[tuple[int, ...], list[DeleteFile]] = {}
    for delete in row["deletes"]:
        if delete["content"] == Content.EQUALITY_DELETES:
            keys = tuple(sorted(delete["equality_ids"]))
            equality_deletes.setdefault(keys, []).append(_delete_file_from_row(delete))
    return FileTask(
        path=row["file_path"],
        file_format=row["file_format"],
        file_size=row["file_size_in_bytes"],
        record_count=row["record_count"],
        spec_id=spec_id,
        partition={f.source_id: union[c] for f, c in spec_fields if isinstance(f.transform, IdentityTransform)},
        union_tuple=tuple(union.values()),
        first_row_id=row["first_row_id"],
        sequence_number=row["sequence_number"],
        deletes=tuple(map(_delete_file_from_row, position_deletes)),
        equality_deletes=tuple(EqualityDeletes(tuple(files), keys) for keys, files in equality_deletes.items()),
        ordinal=row.get("ordinal", -1),
        part=(row["part"], row["parts"]),
    )


def _delete_file_from_row(row: Mapping[str, Any]) -> DeleteFile:
    return DeleteFile(*(row[name] for name in DELETE_FILE_COLUMNS))
