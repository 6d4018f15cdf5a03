"""How the arrays of a result are made from the arrays of a file: taken and converted, repeated, or put together.

Nested arrays are rebuilt around their own validity and offsets, which are shared with the arrays read, not copied.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as at
from pyiceberg.types import IcebergType, NestedField, StructType, UnknownType

from neve.errors import CorruptFile
from neve.run.read.conversions import Converter, conversion
from neve.run.read.types import ArrowFlavor, arrow_type

BATCH_ROWS = 65_536  # at most so many rows are handed on at a time

_MISFIT = "values that do not fit the column"


@dataclass(frozen=True, slots=True)
class RowRange:
    """A stretch of consecutive rows of a file."""

    start: int
    count: int


ColumnBatch = tuple[RowRange, list[pa.Array]]  # rows, and the columns read of them


class ColumnBuilder(Protocol):
    """How one column of the result is made from the columns read."""

    def build(self, columns: Sequence[pa.Array], rows: RowRange) -> pa.Array:
        """The array of one batch."""


@dataclass(frozen=True, slots=True)
class ConstantColumn:
    """The same value in every row."""

    value: pa.Array  # of length one

    def build(self, columns: Sequence[pa.Array], rows: RowRange) -> pa.Array:
        """The value, repeated."""
        if self.value.null_count:
            return pa.nulls(rows.count, self.value.type)
        return pa.repeat(self.value[0], rows.count)


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of the file, converted."""

    index: int
    convert: Converter

    def build(self, columns: Sequence[pa.Array], rows: RowRange) -> pa.Array:
        """The converted array."""
        return self.convert(columns[self.index])


@dataclass(frozen=True, slots=True)
class ColumnWithFallback:
    """A column of the file whose nulls are computed."""

    column: ColumnBuilder
    fallback: ColumnBuilder

    def build(self, columns: Sequence[pa.Array], rows: RowRange) -> pa.Array:
        """The array, its nulls filled."""
        array = self.column.build(columns, rows)
        return pc.coalesce(array, self.fallback.build(columns, rows)) if array.null_count else array


@dataclass(frozen=True, slots=True)
class CheckedColumn:
    """A column that names its file when a value does not fit, or is missing where it must not be."""

    column: ColumnBuilder
    field: NestedField
    path: str

    def build(self, columns: Sequence[pa.Array], rows: RowRange) -> pa.Array:
        """The array, looked through."""
        try:
            array = self.column.build(columns, rows)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise CorruptFile(self.path, f"{self.field.field_type} in column {self.field.name!r}", _MISFIT) from error
        _refuse_nulls(array, self.field, self.path)
        return array


@dataclass(frozen=True, slots=True)
class StructConverter:
    """A struct with other children; rows without it stay without it."""

    kind: pa.StructType
    children: tuple[ColumnBuilder, ...]

    def __call__(self, array: pa.Array) -> pa.Array:
        """The same structs, made of the new children."""
        parts = [array.field(i) for i in range(array.type.num_fields)]
        built = [child.build(parts, RowRange(0, len(array))) for child in self.children]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(built, fields=list(self.kind), mask=mask)


@dataclass(frozen=True, slots=True)
class ListConverter:
    """A list with other elements."""

    kind: pa.ListType
    element: Converter

    def __call__(self, array: pa.Array) -> pa.Array:
        """The same lists of the new elements."""
        array = _lists_with_int32_offsets(array)
        buffers = array.buffers()[:2]
        return pa.Array.from_buffers(self.kind, len(array), buffers, -1, array.offset, [self.element(array.values)])


def _lists_with_int32_offsets(array: pa.Array) -> pa.Array:
    """Lists of any kind that Arrow has as those with offsets of 32 bits."""
    if not (at.is_list_view(array.type) or at.is_large_list_view(array.type)):
        return array if at.is_list(array.type) else array.cast(pa.list_(array.type.value_field))
    # Arrow's own cast leaves out the last offset of views that a file was read into.
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
    offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
    kind = pa.list_(array.type.value_field)
    return pa.ListArray.from_arrays(offsets, array.flatten(), type=kind, mask=array.is_null())


@dataclass(frozen=True, slots=True)
class MapConverter:
    """A map with other keys and values, from a map or from a list of pairs."""

    kind: pa.MapType
    key: Converter
    value: Converter

    def __call__(self, array: pa.Array) -> pa.Array:
        """The same maps of the new keys and values."""
        keys, values = (array.keys, array.items) if at.is_map(array.type) else map(array.values.field, (0, 1))
        fields = [self.kind.key_field, self.kind.item_field]
        entries = pa.StructArray.from_arrays([self.key(keys), self.value(values)], fields=fields)
        return pa.Array.from_buffers(self.kind, len(array), array.buffers()[:2], -1, array.offset, [entries])


def constant_column(value: Any, iceberg_type: IcebergType, flavor: ArrowFlavor) -> ConstantColumn:
    """A column of one value, given in Python's or Arrow's form."""
    if value is None or (isinstance(value, pa.Scalar) and not value.is_valid):
        return ConstantColumn(pa.nulls(1, arrow_type(iceberg_type, flavor)))
    plain = value.bytes if isinstance(value, uuid.UUID) else value
    array = pa.repeat(plain, 1) if isinstance(plain, pa.Scalar) else pa.array([plain], arrow_type(iceberg_type))
    if conversion(array.type, iceberg_type, flavor) is None:
        array = _cast_if_it_fits(array, arrow_type(iceberg_type))
    convert = conversion(array.type, iceberg_type, flavor)
    if convert is None:
        raise TypeError(f"A value of type {array.type} cannot stand for {iceberg_type}")
    return ConstantColumn(convert(array))


def _cast_if_it_fits(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Values of a column that was promoted, in the type it had before; the same when they do not fit it."""
    try:
        return array.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return array


def _refuse_nulls(array: pa.Array, field: NestedField, path: str, parents: tuple[pa.Array, ...] = ()) -> None:
    """Raise when a required field is null in a row that has all the structs it is in."""
    if array.null_count and field.required and not isinstance(field.field_type, UnknownType):
        missing = reduce(pc.and_, (parent.is_valid() for parent in parents), array.is_null())
        if pc.any(missing).as_py():
            raise CorruptFile(path, f"values in the required column {field.name!r}", "nulls")
    if isinstance(field.field_type, StructType):
        for place, child in enumerate(field.field_type.fields):
            _refuse_nulls(array.field(place), child, path, (*parents, array))
