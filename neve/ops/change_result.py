"""What a statement did, counted: from the tally of its rows and the files that came and went."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc

from neve.commit.outcome import Committed, Outcome
from neve.ops.context import TableContext
from neve.ops.results import ChangeResult
from neve.plan.row_change import ChangePlan
from neve.plan.scan import ScanPlan
from neve.run.change_tally import Effects, Tally
from neve.run.spark.position_deletes import Pairs, deleted_positions
from neve.run.spark.read import read
from neve.tree.entries import Content, EntryTable

__all__ = ["Made", "by_spec", "live_rows", "result_of"]


@dataclass(frozen=True)
class Made:
    """What a mode made of a change: files that come, files that go."""

    tally: Tally
    added: EntryTable
    deletes: EntryTable
    gone: EntryTable
    superseded: EntryTable | None
    touched: EntryTable

    @property
    def is_empty(self) -> bool:
        """Whether nothing comes and nothing goes."""
        return not (len(self.added) or len(self.deletes) or len(self.gone))


def result_of(
    plan: ChangePlan, effects: Effects, made: Made, outcome: Outcome, rows_dropped: int, is_unique: bool
) -> ChangeResult:
    """The result of a change; `rows_dropped` left with files that were dropped unread."""
    updated, deleted, inserted = _counts(made.tally, effects, is_unique)
    records = int(pc.sum(made.added["record_count"]).as_py() or 0)
    return ChangeResult(
        snapshot_id=outcome.snapshot_id if isinstance(outcome, Committed) else None,
        mode=plan.mode,
        rows_updated=updated,
        rows_deleted=deleted + rows_dropped,
        rows_inserted=inserted,
        rows_copied=max(records - updated - inserted, 0),
        files_scanned=len(plan.read.files),
        files_added=len(made.added),
        files_removed=len(made.gone),
        delete_files_added=len(made.deletes),
        delete_files_removed=0 if made.superseded is None else len(made.superseded),
        bytes_added=_bytes(made.added) + _bytes(made.deletes),
        files_added_by_spec=by_spec(made.added),
        bytes_added_by_spec={spec_id: _bytes(part) for spec_id, part in made.added.by_spec()},
        files_removed_by_spec=by_spec(made.gone),
        delete_files_added_by_spec=by_spec(made.deletes),
        attempts=getattr(outcome, "attempts", 0),
    )


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
        return int(read(context.spark(), plan, context.facts).count())
    rows = int(pc.sum(plan.files["record_count"]).as_py() or 0)
    if not len(plan.deletes):
        return rows
    paths = plan.files["file_path"].to_pylist()
    dead = deleted_positions(context.spark(), paths, plan.deletes, Pairs.of(plan.attached), context.facts)
    return rows - sum(p.cardinality for p in dead)


def by_spec(files: EntryTable) -> dict[int, int]:
    """How many files of each spec."""
    return {spec_id: len(part) for spec_id, part in files.by_spec()}


def _counts(tally: Tally, effects: Effects, is_unique: bool) -> tuple[int, int, int]:
    """Rows updated, deleted and inserted, by what the clauses do; a row of a whole file that changes is updated."""
    updated = deleted = inserted = 0
    for rows, removes, writes in zip(tally.rows, effects.removes, effects.writes, strict=True):
        updated += rows if removes and writes else 0
        deleted += rows if removes and not writes else 0
        inserted += rows if writes and not removes else 0
    if not is_unique and deleted:  # a row that was met twice is deleted once
        deleted = sum(p.cardinality for p in tally.gone.values()) - updated
    return updated, deleted, inserted


def _bytes(files: EntryTable) -> int:
    """Bytes of files; vectors in one Puffin file count it once."""
    sizes = dict(zip(files["file_path"].to_pylist(), files["file_size_in_bytes"].to_pylist(), strict=True))
    return sum(sizes.values())
