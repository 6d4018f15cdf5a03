"""Replace the definition of a table: the schema, spec and sort order of a new one on the ids of the old one.

The table keeps its id, its snapshots and its other references. As in Iceberg, a column keeps the id of the current
column of its full name, and a partition field that of an earlier field with the same source and transform. In version
1, whose tuples are stored by position, fields that are gone stay as void.

Unlike in Iceberg, a column gets a new id if the values of the old one are not values of its type: old snapshots are
partitioned by specs that take the type of their source column from the current schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField, PartitionSpec, assign_fresh_partition_spec_ids
from pyiceberg.schema import Schema
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder, assign_fresh_sort_order_ids
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    RemoveSnapshotRefUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
    UpgradeFormatVersionUpdate,
)
from pyiceberg.transforms import VoidTransform

from neve.errors import UserError
from neve.model.ddl import is_named_like_a_column
from neve.model.metadata import TableMetadata
from neve.model.metadata_updates import apply_updates
from neve.model.new_table import renumber_schema
from neve.model.pyiceberg_private import fields_by_id, ids_by_name
from neve.model.schema_rules import can_promote


@dataclass(frozen=True, slots=True)
class Replacement:
    """The definition that a table is to have; ids in it are only those of each other."""

    schema: Schema
    spec: PartitionSpec
    sort_order: SortOrder = UNSORTED_SORT_ORDER
    properties: Mapping[str, str] | None = None  # to set; others stay as they are
    location: str | None = None  # None: it stays
    format_version: int | None = None

    def requirements(self, base: TableMetadata) -> tuple[TableRequirement, ...]:
        """Return what must still hold when the updates are applied: ids were given on top of the last ones."""
        return (
            AssertLastAssignedFieldId(last_assigned_field_id=base.last_column_id),
            AssertLastAssignedPartitionId(last_assigned_partition_id=base.last_partition_id),
        )

    def updates(self, base: TableMetadata) -> tuple[TableUpdate, ...]:
        """Return the updates that give a table this definition, and take its rows out of the main branch."""
        version = self.format_version or base.format_version
        if version < base.format_version:
            raise UserError(f"Cannot move the table from format version {base.format_version} back to {version}.")
        schema = _schema_with_ids_of(self.schema, base)
        _refuse_names_of_earlier_fields(schema, base)
        spec = _spec_with_ids_of(assign_fresh_partition_spec_ids(self.spec, self.schema, schema), schema, base)
        order = assign_fresh_sort_order_ids(self.sort_order, self.schema, schema)
        upgrade = (UpgradeFormatVersionUpdate(format_version=version),) if version > base.format_version else ()
        drop_rows = (RemoveSnapshotRefUpdate(ref_name=MAIN_BRANCH),) if MAIN_BRANCH in base.refs else ()
        move = (SetLocationUpdate(location=self.location),) if self.location not in {None, base.location} else ()
        properties = (SetPropertiesUpdate(updates=dict(self.properties)),) if self.properties else ()
        definition = (*_schema_updates(base, schema), *_spec_updates(base, spec), *sort_order_updates(base, order))
        return (*upgrade, *drop_rows, *definition, *move, *properties)

    def applied_to(self, base: TableMetadata) -> TableMetadata:
        """Return the metadata of a table that was given this definition."""
        return apply_updates(base, self.updates(base))


def _schema_with_ids_of(schema: Schema, base: TableMetadata) -> Schema:
    """Return a schema with the ids of current columns of the same name, and new ids for the others."""
    current, new_ids = base.schema(), count(base.last_column_id + 1)
    current_ids = ids_by_name(current)

    def id_of(field_id: int) -> int:
        name, kind = schema.find_column_name(field_id), fields_by_id(schema)[field_id].field_type
        old_id = current_ids.get(name or "")
        if old_id is None or current.find_column_name(old_id) != name:  # it may be a short name of another column
            return next(new_ids)
        old_kind = fields_by_id(current)[old_id].field_type
        return old_id if _holds_values_of(kind, old_kind, base.format_version) else next(new_ids)

    return renumber_schema(schema, id_of, max(s.schema_id for s in base.schemas) + 1)


def _holds_values_of(kind: ice.IcebergType, old: ice.IcebergType, format_version: int) -> bool:
    if not kind.is_primitive or not old.is_primitive:
        return type(kind) is type(old)
    # A date that becomes a timestamp keeps its values, but not those of its partition fields.
    return kind == old or (not isinstance(old, ice.DateType) and can_promote(old, kind, format_version))


def _refuse_names_of_earlier_fields(schema: Schema, base: TableMetadata) -> None:
    """Reject a column with the name of a partition field of another column that exists: Iceberg cannot load it."""
    for spec in base.specs().values():
        for field in spec.fields:
            if field.source_id in fields_by_id(schema) and is_named_like_a_column(field, schema):
                raise UserError(
                    f"Cannot name a column {field.name!r}: partition spec {spec.spec_id} has a field of that name, "
                    "derived from another column. Choose another name."
                )


def _spec_with_ids_of(spec: PartitionSpec, schema: Schema, base: TableMetadata) -> PartitionSpec:
    """Return a spec with the ids of earlier fields of the same source and transform, and new ids for the others."""
    new_ids = count(max(base.last_partition_id or 0, 999) + 1)
    spec_id = max(s.spec_id for s in base.specs().values()) + 1
    if base.format_version == 1:
        return PartitionSpec(*_fields_after_all_old(spec, schema, base, new_ids), spec_id=spec_id)
    earlier = sorted((f for s in base.specs().values() for f in s.fields), key=lambda f: f.field_id)
    known_ids, fields = {_key(f): f.field_id for f in earlier}, list[PartitionField]()
    for field in spec.fields:
        known_id = known_ids.get(_key(field))
        is_taken = known_id in {f.field_id for f in fields}  # early writers of version 1 gave one id to several fields
        fields.append(_with_id(field, next(new_ids) if known_id is None or is_taken else known_id))
    return PartitionSpec(*fields, spec_id=spec_id)


def _fields_after_all_old(
    spec: PartitionSpec, schema: Schema, base: TableMetadata, new_ids: Iterator[int]
) -> Iterator[PartitionField]:
    """Yield the fields of the current spec, as void if the new one lacks them, and the new fields after them."""
    wanted = {_key(field): field for field in spec.fields}
    new_names = {field.name for field in spec.fields}
    for old in base.spec().fields:
        kept = wanted.pop(_key(old), None)
        void = PartitionField(old.source_id, old.field_id, VoidTransform(), old.name)
        if old.name in new_names or is_named_like_a_column(void, schema):
            void = PartitionField(old.source_id, old.field_id, VoidTransform(), f"{old.name}_{old.field_id}")
        yield void if kept is None else _with_id(kept, old.field_id)
    yield from (_with_id(field, next(new_ids)) for field in wanted.values())


def _key(field: PartitionField) -> tuple[int, str]:
    return field.source_id, str(field.transform)


def _with_id(field: PartitionField, field_id: int) -> PartitionField:
    return PartitionField(field.source_id, field_id, field.transform, field.name)


def _schema_updates(base: TableMetadata, schema: Schema) -> tuple[TableUpdate, ...]:
    """Return the updates that make a schema current; one that the table has already is not added again."""
    same = next((existing for existing in base.schemas if existing == schema), None)
    if same is None:
        return AddSchemaUpdate(schema_=schema), SetCurrentSchemaUpdate(schema_id=-1)
    return () if same.schema_id == base.current_schema_id else (SetCurrentSchemaUpdate(schema_id=same.schema_id),)


def _spec_updates(base: TableMetadata, spec: PartitionSpec) -> tuple[TableUpdate, ...]:
    same = next((existing for existing in base.specs().values() if existing.fields == spec.fields), None)
    if same is None:
        return AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate(spec_id=-1)
    return () if same.spec_id == base.default_spec_id else (SetDefaultSpecUpdate(spec_id=same.spec_id),)


def sort_order_updates(base: TableMetadata, order: SortOrder) -> tuple[TableUpdate, ...]:
    """Return the updates that make a sort order the default; one that the table has already is not added again."""
    same = next((existing for existing in base.sort_orders if existing.fields == order.fields), None)
    if same is None:
        new_id = max([0, *(existing.order_id for existing in base.sort_orders)]) + 1 if order.fields else 0
        added = SortOrder(*order.fields, order_id=new_id)
        return AddSortOrderUpdate(sort_order=added), SetDefaultSortOrderUpdate(sort_order_id=-1)
    is_default = same.order_id == base.default_sort_order_id
    return () if is_default else (SetDefaultSortOrderUpdate(sort_order_id=same.order_id),)
