"""Store assignment: check which values may be written into a column, and convert rows to the table's schema.

Columns and struct fields are matched by name; a name that differs only in case matches if it is the only one. Missing
columns get the write default, or null. What cannot be stored is rejected: by name and type before anything is written,
by value before anything is committed. The rules are Spark's ANSI store assignment, except that a value that would be
truncated or rounded is also an error (`neve.run.write.conversions`).

Required fields of a null struct get placeholder values: Parquet stores nothing for them, but Arrow does not allow nulls
in a column that is declared without nulls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType, UUIDType

from neve.errors import UnknownName, UserError
from neve.model.v3_types import VariantType
from neve.run.read.variants import children_by_name, is_whole_variant
from neve.run.write.conversions import convert_values, is_convertible, map_pairs, unwrap_type, unwrap_values
from neve.run.write.file_schema import arrow_file_field, stored_fields

_LIST_TYPES = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def null_array(rows: int, kind: pa.DataType) -> pa.Array:
    """Return nulls of a type; required fields inside them get placeholders."""
    if not pa.types.is_struct(kind):
        return pa.nulls(rows, kind)
    children = [null_array(rows, f.type) if f.nullable else _zero_value(f.type).take(pa.repeat(0, rows)) for f in kind]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=pa.repeat(True, rows))


def fill_nulls(values: pa.Array) -> pa.Array:
    """Return the values with placeholders instead of nulls."""
    if not values.null_count:
        return values
    indices = pc.if_else(values.is_valid(), pa.array(np.arange(len(values))), len(values))
    return pa.concat_arrays([values, _zero_value(values.type)]).take(indices)


def with_required_fields(column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    """Return a column with placeholders in required fields of null structs: otherwise Arrow's casts fail on them.

    A null in a required field of a struct that is not null is an error.
    """
    return pa.chunked_array([_fill_required_fields(chunk, where) for chunk in column.chunks], column.type)


def _fill_required_fields(values: pa.Array, where: str) -> pa.Array:
    kind = values.type
    if pa.types.is_struct(kind):
        children = []
        for field, child in zip(kind, values.flatten(), strict=True):  # null where the struct is null
            name = _qualified_name(where, field.name)
            filled = _fill_required_fields(child, name)
            if not field.nullable and child.null_count:
                refuse_nulls(pc.any(pc.and_(child.is_null(), values.is_valid())).as_py(), name)
                filled = fill_nulls(filled)
            children.append(filled)
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())
    if pa.types.is_map(kind) or any(is_list(kind) for is_list in _LIST_TYPES[:2]):
        items = map_pairs(values).values if pa.types.is_map(kind) else values.values
        filled = _fill_required_fields(items, f"{where}.element")
        return pa.Array.from_buffers(kind, len(values), values.buffers()[:2], -1, values.offset, [filled])
    return values


def _zero_value(kind: pa.DataType) -> pa.Array:  # noqa: PLR0911 - one for each kind of type
    """Return one value of a type that is not null: zeros, or empty."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _zero_value(kind.storage_type))
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([_zero_value(f.type) for f in kind], fields=list(kind))
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(
            _zero_value(kind.value_type).take(pa.repeat(0, kind.list_size)), type=kind
        )
    if pa.types.is_nested(kind):  # lists and maps
        return pa.array([[]], kind)
    if pa.types.is_dictionary(kind):
        return _zero_value(kind.value_type).cast(kind)
    if kind.has_variadic_buffers or kind.num_buffers == 3:  # texts and bytes
        return pa.array([b""], pa.binary()).cast(kind)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(max(kind.bit_width // 8, 1)))])


def match_columns_by_name(names: list[str], fields: tuple[NestedField, ...], where: str = "") -> dict[int, int]:
    """Return the index of the column for each field id; a column that the table does not have is an error."""
    exact = {f.name: f.field_id for f in fields}
    ids_by_folded_name: dict[str, list[int]] = {}
    for f in fields:
        ids_by_folded_name.setdefault(f.name.lower(), []).append(f.field_id)
    # An exact match, or else the only field with that name in another case.
    unambiguous = {name: same[0] for name, same in ids_by_folded_name.items() if len(same) == 1}
    ids = [exact.get(name, unambiguous.get(name.lower())) for name in names]
    unknown = [_qualified_name(where, name) for name, field_id in zip(names, ids, strict=True) if field_id is None]
    if len(unknown) == 1:
        raise UnknownName("column", unknown[0], [_qualified_name(where, f.name) for f in fields])
    if unknown:
        raise UserError(
            f"Unknown columns {', '.join(map(repr, unknown))}: the table has no such columns. Leave them out."
        )
    index_by_id = {field_id: index for index, field_id in enumerate(ids) if field_id is not None}
    if len(index_by_id) < len(names):
        twice = next(name for index, name in enumerate(names) if index_by_id[ids[index] or 0] != index)
        raise UserError(f"Duplicate column {_qualified_name(where, twice)!r}: the rows have it twice. Give it once.")
    return index_by_id


def check_assignable(source: pa.Schema, schema: Schema) -> None:
    """Reject rows whose columns or types cannot be stored in a table of this schema."""
    _check_struct(list(source), schema.as_struct(), "")


def assign_rows(rows: pa.RecordBatch, schema: Schema, arrow_schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows in the columns of a schema and in the Arrow types of its data files."""
    fields = stored_fields(schema.as_struct())
    index_by_id = match_columns_by_name(rows.schema.names, schema.fields)
    columns = []
    for field, arrow_field in zip(fields, arrow_schema, strict=True):
        values = rows.column(index_by_id[field.field_id]) if field.field_id in index_by_id else None
        columns.append(_assign_field(values, field, arrow_field, field.name, rows.num_rows))
    for field, column in zip(fields, columns, strict=True):
        refuse_nulls(field.required and column.null_count, field.name)
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema)


def assign_column(values: pa.Array, field: NestedField) -> pa.Array:
    """Return one column in the type of the data files; nulls are not checked."""
    return _assign_field(values, field, arrow_file_field(field, field.name), field.name, len(values))


def _check_struct(children: list[pa.Field], struct: StructType, where: str) -> None:
    index_by_id = match_columns_by_name([c.name for c in children], struct.fields, where)
    for field in struct.fields:
        name = _qualified_name(where, field.name)
        if field.field_id in index_by_id:
            _check_type(children[index_by_id[field.field_id]].type, field.field_type, name)
        elif field.required and field.write_default is None:
            raise UserError(f"Missing column {name!r}: it is required and has no default. Add it to the rows.")


def _check_type(source: pa.DataType, target: IcebergType, where: str) -> None:
    source = unwrap_type(source)
    if pa.types.is_null(source):
        return
    match target:
        case StructType() if pa.types.is_struct(source):
            _check_struct([source.field(i) for i in range(source.num_fields)], target, where)
        case ListType() if any(is_list(source) for is_list in _LIST_TYPES):
            _check_type(source.value_type, target.element_type, f"{where}.element")
        case MapType() if pa.types.is_map(source):
            _check_type(source.key_type, target.key_type, f"{where}.key")
            _check_type(source.item_type, target.value_type, f"{where}.value")
        case VariantType() if is_whole_variant(source):
            pass
        case VariantType():
            raise UserError(
                f"Cannot store {source} in column {where!r} of type variant. Give Spark's VARIANT, or an Arrow struct "
                "of the binaries 'metadata' and 'value'."
            )
        case _ if not is_convertible(source, target):
            raise UserError(f"Cannot store {source} in column {where!r} of type {target}. Cast it first.")


def _assign_field(values: pa.Array | None, field: NestedField, kind: pa.Field, where: str, rows: int) -> pa.Array:
    if values is not None:
        return _assign_values(unwrap_values(values), field.field_type, kind.type, where)
    if field.write_default is None:
        return null_array(rows, kind.type)
    if isinstance(field.field_type, UUIDType):
        value = pa.scalar(getattr(field.write_default, "bytes", field.write_default), pa.binary(16))
        return pa.ExtensionArray.from_storage(kind.type, pa.repeat(value, rows))
    return pa.repeat(pa.scalar(field.write_default, kind.type), rows)


def _assign_values(values: pa.Array, target: IcebergType, kind: pa.DataType, where: str) -> pa.Array:
    if pa.types.is_null(values.type):
        return null_array(len(values), kind)
    match target:
        case StructType():
            return _assign_struct(values, target, kind, where)
        case ListType():
            return _assign_list(values, target, kind, where)
        case MapType():
            return _assign_map(values, target, kind, where)
        case VariantType():
            return _assign_variants(values, kind, where)
    return convert_values(values, target, kind, where)


def _assign_struct(values: pa.StructArray, target: StructType, kind: pa.StructType, where: str) -> pa.Array:
    index_by_id = match_columns_by_name([f.name for f in values.type], target.fields, where)
    source_children = values.flatten()  # null where the struct is null: values under a null are meaningless
    children = []
    for field, child_kind in zip(stored_fields(target), kind, strict=True):
        name = _qualified_name(where, field.name)
        source = source_children[index_by_id[field.field_id]] if field.field_id in index_by_id else None
        child = _assign_field(source, field, child_kind, name, len(values))
        if field.required and child.null_count:
            refuse_nulls(pc.sum(pc.and_(child.is_null(), values.is_valid())).as_py(), name)
            child = fill_nulls(child)
        children.append(child)
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())


def _assign_list(values: pa.Array, target: ListType, kind: pa.ListType, where: str) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(values), 0)
    elements = _assign_values(
        unwrap_values(pc.list_flatten(values)), target.element_type, kind.value_type, f"{where}.element"
    )
    refuse_nulls(target.element_required and elements.null_count, f"{where}.element")
    return pa.ListArray.from_arrays(_offsets(lengths), elements, type=kind, mask=values.is_null())


def _assign_map(values: pa.MapArray, target: MapType, kind: pa.MapType, where: str) -> pa.Array:
    pairs = map_pairs(values)
    flat = pc.list_flatten(pairs)
    keys = _assign_values(unwrap_values(flat.field(0)), target.key_type, kind.key_type, f"{where}.key")
    items = _assign_values(unwrap_values(flat.field(1)), target.value_type, kind.item_type, f"{where}.value")
    refuse_nulls(target.value_required and items.null_count, f"{where}.value")
    offsets = _offsets(pc.fill_null(pc.list_value_length(pairs), 0))
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=values.is_null())


def _assign_variants(values: pa.StructArray, kind: pa.StructType, where: str) -> pa.Array:
    children = children_by_name(values)
    parts = [children[f.name].cast(f.type) for f in kind]
    for part in parts:
        refuse_nulls(pc.sum(pc.and_(part.is_null(), values.is_valid())).as_py(), where)
    return pa.StructArray.from_arrays(map(fill_nulls, parts), fields=list(kind), mask=values.is_null())


def _offsets(lengths: pa.Array) -> pa.Array:
    ends = np.cumsum(np.asarray(lengths), dtype=np.int64)
    try:
        return pa.array(np.concatenate([[0], ends])).cast(pa.int32())
    except pa.ArrowInvalid as e:
        raise UserError(
            f"Cannot store the lists of {len(lengths)} rows together: they have {ends[-1]} elements."
        ) from e


def refuse_nulls(nulls: Any, where: str) -> None:
    """Raise if there are nulls in a required column."""
    if nulls:
        raise UserError(f"Null in required column {where!r}: fill it, or make the column optional.")


def _qualified_name(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
