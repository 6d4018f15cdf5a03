"""Private names of PyIceberg that this package uses, each in one function.

A release of PyIceberg may change any of them; `tests/model/test_pyiceberg_contract.py` checks what we rely on. Catalogs
and schema changes override private methods of PyIceberg's classes; the same test checks those names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import pyarrow as pa
from pyiceberg.expressions import BoundSetPredicate, SetPredicate
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.schema import Schema, visit
from pyiceberg.table.update.schema import UpdateSchema, _ApplyChanges
from pyiceberg.types import NestedField, StructType

SetT = TypeVar("SetT", bound=SetPredicate | BoundSetPredicate)


def fields_by_id(schema: Schema) -> Mapping[int, NestedField]:
    """Return every field of a schema, including nested ones, by id; built once per schema."""
    return schema._lazy_id_to_field


def ids_by_name(schema: Schema) -> Mapping[str, int]:
    """Return the id of every field, including nested ones, by full name."""
    return schema._name_to_id


def parents_by_id(schema: Schema) -> Mapping[int, int]:
    """Return the id of the parent of each nested field; top-level fields are left out."""
    return schema._lazy_id_to_parent


def schema_without_ids(schema: pa.Schema, format_version: int = 2) -> Schema:
    """Convert an Arrow schema to the Iceberg types of a format version; all ids are -1, to be assigned later."""
    return _pyarrow_to_schema_without_ids(schema, format_version=min(format_version, 3))  # type: ignore[arg-type]


def make_set_predicate(kind: type[SetT], term: Any, literals: set[Any]) -> SetT:
    """Return IN or NOT IN, bound or not, without the checks and copies that PyIceberg makes of every literal."""
    predicate = object.__new__(kind)
    object.__setattr__(predicate, "__dict__", {"term": term, "literals": literals})
    for name, value in (("fields_set", {"term", "literals"}), ("extra", None), ("private", None)):
        object.__setattr__(predicate, f"__pydantic_{name}__", value)
    return predicate


def columns_after_changes(change: UpdateSchema) -> tuple[NestedField, ...]:
    """Return the columns of a table after the changes collected so far."""
    visitor = _ApplyChanges(change._adds, change._updates, change._deletes, change._moves)
    struct = visit(change._schema, visitor)
    return struct.fields if isinstance(struct, StructType) else ()
