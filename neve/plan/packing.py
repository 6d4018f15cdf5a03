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

__all__ = ["Packed", "in_fixed_order", "packed"]

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Packed:
    """Stretches of files in a fixed order: group n is the rows from `starts[n]` to `ends[n]`, exclusive."""

    starts: Rows
    ends: Rows
    partition: Rows  # the number of each group's partition
    index: Rows  # its place among the groups of the partition

    def __len__(self) -> int:
        return len(self.starts)

    def only(self, chosen: NDArray[np.bool_] | Rows) -> Packed:
        """Some of the groups."""
        return Packed(self.starts[chosen], self.ends[chosen], self.partition[chosen], self.index[chosen])

    def sums(self, values: NDArray[np.int64]) -> Rows:
        """The sum of a value over the files of each group."""
        total = np.concatenate([[0], np.cumsum(values)])
        return np.asarray(total[self.ends] - total[self.starts], np.int64)

    @property
    def counts(self) -> Rows:
        """The files in each group."""
        return self.ends - self.starts


def in_fixed_order(files: EntryTable) -> tuple[Rows, Rows]:
    """Row numbers of files by spec, typed partition value, size from large to small and path; the partition of each.

    Partitions are numbered in that order too, so the same files always give the same numbers.
    """
    codes, keys = files.partition_codes()
    ranks = _ranks(keys)
    table = pa.table(
        {"rank": ranks[codes], "size": files["file_size_in_bytes"], "path": files["file_path"]},
    )
    by = [("rank", "ascending"), ("size", "descending"), ("path", "ascending")]
    order = np.asarray(pc.sort_indices(table, sort_keys=by).to_numpy(), np.int64)
    return order, ranks[codes][order]


def packed(sizes: Rows, partitions: Rows, most_bytes: int, most_files: int | None) -> Packed:
    """Files in order cut into groups: a group is closed when the next file would exceed a limit."""
    cuts = list(_cuts(sizes, partitions, most_bytes, most_files))
    bounds = np.array(cuts, np.int64).reshape(-1, 2)
    starts, ends = bounds[:, 0], bounds[:, 1]
    of_group = partitions[starts] if len(starts) else partitions[:0]
    firsts = np.flatnonzero(np.diff(of_group, prepend=-1))
    index = np.arange(len(starts)) - np.repeat(firsts, np.diff(np.append(firsts, len(starts))))
    return Packed(starts, ends, of_group, index)


def _cuts(sizes: Rows, partitions: Rows, most_bytes: int, most_files: int | None) -> Iterator[tuple[int, int]]:
    before = np.concatenate([[0], np.cumsum(sizes)])
    firsts = np.flatnonzero(np.diff(partitions, prepend=-1)).tolist()
    for first, end in pairwise([*firsts, len(sizes)]):
        at = first
        while at < end:
            fits = int(np.searchsorted(before, before[at] + most_bytes, side="right")) - 1
            stop = min(max(fits, at + 1), end, at + (most_files or end))
            yield at, stop
            at = stop


def _ranks(keys: EntryTable) -> Rows:
    """The place of each partition by spec and by the values of that spec's own fields, nulls first."""
    ranks, placed = np.zeros(len(keys), np.int64), 0
    spec_ids = keys.numpy("spec_id")
    for spec_id in np.unique(spec_ids):
        rows = np.flatnonzero(spec_ids == spec_id)
        ranks[rows[_sorted(keys.take(rows), int(spec_id))]] = placed + np.arange(len(rows))
        placed += len(rows)
    return ranks


def _sorted(keys: EntryTable, spec_id: int) -> Rows:
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


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.binary()) if pa.types.is_fixed_size_binary(column.type) else column
