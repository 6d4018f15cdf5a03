"""Pack files into groups: by partition, in a fixed order, each group within its limits.

All steps work on whole columns; the only loop is over the resulting groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from neve.tree.entries import EntryTable

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class GroupSlices:
    """Slices of files in a fixed order: group n is the rows from `starts[n]` to `ends[n]`, exclusive."""

    starts: Rows
    ends: Rows
    partition: Rows  # the number of each group's partition

    def __len__(self) -> int:
        return len(self.starts)

    def select(self, chosen: NDArray[np.bool_] | Rows) -> GroupSlices:
        """Return the chosen groups."""
        return GroupSlices(self.starts[chosen], self.ends[chosen], self.partition[chosen])

    def limit_files(self, max_files: int) -> GroupSlices:
        """Return the first groups that together hold at most `max_files` files; the last one is cut to fit."""
        before = np.cumsum(self.file_counts) - self.file_counts
        first = self.select(before < max_files)
        room = min(max_files, int(self.file_counts.sum())) - before[: len(first)]
        return GroupSlices(first.starts, np.minimum(first.ends, first.starts + room), first.partition)

    def rows(self) -> Rows:
        """Return the rows of all groups, one group after the other."""
        counts = self.file_counts
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(self.starts, counts) + within

    @property
    def index_in_partition(self) -> Rows:
        """The index of each group within its partition; groups of one partition are adjacent."""
        firsts = np.flatnonzero(np.diff(self.partition, prepend=-1))
        return np.arange(len(self)) - np.repeat(firsts, np.diff(np.append(firsts, len(self))))

    def sums(self, values: NDArray[np.int64]) -> Rows:
        """Return the sum of a value over the files of each group."""
        total = np.concatenate([[0], np.cumsum(values)])
        return np.asarray(total[self.ends] - total[self.starts], np.int64)

    @property
    def file_counts(self) -> Rows:
        """The number of files in each group."""
        return self.ends - self.starts


def sort_by_partition_and_size(files: EntryTable, rows: Rows) -> tuple[Rows, Rows]:
    """Sort rows by spec, typed partition value, size (largest first) and path; return them and their partition numbers.

    Partitions are numbered in the same order, so the same files always get the same numbers.
    """
    needed = ["spec_id", "file_size_in_bytes", "file_path", *(u.column for u in files.specs.union)]
    chosen = EntryTable(files.columns.select(needed), files.specs).take(rows)
    codes, keys = chosen.partition_codes()
    rank_of_key, ranked = np.zeros(len(keys), np.int64), 0  # by spec, then by the values of its fields, nulls first
    spec_ids = keys.numpy("spec_id")
    for spec_id in np.unique(spec_ids):
        of_spec = np.flatnonzero(spec_ids == spec_id)
        rank_of_key[of_spec[_sort_indices(keys.take(of_spec), int(spec_id))]] = ranked + np.arange(len(of_spec))
        ranked += len(of_spec)
    ranks = rank_of_key[codes]
    table = pa.table({"rank": ranks, "size": chosen["file_size_in_bytes"], "path": chosen["file_path"]})
    by = [("rank", "ascending"), ("size", "descending"), ("path", "ascending")]
    order = np.asarray(pc.sort_indices(table, sort_keys=by).to_numpy(), np.int64)
    return rows[order], ranks[order]


def pack_files(sizes: Rows, partitions: Rows, max_bytes: int, max_files: int | None) -> GroupSlices:
    """Cut sorted files into groups; a group is closed when the next file would exceed a limit."""
    cuts: list[tuple[int, int]] = []
    before = np.concatenate([[0], np.cumsum(sizes)])
    max_bytes = min(max_bytes, int(before[-1]))  # "no limit" is often the largest integer, which would overflow below
    firsts = np.flatnonzero(np.diff(partitions, prepend=-1)).tolist()
    for first, end in pairwise([*firsts, len(sizes)]):
        at = first
        while at < end:
            fits = int(np.searchsorted(before, before[at] + max_bytes, side="right")) - 1
            stop = min(max(fits, at + 1), end, at + (max_files or end))
            cuts.append((at, stop))
            at = stop
    starts, ends = np.array(cuts, np.int64).reshape(-1, 2).T
    return GroupSlices(starts, ends, partitions[starts])


def _sort_indices(keys: EntryTable, spec_id: int) -> Rows:
    columns = [keys[name] for name in keys.specs.columns(spec_id) if not pa.types.is_null(keys[name].type)]
    if not columns:
        return np.arange(len(keys))
    table = pa.table({str(n): _sortable(column) for n, column in enumerate(columns)})
    by = [(name, "ascending", "at_start") for name in table.column_names]
    return np.asarray(pc.sort_indices(table, sort_keys=by).to_numpy(), np.int64)


def _sortable(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if pa.types.is_floating(column.type):
        # integers in the same order, so that -0.0 sorts before 0.0 and NaN last
        floats = column.combine_chunks().cast(pa.float64())
        bits = floats.fill_null(0).to_numpy(zero_copy_only=False).view(np.int64)
        is_null = floats.is_null().to_numpy(zero_copy_only=False)
        return pa.array(bits ^ ((bits >> 63) & np.iinfo(np.int64).max), mask=is_null)
    return column.cast(pa.binary()) if pa.types.is_fixed_size_binary(column.type) else column
