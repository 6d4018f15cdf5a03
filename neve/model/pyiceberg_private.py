"""What we need of PyIceberg that it keeps private, each name once.

A release of PyIceberg may change any of it; `tests/model/test_pyiceberg_contract.py` says what we rely on. Catalogs and
schema changes are subclasses of PyIceberg's and override hooks of theirs; those names stay with them, under the same
test.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.schema import Schema, visit
from pyiceberg.table.update.schema import UpdateSchema, _ApplyChanges
from pyiceberg.types import NestedField, StructType


def fields_by_id(schema: Schema) -> Mapping[int, NestedField]:
    """Every field of a schema, nested ones too, by its id; made once per schema."""
    return schema._lazy_id_to_field


def ids_by_name(schema: Schema) -> Mapping[str, int]:
    """The id of every field, nested ones too, by its full name."""
    return schema._name_to_id


def parents_by_id(schema: Schema) -> Mapping[int, int]:
    """The id of the field each nested field lies in; fields at the top are left out."""
    return schema._lazy_id_to_parent


def schema_without_ids(schema: pa.Schema, format_version: int = 2) -> Schema:
    """An Arrow schema in Iceberg's types, as a format version has them; all ids are -1, to be assigned."""
    return _pyarrow_to_schema_without_ids(schema, format_version=min(format_version, 3))  # type: ignore[arg-type]


def columns_after_changes(change: UpdateSchema) -> tuple[NestedField, ...]:
    """The columns of a table after the changes collected so far."""
    visitor = _ApplyChanges(change._adds, change._updates, change._deletes, change._moves)
    struct = visit(change._schema, visitor)
    return struct.fields if isinstance(struct, StructType) else ()
