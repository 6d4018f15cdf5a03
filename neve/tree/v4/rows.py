"""Tracked-file rows: flat columns in memory, structs of fields with ids in a file.

What has no field in any spec, and statistics that no row has, are left out of a file: Parquet knows no empty struct.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.schema import Schema

from neve.errors import CorruptFile, UnsupportedFeature
from neve.io.parquet_by_field_id import IdPath, IdTable, encode_parquet
from neve.model.partition import Specs
from neve.model.values import combine_chunks
from neve.tree.v4 import statistics
from neve.tree.v4.fields import (
    FIXED_FIELDS,
    MANIFEST_INFO,
    ONLY_IN_ROOT,
    PARTITION,
    RANGES,
    STATISTICS,
    STRUCT_NAMES,
    TRACKING,
    VECTOR,
    ContentType,
    TrackedField,
)

_TYPES = {f.column: f.type for f in FIXED_FIELDS}
_FIELD_ORDER = (
    TRACKING,
    134,
    157,
    100,
    101,
    103,
    104,
    141,
    PARTITION,
    STATISTICS,
    140,
    VECTOR,
    MANIFEST_INFO,
    131,
    132,
    135,
)
_RANGE_ENDS = {
    2: ("contains_null", pa.bool_()),
    3: ("contains_nan", pa.bool_()),
    4: ("lower", None),
    5: ("upper", None),
}


def fixed_paths(names: Iterable[str]) -> dict[str, IdPath]:
    """Where columns with settled ids lie in a file."""
    wanted = set(names)
    return {f.column: f.ids for f in FIXED_FIELDS if f.column in wanted}


def read_rows(
    table: IdTable,
    specs: Specs,
    names: Collection[str],
    *,
    metrics: Collection[int] = (),
    ranges: bool = False,
    partitions: bool = True,
    rows: Any = None,
    columns: Collection[int] | None = None,
    keep_dictionaries: bool = False,
) -> pa.Table:
    """Columns of the rows of a file: those named, the union tuple, and statistics of the metrics asked for.

    A column that the file does not have is null. `dictionaries` leaves names of formats as the file has them: encoded.
    """
    schema = specs.schemas[0]
    wanted = fixed_paths(names)
    tuples = {u.column: (PARTITION, u.field.field_id) for u in specs.union} if partitions else {}
    stats = statistics.metric_paths(table, schema, metrics, columns) if metrics else {}
    ends = _range_places(table, specs) if ranges else {}
    found = table.read([*wanted.values(), *tuples.values(), *stats.values(), *ends.values()], rows)
    count = table.rows if rows is None else len(rows)
    settled = {
        name: found[path] for name, path in wanted.items() if keep_dictionaries and _is_dictionary(found.get(path))
    }
    settled |= {
        n: _cast_column(found.get(path), _TYPES[n], count, table) for n, path in wanted.items() if n not in settled
    }
    if tuples or ends:
        types = {u.column: u.arrow_type for u in specs.union} | (_range_types(specs) if ends else {})
        settled |= {
            name: _cast_partition(found.get(path), types[name], count, table) for name, path in (tuples | ends).items()
        }
    if stats:
        kept = statistics.columns_with_statistics(schema)
        settled |= {name: _cast_statistic(found[path], _stat_type(name, kept)) for name, path in stats.items()}
    return pa.table(settled)


def _is_dictionary(values: pa.Array | None) -> bool:
    return values is not None and pa.types.is_dictionary(values.type)


def _cast_column(values: pa.Array | None, kind: pa.DataType, count: int, table: IdTable) -> pa.Array:
    if values is None:
        return pa.nulls(count, kind)
    values = values.dictionary_decode() if _is_dictionary(values) else values
    try:
        if pa.types.is_string(values.type):
            values.validate(full=True)
        return values if values.type == kind else values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise CorruptFile(table.path, f"a column of type {kind}", f"{values.type} ({e})") from e


def _cast_partition(values: pa.Array | None, kind: pa.DataType, count: int, table: IdTable) -> pa.Array:
    """A partition value in the type the table gives it; a field that was dropped is null in any type."""
    if values is None or pa.types.is_null(kind) or values.null_count == len(values):
        return pa.nulls(count, kind)
    if pa.types.is_date32(kind) and pa.types.is_integer(values.type):
        values = values.cast(pa.int32())
    return _cast_column(_storage_array(values), kind, count, table)


def _storage_array(values: pa.Array) -> pa.Array:
    return values.storage if isinstance(values, pa.ExtensionArray) else values


def _cast_statistic(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """A statistic in the type the column has now; one that does not fit is not known."""
    values = _storage_array(values)
    try:
        return values if values.type == kind else values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(values), kind)


def _stat_type(name: str, kept: Mapping[int, Any]) -> pa.DataType:
    field_id, metric = name[1:].split(".")
    return statistics.metric_type(kept[int(field_id)], int(metric))


def range_column(partition_column: str, end: int) -> str:
    """The column in memory of one end of the range of a partition field."""
    return f"r{partition_column}.{end}"


def _range_id(field_id: int, end: int) -> IdPath:
    return (RANGES, RANGES + 10 * field_id, RANGES + 10 * field_id + end)


def _range_places(table: IdTable, specs: Specs) -> dict[str, IdPath]:
    places = {range_column(u.column, end): _range_id(u.field.field_id, end) for u in specs.union for end in _RANGE_ENDS}
    return {name: path for name, path in places.items() if table.has(path)}


def _range_types(specs: Specs) -> dict[str, pa.DataType]:
    return {
        range_column(u.column, e): kind or u.arrow_type for u in specs.union for e, (_, kind) in _RANGE_ENDS.items()
    }


def make_rows(columns: Mapping[str, Any], rows: int, specs: Specs) -> pa.Table:
    """Rows from the columns at hand; a fixed or partition column that is left out is null."""
    types = _TYPES | {u.column: u.arrow_type for u in specs.union}
    arrays = {name: _fill_column(columns.get(name), kind, rows) for name, kind in types.items()}
    return pa.table(arrays | {name: values for name, values in columns.items() if name not in types})


def _fill_column(values: Any, kind: pa.DataType, rows: int) -> Any:
    if values is None:
        return pa.nulls(rows, kind)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values if values.type == kind else values.cast(kind)
    if isinstance(values, np.ndarray | list):
        return pa.array(values, kind)
    return pa.repeat(pa.scalar(values, kind), rows)


def concat_rows(tables: Iterable[pa.Table]) -> pa.Table:
    """Rows of several tables as one; a column that only some have is null for the others."""
    return pa.concat_tables(list(tables), promote_options="permissive").combine_chunks()


def set_where(rows: pa.Table, mask: Any, **columns: Any) -> pa.Table:
    """The same rows with new values where a mask says so: a scalar, None, or one value for each row chosen."""
    flags = pa.array(np.asarray(mask, bool))
    for name, values in columns.items():
        at = rows.schema.get_field_index(name)
        kind = rows.schema.field(at).type
        old = rows.column(at).combine_chunks()
        if isinstance(values, pa.Array | pa.ChunkedArray | np.ndarray | list):
            new = _spread(_fill_column(values, kind, 0), np.asarray(mask, bool))
        else:
            new = pa.scalar(values, kind)
        rows = rows.set_column(at, rows.schema.field(at), pc.if_else(flags, new, old))
    return rows


def _spread(values: Any, mask: np.ndarray[Any, Any]) -> pa.Array:
    """One value for each chosen row, null for the others."""
    place = np.cumsum(mask) - 1
    return combine_chunks(values).take(pa.array(place, mask=~mask)) if mask.any() else pa.nulls(len(mask), values.type)


def encode_rows(rows: pa.Table, specs: Specs, *, is_root: bool, key_value_metadata: Mapping[str, str]) -> bytes:
    """Rows as the bytes of a Parquet file, with pairs for its footer."""
    nested = _nest_columns(rows.combine_chunks(), specs, is_root)
    return encode_parquet(nested, {**key_value_metadata, "iceberg.schema": _iceberg_schema(nested.schema)})


@lru_cache(maxsize=64)
def _iceberg_schema(schema: pa.Schema) -> str:
    """The schema of a file as Iceberg spells it."""
    return pyarrow_to_schema(schema).model_dump_json()


def _nest_columns(rows: pa.Table, specs: Specs, is_root: bool) -> pa.Table:
    left_out = frozenset() if is_root else ONLY_IN_ROOT
    own = [f for f in FIXED_FIELDS if f.column not in left_out and f.ids[0] != RANGES and _is_written(f, rows)]
    content = rows["content_type"].to_numpy()
    is_manifest = (content == ContentType.DATA_MANIFEST) | (content == ContentType.DELETE_MANIFEST)
    absent = {
        TRACKING: np.zeros(len(content), bool),
        VECTOR: rows["vector_location"].is_null().to_numpy(),
        MANIFEST_INFO: ~is_manifest,
    }
    made: dict[int, tuple[pa.Field, pa.Array]] = {}
    for top in dict.fromkeys(f.ids[0] for f in own):
        inner = [f for f in own if f.ids[0] == top]
        if len(inner[0].ids) == 1:
            f = inner[0]
            made[top] = _field_with_id(f.name, f.type, top, not f.required), combine_chunks(rows[f.column])
        else:
            leaves = [
                (_field_with_id(f.name, f.type, f.ids[1], not f.required), combine_chunks(rows[f.column]))
                for f in inner
            ]
            made[top] = _struct_with_id(top, leaves, absent[top], nullable=top != TRACKING)
    made |= _partition_field(rows, specs, is_manifest) | _statistics_field(rows, specs.schemas[0])
    made |= _ranges_field(rows, specs, ~is_manifest) if is_root and is_manifest.any() else {}
    order = [*(i for i in _FIELD_ORDER if i in made), *(i for i in made if i not in _FIELD_ORDER)]
    return pa.Table.from_arrays([made[i][1] for i in order], schema=pa.schema([made[i][0] for i in order]))


def _is_written(field: TrackedField, rows: pa.Table) -> bool:
    """Whether a file has to have a field: readers take one that is not there for null, and it costs them nothing."""
    if field.ids[0] in (VECTOR, MANIFEST_INFO) and field.required:
        first = next(f for f in FIXED_FIELDS if f.ids[0] == field.ids[0])
        return bool(rows[first.column].null_count < rows.num_rows)
    return field.required or bool(rows[field.column].null_count < rows.num_rows)


def _field_with_id(name: str, kind: pa.DataType, field_id: int, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable, {b"PARQUET:field_id": str(field_id).encode()})


def _struct_with_id(
    field_id: int,
    leaves: list[tuple[pa.Field, pa.Array]],
    absent: np.ndarray[Any, Any],
    *,
    name: str | None = None,
    nullable: bool = True,
) -> tuple[pa.Field, pa.Array]:
    """A struct of columns, null where absent. Parquet wants a value even in a required field of a null struct."""
    fields = [f for f, _ in leaves]
    arrays = [values if f.nullable else _no_nulls(values) for f, values in leaves]
    made = pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(absent) if absent.any() else None)
    return _field_with_id(name or STRUCT_NAMES[field_id], made.type, field_id, nullable), made


def _no_nulls(values: pa.Array) -> pa.Array:
    if not values.null_count:
        return values
    return pc.fill_null(values, pa.scalar("" if pa.types.is_string(values.type) else 0, values.type))


def _partition_field(
    rows: pa.Table, specs: Specs, is_manifest: np.ndarray[Any, Any]
) -> dict[int, tuple[pa.Field, pa.Array]]:
    """The union tuple of the specs that files have; null for manifests and files of unpartitioned specs."""
    known = {s for s in pc.unique(rows["spec_id"].filter(pa.array(~is_manifest))).to_pylist() if s is not None}
    typed = [u for u in specs.union if not pa.types.is_null(u.arrow_type) and not known.isdisjoint(u.spec_ids)]
    if not typed:
        return {}
    ids = [u.field.field_id for u in typed]
    if len(set(ids)) < len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        raise UnsupportedFeature(
            f"Cannot write a version 4 manifest: partition field {twice} means different things in different specs."
        )
    names = [u.field.name for u in typed]
    leaves = [
        (
            _field_with_id(_unique(u.field.name, names, u.field.field_id), u.arrow_type, u.field.field_id),
            combine_chunks(rows[u.column]),
        )
        for u in typed
    ]
    unpartitioned = [s for s in specs.by_id if specs.is_unpartitioned(s)]
    spec_ids = pc.fill_null(rows["spec_id"], -1).to_numpy()
    absent = is_manifest | np.isin(spec_ids, [*unpartitioned, -1])
    return {PARTITION: _struct_with_id(PARTITION, leaves, absent)}


def _unique(name: str, names: list[str], field_id: int) -> str:
    return name if names.count(name) == 1 else f"{name}_{field_id}"


def _statistics_field(rows: pa.Table, schema: Schema) -> dict[int, tuple[pa.Field, pa.Array]]:
    present, count = set(rows.schema.names), rows.num_rows
    leaves = []
    known = np.zeros(count, bool)
    for field_id, field in statistics.columns_with_statistics(schema).items():
        own = {m: statistics.metric_column(field_id, m) for m in statistics.METRICS}
        own = {m: c for m, c in own.items() if c in present and rows[c].null_count < count}
        if not own:
            continue
        base = statistics.statistics_id(field_id)
        arrays = {m: combine_chunks(rows[c].cast(statistics.metric_type(field, m))) for m, c in own.items()}
        valid = np.logical_or.reduce([values.is_valid().to_numpy(zero_copy_only=False) for values in arrays.values()])
        # the Iceberg library cannot read statistics that do not tell whether bounds are tight
        arrays[statistics.TIGHT] = pc.fill_null(arrays.get(statistics.TIGHT, pa.nulls(count, pa.bool_())), False)
        inner = [
            (_field_with_id(statistics.METRICS[m], statistics.metric_type(field, m), base + m), arrays[m])
            for m in sorted(arrays)
        ]
        leaves.append(_struct_with_id(base, inner, ~valid, name=field.name))
        known |= valid
    return {STATISTICS: _struct_with_id(STATISTICS, leaves, ~known)} if leaves else {}


def _ranges_field(rows: pa.Table, specs: Specs, absent: np.ndarray[Any, Any]) -> dict[int, tuple[pa.Field, pa.Array]]:
    """The ranges of partition fields over each leaf, and how many of its rows have a vector."""
    leaves = [(_field_with_id("vectors", pa.int64(), RANGES + 1), combine_chunks(rows["vectors"]))]
    for u in specs.union:
        own = {e: range_column(u.column, e) for e in _RANGE_ENDS}
        own = {e: c for e, c in own.items() if c in rows.schema.names and rows[c].null_count < rows.num_rows}
        if own:
            base = RANGES + 10 * u.field.field_id
            inner = [
                (_field_with_id(_RANGE_ENDS[e][0], rows[c].type, base + e), combine_chunks(rows[c]))
                for e, c in own.items()
            ]
            valid = np.logical_or.reduce([values.is_valid().to_numpy(zero_copy_only=False) for _, values in inner])
            leaves.append(_struct_with_id(base, inner, ~valid, name=f"{u.field.name}_{u.field.field_id}"))
    return {RANGES: _struct_with_id(RANGES, leaves, absent)}
