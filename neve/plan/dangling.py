"""Delete files that apply to no live data file.

A delete file is dangling when a scan would read it for no data file. That is a better question than where the lowest
sequence number of its partition lies: it finds deletes of a file that is gone while older files stay, and it keeps
equality deletes of an unpartitioned spec, which apply to files of every other spec.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from neve.display.format import several
from neve.display.html import Explained
from neve.plan.delete_index import attach
from neve.tree.entries import Content, EntryTable

__all__ = ["DanglingPlan", "dangling"]


@dataclass(frozen=True)
class DanglingPlan(Explained):
    """The delete files of a snapshot that apply to nothing."""

    snapshot_id: int | None
    deletes: EntryTable  # the dangling ones
    delete_files: int = 0  # how many delete files there are

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the dangling delete files; vectors may share one."""
        return tuple(dict.fromkeys(self.deletes["file_path"].to_pylist()))

    def explain(self) -> str:
        """The plan in words, with every path."""
        if not len(self.deletes):
            return f"nothing to remove: {several(self.delete_files, 'delete file')}, all of live data files"
        rows = zip(*(self.deletes[n].to_pylist() for n in ("content", "spec_id", "file_path")), strict=True)
        lines = [f"  {_KINDS[Content(content)]} deletes of spec {spec}: {path}" for content, spec, path in rows]
        return "\n".join([f"remove {len(self.deletes)} of {several(self.delete_files, 'delete file')}", *lines])


_KINDS = {Content.POSITION_DELETES: "position", Content.EQUALITY_DELETES: "equality"}


def dangling(data: EntryTable, deletes: EntryTable) -> EntryTable:
    """The delete files that apply to none of the data files; both are live, deletes with the bounds of their paths."""
    applies = np.zeros(len(deletes), bool)
    applies[attach(data, deletes)["delete"].to_numpy()] = True
    return deletes.filter(pa.array(~applies))
