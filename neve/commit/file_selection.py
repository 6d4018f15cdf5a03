"""Select the tracked files that a commit removes: by name, by partition, by filter, or because nothing needs them.

A selection answers two questions: which manifests may hold a file to remove (so they must be opened), and which of
their entries are to be removed.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
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
    """The files of one kind, data or deletes, to remove from the table."""

    specs: Specs
    named_files: RemovedFiles = NO_FILES
    row_filter: RowFilter | None = None
    partitions: PartitionSet | None = None
    selects_all: bool = False
    older_than: int = 0
    """Delete files with a lower sequence number cannot apply to any live data file."""
    removed_data_files: frozenset[str] = frozenset()
    """Data files that this commit removes; delete files that name one of them are removed too."""
    removed_from_partitions: PartitionSet | None = None
    named_partitions: PartitionSet | None = None
    """The partitions of the named files, if known."""
    named_manifests: frozenset[str] = frozenset()
    """The manifests that listed all named files at planning time, if known."""
    purpose: str = ""
    """Distinguishes two selections of one commit that search the same manifests."""

    @property
    def is_empty(self) -> bool:
        """True if nothing can be selected."""
        has_rule = self.row_filter is not None or self.partitions is not None or self.selects_all
        return not (has_rule or self.named_files or self.older_than or self.removed_data_files)

    @property
    def cache_key(self) -> Hashable:
        """The values that may differ between two attempts of one commit."""
        return (self.older_than, self.removed_data_files, self.purpose)

    @property
    def detail(self) -> Collection[str]:
        """The detail columns needed to decide."""
        if self.row_filter is not None:
            return self.row_filter.detail
        # a delete file with equal bounds of its path column names one data file
        return ("lower_bounds", "upper_bounds") if self.removed_data_files else ()

    def candidate_manifests(self, manifests: Sequence[Manifest]) -> list[Manifest]:
        """Return the manifests that may list a selected file."""
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
        """The manifests that list the named files, if the caller knows all of them.

        A manifest that loses an entry gets another path, so a manifest at a known path is unchanged.
        """
        return self.named_manifests or (frozenset() if self.named_files.paths else source_manifests(self.named_files))

    def selects(self, entries: EntryTable) -> Mask:
        """Return which live entries are selected."""
        mask = np.full(len(entries), self.selects_all)
        if self.named_files.entries:
            identities = file_identities(self.named_files.entries)
            mask |= pc.is_in(file_identities(entries), value_set=identities).to_numpy()
        if self.named_files.paths:
            paths = canonical_path_all(pa.array(sorted(self.named_files.paths), pa.string()))
            mask |= pc.is_in(canonical_path_all(entries["file_path"]), value_set=paths).to_numpy(zero_copy_only=False)
        if self.partitions is not None:
            mask |= self.partitions.holds(entries)
        if self.row_filter is not None:
            mask |= self.row_filter.must_match(entries)
        is_delete = entries.numpy("content") != Content.DATA
        if is_delete.any():
            # delete files that are older than all live data files, or name a removed one
            numbers = pc.fill_null(entries["sequence_number"], 0).to_numpy()
            unneeded = (numbers > 0) & (numbers < self.older_than)
            if self.removed_data_files:
                removed = canonical_path_all(pa.array(sorted(self.removed_data_files)))
                named = canonical_path_all(referenced_paths(entries))
                unneeded |= pc.is_in(named, value_set=removed).to_numpy(zero_copy_only=False)
            mask |= is_delete & unneeded
        return mask

    def selects_in_part(self, entries: EntryTable) -> Mask:
        """Return which data files the row filter selects in part; these can be neither kept nor dropped."""
        if self.row_filter is None:
            return np.full(len(entries), False)
        is_data = entries.numpy("content") == Content.DATA
        return is_data & self.row_filter.may_match(entries) & ~self.selects(entries)

    def missing_files(self, live: EntryTable) -> list[str]:
        """Return the named files that are not among the live files."""
        live_paths = set(canonical_path_all(live["file_path"]).to_pylist())
        missing = {path for path in self.named_files.paths if canonical_path(path) not in live_paths}
        if entries := self.named_files.entries:
            is_live = pc.is_in(file_identities(entries), value_set=file_identities(live).combine_chunks())
            missing |= set(entries.filter(pc.invert(is_live))["file_path"].to_pylist())
        return sorted(missing)


def source_manifests(files: RemovedFiles) -> frozenset[str]:
    """Return the manifests that entries were read from; none if unknown for any of them."""
    if not files.entries or not files.manifests:
        return frozenset()
    ordinals = np.unique(files.entries.numpy("manifest"))
    if ordinals[0] < 0 or ordinals[-1] >= len(files.manifests):
        return frozenset()
    return frozenset(files.manifests[i] for i in ordinals)


def file_identities(files: EntryTable) -> Any:
    """Return the identity of each tracked file: its path, and for a vector also its offset in the file."""
    offsets = pc.fill_null(files["content_offset"].cast(pa.string()), "")
    return pc.binary_join_element_wise(files["file_path"], offsets, "\0")
