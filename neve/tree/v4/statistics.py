"""Typed statistics of columns: one struct per column in a row of the tree, lists of (field id, value) above it.

The metric `m` of column `f` has the id `10000 + 200 * f + m`. Only columns the table still has are kept, each in the
type it has now. Sizes of columns have no place in version 4.

Bounds made wider so that they take fewer bytes: round numbers, short strings.

A range grows by a 16th of itself at most on either side, so what it rules out is almost the same. Ranges that are not
understood stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DoubleType,
    FloatType,
    GeographyType,
    GeometryType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    UnknownType,
)

from neve.io.parquet_by_field_id import IdPath, IdTable
from neve.model.partition import value_arrow_type
from neve.model.values import combine_chunks, decode_values_exactly, encode_values
from neve.tree.entries import BOUNDS, COUNTS, EntryTable
from neve.tree.v4.fields import STATISTICS

_STEPS = 16
_MAX_EXACT_FLOAT = 1 << 52  # whole numbers that a float holds exactly
_EXTRA_CHARACTERS = 4  # characters beyond those that both ends share
_LAST_CHARACTER = 0xD7FF  # before the surrogates, which are no characters


_CALENDARS = (
    (pa.types.is_date32, (-719_162, 2_932_896)),
    (pa.types.is_time64, (0, 86_399_999_999)),
    (
        lambda kind: pa.types.is_timestamp(kind) and kind.unit == "us",
        (-62_135_596_800_000_000, 253_402_300_799_999_999),
    ),
)
"""The first and the last day, microsecond of a day, and microsecond between the years 1 and 9999."""


def widen_bounds(lower: pa.Scalar, upper: pa.Scalar) -> tuple[pa.Scalar, pa.Scalar]:
    """A range around another one, of the same type."""
    kind = lower.type
    if pa.types.is_integer(kind):
        return _widen_integers(lower, upper, kind)
    if pa.types.is_temporal(kind):
        return _widen_temporal(lower, upper, pa.int32() if pa.types.is_date32(kind) else pa.int64())
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return _widen_floats(lower, upper, kind)
    return _widen_text(lower, upper) if pa.types.is_string(kind) else (lower, upper)


def _widen_temporal(lower: pa.Scalar, upper: pa.Scalar, storage: pa.DataType) -> tuple[pa.Scalar, pa.Scalar]:
    """Dates and times as the numbers they are stored as; a bound stays where a rounder one would leave the calendar."""
    low, high = _widen_integers(lower.cast(storage), upper.cast(storage), storage)
    first, last = next((span for is_one, span in _CALENDARS if is_one(lower.type)), (None, None))
    is_before = first is not None and low.as_py() < first
    is_behind = last is not None and high.as_py() > last
    return (lower if is_before else low.cast(lower.type)), (upper if is_behind else high.cast(upper.type))


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
_MAPS = {
    "value_counts": VALUES,
    "null_value_counts": NULLS,
    "nan_value_counts": NANS,
    "lower_bounds": LOWER,
    "upper_bounds": UPPER,
}
_FIRST_ID, _IDS_PER_COLUMN, _MAX_FIELD_ID = 10_000, 200, 999_950

_CACHE_SIZE = 64
_COLUMNS_CACHE: dict[int, tuple[Schema, dict[int, NestedField]]] = {}
"""What was found out about the last schemas: each leaf asks again, and schemas cannot be hashed."""

Columns = Mapping[str, Any]  # arrays by name


def statistics_id(field_id: int) -> int:
    """The id of the statistics of a column."""
    return _FIRST_ID + _IDS_PER_COLUMN * field_id


def metric_column(field_id: int, metric: int) -> str:
    """The column in memory of a metric."""
    return f"s{field_id}.{metric}"


def columns_with_statistics(schema: Schema) -> dict[int, NestedField]:
    """The columns that have statistics: of primitive types, on their own or in structs."""
    known = _COLUMNS_CACHE.get(id(schema))
    if known is not None and known[0] is schema:
        return known[1]
    found = {f.field_id: f for f in _primitive_fields(schema.fields, "") if f.field_id < _MAX_FIELD_ID}
    if len(_COLUMNS_CACHE) >= _CACHE_SIZE:
        _COLUMNS_CACHE.clear()
    _COLUMNS_CACHE[id(schema)] = schema, found
    return found


def _primitive_fields(fields: tuple[NestedField, ...], prefix: str) -> Iterator[NestedField]:
    for field in fields:
        if isinstance(field.field_type, StructType):
            yield from _primitive_fields(field.field_type.fields, f"{prefix}{field.name}_")
        elif _has_order(field.field_type):
            yield NestedField(field.field_id, prefix + field.name, field.field_type, required=field.required)


def _has_order(kind: Any) -> bool:
    return isinstance(kind, PrimitiveType) and not isinstance(kind, GeometryType | GeographyType | UnknownType)


def metric_type(field: NestedField, metric: int) -> pa.DataType | None:
    """The type of a metric; None where the column has no such metric."""
    if metric in (LOWER, UPPER):
        return value_arrow_type(field.field_type)
    if metric == NANS and not isinstance(field.field_type, FloatType | DoubleType):
        return None
    if metric == SIZE:
        return pa.int32() if isinstance(field.field_type, StringType | BinaryType) else None
    return pa.bool_() if metric == TIGHT else pa.int64()


def metric_paths(
    table: IdTable,
    schema: Schema,
    metrics: Collection[int] = tuple(METRICS),
    columns: Collection[int] | None = None,
) -> dict[str, IdPath]:
    """Where a file has which statistics of columns the table still has, of all columns or of those named."""
    kept = {i: f for i, f in columns_with_statistics(schema).items() if columns is None or i in columns}
    found: dict[str, IdPath] = {}
    for base in table.child_ids((STATISTICS,)):
        field_id = (base - _FIRST_ID) // _IDS_PER_COLUMN
        for metric in metrics:
            path = (STATISTICS, base, base + metric)
            if base >= _FIRST_ID and field_id in kept and metric_type(kept[field_id], metric) and table.has(path):
                found[metric_column(field_id, metric)] = path
    return found


def from_maps(entries: EntryTable, schema: Schema) -> dict[str, pa.Array]:
    """The statistics of entries as columns; only those that some entry has."""
    kept, found = columns_with_statistics(schema), {}
    for name, metric in _MAPS.items():
        if not entries.has(name):
            continue
        for field_id, values in _values_by_field_id(entries[name]):
            if field_id in kept and (kind := metric_type(kept[field_id], metric)) is not None:
                is_bound = metric in (LOWER, UPPER)
                typed = decode_values_exactly(values, kept[field_id].field_type) if is_bound else values
                found[metric_column(field_id, metric)] = typed.cast(kind)
    return found | _loose(found, len(entries))


def _loose(found: Columns, rows: int) -> dict[str, pa.Array]:
    """Bounds of lists may be cut short, and nothing tells which are."""
    names = {name.split(".")[0] for name in found if name.endswith((f".{LOWER}", f".{UPPER}"))}
    loose = pa.array(np.zeros(rows, bool))
    return {f"{name}.{TIGHT}": pc.if_else(_has_bound(found, name), loose, None) for name in names}


def _has_bound(found: Columns, name: str) -> pa.Array:
    flags = [found[f"{name}.{m}"].is_valid() for m in (LOWER, UPPER) if f"{name}.{m}" in found]
    return flags[0] if len(flags) == 1 else pc.or_(*flags)


def _values_by_field_id(column: pa.ChunkedArray) -> Iterator[tuple[int, pa.Array]]:
    """The values of each field id in a column of lists, one for each list, null where a list has none."""
    lists = column.combine_chunks()
    rows = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    items = pc.list_flatten(lists)
    keys = items.field("key").to_numpy(zero_copy_only=False)
    order = np.argsort(keys, kind="stable")
    ids, starts = np.unique(keys[order], return_index=True)
    for field_id, hits in zip(ids.tolist(), np.split(order, starts[1:]), strict=False):
        place = np.full(len(lists), -1, np.int64)
        place[rows[hits]] = hits
        yield field_id, items.field("value").take(pa.array(place, mask=place < 0))


def as_maps(columns: Columns, schema: Schema, rows: int, names: Collection[str]) -> dict[str, pa.Array]:
    """Statistics as the lists of entries; a list of nothing is null."""
    kept = columns_with_statistics(schema)
    return {name: _build_map(columns, kept, rows, _MAPS[name]) for name in names if name in _MAPS}


def _build_map(columns: Columns, kept: Mapping[int, NestedField], rows: int, metric: int) -> pa.Array:
    kind = BOUNDS if metric in (LOWER, UPPER) else COUNTS
    found = [(i, columns[metric_column(i, metric)]) for i in sorted(kept) if metric_column(i, metric) in columns]
    found = [(i, values) for i, values in found if values.null_count < len(values)]
    if not found or not rows:
        return pa.nulls(rows, kind)
    if metric in (LOWER, UPPER):
        found = [(i, encode_values(values, kept[i].field_type)) for i, values in found]
    return _combine_into_lists(found, rows, kind)


def _combine_into_lists(found: list[tuple[int, pa.Array]], rows: int, kind: pa.DataType) -> pa.Array:
    """Columns side by side as one list a row, without nulls."""
    stacked = pa.concat_arrays([combine_chunks(values) for _, values in found])
    valid = stacked.is_valid().to_numpy(zero_copy_only=False).reshape(len(found), rows)
    taken = np.arange(stacked.__len__()).reshape(len(found), rows).T[valid.T]
    ids = np.array([i for i, _ in found], np.int32)
    keys = np.broadcast_to(ids, (rows, len(found)))[valid.T]
    counts = valid.sum(axis=0)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    pair = kind.value_type
    items = pa.StructArray.from_arrays([pa.array(keys), stacked.take(pa.array(taken))], fields=list(pair))
    return pa.ListArray.from_arrays(pa.array(offsets), items, type=kind, mask=pa.array(counts == 0))


def aggregate_metrics(columns: Columns, schema: Schema) -> dict[str, pa.Scalar]:
    """The statistics of many files as one: counts summed, the outermost bounds; what one file does not know, none does.

    A file that holds nothing but nulls and NaNs in a column has no bounds there, and widens none.
    """
    found: dict[str, pa.Scalar] = {}
    for field_id, field in columns_with_statistics(schema).items():
        own = {
            m: combine_chunks(columns[c]) for m in METRICS if (c := metric_column(field_id, m)) in columns and m != SIZE
        }
        found |= {metric_column(field_id, m): value for m, value in _aggregate_column(own, field) if value.is_valid}
    return found


def shorten_bounds(found: Mapping[str, pa.Scalar]) -> dict[str, pa.Scalar]:
    """Statistics of many files as a root lists them: what prunes leaves, in few bytes, since each commit writes them.

    Bounds are widened to round values. How many values there are matters only beside nulls and NaNs, and no bound is
    tight.
    """
    kept = dict(found)
    for field_id in {name.split(".")[0] for name in found}:
        lower, upper, tight, values, nulls, nans = (
            f"{field_id}.{m}" for m in (LOWER, UPPER, TIGHT, VALUES, NULLS, NANS)
        )
        kept |= {tight: pa.scalar(False)} if tight in kept else {}
        if nulls in kept and not kept[nulls].as_py() and not (nans in kept and kept[nans].as_py()):
            kept.pop(values, None)
        if lower in kept and upper in kept:
            kept[lower], kept[upper] = widen_bounds(kept[lower], kept[upper])
    return kept


def _aggregate_column(own: Mapping[int, pa.Array], field: NestedField) -> Iterator[tuple[int, pa.Scalar]]:
    for metric in (VALUES, NULLS, NANS):
        if metric in own and not own[metric].null_count:
            yield metric, pc.sum(own[metric])
    empty = _holds_no_value(own, isinstance(field.field_type, FloatType | DoubleType))
    for metric, step in ((LOWER, pc.min), (UPPER, pc.max)):
        if metric in own and pc.all(pc.or_(_has_valid_bound(own, metric), empty)).as_py():
            yield metric, step(own[metric])
    if TIGHT in own and pc.all(pc.or_(own[TIGHT].is_valid(), empty)).as_py():
        yield TIGHT, pc.all(own[TIGHT])


def _has_valid_bound(own: Mapping[int, pa.Array], metric: int) -> pa.Array:
    """Which files tell a bound: not one that is NaN, nor one of two the wrong way round, as old writers left them."""
    told = own[metric].is_valid()
    if pa.types.is_floating(own[metric].type):
        told = pc.and_(told, pc.invert(pc.is_nan(own[metric]).fill_null(False)))
    if LOWER in own and UPPER in own:
        lower, upper = (_in_order(own[m]) for m in (LOWER, UPPER))
        told = pc.and_(told, pc.less_equal(lower, upper).fill_null(True))
    return told


def _in_order(values: pa.Array) -> pa.Array:
    return values.cast(pa.binary()) if pa.types.is_fixed_size_binary(values.type) else values


def _holds_no_value(own: Mapping[int, pa.Array], floating: bool) -> pa.Array:
    rows = len(next(iter(own.values()))) if own else 0
    if VALUES not in own or NULLS not in own or (floating and NANS not in own):
        return pa.array(np.zeros(rows, bool))
    others = pc.add(own[NULLS], own[NANS]) if floating else own[NULLS]
    return pc.fill_null(pc.and_(pc.equal(own[VALUES], others), pc.greater(own[VALUES], 0)), False)
