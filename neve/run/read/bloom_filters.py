"""Skip row groups by the bloom filters of their columns: a filter knows which values a column chunk surely lacks.

Only conditions that some value is equal to a constant can be decided so. Floating-point numbers are left out, as
several of their bit patterns are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

from pyarrow import types as at
from pyiceberg import types as ice
from pyiceberg.expressions import And, BooleanExpression, BoundEqualTo, BoundIn, BoundReference, Or

from neve.io.parquet_bloom_filters import BloomFilter, read_bloom_filter
from neve.io.parquet_footer import BYTE_ARRAY, FIXED_LENGTH_BYTE_ARRAY, INT32, INT64, ChunkStatistics
from neve.run.read.field_ids import FileField
from neve.run.read.parquet import ParquetData

_INTEGERS = ice.IntegerType | ice.LongType | ice.DateType
_MICROS = ice.TimestampType | ice.TimestamptzType | ice.TimeType
_NANOS = ice.TimestampNanoType | ice.TimestamptzNanoType
_MAX_VALUES = 1000  # in an IN: with more, most filters have some of them

FindLeaf = Callable[[Iterable[FileField], int], FileField | None]


@dataclass(frozen=True)
class RowGroupFilters:
    """The bloom filters of one row group, which are read when they are asked."""

    data: ParquetData
    chunks: Sequence[ChunkStatistics]
    fields: tuple[FileField, ...]
    find_leaf: FindLeaf
    _filters: dict[int, BloomFilter | None] = field(default_factory=dict)

    def may_match(self, predicate: BooleanExpression) -> bool:
        """Return whether a row may match a bound predicate without NOT."""
        match predicate:
            case And():
                return self.may_match(predicate.left) and self.may_match(predicate.right)
            case Or():
                return self.may_match(predicate.left) or self.may_match(predicate.right)
            case BoundEqualTo(term=BoundReference(field=column)):
                return self._may_hold(column, [predicate.literal.value])
            case BoundIn(term=BoundReference(field=column)):
                return self._may_hold(column, [literal.value for literal in predicate.literals])
        return True

    def _may_hold(self, column: ice.NestedField, values: Sequence[Any]) -> bool:
        leaf = self.find_leaf(self.fields, column.field_id)
        if leaf is None or len(values) > _MAX_VALUES:
            return True
        number = leaf.leaves.start
        chunk = self.chunks[number]
        if not chunk.bloom_filter_start:
            return True
        if number not in self._filters:
            self._filters[number] = read_bloom_filter(self.data.stream, self.data.size, chunk, self.data.path)
        bloom = self._filters[number]
        stored = [_stored_bytes(value, column.field_type, leaf, chunk.physical_type) for value in values]
        return bloom is None or any(each is None or bloom.may_hold(each) for each in stored)


def _stored_bytes(value: Any, kind: ice.IcebergType, leaf: FileField, physical: int | None) -> bytes | None:
    """Return a value as the file would store it; None if that is not known."""
    if isinstance(kind, ice.StringType) and isinstance(value, str) and physical == BYTE_ARRAY:
        return value.encode()
    if isinstance(kind, ice.BinaryType | ice.FixedType) and isinstance(value, bytes):
        return value if physical in (BYTE_ARRAY, FIXED_LENGTH_BYTE_ARRAY) else None
    if isinstance(kind, ice.UUIDType):
        data = value.bytes if isinstance(value, UUID) else value
        return data if physical == FIXED_LENGTH_BYTE_ARRAY and isinstance(data, bytes) else None
    if isinstance(kind, ice.DecimalType) and isinstance(value, Decimal):
        return _stored_decimal(value, kind, leaf, physical)
    if isinstance(value, int) and _has_unit_of(kind, leaf):
        return _stored_integer(value, physical)
    return None


def _has_unit_of(kind: ice.IcebergType, leaf: FileField) -> bool:
    """Return whether the numbers of a file are those of the table, and not days, milliseconds or times of Impala."""
    stored = leaf.type
    if isinstance(kind, _INTEGERS):
        return bool(at.is_signed_integer(stored) or at.is_date32(stored))
    if isinstance(kind, _MICROS | _NANOS) and (at.is_timestamp(stored) or at.is_time(stored)):
        return bool(stored.unit == ("ns" if isinstance(kind, _NANOS) else "us"))
    return False


def _stored_integer(value: int, physical: int | None) -> bytes | None:
    size = {INT32: 4, INT64: 8}.get(physical or 0)
    if size is None or not -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1:
        return None
    return value.to_bytes(size, "little", signed=True)


def _stored_decimal(value: Decimal, kind: ice.DecimalType, leaf: FileField, physical: int | None) -> bytes | None:
    if not at.is_decimal128(leaf.type) or leaf.type.scale != kind.scale or value.as_tuple().exponent != -kind.scale:
        return None
    digits = int("".join(map(str, value.as_tuple().digits)) or "0")
    unscaled = -digits if value.is_signed() else digits
    return _stored_integer(unscaled, physical)  # the width of fixed ones is not that of the type in all files
