"""Read and write tracked-file rows: flat columns in memory, structs of fields with ids in a file.

A file has no partition struct if no spec has fields, and no statistics that no row has: Parquet has no empty struct.
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
from neve.model.values import combine_chunks, storage_array
from neve.tree.entries import MANIFESTS, Status, fit_to_type
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
    TrackedField,
)

_TYPES = {f.column: f.type for f in FIXED_FIELDS}
# The order of the top-level fields in a file; the others follow in the order of FIXED_FIELDS.
_FIELD_ORDER = (TRACKING, 134, 157, 100, 101, 103, 104, 141, PARTITION, STATISTICS, 140, VECTOR, MANIFEST_INFO)
_RANGE_ENDS = {  # by number: name, and type if it is not that of the partition field
    2: ("contains_null", pa.bool_()),
    3: ("contains_nan", pa.bool_()),
    4: ("lower", None),
    5: ("upper", None),
}


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
    """Read rows of a file: the named columns, the union tuple, and statistics of the given metrics.

    A column that the file does not have is null. With `keep_dictionaries`, names of formats stay dictionary-encoded if
    they are so in the file.
    """
    schema = specs.schemas[0]
    requested = set(names)
    fixed = {f.column: f.ids for f in FIXED_FIELDS if f.column in requested}
    partition_types: dict[str, pa.DataType] = {}
    partition_paths: dict[str, IdPath] = {}
    for u in specs.union:
        if partitions:
            partition_types[u.column], partition_paths[u.column] = u.arrow_type, (PARTITION, u.field.field_id)
        for end, (_, kind) in _RANGE_ENDS.items() if ranges else ():
            base, name = RANGES + 10 * u.field.field_id, range_column(u.column, end)
            if table.has(range_path := (RANGES, base, base + end)):
                partition_types[name], partition_paths[name] = kind or u.arrow_type, range_path
    stats = statistics.metric_paths(table, schema, metrics, columns) if metrics else {}
    by_path = table.read([*fixed.values(), *partition_paths.values(), *stats.values()], rows)
    count = table.rows if rows is None else len(rows)
    arrays: dict[str, pa.Array] = {}
    for name, path in fixed.items():
        values = by_path.get(path)
        keep = keep_dictionaries and _is_dictionary(values)
        arrays[name] = values if keep else _cast_column(values, _TYPES[name], count, table)
    for name, path in partition_paths.items():
        arrays[name] = _cast_partition(by_path.get(path), partition_types[name], count, table)
    fields = statistics.columns_with_statistics(schema) if stats else {}
    for name, path in stats.items():
        field_id, metric = map(int, name[1:].split("."))
        arrays[name] = _cast_statistic(by_path[path], statistics.metric_type(fields[field_id], metric))
    return pa.table(arrays)


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
    """Cast partition values to the type in the table; the nulls of a dropped field fit any type."""
    if values is None or pa.types.is_null(kind) or values.null_count == len(values):
        return pa.nulls(count, kind)
    if pa.types.is_date32(kind) and pa.types.is_integer(values.type):
        values = values.cast(pa.int32())
    return _cast_column(storage_array(values), kind, count, table)


def _cast_statistic(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a statistic to the present type of the column; one that does not fit becomes null: unknown."""
    values = storage_array(values)
    try:
        return values if values.type == kind else values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(values), kind)


def range_column(partition_column: str, end: int) -> str:
    """Return the name of the column in memory for one end of the range of a partition field."""
    return f"r{partition_column}.{end}"


def make_rows(columns: Mapping[str, Any], rows: int, specs: Specs) -> pa.Table:
    """Make rows of the given columns; missing fixed and partition columns are null."""
    types = _TYPES | {u.column: u.arrow_type for u in specs.union}
    arrays = {name: fit_to_type(columns.get(name), kind, rows) for name, kind in types.items()}
    return pa.table(arrays | {name: values for name, values in columns.items() if name not in types})


def concat_rows(tables: Iterable[pa.Table]) -> pa.Table:
    """Concatenate tables of rows; a column that only some have is null for the others."""
    return pa.concat_tables(list(tables), promote_options="permissive").combine_chunks()


def set_column(rows: pa.Table, name: str, values: Any) -> pa.Table:
    """Replace a column by another one of the same type."""
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), values)


def set_where(rows: pa.Table, mask: Any, **columns: Any) -> pa.Table:
    """Set new values in the selected rows: a scalar, None, or one value for each selected row."""
    mask = np.asarray(mask, bool)
    for name, values in columns.items():
        old = rows[name].combine_chunks()
        if not isinstance(values, pa.Array | pa.ChunkedArray | np.ndarray | list):
            new: Any = pa.scalar(values, old.type)
        else:
            new = combine_chunks(fit_to_type(values, old.type, 0)).take(pa.array(np.cumsum(mask) - 1, mask=~mask))
        rows = set_column(rows, name, pc.if_else(pa.array(mask), new, old))
    return rows


def fill_inherited(rows: pa.Table, sequence_numbers: Any, snapshot_ids: Any) -> pa.Table:
    """Fill in inherited snapshot ids, and sequence numbers of new rows: scalars, or arrays with a value for a row."""
    for name in ("sequence_number", "file_sequence_number"):
        if (own := rows[name]).null_count:
            is_new = pa.array(rows["status"].to_numpy() == Status.ADDED)
            rows = set_column(rows, name, pc.if_else(pc.and_(own.is_null(), is_new), sequence_numbers, own))
    if rows["snapshot_id"].null_count:
        rows = set_column(rows, "snapshot_id", pc.coalesce(rows["snapshot_id"], snapshot_ids))
    return rows


def encode_rows(rows: pa.Table, specs: Specs, *, is_root: bool, key_value_metadata: Mapping[str, str]) -> bytes:
    """Encode rows as a Parquet file, with key-value pairs in its footer."""
    nested = _nest_columns(rows.combine_chunks(), specs, is_root)
    return encode_parquet(nested, {**key_value_metadata, "iceberg.schema": _iceberg_schema(nested.schema)})


@lru_cache(maxsize=64)
def _iceberg_schema(schema: pa.Schema) -> str:
    return pyarrow_to_schema(schema).model_dump_json()


def _nest_columns(rows: pa.Table, specs: Specs, is_root: bool) -> pa.Table:
    omitted = frozenset() if is_root else ONLY_IN_ROOT
    own = [f for f in FIXED_FIELDS if f.column not in omitted and f.ids[0] != RANGES and _is_written(f, rows)]
    is_manifest = np.isin(rows["content_type"].to_numpy(), MANIFESTS)
    absent = {
        TRACKING: np.zeros(rows.num_rows, bool),
        VECTOR: rows["vector_location"].is_null().to_numpy(),
        MANIFEST_INFO: ~is_manifest,
    }
    by_id: dict[int, tuple[pa.Field, pa.Array]] = {}
    for top in dict.fromkeys(f.ids[0] for f in own):
        inner = [f for f in own if f.ids[0] == top]
        leaves = [
            (_field_with_id(f.name, f.type, f.ids[-1], not f.required), combine_chunks(rows[f.column])) for f in inner
        ]
        is_struct = len(inner[0].ids) > 1
        by_id[top] = _struct_with_id(top, leaves, absent[top], nullable=top != TRACKING) if is_struct else leaves[0]
    by_id |= _partition_field(rows, specs, is_manifest) | _statistics_field(rows, specs.schemas[0])
    by_id |= _ranges_field(rows, specs, ~is_manifest) if is_root and is_manifest.any() else {}
    order = [*(i for i in _FIELD_ORDER if i in by_id), *(i for i in by_id if i not in _FIELD_ORDER)]
    return pa.Table.from_arrays([by_id[i][1] for i in order], schema=pa.schema([by_id[i][0] for i in order]))


def _is_written(field: TrackedField, rows: pa.Table) -> bool:
    """Check whether a file needs a field: readers take a missing one for null, which costs nothing."""
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
    """Combine columns to a struct that is null where absent."""
    fields, arrays = [f for f, _ in leaves], [values for _, values in leaves]
    for i, values in enumerate(arrays):
        if values.null_count and not fields[i].nullable:  # Parquet needs a value, also where the struct is null
            arrays[i] = pc.fill_null(values, pa.scalar("" if pa.types.is_string(values.type) else 0, values.type))
    struct = pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(absent) if absent.any() else None)
    return _field_with_id(name or STRUCT_NAMES[field_id], struct.type, field_id, nullable), struct


def _partition_field(
    rows: pa.Table, specs: Specs, is_manifest: np.ndarray[Any, Any]
) -> dict[int, tuple[pa.Field, pa.Array]]:
    """Return the union tuple of the specs of the files; null for manifests and files of unpartitioned specs."""
    used = {s for s in pc.unique(rows["spec_id"].filter(pa.array(~is_manifest))).to_pylist() if s is not None}
    typed = [u for u in specs.union if not pa.types.is_null(u.arrow_type) and not used.isdisjoint(u.spec_ids)]
    if not typed:
        return {}
    ids = [u.field.field_id for u in typed]
    if len(set(ids)) < len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        raise UnsupportedFeature(
            f"Cannot write a version 4 manifest: partition field {twice} means different things in different specs."
        )
    names = [u.field.name for u in typed]
    leaves = []
    for u, field_id in zip(typed, ids, strict=True):
        name = u.field.name if names.count(u.field.name) == 1 else f"{u.field.name}_{field_id}"
        leaves.append((_field_with_id(name, u.arrow_type, field_id), combine_chunks(rows[u.column])))
    unpartitioned = [s for s in specs.by_id if specs.is_unpartitioned(s)]
    spec_ids = pc.fill_null(rows["spec_id"], -1).to_numpy()
    absent = is_manifest | np.isin(spec_ids, [*unpartitioned, -1])
    return {PARTITION: _struct_with_id(PARTITION, leaves, absent)}


def _statistics_field(rows: pa.Table, schema: Schema) -> dict[int, tuple[pa.Field, pa.Array]]:
    present, count = set(rows.schema.names), rows.num_rows
    leaves = []
    has_statistics = np.zeros(count, bool)
    for field_id, field in statistics.columns_with_statistics(schema).items():
        own = {m: statistics.metric_column(field_id, m) for m in statistics.METRICS}
        own = {m: c for m, c in own.items() if c in present and rows[c].null_count < count}
        if not own:
            continue
        base = statistics.statistics_id(field_id)
        arrays = {m: combine_chunks(rows[c].cast(statistics.metric_type(field, m))) for m, c in own.items()}
        valid = np.logical_or.reduce([values.is_valid().to_numpy(zero_copy_only=False) for values in arrays.values()])
        # The Iceberg library cannot read statistics without `tight_bounds`.
        arrays[statistics.TIGHT] = pc.fill_null(arrays.get(statistics.TIGHT, pa.nulls(count, pa.bool_())), False)
        inner = [
            (_field_with_id(statistics.METRICS[m], statistics.metric_type(field, m), base + m), arrays[m])
            for m in sorted(arrays)
        ]
        leaves.append(_struct_with_id(base, inner, ~valid, name=field.name))
        has_statistics |= valid
    return {STATISTICS: _struct_with_id(STATISTICS, leaves, ~has_statistics)} if leaves else {}


def _ranges_field(rows: pa.Table, specs: Specs, absent: np.ndarray[Any, Any]) -> dict[int, tuple[pa.Field, pa.Array]]:
    """Return the ranges of the partition fields over each leaf, and the number of its rows with a vector."""
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
