"""Rewrite delete files: many small ones become few, from format version 3 on they become vectors.

Positions of data files that are gone vanish. With `equality_deletes()` the rows that equality deletes hit are looked
up once and for all, and positions or vectors take their place: scans then have nothing left to compare.

Isolation: commits beside anything that does not replace the same delete files, and never lets a row come back: when
data files came meanwhile that the old deletes apply to, it is planned again.
Writes: delete files under the spec and partition of the data files they are about; the snapshot is a `replace`.

>>> t.rewrite_position_deletes().execute().summary
'nothing to rewrite'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression
from pyspark.sql import functions as F  # noqa: N812

from neve.commit.actions import RemovedFiles, RewriteFiles
from neve.commit.outcome import Committed
from neve.display.html import SummaryMixin
from neve.errors import CorruptFile, UnknownName, UnsupportedFeature, UserError
from neve.io.deletion_vectors import PositionSet
from neve.ops.context import TableContext
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
from neve.tree.read import manifests_of, read_entries

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
    """What became of the delete files. No snapshot is made when there was nothing to do."""

    snapshot_id: int | None = None
    delete_files_removed: int = 0
    delete_files_added: int = 0  # vectors count one each
    bytes_removed: int = 0
    bytes_added: int = 0
    attempts: int = 0
    reruns: int = 0  # how often it was planned again because another writer got in the way
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """What happened, in a few words."""
        if not self.delete_files_removed:
            return "nothing to rewrite"
        return f"{self.delete_files_removed} delete files rewritten to {self.delete_files_added}"


@dataclass(frozen=True)
class RewritePositionDeletes(SnapshotVerb[DeletesPlan, DeletesResult]):
    """A rewrite of delete files on its way: options, then `.plan()`, `.explain()` or `.execute()`."""

    condition: str | BooleanExpression | None = None
    given: Mapping[str, Any] = field(default_factory=dict)
    equality_too: bool = False

    title = "rewrite of delete files"

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
                known = name in OPTIONS
                hint = " It is an option of rewrite_data_files()." if known else ""
                raise UserError(f"{UnknownName('option', name, DELETE_OPTIONS)}{hint}")
        return replace(self, given={**self.given, **options})

    def equality_deletes(self) -> Self:
        """Replace equality deletes too, by the positions they hit."""
        return replace(self, equality_too=True)

    def _plan(self, context: TableContext) -> DeletesPlan:
        metadata = context.metadata
        schema = metadata.schema()
        condition = parse(self.condition, schema, time_zone=context.time_zone())
        head = context.head(self.target_branch)
        manifests = [m for m in manifests_of(context.io, metadata, head) if m.may_hold_live_files]
        deletes = _read_live_entries(context, [m for m in manifests if m.is_deletes], DETAIL.names)
        by_value = len(deletes.of_content(Content.EQUALITY_DELETES)) > 0
        data = _read_live_entries(
            context, [m for m in manifests if not m.is_deletes and len(deletes)], STATISTICS if by_value else ()
        )
        return plan_delete_rewrite(
            data,
            deletes,
            schema,
            RewriteOptions.of(self.given, context.properties.delete_target_file_size),
            PartitionFilter.of(condition.expression, context.specs, schema),
            writes_vectors=metadata.format_version >= 3,
            one_delete_file_per_data_file=metadata.format_version < 3
            and context.properties.delete_granularity == "file",
            include_equality_deletes=self.equality_too,
            snapshot_id=None if head is None else head.snapshot_id,
        )

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
        self,
        context: TableContext,
        plan: DeletesPlan,
        written: _WrittenDeletes,
        committed: Committed,
        execution: Execution,
    ) -> DeletesResult:
        if committed.snapshot_id is None:
            return DeletesResult(reruns=execution.reruns)
        return DeletesResult(
            snapshot_id=committed.snapshot_id,
            delete_files_removed=len(written.removed),
            delete_files_added=len(written.added),
            bytes_removed=_total_bytes(written.removed),
            bytes_added=_total_bytes(written.added),
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
    """A plan on its way to new delete files."""

    context: TableContext
    plan: DeletesPlan

    def write_files(self) -> tuple[EntryTable, EntryTable]:
        """The delete files that go, and those that come."""
        scan = replace(self.plan.scan, files=with_ordinals(self.plan.scan.files))
        by_value = self._hit_by_value(scan)
        gone, added = [self.plan.replaced], []
        if by_value.any():
            old, new = self._replace_equality_deletes(scan.only(by_value))
            gone.append(old)
            added.append(new)
        rest = scan.only(~by_value)
        for rows in self.plan.groups:
            old, new = self._replace_position_deletes(rest, self.plan.replaced.take(rows))
            gone.append(old)
            added.append(new)
        specs = self.context.specs
        return _distinct_deletes(EntryTable.concat(gone, specs)), EntryTable.concat(added, specs)

    def _hit_by_value(self, scan: ScanPlan) -> np.ndarray[Any, Any]:
        """The data files that replaced equality deletes apply to."""
        paths = pa.array(self.plan.equality_deletes["file_path"].to_pylist(), pa.string())
        chosen = np.asarray(pc.is_in(scan.deletes["file_path"], value_set=paths).to_numpy(zero_copy_only=False), bool)
        return DeletePairs.of(scan.attached).of_deletes(chosen).files_with_deletes(len(scan.files))

    def _replace_equality_deletes(self, scan: ScanPlan) -> tuple[EntryTable, EntryTable]:
        """Positions of all rows that are not live, for files with equality deletes; one job finds those that are."""
        named = ((ORDINAL, FILE_COLUMN), (ROW_POSITION, POSITION_COLUMN))
        extra = [column.model_copy(update={"name": name}) for column, name in named]
        narrow = replace(scan, schema=scan.schema.select(*scan.schema.column_names[:1]))
        rows = read_dataframe(self.context.spark(), narrow, self.context.facts, (), extra)
        live = count_changes(rows.withColumn(CLAUSE_COLUMN, F.lit(0)), _LIVE_ROW_EFFECTS).removed_positions
        counts = scan.files.numpy("record_count").tolist()
        if -1 in counts:
            raise UnsupportedFeature(
                f"Cannot replace the equality deletes of {scan.files['file_path'][counts.index(-1)]}: its entry does "
                "not say how many rows it holds. Compact it first."
            )
        found = merge_with_existing_deletes(self.context, TouchedFiles(scan, _positions_not_live(scan.files, live)))
        newest = max(_max_sequence_number(self.plan.equality_deletes), _max_sequence_number(found.superseded_deletes))
        return found.superseded_deletes, self._write_positions(found.deleted_positions, newest)

    def _replace_position_deletes(self, scan: ScanPlan, old: EntryTable) -> tuple[EntryTable, EntryTable]:
        """The positions that some delete files hold for live data files, and other deletes they take along."""
        names = pa.array(old["file_path"].to_pylist(), pa.string())
        mine = np.asarray(pc.is_in(scan.deletes["file_path"], value_set=names).to_numpy(zero_copy_only=False), bool)
        about = scan.only(DeletePairs.of(scan.attached).of_deletes(mine).files_with_deletes(len(scan.files)))
        if not len(about.files):
            return EntryTable.empty(self.context.specs), EntryTable.empty(self.context.specs)
        if self.context.metadata.format_version >= 3:
            found = merge_with_existing_deletes(self.context, TouchedFiles(about, [PositionSet()] * len(about.files)))
            newest = max(_max_sequence_number(old), _max_sequence_number(found.superseded_deletes))
            return found.superseded_deletes, self._write_positions(found.deleted_positions, newest)
        mine = np.asarray(pc.is_in(about.deletes["file_path"], value_set=names).to_numpy(zero_copy_only=False), bool)
        pairs = DeletePairs.of(about.attached).of_deletes(mine)
        paths = about.files["file_path"].to_pylist()
        positions = deleted_positions(self.context.spark(), paths, about.deletes, pairs, self.context.facts)
        return EntryTable.empty(self.context.specs), self._write_positions(
            DeletedPositions(about.files, positions), _max_sequence_number(old)
        )

    def _write_positions(self, deleted: DeletedPositions, number: int) -> EntryTable:
        filled = np.flatnonzero([p.cardinality > 0 for p in deleted.positions])
        target = WriteTarget.of(self.context.metadata, self.context.facts.io_properties)
        return write_deletes(deleted.take(filled), target).with_columns(sequence_number=number)


def _read_live_entries(context: TableContext, manifests: Sequence[Any], detail: Sequence[str]) -> EntryTable:
    return read_entries(context.io, manifests, context.specs, detail=detail, live_only=True)


def _positions_not_live(files: EntryTable, live: Mapping[int, PositionSet]) -> list[PositionSet]:
    """The positions of each file that are not live. Files go by the number they have in the whole plan, as rows do."""
    ordinals, counts = files.numpy("ordinal").tolist(), files.numpy("record_count").tolist()
    lives = [live.get(ordinal, PositionSet()) for ordinal in ordinals]
    dead = [alive.complement(count) for alive, count in zip(lives, counts, strict=True)]
    # A live row that is not found in its file would be deleted for good.
    sums = [alive.cardinality + gone.cardinality for alive, gone in zip(lives, dead, strict=True)]
    if sums != counts or sum(p.cardinality for p in live.values()) != sum(p.cardinality for p in lives):
        at = next((at for at, (found, count) in enumerate(zip(sums, counts, strict=True)) if found != count), 0)
        raise CorruptFile(
            files["file_path"][at].as_py(), f"{counts[at]} rows, as the metadata says", "live rows beside them"
        )
    return dead


def _max_sequence_number(deletes: EntryTable) -> int:
    return int(pc.max(deletes["sequence_number"]).as_py() or 0)


def _total_bytes(deletes: EntryTable) -> int:
    """The size of delete files; vectors may share one."""
    vectors = pc.equal(deletes["file_format"], "PUFFIN") if len(deletes) else pa.array([], pa.bool_())
    plain = pc.sum(deletes.filter(pc.invert(vectors))["file_size_in_bytes"]).as_py() if len(deletes) else 0
    shared = pc.sum(deletes.filter(vectors)["content_size_in_bytes"]).as_py() if len(deletes) else 0
    return int(plain or 0) + int(shared or 0)


def _distinct_deletes(deletes: EntryTable) -> EntryTable:
    """Each delete file once; vectors that share a file are told apart by where they lie in it."""
    seen: dict[tuple[str, int | None], int] = {}
    keys = zip(deletes["file_path"].to_pylist(), deletes["content_offset"].to_pylist(), strict=True)
    for row, key in enumerate(keys):
        seen.setdefault(key, row)
    return deletes.take(list(seen.values()))
