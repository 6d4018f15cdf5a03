"""Change the partition spec, sort order, properties, location and format version of a table.

Isolation: the change lands only on the state it was made for; after a lost race it is made again on the new state.
Writes: table metadata only; no data file is touched.

>>> t.evolve_partitions(add=["bucket(4, id)"], drop=["region"]).upgrade(format_version=3)
Table('db.sales', v3, 2 specs)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedPartitionId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    SetDefaultSpecUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
    UpgradeFormatVersionUpdate,
)

from neve.catalog import LostRace, RequirementFailed
from neve.catalog.swap import Swapped
from neve.catalog.tables import absolute_location
from neve.commit.cleanup import delete_retired_metadata
from neve.commit.environment import retry_wait_seconds
from neve.errors import CommitConflict, TableError, UnsupportedFeature, UserError
from neve.io.paths import why_not_a_place
from neve.model.ddl import sort_order_of_terms
from neve.model.metadata import are_different_tables, table_identity, to_neve_metadata
from neve.model.properties import TableProperties
from neve.model.replacement import sort_order_updates
from neve.model.spec_evolution import evolved_spec
from neve.ops.context import TableContext

_FORMAT_VERSION = "format-version"  # a field of the metadata, never stored as a property
RequirementsAndUpdates = tuple[Sequence[TableRequirement], Sequence[TableUpdate]]


def evolve_partitions(
    context: TableContext, add: Iterable[str] = (), drop: Iterable[str] = (), rename: Mapping[str, str] | None = None
) -> None:
    """Make the next partition spec the default; if it equals an earlier spec, that one becomes the default again."""
    for fields in (add, drop):
        if isinstance(fields, str):
            raise UserError(f"Give partition fields as a list, such as [{fields!r}].")
    added, dropped = list(add), list(drop)

    def change(state: TableContext) -> RequirementsAndUpdates:
        metadata = state.metadata
        spec = evolved_spec(metadata, added, dropped, rename)
        if spec.spec_id == metadata.default_spec_id:
            return (), ()
        exists = spec.spec_id in metadata.specs()
        requirements = (
            AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
            AssertLastAssignedPartitionId(last_assigned_partition_id=metadata.last_partition_id),
        )
        add_spec = () if exists else (AddPartitionSpecUpdate(spec=spec),)
        return requirements, (*add_spec, SetDefaultSpecUpdate(spec_id=spec.spec_id if exists else -1))

    commit_updates(context, change, "partition evolution")


def set_properties(context: TableContext, properties: Mapping[str, str]) -> None:
    """Set properties; an unusable value of a property of the engine is rejected. `format-version` upgrades."""
    if absent := [name for name, value in properties.items() if value is None]:
        raise UserError(f"Cannot set property {absent[0]!r} to None: give it a value, or use remove_properties().")
    values = {name: str(value) for name, value in properties.items()}
    TableProperties(values).check()
    version = values.pop(_FORMAT_VERSION, None)

    def change(state: TableContext) -> RequirementsAndUpdates:
        upgraded = () if version is None else _upgrade_updates(state, int(version))
        return (), (*upgraded, *((SetPropertiesUpdate(updates=values),) if values else ()))

    commit_updates(context, change, "property change")


def remove_properties(context: TableContext, names: Iterable[str]) -> None:
    """Remove properties; one that is not set is left alone."""
    removals = list(names)
    commit_updates(context, lambda _: ((), (RemovePropertiesUpdate(removals=removals),)), "property change")


def set_sort_order(context: TableContext, terms: Iterable[str], distribution_mode: str | None = None) -> None:
    """Make a sort order the default, and set the property `write.distribution-mode` with it unless it is None."""
    texts = list(terms)
    properties = {} if distribution_mode is None else {"write.distribution-mode": distribution_mode}
    TableProperties(properties).check()

    def change(state: TableContext) -> RequirementsAndUpdates:
        metadata = state.metadata
        updates = sort_order_updates(metadata, sort_order_of_terms(texts, metadata.schema()))
        requirements = (
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
            AssertDefaultSortOrderId(default_sort_order_id=metadata.default_sort_order_id),
        )
        return requirements, (*updates, *((SetPropertiesUpdate(updates=properties),) if properties else ()))

    commit_updates(context, change, "change of the sort order")


def set_location(context: TableContext, location: str) -> None:
    """Change where the table writes new files; existing files stay where they are."""

    def change(state: TableContext) -> RequirementsAndUpdates:
        return (), (SetLocationUpdate(location=new_location(state, location)),)

    commit_updates(context, change, "change of location")


def new_location(context: TableContext, location: str) -> str:
    """Return the absolute form of a location that a table may be moved to."""
    absolute = absolute_location(location).rstrip("/")
    if reason := why_not_a_place(absolute):
        raise UserError(f"Cannot move table {context.name} to {location!r}: {reason}.")
    if context.metadata.format_version >= 4 and context.metadata.snapshots and absolute != context.metadata.location:
        raise UnsupportedFeature(
            f"Cannot move table {context.name} to {location!r}: a table of version 4 stores the paths of its files "
            "relative to its location. Set write.data.path to write new data files elsewhere."
        )
    return absolute


def upgrade_format_version(context: TableContext, format_version: int) -> None:
    """Upgrade to a later format version. From version 3 on, new rows have ids of their own."""
    commit_updates(context, lambda state: ((), _upgrade_updates(state, format_version)), "upgrade")


def _upgrade_updates(state: TableContext, format_version: int) -> tuple[TableUpdate, ...]:
    version = state.metadata.format_version
    if format_version == version:
        return ()
    if type(format_version) is not int or format_version < version or format_version not in (1, 2, 3, 4):
        raise UserError(f"Cannot move table {state.name} from format version {version} to {format_version!r}.")
    by_id: dict[int, list[str]] = {}
    for union in state.specs.union if format_version == 4 else ():
        by_id.setdefault(union.field.field_id, []).append(f"{union.field.name!r} in spec {min(union.spec_ids)}")
    for field_id, uses in by_id.items():
        if len(uses) > 1:  # version 4 identifies a partition field by its id alone
            raise UnsupportedFeature(
                f"Cannot move table {state.name} to format version 4: partition field {field_id} is "
                f"{' and '.join(uses)}, as writers of version 1 numbered them. Stay at version 3."
            )
    return (UpgradeFormatVersionUpdate(format_version=format_version),)


def commit_updates(
    context: TableContext, change: Callable[[TableContext], RequirementsAndUpdates], activity: str
) -> None:
    """Commit the updates that `change` returns for a state; after a lost race it is called with the new state."""
    retries, environment = context.properties.commit_retries, context.environment
    for attempt in range(1, retries + 2):
        began = environment.now_ms()
        requirements, updates = change(context)
        if not updates:
            return
        uuid = AssertTableUUID(uuid=context.metadata.table_uuid)
        try:
            response = context.catalog.commit_table(context.iceberg, (uuid, *requirements), tuple(updates))
        except (LostRace, RequirementFailed):
            took = environment.now_ms() - began
            environment.sleep(retry_wait_seconds(attempt, context.properties, took, environment.jitter()))
            before, context = context, context.refreshed()
            if are_different_tables(table_identity(context.metadata), table_identity(before.metadata)):
                raise TableError(
                    f"Table {context.name} was dropped and created again; no {activity} went into the new one."
                ) from None
        else:
            swapped = Swapped(context.metadata, to_neve_metadata(response.metadata), response.metadata_location)
            delete_retired_metadata(context.catalog, context.iceberg, swapped)
            return
    raise CommitConflict(f"The {activity} of table {context.name} lost {retries + 1} races. Try again.")
