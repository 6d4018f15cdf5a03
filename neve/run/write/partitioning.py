"""Which partition each row belongs to: the transforms of a spec over Arrow columns, and rows by their tuples.

The values are computed by PyIceberg's own vectorised transforms. Nanosecond timestamps are brought down to
microseconds first, rounding towards the past: that is what the format asks of bucket, and hour does not know
nanoseconds.

Where the data files of a table go and what they are called.

By default `<data path>/<partition path>/<name>`; with object storage layout a hash of the rest comes first, so that
the files of one partition do not share a prefix. Names carry the task and a number unique to the write, so no two
attempts ever meet.

>>> Layout("s3://b/t/data").path("00000-7-u-00001.parquet", "day=2026-01-01")
's3://b/t/data/day=2026-01-01/00000-7-u-00001.parquet'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any
from uuid import UUID

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, Transform, UnknownTransform, VoidTransform
from pyiceberg.types import (
    DecimalType,
    IcebergType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    UUIDType,
)

from neve.errors import UnsupportedFeature, UserError
from neve.io.paths import location_from_property
from neve.model.partition import Specs, partition_folders
from neve.model.properties import TableProperties
from neve.model.pyiceberg_private import fields_by_id, parents_by_id

_HASH_BITS, _FOLDER_BITS, _FOLDERS = 20, 4, 3
_MAX_FOLDER_LENGTH = 200


@dataclass(frozen=True, slots=True)
class FileNames:
    """The names of the files of one task attempt."""

    task: int  # ordinal of the task in its job
    attempt: int  # unique among all attempts of all tasks
    write_id: str  # unique among all writes

    def __iter__(self) -> Iterator[str]:
        return (f"{self.task:05d}-{self.attempt}-{self.write_id}-{n:05d}.parquet" for n in count(1))


@dataclass(frozen=True, slots=True)
class Layout:
    """How data files lie below the data path of a table."""

    data_path: str
    is_hashed: bool = False
    has_partition_folders: bool = True
    context: str = ""  # the table, named below a data path that tables share

    @classmethod
    def of(cls, location: str, properties: TableProperties) -> Layout:
        """The layout the properties of a table ask for."""
        location = location.rstrip("/")
        data_path = location_from_property(location, properties.data_path or "data")
        if not properties.object_storage:
            return cls(data_path)
        is_own = data_path.startswith(location)
        context = "" if is_own else "/".join(location.split("/")[-2:])
        return cls(data_path, True, properties.object_storage_partitioned_paths, context)

    def path(self, name: str, partition: str) -> str:
        """The full path of a file; `partition` is empty for a table without partitions."""
        below = f"{partition}/{name}" if partition and self.has_partition_folders else name
        if not self.is_hashed:
            return f"{self.data_path}/{below}"
        parts = _hash_folders(below)
        if self.context:
            return f"{self.data_path}/{parts}/{self.context}/{below}"
        return f"{self.data_path}/{parts}{'/' if self.has_partition_folders else '-'}{below}"


def partition_path(specs: Specs, spec_id: int, values: Sequence[object]) -> str:
    """The folders of a partition, `name=value` each, none longer than file systems take."""
    return "/".join(map(_cut, partition_folders(specs, spec_id, values)))


def _cut(folder: str) -> str:
    if len(folder) <= _MAX_FOLDER_LENGTH:
        return folder
    return f"{folder[: _MAX_FOLDER_LENGTH - 33]}-{mmh3.hash128(folder):032x}"


def _hash_folders(below: str) -> str:
    """Twenty bits of a hash as folders, the way Iceberg splits them."""
    bits = f"{mmh3.hash(below) & ((1 << _HASH_BITS) - 1):0{_HASH_BITS}b}"
    cuts = [bits[at : at + _FOLDER_BITS] for at in range(0, _FOLDER_BITS * _FOLDERS, _FOLDER_BITS)]
    return "/".join([*cuts, bits[_FOLDER_BITS * _FOLDERS :]])


_MICROS_TYPE: dict[type[IcebergType], IcebergType] = {
    TimestampNanoType: TimestampType(),
    TimestamptzNanoType: TimestamptzType(),
}


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Rows of one batch that belong to one partition."""

    key: tuple[object, ...]
    rows: pa.RecordBatch
    tuple_row: pa.RecordBatch | None = None  # one row: the partition tuple in the columns of the union tuple


@dataclass(frozen=True)
class Partitioner:
    """The partitions of rows of a schema under one spec of a table."""

    schema: Schema
    specs: Specs
    spec_id: int

    @property
    def spec(self) -> PartitionSpec:
        """The spec the rows are written under."""
        return self.specs[self.spec_id]

    @property
    def is_partitioned(self) -> bool:
        """Whether the spec separates rows."""
        return not self.specs.is_unpartitioned(self.spec_id)

    def check(self) -> None:
        """Refuse a spec whose tuples cannot be computed from rows of this schema."""
        for field in self.spec.fields:
            if isinstance(field.transform, VoidTransform):
                continue
            if isinstance(field.transform, UnknownTransform):
                raise UnsupportedFeature(
                    f"Cannot write under partition spec {self.spec_id}: unknown transform of field {field.name!r}."
                )
            if field.source_id not in fields_by_id(self.schema):
                raise UserError(
                    f"Cannot write under partition spec {self.spec_id}: the source column of its field {field.name!r} "
                    "was dropped. Write under a spec whose columns the table still has."
                )

    def split_by_partition(self, rows: pa.RecordBatch) -> Iterator[PartitionRows]:
        """The rows of a batch by partition. Rows that already lie together are not copied."""
        if not self.is_partitioned:
            yield PartitionRows((), rows)
            return
        tuples = self.partition_tuples(rows)
        codes, first = _partition_codes(tuples)
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        is_together = len(starts) == len(first)
        if is_together:
            first = starts
        keys, tuple_rows = self._partition_keys(tuples, first), [tuples.slice(int(at), 1) for at in first]
        parts = _runs(rows, starts) if is_together else _taken(rows, codes)
        yield from map(PartitionRows, keys, parts, tuple_rows)

    def partition_tuples(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The partition tuple of every row, in the columns of the union tuple that belong to the spec."""
        columns = self.specs.columns(self.spec_id)
        values = [self._partition_values(f, rows) for f in self.spec.fields]
        return pa.RecordBatch.from_arrays(values, names=list(columns))

    def path(self, key: tuple[object, ...]) -> str:
        """The folders of a partition; none when the spec does not separate rows."""
        return partition_path(self.specs, self.spec_id, key) if key else ""

    def _partition_values(self, field: PartitionField, rows: pa.RecordBatch) -> pa.Array:
        kind = next(u.arrow_type for u in self.specs.union if u.column == self._column_by_field_id[field.field_id])
        if isinstance(field.transform, VoidTransform):
            return pa.nulls(rows.num_rows, kind)
        source = column_by_id(rows, self.schema, field.source_id)
        found = apply_transform(field.transform, self.specs.source_type(field), source)
        return found if found.type == kind else found.cast(kind)

    @cached_property
    def _column_by_field_id(self) -> dict[int, str]:
        ids = (f.field_id for f in self.spec.fields)
        return dict(zip(ids, self.specs.columns(self.spec_id), strict=True))

    def _partition_keys(self, tuples: pa.RecordBatch, rows: Any) -> list[tuple[object, ...]]:
        """The tuples of some rows as Python values: dates and times as counts, as the format stores them."""
        columns = [
            _as_key_values(tuples.column(at).take(pa.array(rows)), self.specs.result_type(f))
            for at, f in enumerate(self.spec.fields)
        ]
        return list(zip(*columns, strict=True))


def apply_transform(transform: Transform[Any, Any], source: IcebergType, values: pa.Array) -> pa.Array:
    """A partition transform over a column."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if isinstance(transform, IdentityTransform):
        return values
    if type(source) in _MICROS_TYPE:
        source, values = _MICROS_TYPE[type(source)], _floor_to_micros(values)
    compute: Callable[[pa.Array], pa.Array] = transform.pyarrow_transform(source)
    return compute(_aligned(values) if isinstance(source, DecimalType) else values)


def column_by_id(rows: pa.RecordBatch, schema: Schema, field_id: int) -> pa.Array:
    """A column by its field id, also inside a struct; null wherever a struct above it is null."""
    first, *inner = field_path(schema, field_id)
    column = rows.column(first)
    return pc.struct_field(column, inner) if inner else column


def field_path(schema: Schema, field_id: int) -> list[str]:
    """The names that lead to a field: a column, then struct fields."""
    names: list[str] = []
    at: int | None = field_id
    while at is not None:
        names.insert(0, schema.find_field(at).name)
        at = parents_by_id(schema).get(at)
    return names


def _aligned(values: pa.Array) -> pa.Array:
    """The same values at an address that is a multiple of 16: the transforms insist on it, Spark does not keep it."""
    return values.take(pa.array(np.arange(len(values))))


def _floor_to_micros(values: pa.Array) -> pa.Array:
    nanos = values.cast(pa.int64())
    floored = pc.if_else(
        pc.is_valid(nanos), pa.array(np.asarray(nanos.fill_null(0)) // 1000), pa.scalar(None, pa.int64())
    )
    return floored.cast(pa.timestamp("us", values.type.tz))


def _partition_codes(tuples: pa.RecordBatch) -> tuple[Any, Any]:
    """A number per row that is equal for rows of one partition, and the first row of each number."""
    codes = np.zeros(tuples.num_rows, np.int64)
    for column in tuples.columns:
        if pa.types.is_null(column.type):
            continue
        encoded = np.asarray(column.dictionary_encode(null_encoding="encode").indices, np.int64)
        codes = np.unique(codes * (int(encoded.max(initial=0)) + 1) + encoded, return_inverse=True)[1]
    return codes, np.unique(codes, return_index=True)[1]


def _runs(rows: pa.RecordBatch, starts: Any) -> Iterator[pa.RecordBatch]:
    ends = [*starts[1:].tolist(), rows.num_rows]
    return (rows.slice(int(start), int(end) - int(start)) for start, end in zip(starts, ends, strict=True))


def _taken(rows: pa.RecordBatch, codes: Any) -> Iterator[pa.RecordBatch]:
    """Copies: a small piece that waits for its row group must not hold on to the batch it came from."""
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes))
    return (rows.take(pa.array(part)) for part in np.split(order, ends[:-1]))


def _as_key_values(values: pa.Array, kind: IcebergType) -> list[object]:
    if isinstance(kind, UUIDType):
        return [None if v is None else UUID(bytes=v) for v in values.to_pylist()]
    if pa.types.is_date32(values.type):
        return list(values.cast(pa.int32()).to_pylist())
    if pa.types.is_timestamp(values.type) or pa.types.is_time64(values.type):
        return list(values.cast(pa.int64()).to_pylist())
    if pa.types.is_floating(values.type):  # NaN is not equal to itself, and 0.0 equals -0.0: their texts behave
        return [None if v is None else repr(v) for v in values.to_pylist()]
    return list(values.to_pylist())
