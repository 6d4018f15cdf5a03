"""Take snapshots, names, specs and schemas out of table metadata: what a catalog is asked for, and on which condition.

The files stay until the change is known to have landed.

Partition specs and schemas that no snapshot of a table needs any more.

A spec is needed by the manifests that are of it. A schema is needed by the snapshots that were written with it, and
when it is the newest that still knows a column: the source of a field of some spec, or one that equality deletes
compare.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow.compute as pc
from pydantic import Field
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    RemovePartitionSpecsUpdate,
    RemoveSchemasUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    ValidatableTableRequirement,
)

from neve.commit.reachable_files import distinct_manifests
from neve.model.metadata import TableMetadata
from neve.model.partition import Specs
from neve.model.pyiceberg_private import fields_by_id
from neve.tree.entries import Manifest
from neve.tree.read import read_entries


class AssertHistory(ValidatableTableRequirement):
    """The table has the same snapshots and the same names for them.

    Checked by this engine: servers do not know it, and are asked about each name instead.
    """

    type: Literal["assert-history"] = Field(default="assert-history")
    snapshot_ids: frozenset[int]
    refs: dict[str, int]

    @classmethod
    def of(cls, metadata: TableMetadata) -> AssertHistory:
        """The history of a table as it is now."""
        return cls(
            snapshot_ids=frozenset(metadata.lazy_snapshots.positions),
            refs={name: ref.snapshot_id for name, ref in metadata.refs.items()},
        )

    def validate(self, base_metadata: Any) -> None:  # type: ignore[override]
        """Refuse a table to which snapshots or names were added, or from which they were taken."""
        if base_metadata is None or AssertHistory.of(base_metadata) != self:
            raise CommitFailedException("Requirement failed: snapshots, branches or tags have changed")


@dataclass(frozen=True, slots=True)
class Expiry:
    """What leaves the metadata of a table."""

    snapshot_ids: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()
    spec_ids: tuple[int, ...] = ()
    schema_ids: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.snapshot_ids or self.refs or self.spec_ids or self.schema_ids)

    def updates(self, *, one_by_one: bool = False) -> tuple[Any, ...]:
        """The updates; servers of an earlier time take one snapshot at a time."""
        ids = [[i] for i in self.snapshot_ids] if one_by_one else [list(self.snapshot_ids)] if self.snapshot_ids else []
        return (
            *(RemoveSnapshotRefUpdate(ref_name=name) for name in self.refs),
            *(RemoveSnapshotsUpdate(snapshot_ids=some) for some in ids),
            *([RemovePartitionSpecsUpdate(spec_ids=list(self.spec_ids))] if self.spec_ids else []),
            *([RemoveSchemasUpdate(schema_ids=list(self.schema_ids))] if self.schema_ids else []),
        )

    def requirements(self, metadata: TableMetadata, *, checked_by_server: bool = False) -> Sequence[Any]:
        """No name has moved since, and neither has what new files are written by.

        A server is not able to say that no name was added: a tag that somebody puts on an expiring snapshot at that
        very moment goes with it.
        """
        refs = [AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in metadata.refs.items()]
        spec = [AssertDefaultSpecId(default_spec_id=metadata.default_spec_id)] if self.spec_ids else []
        schema = [AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id)] if self.schema_ids else []
        history = [] if checked_by_server else [AssertHistory.of(metadata)]
        return (*refs, *spec, *schema, *history)


def unused_specs_and_schemas(
    io: FileIO, metadata: TableMetadata, kept_snapshot_ids: Collection[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids of the specs and schemas that nothing needs when only some snapshots are kept."""
    snapshots = [s for s in metadata.lazy_snapshots if s.snapshot_id in kept_snapshot_ids]
    manifests = distinct_manifests(io, metadata, snapshots).values()
    specs = {metadata.default_spec_id, *_specs_in(io, metadata, manifests)}
    schemas = {metadata.current_schema_id, *(s.schema_id for s in snapshots)}
    if None not in schemas:  # the first writers did not say which schema they used: it may be any
        schemas |= _telling(metadata, schemas, _required_columns(io, metadata, specs, manifests))
    return (
        tuple(s.spec_id for s in metadata.partition_specs if s.spec_id not in specs),
        () if None in schemas else tuple(s.schema_id for s in metadata.schemas if s.schema_id not in schemas),
    )


def _specs_in(io: FileIO, metadata: TableMetadata, manifests: Collection[Manifest]) -> set[int]:
    """The specs of the files in manifests; one that does not tell a spec may hold files of several."""
    told, known = {m.spec_id for m in manifests}, metadata.specs().keys()
    silent = [m for m in manifests if m.spec_id not in known]
    return (told & known) | set(read_entries(io, silent, Specs.of(metadata)).spec_ids())


def _required_columns(
    io: FileIO, metadata: TableMetadata, spec_ids: set[int], manifests: Iterable[Manifest]
) -> set[int]:
    """The columns that partitions and equality deletes are about."""
    sources = {f.source_id for s in metadata.partition_specs if s.spec_id in spec_ids for f in s.fields}
    deletes = read_entries(io, [m for m in manifests if m.is_deletes], Specs.of(metadata), live_only=True)
    compared = pc.unique(pc.list_flatten(deletes["equality_ids"])).drop_null().to_pylist()
    return sources | set(compared)


def _telling(metadata: TableMetadata, known: Collection[int | None], columns: Iterable[int]) -> set[int | None]:
    """The newest schema with each column that no schema in use has."""
    newest_first = sorted(metadata.schemas, key=lambda s: -s.schema_id)
    in_use = {i for s in newest_first if s.schema_id in known for i in fields_by_id(s)}
    return {s.schema_id for column in set(columns) - in_use if (s := _first_with(newest_first, column)) is not None}


def _first_with(schemas: Iterable[Schema], column: int) -> Schema | None:
    return next((s for s in schemas if column in fields_by_id(s)), None)
