"""Skip row groups and pages of a Parquet file that hold no matching row, by the statistics of the file.

The rules are the same as for whole files (`neve.plan.ranges`); only the source of the bounds differs. If a statistic is
missing, or its stored type is not one that the table could have written, it is unknown, and the row group is read.

Bounds are converted to the form in which `neve.model.values` compares them: integers, floats, decimals or bytes, in the
units of the column's type.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as at
from pyiceberg import types as ice
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import extract_field_ids
from pyroaring import BitMap64, FrozenBitMap64

from neve.errors import CorruptFile
from neve.io.deletion_vectors import PositionSet
from neve.io.parquet_footer import ChunkStatistics, parse_statistics
from neve.model.values import comparable_type
from neve.plan import ranges
from neve.plan.ranges import FieldRange, Mask, safe_uuid_bounds
from neve.run.read.bloom_filters import RowGroupFilters
from neve.run.read.field_ids import FileField
from neve.run.read.parquet import ParquetData

_MICROS_TYPES = ice.TimestampType | ice.TimestamptzType | ice.TimeType
_NANOS_TYPES = ice.TimestampNanoType | ice.TimestamptzNanoType
_BYTES_TYPES = ice.StringType | ice.BinaryType | ice.FixedType
_INTEGER_TYPES = ice.IntegerType | ice.LongType | ice.DateType
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_SECONDS_PER_DAY = 86_400
_MIN_ROWS = 10_000  # in a row group whose pages are worth a look


def footer_bound(raw: Any, stored: pa.DataType, kind: ice.IcebergType) -> Any:
    """Return a stored bound in the units of a column's type; None if there is none or the types do not match."""
    if raw is None:
        return None
    if isinstance(kind, ice.DecimalType):
        return None if isinstance(raw, float) else _decimal_bound(raw, stored, kind)
    if isinstance(kind, ice.FloatType | ice.DoubleType):
        return raw + 0.0 if isinstance(raw, float) and not math.isnan(raw) else None
    if isinstance(kind, _BYTES_TYPES):
        return raw if isinstance(raw, bytes) else None
    if isinstance(kind, ice.BooleanType):
        return int(raw) if isinstance(raw, bool) else None
    integer = _integer_bound(raw, stored, kind) if isinstance(raw, int) else None
    return integer if integer is not None and abs(integer) < 1 << 63 else None


def _decimal_bound(raw: Any, stored: pa.DataType, kind: ice.DecimalType) -> Decimal | None:
    if not at.is_decimal128(stored) or stored.scale != kind.scale:
        return None
    digits = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)
    # Built from text: arithmetic would round to 28 digits.
    return Decimal(f"{digits}E{-kind.scale}") if abs(digits) < 10**38 else None


def _integer_bound(raw: int, stored: pa.DataType, kind: ice.IcebergType) -> int | None:
    if isinstance(kind, _INTEGER_TYPES):
        return raw if at.is_signed_integer(stored) or at.is_date32(stored) else None
    per_second = 10**9 if isinstance(kind, _NANOS_TYPES) else 10**6 if isinstance(kind, _MICROS_TYPES) else None
    if per_second is None:
        return None
    if at.is_date32(stored):
        return raw * _SECONDS_PER_DAY * per_second
    if not (at.is_timestamp(stored) or at.is_time(stored)):
        return None
    return raw * per_second // _PER_SECOND[stored.unit]


def row_groups_that_may_match(data: ParquetData, fields: Iterable[FileField], predicate: BooleanExpression) -> Mask:
    """Return a mask of the row groups that may hold a row that matches a bound predicate without NOT."""
    groups = parse_statistics(data.footer)
    leaves = data.leaf_count
    if len(groups) != data.row_group_count or any(len(chunks) != leaves for chunks in groups):
        actual = f"{len(groups)} with {sorted({len(chunks) for chunks in groups})}"
        raise CorruptFile(data.path, f"{data.row_group_count} row groups of {leaves} columns", actual)
    columns = tuple(fields)
    mask = ranges.may_match(_StatisticRanges(groups, columns), predicate)
    for number in np.flatnonzero(mask):
        mask[number] = RowGroupFilters(data, groups[number], columns, _find_leaf).may_match(predicate)
    return mask


def rows_that_may_match(
    data: ParquetData, fields: Sequence[FileField], predicate: BooleanExpression, part: tuple[int, int]
) -> PositionSet:
    """Return the rows of pages that may hold a match of a bound predicate without NOT, in one part of a file."""
    found = [_find_leaf(fields, field_id) for field_id in extract_field_ids(predicate)]
    leaves = sorted({field.leaves.start for field in found if field is not None})
    rows = BitMap64()
    for ordinal, group in data.selected_row_groups(part):
        pages = data.page_statistics(ordinal, leaves) if leaves and group.count > _MIN_ROWS else None
        if pages is None:
            rows.add_range(group.start, group.start + group.count)
            continue
        # Columns have pages of their own: between two bounds, no column begins another page.
        bounds = np.unique(np.concatenate([first_rows for first_rows, _ in pages]))
        pages_of_runs = [np.searchsorted(first_rows, bounds[:-1], side="right") - 1 for first_rows, _ in pages]
        statistics = [
            {leaf: pages[n][1][page] for n, (leaf, page) in enumerate(zip(leaves, of_run, strict=True))}
            for of_run in zip(*pages_of_runs, strict=True)
        ]
        for run in np.flatnonzero(ranges.may_match(_StatisticRanges(statistics, tuple(fields)), predicate)):
            rows.add_range(group.start + int(bounds[run]), group.start + int(bounds[run + 1]))
    return PositionSet(FrozenBitMap64(rows))


@dataclass(frozen=True)
class _StatisticRanges:
    groups: Sequence[Sequence[ChunkStatistics] | Mapping[int, ChunkStatistics]]  # by the number of the leaf
    fields: tuple[FileField, ...]

    def __len__(self) -> int:
        return len(self.groups)

    def of(self, field: ice.NestedField) -> FieldRange:
        """The range of a column in each group of rows."""
        leaf = _find_leaf(self.fields, field.field_id)
        if leaf is None:
            unknown, always = pa.nulls(len(self), comparable_type(field.field_type)), np.ones(len(self), np.bool_)
            return FieldRange(unknown, unknown, always, always, always)
        chunks = [chunks[leaf.leaves.start] for chunks in self.groups]
        nulls = np.array([-1 if c.nulls is None else c.nulls for c in chunks], np.int64)
        values = np.array([-2 if c.values is None else c.values for c in chunks], np.int64)
        kind = field.field_type
        bounds = [[_column_bound(raw, leaf.type, kind) for raw in (c.lower, c.upper)] for c in chunks]
        complete = [pair if None not in pair else (None, None) for pair in bounds]
        lower, upper = (pa.array([pair[end] for pair in complete], comparable_type(kind)) for end in (0, 1))
        if isinstance(kind, ice.UUIDType):
            lower, upper = safe_uuid_bounds(lower, upper)
        has_values = nulls != values
        has_nan = has_values & isinstance(kind, ice.FloatType | ice.DoubleType)  # footers do not count NaN
        return FieldRange(lower, upper, nulls != 0, has_nan, has_values)


def _find_leaf(fields: Iterable[FileField], field_id: int) -> FileField | None:
    """Return a primitive column at the top level or inside structs, where each row has one value."""
    for field in fields:
        if field.field_id == field_id and not field.children:
            return field
        if pa.types.is_struct(field.type) and (inner := _find_leaf(field.children, field_id)) is not None:
            return inner
    return None


def _column_bound(raw: Any, stored: pa.DataType, kind: ice.IcebergType) -> Any:
    if isinstance(kind, ice.UUIDType):
        return raw if isinstance(raw, bytes) and len(raw) == 16 else None
    return footer_bound(raw, stored, kind)
