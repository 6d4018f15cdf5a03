"""Compute partition statistics: the files, rows, deletes and last change of each partition of a snapshot, as a file.

Only metadata is read, and the file is written anew each time: reading the manifests of a snapshot takes no longer than
reading old statistics and the changes since.

Isolation: statistics describe one snapshot, so concurrent commits do not matter unless they expire it.
Writes: one statistics file, and table metadata.

>>> t.compute_partition_stats().partitions
2
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import PartitionStatisticsFile
from pyiceberg.table.update import SetPartitionStatisticsUpdate
from pyiceberg.types import IcebergType, IntegerType, LongType, NestedField

from neve.display.format import plural
from neve.display.html import SummaryMixin
from neve.errors import UserError
from neve.ops.context import TableContext
from neve.ops.inspect.partitions import VECTOR_COUNT, count_by_partition
from neve.ops.metadata.statistics_files import add_statistics_file, statistics_path
from neve.ops.verb import Execution, Verb
from neve.run.read.metadata_columns import partition_column
from neve.run.read.types import ArrowFlavor
from neve.run.write.file_schema import arrow_file_schema
from neve.tree.read import manifests_of

_PARTITION_ID, _PARTITION = 1, "partition"


def _column(field_id: int, name: str, kind: IcebergType, *, required: bool = True) -> NestedField:
    return NestedField(field_id, name, kind, required=required)


# The columns of the file after the partition, by name, as Iceberg's specification numbers them.
_COLUMNS = (
    _column(2, "spec_id", IntegerType()),
    _column(3, "data_record_count", LongType()),
    _column(4, "data_file_count", IntegerType()),
    _column(5, "total_data_file_size_in_bytes", LongType()),
    _column(6, "position_delete_record_count", LongType()),
    _column(7, "position_delete_file_count", IntegerType()),  # without deletion vectors
    _column(8, "equality_delete_record_count", LongType()),
    _column(9, "equality_delete_file_count", IntegerType()),
    _column(10, "total_record_count", LongType(), required=False),  # only a scan knows it where there are deletes
    _column(11, "last_updated_at", LongType(), required=False),  # milliseconds
    _column(12, "last_updated_snapshot_id", LongType(), required=False),
)
_VECTORS = _column(13, "dv_count", IntegerType())  # from version 3 on


@dataclass(frozen=True, slots=True)
class PartitionStatsResult(SummaryMixin):
    """The statistics of a snapshot. A table without snapshots has none."""

    snapshot_id: int | None = None
    path: str | None = None
    partitions: int = 0
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """What happened, in a few words."""
        return "no snapshot to describe" if self.path is None else f"{plural(self.partitions, 'partition')} described"

    @property
    def output_rows(self) -> pa.Table:
        """The row that Iceberg's procedure returns; none without a snapshot."""
        return pa.table({"partition_statistics_file": pa.array([] if self.path is None else [self.path], pa.string())})


@dataclass(frozen=True)
class PartitionStatsPlan:
    """Which snapshot is described."""

    snapshot: Snapshot | None

    def explain(self) -> str:
        """Describe the plan in words."""
        if self.snapshot is None:
            return "Compute no statistics: the table has no snapshot."
        return f"Describe the partitions of snapshot {self.snapshot.snapshot_id} from its metadata"


@dataclass(frozen=True)
class ComputePartitionStats(Verb[PartitionStatsPlan, PartitionStatsResult]):
    """Statistics of the partitions of a snapshot, by default the current one."""

    snapshot_id: int | None = None

    title = "partition statistics"

    def _plan(self, context: TableContext) -> PartitionStatsPlan:
        if not context.specs.union:
            raise UserError(f"Cannot compute partition statistics of table {context.name}: it is not partitioned.")
        return PartitionStatsPlan(context.snapshot(self.snapshot_id))

    def _write(self, context: TableContext, plan: PartitionStatsPlan, execution: Execution) -> PartitionStatsResult:
        if plan.snapshot is None:
            return PartitionStatsResult()
        rows = _statistics(context, plan.snapshot)
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        data = sink.getvalue().to_pybytes()
        path = statistics_path(context, f"partition-stats-{plan.snapshot.snapshot_id}-{uuid4()}.parquet")
        file = PartitionStatisticsFile.model_validate(
            {"snapshot-id": plan.snapshot.snapshot_id, "statistics-path": path, "file-size-in-bytes": len(data)}
        )
        with execution.phase("commit"):
            update = SetPartitionStatisticsUpdate(partition_statistics=file)
            add_statistics_file(context, plan.snapshot, path, data, update)
        return PartitionStatsResult(plan.snapshot.snapshot_id, path, len(rows), execution.total_seconds)


def _statistics(context: TableContext, snapshot: Snapshot) -> pa.Table:
    """Return the rows of the file, sorted by spec and partition."""
    manifests = [m for m in manifests_of(context.io, context.metadata, snapshot) if m.may_hold_live_files]
    counts = count_by_partition(context.live_entries(manifests), context.metadata, ArrowFlavor.EXACT)
    vectors = counts[VECTOR_COUNT]
    partition = partition_column(context.specs).model_copy(update={"field_id": _PARTITION_ID, "name": _PARTITION})
    vector_columns = (_VECTORS,) if context.metadata.format_version >= 3 else ()
    schema = arrow_file_schema(Schema(partition, *_COLUMNS, *vector_columns))
    columns = {
        **{name: counts[name] for name in counts.column_names},
        "data_record_count": counts["record_count"],
        "data_file_count": counts["file_count"],
        "position_delete_file_count": pc.subtract(counts["position_delete_file_count"], vectors),
        "total_record_count": pa.nulls(len(counts), pa.int64()),
        "last_updated_at": counts["last_updated_at"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()),
        "dv_count": vectors,
    }
    return pa.table([columns[name].cast(schema.field(name).type) for name in schema.names], schema=schema)
