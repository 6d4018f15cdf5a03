"""Joins of data files and delete files by a code and a sequence number, without a loop over either.

Data files are put in order of code and number. Those of one code up to some number then follow each other: they are one
run of the order, found by two binary searches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["NO_PAIRS", "NO_RUNS", "Pairs", "Rows", "Runs", "Side", "concat", "places", "runs", "where"]

Rows = np.ndarray[Any, np.dtype[np.int64]]
Pairs = tuple[Rows, Rows]  # rows of data files, rows of delete files
Side = Literal["left", "right"]  # numbers below the limit, or up to it

NO_PAIRS: Pairs = (np.empty(0, np.int64), np.empty(0, np.int64))
BLOCK = 1 << 22


@dataclass(frozen=True, slots=True)
class Runs:
    """The data files of each delete file as a run of an order of data files."""

    order: Rows
    first: Rows
    counts: Rows
    deletes: Rows

    def pairs(self, start: int = 0, stop: int | None = None) -> Pairs:
        """The pairs of some of the delete files, or of all."""
        first, counts, deletes = (a[start:stop] for a in (self.first, self.counts, self.deletes))
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.order[np.repeat(first, counts) + within], np.repeat(deletes, counts)

    def blocks(self) -> Iterator[Pairs]:
        """The pairs in portions of some million, whole delete files each."""
        block = (np.cumsum(self.counts) - self.counts) // BLOCK
        edges = [*np.flatnonzero(np.diff(block, prepend=-1)).tolist(), len(self.counts)]
        for start, stop in pairwise(edges):
            yield self.pairs(start, stop)


NO_RUNS = Runs(*(np.empty(0, np.int64) for _ in range(4)))


def runs(data: Rows, data_number: Rows, deletes: Rows, limit: Rows, rows: Rows, side: Side) -> Runs:
    """The data files with the code of each delete file and a number within its limit; a code below zero has none."""
    order = np.lexsort((data_number, data))
    ranks, numbers = _dense(data_number[order], limit)
    width = int(max(ranks.max(initial=0), numbers.max(initial=0))) + 2
    keys = data[order] * width + ranks
    first = np.searchsorted(keys, deletes * width)
    last = np.searchsorted(keys, deletes * width + numbers, side=side)
    return Runs(order, first, np.where(deletes < 0, 0, np.maximum(last - first, 0)), rows)


def places(values: pa.Array, known: pa.Array) -> Rows:
    """The place of each value in a list, -1 where it is not there."""
    return np.asarray(pc.index_in(values, value_set=known).fill_null(-1).to_numpy(zero_copy_only=False), np.int64)


def where(pairs: Pairs, mask: np.ndarray[Any, Any]) -> Pairs:
    """The pairs a mask selects."""
    return pairs[0][mask], pairs[1][mask]


def concat(pairs: Sequence[Pairs]) -> Pairs:
    """Several pairs of columns as one."""
    return (np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])) if pairs else NO_PAIRS


def _dense(one: Rows, other: Rows) -> tuple[Rows, Rows]:
    ranked = np.unique(np.concatenate([one, other]), return_inverse=True)[1]
    return ranked[: len(one)], ranked[len(one) :]
