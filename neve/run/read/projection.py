"""Project a file's columns onto a table's columns: match them by field id at every depth and fill in missing ones.

A projection is compiled once per file. It lists the primitive columns to read and has a builder for each column of the
result. A field that the file does not have gets, in this order, the identity partition value of the file, the initial
default of the field, or null.
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
from neve.model.v3_types import VariantType
from neve.run.read.array_builders import (
    CheckedColumn,
    ColumnBuilder,
    ColumnWithFallback,
    FileColumn,
    FileRows,
    ListConverter,
    MapConverter,
    StructConverter,
    constant_column,
)
from neve.run.read.conversions import Converter, conversion
from neve.run.read.field_ids import FileField, assign_field_ids
from neve.run.read.formats import DataFile
from neve.run.read.metadata_columns import computed_columns, lineage_columns
from neve.run.read.tasks import FileTask, ReadTarget
from neve.run.read.types import ArrowFlavor, arrow_schema, arrow_type
from neve.run.read.variants import is_variant_group, read_variants


@dataclass(frozen=True)
class ProjectionSource:
    """What is known about a file before its bytes are read."""

    path: str
    fields: tuple[FileField, ...]
    # Three mappings by field id:
    constants: Mapping[int, Any]  # values of the whole file, used where it has no such column
    computed_columns: Mapping[int, ColumnBuilder]  # built from the position of a row, whatever the file holds
    fallback_columns: Mapping[int, ColumnBuilder]  # the same, used where the file has no such column or a null
    prunes_nested: bool  # the reader can skip single children of a struct


@dataclass(frozen=True)
class Projection:
    """The columns to read from a file, and the batches they become."""

    schema: pa.Schema
    columns: tuple[ColumnBuilder, ...]
    leaves: tuple[int, ...]  # primitive columns to read, ascending

    def apply(self, columns: Sequence[pa.Array], rows: FileRows) -> pa.RecordBatch:
        """Build a batch of the result from the arrays of the columns read."""
        arrays = [column.build(columns, rows) for column in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def compile_projection(schema: Schema, source: ProjectionSource, flavor: ArrowFlavor) -> Projection:
    """Compile the projection from a file to rows of a schema."""
    # Compiled twice: the index of an array among those read is known only when all leaves are known.
    _, leaves = _Compiler(source, flavor).compile_columns(schema.fields, source.fields, prunes=True)
    columns, _ = _Compiler(source, flavor, leaves).compile_columns(schema.fields, source.fields, prunes=True)
    checked = tuple(CheckedColumn(c, f, source.path) for c, f in zip(columns, schema.fields, strict=True))
    return Projection(arrow_schema(schema, flavor), checked, tuple(sorted(leaves)))


@dataclass(frozen=True)
class _Compiler:
    source: ProjectionSource
    flavor: ArrowFlavor
    leaves: Set[int] | None = None  # all leaves that are read; None in the first pass

    def compile_columns(
        self, fields: Sequence[NestedField], file_fields: tuple[FileField, ...], prunes: bool
    ) -> tuple[tuple[ColumnBuilder, ...], set[int]]:
        """Return the builders that make fields from the children of a struct, and the leaves that they need."""
        ordinals = self.ordinals_by_id(file_fields)
        computed = self.source.computed_columns
        read_ordinals = [
            None if f.field_id in computed or isinstance(f.field_type, UnknownType) else ordinals.get(f.field_id)
            for f in fields
        ]
        conversions = [
            None if ordinal is None else self.compile_conversion(field, file_fields[ordinal])
            for field, ordinal in zip(fields, read_ordinals, strict=True)
        ]
        leaves = {leaf for each in conversions if each is not None for leaf in each[1]}
        all_leaves = leaves if self.leaves is None else self.leaves
        arrays = [i for i, f in enumerate(file_fields) if not prunes or not all_leaves.isdisjoint(f.leaves)]
        index_in_arrays = {ordinal: index for index, ordinal in enumerate(arrays)}
        columns = (
            self.missing_column(field)
            if ordinal is None or each is None
            else self.with_fallback(field, FileColumn(index_in_arrays[ordinal], each[0]))
            for field, ordinal, each in zip(fields, read_ordinals, conversions, strict=True)
        )
        return tuple(columns), leaves

    def ordinals_by_id(self, file_fields: Iterable[FileField]) -> dict[int, int]:
        ordinals: dict[int, int] = {}
        for ordinal, field in enumerate(file_fields):
            if field.field_id is None:
                continue
            if field.field_id in ordinals:
                raise CorruptFile(self.source.path, "field ids that differ", f"field id {field.field_id} twice")
            ordinals[field.field_id] = ordinal
        return ordinals

    def compile_conversion(self, field: NestedField, file_field: FileField) -> tuple[Converter, set[int]]:
        kind, result_type = field.field_type, arrow_type(field.field_type, self.flavor)
        children = file_field.children
        # Avro stores a map whose keys are not strings as a list of pairs.
        is_list_of_pairs = at.is_list(file_field.type) and len(children[0].children) == 2
        match kind:
            case StructType() if at.is_struct(file_field.type):
                columns, leaves = self.compile_columns(kind.fields, children, self.source.prunes_nested)
                # If no child is read, the first leaf still shows in which rows the struct is null.
                return StructConverter(result_type, columns), leaves or {file_field.leaves.start}
            case ListType() if len(children) == 1 and not at.is_struct(file_field.type):
                element, leaves = self.compile_conversion(kind.element_field, children[0])
                return ListConverter(result_type, element), leaves
            case MapType() if at.is_map(file_field.type) or is_list_of_pairs:
                key_and_value = children[0].children if is_list_of_pairs else children
                key, key_leaves = self.compile_conversion(kind.key_field, key_and_value[0])
                value, value_leaves = self.compile_conversion(kind.value_field, key_and_value[1])
                return MapConverter(result_type, key, value), key_leaves | value_leaves
            case VariantType() if is_variant_group(file_field.type):
                return read_variants, set(file_field.leaves)
            case _:
                convert = conversion(file_field.type, kind, self.flavor) if kind.is_primitive else None
                if convert is None or children:
                    expected = f"{kind} for column {field.name!r} (field id {field.field_id})"
                    raise CorruptFile(self.source.path, expected, f"{file_field.type}")
                return convert, set(file_field.leaves)

    def with_fallback(self, field: NestedField, column: ColumnBuilder) -> ColumnBuilder:
        fallback = self.source.fallback_columns.get(field.field_id)
        return column if fallback is None else ColumnWithFallback(column, fallback)

    def missing_column(self, field: NestedField) -> ColumnBuilder:
        for builders in (self.source.computed_columns, self.source.fallback_columns):
            if field.field_id in builders:
                return builders[field.field_id]
        value = self.source.constants.get(field.field_id, field.initial_default)
        constant = constant_column(value, field.field_type, self.flavor)
        if constant.value.null_count and field.required and not isinstance(field.field_type, UnknownType):
            expected = f"the required column {field.name!r} (field id {field.field_id}), which has no initial default"
            raise CorruptFile(self.source.path, expected, "no such column")
        return constant


def bind_projection(data: DataFile, task: FileTask, schema: Schema, target: ReadTarget) -> Projection:
    """Compile the projection from an open data file to rows of a schema, which need not be the target's own."""
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
    """Return the columns of an open file, each with the id of its table field."""
    return assign_field_ids(data.fields, path, target.name_mapping, target.schemas or [target.schema])
