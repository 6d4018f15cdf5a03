"""The check that delete files which go apply to nothing they should stay for, as the table is when they go."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.commit.actions import RewriteFiles
from neve.commit.outcome import Check, Conflict, conflict_over
from neve.commit.window import Window
from neve.plan.delete_index import attach
from neve.plan.metrics_filter import STATISTICS
from neve.tree.entries import Content, Manifest
from neve.tree.read import manifests_of, read_entries

__all__ = ["removed_deletes_are_covered"]


def removed_deletes_are_covered(window: Window, action: RewriteFiles) -> Conflict | None:
    """No data file that a removed delete file applies to came since the table was read, but those that are covered.

    New files are newer than every delete; but a rewrite may add files that keep an old number, and a branch may be
    moved back to a snapshot in which older files are live. Only manifests that were not there then are opened.
    """
    deletes = action.removed_deletes.entries
    if action.covers is None or not deletes:
        return None
    by_equality = bool((deletes.numpy("content") == Content.EQUALITY_DELETES).any())
    base = window.base
    data = read_entries(base.io, _came(window), base.specs, detail=STATISTICS if by_equality else (), live_only=True)
    known = pc.is_in(data["file_path"], value_set=pa.array(sorted(action.covers), pa.string()))
    data = data.filter(pc.invert(known))
    applying = deletes.take(np.unique(attach(data, deletes)["delete"].to_numpy()))
    message = "Delete files to be removed apply to data files that were not there when the table was read."
    head = base.parent.snapshot_id if base.parent else None
    return conflict_over(Check.NOT_DANGLING, message, applying, snapshot_id=head)


def _came(window: Window) -> list[Manifest]:
    """The manifests of data files that are not those of the snapshot the plan was made on."""
    base = window.base
    start = None if window.start is None else base.metadata.snapshot_by_id(window.start)
    seen = {m.path for m in manifests_of(base.io, base.metadata, start)}
    return [m for m in base.manifests if not m.is_deletes and m.path not in seen]
