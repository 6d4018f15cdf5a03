"""Apply table updates to table metadata, once and without copying what does not change.

`fold` is what a commit does to metadata. It follows the rules of the Java library (its `TableMetadata.Builder`) where
they are stricter or kinder than PyIceberg's: parents of expired snapshots stay linked, the snapshot log loses
everything before a gap, removing what is already gone is no error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PARTITION_FIELD_ID_START
from pyiceberg.table import update as iceberg
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
from pyiceberg.table.snapshots import SnapshotLogEntry
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
from neve.model.metadata_builder import Draft, now_ms
from neve.model.properties import properties_of


class OutdatedSnapshot(UserError):
    """A snapshot made for an earlier state of the table: its id or its numbers have been used meanwhile."""


def fold(
    base: TableMetadata,
    updates: Iterable[Any],
    previous_location: str | None = None,
    now: Callable[[], int] = now_ms,
) -> TableMetadata:
    """The metadata after the updates; `base` itself when they change nothing.

    `previous_location` is the metadata file of `base`; it goes to the metadata log.
    Raises UserError when an update cannot be applied to this table.
    """
    draft = Draft(base, now)
    for update in updates:
        _apply(update, draft)
    return draft.finished(previous_location)


@singledispatch
def _apply(update: Any, draft: Draft) -> None:
    raise UnsupportedFeature(f"Table update {getattr(update, 'action', type(update).__name__)!r} is not supported.")


@_apply.register
def _assign_uuid(update: iceberg.AssignUUIDUpdate, draft: Draft) -> None:
    if update.uuid != draft["table_uuid"]:
        draft["table_uuid"] = update.uuid


@_apply.register
def _set_location(update: iceberg.SetLocationUpdate, draft: Draft) -> None:
    if draft.version >= 4:
        check_has_scheme(update.location)
    if update.location != draft["location"]:
        draft["location"] = update.location


@_apply.register
def _upgrade(update: iceberg.UpgradeFormatVersionUpdate, draft: Draft) -> None:
    if update.format_version not in VERSIONS:
        raise UserError(f"Format version {update.format_version} is not supported; this engine knows 1 to 4.")
    if update.format_version < draft.version:
        raise UserError(f"Cannot downgrade a version {draft.version} table to version {update.format_version}.")
    if update.format_version == draft.version:
        return
    if update.format_version >= 4 and draft["location"] is not None:  # a table being created has none yet
        check_has_scheme(draft["location"])
    if draft.version < 2:
        draft["last_sequence_number"] = 0
        draft["snapshots"] = draft.snapshots.numbered()
    if draft.version < 3 <= update.format_version:
        draft["next_row_id"] = 0
    draft["format_version"] = update.format_version


@_apply.register
def _set_properties(update: iceberg.SetPropertiesUpdate, draft: Draft) -> None:
    properties = {**draft["properties"], **update.updates}
    if properties != draft["properties"]:
        properties_of(update.updates).check()
        draft["properties"] = properties


@_apply.register
def _remove_properties(update: iceberg.RemovePropertiesUpdate, draft: Draft) -> None:
    gone = set(update.removals)
    if not gone.isdisjoint(draft["properties"]):
        draft["properties"] = {key: value for key, value in draft["properties"].items() if key not in gone}


@_apply.register
def _add_schema(update: iceberg.AddSchemaUpdate, draft: Draft) -> None:
    schema = update.schema_
    check_schema_fits(schema, draft.version)
    schemas = draft["schemas"]
    same = next((known for known in schemas if known == schema), None)
    if same is None:
        if any(known.schema_id == schema.schema_id for known in schemas):
            schema = schema.model_copy(update={"schema_id": max(known.schema_id for known in schemas) + 1})
        draft["schemas"] = [*schemas, schema]
        draft["last_column_id"] = max(draft["last_column_id"], schema.highest_field_id)
    draft.last_added[_SCHEMA.name] = (same or schema).schema_id


@_apply.register
def _set_current_schema(update: iceberg.SetCurrentSchemaUpdate, draft: Draft) -> None:
    _choose(_SCHEMA, update.schema_id, draft)


@_apply.register
def _add_spec(update: iceberg.AddPartitionSpecUpdate, draft: Draft) -> None:
    if _add(_SPEC, update.spec, draft):
        highest = draft["last_partition_id"] or PARTITION_FIELD_ID_START - 1
        draft["last_partition_id"] = max([highest, *(field.field_id for field in update.spec.fields)])


@_apply.register
def _set_default_spec(update: iceberg.SetDefaultSpecUpdate, draft: Draft) -> None:
    _choose(_SPEC, update.spec_id, draft)


@_apply.register
def _add_sort_order(update: iceberg.AddSortOrderUpdate, draft: Draft) -> None:
    _add(_ORDER, update.sort_order, draft)


@_apply.register
def _set_default_sort_order(update: iceberg.SetDefaultSortOrderUpdate, draft: Draft) -> None:
    _choose(_ORDER, update.sort_order_id, draft)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Things a table has several of, by id, one of them in use: where metadata keeps them, and their names."""

    name: str
    many: str
    id: str
    chosen: str
    use: str
    always: tuple[int, ...] = ()  # ids that need not be listed

    def id_of(self, one: Any) -> int:
        return int(getattr(one, self.id))


_SCHEMA = _Kind("schema", "schemas", "schema_id", "current_schema_id", "the current one")
_SPEC = _Kind("partition spec", "partition_specs", "spec_id", "default_spec_id", "the default")
_ORDER = _Kind(
    "sort order", "sort_orders", "order_id", "default_sort_order_id", "the default", (UNSORTED_SORT_ORDER_ID,)
)


def _add(kind: _Kind, new: Any, draft: Draft) -> bool:
    """Whether it was new; the same again changes nothing, another one of the same id is refused."""
    known, new_id = draft[kind.many], kind.id_of(new)
    same_id = next((one for one in known if kind.id_of(one) == new_id), None)
    if same_id is not None and same_id != new:
        raise UserError(f"Cannot add {kind.name} {new_id}: the table has another one with that id.")
    if same_id is None:
        draft[kind.many] = [*known, new]
    draft.last_added[kind.name] = new_id
    return same_id is None


def _choose(kind: _Kind, asked: int, draft: Draft) -> None:
    """Put one into use; -1 stands for the one added before."""
    if asked == -1 and kind.name not in draft.last_added:
        raise UserError(f"Cannot use the last added {kind.name}: this commit adds none.")
    chosen = draft.last_added[kind.name] if asked == -1 else asked
    if chosen not in (*kind.always, *map(kind.id_of, draft[kind.many])):
        raise UserError(f"Cannot make {kind.name} {chosen} {kind.use}: the table has no such {kind.name}.")
    if chosen != draft[kind.chosen]:
        draft[kind.chosen] = chosen


@_apply.register
def _add_snapshot(update: iceberg.AddSnapshotUpdate, draft: Draft) -> None:
    snapshot = update.snapshot
    if snapshot.snapshot_id in draft.snapshots.positions:
        raise OutdatedSnapshot(f"Cannot add snapshot {snapshot.snapshot_id}: the table has one with that id.")
    if draft.version >= 2:
        _advance_sequence_number(snapshot, draft)
    if draft.version >= 3:
        _advance_row_ids(snapshot, draft)
    draft["snapshots"] = draft.snapshots.added(snapshot, draft.version)
    draft["last_updated_ms"] = snapshot.timestamp_ms
    draft.added_snapshots.add(snapshot.snapshot_id)


def _advance_sequence_number(snapshot: IcebergSnapshot, draft: Draft) -> None:
    number, last = snapshot.sequence_number, draft["last_sequence_number"]
    if number is None or number <= last:
        raise OutdatedSnapshot(
            f"Cannot add snapshot {snapshot.snapshot_id}: its sequence number {number} is not above the table's {last}."
        )
    draft["last_sequence_number"] = number


def _advance_row_ids(snapshot: IcebergSnapshot, draft: Draft) -> None:
    first, added, following = snapshot.first_row_id, snapshot.added_rows, draft["next_row_id"]
    if first is None or added is None or added < 0:
        raise UserError(
            f"Cannot add snapshot {snapshot.snapshot_id}: version {draft.version} needs first-row-id and added-rows, "
            f"not {first} and {added}."
        )
    if first < following:
        raise OutdatedSnapshot(
            f"Cannot add snapshot {snapshot.snapshot_id}: its first-row-id {first} is below "
            f"the table's next-row-id {following}."
        )
    draft["next_row_id"] = first + added


@_apply.register
def _set_ref(update: iceberg.SetSnapshotRefUpdate, draft: Draft) -> None:
    ref = _ref(update)
    existing = draft["refs"].get(update.ref_name)
    if existing == ref:
        return
    if ref.snapshot_id not in draft.snapshots.positions:
        raise UserError(
            f"Cannot set {update.ref_name!r} to snapshot {ref.snapshot_id}: the table has no such snapshot."
        )
    if existing is not None and existing.snapshot_ref_type != ref.snapshot_ref_type:
        raise UserError(
            f"Cannot make {update.ref_name!r} a {ref.snapshot_ref_type}: it is a {existing.snapshot_ref_type}."
        )
    draft["refs"] = {**draft["refs"], update.ref_name: ref}
    if update.ref_name == MAIN_BRANCH:
        _move_main(ref, draft)


def _ref(update: iceberg.SetSnapshotRefUpdate) -> Ref:
    if update.ref_name == MAIN_BRANCH and update.type != SnapshotRefType.BRANCH:
        raise UserError("Cannot make 'main' a tag: it is the branch readers see.")
    try:
        return Ref.model_validate(
            {
                "snapshot-id": update.snapshot_id,
                "type": update.type,
                "min-snapshots-to-keep": update.min_snapshots_to_keep,
                "max-snapshot-age-ms": update.max_snapshot_age_ms,
                "max-ref-age-ms": update.max_ref_age_ms,
            }
        )
    except (ValueError, ValidationError) as e:
        raise UserError(f"Cannot set {update.ref_name!r}: {e}") from e


def _move_main(ref: Ref, draft: Draft) -> None:
    if ref.snapshot_id == draft["current_snapshot_id"]:
        return  # only the retention of main changed
    if ref.snapshot_id not in draft.added_snapshots:
        draft["last_updated_ms"] = max(draft.now(), draft["last_updated_ms"])
    draft["current_snapshot_id"] = ref.snapshot_id
    entry = SnapshotLogEntry.model_validate({"snapshot-id": ref.snapshot_id, "timestamp-ms": draft["last_updated_ms"]})
    draft["snapshot_log"] = [*draft["snapshot_log"], entry]


@_apply.register
def _remove_snapshots(update: iceberg.RemoveSnapshotsUpdate, draft: Draft) -> None:
    gone = draft.snapshots.positions.keys() & set(update.snapshot_ids)
    if not gone:
        return
    draft["snapshots"] = draft.snapshots.without(gone)
    draft.removed_snapshots = True
    for name in ("statistics", "partition_statistics"):
        draft[name] = [file for file in draft[name] if file.snapshot_id not in gone]
    for name, ref in draft["refs"].items():
        if ref.snapshot_id in gone:
            _drop_ref(name, draft)


@_apply.register
def _remove_ref(update: iceberg.RemoveSnapshotRefUpdate, draft: Draft) -> None:
    if update.ref_name in draft["refs"]:
        _drop_ref(update.ref_name, draft)


def _drop_ref(name: str, draft: Draft) -> None:
    draft["refs"] = {kept: ref for kept, ref in draft["refs"].items() if kept != name}
    if name == MAIN_BRANCH:
        draft["current_snapshot_id"] = None
        draft["snapshot_log"] = []


@_apply.register
def _set_statistics(update: iceberg.SetStatisticsUpdate, draft: Draft) -> None:
    file = Statistics.model_validate(update.statistics.model_dump())
    _replace_statistics("statistics", file.snapshot_id, [file], draft)


@_apply.register
def _remove_statistics(update: iceberg.RemoveStatisticsUpdate, draft: Draft) -> None:
    _replace_statistics("statistics", update.snapshot_id, [], draft)


@_apply.register
def _set_partition_statistics(update: iceberg.SetPartitionStatisticsUpdate, draft: Draft) -> None:
    file = PartitionStatistics.model_validate(update.partition_statistics.model_dump())
    _replace_statistics("partition_statistics", file.snapshot_id, [file], draft)


@_apply.register
def _remove_partition_statistics(update: iceberg.RemovePartitionStatisticsUpdate, draft: Draft) -> None:
    _replace_statistics("partition_statistics", update.snapshot_id, [], draft)


def _replace_statistics(name: str, snapshot_id: int, files: list[Any], draft: Draft) -> None:
    replaced = [file for file in draft[name] if file.snapshot_id != snapshot_id] + files
    if replaced != draft[name]:
        draft[name] = replaced


@_apply.register
def _remove_specs(update: iceberg.RemovePartitionSpecsUpdate, draft: Draft) -> None:
    _remove(_SPEC, update.spec_ids, draft)


@_apply.register
def _remove_schemas(update: iceberg.RemoveSchemasUpdate, draft: Draft) -> None:
    _remove(_SCHEMA, update.schema_ids, draft)


def _remove(kind: _Kind, ids: Sequence[int], draft: Draft) -> None:
    if draft[kind.chosen] in ids:
        raise UserError(f"Cannot remove {kind.name} {draft[kind.chosen]}: it is {kind.use}.")
    kept = [one for one in draft[kind.many] if kind.id_of(one) not in ids]
    if len(kept) != len(draft[kind.many]):
        draft[kind.many] = kept
