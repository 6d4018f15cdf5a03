"""Rows deleted by their values: found once per data file, as positions.

Only the key columns are read for that, in long stretches: looking rows up costs most where it starts. Values are
compared after promotion to the type each key column had last.

A set of rows to look other rows up in, a column at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types as at
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.types import NestedField, StructType

from neve.errors import CorruptFile, LimitExceeded, TableError
from neve.io.deletion_vectors import PositionSet
from neve.model.pyiceberg_private import fields_by_id
from neve.run.read.array_builders import RowRange
from neve.run.read.field_ids import FileField
from neve.run.read.formats import DataFile, open_file
from neve.run.read.projection import bind_projection, fields_with_ids
from neve.run.read.tasks import DeleteFile, EqualityDeletes, FileTask, ReadTarget
from neve.run.read.types import ArrowFlavor

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class KeySet:
    """Distinct rows. Null equals null, NaN equals NaN, and 0.0 differs from -0.0.

    Each level numbers the distinct beginnings of rows: `values` are the distinct values of its column, `pairs` the
    sorted combinations (number of the beginning before it, place of the value) that occur.
    """

    levels: tuple[tuple[pa.Array, Ints], ...]

    @classmethod
    def of(cls, columns: Sequence[pa.Array]) -> KeySet:
        """The set of the rows of these columns."""
        number = np.zeros(len(columns[0]), np.int64)
        levels = []
        for column in map(_as_comparable, columns):
            values = column.unique()
            pairs, number = np.unique(number * len(values) + _value_indices(column, values), return_inverse=True)
            levels.append((values, pairs))
        return cls(tuple(levels))

    def contains(self, columns: Sequence[pa.Array]) -> NDArray[np.bool_]:
        """For each row of these columns, whether it is in the set."""
        number = np.zeros(len(columns[0]), np.int64)
        found = np.full(len(number), len(self.levels[0][1]) > 0)
        for column, (values, pairs) in zip(map(_as_comparable, columns), self.levels, strict=True):
            if not found.any():
                break
            places = _value_indices(column, values)
            wanted = number * len(values) + places
            number = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
            found &= (places >= 0) & (pairs[number] == wanted)
        return found


def _value_indices(column: pa.Array, values: pa.Array) -> Ints:
    places = pc.index_in(column, value_set=values)
    return np.asarray(places.fill_null(-1).to_numpy(), np.int64)


def _as_comparable(column: pa.Array) -> pa.Array:
    """Floats as their bits, with one NaN: as numbers, zero would equal minus zero."""
    if not at.is_floating(column.type):
        return column
    plain = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
    return plain.view(pa.int32() if column.type.bit_width == 32 else pa.int64())


PROBE_ROWS = 1 << 20
MAX_KEY_BYTES = 1 << 30
_HINT = "Compact the table with rewrite_data_files, which applies equality deletes once and for all."

Columns = list[pa.Array]


@dataclass
class EqualityIndex:
    """The equality deletes of a scan: each delete file is read once, each set of them indexed while it is in use.

    Keys that are not in use make room for those that are.
    """

    io: FileIO
    target: ReadTarget
    max_key_bytes: int = MAX_KEY_BYTES
    columns_by_file: dict[tuple[DeleteFile, tuple[int, ...]], Columns] = field(default_factory=dict)
    last_key_set: tuple[EqualityDeletes, KeySet] | None = None  # neighbouring data files mostly have the same deletes

    @property
    def _exact_target(self) -> ReadTarget:
        """Keys are compared as they are stored, whoever the rows are read for."""
        return replace(self.target, flavor=ArrowFlavor.EXACT)

    def deleted_positions(self, data: DataFile, task: FileTask) -> PositionSet:
        """The rows of an open data file that its equality deletes delete."""
        return PositionSet().union(*(self._matching_positions(data, task, group) for group in task.equality_deletes))

    def _matching_positions(self, data: DataFile, task: FileTask, group: EqualityDeletes) -> PositionSet:
        keys, projection = (
            self._key_set(group),
            bind_projection(data, task, self._key_schema(group), self._exact_target),
        )
        batches = (
            (rows, _flatten_columns(projection.apply(columns, rows)))
            for rows, columns in data.batches(projection.leaves, task.part)
        )
        found = (rows.start + np.flatnonzero(keys.contains(columns)) for rows, columns in _join_small_batches(batches))
        return PositionSet().union(*map(PositionSet.of, found))

    def _key_set(self, group: EqualityDeletes) -> KeySet:
        if self.last_key_set is None or self.last_key_set[0] != group:
            per_file = [self._key_columns(file, group) for file in group.files]
            self.last_key_set = (group, KeySet.of([pa.concat_arrays(parts) for parts in zip(*per_file, strict=True)]))
        return self.last_key_set[1]

    def _key_columns(self, file: DeleteFile, group: EqualityDeletes) -> Columns:
        name = (file, group.keys)
        if name not in self.columns_by_file:
            self.columns_by_file[name] = self._load_key_columns(file, group)
            if self._cached_bytes > self.max_key_bytes:
                self.columns_by_file = {
                    (f, keys): c for (f, keys), c in self.columns_by_file.items() if f in group.files
                }
            if self._cached_bytes > self.max_key_bytes:
                raise LimitExceeded(
                    f"the equality deletes of one file, {self._cached_bytes} bytes,", self.max_key_bytes, _HINT
                )
        return self.columns_by_file[name]

    @property
    def _cached_bytes(self) -> int:
        return sum(column.nbytes for columns in self.columns_by_file.values() for column in columns)

    def _load_key_columns(self, file: DeleteFile, group: EqualityDeletes) -> Columns:
        with open_file(self.io, file.path, file.file_format, file.file_size, file.record_count) as data:
            self._refuse_missing(data, file, group)
            projection = bind_projection(data, FileTask(file.path), self._key_schema(group), self._exact_target)
            parts = [[pa.nulls(0, f.type) for f in _flatten_fields(projection.schema)]]
            held = 0
            for rows, columns in data.batches(projection.leaves):
                parts.append(_flatten_columns(projection.apply(columns, rows)))
                held += sum(column.nbytes for column in parts[-1])
                if held > self.max_key_bytes:
                    raise LimitExceeded(f"the equality deletes in {file.path}", self.max_key_bytes, _HINT)
        return [pa.concat_arrays(some) for some in zip(*parts, strict=True)]

    def _refuse_missing(self, data: DataFile, file: DeleteFile, group: EqualityDeletes) -> None:
        """A delete file without a key column would otherwise delete every row in which that column is null."""
        if missing := set(group.keys) - set(_nested_field_ids(fields_with_ids(data, file.path, self.target))):
            raise CorruptFile(file.path, f"the equality columns {sorted(group.keys)}", f"no column {sorted(missing)}")

    def _key_schema(self, group: EqualityDeletes) -> Schema:
        """The key columns, each as the newest schema knows it that has it; nullable: a null key matches null alone.

        One may have been dropped before another was promoted, so no single schema need be right for all of them.
        """
        single = [self._key_field(key, group) for key in group.keys]
        return Schema(*map(_as_optional, _merge_fields(single)))

    def _key_field(self, key: int, group: EqualityDeletes) -> NestedField:
        for schema in self.target.schemas or [self.target.schema]:
            if key in fields_by_id(schema):
                return prune_columns(schema, {key}, False).fields[0]
        raise TableError(f"Unknown equality column {key} in {group.files[0].path}: no schema of the table has it.")


def _merge_fields(fields: Iterable[NestedField]) -> list[NestedField]:
    """Fields in the order of their ids, the parts of one struct put together.

    They are found by id, so two columns that bore one name at different times may be given others.
    """
    by_id: dict[int, list[NestedField]] = {}
    for one in fields:
        by_id.setdefault(one.field_id, []).append(one)
    joined = [_joined_struct(by_id[field_id]) for field_id in sorted(by_id)]
    names = [f.name for f in joined]
    return [f if names.count(f.name) == 1 else f.model_copy(update={"name": f"{f.name}#{f.field_id}"}) for f in joined]


def _joined_struct(parts: list[NestedField]) -> NestedField:
    inner = [f for part in parts if isinstance(part.field_type, StructType) for f in part.field_type.fields]
    return parts[0].model_copy(update={"field_type": StructType(*_merge_fields(inner))}) if inner else parts[0]


def _as_optional(field: NestedField) -> NestedField:
    kind = field.field_type
    if isinstance(kind, StructType):
        kind = StructType(*map(_as_optional, kind.fields))
    return field.model_copy(update={"required": False, "field_type": kind})


def _nested_field_ids(fields: Iterable[FileField]) -> Iterator[int | None]:
    for each in fields:
        yield each.field_id
        yield from _nested_field_ids(each.children)


def _flatten_fields(schema: pa.Schema) -> list[pa.Field]:
    return [
        f
        for field in schema
        for f in (_flatten_fields(pa.schema(list(field.type))) if at.is_struct(field.type) else [field])
    ]


def _flatten_columns(batch: pa.RecordBatch) -> Columns:
    """The key columns, those inside structs too; in a row without the struct they are null."""
    columns: Columns = []
    for column in batch.columns:
        columns += _flatten_columns(pa.RecordBatch.from_struct_array(column)) if at.is_struct(column.type) else [column]
    return columns


def _join_small_batches(batches: Iterator[tuple[RowRange, Columns]]) -> Iterator[tuple[RowRange, Columns]]:
    """Neighbouring batches put together, since every look-up indexes the keys anew."""
    held: list[tuple[RowRange, Columns]] = []
    for rows, columns in batches:
        if held and (held[-1][0].start + held[-1][0].count != rows.start or _row_count(held) >= PROBE_ROWS):
            yield _concat_batches(held)
            held = []
        held.append((rows, columns))
    if held:
        yield _concat_batches(held)


def _row_count(held: Sequence[tuple[RowRange, Columns]]) -> int:
    return sum(rows.count for rows, _ in held)


def _concat_batches(held: Sequence[tuple[RowRange, Columns]]) -> tuple[RowRange, Columns]:
    columns = [pa.concat_arrays(parts) for parts in zip(*(columns for _, columns in held), strict=True)]
    return RowRange(held[0][0].start, _row_count(held)), columns
