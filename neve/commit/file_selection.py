"""Which tracked files leave the table: by name, by partition, by filter, or because nothing needs them any more.

A selection answers twice: may a manifest hold a file to be removed (so it must be opened), and which of its entries
are.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.commit.actions import NO_FILES, RemovedFiles
from neve.commit.partition_set import PartitionSet
from neve.io.paths import canonical_path, canonical_path_all
from neve.model.partition import Specs
from neve.plan.delete_index import referenced_paths
from neve.plan.file_filter import RowFilter
from neve.plan.ranges import Mask
from neve.tree.entries import Content, EntryTable, Manifest


@dataclass(frozen=True)
class FileSelection:
    """The files of one kind, data or deletes, that leave the table."""

    specs: Specs
    named_files: RemovedFiles = NO_FILES
    row_filter: RowFilter | None = None
    partitions: PartitionSet | None = None
    selects_all: bool = False
    older_than: int = 0
    """Delete files numbered below this cannot apply to any live data file."""
    removed_data_files: frozenset[str] = frozenset()
    """Data files that leave in this commit; the deletes that name one of them leave with it."""
    removed_from_partitions: PartitionSet | None = field(default=None)
    named_partitions: PartitionSet | None = None
    """The partitions the named files lie in, when that is known."""
    named_manifests: frozenset[str] = frozenset()
    """The manifests that held all named files when a plan was made, when that is known."""
    purpose: str = ""
    """What sets apart two selections of one commit that look into the same manifests."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing can leave."""
        chosen = self.row_filter is not None or self.partitions is not None or self.selects_all
        return not (chosen or self.named_files or self.older_than or self.removed_data_files)

    @property
    def cache_key(self) -> Hashable:
        """What may differ between two attempts of one commit."""
        return (self.older_than, self.removed_data_files, self.purpose)

    @property
    def detail(self) -> Collection[str]:
        """The detail columns needed to decide."""
        if self.row_filter is not None:
            return self.row_filter.detail
        return (
            ("lower_bounds", "upper_bounds") if self.removed_data_files else ()
        )  # equal bounds of the path name one data file

    def candidate_manifests(self, manifests: Sequence[Manifest]) -> list[Manifest]:
        """The manifests that may hold a file that leaves."""
        live = [m for m in manifests if m.may_hold_live_files]
        if self.selects_all or not live:
            return live
        mask = np.fromiter((m.is_deletes and 0 <= m.min_sequence_number < self.older_than for m in live), bool)
        if self.row_filter is not None:
            mask |= self.row_filter.may_match_manifests(live)
        if self.partitions is not None:
            mask |= self.partitions.may_match_manifests(live)
        if self.removed_data_files and self.removed_from_partitions is not None:
            mask |= self.removed_from_partitions.may_match_manifests(live)
        if self.named_files:
            mask |= self._may_hold_named(live)
        return list(compress(live, mask))

    def _may_hold_named(self, manifests: Sequence[Manifest]) -> Mask:
        if self._source_manifests and self._source_manifests <= {m.path for m in manifests}:
            return np.fromiter((m.path in self._source_manifests for m in manifests), bool)
        if self.named_partitions is not None:
            return self.named_partitions.may_match_manifests(manifests)
        if self.named_files.paths or not self.named_files.entries:
            return np.ones(len(manifests), bool)
        return PartitionSet.of(self.named_files.entries, self.specs).may_match_manifests(manifests)

    @cached_property
    def _source_manifests(self) -> frozenset[str]:
        """The manifests that hold the named files, when the caller knows them all.

        A manifest that loses a row, be it to the root, has another path afterwards: what is there is as it was.
        """
        return self.named_manifests or (frozenset() if self.named_files.paths else source_manifests(self.named_files))

    def selects(self, entries: EntryTable) -> Mask:
        """Which live entries leave."""
        mask = np.full(len(entries), self.selects_all)
        if self.named_files:
            mask |= self._is_named(entries)
        if self.partitions is not None:
            mask |= self.partitions.holds(entries)
        if self.row_filter is not None:
            mask |= self.row_filter.must_match(entries)
        return mask | self._is_useless(entries)

    def selects_in_part(self, entries: EntryTable) -> Mask:
        """Which data files the row filter selects in part; they can be neither kept nor dropped."""
        if self.row_filter is None:
            return np.full(len(entries), False)
        is_data = entries.numpy("content") == Content.DATA
        return is_data & self.row_filter.may_match(entries) & ~self.selects(entries)

    def _is_named(self, entries: EntryTable) -> Mask:
        mask = np.full(len(entries), False)
        if self.named_files.entries:
            wanted = file_identities(self.named_files.entries)
            mask |= pc.is_in(file_identities(entries), value_set=wanted).to_numpy()
        if self.named_files.paths:
            wanted = canonical_path_all(pa.array(sorted(self.named_files.paths), pa.string()))
            mask |= pc.is_in(canonical_path_all(entries["file_path"]), value_set=wanted).to_numpy(zero_copy_only=False)
        return mask

    def _is_useless(self, entries: EntryTable) -> Mask:
        """Delete files that apply to no live data file: too old for all of them, or naming one that is gone."""
        is_delete = entries.numpy("content") != Content.DATA
        if not is_delete.any():
            return is_delete
        numbers = pc.fill_null(entries["sequence_number"], 0).to_numpy()
        useless = (numbers > 0) & (numbers < self.older_than)
        if self.removed_data_files:
            gone, named = (
                canonical_path_all(paths)
                for paths in (pa.array(sorted(self.removed_data_files)), referenced_paths(entries))
            )
            useless |= pc.is_in(named, value_set=gone).to_numpy(zero_copy_only=False)
        return is_delete & useless

    def missing_files(self, met: EntryTable) -> list[str]:
        """The named files that were not met live."""
        known = set(canonical_path_all(met["file_path"]).to_pylist())
        lost = {path for path in self.named_files.paths if canonical_path(path) not in known}
        if self.named_files.entries:
            found = pc.is_in(file_identities(self.named_files.entries), value_set=file_identities(met).combine_chunks())
            lost |= set(self.named_files.entries.filter(pc.invert(found))["file_path"].to_pylist())
        return sorted(lost)


def source_manifests(files: RemovedFiles) -> frozenset[str]:
    """The manifests that entries were read from; none if that is not known of them all."""
    if not files.entries or not files.manifests:
        return frozenset()
    ordinals = np.unique(files.entries.numpy("manifest"))
    if ordinals[0] < 0 or ordinals[-1] >= len(files.manifests):
        return frozenset()
    return frozenset(files.manifests[i] for i in ordinals)


def file_identities(files: EntryTable) -> Any:
    """What makes a tracked file that file: its path, and for a vector also where in the file it lies."""
    offsets = pc.fill_null(files["content_offset"].cast(pa.string()), "")
    return pc.binary_join_element_wise(files["file_path"], offsets, "\0")
