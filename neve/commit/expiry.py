"""Remove snapshots, refs, specs and schemas from table metadata: the updates and requirements for the catalog.

Files are deleted only after the change is known to have landed.

The module also finds specs and schemas that no snapshot needs. A spec is needed by its manifests. A schema is needed by
the snapshots that were written with it. It is also needed if it is the newest schema that contains a column that some
spec uses as a source or that equality deletes compare.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow.compute as pc
from pydantic import Field
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.table import update as iceberg

from neve.commit.reachable_files import distinct_manifests
from neve.model.metadata import TableMetadata
from neve.model.partition import Specs
from neve.model.pyiceberg_private import fields_by_id
from neve.tree.read import read_entries


class AssertHistory(iceberg.ValidatableTableRequirement):
    """Require the same snapshots, branches and tags. Servers do not support it; they check each ref instead."""

    type: Literal["assert-history"] = Field(default="assert-history")
    snapshot_ids: frozenset[int]
    refs: dict[str, int]

    @classmethod
    def of(cls, metadata: TableMetadata) -> AssertHistory:
        """Build the requirement from the current history of a table."""
        return cls(
            snapshot_ids=frozenset(metadata.lazy_snapshots.positions),
            refs={name: ref.snapshot_id for name, ref in metadata.refs.items()},
        )

    def validate(self, base_metadata: Any) -> None:  # type: ignore[override]
        """Raise an error if snapshots or refs were added or removed."""
        if base_metadata is None or AssertHistory.of(base_metadata) != self:
            raise CommitFailedException("Requirement failed: snapshots, branches or tags have changed")


@dataclass(frozen=True, slots=True)
class Expiry:
    """What to remove from the metadata of a table."""

    snapshot_ids: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()
    spec_ids: tuple[int, ...] = ()
    schema_ids: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.snapshot_ids or self.refs or self.spec_ids or self.schema_ids)

    def updates(self, *, one_by_one: bool = False) -> tuple[Any, ...]:
        """Return the updates; old servers accept only one snapshot per update."""
        batches = [[i] for i in self.snapshot_ids] if one_by_one else [list(self.snapshot_ids)]
        return (
            *(iceberg.RemoveSnapshotRefUpdate(ref_name=name) for name in self.refs),
            *(iceberg.RemoveSnapshotsUpdate(snapshot_ids=ids) for ids in batches if ids),
            *([iceberg.RemovePartitionSpecsUpdate(spec_ids=list(self.spec_ids))] if self.spec_ids else []),
            *([iceberg.RemoveSchemasUpdate(schema_ids=list(self.schema_ids))] if self.schema_ids else []),
        )

    def requirements(self, metadata: TableMetadata, *, checked_by_server: bool = False) -> Sequence[Any]:
        """Require that no ref has moved, and that default spec and current schema are unchanged if some are removed.

        A server cannot check that no ref was added: a tag that is created on an expiring snapshot at the same moment
        is lost with it.
        """
        refs = [
            iceberg.AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in metadata.refs.items()
        ]
        spec = [iceberg.AssertDefaultSpecId(default_spec_id=metadata.default_spec_id)] if self.spec_ids else []
        schema = (
            [iceberg.AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id)] if self.schema_ids else []
        )
        history = [] if checked_by_server else [AssertHistory.of(metadata)]
        return (*refs, *spec, *schema, *history)


def unused_specs_and_schemas(
    io: FileIO, metadata: TableMetadata, kept_snapshot_ids: Collection[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids of the specs and schemas that nothing needs if only some snapshots are kept."""
    snapshots = [s for s in metadata.lazy_snapshots if s.snapshot_id in kept_snapshot_ids]
    manifests = distinct_manifests(io, metadata, snapshots).values()
    spec_ids = metadata.specs().keys()
    # a manifest without a spec of the table may hold files of several specs
    mixed = [m for m in manifests if m.spec_id not in spec_ids]
    used_specs = {metadata.default_spec_id, *({m.spec_id for m in manifests} & spec_ids)}
    used_specs |= set(read_entries(io, mixed, Specs.of(metadata)).spec_ids())
    unused_specs = tuple(s.spec_id for s in metadata.partition_specs if s.spec_id not in used_specs)
    schemas = {metadata.current_schema_id, *(s.schema_id for s in snapshots)}
    if None in schemas:  # the first writers did not record which schema they used: it may be any
        return unused_specs, ()
    # partition specs and equality deletes need a schema for each of their columns: the newest, if no used one has it
    sources = {f.source_id for s in metadata.partition_specs if s.spec_id in used_specs for f in s.fields}
    deletes = read_entries(io, [m for m in manifests if m.is_deletes], Specs.of(metadata), live_only=True)
    compared = pc.unique(pc.list_flatten(deletes["equality_ids"])).drop_null().to_pylist()
    newest_first = sorted(metadata.schemas, key=lambda s: -s.schema_id)
    in_use = {i for s in newest_first if s.schema_id in schemas for i in fields_by_id(s)}
    missing = (sources | set(compared)) - in_use
    with_column = (next((s for s in newest_first if c in fields_by_id(s)), None) for c in missing)
    schemas |= {schema.schema_id for schema in with_column if schema is not None}
    return unused_specs, tuple(s.schema_id for s in metadata.schemas if s.schema_id not in schemas)
