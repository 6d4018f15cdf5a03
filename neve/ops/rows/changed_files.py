"""A row change in values: the rows it concerns, the files that lose rows, what was written, and the result.

New deletes of a file are merged with its old ones. From version 3 on a file has at most one deletion vector, and before
that readers are fastest with one delete file per data file. Old delete files that cover only one of these files are
removed in the same commit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from neve.commit.isolation import RowCommand
from neve.commit.outcome import Committed
from neve.io.deletion_vectors import PositionSet
from neve.model.partition import Specs
from neve.ops.context import TableContext
from neve.ops.plan_scan import plan_snapshot_scan
from neve.ops.results import ChangeResult
from neve.ops.verb import PendingCommit
from neve.plan.delete_index import referenced_paths
from neve.plan.row_change import ChangePlan, split_fully_matching
from neve.plan.scan import ScanPlan
from neve.run.change_tally import Effects, Tally
from neve.run.read.tasks import with_ordinals
from neve.run.spark.position_deletes import DeletePairs, deleted_positions
from neve.run.spark.read import read_dataframe
from neve.run.write.delete_files import DeletedPositions
from neve.tree.entries import Content, EntryTable


@dataclass(frozen=True)
class RowChange:
    """The rows that a statement changes, and what it does to them."""

    command: RowCommand
    plan: ChangePlan
    effects: Effects
    assigned_columns: tuple[str, ...]  # columns that some clause assigns to, in existing files
    # the changed rows of existing files with the assigned columns, and new rows with all columns; by `CHANGE_COLUMNS`
    patches: Callable[[], DataFrame]
    # the changed rows of existing files, found in this process; None: Spark has to find them
    local_patches: Callable[[], pa.Table | None] = lambda: None
    is_unique: bool = True  # a row that is matched twice is an error
    inserts: bool = False  # some rows may be new
    # new rows that can be computed only when the matching source rows are known
    remaining_inserts: Callable[[PositionSet], pa.Table | None] | None = None
    ambiguity_message: str = ""
    is_pruned: bool = False  # the keys of a source ruled out files
    evolved_context: TableContext | None = None  # the table with the schema that the change expects, if it differs
    before_commit: Callable[[], None] | None = None  # a change that must land before the rows

    @property
    def adds_whole_rows(self) -> bool:
        """True if `patches` holds rows that belong to no file, or to files that change as a whole."""
        return bool(len(self.plan.whole.files)) or (self.inserts and self.remaining_inserts is None)


@dataclass(frozen=True)
class TouchedFiles:
    """The files of a plan that lose rows, and the positions they lose."""

    plan: ScanPlan
    removed_positions: list[PositionSet]

    @classmethod
    def of(cls, plan: ScanPlan, tally: Tally) -> TouchedFiles:
        """Return the files of a plan from which a statement removes rows."""
        mask = np.zeros(len(plan.files), bool)
        mask[list(tally.removed_positions)] = True
        numbered = replace(plan, files=with_ordinals(plan.files))
        return cls(numbered.only(mask), list(tally.removed_positions.values()))

    @property
    def files(self) -> EntryTable:
        """The data files."""
        return self.plan.files

    def only(self, mask: np.ndarray[Any, Any]) -> TouchedFiles:
        """Return the files that the mask selects."""
        return TouchedFiles(self.plan.only(mask), [self.removed_positions[int(at)] for at in np.flatnonzero(mask)])


@dataclass(frozen=True)
class MergedDeletes:
    """All deleted positions of some files, and the old delete files that they replace."""

    deleted_positions: DeletedPositions
    superseded_deletes: EntryTable

    def split_emptied_files(self) -> tuple[MergedDeletes, MergedDeletes]:
        """Split into the files that lose all their rows, and the others."""
        counts = self.deleted_positions.files.numpy("record_count").tolist()
        pairs = zip(self.deleted_positions.positions, counts, strict=True)
        is_emptied = np.array([positions.covers(count) for positions, count in pairs], bool)
        emptied = self.deleted_positions.take(np.flatnonzero(is_emptied))
        partly_deleted = self.deleted_positions.take(np.flatnonzero(~is_emptied))
        # Deletes of a dropped file leave the table together with it.
        dropped_paths, referenced = paths_of(emptied.files), referenced_paths(self.superseded_deletes).to_pylist()
        others = self.superseded_deletes.filter(
            pa.array([path not in dropped_paths for path in referenced], pa.bool_())
        )
        return MergedDeletes(emptied, self.superseded_deletes), MergedDeletes(partly_deleted, others)


def merge_with_existing_deletes(context: TableContext, touched: TouchedFiles) -> MergedDeletes:
    """Add the positions deleted before to the new ones, where the old delete files are to be replaced."""
    plan = touched.plan
    by_position = plan.deletes.numpy("content") == Content.POSITION_DELETES
    is_about_one_file = by_position & referenced_paths(plan.deletes).is_valid().to_numpy(zero_copy_only=False)
    if context.metadata.format_version >= 3:
        merged, superseded = by_position, is_about_one_file
    elif context.properties.delete_granularity == "file":
        merged = superseded = is_about_one_file
    else:
        merged = superseded = np.zeros(len(plan.deletes), bool)
    pairs = DeletePairs.of(plan.attached).of_deletes(merged)
    paths = plan.files["file_path"].to_pylist()
    old = (
        deleted_positions(context.spark(), paths, plan.deletes, pairs, context.facts)
        if len(pairs.file)
        else [PositionSet()] * len(paths)
    )
    united = [new.union(before) for new, before in zip(touched.removed_positions, old, strict=True)]
    return MergedDeletes(DeletedPositions(plan.files, united), plan.deletes.filter(pa.array(superseded)))


def paths_of(files: EntryTable) -> frozenset[str]:
    """The paths of files."""
    return frozenset(files["file_path"].to_pylist())


@dataclass(frozen=True)
class WrittenChange(PendingCommit):
    """The files that a row change adds and removes."""

    tally: Tally
    added_data: EntryTable
    added_deletes: EntryTable
    removed_data: EntryTable
    removed_deletes: EntryTable | None
    touched_files: EntryTable

    @classmethod
    def nothing(cls, tally: Tally, specs: Specs) -> WrittenChange:
        """Return a change without files."""
        empty = EntryTable.empty(specs)
        return cls(tally, empty, empty, empty, None, empty)

    @property
    def is_empty(self) -> bool:
        """True if no file is added or removed."""
        return not (len(self.added_data) or len(self.added_deletes) or len(self.removed_data))


def change_result(
    context: TableContext, change: RowChange, written: WrittenChange, committed: Committed
) -> ChangeResult:
    """Count what a change did that landed, or that had nothing to do."""
    plan = change.plan
    if written.action is None:
        return ChangeResult(None, plan.mode, files_scanned=len(plan.read.files))
    if change.command is RowCommand.DELETE and plan.is_metadata_only:
        return _whole_file_result(context, plan, committed)
    rows_dropped = 0 if plan.keeps_whole else _live_rows(context, plan.whole)  # in files dropped without being read
    updated, deleted, inserted = _counts(written.tally, change.effects, change.is_unique)
    records = int(pc.sum(written.added_data["record_count"]).as_py() or 0)
    return ChangeResult(
        snapshot_id=committed.snapshot_id,
        mode=plan.mode,
        rows_updated=updated,
        rows_deleted=deleted + rows_dropped,
        rows_inserted=inserted,
        rows_copied=max(records - updated - inserted, 0),
        files_scanned=len(plan.read.files),
        files_added=len(written.added_data),
        files_removed=len(written.removed_data),
        delete_files_added=len(written.added_deletes),
        delete_files_removed=0 if written.removed_deletes is None else len(written.removed_deletes),
        bytes_added=_bytes(written.added_data) + _bytes(written.added_deletes),
        files_added_by_spec=written.added_data.count_by_spec(),
        bytes_added_by_spec={spec_id: _bytes(part) for spec_id, part in written.added_data.by_spec()},
        files_removed_by_spec=written.removed_data.count_by_spec(),
        delete_files_added_by_spec=written.added_deletes.count_by_spec(),
        attempts=committed.attempts,
    )


def _whole_file_result(context: TableContext, plan: ChangePlan, committed: Committed) -> ChangeResult:
    """Count what a DELETE of whole files did, which changes metadata only."""
    try:
        removed = _files_removed_by(context, plan, committed)
    except Exception:  # the DELETE has landed: counting must not make it look failed
        removed = plan.whole
    return ChangeResult(
        committed.snapshot_id,
        plan.mode,
        rows_deleted=_live_rows(context, removed),
        files_removed=len(removed.files),
        files_removed_by_spec=removed.files.count_by_spec(),
        attempts=committed.attempts,
    )


def _files_removed_by(context: TableContext, plan: ChangePlan, committed: Committed) -> ScanPlan:
    """The files that the DELETE removed: those that matched at commit time, which may differ from the planned ones."""
    newest = context.refreshed()
    snapshot = newest.metadata.snapshot_by_id(committed.snapshot_id) if committed.snapshot_id is not None else None
    if snapshot is None or snapshot.parent_snapshot_id in (None, plan.snapshot_id):
        return plan.whole
    parent = newest.metadata.snapshot_by_id(snapshot.parent_snapshot_id)
    if parent is None:  # expired since
        return plan.whole
    scan = plan_snapshot_scan(newest.io, newest.metadata, parent, where=plan.row_filter)
    return split_fully_matching(scan, plan.row_filter, newest.metadata)[1]


def _live_rows(context: TableContext, plan: ScanPlan) -> int:
    """Count the rows of files that were dropped without being read.

    Rows that were deleted before are counted too when the delete files cannot be read any more: the files are dropped
    already, and counting must not make it look failed.
    """
    rows = int(pc.sum(plan.files["record_count"]).as_py() or 0)
    try:
        if (plan.deletes.numpy("content") == Content.EQUALITY_DELETES).any():  # only Spark can count these
            return int(read_dataframe(context.spark(), plan, context.facts).count())
        if not len(plan.deletes):
            return rows
        paths = plan.files["file_path"].to_pylist()
        dead = deleted_positions(context.spark(), paths, plan.deletes, DeletePairs.of(plan.attached), context.facts)
        return rows - sum(positions.cardinality for positions in dead)
    except Exception:
        return rows


def _counts(tally: Tally, effects: Effects, is_unique: bool) -> tuple[int, int, int]:
    """Count rows updated, deleted and inserted by what the clauses do; changed rows of whole files are updated."""
    updated = deleted = inserted = 0
    for rows, removes, writes in zip(tally.rows_by_clause, effects.removes, effects.writes, strict=True):
        updated += rows if removes and writes else 0
        deleted += rows if removes and not writes else 0
        inserted += rows if writes and not removes else 0
    if not is_unique and deleted:  # a row that matched twice is deleted once
        deleted = sum(positions.cardinality for positions in tally.removed_positions.values()) - updated
    return updated, deleted, inserted


def _bytes(files: EntryTable) -> int:
    """The size of files; a Puffin file with several vectors counts once."""
    return sum(dict(zip(files["file_path"].to_pylist(), files["file_size_in_bytes"].to_pylist(), strict=True)).values())
