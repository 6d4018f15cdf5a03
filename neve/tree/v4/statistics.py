"""Column statistics of version 4: one struct per column in a row of the tree, lists of (field id, value) in entries.

The metric `m` of column `f` has the id `10000 + 200 * f + m`. Only columns that the table still has are kept, each in
its present type. Version 4 has no column sizes.

In a root the bounds of leaves are widened so that they take fewer bytes: round numbers, short strings. A range grows by
a 16th of itself at most on either side, so it rules out almost as much. Ranges of other types stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from neve.io.parquet_by_field_id import IdPath, IdTable
from neve.model.partition import value_arrow_type
from neve.model.v3_types import GEO_TYPES, VariantType
from neve.model.values import combine_chunks, decode_values_exactly, encode_values
from neve.tree.entries import BOUNDS, COUNTS, EntryTable
from neve.tree.v4.fields import STATISTICS

LOWER, UPPER, TIGHT, VALUES, NULLS, NANS, SIZE = 1, 2, 3, 4, 5, 6, 7
METRICS = {
    LOWER: "lower_bound",
    UPPER: "upper_bound",
    TIGHT: "tight_bounds",
    VALUES: "value_count",
    NULLS: "null_value_count",
    NANS: "nan_value_count",
    SIZE: "avg_value_size_in_bytes",
}
METRIC_BY_DETAIL = {  # the detail columns of entries
    "value_counts": VALUES,
    "null_value_counts": NULLS,
    "nan_value_counts": NANS,
    "lower_bounds": LOWER,
    "upper_bounds": UPPER,
}
_FIRST_ID, _IDS_PER_COLUMN, _MAX_FIELD_ID = 10_000, 200, 999_950

_CACHE_SIZE = 64
_COLUMNS_CACHE: dict[int, tuple[Schema, dict[int, ice.NestedField]]] = {}
"""The columns of the last schemas, by id of the object: every leaf needs them, and schemas cannot be hashed."""

_STEPS = 16  # bounds are rounded to steps of a 16th of the range at most
_MAX_EXACT_FLOAT = 1 << 52  # a float has integers up to this exactly
_EXTRA_CHARACTERS = 4  # kept after the prefix that both ends share
_LAST_CHARACTER = 0xD7FF  # before the surrogates, which are not characters
_CALENDARS = (
    (pa.types.is_date32, (-719_162, 2_932_896)),
    (pa.types.is_time64, (0, 86_399_999_999)),
    (
        lambda kind: pa.types.is_timestamp(kind) and kind.unit == "us",
        (-62_135_596_800_000_000, 253_402_300_799_999_999),
    ),
)
"""The first and the last day, microsecond of a day, and microsecond between the years 1 and 9999."""

Columns = Mapping[str, Any]  # arrays by name


def statistics_id(field_id: int) -> int:
    """Return the field id of the statistics of a column."""
    return _FIRST_ID + _IDS_PER_COLUMN * field_id


def metric_column(field_id: int, metric: int) -> str:
    """Return the name of the column in memory for a metric."""
    return f"s{field_id}.{metric}"


def columns_with_statistics(schema: Schema) -> dict[int, ice.NestedField]:
    """Return the columns that have statistics: those of primitive types, at the top level or in structs."""
    cached = _COLUMNS_CACHE.get(id(schema))
    if cached is not None and cached[0] is schema:
        return cached[1]
    columns = {f.field_id: f for f in _primitive_fields(schema.fields, "") if f.field_id < _MAX_FIELD_ID}
    if len(_COLUMNS_CACHE) >= _CACHE_SIZE:
        _COLUMNS_CACHE.clear()
    _COLUMNS_CACHE[id(schema)] = schema, columns
    return columns


def _primitive_fields(fields: tuple[ice.NestedField, ...], prefix: str) -> Iterator[ice.NestedField]:
    without_order = GEO_TYPES | VariantType | ice.UnknownType
    for field in fields:
        kind = field.field_type
        if isinstance(kind, ice.StructType):
            yield from _primitive_fields(kind.fields, f"{prefix}{field.name}_")
        elif isinstance(kind, ice.PrimitiveType) and not isinstance(kind, without_order):
            yield ice.NestedField(field.field_id, prefix + field.name, kind, required=field.required)


def metric_type(field: ice.NestedField, metric: int) -> pa.DataType | None:
    """Return the type of a metric; None if the column has no such metric."""
    if metric in (LOWER, UPPER):
        return value_arrow_type(field.field_type)
    if metric == NANS and not isinstance(field.field_type, ice.FloatType | ice.DoubleType):
        return None
    if metric == SIZE:
        return pa.int32() if isinstance(field.field_type, ice.StringType | ice.BinaryType) else None
    return pa.bool_() if metric == TIGHT else pa.int64()


def metric_paths(
    table: IdTable, schema: Schema, metrics: Collection[int] = tuple(METRICS), columns: Collection[int] | None = None
) -> dict[str, IdPath]:
    """Return the paths of statistics in a file, for the given columns or all, as far as the table still has them."""
    fields = {i: f for i, f in columns_with_statistics(schema).items() if columns is None or i in columns}
    paths: dict[str, IdPath] = {}
    for base in table.child_ids((STATISTICS,)):
        field_id = (base - _FIRST_ID) // _IDS_PER_COLUMN
        for metric in metrics:
            path = (STATISTICS, base, base + metric)
            if base >= _FIRST_ID and field_id in fields and metric_type(fields[field_id], metric) and table.has(path):
                paths[metric_column(field_id, metric)] = path
    return paths


def from_maps(entries: EntryTable, schema: Schema) -> dict[str, pa.Array]:
    """Return the statistics of entries as columns; only those that an entry has."""
    fields = columns_with_statistics(schema)
    columns: dict[str, pa.Array] = {}
    for name, metric in METRIC_BY_DETAIL.items():
        if not entries.has(name):
            continue
        for field_id, values in _values_by_field_id(entries[name]):
            if field_id in fields and (kind := metric_type(fields[field_id], metric)) is not None:
                is_bound = metric in (LOWER, UPPER)
                typed = decode_values_exactly(values, fields[field_id].field_type) if is_bound else values
                columns[metric_column(field_id, metric)] = typed.cast(kind)
    # Bounds in lists may be truncated, and nothing shows which are: none counts as tight.
    not_tight = pa.array(np.zeros(len(entries), bool))
    for prefix in {name.split(".")[0] for name in columns if name.endswith((f".{LOWER}", f".{UPPER}"))}:
        flags = [columns[name].is_valid() for m in (LOWER, UPPER) if (name := f"{prefix}.{m}") in columns]
        columns[f"{prefix}.{TIGHT}"] = pc.if_else(reduce(pc.or_, flags), not_tight, None)
    return columns


def _values_by_field_id(column: pa.ChunkedArray) -> Iterator[tuple[int, pa.Array]]:
    """Return the values of each field id in a column of lists: one for each list, null if a list has none."""
    lists = column.combine_chunks()
    rows = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    items = pc.list_flatten(lists)
    keys = items.field("key").to_numpy(zero_copy_only=False)
    order = np.argsort(keys, kind="stable")
    ids, starts = np.unique(keys[order], return_index=True)
    for field_id, hits in zip(ids.tolist(), np.split(order, starts[1:]), strict=False):
        numbers = np.full(len(lists), -1, np.int64)
        numbers[rows[hits]] = hits
        yield field_id, items.field("value").take(pa.array(numbers, mask=numbers < 0))


def as_maps(columns: Columns, schema: Schema, rows: int, names: Collection[str]) -> dict[str, pa.Array]:
    """Return statistics as the lists of entries; an empty list is null."""
    fields = columns_with_statistics(schema)
    metrics = {name: METRIC_BY_DETAIL[name] for name in names if name in METRIC_BY_DETAIL}
    return {name: _build_map(columns, fields, rows, metric) for name, metric in metrics.items()}


def _build_map(columns: Columns, fields: Mapping[int, ice.NestedField], rows: int, metric: int) -> pa.Array:
    kind = BOUNDS if metric in (LOWER, UPPER) else COUNTS
    own = [(i, columns[metric_column(i, metric)]) for i in sorted(fields) if metric_column(i, metric) in columns]
    own = [(i, values) for i, values in own if values.null_count < len(values)]
    if not own or not rows:
        return pa.nulls(rows, kind)
    if metric in (LOWER, UPPER):
        own = [(i, encode_values(values, fields[i].field_type)) for i, values in own]
    # Combine the columns to one list per row of (column id, value), without nulls.
    stacked = pa.concat_arrays([combine_chunks(values) for _, values in own])
    valid = stacked.is_valid().to_numpy(zero_copy_only=False).reshape(len(own), rows)
    in_row_order = np.arange(len(stacked)).reshape(len(own), rows).T[valid.T]
    keys = np.broadcast_to(np.array([i for i, _ in own], np.int32), (rows, len(own)))[valid.T]
    counts = valid.sum(axis=0)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    values = stacked.take(pa.array(in_row_order))
    items = pa.StructArray.from_arrays([pa.array(keys), values], fields=list(kind.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets), items, type=kind, mask=pa.array(counts == 0))


def aggregate_metrics(columns: Columns, schema: Schema) -> dict[str, pa.Scalar]:
    """Combine the statistics of many files: the sums of counts, and the outermost bounds.

    A metric that one file lacks is left out. A file with only nulls and NaNs in a column has no bounds, and does not
    count for them.
    """
    combined: dict[str, pa.Scalar] = {}
    for field_id, field in columns_with_statistics(schema).items():
        own = {
            m: combine_chunks(columns[c]) for m in METRICS if (c := metric_column(field_id, m)) in columns and m != SIZE
        }
        values = {m: pc.sum(own[m]) for m in (VALUES, NULLS, NANS) if m in own and not own[m].null_count}
        empty = _holds_no_value(own, isinstance(field.field_type, ice.FloatType | ice.DoubleType))
        for metric, step in ((LOWER, pc.min), (UPPER, pc.max)):
            if metric in own and pc.all(pc.or_(_has_valid_bound(own, metric), empty)).as_py():
                values[metric] = step(own[metric])
        if TIGHT in own and pc.all(pc.or_(own[TIGHT].is_valid(), empty)).as_py():
            values[TIGHT] = pc.all(own[TIGHT])
        combined |= {metric_column(field_id, m): value for m, value in values.items() if value.is_valid}
    return combined


def _has_valid_bound(own: Mapping[int, pa.Array], metric: int) -> pa.Array:
    """Return a mask of the files with a usable bound: not NaN, and not lower above upper, as old writers wrote."""
    kind, is_valid = own[metric].type, own[metric].is_valid()
    if pa.types.is_floating(kind):
        is_valid = pc.and_(is_valid, pc.invert(pc.is_nan(own[metric]).fill_null(False)))
    if LOWER in own and UPPER in own:
        lower, upper = own[LOWER], own[UPPER]
        if pa.types.is_fixed_size_binary(kind):
            lower, upper = lower.cast(pa.binary()), upper.cast(pa.binary())
        is_valid = pc.and_(is_valid, pc.less_equal(lower, upper).fill_null(True))
    return is_valid


def _holds_no_value(own: Mapping[int, pa.Array], floating: bool) -> pa.Array:
    rows = len(next(iter(own.values()))) if own else 0
    if VALUES not in own or NULLS not in own or (floating and NANS not in own):
        return pa.array(np.zeros(rows, bool))
    others = pc.add(own[NULLS], own[NANS]) if floating else own[NULLS]
    return pc.fill_null(pc.and_(pc.equal(own[VALUES], others), pc.greater(own[VALUES], 0)), False)


def shorten_bounds(metrics: Mapping[str, pa.Scalar]) -> dict[str, pa.Scalar]:
    """Reduce combined statistics to what prunes leaves, in few bytes: every commit writes them to the root.

    Bounds are widened to round values, so none is tight. Value counts are dropped if there are neither nulls nor NaNs.
    """
    short = dict(metrics)
    for prefix in {name.split(".")[0] for name in metrics}:
        lower, upper, tight, values, nulls, nans = (f"{prefix}.{m}" for m in (LOWER, UPPER, TIGHT, VALUES, NULLS, NANS))
        if tight in short:
            short[tight] = pa.scalar(False)
        if nulls in short and not short[nulls].as_py() and not (nans in short and short[nans].as_py()):
            short.pop(values, None)
        if lower in short and upper in short:
            short[lower], short[upper] = widen_bounds(short[lower], short[upper])
    return short


def widen_bounds(lower: pa.Scalar, upper: pa.Scalar) -> tuple[pa.Scalar, pa.Scalar]:
    """Return a range of the same type around another one."""
    kind = lower.type
    if pa.types.is_integer(kind):
        return _widen_integers(lower, upper, kind)
    if pa.types.is_temporal(kind):
        return _widen_temporal(lower, upper, pa.int32() if pa.types.is_date32(kind) else pa.int64())
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return _widen_floats(lower, upper, kind)
    return _widen_text(lower, upper) if pa.types.is_string(kind) else (lower, upper)


def _widen_temporal(lower: pa.Scalar, upper: pa.Scalar, storage: pa.DataType) -> tuple[pa.Scalar, pa.Scalar]:
    """Widen dates and times as integers; a bound stays if the rounder one would be outside the calendar."""
    low, high = _widen_integers(lower.cast(storage), upper.cast(storage), storage)
    first, last = next((span for is_type, span in _CALENDARS if is_type(lower.type)), (None, None))
    is_before = first is not None and low.as_py() < first
    is_after = last is not None and high.as_py() > last
    return (lower if is_before else low.cast(lower.type)), (upper if is_after else high.cast(upper.type))


def _widen_integers(lower: pa.Scalar, upper: pa.Scalar, kind: pa.DataType) -> tuple[pa.Scalar, pa.Scalar]:
    low, high = lower.as_py(), upper.as_py()
    step = 1 << max(0, ((high - low) // _STEPS).bit_length() - 1)
    limit = 1 << (kind.bit_width - 1)
    low, high = low // step * step, -(-high // step) * step
    return (lower if low < -limit else pa.scalar(low, kind)), (upper if high >= limit else pa.scalar(high, kind))


def _widen_floats(lower: pa.Scalar, upper: pa.Scalar, kind: pa.DataType) -> tuple[pa.Scalar, pa.Scalar]:
    low, high = lower.as_py(), upper.as_py()
    width = high - low
    if not math.isfinite(width) or width <= 0:
        return lower, upper
    step = math.ldexp(1.0, math.frexp(width / _STEPS)[1] - 1)
    if step == 0 or abs(low / step) > _MAX_EXACT_FLOAT or abs(high / step) > _MAX_EXACT_FLOAT:
        return lower, upper
    ends = pa.scalar(math.floor(low / step) * step, kind), pa.scalar(math.ceil(high / step) * step, kind)
    is_around = ends[0].as_py() <= low and high <= ends[1].as_py() and math.isfinite(ends[1].as_py() - ends[0].as_py())
    return ends if is_around else (lower, upper)


def _widen_text(lower: pa.Scalar, upper: pa.Scalar) -> tuple[pa.Scalar, pa.Scalar]:
    low, high = lower.as_py(), upper.as_py()
    shared = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    end = shared + _EXTRA_CHARACTERS
    short = high[:end]
    if len(high) > end:
        if not ord(short[-1]) < _LAST_CHARACTER:
            return pa.scalar(low[:end]), upper
        short = short[:-1] + chr(ord(short[-1]) + 1)
    return pa.scalar(low[:end]), pa.scalar(short)
