"""Find the rows that equality deletes delete: once per data file, as positions.

Only the key columns are read, in large batches: each lookup has a high fixed cost. Values are compared after promotion
to the newest type of each key column. `KeySet` is a set of rows that is searched column by column.
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
from neve.run.read.array_builders import FileRows
from neve.run.read.field_ids import nested_field_ids
from neve.run.read.formats import DataFile, open_file
from neve.run.read.projection import bind_projection, fields_with_ids
from neve.run.read.tasks import DeleteFile, EqualityDeletes, FileTask, ReadTarget
from neve.run.read.types import ArrowFlavor

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class KeySet:
    """Distinct rows. Null equals null, NaN equals NaN, and 0.0 differs from -0.0.

    Each column has a level, which numbers the distinct row prefixes up to this column: `values` are the distinct values
    of the column, `pairs` the sorted combinations (number of the shorter prefix, index of the value) that occur.
    """

    levels: tuple[tuple[pa.Array, Ints], ...]

    @classmethod
    def of(cls, columns: Sequence[pa.Array]) -> KeySet:
        """Build the set of the rows of these columns."""
        prefixes = np.zeros(len(columns[0]), np.int64)
        levels = []
        for column in map(_as_comparable, columns):
            values = column.unique()
            pairs, prefixes = np.unique(prefixes * len(values) + _value_indices(column, values), return_inverse=True)
            levels.append((values, pairs))
        return cls(tuple(levels))

    def contains(self, columns: Sequence[pa.Array]) -> NDArray[np.bool_]:
        """Return a mask of the rows of these columns that are in the set."""
        prefixes = np.zeros(len(columns[0]), np.int64)
        is_member = np.full(len(prefixes), len(self.levels[0][1]) > 0)
        for column, (values, pairs) in zip(map(_as_comparable, columns), self.levels, strict=True):
            if not is_member.any():
                break
            indices = _value_indices(column, values)
            row_pairs = prefixes * len(values) + indices
            prefixes = np.minimum(np.searchsorted(pairs, row_pairs), len(pairs) - 1)
            is_member &= (indices >= 0) & (pairs[prefixes] == row_pairs)
        return is_member


def _value_indices(column: pa.Array, values: pa.Array) -> Ints:
    indices = pc.index_in(column, value_set=values)
    return np.asarray(indices.fill_null(-1).to_numpy(), np.int64)


def _as_comparable(column: pa.Array) -> pa.Array:
    """Return floats as their bits, with one NaN: as numbers, 0.0 would equal -0.0."""
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
    """The equality deletes of a scan: each delete file is read once, and the keys of the files in use are indexed.

    When the cache is full, keys that are not in use are dropped.
    """

    io: FileIO
    target: ReadTarget
    max_key_bytes: int = MAX_KEY_BYTES
    columns_by_file: dict[tuple[DeleteFile, tuple[int, ...]], Columns] = field(default_factory=dict)
    last_key_set: tuple[EqualityDeletes, KeySet] | None = None  # neighbouring data files mostly have the same deletes

    @property
    def _exact_target(self) -> ReadTarget:
        # Keys are compared as they are stored, whatever flavor the rows are read in.
        return replace(self.target, flavor=ArrowFlavor.EXACT)

    def deleted_positions(self, data: DataFile, task: FileTask) -> PositionSet:
        """Return the positions in an open data file that its equality deletes delete."""
        sets: list[PositionSet] = []
        for group in task.equality_deletes:
            key_set = self._key_set(group)
            projection = bind_projection(data, task, self._key_schema(group), self._exact_target)
            batches = data.batches(projection.leaves, task.part)
            keys_of_batches = ((rows, _flatten_columns(projection.apply(columns, rows))) for rows, columns in batches)
            for rows, keys in _join_small_batches(keys_of_batches):
                sets.append(PositionSet.of(rows.positions[key_set.contains(keys)]))
        return PositionSet().union(*sets)

    def _key_set(self, group: EqualityDeletes) -> KeySet:
        if self.last_key_set is None or self.last_key_set[0] != group:
            per_file = [self._key_columns(file, group) for file in group.files]
            self.last_key_set = (group, KeySet.of([pa.concat_arrays(parts) for parts in zip(*per_file, strict=True)]))
        return self.last_key_set[1]

    def _key_columns(self, file: DeleteFile, group: EqualityDeletes) -> Columns:
        cache_key = (file, group.keys)
        if cache_key not in self.columns_by_file:
            self.columns_by_file[cache_key] = self._load_key_columns(file, group)
            if self._cached_bytes > self.max_key_bytes:
                self.columns_by_file = {k: c for k, c in self.columns_by_file.items() if k[0] in group.files}
            if self._cached_bytes > self.max_key_bytes:
                raise LimitExceeded(
                    f"the equality deletes of one file, {self._cached_bytes} bytes,", self.max_key_bytes, _HINT
                )
        return self.columns_by_file[cache_key]

    @property
    def _cached_bytes(self) -> int:
        return sum(column.nbytes for columns in self.columns_by_file.values() for column in columns)

    def _load_key_columns(self, file: DeleteFile, group: EqualityDeletes) -> Columns:
        # The rows of the file count, not their number in the manifest, which some writers get wrong.
        with open_file(self.io, file.path, file.file_format, file.file_size, None) as data:
            # Without this check a delete file without a key column would delete every row where that column is null.
            if missing := set(group.keys) - set(nested_field_ids(fields_with_ids(data, file.path, self.target))):
                expected = f"the equality columns {sorted(group.keys)}"
                raise CorruptFile(file.path, expected, f"no column {sorted(missing)}")
            projection = bind_projection(data, FileTask(file.path), self._key_schema(group), self._exact_target)
            batches = [_flatten_columns(pa.RecordBatch.from_pylist([], projection.schema))]
            held_bytes = 0
            for rows, columns in data.batches(projection.leaves):
                batches.append(_flatten_columns(projection.apply(columns, rows)))
                held_bytes += sum(column.nbytes for column in batches[-1])
                if held_bytes > self.max_key_bytes:
                    raise LimitExceeded(f"the equality deletes in {file.path}", self.max_key_bytes, _HINT)
        return [pa.concat_arrays(parts) for parts in zip(*batches, strict=True)]

    def _key_schema(self, group: EqualityDeletes) -> Schema:
        """Return the key columns, each from the newest schema that has it, all optional: a null key matches null only.

        One key column may have been dropped before another was promoted, so no single schema fits all of them.
        """
        fields = []
        for key in group.keys:
            schema = next((s for s in self.target.schemas or [self.target.schema] if key in fields_by_id(s)), None)
            if schema is None:
                path = group.files[0].path
                raise TableError(f"Unknown equality column {key} in {path}: no schema of the table has it.")
            fields.append(prune_columns(schema, {key}, False).fields[0])
        return Schema(*map(_as_optional, _merge_fields(fields)))


def _merge_fields(fields: Iterable[NestedField]) -> list[NestedField]:
    """Return fields in the order of their ids, with the parts of one struct merged.

    Columns are matched by id, so two columns that had the same name at different times get distinct names here.
    """
    by_id: dict[int, list[NestedField]] = {}
    for each in fields:
        by_id.setdefault(each.field_id, []).append(each)
    merged = []
    for _, parts in sorted(by_id.items()):
        inner = [f for part in parts if isinstance(part.field_type, StructType) for f in part.field_type.fields]
        update = {"field_type": StructType(*_merge_fields(inner))} if inner else {}
        merged.append(parts[0].model_copy(update=update))
    names = [f.name for f in merged]
    return [f if names.count(f.name) == 1 else f.model_copy(update={"name": f"{f.name}#{f.field_id}"}) for f in merged]


def _as_optional(field: NestedField) -> NestedField:
    kind = field.field_type
    if isinstance(kind, StructType):
        kind = StructType(*map(_as_optional, kind.fields))
    return field.model_copy(update={"required": False, "field_type": kind})


def _flatten_columns(batch: pa.RecordBatch) -> Columns:
    """Return the key columns, including those inside structs, which are null where the struct is null."""
    columns: Columns = []
    for column in batch.columns:
        columns += _flatten_columns(pa.RecordBatch.from_struct_array(column)) if at.is_struct(column.type) else [column]
    return columns


def _join_small_batches(batches: Iterator[tuple[FileRows, Columns]]) -> Iterator[tuple[FileRows, Columns]]:
    """Join neighbouring batches, because every lookup indexes the keys again."""
    pending: list[tuple[FileRows, Columns]] = []
    for rows, columns in batches:
        if pending:
            first, last = pending[0][0], pending[-1][0]
            end = last.start + last.count
            is_next = end == rows.start and first.chosen is None and rows.chosen is None
            if not is_next or end - first.start >= PROBE_ROWS:
                yield _concat_batches(pending)
                pending = []
        pending.append((rows, columns))
    if pending:
        yield _concat_batches(pending)


def _concat_batches(batches: Sequence[tuple[FileRows, Columns]]) -> tuple[FileRows, Columns]:
    if len(batches) == 1:
        return batches[0]
    columns = [pa.concat_arrays(parts) for parts in zip(*(columns for _, columns in batches), strict=True)]
    return FileRows(batches[0][0].start, sum(rows.count for rows, _ in batches)), columns
