"""Partition rows by a spec, and choose the paths of data files.

Partition values are computed with PyIceberg's vectorized transforms, except those of time: they are null far from 1970,
and hours overflow. Nanosecond timestamps are first rounded down to microseconds, as the format requires for bucket.

A data file's path is `<data path>/<partition path>/<name>` by default. With object storage layout, a hash of the rest
comes before it, so that the files of one partition do not share a prefix. Names contain the task and an id that is
unique to the write, so no two attempts use the same name.

>>> Layout("s3://b/t/data").path("00000-7-u-00001.parquet", "day=2026-01-01")
's3://b/t/data/day=2026-01-01/00000-7-u-00001.parquet'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any
from uuid import UUID

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    HourTransform,
    IdentityTransform,
    TimeTransform,
    Transform,
    UnknownTransform,
    VoidTransform,
)

from neve.errors import UnsupportedFeature, UserError
from neve.io.paths import location_from_property
from neve.model.partition import Specs, partition_folders
from neve.model.properties import TableProperties
from neve.model.pyiceberg_private import fields_by_id, parents_by_id
from neve.model.values import DAY_MICROS

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
    """How data files are placed below the data path of a table."""

    data_path: str
    is_hashed: bool = False
    has_partition_folders: bool = True
    context: str = ""  # the name of the table, used below a data path that several tables share

    @classmethod
    def of(cls, location: str, properties: TableProperties) -> Layout:
        """Return the layout that the properties of a table specify."""
        location = location.rstrip("/")
        data_path = location_from_property(location, properties.data_path or "data")
        if not properties.object_storage:
            return cls(data_path)
        context = "" if data_path.startswith(location) else "/".join(location.split("/")[-2:])
        return cls(data_path, True, properties.object_storage_partitioned_paths, context)

    def path(self, name: str, partition: str) -> str:
        """Return the full path of a file; `partition` is empty for a table without partitions."""
        relative = f"{partition}/{name}" if partition and self.has_partition_folders else name
        if not self.is_hashed:
            return f"{self.data_path}/{relative}"
        # Twenty bits of a hash as folders, split as Iceberg splits them.
        bits = f"{mmh3.hash(relative) & ((1 << _HASH_BITS) - 1):0{_HASH_BITS}b}"
        cuts = [*range(0, _FOLDER_BITS * _FOLDERS + 1, _FOLDER_BITS), _HASH_BITS]
        folders = "/".join(bits[start:end] for start, end in pairwise(cuts))
        if self.context:
            return f"{self.data_path}/{folders}/{self.context}/{relative}"
        return f"{self.data_path}/{folders}{'/' if self.has_partition_folders else '-'}{relative}"


def partition_path(specs: Specs, spec_id: int, values: Sequence[object]) -> str:
    """Return the folders of a partition, `name=value` each, shortened if file systems would not accept them."""
    return "/".join(
        folder
        if len(folder) <= _MAX_FOLDER_LENGTH
        else f"{folder[: _MAX_FOLDER_LENGTH - 33]}-{mmh3.hash128(folder):032x}"
        for folder in partition_folders(specs, spec_id, values)
    )


_MICROS_TYPE: dict[type[ice.IcebergType], ice.IcebergType] = {
    ice.TimestampNanoType: ice.TimestampType(),
    ice.TimestamptzNanoType: ice.TimestamptzType(),
}
_CALENDAR_UNITS = {"year": "Y", "month": "M"}
_MAX_INT = (1 << 31) - 1
_HOUR_MICROS = 3_600_000_000


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Rows of one batch that belong to one partition."""

    key: tuple[object, ...]
    rows: pa.RecordBatch
    tuple_row: pa.RecordBatch | None = None  # one row: the partition tuple in the columns of the union tuple


@dataclass(frozen=True)
class Partitioner:
    """Computes the partitions of rows of a schema under one spec of a table."""

    schema: Schema
    specs: Specs
    spec_id: int
    only_partition: pa.RecordBatch | None = None  # the tuple of all rows, if it is known

    @property
    def spec(self) -> PartitionSpec:
        """The spec that rows are written under."""
        return self.specs[self.spec_id]

    @property
    def is_partitioned(self) -> bool:
        """True if the spec separates rows."""
        return not self.specs.is_unpartitioned(self.spec_id)

    @property
    def separates_rows(self) -> bool:
        """True if rows of one batch may belong to different partitions."""
        return self.is_partitioned and self.only_partition is None

    def check(self) -> None:
        """Reject a spec whose tuples cannot be computed from rows of this schema."""
        for field in self.spec.fields if self.only_partition is None else ():
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

    def split_by_partition(self, rows: pa.RecordBatch, *, copies: bool = True) -> Iterator[PartitionRows]:
        """Yield the rows of a batch by partition. If the rows of each partition are adjacent, they are not copied.

        With `copies`, other parts are copied one by one, so that a small part that waits for its row group does not
        keep the whole batch in memory. Without, they are slices of one sorted copy, which is faster.
        """
        if not self.separates_rows:
            only = self.only_partition if self.is_partitioned else None
            yield PartitionRows(() if only is None else self.key_of(only), rows, only)
            return
        tuples = self.partition_tuples(rows)
        codes = _number_tuples(tuples)
        sizes, starts = np.bincount(codes), np.flatnonzero(np.diff(codes, prepend=-1))
        parts: Iterator[pa.RecordBatch]
        if len(starts) == len(sizes):
            first_rows = starts
            bounds = pairwise([*starts.tolist(), rows.num_rows])
            parts = (rows.slice(start, end - start) for start, end in bounds)
        else:
            first_rows = np.empty(len(sizes), np.int64)
            first_rows[codes[::-1]] = np.arange(len(codes))[::-1]  # the last one written is the first row
            # Short integers are sorted in linear time.
            order = np.argsort(codes.astype(np.uint16) if len(sizes) <= 1 << 16 else codes, kind="stable")
            ends = np.cumsum(sizes)
            if copies:
                parts = (rows.take(pa.array(row_list)) for row_list in np.split(order, ends[:-1]))
            else:
                ordered = rows.take(pa.array(order))
                parts = (ordered.slice(start, end - start) for start, end in pairwise([0, *ends.tolist()]))
        tuple_rows = [tuples.slice(int(row), 1) for row in first_rows]
        yield from map(PartitionRows, self._keys_of(tuples.take(pa.array(first_rows))), parts, tuple_rows)

    def key_of(self, tuple_row: pa.RecordBatch) -> tuple[object, ...]:
        """Return the key of a partition from its tuple in one row."""
        return next(self._keys_of(tuple_row))

    def _keys_of(self, tuples: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
        kinds = map(self.specs.result_type, self.spec.fields)
        return zip(*map(_as_key_values, tuples.columns, kinds), strict=True)

    def partition_tuples(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the partition tuple of every row, in the columns of the union tuple that belong to the spec."""
        kind_by_column = {u.column: u.arrow_type for u in self.specs.union}
        values_by_column = {}
        for field, column in zip(self.spec.fields, self.specs.columns(self.spec_id), strict=True):
            kind = kind_by_column[column]
            if isinstance(field.transform, VoidTransform):
                values_by_column[column] = pa.nulls(rows.num_rows, kind)
                continue
            source = column_by_id(rows, self.schema, field.source_id)
            name = self.schema.find_column_name(field.source_id) or ""
            values = apply_transform(field.transform, self.specs.source_type(field), source, name)
            values_by_column[column] = values if values.type == kind else values.cast(kind)
        return pa.RecordBatch.from_arrays(list(values_by_column.values()), names=list(values_by_column))

    def path(self, key: tuple[object, ...]) -> str:
        """Return the folders of a partition; empty if the spec does not separate rows."""
        return partition_path(self.specs, self.spec_id, key) if key else ""


def _number_tuples(tuples: pa.RecordBatch) -> NDArray[np.integer]:
    """Return a number per row, from 0 on, that is equal for equal tuples."""
    codes: NDArray[np.integer] = np.zeros(tuples.num_rows, np.int32)
    for column in tuples.columns:
        if pa.types.is_null(column.type):
            continue
        added = _number_values(column)
        if codes.any():
            joined = codes.astype(np.int64) * (int(added.max(initial=0)) + 1) + added
            added = _number_values(pa.array(joined))
        codes = added
    return codes


def _number_values(values: pa.Array) -> NDArray[np.integer]:
    numbers: NDArray[np.integer] = values.dictionary_encode(null_encoding="encode").indices.to_numpy()
    return numbers


def apply_transform(
    transform: Transform[Any, Any], source: ice.IcebergType, values: pa.Array, column: str = ""
) -> pa.Array:
    """Apply a partition transform to a column, which errors name."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if isinstance(transform, IdentityTransform):
        return values
    if type(source) in _MICROS_TYPE:
        micros = _floor_divide(values.cast(pa.int64()), 1000)
        source, values = _MICROS_TYPE[type(source)], micros.cast(pa.timestamp("us", values.type.tz))
    if isinstance(transform, TimeTransform):
        return _time_since_1970(transform, values, column)
    compute: Callable[[pa.Array], pa.Array] = transform.pyarrow_transform(source)
    if isinstance(source, ice.DecimalType):
        # A copy is aligned to 16 bytes, which the transforms require and arrays from Spark need not be.
        values = values.take(pa.array(np.arange(len(values))))
    return compute(values)


def _time_since_1970(transform: TimeTransform[Any], values: pa.Array, column: str) -> pa.Array:
    """Return the years, months, days or hours of dates, or of timestamps in microseconds."""
    if pa.types.is_date32(values.type):
        units = values.cast(pa.int32()).cast(pa.int64())
    else:
        divisor = _HOUR_MICROS if isinstance(transform, HourTransform) else DAY_MICROS
        units = _floor_divide(values.cast(pa.int64()), divisor)
    if (unit := _CALENDAR_UNITS.get(str(transform))) is not None:
        numbers = np.asarray(units.fill_null(0)).astype("datetime64[D]").astype(f"datetime64[{unit}]").astype(np.int64)
        units = pc.if_else(units.is_valid(), pa.array(numbers), None)
    try:
        return units.cast(pa.int32())
    except pa.ArrowInvalid as e:
        raise UserError(
            f"Cannot compute the {transform} of column {column!r}: a timestamp is more than {_MAX_INT} {transform}s "
            "from 1970, which does not fit a partition value. Correct it, or use another transform."
        ) from e


def _floor_divide(numbers: pa.Array, divisor: int) -> pa.Array:
    quotients = pa.array(np.asarray(numbers.fill_null(0)) // divisor)
    return pc.if_else(numbers.is_valid(), quotients, None)


def column_by_id(rows: pa.RecordBatch, schema: Schema, field_id: int) -> pa.Array:
    """Return a column by its field id, also inside a struct; it is null where a parent struct is null."""
    first, *inner = field_path(schema, field_id)
    column = rows.column(first)
    return pc.struct_field(column, inner) if inner else column


def field_path(schema: Schema, field_id: int) -> list[str]:
    """Return the names that lead to a field: a column, then struct fields."""
    names: list[str] = []
    current: int | None = field_id
    while current is not None:
        names.insert(0, schema.find_field(current).name)
        current = parents_by_id(schema).get(current)
    return names


def _as_key_values(values: pa.Array, kind: ice.IcebergType) -> list[object]:
    """Return partition values as Python values; dates and times are integers, as the format stores them."""
    if isinstance(kind, ice.UUIDType):
        return [None if v is None else UUID(bytes=v) for v in values.to_pylist()]
    if pa.types.is_date32(values.type):
        return list(values.cast(pa.int32()).to_pylist())
    if pa.types.is_timestamp(values.type) or pa.types.is_time64(values.type):
        return list(values.cast(pa.int64()).to_pylist())
    if pa.types.is_floating(values.type):  # as text, because NaN does not equal itself and 0.0 equals -0.0
        return [None if v is None else repr(v) for v in values.to_pylist()]
    return list(values.to_pylist())
