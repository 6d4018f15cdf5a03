"""Files into groups: by partition, in a fixed order, each group within its limits.

Everything is done by columns; the only loop is over the groups that come out.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    """Stretches of files in a fixed order: group n is the rows from `starts[n]` to `ends[n]`, exclusive."""

    starts: Rows
    ends: Rows
    partition: Rows  # the number of each group's partition

    def __len__(self) -> int:
        return len(self.starts)

    def select(self, chosen: NDArray[np.bool_] | Rows) -> GroupSlices:
        """Some of the groups."""
        return GroupSlices(self.starts[chosen], self.ends[chosen], self.partition[chosen])

    def limit_files(self, most: int) -> GroupSlices:
        """The first groups that together hold at most so many files, the last one cut to fit."""
        before = np.cumsum(self.file_counts) - self.file_counts
        kept = self.select(before < most)
        room = min(most, int(self.file_counts.sum())) - before[: len(kept)]
        return GroupSlices(kept.starts, np.minimum(kept.ends, kept.starts + room), kept.partition)

    def rows(self) -> Rows:
        """The rows of all groups, one group after the other."""
        counts = self.file_counts
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(self.starts, counts) + within

    @property
    def index_in_partition(self) -> Rows:
        """The place of each group among those of its partition; groups of one partition follow each other."""
        firsts = np.flatnonzero(np.diff(self.partition, prepend=-1))
        return np.arange(len(self)) - np.repeat(firsts, np.diff(np.append(firsts, len(self))))

    def sums(self, values: NDArray[np.int64]) -> Rows:
        """The sum of a value over the files of each group."""
        total = np.concatenate([[0], np.cumsum(values)])
        return np.asarray(total[self.ends] - total[self.starts], np.int64)

    @property
    def file_counts(self) -> Rows:
        """The files in each group."""
        return self.ends - self.starts


def sort_by_partition_and_size(files: EntryTable, rows: Rows) -> tuple[Rows, Rows]:
    """Some rows by spec, typed partition value, size from large to small and path; and the partition of each.

    Partitions are numbered in that order too, so the same files always give the same numbers.
    """
    needed = ["spec_id", "file_size_in_bytes", "file_path", *(u.column for u in files.specs.union)]
    some = EntryTable(files.columns.select(needed), files.specs).take(rows)
    codes, keys = some.partition_codes()
    ranks = _partition_ranks(keys)[codes]
    table = pa.table({"rank": ranks, "size": some["file_size_in_bytes"], "path": some["file_path"]})
    by = [("rank", "ascending"), ("size", "descending"), ("path", "ascending")]
    order = np.asarray(pc.sort_indices(table, sort_keys=by).to_numpy(), np.int64)
    return rows[order], ranks[order]


def pack_files(sizes: Rows, partitions: Rows, max_bytes: int, max_files: int | None) -> GroupSlices:
    """Files in order cut into groups: a group is closed when the next file would exceed a limit."""
    cuts = list(_group_slices(sizes, partitions, max_bytes, max_files))
    starts, ends = np.array(cuts, np.int64).reshape(-1, 2).T
    return GroupSlices(starts, ends, partitions[starts])


def _group_slices(sizes: Rows, partitions: Rows, max_bytes: int, max_files: int | None) -> Iterator[tuple[int, int]]:
    before = np.concatenate([[0], np.cumsum(sizes)])
    max_bytes = min(max_bytes, int(before[-1]))  # "no limit" is often the largest number there is: nothing to add to
    firsts = np.flatnonzero(np.diff(partitions, prepend=-1)).tolist()
    for first, end in pairwise([*firsts, len(sizes)]):
        at = first
        while at < end:
            fits = int(np.searchsorted(before, before[at] + max_bytes, side="right")) - 1
            stop = min(max(fits, at + 1), end, at + (max_files or end))
            yield at, stop
            at = stop


def _partition_ranks(keys: EntryTable) -> Rows:
    """The place of each partition by spec and by the values of that spec's own fields, nulls first."""
    ranks, placed = np.zeros(len(keys), np.int64), 0
    spec_ids = keys.numpy("spec_id")
    for spec_id in np.unique(spec_ids):
        rows = np.flatnonzero(spec_ids == spec_id)
        ranks[rows[_sort_indices(keys.take(rows), int(spec_id))]] = placed + np.arange(len(rows))
        placed += len(rows)
    return ranks


def _sort_indices(keys: EntryTable, spec_id: int) -> Rows:
    columns = [keys[name] for name in keys.specs.columns(spec_id) if not pa.types.is_null(keys[name].type)]
    if not columns:
        return np.arange(len(keys))
    table = pa.table(
        {
            name: values
            for n, column in enumerate(columns)
            for name, values in ((f"has {n}", column.is_valid()), (str(n), _sortable(column)))
        }
    )
    by = [(name, "ascending") for name in table.column_names]
    return np.asarray(pc.sort_indices(table, sort_keys=by).to_numpy(), np.int64)


def _sortable(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if pa.types.is_floating(column.type):
        return _in_total_order(column.combine_chunks().cast(pa.float64()))
    return column.cast(pa.binary()) if pa.types.is_fixed_size_binary(column.type) else column


def _in_total_order(column: pa.Array) -> pa.Array:
    """Floating-point numbers as integers of the same order, in which the two zeros are two and NaN is the last."""
    bits = column.fill_null(0).to_numpy(zero_copy_only=False).view(np.int64)
    return pa.array(bits ^ ((bits >> 63) & np.iinfo(np.int64).max))
