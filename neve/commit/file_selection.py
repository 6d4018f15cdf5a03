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

from neve.commit.actions import NOTHING, Removed
from neve.commit.partition_set import PartitionSet
from neve.io.paths import canonical, canonical_all
from neve.model.partition import Specs
from neve.plan.delete_index import referenced_paths
from neve.plan.file_filter import RowFilter
from neve.plan.ranges import Mask
from neve.tree.entries import Content, EntryTable, Manifest


@dataclass(frozen=True)
class Selection:
    """The files of one kind, data or deletes, that leave the table."""

    specs: Specs
    named: Removed = NOTHING
    row_filter: RowFilter | None = None
    partitions: PartitionSet | None = None
    everything: bool = False
    older_than: int = 0
    """Delete files numbered below this cannot apply to any live data file."""
    gone: frozenset[str] = frozenset()
    """Data files that leave in this commit; the deletes that name one of them leave with it."""
    gone_from: PartitionSet | None = field(default=None)
    within: PartitionSet | None = None
    """The partitions the named files lie in, when that is known."""
    seen_in: frozenset[str] = frozenset()
    """The manifests that held all named files when a plan was made, when that is known."""
    purpose: str = ""
    """What sets apart two selections of one commit that look into the same manifests."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing can leave."""
        chosen = self.row_filter is not None or self.partitions is not None or self.everything
        return not (chosen or self.named or self.older_than or self.gone)

    @property
    def token(self) -> Hashable:
        """What may differ between two attempts of one commit."""
        return (self.older_than, self.gone, self.purpose)

    @property
    def detail(self) -> Collection[str]:
        """The detail columns needed to decide."""
        if self.row_filter is not None:
            return self.row_filter.detail
        return ("lower_bounds", "upper_bounds") if self.gone else ()  # equal bounds of the path name one data file

    def candidates(self, manifests: Sequence[Manifest]) -> list[Manifest]:
        """The manifests that may hold a file that leaves."""
        live = [m for m in manifests if m.may_hold_live_files]
        if self.everything or not live:
            return live
        mask = np.fromiter((m.is_deletes and 0 <= m.min_sequence_number < self.older_than for m in live), bool)
        if self.row_filter is not None:
            mask |= self.row_filter.may_match_manifests(live)
        if self.partitions is not None:
            mask |= self.partitions.may_meet(live)
        if self.gone and self.gone_from is not None:
            mask |= self.gone_from.may_meet(live)
        if self.named:
            mask |= self._may_hold_named(live)
        return list(compress(live, mask))

    def _may_hold_named(self, manifests: Sequence[Manifest]) -> Mask:
        if self._sources and self._sources <= {m.path for m in manifests}:
            return np.fromiter((m.path in self._sources for m in manifests), bool)
        if self.within is not None:
            return self.within.may_meet(manifests)
        if self.named.paths or not self.named.entries:
            return np.ones(len(manifests), bool)
        return PartitionSet.of(self.named.entries, self.specs).may_meet(manifests)

    @cached_property
    def _sources(self) -> frozenset[str]:
        """The manifests that hold the named files, when the caller knows them all.

        A manifest that loses a row, be it to the root, has another path afterwards: what is there is as it was.
        """
        return self.seen_in or (frozenset() if self.named.paths else sources_of(self.named))

    def chosen(self, entries: EntryTable) -> Mask:
        """Which live entries leave."""
        mask = np.full(len(entries), self.everything)
        if self.named:
            mask |= self._named(entries)
        if self.partitions is not None:
            mask |= self.partitions.holds(entries)
        if self.row_filter is not None:
            mask |= self.row_filter.must_match(entries)
        return mask | self._useless(entries)

    def partial(self, entries: EntryTable) -> Mask:
        """Which data files the row filter selects in part; they can be neither kept nor dropped."""
        if self.row_filter is None:
            return np.full(len(entries), False)
        is_data = entries.numpy("content") == Content.DATA
        return is_data & self.row_filter.may_match(entries) & ~self.chosen(entries)

    def _named(self, entries: EntryTable) -> Mask:
        mask = np.full(len(entries), False)
        if self.named.entries:
            wanted = identities(self.named.entries)
            mask |= pc.is_in(identities(entries), value_set=wanted).to_numpy()
        if self.named.paths:
            wanted = canonical_all(pa.array(sorted(self.named.paths), pa.string()))
            mask |= pc.is_in(canonical_all(entries["file_path"]), value_set=wanted).to_numpy(zero_copy_only=False)
        return mask

    def _useless(self, entries: EntryTable) -> Mask:
        """Delete files that apply to no live data file: too old for all of them, or naming one that is gone."""
        is_delete = entries.numpy("content") != Content.DATA
        if not is_delete.any():
            return is_delete
        numbers = pc.fill_null(entries["sequence_number"], 0).to_numpy()
        useless = (numbers > 0) & (numbers < self.older_than)
        if self.gone:
            gone, named = (canonical_all(paths) for paths in (pa.array(sorted(self.gone)), referenced_paths(entries)))
            useless |= pc.is_in(named, value_set=gone).to_numpy(zero_copy_only=False)
        return is_delete & useless

    def missing(self, met: EntryTable) -> list[str]:
        """The named files that were not met live."""
        known = set(canonical_all(met["file_path"]).to_pylist())
        lost = {path for path in self.named.paths if canonical(path) not in known}
        if self.named.entries:
            found = pc.is_in(identities(self.named.entries), value_set=identities(met).combine_chunks())
            lost |= set(self.named.entries.filter(pc.invert(found))["file_path"].to_pylist())
        return sorted(lost)


def sources_of(known: Removed) -> frozenset[str]:
    """The manifests that entries were read from; none if that is not known of them all."""
    if not known.entries or not known.manifests:
        return frozenset()
    ordinals = np.unique(known.entries.numpy("manifest"))
    if ordinals[0] < 0 or ordinals[-1] >= len(known.manifests):
        return frozenset()
    return frozenset(known.manifests[i] for i in ordinals)


def identities(files: EntryTable) -> Any:
    """What makes a tracked file that file: its path, and for a vector also where in the file it lies."""
    offsets = pc.fill_null(files["content_offset"].cast(pa.string()), "")
    return pc.binary_join_element_wise(files["file_path"], offsets, "\0")
