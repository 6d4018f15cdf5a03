"""Take snapshots, names, specs and schemas out of table metadata: what a catalog is asked for, and on which condition.

The files stay until the change is known to have landed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field
from pyiceberg.exceptions import CommitFailedException
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

from neve.model.metadata import TableMetadata

__all__ = ["AssertHistory", "Expiry"]


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

    def requirements(self, metadata: TableMetadata, *, is_served: bool = False) -> Sequence[Any]:
        """No name has moved since, and neither has what new files are written by.

        A server is not able to say that no name was added: a tag that somebody puts on an expiring snapshot at that
        very moment goes with it.
        """
        refs = [AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in metadata.refs.items()]
        spec = [AssertDefaultSpecId(default_spec_id=metadata.default_spec_id)] if self.spec_ids else []
        schema = [AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id)] if self.schema_ids else []
        history = [] if is_served else [AssertHistory.of(metadata)]
        return (*refs, *spec, *schema, *history)
