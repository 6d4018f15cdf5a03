"""Névé: an Apache Iceberg table engine for tables with a long history.

>>> import neve
>>> lake = neve.connect("my-lake")
>>> t = lake.create_table("db.events", "id bigint, region string", partition_by=["region"])
>>> t.append([{"id": 1, "region": "eu"}, {"id": 2, "region": "us"}]).rows_added
2
>>> t.evolve_partitions(add=["bucket(4, id)"])
Table('db.events', v2, 2 specs)
>>> t.append([{"id": 3, "region": "eu"}]).files_added_by_spec
{1: 1}
>>> t.scan("region = 'eu'").summary()
'2 of 3 files in 2 specs'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neve._version import __version__ as __version__
    from neve.commit.outcome import Committed, Conflict, Outcome, Rejected, Unknown
    from neve.errors import (
        CommitConflict,
        CommitError,
        CommitUnknown,
        CorruptFile,
        LimitExceeded,
        MissingFile,
        NeveError,
        TableError,
        UnknownName,
        UnsupportedFeature,
        UserError,
        WriteFailed,
    )
    from neve.lake import Lake, connect
    from neve.model.partition import PartitionKey
    from neve.ops.maintenance.compute_partition_stats import PartitionStatsResult
    from neve.ops.maintenance.compute_table_stats import TableStatsResult
    from neve.ops.maintenance.copy_table import CopyPlan, CopyResult
    from neve.ops.maintenance.expire_snapshots import ExpirePlan, ExpireResult
    from neve.ops.maintenance.remove_dangling_deletes import DanglingResult
    from neve.ops.maintenance.remove_orphan_files import OrphanPlan, OrphanResult
    from neve.ops.maintenance.rewrite_manifests import RewriteManifestsResult
    from neve.ops.maintenance.rewrite_table_path import RewriteTablePathResult
    from neve.ops.maintenance.table_path_plan import TablePathPlan
    from neve.ops.metadata.drop_table import DropResult
    from neve.ops.results import AddFilesResult, ChangeResult, DeleteResult, MergeResult, UpdateResult, WriteResult
    from neve.ops.scan import Scan
    from neve.ops.write.cherry_pick import CherryPickResult
    from neve.plan.delete_files import DanglingPlan
    from neve.plan.foreign_files import IngestPlan
    from neve.plan.manifests import ManifestPlan
    from neve.plan.partition_filter import FilterStats
    from neve.plan.partition_folders import AddFilesPlan
    from neve.plan.row_change import ChangePlan
    from neve.plan.scan import ScanPlan
    from neve.session_catalog.attach import attach, detach
    from neve.source.planner import register
    from neve.table import Table
    from neve.tree.entries import EntryTable


__all__ = [
    "AddFilesPlan",
    "AddFilesResult",
    "ChangePlan",
    "ChangeResult",
    "CherryPickResult",
    "CommitConflict",
    "CommitError",
    "CommitUnknown",
    "Committed",
    "Conflict",
    "CopyPlan",
    "CopyResult",
    "CorruptFile",
    "DanglingPlan",
    "DanglingResult",
    "DeleteResult",
    "DropResult",
    "EntryTable",
    "ExpirePlan",
    "ExpireResult",
    "FilterStats",
    "IngestPlan",
    "Lake",
    "LimitExceeded",
    "ManifestPlan",
    "MergeResult",
    "MissingFile",
    "NeveError",
    "OrphanPlan",
    "OrphanResult",
    "Outcome",
    "PartitionKey",
    "PartitionStatsResult",
    "Rejected",
    "RewriteManifestsResult",
    "RewriteTablePathResult",
    "Scan",
    "ScanPlan",
    "Table",
    "TableError",
    "TablePathPlan",
    "TableStatsResult",
    "Unknown",
    "UnknownName",
    "UnsupportedFeature",
    "UpdateResult",
    "UserError",
    "WriteFailed",
    "WriteResult",
    "attach",
    "connect",
    "detach",
    "register",
]

# Names are loaded on first use, because executors import parts of this package in every worker they start.
_HOMES = {
    "neve._version": "__version__",
    "neve.commit.outcome": "Committed Conflict Outcome Rejected Unknown",
    "neve.errors": (
        "CommitConflict CommitError CommitUnknown CorruptFile LimitExceeded MissingFile "
        "NeveError TableError UnknownName UnsupportedFeature UserError WriteFailed"
    ),
    "neve.lake": "Lake connect",
    "neve.model.partition": "PartitionKey",
    "neve.ops.metadata.drop_table": "DropResult",
    "neve.ops.maintenance.compute_partition_stats": "PartitionStatsResult",
    "neve.ops.maintenance.compute_table_stats": "TableStatsResult",
    "neve.ops.maintenance.copy_table": "CopyPlan CopyResult",
    "neve.ops.maintenance.expire_snapshots": "ExpirePlan ExpireResult",
    "neve.ops.maintenance.remove_dangling_deletes": "DanglingResult",
    "neve.ops.maintenance.remove_orphan_files": "OrphanPlan OrphanResult",
    "neve.ops.results": "AddFilesResult ChangeResult DeleteResult MergeResult UpdateResult WriteResult",
    "neve.ops.maintenance.rewrite_manifests": "RewriteManifestsResult",
    "neve.ops.maintenance.rewrite_table_path": "RewriteTablePathResult",
    "neve.ops.maintenance.table_path_plan": "TablePathPlan",
    "neve.ops.scan": "Scan",
    "neve.ops.write.cherry_pick": "CherryPickResult",
    "neve.plan.row_change": "ChangePlan",
    "neve.plan.delete_files": "DanglingPlan",
    "neve.plan.manifests": "ManifestPlan",
    "neve.plan.partition_filter": "FilterStats",
    "neve.plan.foreign_files": "IngestPlan",
    "neve.plan.partition_folders": "AddFilesPlan",
    "neve.plan.scan": "ScanPlan",
    "neve.session_catalog.attach": "attach detach",
    "neve.source.planner": "register",
    "neve.table": "Table",
    "neve.tree.entries": "EntryTable",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'neve' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
