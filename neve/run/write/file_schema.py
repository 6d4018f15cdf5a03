"""The Arrow schema of data files: every column and every part of a nested column has its field id.

Strings and binaries use the plain Arrow types, as Spark produces them. Columns of type unknown are not stored: their
only value is null, and the format does not store them in files.
"""

from __future__ import annotations

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from neve.errors import UnsupportedFeature
from neve.run.read.metadata_columns import LAST_UPDATED, ROW_ID
from neve.run.read.types import arrow_type

_FIELD_ID = b"PARQUET:field_id"


def with_lineage_columns(schema: Schema) -> Schema:
    """Return a table schema followed by the two row lineage columns of format version 3."""
    for lineage in (ROW_ID, LAST_UPDATED):
        if any(f.name == lineage.name for f in schema.fields):
            raise UnsupportedFeature(
                f"Cannot write changed rows: the table has a column {lineage.name!r}, and its files need one of that "
                "name for row lineage. Rename the column."
            )
    return Schema(*schema.fields, ROW_ID, LAST_UPDATED, schema_id=schema.schema_id)


def arrow_file_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of the data files of a table schema."""
    return pa.schema([arrow_file_field(f, f.name) for f in stored_fields(schema.as_struct())])


def stored_fields(struct: ice.StructType) -> list[ice.NestedField]:
    """Return the fields of a struct that are stored in files."""
    return [f for f in struct.fields if is_stored(f.field_type)]


def is_stored(kind: ice.IcebergType) -> bool:
    """Check whether values of a type are stored in files: not type unknown, and not containers of nothing else."""
    match kind:
        case ice.UnknownType():
            return False
        case ice.StructType():
            return bool(stored_fields(kind))
        case ice.ListType():
            return is_stored(kind.element_type)
        case ice.MapType():
            return is_stored(kind.key_type) and is_stored(kind.value_type)
    return True


def arrow_file_field(field: ice.NestedField, where: str) -> pa.Field:
    """Return a field of a data file with its field id; `where` names the column in errors."""
    kind = _arrow_file_type(field.field_type, where)
    return pa.field(field.name, kind, nullable=not field.required, metadata={_FIELD_ID: str(field.field_id).encode()})


def _arrow_file_type(kind: ice.IcebergType, where: str) -> pa.DataType:
    match kind:
        case ice.StructType():
            return pa.struct([arrow_file_field(f, f"{where}.{f.name}") for f in stored_fields(kind)])
        case ice.ListType():
            return pa.list_(arrow_file_field(kind.element_field, f"{where}.element"))
        case ice.MapType():
            return pa.map_(
                arrow_file_field(kind.key_field, f"{where}.key"), arrow_file_field(kind.value_field, f"{where}.value")
            )
        case ice.UUIDType():
            return pa.uuid()
    return arrow_type(kind)
