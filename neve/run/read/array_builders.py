"""Build the arrays of a result from the arrays of a file: convert them, repeat a constant, or combine children.

Nested arrays are rebuilt around their own validity and offsets, which are shared with the arrays read, not copied.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types as at
from pyiceberg.types import IcebergType, NestedField, StructType, UnknownType
from pyroaring import FrozenBitMap64

from neve.errors import CorruptFile
from neve.run.read.conversions import Converter, conversion
from neve.run.read.types import ArrowFlavor, arrow_type

BATCH_ROWS = 65_536  # the largest batch that readers return


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows of a file, in its order: consecutive ones, unless `chosen` has their positions."""

    start: int
    count: int
    chosen: NDArray[np.int64] | None = None

    @property
    def positions(self) -> NDArray[np.int64]:
        """The position of each row in the file."""
        consecutive = np.arange(self.start, self.start + self.count, dtype=np.int64)
        return consecutive if self.chosen is None else self.chosen

    def mask_of(self, bitmap: FrozenBitMap64) -> NDArray[np.bool_] | None:
        """Return a mask of the rows whose positions are in a bitmap; None if no row's is."""
        last = self.start + self.count - 1 if self.chosen is None else int(self.chosen[-1])
        common = bitmap & FrozenBitMap64(range(self.start, last + 1))
        if not common:
            return None
        positions = np.frombuffer(common.to_array(), np.int64)
        if self.chosen is not None:
            return np.isin(self.chosen, positions)
        mask = np.zeros(self.count, np.bool_)
        mask[positions - self.start] = True
        return mask


ColumnBatch = tuple[FileRows, list[pa.Array]]  # rows, and the columns read for them


class ColumnBuilder(Protocol):
    """Builds one column of the result from the columns read."""

    def build(self, columns: Sequence[pa.Array], rows: FileRows) -> pa.Array:
        """Return the array of one batch."""


@dataclass(frozen=True, slots=True)
class ConstantColumn:
    """The same value in every row."""

    value: pa.Array  # of length one

    def build(self, columns: Sequence[pa.Array], rows: FileRows) -> pa.Array:
        """Return the value, repeated."""
        if self.value.null_count:
            return pa.nulls(rows.count, self.value.type)
        return pa.repeat(self.value[0], rows.count)


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of the file, converted."""

    index: int
    convert: Converter

    def build(self, columns: Sequence[pa.Array], rows: FileRows) -> pa.Array:
        """Return the converted array."""
        return self.convert(columns[self.index])


@dataclass(frozen=True, slots=True)
class ColumnWithFallback:
    """A column of the file whose nulls are replaced by computed values."""

    column: ColumnBuilder
    fallback: ColumnBuilder

    def build(self, columns: Sequence[pa.Array], rows: FileRows) -> pa.Array:
        """Return the array with its nulls filled."""
        array = self.column.build(columns, rows)
        return pc.coalesce(array, self.fallback.build(columns, rows)) if array.null_count else array


@dataclass(frozen=True, slots=True)
class CheckedColumn:
    """A column that raises an error with the file's name when a value does not fit, or a required value is null."""

    column: ColumnBuilder
    field: NestedField
    path: str

    def build(self, columns: Sequence[pa.Array], rows: FileRows) -> pa.Array:
        """Return the checked array."""
        try:
            array = self.column.build(columns, rows)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            expected = f"{self.field.field_type} in column {self.field.name!r}"
            raise CorruptFile(self.path, expected, "values that do not fit the column") from error
        _refuse_nulls(array, self.field, self.path)
        return array


@dataclass(frozen=True, slots=True)
class StructConverter:
    """Replaces the children of a struct; null structs stay null."""

    kind: pa.StructType
    children: tuple[ColumnBuilder, ...]

    def __call__(self, array: pa.Array) -> pa.Array:
        """Return the same structs with the new children."""
        columns = [array.field(i) for i in range(array.type.num_fields)]
        children = [child.build(columns, FileRows(0, len(array))) for child in self.children]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(self.kind), mask=mask)


@dataclass(frozen=True, slots=True)
class ListConverter:
    """Replaces the elements of a list."""

    kind: pa.ListType
    element: Converter

    def __call__(self, array: pa.Array) -> pa.Array:
        """Return the same lists with the new elements."""
        list_type = pa.list_(array.type.value_field)
        if at.is_list_view(array.type) or at.is_large_list_view(array.type):
            # Arrow's own cast drops the last offset of list views that were read from a file.
            lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
            offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
            array = pa.ListArray.from_arrays(offsets, array.flatten(), type=list_type, mask=array.is_null())
        elif not at.is_list(array.type):
            array = array.cast(list_type)
        buffers = array.buffers()[:2]
        return pa.Array.from_buffers(self.kind, len(array), buffers, -1, array.offset, [self.element(array.values)])


@dataclass(frozen=True, slots=True)
class MapConverter:
    """Replaces the keys and values of a map, which may be stored as a list of pairs."""

    kind: pa.MapType
    key: Converter
    value: Converter

    def __call__(self, array: pa.Array) -> pa.Array:
        """Return the same maps with the new keys and values."""
        keys, values = (array.keys, array.items) if at.is_map(array.type) else map(array.values.field, (0, 1))
        fields = [self.kind.key_field, self.kind.item_field]
        entries = pa.StructArray.from_arrays([self.key(keys), self.value(values)], fields=fields)
        return pa.Array.from_buffers(self.kind, len(array), array.buffers()[:2], -1, array.offset, [entries])


def constant_column(value: Any, iceberg_type: IcebergType, flavor: ArrowFlavor) -> ConstantColumn:
    """Return a column that repeats one value, which is a Python object or an Arrow scalar."""
    exact_type = arrow_type(iceberg_type)
    if value is None or (isinstance(value, pa.Scalar) and not value.is_valid):
        return ConstantColumn(pa.nulls(1, arrow_type(iceberg_type, flavor)))
    if isinstance(value, uuid.UUID):
        value = value.bytes
    array = pa.repeat(value, 1) if isinstance(value, pa.Scalar) else pa.array([value], exact_type)
    convert = conversion(array.type, iceberg_type, flavor)
    if convert is None:  # the value has the type that its column was promoted to, the result the type before
        with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            array = array.cast(exact_type)
        convert = conversion(array.type, iceberg_type, flavor)
    if convert is None:
        raise TypeError(f"A value of type {array.type} cannot be used as {iceberg_type}")
    return ConstantColumn(convert(array))


def _refuse_nulls(array: pa.Array, field: NestedField, path: str, parents: tuple[pa.Array, ...] = ()) -> None:
    """Raise when a required field is null in a row where none of its parent structs is null."""
    if array.null_count and field.required and not isinstance(field.field_type, UnknownType):
        is_missing = reduce(pc.and_, (parent.is_valid() for parent in parents), array.is_null())
        if pc.any(is_missing).as_py():
            raise CorruptFile(path, f"values in the required column {field.name!r}", "nulls")
    if isinstance(field.field_type, StructType):
        for ordinal, child in enumerate(field.field_type.fields):
            _refuse_nulls(array.field(ordinal), child, path, (*parents, array))
