"""Compute table statistics: how many distinct values the columns of a snapshot have.

The counts are estimated from theta sketches, one for each column, in a Puffin file that Iceberg's planners read.

Isolation: statistics describe one snapshot, so concurrent commits do not matter unless they expire it.
Writes: one statistics file, and table metadata.

>>> t.compute_table_stats("id", "region").distinct_values
{'id': 3, 'region': 2}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import uuid4

import pyarrow as pa
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import SetStatisticsUpdate, TableUpdate
from pyiceberg.types import NestedField

from neve._version import __version__
from neve.display.format import format_size, plural
from neve.display.html import SummaryMixin
from neve.errors import UnknownName, UserError
from neve.io.puffin import Blob, encode_puffin, footer_size
from neve.io.theta import BLOB_TYPE, ThetaSketch
from neve.model.v3_types import VariantType
from neve.ops.context import TableContext
from neve.ops.metadata.statistics_files import add_statistics_file, statistics_path
from neve.ops.scan import Scan, is_exact_in_spark
from neve.ops.verb import Execution, Verb
from neve.plan.row_estimate import DISTINCT_VALUES
from neve.predicate.column_names import find_column
from neve.run.column_sketches import sketch_columns
from neve.run.spark.column_sketches import sketch_columns_on_spark

_LOCAL_BYTES = 64 << 20  # of data files that this process reads; Spark reads more


@dataclass(frozen=True, slots=True)
class TableStatsResult(SummaryMixin):
    """The statistics of a snapshot. A table without snapshots has none."""

    snapshot_id: int | None = None
    path: str | None = None
    distinct_values: Mapping[str, int] = field(default_factory=dict)  # estimates, by column
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """What happened, in a few words."""
        columns = plural(len(self.distinct_values), "column")
        return "no snapshot to describe" if self.path is None else f"distinct values of {columns} estimated"

    @property
    def output_rows(self) -> pa.Table:
        """The row that Iceberg's procedure returns; none without a snapshot."""
        return pa.table({"statistics_file": pa.array([] if self.path is None else [self.path], pa.string())})


@dataclass(frozen=True)
class TableStatsPlan:
    """Which columns of which snapshot are read, and where."""

    snapshot: Snapshot | None
    columns: Mapping[str, NestedField]
    scan: Scan | None

    @property
    def reads_with_spark(self) -> bool:
        """Whether a Spark job reads the rows: they are many, and Spark has every type as it is."""
        if self.scan is None:
            return False
        plan = self.scan.plan()
        return plan.stats.bytes > _LOCAL_BYTES and is_exact_in_spark(plan.schema)

    def explain(self) -> str:
        """Describe the plan in words."""
        if self.snapshot is None or self.scan is None:
            return "Compute no statistics: the table has no snapshot."
        where = "with Spark" if self.reads_with_spark else "in this process"
        stats = self.scan.plan().stats
        return (
            f"Estimate the distinct values of {', '.join(self.columns)} in snapshot {self.snapshot.snapshot_id}: read "
            f"{plural(stats.files, 'file')} ({format_size(stats.bytes)}) {where}"
        )


@dataclass(frozen=True)
class ComputeTableStats(Verb[TableStatsPlan, TableStatsResult]):
    """Statistics of some columns, by default of all that are no structs, lists, maps or variants."""

    columns: tuple[str, ...] = ()
    snapshot_id: int | None = None

    title = "statistics"

    def _plan(self, context: TableContext) -> TableStatsPlan:
        snapshot = context.snapshot(self.snapshot_id)
        if snapshot is None:
            return TableStatsPlan(None, {}, None)
        scan = Scan.of(context, snapshot_id=snapshot.snapshot_id)
        asked = [self._field(scan, context, name) for name in self.columns]
        found = asked or [column for column in scan.schema.fields if _is_counted(column)]
        fields = {str(scan.schema.find_column_name(column.field_id)): column for column in found}
        return TableStatsPlan(
            snapshot, fields, Scan.of(context, snapshot_id=snapshot.snapshot_id, columns=tuple(fields))
        )

    def _field(self, scan: Scan, context: TableContext, name: str) -> NestedField:
        column = find_column(scan.schema, name, case_sensitive=False)
        if column is None:
            raise UnknownName("column", name, scan.schema.column_names, f"table {context.name}")
        if not _is_counted(column):
            raise UserError(f"Cannot count the distinct values of column {name!r}: it is a {column.field_type}.")
        return column

    def _write(self, context: TableContext, plan: TableStatsPlan, execution: Execution) -> TableStatsResult:
        if plan.snapshot is None or plan.scan is None:
            return TableStatsResult()
        with execution.phase("read"):
            if plan.reads_with_spark:
                sketches = sketch_columns_on_spark(plan.scan.to_spark(), tuple(plan.columns))
            else:
                sketches = sketch_columns(plan.scan.to_batches("arrow"), tuple(plan.columns))
        path = statistics_path(context, f"{plan.snapshot.snapshot_id}-{uuid4()}.stats")
        by_id = {column.field_id: sketch for column, sketch in zip(plan.columns.values(), sketches, strict=True)}
        data, blobs = _encode_sketches(by_id, plan.snapshot)
        with execution.phase("commit"):
            add_statistics_file(context, plan.snapshot, path, data, _update(path, data, blobs, plan.snapshot))
        counts = {name: _rounded(sketch) for name, sketch in zip(plan.columns, sketches, strict=True)}
        return TableStatsResult(plan.snapshot.snapshot_id, path, counts, execution.total_seconds)


def _is_counted(column: NestedField) -> bool:
    return column.field_type.is_primitive and not isinstance(column.field_type, VariantType)


def _rounded(sketch: ThetaSketch) -> int:
    return round(sketch.estimate)


def _encode_sketches(sketches: Mapping[int, ThetaSketch], snapshot: Snapshot) -> tuple[bytes, list[Blob]]:
    """Return a Puffin file with the sketches of some columns, by field id, and the descriptions of its blobs."""
    blobs, payloads = [], []
    for field_id, sketch in sketches.items():
        about = {DISTINCT_VALUES: str(_rounded(sketch))}
        number = snapshot.sequence_number or 0
        blobs.append(Blob(BLOB_TYPE, (field_id,), snapshot.snapshot_id, number, 0, 0, "zstd", about))
        payloads.append(bytes(pa.compress(sketch.to_bytes(), codec="zstd", asbytes=True)))
    data = encode_puffin(zip(blobs, payloads, strict=True), {"created-by": f"neve {__version__}"})
    return data, blobs


def _update(path: str, data: bytes, blobs: list[Blob], snapshot: Snapshot) -> TableUpdate:
    described = [
        {
            "type": blob.type,
            "snapshot-id": blob.snapshot_id,
            "sequence-number": blob.sequence_number,
            "fields": list(blob.fields),
            "properties": dict(blob.properties),
        }
        for blob in blobs
    ]
    file = StatisticsFile.model_validate(
        {
            "snapshot-id": snapshot.snapshot_id,
            "statistics-path": path,
            "file-size-in-bytes": len(data),
            "file-footer-size-in-bytes": footer_size(data),
            "blob-metadata": described,
        }
    )
    return SetStatisticsUpdate(snapshot_id=snapshot.snapshot_id, statistics=file)
