"""Metadata of tables that do not exist yet."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from pyiceberg.partitioning import PartitionSpec, assign_fresh_partition_spec_ids
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder, assign_fresh_sort_order_ids
from pyiceberg.typedef import IcebergBaseModel

from neve.errors import CorruptFile, UserError
from neve.model.draft import now_ms
from neve.model.metadata import (
    VERSIONS,
    MetadataV1,
    TableMetadata,
    check_has_scheme,
    check_schema_fits,
    from_object,
)
from neve.model.numbering import with_fresh_ids
from neve.model.snapshots import Snapshots

__all__ = ["empty_metadata", "new_metadata", "validated"]

_NOT_IN = {
    1: {"last-sequence-number", "next-row-id"},
    2: {"schema", "partition-spec", "next-row-id"},
    3: {"schema", "partition-spec"},
    4: {"schema", "partition-spec"},
}


def new_metadata(
    schema: Schema,
    spec: PartitionSpec,
    sort_order: SortOrder,
    location: str,
    properties: dict[str, str],
    format_version: int,
    now: Callable[[], int] = now_ms,
) -> TableMetadata:
    """Metadata of a new table, with fresh ids for schema, spec and sort order."""
    _check_version(schema, location, format_version)
    fresh = with_fresh_ids(schema)
    fresh_spec = assign_fresh_partition_spec_ids(spec, schema, fresh)
    order = assign_fresh_sort_order_ids(sort_order, schema, fresh)
    found: dict[str, Any] = {
        "format-version": format_version,
        "table-uuid": str(uuid.uuid4()),
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": now(),
        "last-column-id": fresh.highest_field_id,
        "schema": fresh.model_dump(mode="json"),
        "schemas": [fresh.model_dump(mode="json")],
        "current-schema-id": fresh.schema_id,
        "partition-spec": [field.model_dump(mode="json") for field in fresh_spec.fields],
        "partition-specs": [fresh_spec.model_dump(mode="json")],
        "default-spec-id": fresh_spec.spec_id,
        "last-partition-id": fresh_spec.last_assigned_field_id,
        "sort-orders": [order.model_dump(mode="json")],
        "default-sort-order-id": order.order_id,
        "properties": properties,
        "next-row-id": 0,
    }
    return from_object({key: found[key] for key in found if key not in _NOT_IN[format_version]}, location)


def empty_metadata() -> TableMetadata:
    """What the updates that create a table are folded into. Not valid by itself: see `validated`."""
    fields: dict[str, Any] = {"schema_": Schema(), "last_column_id": 0, "snapshots": Snapshots()}
    return MetadataV1.model_construct(**fields)


def validated(metadata: TableMetadata) -> TableMetadata:
    """The same metadata after every check that reading it from a file would make."""
    try:
        return from_object(IcebergBaseModel.model_dump(metadata, mode="json"), metadata.location)
    except (AttributeError, CorruptFile) as e:
        raise UserError(f"The updates do not make a complete table: {e}") from e


def _check_version(schema: Schema, location: str, format_version: int) -> None:
    if format_version not in VERSIONS:
        raise UserError(f"Format version {format_version} cannot be created; use 1, 2, 3 or 4.")
    check_schema_fits(schema, format_version)
    if format_version >= 4:
        check_has_scheme(location)
