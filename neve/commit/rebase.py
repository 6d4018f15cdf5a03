"""Deletes of one data file that were committed side by side: their vectors are united instead of one of them failing.

Only pure deletes get along: a delta that adds and removes no data file, beside snapshots that did the same. Then the
rows both delete are the rows of both vectors, in either order. Anything else is a conflict of rule G.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import compress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.snapshots import Operation

from neve.commit.actions import Action, Removed, RewriteFiles, RowDelta
from neve.commit.partitions import PartitionSet
from neve.commit.window import Base, Window
from neve.model.snapshots import Snapshot
from neve.plan.ranges import Mask
from neve.tree.entries import EntryTable, Status
from neve.tree.group_by_spec import vectors_in
from neve.tree.read import read_entries

__all__ = ["VECTORS_ADDED", "absorbable", "absorbing", "new_vectors"]

VECTORS_ADDED = frozenset({Operation.OVERWRITE, Operation.DELETE, Operation.REPLACE})


def new_vectors(window: Window, action: RowDelta | RewriteFiles) -> EntryTable:
    """The vectors that others added meanwhile for data files this commit adds one for."""
    mine = _vectors(action.added_deletes)
    if mine is None:
        return EntryTable.empty(window.base.specs)
    new = window.entries(VECTORS_ADDED, is_deletes=True, statuses=(Status.ADDED, Status.EXISTING))
    return _naming(new, pc.unique(mine["referenced_data_file"]))


def absorbable(window: Window, action: RowDelta | RewriteFiles, vectors: EntryTable) -> Mask:
    """Which of the vectors that others added can be united with those of this commit."""
    if isinstance(action, RewriteFiles) or not action.merge_vectors or action.added_data or action.removed_data:
        return np.zeros(len(vectors), bool)
    pure = [s.snapshot_id for s in window.of_operations({Operation.DELETE}) if _changes_no_data(window, s)]
    return np.isin(vectors.numpy("snapshot_id"), pure)


def absorbing(base: Base, action: Action) -> Action:
    """The same action on top of the vectors of its data files that others committed meanwhile."""
    if not isinstance(action, RowDelta) or not action.merge_vectors or base.parent is None or not action.added_deletes:
        return action
    new = new_vectors(Window(base, action.start_snapshot_id), action)
    if not len(new):
        return action
    theirs = _live_vectors(base, new)
    known = [action.removed_deletes.entries] if action.removed_deletes.entries else []
    return replace(
        action,
        added_deletes=EntryTable.concat([action.added_deletes, theirs.with_columns(sequence_number=None)], base.specs),
        removed_deletes=Removed(EntryTable.concat([*known, theirs], base.specs), action.removed_deletes.paths),
    )


def _changes_no_data(window: Window, snapshot: Snapshot) -> bool:
    """Whether a snapshot added and removed no data file; it may have merged manifests."""
    written = (m for m in window.written_by(snapshot) if not m.is_deletes)
    return all(m.added_files == 0 and m.deleted_files == 0 for m in written)


def _live_vectors(base: Base, like: EntryTable) -> EntryTable:
    """The vectors that the data files of some vectors have now."""
    deletes = [m for m in base.manifests if m.is_deletes]
    manifests = list(compress(deletes, PartitionSet.of(like, base.specs).may_meet(deletes)))
    live = read_entries(base.io, manifests, base.specs, live_only=True)
    return _naming(live, pc.unique(like["referenced_data_file"]))


def _vectors(deletes: EntryTable | None) -> EntryTable | None:
    found = deletes.filter(pa.array(vectors_in(deletes))) if deletes else None
    return found or None


def _naming(deletes: EntryTable, data_files: pa.Array) -> EntryTable:
    named = pc.is_in(deletes["referenced_data_file"], value_set=data_files).to_numpy()
    return deletes.filter(pa.array(vectors_in(deletes) & named))
