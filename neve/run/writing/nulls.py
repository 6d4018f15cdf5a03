"""Nulls where a schema forbids them below a null: the fields of a struct that is null.

Parquet stores nothing for such a field, but Arrow insists that a column declared without nulls has none. So a value
that nobody will see stands there.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["all_null", "filled"]


def all_null(rows: int, kind: pa.DataType) -> pa.Array:
    """Nulls of a type; required fields inside them are filled."""
    if not pa.types.is_struct(kind):
        return pa.nulls(rows, kind)
    children = [all_null(rows, f.type) if f.nullable else _repeated(rows, f.type) for f in kind]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=pa.repeat(True, rows))


def filled(values: pa.Array) -> pa.Array:
    """The values with something in place of nulls."""
    if not values.null_count:
        return values
    places = pc.if_else(values.is_valid(), pa.array(range(len(values))), len(values))
    return pa.concat_arrays([values, _something(values.type)]).take(places)


def _repeated(rows: int, kind: pa.DataType) -> pa.Array:
    return _something(kind).take(pa.repeat(0, rows))


def _something(kind: pa.DataType) -> pa.Array:
    """One value of a type that is not null: zeros, or empty."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _something(kind.storage_type))
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([_something(f.type) for f in kind], fields=list(kind))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return pa.array([[]], kind)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.array([b""], pa.binary()).cast(kind)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(max(kind.bit_width // 8, 1)))])
