r"""What a data file says about its columns in the manifest: sizes, counts and bounds.

Sizes, counts and bounds come from the Parquet footer, which the writer still holds when the file is closed. Two
things are counted while rows pass: NaNs, which Parquet does not know, and the bounds of columns with values so long
that Parquet leaves them out. Columns inside lists and maps have sizes and counts, never bounds.

Lower and upper bounds of a column in a data file, cut to a length without ever becoming wrong.

A bound that is cut still holds: a prefix is never above the value, and a prefix whose last character is raised is
above every value that begins with it. Where no such prefix exists there is no bound.

>>> upper_text("abc", 2), upper_text("ab", 2), upper_text("\U0010ffff\U0010ffff", 1)
('ac', 'ab', None)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.transforms import IdentityTransform, TimeTransform, TruncateTransform
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
)

from neve.model.properties import MetricsMode, TableProperties
from neve.run.read.metadata_columns import LAST_UPDATED, ROW_ID
from neve.run.write.file_schema import stored_fields

RawValue = bool | int | float | bytes
"""A value as Parquet stores it: strings as UTF-8, decimals unscaled, dates and times as counts."""

_LAST_CODE_POINT, _BEFORE_SURROGATES, _AFTER_SURROGATES = 0x10FFFF, 0xD7FF, 0xE000


def lower_bound(raw: RawValue, kind: PrimitiveType, length: int | None) -> bytes | None:
    """The serialised lower bound of a column whose least value is given; cut to a length, or whole."""
    if isinstance(kind, StringType) and isinstance(raw, bytes):
        return raw.decode()[:length].encode()
    if isinstance(kind, BinaryType | FixedType) and isinstance(raw, bytes):
        return raw[:length]
    return _serialize_bound(raw, kind)


def upper_bound(raw: RawValue, kind: PrimitiveType, length: int | None) -> bytes | None:
    """The serialised upper bound of a column whose greatest value is given; None when the cut value has none."""
    if isinstance(kind, StringType) and isinstance(raw, bytes):
        text = upper_text(raw.decode(), length)
        return None if text is None else text.encode()
    if isinstance(kind, BinaryType | FixedType) and isinstance(raw, bytes):
        return upper_binary(raw, length)
    return _serialize_bound(raw, kind)


def upper_text(text: str, length: int | None) -> str | None:
    """The least text of at most `length` characters that is not below any text beginning like this one."""
    if length is None or len(text) <= length:
        return text
    kept = text[:length].rstrip(chr(_LAST_CODE_POINT))
    if not kept:
        return None
    last = ord(kept[-1])
    return kept[:-1] + chr(_AFTER_SURROGATES if last == _BEFORE_SURROGATES else last + 1)


def upper_binary(data: bytes, length: int | None) -> bytes | None:
    """The same for bytes."""
    if length is None or len(data) <= length:
        return data
    kept = data[:length].rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _serialize_bound(raw: RawValue, kind: PrimitiveType) -> bytes:
    if isinstance(kind, DecimalType):
        return _twos_complement(int(raw))
    return to_bytes(kind, raw)


def _twos_complement(number: int) -> bytes:
    """A whole number in the fewest big-endian bytes, as the format stores decimals."""
    magnitude = number if number >= 0 else ~number
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


_NO_METRICS = MetricsMode(counts=False, bounds=False)
_SORTED_COLUMN_MODE = MetricsMode(counts=True, bounds=True, length=16)
_ORDER_PRESERVING = (IdentityTransform, TruncateTransform, TimeTransform)
_FOOTER_LIMIT = 4096  # Parquet leaves the bounds of a column out when one of them is longer
_VARIABLE_LENGTH = StringType | BinaryType | FixedType

Metrics = dict[str, list[Any]]
MinMax = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class LeafColumn:
    """A column as Parquet stores it: a value of a primitive type somewhere inside a table column."""

    field_id: int
    name: str
    kind: PrimitiveType
    path: tuple[str, ...]  # the steps from the table column down to it
    is_repeated: bool  # inside a list or a map
    mode: MetricsMode = _NO_METRICS

    @property
    def has_bounds(self) -> bool:
        """Whether bounds are recorded."""
        return self.mode.bounds and not self.is_repeated

    @property
    def is_floating(self) -> bool:
        """Whether values can be NaN."""
        return isinstance(self.kind, FloatType | DoubleType)

    @property
    def is_table_column(self) -> bool:
        """Whether the column is one of the table's own; readers look the others up in vain."""
        return self.field_id not in (ROW_ID.field_id, LAST_UPDATED.field_id)


@dataclass(slots=True)
class RowObservations:
    """What was seen of the rows of one file while they passed."""

    nan_counts: dict[int, int] = field(default_factory=dict)
    long_bounds: dict[tuple[int, int], MinMax] = field(default_factory=dict)  # by row group and field id

    def observe_rows(self, rows: pa.Table, leaves: Sequence[LeafColumn], row_group: int) -> None:
        """Take note of the rows of one row group."""
        for leaf in leaves:
            if leaf.is_floating and leaf.mode.counts:
                found = pc.sum(pc.is_nan(_leaf_values(rows, leaf.path))).as_py() or 0
                self.nan_counts[leaf.field_id] = self.nan_counts.get(leaf.field_id, 0) + found
            elif isinstance(leaf.kind, _VARIABLE_LENGTH) and leaf.has_bounds:
                self._observe_long_values(_leaf_values(rows, leaf.path), leaf.field_id, row_group)

    def _observe_long_values(self, values: Any, field_id: int, row_group: int) -> None:
        longest = pc.max(pc.binary_length(values)).as_py() or 0
        if longest > _FOOTER_LIMIT:
            ends = pc.min_max(values.cast(pa.binary())).as_py()
            self.long_bounds[row_group, field_id] = ends["min"], ends["max"]


def leaf_columns(schema: Schema, properties: TableProperties, order: SortOrder) -> tuple[LeafColumn, ...]:
    """The columns of the data files of a schema in the order of the file, with the metrics asked for each."""
    leaves = [leaf for f in stored_fields(schema.as_struct()) for leaf in _leaves_of_field(f, f.name, (), False)]
    default = _default_modes(leaves, properties)
    in_order = {f.source_id for f in order.fields if isinstance(f.transform, _ORDER_PRESERVING)}
    return tuple(_with_mode(leaf, default[leaf.field_id], properties, leaf.field_id in in_order) for leaf in leaves)


def _leaves_of_field(field: NestedField, name: str, above: tuple[str, ...], is_repeated: bool) -> Iterator[LeafColumn]:
    path = (*above, field.name)
    match field.field_type:
        case StructType() as struct:
            for child in stored_fields(struct):
                yield from _leaves_of_field(child, f"{name}.{child.name}", path, is_repeated)
        case ListType() as items:
            yield from _leaves_of_field(items.element_field, f"{name}.element", path, True)
        case MapType() as pairs:
            yield from _leaves_of_field(pairs.key_field, f"{name}.key", path, True)
            yield from _leaves_of_field(pairs.value_field, f"{name}.value", path, True)
        case PrimitiveType() as kind:
            yield LeafColumn(field.field_id, name, kind, path, is_repeated)


def _default_modes(leaves: Sequence[LeafColumn], properties: TableProperties) -> dict[int, MetricsMode]:
    """The mode of columns nobody named. A default that nobody chose stops after so many columns, outer ones first."""
    default = properties.metrics_default
    is_chosen = TableProperties.metrics_default.name in properties.values
    limit = len(leaves) if is_chosen else properties.metrics_max_inferred_columns
    outer_first = sorted(leaves, key=lambda leaf: len(leaf.path))
    return {leaf.field_id: default if at < limit else _NO_METRICS for at, leaf in enumerate(outer_first)}


def _with_mode(leaf: LeafColumn, default: MetricsMode, properties: TableProperties, is_sorted: bool) -> LeafColumn:
    asked = properties.metrics_mode_of(leaf.name)
    mode = asked if asked is not None else _SORTED_COLUMN_MODE if is_sorted and not default.bounds else default
    mode = mode if leaf.is_table_column else _NO_METRICS
    return LeafColumn(leaf.field_id, leaf.name, leaf.kind, leaf.path, leaf.is_repeated, mode)


def file_metrics(footer: Any, leaves: Sequence[LeafColumn], observed: RowObservations) -> Metrics:
    """The detail columns of one file, from the footer of a Parquet file and what was seen of its rows."""
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    metrics: Metrics = {name: [] for name in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")}
    metrics |= {"lower_bounds": [], "upper_bounds": [], "split_offsets": [_start_of(g.column(0)) for g in groups]}
    for at, leaf in enumerate(leaves):
        if leaf.is_table_column:
            _measure_column(leaf, [g.column(at) for g in groups], observed, metrics)
    return metrics


def _measure_column(leaf: LeafColumn, chunks: Sequence[Any], observed: RowObservations, metrics: Metrics) -> None:
    _add_metric(metrics, "column_sizes", leaf, sum(c.total_compressed_size for c in chunks))
    if not leaf.mode.counts:
        return
    _add_metric(metrics, "value_counts", leaf, sum(c.num_values for c in chunks))
    if all(c.is_stats_set and c.statistics.has_null_count for c in chunks):
        _add_metric(metrics, "null_value_counts", leaf, sum(c.statistics.null_count for c in chunks))
    if leaf.is_floating:
        _add_metric(metrics, "nan_value_counts", leaf, observed.nan_counts.get(leaf.field_id, 0))
    if leaf.has_bounds and (ends := _min_max(leaf, chunks, observed.long_bounds)):
        _add_metric(metrics, "lower_bounds", leaf, lower_bound(ends[0], leaf.kind, leaf.mode.length))
        _add_metric(metrics, "upper_bounds", leaf, upper_bound(ends[1], leaf.kind, leaf.mode.length))


def _add_metric(metrics: Metrics, name: str, leaf: LeafColumn, value: Any) -> None:
    if value is not None:
        metrics[name].append({"key": leaf.field_id, "value": value})


def _min_max(leaf: LeafColumn, chunks: Sequence[Any], long_bounds: Mapping[tuple[int, int], MinMax]) -> MinMax | None:
    """The least and the greatest value of a column, or None when there is none or a row group cannot tell."""
    known: list[MinMax] = []
    for row_group, chunk in enumerate(chunks):
        ends = long_bounds.get((row_group, leaf.field_id)) or _footer_min_max(chunk, leaf)
        if ends is not None:
            known.append(ends)
        elif not _is_without_values(chunk, leaf):
            return None
    return (min(low for low, _ in known), max(high for _, high in known)) if known else None


def _footer_min_max(chunk: Any, leaf: LeafColumn) -> MinMax | None:
    statistics = chunk.statistics
    if statistics is None or not statistics.has_min_max:
        return None
    low, high = statistics.min_raw, statistics.max_raw
    if isinstance(leaf.kind, DecimalType) and isinstance(low, bytes):  # as bytes, negative numbers would come last
        return int.from_bytes(low, "big", signed=True), int.from_bytes(high, "big", signed=True)
    return low, high


def _is_without_values(chunk: Any, leaf: LeafColumn) -> bool:
    """Whether a missing pair of bounds means that there is nothing to bound: only nulls, or only nulls and NaNs."""
    statistics = chunk.statistics
    return statistics is not None and (leaf.is_floating or statistics.null_count == chunk.num_values)


def _start_of(chunk: Any) -> int:
    dictionary = chunk.dictionary_page_offset if chunk.has_dictionary_page else None
    return int(chunk.data_page_offset if dictionary is None else min(dictionary, chunk.data_page_offset))


def _leaf_values(rows: pa.Table, path: Sequence[str]) -> Any:
    """The values of a nested column, without those of lists, maps and structs that are null."""
    values = rows.column(path[0])
    for step in path[1:]:
        if pa.types.is_map(values.type):
            pairs = values.cast(pa.list_(pa.struct([values.type.key_field, values.type.item_field])))
            values = pc.struct_field(pc.list_flatten(pairs), [step])  # a name alone may be read as a path
        elif pa.types.is_list(values.type):
            values = pc.list_flatten(values)
        else:
            values = pc.struct_field(values, [step])
    return values
