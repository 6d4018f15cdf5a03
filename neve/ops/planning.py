"""Plan a scan over a snapshot: read no more of the metadata tree than the predicate needs.

Manifests that partition summaries rule out are not opened. Files are judged by their partition first; statistics are
read only from the manifests of files that are still in question.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from neve.model.partition import Specs
from neve.plan.partition_filter import PartitionFilter
from neve.plan.scan import ScanPlan, plan_scan, prune_manifests, with_manifests
from neve.tree.entries import DETAIL, EntryTable, Manifest
from neve.tree.read import manifests_of, read_entries, with_detail

__all__ = ["plan"]

STATISTICS = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


def plan(
    io: FileIO,
    metadata: TableMetadata,
    snapshot: Snapshot | None,
    *,
    where: BooleanExpression | None = None,
    columns: Sequence[str] | None = None,
    schema: Schema | None = None,
    case_sensitive: bool = True,
    always_read: Collection[str] = (),
) -> ScanPlan:
    """The plan of a scan over a snapshot; `always_read` names detail columns the reader needs of every data file."""
    specs = Specs.of(metadata)
    partitions = PartitionFilter.of(where, specs, schema or metadata.schema(), case_sensitive=case_sensitive)
    manifests = manifests_of(io, metadata, snapshot)
    kept = prune_manifests(manifests, partitions)
    data = tuple(m for m in kept if not m.is_deletes)
    deletes = tuple(m for m in kept if m.is_deletes)
    found = plan_scan(
        _live_entries(io, data, specs, always_read),
        _live_entries(io, deletes, specs, DETAIL.names),
        metadata,
        predicate=AlwaysTrue() if where is None else where,
        columns=columns,
        snapshot_id=None if snapshot is None else snapshot.snapshot_id,
        case_sensitive=case_sensitive,
        schema=schema,
        with_statistics=lambda files: with_detail(io, files, data, STATISTICS),
    )
    return with_manifests(found, len(manifests), len(manifests) - len(kept))


def _live_entries(io: FileIO, manifests: Sequence[Manifest], specs: Specs, detail: Collection[str]) -> EntryTable:
    return read_entries(io, manifests, specs, detail=detail, live_only=True)
