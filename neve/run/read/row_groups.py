"""Row groups of a Parquet file that hold no matching row, known by the statistics in its footer.

The rules are those that judge whole files (`neve.plan.ranges`); only where the bounds come from differs. What a footer
does not say, or says in a type that cannot be the column's, is not known, and the group is read.

Values in the footer of a Parquet file as values of a column's type.

They come out as they compare in `neve.model.values`: whole numbers, floats, decimals or bytes, in the units of
the type. A stored type that is not what the table could have written gives none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as at
from pyiceberg.expressions import BooleanExpression
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from neve.errors import CorruptFile
from neve.io.parquet_footer import ChunkStatistics, parse_statistics
from neve.model.values import comparable_type
from neve.plan import ranges
from neve.plan.ranges import FieldRange, Mask, safe_uuid_bounds
from neve.run.read.field_ids import FileField
from neve.run.read.parquet import ParquetData

_MICROS_TYPES = TimestampType | TimestamptzType | TimeType
_NANOS_TYPES = TimestampNanoType | TimestamptzNanoType
_BYTES_TYPES = StringType | BinaryType | FixedType
_INTEGER_TYPES = IntegerType | LongType | DateType
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_SECONDS_PER_DAY = 86_400


def footer_bound(raw: Any, stored: pa.DataType, kind: IcebergType) -> Any:
    """A stored value in the units of a column's type; None when there is none, or one does not make the other."""
    if raw is None:
        return None
    if isinstance(kind, DecimalType):
        return (
            _decimal(raw, kind)
            if not isinstance(raw, float) and at.is_decimal128(stored) and stored.scale == kind.scale
            else None
        )
    if isinstance(kind, FloatType | DoubleType):
        return raw + 0.0 if isinstance(raw, float) and not math.isnan(raw) else None
    if isinstance(kind, _BYTES_TYPES):
        return raw if isinstance(raw, bytes) else None
    if isinstance(kind, BooleanType):
        return int(raw) if isinstance(raw, bool) else None
    whole = _integer_bound(raw, stored, kind) if isinstance(raw, int) else None
    return whole if whole is not None and abs(whole) < 1 << 63 else None


def _integer_bound(raw: int, stored: pa.DataType, kind: IcebergType) -> int | None:
    if isinstance(kind, _INTEGER_TYPES):
        return raw if at.is_signed_integer(stored) or at.is_date32(stored) else None
    wanted = 10**9 if isinstance(kind, _NANOS_TYPES) else 10**6 if isinstance(kind, _MICROS_TYPES) else None
    if wanted is None:
        return None
    if at.is_date32(stored):
        return raw * _SECONDS_PER_DAY * wanted
    if not (at.is_timestamp(stored) or at.is_time(stored)):
        return None
    per_second = _PER_SECOND[stored.unit]
    return raw * wanted // per_second


def _decimal(raw: Any, kind: DecimalType) -> Decimal | None:
    digits = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)
    # from text: arithmetic would round to 28 digits
    return Decimal(f"{digits}E{-kind.scale}") if abs(digits) < 10**38 else None


def row_groups_that_may_match(data: ParquetData, fields: Iterable[FileField], predicate: BooleanExpression) -> Mask:
    """Which row groups of a file may hold a row that meets a bound predicate without NOT."""
    groups = parse_statistics(data.footer, data.path)
    leaves = data.leaf_count
    if len(groups) != data.row_group_count or any(len(chunks) != leaves for chunks in groups):
        found = f"{len(groups)} with {sorted({len(chunks) for chunks in groups})}"
        raise CorruptFile(data.path, f"{data.row_group_count} row groups of {leaves} columns", found)
    return ranges.may_match(_RowGroupRanges(groups, tuple(fields)), predicate)


@dataclass(frozen=True)
class _RowGroupRanges:
    groups: Sequence[Sequence[ChunkStatistics]]
    fields: tuple[FileField, ...]

    def __len__(self) -> int:
        return len(self.groups)

    def of(self, field: NestedField) -> FieldRange:
        """The range of a column in each row group."""
        found = _find_leaf(self.fields, field.field_id)
        if found is None:
            return _unknown(len(self), field.field_type)
        chunks = [chunks[found.leaves.start] for chunks in self.groups]
        nulls = np.array([-1 if c.nulls is None else c.nulls for c in chunks], np.int64)
        values = np.array([-2 if c.values is None else c.values for c in chunks], np.int64)
        lower, upper = _bound_arrays(chunks, found.type, field.field_type)
        filled = nulls != values
        nan = filled & isinstance(field.field_type, FloatType | DoubleType)  # footers do not count them
        return FieldRange(lower, upper, nulls != 0, nan, filled)


def _find_leaf(fields: Iterable[FileField], field_id: int) -> FileField | None:
    """A primitive column, at the top or inside structs: one value to a row."""
    for field in fields:
        if field.field_id == field_id and not field.children:
            return field
        if pa.types.is_struct(field.type) and (inner := _find_leaf(field.children, field_id)) is not None:
            return inner
    return None


def _unknown(count: int, kind: IcebergType) -> FieldRange:
    nothing, always = pa.nulls(count, comparable_type(kind)), np.ones(count, np.bool_)
    return FieldRange(nothing, nothing, always, always, always)


def _bound_arrays(
    chunks: Sequence[ChunkStatistics], found: pa.DataType, kind: IcebergType
) -> tuple[pa.Array, pa.Array]:
    pairs = [(_column_bound(c.lower, found, kind), _column_bound(c.upper, found, kind)) for c in chunks]
    known = [pair if None not in pair else (None, None) for pair in pairs]
    lower, upper = (pa.array([pair[end] for pair in known], comparable_type(kind)) for end in (0, 1))
    return safe_uuid_bounds(lower, upper) if isinstance(kind, UUIDType) else (lower, upper)


def _column_bound(raw: Any, found: pa.DataType, kind: IcebergType) -> Any:
    if isinstance(kind, UUIDType):
        return raw if isinstance(raw, bytes) and len(raw) == 16 else None
    return footer_bound(raw, found, kind)
