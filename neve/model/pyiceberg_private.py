"""What we need of PyIceberg that it keeps private, each name once.

A release of PyIceberg may change any of it; `tests/model/test_pyiceberg_contract.py` says what we rely on. Catalogs are
subclasses of PyIceberg's and override hooks of theirs; those names stay with them, under the same test.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

__all__ = ["fields_by_id", "ids_by_name", "parents_by_id", "schema_without_ids"]


def fields_by_id(schema: Schema) -> Mapping[int, NestedField]:
    """Every field of a schema, nested ones too, by its id; made once per schema."""
    return schema._lazy_id_to_field


def ids_by_name(schema: Schema) -> Mapping[str, int]:
    """The id of every field, nested ones too, by its full name."""
    return schema._name_to_id


def parents_by_id(schema: Schema) -> Mapping[int, int]:
    """The id of the field each nested field lies in; fields at the top are left out."""
    return schema._lazy_id_to_parent


def schema_without_ids(schema: pa.Schema) -> Schema:
    """An Arrow schema in Iceberg's types; all ids are -1, to be assigned."""
    return _pyarrow_to_schema_without_ids(schema)
