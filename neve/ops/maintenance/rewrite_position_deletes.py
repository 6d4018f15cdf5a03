"""Rewrite delete files: many small ones become few; from format version 3 on they become vectors.

Positions of data files that no longer exist are dropped. With `equality_deletes()` the rows that equality deletes hit
are looked up once, and positions or vectors replace the equality deletes: scans have nothing left to compare.

Isolation: commits beside anything that does not replace the same delete files, and never lets a row come back: if
concurrent writers add data files that the old deletes apply to, it is planned again.
Writes: delete files under the spec and partition of the data files they cover; the snapshot is a `replace`.

>>> t.rewrite_position_deletes().execute().summary
'nothing to rewrite'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression
from pyspark.sql import functions as F  # noqa: N812

from neve.commit.actions import RemovedFiles, RewriteFiles
from neve.commit.summary import FileCounts
from neve.display.html import SummaryMixin
from neve.errors import CorruptFile, UnknownName, UnsupportedFeature, UserError
from neve.io.deletion_vectors import PositionSet
from neve.ops.context import TableContext
from neve.ops.results import one_row
from neve.ops.rows.changed_files import TouchedFiles, merge_with_existing_deletes
from neve.ops.verb import Execution, PendingCommit, SnapshotVerb
from neve.plan.delete_files import DeletesPlan, plan_delete_rewrite
from neve.plan.metrics_filter import STATISTICS
from neve.plan.partition_filter import PartitionFilter
from neve.plan.rewrite_options import OPTIONS, RewriteOptions
from neve.plan.scan import ScanPlan
from neve.predicate import parse
from neve.run.change_tally import CLAUSE_COLUMN, FILE_COLUMN, POSITION_COLUMN, Effects
from neve.run.read.metadata_columns import ORDINAL
from neve.run.read.metadata_columns import POSITION as ROW_POSITION
from neve.run.read.tasks import with_ordinals
from neve.run.spark.position_deletes import DeletePairs, deleted_positions
from neve.run.spark.read import read_dataframe
from neve.run.spark.write import count_changes
from neve.run.write.delete_files import DeletedPositions, write_deletes
from neve.run.write.target import WriteTarget
from neve.tree.entries import DETAIL, Content, EntryTable

DELETE_OPTIONS = (
    "target-file-size-bytes",
    "min-file-size-bytes",
    "max-file-size-bytes",
    "min-input-files",
    "rewrite-all",
    "max-file-group-size-bytes",
    "max-file-group-input-files",
    "max-files-to-rewrite",
)
_LIVE_ROW_EFFECTS = Effects((True,), (False,))


@dataclass(frozen=True, slots=True)
class DeletesResult(SummaryMixin):
    """What happened to the delete files. If there was nothing to do, no snapshot is made."""

    snapshot_id: int | None = None
    delete_files_removed: int = 0
    delete_files_added: int = 0  # each vector counts as one
    bytes_removed: int = 0
    bytes_added: int = 0
    attempts: int = 0
    reruns: int = 0  # how often it was planned again after a conflict with a concurrent writer
    seconds: float = 0.0

    @property
    def output_rows(self) -> pa.Table:
        """The row that Iceberg's procedure returns."""
        return one_row(
            rewritten_delete_files_count=pa.scalar(self.delete_files_removed, pa.int32()),
            added_delete_files_count=pa.scalar(self.delete_files_added, pa.int32()),
            rewritten_bytes_count=pa.scalar(self.bytes_removed, pa.int64()),
            added_bytes_count=pa.scalar(self.bytes_added, pa.int64()),
        )

    @property
    def summary(self) -> str:
        """What happened, in a few words."""
        if not self.delete_files_removed:
            return "nothing to rewrite"
        return f"{self.delete_files_removed} delete files rewritten to {self.delete_files_added}"


@dataclass(frozen=True)
class RewritePositionDeletes(SnapshotVerb[DeletesPlan, DeletesResult]):
    """A rewrite of delete files: options, then `.plan()`, `.explain()` or `.execute()`."""

    condition: str | BooleanExpression | None = None
    raw_options: Mapping[str, Any] = field(default_factory=dict)
    includes_equality_deletes: bool = False

    title = "rewrite of delete files"

    # -- building ----------------------------------------------------------------------------------------------------

    def where(self, condition: str | BooleanExpression) -> Self:
        """Take only delete files of partitions that may hold rows for which this is true."""
        return replace(self, condition=condition)

    def option(self, name: str, value: Any) -> Self:
        """Set an option by its Iceberg name, such as `min-input-files`."""
        return self.options({name: value})

    def options(self, options: Mapping[str, Any]) -> Self:
        """Set several options by their Iceberg names."""
        for name in options:
            if name not in DELETE_OPTIONS:
                hint = " It is an option of rewrite_data_files()." if name in OPTIONS else ""
                raise UserError(f"{UnknownName('option', name, DELETE_OPTIONS)}{hint}")
        return replace(self, raw_options={**self.raw_options, **options})

    def equality_deletes(self) -> Self:
        """Replace equality deletes as well, by the positions they hit."""
        return replace(self, includes_equality_deletes=True)

    # -- planning ----------------------------------------------------------------------------------------------------

    def _plan(self, context: TableContext) -> DeletesPlan:
        metadata = context.metadata
        schema = metadata.schema()
        condition = parse(self.condition, schema, time_zone=context.time_zone())
        head = context.head(self.target_branch)
        manifests = context.live_manifests(head)
        deletes = context.live_entries([m for m in manifests if m.is_deletes], DETAIL.names)
        statistics = STATISTICS if len(deletes.of_content(Content.EQUALITY_DELETES)) else ()
        data = context.live_entries([m for m in manifests if not m.is_deletes and len(deletes)], statistics)
        return plan_delete_rewrite(
            data,
            deletes,
            schema,
            RewriteOptions.of(self.raw_options, context.properties.delete_target_file_size),
            PartitionFilter.of(condition.expression, context.specs, schema),
            writes_vectors=metadata.format_version >= 3,
            one_delete_file_per_data_file=metadata.format_version < 3
            and context.properties.delete_granularity == "file",
            include_equality_deletes=self.includes_equality_deletes,
            snapshot_id=None if head is None else head.snapshot_id,
        )

    # -- running -----------------------------------------------------------------------------------------------------

    def _write(self, context: TableContext, plan: DeletesPlan, execution: Execution) -> _WrittenDeletes:
        if plan.is_empty:
            nothing = EntryTable.empty(context.specs)
            return _WrittenDeletes(nothing, nothing)
        with execution.phase("write deletes"):
            removed, added = _DeleteRewrite(context, plan).write_files()
        action = RewriteFiles(
            removed_deletes=RemovedFiles(removed),
            added_deletes=added or None,
            start_snapshot_id=plan.snapshot_id,
            covered_data_files=frozenset(plan.scan.files["file_path"].to_pylist()),
        )
        paths = list(dict.fromkeys(added["file_path"].to_pylist()))
        return _WrittenDeletes(removed, added, action=action, written_files=paths)

    def _result(
        self, context: TableContext, plan: DeletesPlan, written: _WrittenDeletes, execution: Execution
    ) -> DeletesResult:
        committed = execution.committed
        if committed.snapshot_id is None:
            return DeletesResult(reruns=execution.reruns)
        return DeletesResult(
            snapshot_id=committed.snapshot_id,
            delete_files_removed=len(written.removed),
            delete_files_added=len(written.added),
            bytes_removed=FileCounts.of(written.removed).bytes,
            bytes_added=FileCounts.of(written.added).bytes,
            attempts=committed.attempts,
            reruns=execution.reruns,
            seconds=execution.total_seconds,
        )


@dataclass(frozen=True)
class _WrittenDeletes(PendingCommit):
    """The delete files that are replaced, and the new ones."""

    removed: EntryTable
    added: EntryTable


@dataclass(frozen=True)
class _DeleteRewrite:
    """Writes the new delete files of a plan."""

    context: TableContext
    plan: DeletesPlan

    def write_files(self) -> tuple[EntryTable, EntryTable]:
        """Write the new delete files; returns the replaced and the added ones."""
        specs, scan = self.context.specs, replace(self.plan.scan, files=with_ordinals(self.plan.scan.files))
        has_equality_deletes = _covered_files(scan, self.plan.equality_deletes)
        pairs = []
        if has_equality_deletes.any():
            pairs.append(self._replace_equality_deletes(scan.only(has_equality_deletes)))
        others = scan.only(~has_equality_deletes)
        pairs += [self._replace_position_deletes(others, self.plan.replaced.take(rows)) for rows in self.plan.groups]
        deletes = EntryTable.concat([self.plan.replaced, *(removed for removed, _ in pairs)], specs)
        # Each delete file once; vectors in a shared file differ by their offset.
        first_rows: dict[tuple[str, int | None], int] = {}
        for row, key in enumerate(zip(*(deletes[n].to_pylist() for n in ("file_path", "content_offset")), strict=True)):
            first_rows.setdefault(key, row)
        return deletes.take(list(first_rows.values())), EntryTable.concat([added for _, added in pairs], specs)

    def _replace_equality_deletes(self, scan: ScanPlan) -> tuple[EntryTable, EntryTable]:
        """Write the positions of dead rows in files with equality deletes; one job finds the live rows."""
        named = ((ORDINAL, FILE_COLUMN), (ROW_POSITION, POSITION_COLUMN))
        extra = [column.model_copy(update={"name": name}) for column, name in named]
        narrow = replace(scan, schema=scan.schema.select(*scan.schema.column_names[:1]))
        rows = read_dataframe(self.context.spark(), narrow, self.context.facts, (), extra)
        live = count_changes(rows.withColumn(CLAUSE_COLUMN, F.lit(0)), _LIVE_ROW_EFFECTS).removed_positions
        counts = scan.files.numpy("record_count").tolist()
        if -1 in counts:
            raise UnsupportedFeature(
                f"Cannot replace the equality deletes of {scan.files['file_path'][counts.index(-1)]}: its entry has no "
                "row count. Compact it first."
            )
        merged = merge_with_existing_deletes(self.context, TouchedFiles(scan, _positions_not_live(scan.files, live)))
        newest = max(_max_sequence_number(self.plan.equality_deletes), _max_sequence_number(merged.superseded_deletes))
        return merged.superseded_deletes, self._write_positions(merged.deleted_positions, newest)

    def _replace_position_deletes(self, scan: ScanPlan, old: EntryTable) -> tuple[EntryTable, EntryTable]:
        """Write the positions that delete files hold for live data files; returns also other deletes merged in."""
        covered = scan.only(_covered_files(scan, old))
        nothing = EntryTable.empty(self.context.specs)
        if not len(covered.files):
            return nothing, nothing
        if self.context.metadata.format_version >= 3:
            touched = TouchedFiles(covered, [PositionSet()] * len(covered.files))
            merged = merge_with_existing_deletes(self.context, touched)
            newest = max(_max_sequence_number(old), _max_sequence_number(merged.superseded_deletes))
            return merged.superseded_deletes, self._write_positions(merged.deleted_positions, newest)
        pairs = DeletePairs.of(covered.attached).of_deletes(_mask_of_deletes(covered, old))
        paths = covered.files["file_path"].to_pylist()
        positions = deleted_positions(self.context.spark(), paths, covered.deletes, pairs, self.context.facts)
        return nothing, self._write_positions(DeletedPositions(covered.files, positions), _max_sequence_number(old))

    def _write_positions(self, deleted: DeletedPositions, number: int) -> EntryTable:
        filled = np.flatnonzero([p.cardinality > 0 for p in deleted.positions])
        target = WriteTarget.of(self.context.metadata, self.context.facts.io_properties)
        return write_deletes(deleted.take(filled), target).with_columns(sequence_number=number)


def _mask_of_deletes(scan: ScanPlan, deletes: EntryTable) -> np.ndarray[Any, Any]:
    """Return which delete files of a scan are among `deletes`."""
    paths = pa.array(deletes["file_path"].to_pylist(), pa.string())
    return np.asarray(pc.is_in(scan.deletes["file_path"], value_set=paths).to_numpy(zero_copy_only=False), bool)


def _covered_files(scan: ScanPlan, deletes: EntryTable) -> np.ndarray[Any, Any]:
    """Return which data files of a scan the deletes apply to."""
    pairs = DeletePairs.of(scan.attached).of_deletes(_mask_of_deletes(scan, deletes))
    return pairs.files_with_deletes(len(scan.files))


def _positions_not_live(files: EntryTable, live: Mapping[int, PositionSet]) -> list[PositionSet]:
    """Return the positions of each file that are not live. Files are numbered as in the whole plan, as rows are."""
    ordinals, counts = files.numpy("ordinal").tolist(), files.numpy("record_count").tolist()
    live_rows = [live.get(ordinal, PositionSet()) for ordinal in ordinals]
    dead_rows = [positions.complement(count) for positions, count in zip(live_rows, counts, strict=True)]
    # A live row that is not found in its file would be deleted for good.
    sums = [alive.cardinality + dead.cardinality for alive, dead in zip(live_rows, dead_rows, strict=True)]
    if sums != counts or sum(p.cardinality for p in live.values()) != sum(p.cardinality for p in live_rows):
        at = next((at for at, (total, count) in enumerate(zip(sums, counts, strict=True)) if total != count), 0)
        raise CorruptFile(
            files["file_path"][at].as_py(), f"{counts[at]} rows, as the metadata says", "live rows beside them"
        )
    return dead_rows


def _max_sequence_number(deletes: EntryTable) -> int:
    return int(pc.max(deletes["sequence_number"]).as_py() or 0)
