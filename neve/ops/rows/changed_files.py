"""The files some rows of which go, with what is deleted from each, before and now.

A file that gets new deletes gets them together with its old ones: from version 3 on a file has one vector at most, and
before that one delete file per data file is what readers are quickest with. Old deletes that are about one of these
files alone leave in the same commit.

What a statement did, counted: from the tally of its rows and the files that came and went.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.commit.outcome import Committed, Outcome
from neve.io.deletion_vectors import PositionSet
from neve.ops.context import TableContext
from neve.ops.results import ChangeResult
from neve.plan.delete_index import referenced_paths
from neve.plan.row_change import ChangePlan
from neve.plan.scan import ScanPlan
from neve.run.change_tally import Effects, Tally
from neve.run.read.tasks import numbered
from neve.run.spark.position_deletes import Pairs, deleted_positions
from neve.run.spark.read import read
from neve.run.write.delete_files import Deleted
from neve.tree.entries import Content, EntryTable


@dataclass(frozen=True)
class Touched:
    """The files of a plan some rows of which go, and the positions that do."""

    plan: ScanPlan
    gone: list[PositionSet]

    @classmethod
    def of(cls, plan: ScanPlan, tally: Tally) -> Touched:
        """The files of a plan that a statement takes rows from."""
        gone = tally.gone
        known = replace(plan, files=numbered(plan.files))
        mask = np.zeros(len(plan.files), bool)
        mask[list(gone)] = True
        return cls(known.only(mask), list(gone.values()))

    @property
    def files(self) -> EntryTable:
        """The files."""
        return self.plan.files

    def only(self, mask: np.ndarray[Any, Any]) -> Touched:
        """Some of the files."""
        return Touched(self.plan.only(mask), [self.gone[int(at)] for at in np.flatnonzero(mask)])


@dataclass(frozen=True)
class Folded:
    """All positions that are deleted from files, and the old delete files that say a part of it."""

    deleted: Deleted
    superseded: EntryTable

    def in_two(self) -> tuple[Folded, Folded]:
        """The files that lose all their rows, and the others."""
        counts = self.deleted.files.numpy("record_count").tolist()
        pairs = zip(self.deleted.positions, counts, strict=True)
        empty = np.array([positions.covers(count) for positions, count in pairs], bool)
        dropped = self.deleted.of(np.flatnonzero(empty))
        gone = paths_of(dropped.files)
        named = referenced_paths(self.superseded).to_pylist()
        # Deletes of a file that leaves the table leave with it.
        others = self.superseded.filter(pa.array([name not in gone for name in named], pa.bool_()))
        return Folded(dropped, self.superseded), Folded(self.deleted.of(np.flatnonzero(~empty)), others)


def folded(context: TableContext, touched: Touched) -> Folded:
    """The positions that are gone with those that were gone before, where the old deletes are to be replaced."""
    plan = touched.plan
    supersedes = _superseded(context, plan)
    is_vectors = context.metadata.format_version >= 3
    by_position = plan.deletes.numpy("content") == Content.POSITION_DELETES
    pairs = Pairs.of(plan.attached).of_deletes(by_position if is_vectors else supersedes)
    paths = plan.files["file_path"].to_pylist()
    old = (
        deleted_positions(context.spark(), paths, plan.deletes, pairs, context.facts)
        if len(pairs.file)
        else [PositionSet()] * len(paths)
    )
    united = [new.union(before) for new, before in zip(touched.gone, old, strict=True)]
    return Folded(Deleted(plan.files, united), plan.deletes.filter(pa.array(supersedes)))


def _superseded(context: TableContext, plan: ScanPlan) -> np.ndarray[Any, Any]:
    """The old deletes that are about one of these files alone, and whose rows move into the new ones."""
    if context.metadata.format_version < 3 and context.properties.delete_granularity != "file":
        return np.zeros(len(plan.deletes), bool)
    by_position = plan.deletes.numpy("content") == Content.POSITION_DELETES
    return by_position & referenced_paths(plan.deletes).is_valid().to_numpy(zero_copy_only=False)


def paths_of(files: EntryTable) -> frozenset[str]:
    """The paths of some files."""
    return frozenset(files["file_path"].to_pylist())


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
