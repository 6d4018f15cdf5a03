r"""Column metrics of a data file for the manifest: sizes, counts and bounds.

They come from the Parquet footer, which the writer still holds when the file is closed. Two things are collected while
rows are written: the number of NaNs, which Parquet does not count, and the bounds of columns with values so long that
Parquet leaves their bounds out. Columns inside lists and maps have sizes and counts, never bounds.

Bounds are truncated to a length and stay correct: a prefix is never above its value, and a prefix whose last character
is incremented is above every value that begins with the original prefix. If no such prefix exists, there is no bound.

>>> upper_text("abc", 2), upper_text("ab", 2), upper_text("\U0010ffff\U0010ffff", 1)
('ac', 'ab', None)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice
from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.transforms import IdentityTransform, TimeTransform, TruncateTransform

from neve.model.properties import MetricsMode, TableProperties
from neve.model.v3_types import GEO_TYPES, VariantType
from neve.run.read.metadata_columns import LAST_UPDATED, ROW_ID
from neve.run.read.types import VARIANT
from neve.run.write.conversions import map_pairs
from neve.run.write.file_schema import stored_fields
from neve.run.write.geo_columns import shape_bounds

RawValue = bool | int | float | bytes
"""A value as Parquet stores it: strings as UTF-8, decimals unscaled, dates and times as integers."""

_LAST_CODE_POINT, _BEFORE_SURROGATES, _AFTER_SURROGATES = 0x10FFFF, 0xD7FF, 0xE000


def lower_bound(raw: RawValue, kind: ice.PrimitiveType, length: int | None) -> bytes | None:
    """Return the serialized lower bound of a column with this smallest value, truncated to a length if one is given."""
    if isinstance(kind, ice.StringType) and isinstance(raw, bytes):
        return raw.decode()[:length].encode()
    if isinstance(kind, ice.BinaryType | ice.FixedType) and isinstance(raw, bytes):
        return raw[:length]
    return _serialize_bound(raw, kind)


def upper_bound(raw: RawValue, kind: ice.PrimitiveType, length: int | None) -> bytes | None:
    """Return the serialized upper bound of a column with this largest value; None if no truncated bound exists."""
    if isinstance(kind, ice.StringType) and isinstance(raw, bytes):
        text = upper_text(raw.decode(), length)
        return None if text is None else text.encode()
    if isinstance(kind, ice.BinaryType | ice.FixedType) and isinstance(raw, bytes):
        return upper_binary(raw, length)
    return _serialize_bound(raw, kind)


def upper_text(text: str, length: int | None) -> str | None:
    """Return the smallest text of at most `length` characters that is not below any text with the same prefix."""
    if length is None or len(text) <= length:
        return text
    prefix = text[:length].rstrip(chr(_LAST_CODE_POINT))
    if not prefix:
        return None
    last = ord(prefix[-1])
    return prefix[:-1] + chr(_AFTER_SURROGATES if last == _BEFORE_SURROGATES else last + 1)


def upper_binary(data: bytes, length: int | None) -> bytes | None:
    """Return the smallest bytes of at most `length` that are not below any bytes with the same prefix."""
    if length is None or len(data) <= length:
        return data
    prefix = data[:length].rstrip(b"\xff")
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None


def _serialize_bound(raw: RawValue, kind: ice.PrimitiveType) -> bytes:
    if not isinstance(kind, ice.DecimalType):
        return to_bytes(kind, raw)
    # The format stores the unscaled number in as few big-endian bytes as possible.
    number = int(raw)
    magnitude = number if number >= 0 else ~number
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


_NO_METRICS = MetricsMode(counts=False, bounds=False)
_SORTED_COLUMN_MODE = MetricsMode(counts=True, bounds=True, length=16)
_ORDER_PRESERVING = (IdentityTransform, TruncateTransform, TimeTransform)
_FOOTER_LIMIT = 4096  # Parquet leaves out the bounds of a column if one of them is longer
_VARIABLE_LENGTH = ice.StringType | ice.BinaryType | ice.FixedType

Metrics = dict[str, list[Any]]
MinMax = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class LeafColumn:
    """A column as Parquet stores it: a primitive column somewhere inside a table column."""

    field_id: int
    name: str
    kind: ice.PrimitiveType
    path: tuple[str, ...]  # names from the table column down to it
    parquet_path: str  # the same with the groups that Parquet puts between a list or map and its values
    is_repeated: bool  # inside a list or a map
    mode: MetricsMode = _NO_METRICS

    @property
    def has_bounds(self) -> bool:
        """True if bounds are recorded that are values of the column, and not corners of a box."""
        return self.mode.bounds and not self.is_repeated and not isinstance(self.kind, GEO_TYPES | VariantType)

    @property
    def parts(self) -> int:
        """The number of columns that store the values, beginning with this one; variants have two, others one."""
        return VARIANT.num_fields if isinstance(self.kind, VariantType) else 1

    @property
    def has_metrics(self) -> bool:
        """True if metrics are recorded for the column: of several with the same values, for the first."""
        is_first = not isinstance(self.kind, VariantType) or self.path[-1] == VARIANT[0].name
        return is_first and self.is_table_column

    @property
    def is_floating(self) -> bool:
        """True if values can be NaN."""
        return isinstance(self.kind, ice.FloatType | ice.DoubleType)

    @property
    def is_table_column(self) -> bool:
        """True if the column is in the table's schema; readers cannot resolve the field ids of lineage columns."""
        return self.field_id not in (ROW_ID.field_id, LAST_UPDATED.field_id)


@dataclass(slots=True)
class RowObservations:
    """Statistics collected while the rows of one file are written."""

    nan_counts: dict[int, int] = field(default_factory=dict)
    long_bounds: dict[tuple[int, int], MinMax] = field(default_factory=dict)  # by row group and field id

    def observe_rows(self, rows: pa.Table, leaves: Sequence[LeafColumn], row_group: int) -> None:
        """Add the rows of one row group."""
        for leaf in leaves:
            if leaf.is_floating and leaf.mode.counts:
                nan_count = pc.sum(pc.is_nan(leaf_values(rows, leaf.path))).as_py() or 0
                self.nan_counts[leaf.field_id] = self.nan_counts.get(leaf.field_id, 0) + nan_count
            elif isinstance(leaf.kind, _VARIABLE_LENGTH) and leaf.has_bounds:
                values = leaf_values(rows, leaf.path)
                if (pc.max(pc.binary_length(values)).as_py() or 0) > _FOOTER_LIMIT:
                    ends = pc.min_max(values.cast(pa.binary())).as_py()
                    self.long_bounds[row_group, leaf.field_id] = ends["min"], ends["max"]


def leaf_columns(schema: Schema, properties: TableProperties, order: SortOrder) -> tuple[LeafColumn, ...]:
    """Return the primitive columns of a schema's data files in file order, with the metrics configured for each."""
    leaves = [leaf for f in stored_fields(schema.as_struct()) for leaf in _leaves_of_field(f, f.name, (), False)]
    # A default that the table sets holds for all columns, the built-in one for a limited number, outer columns first.
    is_set = TableProperties.metrics_default.name in properties.values
    limit = len(leaves) if is_set else properties.metrics_max_inferred_columns
    outer_first = sorted(leaves, key=lambda leaf: len(leaf.path))
    ids_with_default = {leaf.field_id for leaf in outer_first[: max(limit, 0)]}
    sorted_ids = {f.source_id for f in order.fields if isinstance(f.transform, _ORDER_PRESERVING)}
    with_modes = []
    for leaf in leaves:
        mode = properties.metrics_mode_of(leaf.name) if leaf.is_table_column else _NO_METRICS
        if mode is None:
            mode = properties.metrics_default if leaf.field_id in ids_with_default else _NO_METRICS
            mode = _SORTED_COLUMN_MODE if leaf.field_id in sorted_ids and not mode.bounds else mode
        with_modes.append(replace(leaf, mode=mode))
    return tuple(with_modes)


def _leaves_of_field(
    field: ice.NestedField, name: str, parents: tuple[str, ...], is_repeated: bool, group: str = ""
) -> Iterator[LeafColumn]:
    path, stored = (*parents, field.name), f"{group}{field.name}"
    match field.field_type:
        case ice.StructType() as struct:
            for child in stored_fields(struct):
                yield from _leaves_of_field(child, f"{name}.{child.name}", path, is_repeated, f"{stored}.")
        case ice.ListType() as items:
            yield from _leaves_of_field(items.element_field, f"{name}.element", path, True, f"{stored}.list.")
        case ice.MapType() as pairs:
            for part in (pairs.key_field, pairs.value_field):
                yield from _leaves_of_field(part, f"{name}.{part.name}", path, True, f"{stored}.key_value.")
        case VariantType() as kind:
            for part in VARIANT:
                yield LeafColumn(field.field_id, name, kind, (*path, part.name), f"{stored}.{part.name}", is_repeated)
        case ice.PrimitiveType() as kind:
            yield LeafColumn(field.field_id, name, kind, path, stored, is_repeated)


def file_metrics(footer: Any, leaves: Sequence[LeafColumn], observed: RowObservations) -> Metrics:
    """Return the detail columns of one file, from its Parquet footer and the statistics collected from its rows."""
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    metrics: Metrics = {name: [] for name in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")}
    metrics |= {"lower_bounds": [], "upper_bounds": [], "split_offsets": []}
    for first_chunk in (group.column(0) for group in groups):
        dictionary = first_chunk.dictionary_page_offset if first_chunk.has_dictionary_page else None
        data = first_chunk.data_page_offset
        metrics["split_offsets"].append(int(data if dictionary is None else min(dictionary, data)))
    for ordinal, leaf in enumerate(leaves):
        if not leaf.has_metrics:
            continue
        chunks = [group.column(ordinal) for group in groups]
        stored = range(ordinal, ordinal + leaf.parts)
        sizes = (group.column(part).total_compressed_size for group in groups for part in stored)
        _add_metric(metrics, "column_sizes", leaf, sum(sizes))
        if not leaf.mode.counts:
            continue
        _add_metric(metrics, "value_counts", leaf, sum(c.num_values for c in chunks))
        if all(c.is_stats_set and c.statistics.has_null_count for c in chunks):
            _add_metric(metrics, "null_value_counts", leaf, sum(c.statistics.null_count for c in chunks))
        if leaf.is_floating:
            _add_metric(metrics, "nan_value_counts", leaf, observed.nan_counts.get(leaf.field_id, 0))
        low, high = _bounds(leaf, chunks, observed.long_bounds)
        _add_metric(metrics, "lower_bounds", leaf, low)
        _add_metric(metrics, "upper_bounds", leaf, high)
    return metrics


def _bounds(
    leaf: LeafColumn, chunks: Sequence[Any], long_bounds: Mapping[tuple[int, int], MinMax]
) -> tuple[bytes | None, bytes | None]:
    """Return the serialized bounds of a column, if they are wanted and known."""
    if isinstance(leaf.kind, GEO_TYPES) and leaf.mode.bounds and not leaf.is_repeated:
        return shape_bounds(chunks) or (None, None)
    ends = _min_max(leaf, chunks, long_bounds) if leaf.has_bounds else None
    if ends is None:
        return None, None
    length = leaf.mode.length
    return lower_bound(ends[0], leaf.kind, length), upper_bound(ends[1], leaf.kind, length)


def _add_metric(metrics: Metrics, name: str, leaf: LeafColumn, value: Any) -> None:
    if value is not None:
        metrics[name].append({"key": leaf.field_id, "value": value})


def _min_max(leaf: LeafColumn, chunks: Sequence[Any], long_bounds: Mapping[tuple[int, int], MinMax]) -> MinMax | None:
    """Return the smallest and largest value of a column; None if there is none or a row group does not have them."""
    bounds: list[MinMax] = []
    for row_group, chunk in enumerate(chunks):
        statistics = chunk.statistics
        if (row_group, leaf.field_id) in long_bounds:
            bounds.append(long_bounds[row_group, leaf.field_id])
        elif statistics is not None and statistics.has_min_max:
            low, high = statistics.min_raw, statistics.max_raw
            if isinstance(leaf.kind, ice.DecimalType) and isinstance(
                low, bytes
            ):  # as bytes, negative numbers sort last
                low, high = (int.from_bytes(end, "big", signed=True) for end in (low, high))
            bounds.append((low, high))
        # Missing bounds are fine if there is nothing to bound: only nulls, or only nulls and NaNs.
        elif statistics is None or not (leaf.is_floating or statistics.null_count == chunk.num_values):
            return None
    return (min(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else None


def leaf_values(rows: pa.Table, path: Sequence[str]) -> Any:
    """Return the values of a nested column, without values inside null lists, maps and structs."""
    values = rows.column(path[0])
    for step in path[1:]:
        if pa.types.is_map(values.type):
            kind = pa.struct([values.type.key_field, values.type.item_field])
            pairs = pa.chunked_array([map_pairs(each).flatten() for each in getattr(values, "chunks", [values])], kind)
            values = pc.struct_field(pairs, [step])  # a bare name could be parsed as a path
        elif pa.types.is_list(values.type):
            values = pc.list_flatten(values)
        else:
            values = pc.struct_field(values, [step])
    return values
