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

from neve.io.deletion_vectors import PositionSet
from neve.model.partition import Specs
from neve.ops.context import TableContext
from neve.ops.verb import PendingCommit
from neve.plan.delete_index import referenced_paths
from neve.plan.scan import ScanPlan
from neve.run.change_tally import Tally
from neve.run.read.tasks import with_ordinals
from neve.run.spark.position_deletes import DeletePairs, deleted_positions
from neve.run.write.delete_files import DeletedPositions
from neve.tree.entries import Content, EntryTable


@dataclass(frozen=True)
class TouchedFiles:
    """The files of a plan some rows of which go, and the positions that do."""

    plan: ScanPlan
    removed_positions: list[PositionSet]

    @classmethod
    def of(cls, plan: ScanPlan, tally: Tally) -> TouchedFiles:
        """The files of a plan that a statement takes rows from."""
        gone = tally.removed_positions
        known = replace(plan, files=with_ordinals(plan.files))
        mask = np.zeros(len(plan.files), bool)
        mask[list(gone)] = True
        return cls(known.only(mask), list(gone.values()))

    @property
    def files(self) -> EntryTable:
        """The files."""
        return self.plan.files

    def only(self, mask: np.ndarray[Any, Any]) -> TouchedFiles:
        """Some of the files."""
        return TouchedFiles(self.plan.only(mask), [self.removed_positions[int(at)] for at in np.flatnonzero(mask)])


@dataclass(frozen=True)
class MergedDeletes:
    """All positions that are deleted from files, and the old delete files that say a part of it."""

    deleted_positions: DeletedPositions
    superseded_deletes: EntryTable

    def split_emptied_files(self) -> tuple[MergedDeletes, MergedDeletes]:
        """The files that lose all their rows, and the others."""
        counts = self.deleted_positions.files.numpy("record_count").tolist()
        pairs = zip(self.deleted_positions.positions, counts, strict=True)
        empty = np.array([positions.covers(count) for positions, count in pairs], bool)
        dropped = self.deleted_positions.take(np.flatnonzero(empty))
        gone = paths_of(dropped.files)
        named = referenced_paths(self.superseded_deletes).to_pylist()
        # Deletes of a file that leaves the table leave with it.
        others = self.superseded_deletes.filter(pa.array([name not in gone for name in named], pa.bool_()))
        return MergedDeletes(dropped, self.superseded_deletes), MergedDeletes(
            self.deleted_positions.take(np.flatnonzero(~empty)), others
        )


def merge_with_existing_deletes(context: TableContext, touched: TouchedFiles) -> MergedDeletes:
    """The positions that are gone with those that were gone before, where the old deletes are to be replaced."""
    plan = touched.plan
    supersedes = _superseded_mask(context, plan)
    is_vectors = context.metadata.format_version >= 3
    by_position = plan.deletes.numpy("content") == Content.POSITION_DELETES
    pairs = DeletePairs.of(plan.attached).of_deletes(by_position if is_vectors else supersedes)
    paths = plan.files["file_path"].to_pylist()
    old = (
        deleted_positions(context.spark(), paths, plan.deletes, pairs, context.facts)
        if len(pairs.file)
        else [PositionSet()] * len(paths)
    )
    united = [new.union(before) for new, before in zip(touched.removed_positions, old, strict=True)]
    return MergedDeletes(DeletedPositions(plan.files, united), plan.deletes.filter(pa.array(supersedes)))


def _superseded_mask(context: TableContext, plan: ScanPlan) -> np.ndarray[Any, Any]:
    """The old deletes that are about one of these files alone, and whose rows move into the new ones."""
    if context.metadata.format_version < 3 and context.properties.delete_granularity != "file":
        return np.zeros(len(plan.deletes), bool)
    by_position = plan.deletes.numpy("content") == Content.POSITION_DELETES
    return by_position & referenced_paths(plan.deletes).is_valid().to_numpy(zero_copy_only=False)


def paths_of(files: EntryTable) -> frozenset[str]:
    """The paths of some files."""
    return frozenset(files["file_path"].to_pylist())


@dataclass(frozen=True)
class WrittenChange(PendingCommit):
    """The files of a row change: those to add and those to remove."""

    tally: Tally
    added_data: EntryTable
    added_deletes: EntryTable
    removed_data: EntryTable
    removed_deletes: EntryTable | None
    touched_files: EntryTable

    @classmethod
    def nothing(cls, tally: Tally, specs: Specs) -> WrittenChange:
        """A change that writes no file."""
        empty = EntryTable.empty(specs)
        return cls(tally, empty, empty, empty, None, empty)

    @property
    def is_empty(self) -> bool:
        """Whether nothing comes and nothing goes."""
        return not (len(self.added_data) or len(self.added_deletes) or len(self.removed_data))
