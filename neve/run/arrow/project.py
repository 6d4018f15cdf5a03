"""A file's columns as a table's columns: matched by field id at every depth, with what the file lacks filled in.

Compiled once per file: which primitive columns to read, and for each column of the result how its array is made from
theirs. A field the file does not have takes, in this order, the identity partition value of the file, the initial
default of the field, or null.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as at
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType, UnknownType

from neve.errors import CorruptFile
from neve.run.arrow.convert import Convert, conversion
from neve.run.arrow.ids import FileField
from neve.run.arrow.types import Carrier, arrow_schema, arrow_type

__all__ = [
    "BATCH_ROWS",
    "Column",
    "Constant",
    "Projection",
    "Rows",
    "Source",
    "Stretch",
    "compile_projection",
    "constant",
]

BATCH_ROWS = 65_536

_MISFIT = "values that do not fit the column"


@dataclass(frozen=True, slots=True)
class Rows:
    """A stretch of consecutive rows of a file."""

    start: int
    count: int


Stretch = tuple[Rows, list[pa.Array]]  # rows, and the columns read of them


class Column(Protocol):
    """How one column of the result is made from the columns read."""

    def build(self, columns: Sequence[pa.Array], rows: Rows) -> pa.Array:
        """The array of one batch."""


@dataclass(frozen=True)
class Source:
    """What is known about a file before its bytes are read."""

    path: str
    fields: tuple[FileField, ...]
    # Three mappings by field id:
    constants: Mapping[int, Any]  # values of the whole file, used where it has no such column
    computed: Mapping[int, Column]  # columns made from the position of a row, whatever the file holds
    fallback: Mapping[int, Column]  # the same, where the file has no such column, or null in a row
    prunes_nested: bool  # whether the reader can leave out single children of a struct


@dataclass(frozen=True)
class Projection:
    """The columns to read from a file, and the batches they become."""

    schema: pa.Schema
    columns: tuple[Column, ...]
    leaves: tuple[int, ...]  # primitive columns to read, ascending

    def apply(self, columns: Sequence[pa.Array], rows: Rows) -> pa.RecordBatch:
        """A batch of the result from the arrays of the columns read."""
        arrays = [column.build(columns, rows) for column in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def compile_projection(schema: Schema, source: Source, carrier: Carrier) -> Projection:
    """How rows of a schema are made from a file."""
    # Twice: where an array is found among those read is known only when all leaves are.
    _, leaves = _Compiler(source, carrier).columns(schema.fields, source.fields, prunes=True)
    columns, _ = _Compiler(source, carrier, leaves).columns(schema.fields, source.fields, prunes=True)
    checked = tuple(_Checked(c, f, source.path) for c, f in zip(columns, schema.fields, strict=True))
    return Projection(arrow_schema(schema, carrier), checked, tuple(sorted(leaves)))


@dataclass(frozen=True, slots=True)
class Constant:
    """The same value in every row."""

    value: pa.Array  # of length one

    def build(self, columns: Sequence[pa.Array], rows: Rows) -> pa.Array:
        """The value, repeated."""
        if self.value.null_count:
            return pa.nulls(rows.count, self.value.type)
        return pa.repeat(self.value[0], rows.count)


@dataclass(frozen=True, slots=True)
class _Taken:
    """A column of the file, converted."""

    at: int
    convert: Convert

    def build(self, columns: Sequence[pa.Array], rows: Rows) -> pa.Array:
        return self.convert(columns[self.at])


@dataclass(frozen=True, slots=True)
class _Filled:
    """A column of the file whose nulls are computed."""

    column: Column
    fallback: Column

    def build(self, columns: Sequence[pa.Array], rows: Rows) -> pa.Array:
        array = self.column.build(columns, rows)
        return pc.coalesce(array, self.fallback.build(columns, rows)) if array.null_count else array


@dataclass(frozen=True, slots=True)
class _Checked:
    """A column whose conversion names the file when a value does not fit."""

    column: Column
    field: NestedField
    path: str

    def build(self, columns: Sequence[pa.Array], rows: Rows) -> pa.Array:
        try:
            array = self.column.build(columns, rows)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise CorruptFile(self.path, f"{self.field.field_type} in column {self.field.name!r}", _MISFIT) from error
        _refuse_nulls(array, self.field, self.path)
        return array


@dataclass(frozen=True, slots=True)
class _Struct:
    kind: pa.StructType
    children: tuple[Column, ...]

    def __call__(self, array: pa.Array) -> pa.Array:
        parts = [array.field(i) for i in range(array.type.num_fields)]
        built = [child.build(parts, Rows(0, len(array))) for child in self.children]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(built, fields=list(self.kind), mask=mask)


@dataclass(frozen=True, slots=True)
class _List:
    kind: pa.ListType
    element: Convert

    def __call__(self, array: pa.Array) -> pa.Array:
        if not at.is_list(array.type):
            array = array.cast(pa.list_(array.type.value_field))
        buffers = array.buffers()[:2]
        return pa.Array.from_buffers(self.kind, len(array), buffers, -1, array.offset, [self.element(array.values)])


@dataclass(frozen=True, slots=True)
class _Map:
    kind: pa.MapType
    key: Convert
    value: Convert

    def __call__(self, array: pa.Array) -> pa.Array:
        keys, values = (array.keys, array.items) if at.is_map(array.type) else map(array.values.field, (0, 1))
        fields = [self.kind.key_field, self.kind.item_field]
        entries = pa.StructArray.from_arrays([self.key(keys), self.value(values)], fields=fields)
        return pa.Array.from_buffers(self.kind, len(array), array.buffers()[:2], -1, array.offset, [entries])


@dataclass(frozen=True)
class _Compiler:
    source: Source
    carrier: Carrier
    leaves: Set[int] | None = None  # all that are read, where they are known

    def columns(
        self, fields: Sequence[NestedField], found: tuple[FileField, ...], prunes: bool
    ) -> tuple[tuple[Column, ...], set[int]]:
        """How fields are made from the children of a struct, and the leaves that takes."""
        ordinals = self.by_id(found)
        places = [ordinals[f.field_id] if self.is_read(f, ordinals) else None for f in fields]
        converted = [None if at is None else self.convert(f, found[at]) for f, at in zip(fields, places, strict=True)]
        leaves = {leaf for each in converted if each is not None for leaf in each[1]}
        arrays = leaves if self.leaves is None else self.leaves
        read = [i for i, f in enumerate(found) if not prunes or not arrays.isdisjoint(f.leaves)]
        rank = {ordinal: at for at, ordinal in enumerate(read)}
        columns = (
            self.absent(f) if at is None or each is None else self.filled(f, _Taken(rank[at], each[0]))
            for f, at, each in zip(fields, places, converted, strict=True)
        )
        return tuple(columns), leaves

    def is_read(self, field: NestedField, ordinals: Mapping[int, int]) -> bool:
        computed = field.field_id in self.source.computed or isinstance(field.field_type, UnknownType)
        return field.field_id in ordinals and not computed

    def by_id(self, found: Iterable[FileField]) -> dict[int, int]:
        ordinals: dict[int, int] = {}
        for ordinal, field in enumerate(found):
            if field.field_id is None:
                continue
            if field.field_id in ordinals:
                raise CorruptFile(self.source.path, "field ids that differ", f"field id {field.field_id} twice")
            ordinals[field.field_id] = ordinal
        return ordinals

    def convert(self, field: NestedField, found: FileField) -> tuple[Convert, set[int]]:
        wanted, kind = field.field_type, arrow_type(field.field_type, self.carrier)
        match wanted:
            case StructType() if at.is_struct(found.type):
                children, leaves = self.columns(wanted.fields, found.children, self.source.prunes_nested)
                # Nothing of the struct is read: its first leaf still tells which rows have none.
                return _Struct(kind, children), leaves or {found.leaves.start}
            case ListType() if len(found.children) == 1 and not at.is_struct(found.type):
                element, leaves = self.convert(wanted.element_field, found.children[0])
                return _List(kind, element), leaves
            case MapType() if at.is_map(found.type):
                key, of_keys = self.convert(wanted.key_field, found.children[0])
                value, of_values = self.convert(wanted.value_field, found.children[1])
                return _Map(kind, key, value), of_keys | of_values
            case MapType() if _is_pairs(found):
                key, of_keys = self.convert(wanted.key_field, found.children[0].children[0])
                value, of_values = self.convert(wanted.value_field, found.children[0].children[1])
                return _Map(kind, key, value), of_keys | of_values
            case _:
                return self.leaf(field, found), set(found.leaves)

    def leaf(self, field: NestedField, found: FileField) -> Convert:
        wanted = field.field_type
        convert = None if wanted.is_struct or not wanted.is_primitive else conversion(found.type, wanted, self.carrier)
        if convert is None or found.children:
            raise CorruptFile(
                self.source.path, f"{wanted} for column {field.name!r} (field id {field.field_id})", f"{found.type}"
            )
        return convert

    def filled(self, field: NestedField, taken: Column) -> Column:
        fallback = self.source.fallback.get(field.field_id)
        return taken if fallback is None else _Filled(taken, fallback)

    def absent(self, field: NestedField) -> Column:
        """The column of a field the file does not have."""
        for known in (self.source.computed, self.source.fallback):
            if field.field_id in known:
                return known[field.field_id]
        value = self.source.constants.get(field.field_id, field.initial_default)
        filled = constant(value, field.field_type, self.carrier)
        if filled.value.null_count and field.required and not isinstance(field.field_type, UnknownType):
            wanted = f"the required column {field.name!r} (field id {field.field_id}), which has no initial default"
            raise CorruptFile(self.source.path, wanted, "no such column")
        return filled


def constant(value: Any, wanted: IcebergType, carrier: Carrier) -> Constant:
    """A column of one value, given in Python's or Arrow's form."""
    if value is None or (isinstance(value, pa.Scalar) and not value.is_valid):
        return Constant(pa.nulls(1, arrow_type(wanted, carrier)))
    plain = value.bytes if isinstance(value, uuid.UUID) else value
    array = pa.repeat(plain, 1) if isinstance(plain, pa.Scalar) else pa.array([plain], arrow_type(wanted))
    convert = conversion(array.type, wanted, carrier)
    if convert is None:
        raise TypeError(f"A value of type {array.type} cannot stand for {wanted}")
    return Constant(convert(array))


def _is_pairs(found: FileField) -> bool:
    """Whether a list holds keys and values: how Avro stores a map whose keys are not strings."""
    return bool(at.is_list(found.type)) and len(found.children[0].children) == 2


def _refuse_nulls(array: pa.Array, field: NestedField, path: str, within: pa.Array | None = None) -> None:
    """Raise when a required field is null in a row that has its parent."""
    if array.null_count and field.required and not isinstance(field.field_type, UnknownType):
        missing = array.is_null() if within is None else pc.and_(array.is_null(), within.is_valid())
        if pc.any(missing).as_py():
            raise CorruptFile(path, f"values in the required column {field.name!r}", "nulls")
    if isinstance(field.field_type, StructType) and len(array):
        for at_child, child in enumerate(field.field_type.fields):
            _refuse_nulls(array.field(at_child), child, path, array)
