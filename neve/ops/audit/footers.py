"""What Parquet footers say about their columns: the range of the values, and how many are null.

Values come out as they compare in `neve.model.single_value`: whole numbers, floats, decimals or bytes, in the units of
the table's type. A column that does not tell, or whose type is not what the table could have written, is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyarrow import types as at
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
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from neve.run.arrow.columns import DELETE_PATH_ID, DELETE_POSITION_ID
from neve.run.arrow.ids import FileField, identified
from neve.run.arrow.parquet import ParquetData
from neve.run.facts import TableFacts

__all__ = ["ColumnRange", "column_ranges", "kind_of"]

_MICROS = TimestampType | TimestamptzType | TimeType
_NANOS = TimestampNanoType | TimestamptzNanoType
_TEXT = StringType | BinaryType | FixedType
_WHOLE = IntegerType | LongType | DateType
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY = 86_400
_OF_DELETES: dict[int, IcebergType] = {DELETE_PATH_ID: StringType(), DELETE_POSITION_ID: LongType()}


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """One column of one file, as its footer sums it up."""

    field_id: int
    low: Any  # None: no value that compares, or the footer does not tell
    high: Any
    nulls: int | None  # None: not told, or the column is inside another


def kind_of(field_id: int, facts: TableFacts) -> IcebergType | None:
    """The type the table gives a column, also after it was dropped."""
    field = facts.field_ever(field_id)
    return _OF_DELETES.get(field_id) if field is None else field.field_type


def column_ranges(data: ParquetData, facts: TableFacts) -> tuple[ColumnRange, ...]:
    """The columns of a file the table knows, each with its range over all row groups that tell it."""
    fields = identified(data.fields, data.path, facts.name_mapping, facts.schemas)
    footer = data.file.metadata
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    return tuple(
        _range(leaf, leaf.field_id, depth, groups, facts)
        for leaf, depth in _leaves(fields)
        if leaf.field_id is not None
    )


def _leaves(fields: Iterable[FileField], depth: int = 0) -> Iterator[tuple[FileField, int]]:
    for field in fields:
        if field.children:
            yield from _leaves(field.children, depth + 1)
        else:
            yield field, depth


def _range(leaf: FileField, field_id: int, depth: int, groups: Sequence[Any], facts: TableFacts) -> ColumnRange:
    known = [s for g in groups if (s := g.column(leaf.leaves.start).statistics) is not None]
    kind = kind_of(field_id, facts)
    ends = [] if kind is None else [e for s in known if (e := _ends(s, leaf.type, kind)) is not None]
    counted = depth == 0 and len(known) == len(groups) and all(s.has_null_count for s in known)
    return ColumnRange(
        field_id,
        min((low for low, _ in ends), default=None),
        max((high for _, high in ends), default=None),
        sum(s.null_count for s in known) if counted else None,
    )


def _ends(statistics: Any, stored: pa.DataType, kind: IcebergType) -> tuple[Any, Any] | None:
    if not statistics.has_min_max or statistics.physical_type == "INT96":
        return None
    low, high = (_value(raw, stored, kind) for raw in (statistics.min_raw, statistics.max_raw))
    return None if low is None or high is None else (low, high)


def _value(raw: Any, stored: pa.DataType, kind: IcebergType) -> Any:
    """A stored value in the units of the table's type; None when one does not make the other."""
    if isinstance(kind, DecimalType):
        return _decimal(raw, kind) if at.is_decimal128(stored) and stored.scale == kind.scale else None
    if isinstance(kind, FloatType | DoubleType):
        return raw + 0.0 if isinstance(raw, float) and not math.isnan(raw) else None
    if isinstance(kind, _TEXT):
        return raw if isinstance(raw, bytes) else None
    if isinstance(kind, BooleanType):
        return int(raw) if at.is_boolean(stored) else None
    whole = _whole(raw, stored, kind) if isinstance(raw, int) else None
    return whole if whole is not None and abs(whole) < 1 << 63 else None


def _whole(raw: int, stored: pa.DataType, kind: IcebergType) -> int | None:
    if isinstance(kind, _WHOLE):
        return raw if at.is_signed_integer(stored) or at.is_date32(stored) else None
    wanted = 10**9 if isinstance(kind, _NANOS) else 10**6 if isinstance(kind, _MICROS) else None
    if wanted is None:
        return None
    if at.is_date32(stored):
        return raw * _DAY * wanted
    if not (at.is_timestamp(stored) or at.is_time(stored)):
        return None
    per_second = _PER_SECOND[stored.unit]
    return raw * wanted // per_second


def _decimal(raw: Any, kind: DecimalType) -> Decimal | None:
    digits = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)
    # from text: arithmetic would round to 28 digits
    return Decimal(f"{digits}E{-kind.scale}") if abs(digits) < 10**38 else None
