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

from neve.errors import CorruptFile
from neve.io.footer import ChunkStatistics, read_statistics
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
    groups = read_statistics(data.stream, data.size, data.path)
    leaves = list(_leaves(fields))
    if any(len(chunks) != len(leaves) for chunks in groups):
        found = sorted({len(chunks) for chunks in groups})
        raise CorruptFile(data.path, f"row groups of {len(leaves)} columns, as the schema has,", f"{found}")
    columns = zip(*groups, strict=True) if groups else [()] * len(leaves)
    return tuple(
        _range(leaf, leaf.field_id, depth, chunks, facts)
        for (leaf, depth), chunks in zip(leaves, columns, strict=True)
        if leaf.field_id is not None
    )


def _leaves(fields: Iterable[FileField], depth: int = 0) -> Iterator[tuple[FileField, int]]:
    for field in fields:
        if field.children:
            yield from _leaves(field.children, depth + 1)
        else:
            yield field, depth


def _range(
    leaf: FileField, field_id: int, depth: int, chunks: Sequence[ChunkStatistics], facts: TableFacts
) -> ColumnRange:
    kind = kind_of(field_id, facts)
    lows = [] if kind is None else [_value(c.minimum, leaf.type, kind) for c in chunks]
    highs = [] if kind is None else [_value(c.maximum, leaf.type, kind) for c in chunks]
    nulls = [c.nulls for c in chunks if c.nulls is not None]
    return ColumnRange(
        field_id,
        min((v for v in lows if v is not None), default=None),
        max((v for v in highs if v is not None), default=None),
        sum(nulls) if depth == 0 and len(nulls) == len(chunks) else None,
    )


def _value(raw: Any, stored: pa.DataType, kind: IcebergType) -> Any:
    """A stored value in the units of the table's type; None when there is none, or one does not make the other."""
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
    if isinstance(kind, _TEXT):
        return raw if isinstance(raw, bytes) else None
    if isinstance(kind, BooleanType):
        return int(raw) if isinstance(raw, bool) else None
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
