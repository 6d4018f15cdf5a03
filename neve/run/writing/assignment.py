"""Store assignment: what may be written into a column, and the rows as the table's schema wants them.

Columns and struct fields are matched by name; a name that differs only in case matches when it is the only one. What
the rows leave out takes the write default, or null. A value is stored only when it arrives whole: whole numbers may
change width, numbers may change kind when the value stays the same, dates may become timestamps at midnight and back.
Doubles may be rounded to floats, which are approximate by nature. Everything else is refused, by type before anything
is written, by value before anything is committed.

These are Spark's ANSI store assignment rules, except that a value that would be cut or rounded is an error here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
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
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from neve.errors import UnknownName, UserError
from neve.run.writing.schema import arrow_field, file_schema, stored_fields

__all__ = ["assigned", "assigned_column", "check_assignable", "matched_names"]

Test = Callable[[pa.DataType], bool]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    return any(test(kind) for test in tests)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_local(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is None)


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


_ACCEPTED: Mapping[type[IcebergType], tuple[Test, ...]] = {
    BooleanType: (pa.types.is_boolean,),
    IntegerType: (_is_number,),
    LongType: (_is_number,),
    FloatType: (_is_number,),
    DoubleType: (_is_number,),
    DecimalType: (_is_number,),
    StringType: (_is_text, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date),
    BinaryType: (_is_bytes,),
    FixedType: (_is_bytes,),
    UUIDType: (_is_bytes, _is_text),
    DateType: (pa.types.is_date, _is_local),
    TimeType: (pa.types.is_time,),
    TimestampType: (_is_local, pa.types.is_date),
    TimestampNanoType: (_is_local, pa.types.is_date),
    TimestamptzType: (_is_instant,),
    TimestamptzNanoType: (_is_instant,),
    UnknownType: (),
}


def matched_names(names: list[str], fields: tuple[NestedField, ...], where: str = "") -> dict[int, int]:
    """Which of the given columns belongs to which field id. Columns the table does not have are an error."""
    known = {f.name: f.field_id for f in fields}
    folded: dict[str, list[int]] = {}
    for f in fields:
        folded.setdefault(f.name.lower(), []).append(f.field_id)
    found: dict[int, int] = {}
    for at, name in enumerate(names):
        alike = folded.get(name.lower(), [])
        field_id = known.get(name, alike[0] if len(alike) == 1 else None)
        if field_id is None:
            raise UnknownName("column", _inside(where, name), [_inside(where, f.name) for f in fields])
        if field_id in found:
            raise UserError(f"Duplicate column {_inside(where, name)!r}: the rows have it twice. Give it once.")
        found[field_id] = at
    return found


def check_assignable(source: pa.Schema, schema: Schema) -> None:
    """Refuse rows whose columns or types cannot be stored in a table of this schema."""
    _check_struct(list(source), schema.as_struct(), "")


def assigned(rows: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """The rows in the columns and types of the data files of a schema."""
    kinds = file_schema(schema)
    fields = stored_fields(schema.as_struct())
    found = matched_names(rows.schema.names, schema.fields)
    columns = [
        _field(rows.column(found[f.field_id]) if f.field_id in found else None, f, kind, f.name, rows.num_rows)
        for f, kind in zip(fields, kinds, strict=True)
    ]
    for f, column in zip(fields, columns, strict=True):
        _refuse_nulls(f.required and column.null_count, f.name)
    return pa.RecordBatch.from_arrays(columns, schema=kinds)


def assigned_column(values: pa.Array, field: NestedField) -> pa.Array:
    """One column as the data files have it; nulls are let pass."""
    return _field(values, field, arrow_field(field, field.name), field.name, len(values))


def _check_struct(children: list[pa.Field], struct: StructType, where: str) -> None:
    found = matched_names([c.name for c in children], struct.fields, where)
    for field in struct.fields:
        name = _inside(where, field.name)
        if field.field_id in found:
            _check(children[found[field.field_id]].type, field.field_type, name)
        elif field.required and field.write_default is None:
            raise UserError(f"Missing column {name!r}: it is required and has no default. Add it to the rows.")


def _check(source: pa.DataType, target: IcebergType, where: str) -> None:
    source = _bare(source)
    if pa.types.is_null(source):
        return
    match target:
        case StructType() if pa.types.is_struct(source):
            _check_struct([source.field(at) for at in range(source.num_fields)], target, where)
        case ListType() if _is_list(source):
            _check(source.value_type, target.element_type, f"{where}.element")
        case MapType() if pa.types.is_map(source):
            _check(source.key_type, target.key_type, f"{where}.key")
            _check(source.item_type, target.value_type, f"{where}.value")
        case _ if not any(test(source) for test in _ACCEPTED.get(type(target), ())):
            raise UserError(f"Cannot store {source} in column {where!r} of type {target}. Cast it first.")


def _bare(kind: pa.DataType) -> pa.DataType:
    """The type without its wrapping: dictionaries and extensions hold plain values."""
    if isinstance(kind, pa.BaseExtensionType):
        return _bare(kind.storage_type)
    return _bare(kind.value_type) if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind) else kind


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _field(values: pa.Array | None, field: NestedField, kind: pa.Field, where: str, rows: int) -> pa.Array:
    if values is not None:
        return _fitted(_unwrapped(values), field.field_type, kind.type, where)
    if field.write_default is None:
        return pa.nulls(rows, kind.type)
    return _repeated(field, kind.type, rows)


def _repeated(field: NestedField, kind: pa.DataType, rows: int) -> pa.Array:
    """The write default of a column, in every row."""
    if isinstance(field.field_type, UUIDType):
        value = pa.scalar(getattr(field.write_default, "bytes", field.write_default), pa.binary(16))
        return pa.ExtensionArray.from_storage(kind, pa.repeat(value, rows))
    return pa.repeat(pa.scalar(field.write_default, kind), rows)


def _unwrapped(values: pa.Array) -> pa.Array:
    if isinstance(values, pa.ExtensionArray):
        return _unwrapped(values.storage)
    if pa.types.is_dictionary(values.type):
        return _unwrapped(values.dictionary_decode())
    return _unwrapped(pc.run_end_decode(values)) if pa.types.is_run_end_encoded(values.type) else values


def _fitted(values: pa.Array, target: IcebergType, kind: pa.DataType, where: str) -> pa.Array:
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    match target:
        case StructType():
            return _struct(values, target, kind, where)
        case ListType():
            return _list(values, target, kind, where)
        case MapType():
            return _map(values, target, kind, where)
    return values if values.type == kind else _converted(values, target, kind, where)


def _struct(values: pa.StructArray, target: StructType, kind: pa.StructType, where: str) -> pa.Array:
    found = matched_names([f.name for f in values.type], target.fields, where)
    children = []
    for field, child_kind in zip(stored_fields(target), kind, strict=True):
        name = _inside(where, field.name)
        given = values.field(found[field.field_id]) if field.field_id in found else None
        child = _field(given, field, child_kind, name, len(values))
        if field.required and child.null_count:
            _refuse_nulls(pc.sum(pc.and_(child.is_null(), values.is_valid())).as_py(), name)
        children.append(child)
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())


def _list(values: pa.Array, target: ListType, kind: pa.ListType, where: str) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(values), 0)
    elements = _fitted(_unwrapped(pc.list_flatten(values)), target.element_type, kind.value_type, f"{where}.element")
    _refuse_nulls(target.element_required and elements.null_count, f"{where}.element")
    return pa.ListArray.from_arrays(_offsets(lengths), elements, type=kind, mask=values.is_null())


def _map(values: pa.MapArray, target: MapType, kind: pa.MapType, where: str) -> pa.Array:
    pairs = values.cast(pa.list_(pa.struct([values.type.key_field, values.type.item_field])))
    flat = pc.list_flatten(pairs)
    keys = _fitted(_unwrapped(flat.field(0)), target.key_type, kind.key_type, f"{where}.key")
    items = _fitted(_unwrapped(flat.field(1)), target.value_type, kind.item_type, f"{where}.value")
    _refuse_nulls(target.value_required and items.null_count, f"{where}.value")
    offsets = _offsets(pc.fill_null(pc.list_value_length(pairs), 0))
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=values.is_null())


def _offsets(lengths: pa.Array) -> pa.Array:
    ends = np.cumsum(np.asarray(lengths), dtype=np.int64)
    return pa.array(np.concatenate([[0], ends]).astype(np.int32))


def _converted(values: pa.Array, target: IcebergType, kind: pa.DataType, where: str) -> pa.Array:
    """The values in another type, none of them changed."""
    try:
        return _whole(values, target, kind)
    except (pa.ArrowException, ValueError) as e:
        raise UserError(
            f"Cannot store every value of column {where!r} as {target}: one is out of range or would be rounded or cut "
            f"({values.type} given). Cast it first."
        ) from e


def _whole(values: pa.Array, target: IcebergType, kind: pa.DataType) -> pa.Array:
    match target:
        case UUIDType():
            return pa.ExtensionArray.from_storage(kind, _uuids(values))
        case FixedType():
            return values.cast(pa.binary()).cast(kind)
        case DecimalType() if pa.types.is_integer(values.type):
            return values.cast(pa.decimal128(20, 0)).cast(kind)
        case FloatType() if pa.types.is_float64(values.type) or pa.types.is_decimal(values.type):
            return _same(values.cast(pa.float64()), values.cast(pa.float64()).cast(kind), pc.is_inf)
        case DecimalType() | DateType() if not pa.types.is_decimal(values.type):
            return _same(values, values.cast(kind), lambda v: v.cast(values.type) if v.type == kind else v)
    return values.cast(kind)


def _same(values: pa.Array, converted: pa.Array, seen: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """The converted values, if they look like the given ones."""
    if pc.all(pc.equal(seen(values), seen(converted))).as_py() is False:
        raise ValueError("values would change")
    return converted


def _uuids(values: pa.Array) -> pa.Array:
    if not _is_text(values.type):
        return values.cast(pa.binary()).cast(pa.binary(16))
    present = values.drop_null()
    digits = pc.replace_substring(present, "-", "")
    if not pc.all(pc.equal(pc.binary_length(digits), 32)).as_py() and len(present):
        raise ValueError("not a UUID")
    raw = bytes.fromhex("".join(digits.to_pylist()))
    packed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(present), [None, pa.py_buffer(raw)])
    at = pc.if_else(values.is_valid(), pc.subtract(pc.cumulative_sum(values.is_valid().cast(pa.int64())), 1), None)
    return packed.take(at)


def _refuse_nulls(nulls: Any, where: str) -> None:
    if nulls:
        raise UserError(f"Null in required column {where!r}: fill it, or make the column optional.")


def _inside(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
