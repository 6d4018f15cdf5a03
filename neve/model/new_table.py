"""Metadata of new tables, and the field ids of new tables and columns.

Ids are assigned in ascending order, columns before the fields nested in them. PyIceberg's own function for this is not
used, because it drops the default values of columns.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from pyiceberg.partitioning import PartitionSpec, assign_fresh_partition_spec_ids
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder, assign_fresh_sort_order_ids
from pyiceberg.typedef import IcebergBaseModel
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from neve.errors import CorruptFile, UserError
from neve.model.metadata import (
    VERSIONS,
    MetadataV1,
    TableMetadata,
    check_has_scheme,
    check_schema_fits,
    metadata_from_json,
)
from neve.model.metadata_updates import now_ms
from neve.model.snapshots import Snapshots


def with_fresh_ids(schema: Schema) -> Schema:
    """Return the same columns with new ids from 1 on; the schema id is 0."""
    ids = count(1)
    return renumber_schema(schema, lambda _: next(ids))


def renumber_schema(schema: Schema, id_of: Callable[[int], int], schema_id: int = 0) -> Schema:
    """Return the same columns with other ids; `id_of` returns the id of a field by its old one."""
    assigner = _IdAssigner(id_of)
    fields = assigner.renumber_fields(schema.fields)
    identifiers = [assigner.new_ids[i] for i in schema.identifier_field_ids]
    return Schema(*fields, schema_id=schema_id, identifier_field_ids=identifiers)


def with_next_ids(kind: IcebergType, next_id: Callable[[], int]) -> IcebergType:
    """Return the same type with new ids for the fields nested in it."""
    return _IdAssigner(lambda _: next_id()).renumber_type(kind)


class _IdAssigner:
    def __init__(self, id_of: Callable[[int], int]) -> None:
        self._id_of = id_of
        self.new_ids: dict[int, int] = {}  # by old id

    def renumber_fields(self, fields: Iterable[NestedField]) -> list[NestedField]:
        numbered = [(self._assign_id(f.field_id), f) for f in fields]
        return [
            f.model_copy(update={"field_id": i, "field_type": self.renumber_type(f.field_type)}) for i, f in numbered
        ]

    def _assign_id(self, old: int) -> int:
        self.new_ids[old] = self._id_of(old)
        return self.new_ids[old]

    def renumber_type(self, kind: IcebergType) -> IcebergType:
        match kind:
            case StructType():
                return StructType(*self.renumber_fields(kind.fields))
            case ListType():
                element = self._assign_id(kind.element_id)
                return ListType(element, self.renumber_type(kind.element_type), kind.element_required)
            case MapType():
                key, value = self._assign_id(kind.key_id), self._assign_id(kind.value_id)
                key_type, value_type = self.renumber_type(kind.key_type), self.renumber_type(kind.value_type)
                return MapType(key, key_type, value, value_type, kind.value_required)
        return kind


def new_metadata(
    schema: Schema,
    spec: PartitionSpec,
    sort_order: SortOrder,
    location: str,
    properties: dict[str, str],
    format_version: int,
    now: Callable[[], int] = now_ms,
    numbered: Schema | None = None,
) -> TableMetadata:
    """Return the metadata of a new table, with fresh ids for schema, spec and sort order.

    `numbered` is the same schema with the ids of its columns, if these are not to be fresh.
    """
    if format_version not in VERSIONS:
        raise UserError(f"Format version {format_version} cannot be created; use 1, 2, 3 or 4.")
    check_schema_fits(schema, format_version)
    if format_version >= 4:
        check_has_scheme(location)
    fresh = numbered or with_fresh_ids(schema)
    fresh_spec = assign_fresh_partition_spec_ids(spec, schema, fresh)
    order = assign_fresh_sort_order_ids(sort_order, schema, fresh)
    json_object: dict[str, Any] = {
        "format-version": format_version,
        "table-uuid": str(uuid.uuid4()),
        "location": location,
        "last-updated-ms": now(),
        "last-column-id": fresh.highest_field_id,
        "schemas": [fresh.model_dump(mode="json")],
        "current-schema-id": fresh.schema_id,
        "partition-specs": [fresh_spec.model_dump(mode="json")],
        "default-spec-id": fresh_spec.spec_id,
        "last-partition-id": fresh_spec.last_assigned_field_id,
        "sort-orders": [order.model_dump(mode="json")],
        "default-sort-order-id": order.order_id,
        "properties": properties,
    }
    if format_version == 1:
        json_object["schema"] = fresh.model_dump(mode="json")
        json_object["partition-spec"] = [field.model_dump(mode="json") for field in fresh_spec.fields]
    else:
        json_object["last-sequence-number"] = 0
    if format_version >= 3:
        json_object["next-row-id"] = 0
    return metadata_from_json(json_object, location)


def empty_metadata() -> TableMetadata:
    """Return the base for updates that create a table. It is not valid by itself: see `validate_metadata`."""
    fields: dict[str, Any] = {"schema_": Schema(), "last_column_id": 0, "snapshots": Snapshots()}
    return MetadataV1.model_construct(**fields)


def validate_metadata(metadata: TableMetadata) -> TableMetadata:
    """Return the metadata after every check that reading it from a file would make."""
    try:
        return metadata_from_json(IcebergBaseModel.model_dump(metadata, mode="json"), metadata.location)
    except (AttributeError, CorruptFile) as e:
        raise UserError(f"The updates do not make a complete table: {e}") from e
