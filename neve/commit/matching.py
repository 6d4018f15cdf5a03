"""Which files a check looks at: all, those a row filter concerns, or those of some partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from neve.commit.partitions import PartitionSet
from neve.plan.file_filter import RowFilter
from neve.plan.ranges import Mask
from neve.tree.entries import EntryTable, Manifest

__all__ = ["Scope"]


@dataclass(frozen=True)
class Scope:
    """The files a check looks at: all, those that may match a filter, or those of some partitions."""

    row_filter: RowFilter | None = None
    partitions: PartitionSet | None = None

    def may_match_manifests(self, manifests: Sequence[Manifest]) -> Mask:
        """Which manifests may hold a file in scope."""
        if self.row_filter is not None:
            return self.row_filter.may_match_manifests(manifests)
        return np.ones(len(manifests), bool) if self.partitions is None else self.partitions.may_meet(manifests)

    def may_match(self, files: EntryTable) -> Mask:
        """Which files are in scope."""
        if self.row_filter is not None:
            return self.row_filter.may_match(files)
        return np.ones(len(files), bool) if self.partitions is None else self.partitions.holds(files)
