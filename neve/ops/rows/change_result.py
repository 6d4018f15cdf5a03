"""What a statement did, counted from the files it wrote and the snapshot that landed."""

from __future__ import annotations

import pyarrow.compute as pc

from neve.commit.isolation import RowCommand
from neve.commit.outcome import Committed
from neve.ops.context import TableContext
from neve.ops.plan_scan import plan_snapshot_scan as plan_of
from neve.ops.results import ChangeResult
from neve.ops.rows.apply_change import RowChange
from neve.ops.rows.changed_files import WrittenChange
from neve.plan.row_change import ChangePlan, split_fully_matching
from neve.plan.scan import ScanPlan
from neve.run.change_tally import Effects, Tally
from neve.run.spark.position_deletes import DeletePairs, deleted_positions
from neve.run.spark.read import read_dataframe
from neve.tree.entries import Content, EntryTable


def change_result(context: TableContext, change: RowChange, made: WrittenChange, committed: Committed) -> ChangeResult:
    """The result of a change that landed, or that had nothing to do."""
    plan = change.plan
    if made.action is None:
        return ChangeResult(None, plan.mode, files_scanned=len(plan.read.files))
    if change.command is RowCommand.DELETE and plan.is_metadata_only:
        return _whole_file_result(context, plan, committed)
    rows_dropped = 0 if plan.keeps_whole else live_rows(context, plan.whole)  # they left with files dropped unread
    updated, deleted, inserted = _counts(made.tally, change.effects, change.is_unique)
    records = int(pc.sum(made.added_data["record_count"]).as_py() or 0)
    return ChangeResult(
        snapshot_id=committed.snapshot_id,
        mode=plan.mode,
        rows_updated=updated,
        rows_deleted=deleted + rows_dropped,
        rows_inserted=inserted,
        rows_copied=max(records - updated - inserted, 0),
        files_scanned=len(plan.read.files),
        files_added=len(made.added_data),
        files_removed=len(made.removed_data),
        delete_files_added=len(made.added_deletes),
        delete_files_removed=0 if made.removed_deletes is None else len(made.removed_deletes),
        bytes_added=_bytes(made.added_data) + _bytes(made.added_deletes),
        files_added_by_spec=made.added_data.count_by_spec(),
        bytes_added_by_spec={spec_id: _bytes(part) for spec_id, part in made.added_data.by_spec()},
        files_removed_by_spec=made.removed_data.count_by_spec(),
        delete_files_added_by_spec=made.added_deletes.count_by_spec(),
        attempts=committed.attempts,
    )


def _whole_file_result(context: TableContext, plan: ChangePlan, committed: Committed) -> ChangeResult:
    """The result of a DELETE of whole files, which is metadata only."""
    try:
        removed = _files_removed_by(context, plan, committed)
    except Exception:  # it has landed: no error may say otherwise
        removed = plan.whole
    return ChangeResult(
        committed.snapshot_id,
        plan.mode,
        rows_deleted=live_rows(context, removed),
        files_removed=len(removed.files),
        files_removed_by_spec=removed.files.count_by_spec(),
        attempts=committed.attempts,
    )


def _files_removed_by(context: TableContext, plan: ChangePlan, committed: Committed) -> ScanPlan:
    """The files that a DELETE of whole files took: those there when it landed, which may not be those planned."""
    now = context.refreshed()
    snapshot = now.metadata.snapshot_by_id(committed.snapshot_id) if committed.snapshot_id is not None else None
    if snapshot is None or snapshot.parent_snapshot_id in (None, plan.snapshot_id):
        return plan.whole
    before = now.metadata.snapshot_by_id(snapshot.parent_snapshot_id)
    if before is None:  # expired since
        return plan.whole
    found = plan_of(now.io, now.metadata, before, where=plan.row_filter)
    return split_fully_matching(found, plan.row_filter, now.metadata)[1]


def live_rows(context: TableContext, plan: ScanPlan) -> int:
    """The rows that went with files that were dropped unread.

    Where deletes can no longer be read, the rows they had deleted before count too.
    """
    try:
        return _live_rows(context, plan)
    except Exception:  # the files are gone already: no error may say otherwise
        return int(pc.sum(plan.files["record_count"]).as_py() or 0)


def _live_rows(context: TableContext, plan: ScanPlan) -> int:
    """Spark counts only where deletes by value apply."""
    if (plan.deletes.numpy("content") == Content.EQUALITY_DELETES).any():
        return int(read_dataframe(context.spark(), plan, context.facts).count())
    rows = int(pc.sum(plan.files["record_count"]).as_py() or 0)
    if not len(plan.deletes):
        return rows
    paths = plan.files["file_path"].to_pylist()
    dead = deleted_positions(context.spark(), paths, plan.deletes, DeletePairs.of(plan.attached), context.facts)
    return rows - sum(p.cardinality for p in dead)


def _counts(tally: Tally, effects: Effects, is_unique: bool) -> tuple[int, int, int]:
    """Rows updated, deleted and inserted, by what the clauses do; a row of a whole file that changes is updated."""
    updated = deleted = inserted = 0
    for rows, removes, writes in zip(tally.rows_by_clause, effects.removes, effects.writes, strict=True):
        updated += rows if removes and writes else 0
        deleted += rows if removes and not writes else 0
        inserted += rows if writes and not removes else 0
    if not is_unique and deleted:  # a row that was met twice is deleted once
        deleted = sum(p.cardinality for p in tally.removed_positions.values()) - updated
    return updated, deleted, inserted


def _bytes(files: EntryTable) -> int:
    """Bytes of files; vectors in one Puffin file count it once."""
    sizes = dict(zip(files["file_path"].to_pylist(), files["file_size_in_bytes"].to_pylist(), strict=True))
    return sum(sizes.values())
