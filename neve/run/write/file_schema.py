"""The Arrow shape of a data file: every column and every part of a nested one carries its field id.

Strings and binaries are the plain Arrow kind, as Spark hands them over. Columns of type unknown are not stored: their
only value is null, and the format gives them no place in a file.
"""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    GeographyType,
    GeometryType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    UnknownType,
    UUIDType,
)

from neve.errors import UnsupportedFeature
from neve.run.read.metadata_columns import LAST_UPDATED, ROW_ID
from neve.run.read.types import arrow_type

_FIELD_ID = b"PARQUET:field_id"


def with_lineage_columns(schema: Schema) -> Schema:
    """A table schema followed by the two row lineage columns of format version 3."""
    for lineage in (ROW_ID, LAST_UPDATED):
        if any(f.name == lineage.name for f in schema.fields):
            raise UnsupportedFeature(
                f"Cannot write changed rows: the table has a column {lineage.name!r}, and its files need one of that "
                "name for row lineage. Rename the column."
            )
    return Schema(*schema.fields, ROW_ID, LAST_UPDATED, schema_id=schema.schema_id)


def arrow_file_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of the data files of a table schema."""
    return pa.schema([arrow_file_field(f, f.name) for f in stored_fields(schema.as_struct())])


def stored_fields(struct: StructType) -> list[NestedField]:
    """The fields of a struct that have a place in a file."""
    return [f for f in struct.fields if is_stored(f.field_type)]


def is_stored(kind: IcebergType) -> bool:
    """Whether values of a type can be in a file: not those of type unknown, nor containers of nothing else."""
    match kind:
        case UnknownType():
            return False
        case StructType():
            return bool(stored_fields(kind))
        case ListType():
            return is_stored(kind.element_type)
        case MapType():
            return is_stored(kind.key_type) and is_stored(kind.value_type)
    return True


def arrow_file_field(field: NestedField, where: str) -> pa.Field:
    """A field of a data file, with its field id; `where` names the column in errors."""
    kind = _arrow_file_type(field.field_type, where)
    return pa.field(field.name, kind, nullable=not field.required, metadata={_FIELD_ID: str(field.field_id).encode()})


def _arrow_file_type(kind: IcebergType, where: str) -> pa.DataType:
    match kind:
        case StructType():
            return pa.struct([arrow_file_field(f, f"{where}.{f.name}") for f in stored_fields(kind)])
        case ListType():
            return pa.list_(arrow_file_field(kind.element_field, f"{where}.element"))
        case MapType():
            return pa.map_(
                arrow_file_field(kind.key_field, f"{where}.key"), arrow_file_field(kind.value_field, f"{where}.value")
            )
        case UUIDType():
            return pa.uuid()
        case GeometryType() | GeographyType():
            raise UnsupportedFeature(
                f"Cannot write column {where!r} of type {kind}: geometry columns can only be read."
            )
    return arrow_type(kind)
