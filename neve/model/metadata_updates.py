"""Apply the updates of a commit to table metadata, without copying what does not change.

The rules are those of the Java library (its `TableMetadata.Builder`) where they are stricter or more tolerant than
PyIceberg's: snapshots keep the ids of expired parents, the snapshot log loses everything before a gap, and removing
something that does not exist is no error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, cast

from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PARTITION_FIELD_ID_START
from pyiceberg.table import update as iceberg
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import MetadataLogEntry, SnapshotLogEntry
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER_ID

from neve.errors import UnsupportedFeature, UserError
from neve.model.metadata import (
    VERSIONS,
    PartitionStatistics,
    Ref,
    Statistics,
    TableMetadata,
    check_has_scheme,
    check_schema_fits,
)
from neve.model.properties import properties_of
from neve.model.snapshots import Snapshots


class OutdatedSnapshot(UserError):
    """An update for an earlier state: a snapshot's id or numbers are used up, or the snapshot described has expired."""


def now_ms() -> int:
    """Return the milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class MetadataBuilder:
    """Metadata under construction: the base, the fields that differ from it, and what the updates added."""

    def __init__(self, base: TableMetadata, now: Callable[[], int]) -> None:
        self.base = base
        self.now = now
        self.changed: dict[str, Any] = {}
        self.added_snapshots: set[int] = set()
        self.removed_snapshots = False
        self.last_added: dict[str, int] = {}  # "schema", "partition spec" … -> id, for updates with the id -1

    def __getitem__(self, name: str) -> Any:
        return self.changed[name] if name in self.changed else getattr(self.base, name, None)

    def __setitem__(self, name: str, value: Any) -> None:
        if value != self[name]:
            self.changed[name] = value

    @property
    def version(self) -> int:
        """The format version after the updates so far."""
        return cast(int, self["format_version"])

    @property
    def snapshots(self) -> Snapshots:
        """The snapshots after the updates so far."""
        return cast(Snapshots, self["snapshots"])

    def build(self, previous_location: str | None) -> TableMetadata:
        """Return the new metadata with updated logs; the base itself if nothing changed."""
        if not self.changed:
            return self.base
        updated_ms = self.changed.get("last_updated_ms") or self.now()
        self.changed["last_updated_ms"] = max(updated_ms, self.base.last_updated_ms)
        if "snapshot_log" in self.changed or self.removed_snapshots:
            # Leave out snapshots that readers never saw as current, and entries before a gap: the snapshot after a gap
            # would seem to have been current during the time of the removed one.
            current, snapshot_ids = self["current_snapshot_id"], self.snapshots.positions
            log: list[SnapshotLogEntry] = []
            for entry in self["snapshot_log"]:
                if entry.snapshot_id not in snapshot_ids:
                    log = [] if self.removed_snapshots else log
                elif entry.snapshot_id == current or entry.snapshot_id not in self.added_snapshots:
                    log.append(entry)
            self["snapshot_log"] = log
        if previous_location is not None:
            keep = max(1, properties_of(self["properties"]).metadata_previous_versions_max)
            previous = {"metadata-file": previous_location, "timestamp-ms": self.base.last_updated_ms}
            self["metadata_log"] = [*self["metadata_log"], MetadataLogEntry.model_validate(previous)][-keep:]
        kind = VERSIONS[self.version]
        if kind is type(self.base):
            built = self.base.model_copy(update=self.changed)
        else:
            fields = {**self.base.__dict__, **(self.base.__pydantic_extra__ or {}), **self.changed}
            built = kind.model_construct(**{k: v for k, v in fields.items() if k not in ("schema_", "partition_spec")})
        checked_fields = {"schemas", "current_schema_id", "default_spec_id", "default_sort_order_id"}
        return built if checked_fields.isdisjoint(self.changed) else _check_fits_schema(built)


def _check_fits_schema(built: Any) -> Any:
    """Check that spec and sort order fit the schema, and repeat the current schema and spec for version 1."""
    try:
        built.spec().check_compatible(built.schema())
        built.sort_order().check_compatible(built.schema())
    except ValidationError as e:
        raise UserError(f"Partition spec or sort order does not fit the schema: {e}") from e
    if built.format_version > 1:
        return built
    fields = [field.model_dump(mode="json") for field in built.spec().fields]
    return built.model_copy(update={"schema_": built.schema(), "partition_spec": fields})


def apply_updates(
    base: TableMetadata, updates: Iterable[Any], previous_location: str | None = None, now: Callable[[], int] = now_ms
) -> TableMetadata:
    """Return the metadata after the updates; `base` itself if they change nothing. Raises UserError for a bad update.

    `previous_location` is the metadata file of `base`, which is added to the metadata log.
    """
    builder = MetadataBuilder(base, now)
    for update in updates:
        _apply(update, builder)
    return builder.build(previous_location)


@singledispatch
def _apply(update: Any, builder: MetadataBuilder) -> None:
    """Apply one update. Updates with rules of their own have a function each, below."""
    match update:
        case iceberg.AssignUUIDUpdate():
            builder["table_uuid"] = update.uuid
        case iceberg.SetCurrentSchemaUpdate():
            _set_current_part(_SCHEMA, update.schema_id, builder)
        case iceberg.SetDefaultSpecUpdate():
            _set_current_part(_SPEC, update.spec_id, builder)
        case iceberg.SetDefaultSortOrderUpdate():
            _set_current_part(_SORT_ORDER, update.sort_order_id, builder)
        case iceberg.AddSortOrderUpdate():
            _add_part(_SORT_ORDER, update.sort_order, builder)
        case iceberg.RemovePartitionSpecsUpdate():
            _remove_parts(_SPEC, update.spec_ids, builder)
        case iceberg.RemoveSchemasUpdate():
            _remove_parts(_SCHEMA, update.schema_ids, builder)
        case iceberg.SetStatisticsUpdate():
            file: Any = Statistics.model_validate(update.statistics.model_dump())
            _replace_statistics("statistics", file.snapshot_id, [file], builder)
        case iceberg.RemoveStatisticsUpdate():
            _replace_statistics("statistics", update.snapshot_id, [], builder)
        case iceberg.SetPartitionStatisticsUpdate():
            file = PartitionStatistics.model_validate(update.partition_statistics.model_dump())
            _replace_statistics("partition_statistics", file.snapshot_id, [file], builder)
        case iceberg.RemovePartitionStatisticsUpdate():
            _replace_statistics("partition_statistics", update.snapshot_id, [], builder)
        case _:
            action = getattr(update, "action", type(update).__name__)
            raise UnsupportedFeature(f"Table update {action!r} is not supported.")


@_apply.register
def _set_location(update: iceberg.SetLocationUpdate, builder: MetadataBuilder) -> None:
    if builder.version >= 4:
        check_has_scheme(update.location)
    builder["location"] = update.location


@_apply.register
def _upgrade_format_version(update: iceberg.UpgradeFormatVersionUpdate, builder: MetadataBuilder) -> None:
    if update.format_version not in VERSIONS:
        raise UserError(f"Format version {update.format_version} is not supported; this engine supports 1 to 4.")
    if update.format_version < builder.version:
        raise UserError(f"Cannot downgrade a version {builder.version} table to version {update.format_version}.")
    if update.format_version == builder.version:
        return
    if update.format_version >= 4 and builder["location"] is not None:  # a table being created has none yet
        check_has_scheme(builder["location"])
    if builder.version < 2:
        builder["last_sequence_number"] = 0
        builder["snapshots"] = builder.snapshots.with_sequence_numbers()
    if builder.version < 3 <= update.format_version:
        builder["next_row_id"] = 0
    builder["format_version"] = update.format_version


@_apply.register
def _set_properties(update: iceberg.SetPropertiesUpdate, builder: MetadataBuilder) -> None:
    properties = {**builder["properties"], **update.updates}
    if properties != builder["properties"]:
        properties_of(update.updates).check()
        builder["properties"] = properties


@_apply.register
def _remove_properties(update: iceberg.RemovePropertiesUpdate, builder: MetadataBuilder) -> None:
    removed = set(update.removals)
    builder["properties"] = {key: value for key, value in builder["properties"].items() if key not in removed}


@_apply.register
def _add_schema(update: iceberg.AddSchemaUpdate, builder: MetadataBuilder) -> None:
    schema = update.schema_
    check_schema_fits(schema, builder.version)
    schemas = builder["schemas"]
    same = next((existing for existing in schemas if existing == schema), None)
    if same is None:
        existing_ids = [existing.schema_id for existing in schemas]
        if schema.schema_id in existing_ids:
            schema = schema.model_copy(update={"schema_id": max(existing_ids) + 1})
        builder["schemas"] = [*schemas, schema]
        builder["last_column_id"] = max(builder["last_column_id"], schema.highest_field_id)
    builder.last_added[_SCHEMA.name] = (same or schema).schema_id


@_apply.register
def _add_spec(update: iceberg.AddPartitionSpecUpdate, builder: MetadataBuilder) -> None:
    if _add_part(_SPEC, update.spec, builder):
        highest = builder["last_partition_id"] or PARTITION_FIELD_ID_START - 1
        builder["last_partition_id"] = max([highest, *(field.field_id for field in update.spec.fields)])


@dataclass(frozen=True, slots=True)
class _MetadataPart:
    """A kind of thing that a table has several of, one of them in use: its name, and where metadata stores it."""

    name: str
    list_field: str
    id_attribute: str
    current_id_field: str
    role: str
    built_in_ids: tuple[int, ...] = ()  # ids that need not be listed

    def id_of(self, part: Any) -> int:
        return int(getattr(part, self.id_attribute))


_SCHEMA = _MetadataPart("schema", "schemas", "schema_id", "current_schema_id", "the current one")
_SPEC = _MetadataPart("partition spec", "partition_specs", "spec_id", "default_spec_id", "the default")
_SORT_ORDER = _MetadataPart(
    "sort order", "sort_orders", "order_id", "default_sort_order_id", "the default", (UNSORTED_SORT_ORDER_ID,)
)


def _add_part(kind: _MetadataPart, new: Any, builder: MetadataBuilder) -> bool:
    """Add a part and return whether it was new. Another part with the same id is rejected."""
    existing, new_id = builder[kind.list_field], kind.id_of(new)
    same_id = next((part for part in existing if kind.id_of(part) == new_id), None)
    if same_id is not None and same_id != new:
        raise UserError(f"Cannot add {kind.name} {new_id}: the table has another one with that id.")
    if same_id is None:
        builder[kind.list_field] = [*existing, new]
    builder.last_added[kind.name] = new_id
    return same_id is None


def _set_current_part(kind: _MetadataPart, requested_id: int, builder: MetadataBuilder) -> None:
    """Make a part the current one; -1 stands for the part added last in this commit."""
    if requested_id == -1 and kind.name not in builder.last_added:
        raise UserError(f"Cannot use the last added {kind.name}: this commit adds none.")
    new_id = builder.last_added[kind.name] if requested_id == -1 else requested_id
    if new_id not in (*kind.built_in_ids, *map(kind.id_of, builder[kind.list_field])):
        raise UserError(f"Cannot make {kind.name} {new_id} {kind.role}: the table has no such {kind.name}.")
    builder[kind.current_id_field] = new_id


@_apply.register
def _add_snapshot(update: iceberg.AddSnapshotUpdate, builder: MetadataBuilder) -> None:
    snapshot, problem = update.snapshot, f"Cannot add snapshot {update.snapshot.snapshot_id}"
    if snapshot.snapshot_id in builder.snapshots.positions:
        raise OutdatedSnapshot(f"{problem}: the table has one with that id.")
    if builder.version >= 2:
        number, last = snapshot.sequence_number, builder["last_sequence_number"]
        if number is None or number <= last:
            raise OutdatedSnapshot(f"{problem}: its sequence number {number} is not above the table's {last}.")
        builder["last_sequence_number"] = number
    if builder.version >= 3:
        first, added, next_row_id = snapshot.first_row_id, snapshot.added_rows, builder["next_row_id"]
        if first is None or added is None or added < 0:
            needs = f"version {builder.version} needs first-row-id and added-rows"
            raise UserError(f"{problem}: {needs}, not {first} and {added}.")
        if first < next_row_id:
            raise OutdatedSnapshot(
                f"{problem}: its first-row-id {first} is below the table's next-row-id {next_row_id}."
            )
        builder["next_row_id"] = first + added
    builder["snapshots"] = builder.snapshots.with_snapshot(snapshot, builder.version)
    builder.changed["last_updated_ms"] = snapshot.timestamp_ms  # also if it is the same: otherwise it would be now
    builder.added_snapshots.add(snapshot.snapshot_id)


@_apply.register
def _set_ref(update: iceberg.SetSnapshotRefUpdate, builder: MetadataBuilder) -> None:
    if update.ref_name == MAIN_BRANCH and update.type != SnapshotRefType.BRANCH:
        raise UserError("Cannot make 'main' a tag: it is the branch that readers see.")
    names = ("snapshot_id", "type", "min_snapshots_to_keep", "max_snapshot_age_ms", "max_ref_age_ms")
    try:
        ref = Ref.model_validate({name.replace("_", "-"): getattr(update, name) for name in names})
    except (ValueError, ValidationError) as e:
        raise UserError(f"Cannot set {update.ref_name!r}: {e}") from e
    existing = builder["refs"].get(update.ref_name)
    if existing == ref:
        return
    if ref.snapshot_id not in builder.snapshots.positions:
        raise UserError(
            f"Cannot set {update.ref_name!r} to snapshot {ref.snapshot_id}: the table has no such snapshot."
        )
    if existing is not None and existing.snapshot_ref_type != ref.snapshot_ref_type:
        raise UserError(
            f"Cannot make {update.ref_name!r} a {ref.snapshot_ref_type}: it is a {existing.snapshot_ref_type}."
        )
    builder["refs"] = {**builder["refs"], update.ref_name: ref}
    if update.ref_name == MAIN_BRANCH and ref.snapshot_id != builder["current_snapshot_id"]:  # not only its retention
        if ref.snapshot_id not in builder.added_snapshots:
            builder.changed["last_updated_ms"] = max(builder.now(), builder["last_updated_ms"])
        builder["current_snapshot_id"] = ref.snapshot_id
        entry = {"snapshot-id": ref.snapshot_id, "timestamp-ms": builder["last_updated_ms"]}
        builder["snapshot_log"] = [*builder["snapshot_log"], SnapshotLogEntry.model_validate(entry)]


@_apply.register
def _remove_snapshots(update: iceberg.RemoveSnapshotsUpdate, builder: MetadataBuilder) -> None:
    removed = builder.snapshots.positions.keys() & set(update.snapshot_ids)
    if not removed:
        return
    builder["snapshots"] = builder.snapshots.without_ids(removed)
    builder.removed_snapshots = True
    for name in ("statistics", "partition_statistics"):
        builder[name] = [file for file in builder[name] if file.snapshot_id not in removed]
    for name, ref in builder["refs"].items():
        if ref.snapshot_id in removed:
            _drop_ref(name, builder)


@_apply.register
def _remove_ref(update: iceberg.RemoveSnapshotRefUpdate, builder: MetadataBuilder) -> None:
    if update.ref_name in builder["refs"]:
        _drop_ref(update.ref_name, builder)


def _drop_ref(name: str, builder: MetadataBuilder) -> None:
    builder["refs"] = {other: ref for other, ref in builder["refs"].items() if other != name}
    if name == MAIN_BRANCH:
        builder["current_snapshot_id"] = None  # the log stays: it says what was current before


def _replace_statistics(name: str, snapshot_id: int, files: list[Any], builder: MetadataBuilder) -> None:
    if files and snapshot_id not in builder.snapshots.positions:
        raise OutdatedSnapshot(f"Cannot set statistics of snapshot {snapshot_id}: the table does not have it.")
    builder[name] = [file for file in builder[name] if file.snapshot_id != snapshot_id] + files


def _remove_parts(kind: _MetadataPart, ids: Sequence[int], builder: MetadataBuilder) -> None:
    if builder[kind.current_id_field] in ids:
        raise UserError(f"Cannot remove {kind.name} {builder[kind.current_id_field]}: it is {kind.role}.")
    builder[kind.list_field] = [part for part in builder[kind.list_field] if kind.id_of(part) not in ids]
