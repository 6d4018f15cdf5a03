"""Plan a scan over a snapshot, reading no more of the metadata tree than the predicate needs.

Manifests that partition summaries rule out are not opened. Files are evaluated by their partition first; statistics are
decoded only for the files that remain.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from neve.model.partition import Specs
from neve.plan.metrics_filter import STATISTICS
from neve.plan.partition_filter import PartitionFilter
from neve.plan.scan import (
    FileFilter,
    ScanPlan,
    needs_statistics,
    plan_scan,
    prune_manifests,
    with_filter_counts,
    with_manifests,
)
from neve.tree.entries import DETAIL
from neve.tree.partition_types import infer_partition_types
from neve.tree.read import manifests_of, read_entries, read_matching_entries, refuse_repeated_files


def plan_snapshot_scan(
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
    """Plan a scan over a snapshot; `always_read` names detail columns that the reader needs of every data file."""
    manifests = manifests_of(io, metadata, snapshot)
    specs = infer_partition_types(io, Specs.of(metadata), manifests)
    partitions = PartitionFilter.of(where, specs, schema or metadata.schema(), case_sensitive=case_sensitive)
    remaining = prune_manifests(manifests, partitions)
    data = tuple(m for m in remaining if not m.is_deletes)
    deletes = read_entries(io, tuple(m for m in remaining if m.is_deletes), specs, detail=DETAIL.names, live_only=True)
    statistics = STATISTICS if needs_statistics(partitions, deletes) else ()
    file_filter = FileFilter(partitions)
    compared = None if always_read or len(deletes) else file_filter.columns
    detail = {*always_read, *statistics}
    matching = read_matching_entries(io, data, specs, file_filter, detail=detail, columns=compared)
    plan = plan_scan(
        matching.entries,
        deletes,
        metadata,
        predicate=where,
        columns=columns,
        snapshot_id=None if snapshot is None else snapshot.snapshot_id,
        case_sensitive=case_sensitive,
        schema=schema,
    )
    refuse_repeated_files(plan.files, data)  # the files to read suffice: equal files are evaluated alike
    return with_manifests(with_filter_counts(plan, matching), manifests, remaining)
