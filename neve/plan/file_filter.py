"""Evaluate a predicate on rows for whole files of any partition spec.

The predicate is projected into the spec of each file. `may_match` keeps files that cannot be excluded; `must_match`
returns only files in which every row provably matches.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table.metadata import TableMetadata

from neve.model.partition import Specs
from neve.plan import metrics_filter
from neve.plan.partition_filter import PartitionFilter
from neve.plan.ranges import Mask, evaluate_expression
from neve.tree.entries import Content, EntryTable, Manifest


@dataclass(frozen=True)
class RowFilter:
    """A predicate on rows that selects files of any spec."""

    expression: BooleanExpression
    metadata: TableMetadata
    specs: Specs
    case_sensitive: bool = True

    @cached_property
    def _partitions(self) -> PartitionFilter:
        schema = self.metadata.schema()
        return PartitionFilter.of(self.expression, self.specs, schema, case_sensitive=self.case_sensitive)

    @property
    def detail(self) -> Collection[str]:
        """The detail columns that hold the statistics."""
        return metrics_filter.STATISTICS

    def may_match_manifests(self, manifests: Sequence[Manifest]) -> Mask:
        """Return which manifests may list a file with a matching row."""
        return self._partitions.may_match_each(manifests)

    def may_match(self, files: EntryTable) -> Mask:
        """Return which files may hold a matching row."""
        if not len(files):
            return np.zeros(0, bool)
        return self._partitions.judge(files).keep & metrics_filter.may_match(files, self._partitions.predicate)

    def must_match(self, files: EntryTable) -> Mask:
        """Return in which files the partition or the statistics prove, part by part, that every row matches."""
        if not len(files):
            return np.zeros(0, bool)
        keep = self._partitions.judge(files).keep
        proven = keep & self._is_proven(files, self._partitions.predicate)
        undecided = np.flatnonzero(keep & ~proven)
        if len(undecided):
            rest = files.take(undecided)
            proven[undecided] = evaluate_expression(
                self._partitions.predicate, partial(self._is_proven, rest), lambda value: np.full(len(rest), value)
            )
        return proven

    def _is_proven(self, files: EntryTable, predicate: BooleanExpression) -> Mask:
        # the statistics of a delete file say nothing about the rows that it deletes
        by_statistics = metrics_filter.must_match(files, predicate) & (files.numpy("content") == Content.DATA)
        return replace(self._partitions, predicate=predicate).covers(files) | by_statistics
