"""A file's columns as a table's columns: matched by field id at every depth, with what the file lacks filled in.

Compiled once per file: which primitive columns to read, and for each column of the result how its array is made from
theirs. A field the file does not have takes, in this order, the identity partition value of the file, the initial
default of the field, or null.

An open file, a task and a schema, joined to the projection that reads one into the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import types as at
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, MapType, NestedField, StructType, UnknownType

from neve.errors import CorruptFile
from neve.run.read.array_builders import (
    CheckedColumn,
    ColumnBuilder,
    ColumnWithFallback,
    FileColumn,
    ListConverter,
    MapConverter,
    RowRange,
    StructConverter,
    constant_column,
)
from neve.run.read.conversions import Converter, conversion
from neve.run.read.field_ids import FileField, assign_field_ids
from neve.run.read.formats import DataFile
from neve.run.read.metadata_columns import computed_columns, lineage_columns
from neve.run.read.tasks import FileTask, ReadTarget
from neve.run.read.types import ArrowFlavor, arrow_schema, arrow_type


@dataclass(frozen=True)
class ProjectionSource:
    """What is known about a file before its bytes are read."""

    path: str
    fields: tuple[FileField, ...]
    # Three mappings by field id:
    constants: Mapping[int, Any]  # values of the whole file, used where it has no such column
    computed_columns: Mapping[int, ColumnBuilder]  # columns made from the position of a row, whatever the file holds
    fallback_columns: Mapping[int, ColumnBuilder]  # the same, where the file has no such column, or null in a row
    prunes_nested: bool  # whether the reader can leave out single children of a struct


@dataclass(frozen=True)
class Projection:
    """The columns to read from a file, and the batches they become."""

    schema: pa.Schema
    columns: tuple[ColumnBuilder, ...]
    leaves: tuple[int, ...]  # primitive columns to read, ascending

    def apply(self, columns: Sequence[pa.Array], rows: RowRange) -> pa.RecordBatch:
        """A batch of the result from the arrays of the columns read."""
        arrays = [column.build(columns, rows) for column in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def compile_projection(schema: Schema, source: ProjectionSource, flavor: ArrowFlavor) -> Projection:
    """How rows of a schema are made from a file."""
    # Twice: where an array is found among those read is known only when all leaves are.
    _, leaves = _Compiler(source, flavor).compile_columns(schema.fields, source.fields, prunes=True)
    columns, _ = _Compiler(source, flavor, leaves).compile_columns(schema.fields, source.fields, prunes=True)
    checked = tuple(CheckedColumn(c, f, source.path) for c, f in zip(columns, schema.fields, strict=True))
    return Projection(arrow_schema(schema, flavor), checked, tuple(sorted(leaves)))


@dataclass(frozen=True)
class _Compiler:
    source: ProjectionSource
    flavor: ArrowFlavor
    leaves: Set[int] | None = None  # all that are read, where they are known

    def compile_columns(
        self, fields: Sequence[NestedField], found: tuple[FileField, ...], prunes: bool
    ) -> tuple[tuple[ColumnBuilder, ...], set[int]]:
        """How fields are made from the children of a struct, and the leaves that takes."""
        ordinals = self.ordinals_by_id(found)
        places = [ordinals[f.field_id] if self.is_read(f, ordinals) else None for f in fields]
        converted = [
            None if at is None else self.compile_conversion(f, found[at]) for f, at in zip(fields, places, strict=True)
        ]
        leaves = {leaf for each in converted if each is not None for leaf in each[1]}
        arrays = leaves if self.leaves is None else self.leaves
        read = [i for i, f in enumerate(found) if not prunes or not arrays.isdisjoint(f.leaves)]
        rank = {ordinal: at for at, ordinal in enumerate(read)}
        columns = (
            self.missing_column(f)
            if at is None or each is None
            else self.with_fallback(f, FileColumn(rank[at], each[0]))
            for f, at, each in zip(fields, places, converted, strict=True)
        )
        return tuple(columns), leaves

    def is_read(self, field: NestedField, ordinals: Mapping[int, int]) -> bool:
        computed = field.field_id in self.source.computed_columns or isinstance(field.field_type, UnknownType)
        return field.field_id in ordinals and not computed

    def ordinals_by_id(self, found: Iterable[FileField]) -> dict[int, int]:
        ordinals: dict[int, int] = {}
        for ordinal, field in enumerate(found):
            if field.field_id is None:
                continue
            if field.field_id in ordinals:
                raise CorruptFile(self.source.path, "field ids that differ", f"field id {field.field_id} twice")
            ordinals[field.field_id] = ordinal
        return ordinals

    def compile_conversion(self, field: NestedField, found: FileField) -> tuple[Converter, set[int]]:
        wanted, kind = field.field_type, arrow_type(field.field_type, self.flavor)
        match wanted:
            case StructType() if at.is_struct(found.type):
                children, leaves = self.compile_columns(wanted.fields, found.children, self.source.prunes_nested)
                # Nothing of the struct is read: its first leaf still tells which rows have none.
                return StructConverter(kind, children), leaves or {found.leaves.start}
            case ListType() if len(found.children) == 1 and not at.is_struct(found.type):
                element, leaves = self.compile_conversion(wanted.element_field, found.children[0])
                return ListConverter(kind, element), leaves
            case MapType() if at.is_map(found.type):
                key, of_keys = self.compile_conversion(wanted.key_field, found.children[0])
                value, of_values = self.compile_conversion(wanted.value_field, found.children[1])
                return MapConverter(kind, key, value), of_keys | of_values
            case MapType() if _is_pairs(found):
                key, of_keys = self.compile_conversion(wanted.key_field, found.children[0].children[0])
                value, of_values = self.compile_conversion(wanted.value_field, found.children[0].children[1])
                return MapConverter(kind, key, value), of_keys | of_values
            case _:
                return self.leaf_conversion(field, found), set(found.leaves)

    def leaf_conversion(self, field: NestedField, found: FileField) -> Converter:
        wanted = field.field_type
        convert = conversion(found.type, wanted, self.flavor) if wanted.is_primitive else None
        if convert is None or found.children:
            raise CorruptFile(
                self.source.path, f"{wanted} for column {field.name!r} (field id {field.field_id})", f"{found.type}"
            )
        return convert

    def with_fallback(self, field: NestedField, taken: ColumnBuilder) -> ColumnBuilder:
        fallback = self.source.fallback_columns.get(field.field_id)
        return taken if fallback is None else ColumnWithFallback(taken, fallback)

    def missing_column(self, field: NestedField) -> ColumnBuilder:
        """The column of a field the file does not have."""
        for known in (self.source.computed_columns, self.source.fallback_columns):
            if field.field_id in known:
                return known[field.field_id]
        value = self.source.constants.get(field.field_id, field.initial_default)
        filled = constant_column(value, field.field_type, self.flavor)
        if filled.value.null_count and field.required and not isinstance(field.field_type, UnknownType):
            wanted = f"the required column {field.name!r} (field id {field.field_id}), which has no initial default"
            raise CorruptFile(self.source.path, wanted, "no such column")
        return filled


def _is_pairs(found: FileField) -> bool:
    """Whether a list holds keys and values: how Avro stores a map whose keys are not strings."""
    return bool(at.is_list(found.type)) and len(found.children[0].children) == 2


def bind_projection(data: DataFile, task: FileTask, schema: Schema, target: ReadTarget) -> Projection:
    """How rows of a schema, which need not be the target's own, are made from an open data file."""
    source = ProjectionSource(
        path=task.path,
        fields=fields_with_ids(data, task.path, target),
        constants=task.partition,
        computed_columns=computed_columns(task, schema, target.flavor),
        fallback_columns=lineage_columns(task, target.flavor),
        prunes_nested=data.prunes_nested,
    )
    return compile_projection(schema, source, target.flavor)


def fields_with_ids(data: DataFile, path: str, target: ReadTarget) -> tuple[FileField, ...]:
    """The columns of an open file, each with the id of the table field it holds."""
    return assign_field_ids(data.fields, path, target.name_mapping, target.schemas or [target.schema])
