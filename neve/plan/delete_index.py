"""Which delete file applies to which data file.

* A deletion vector names its data file. It is the only one of the file, its sequence number is at least the file's, and
  where it exists the position delete files for that file are ignored.
* A position delete file that names one data file, by reference or by equal bounds of its path column, applies to that
  file; any other applies to the files of its partition. Its number is at least the file's.
* An equality delete file applies to the files of its partition, or under an unpartitioned spec to every file of the
  table. Its number is greater than the file's. Where statistics were read, it is left out when some column it compares
  has nothing in common with the file's.

A partition is the pair of spec and tuple. A vector or a delete file that names a data file of another partition is
corruption and an error.

Joins of data files and delete files by a code and a sequence number, without a loop over either.

Data files are put in order of code and number. Those of one code up to some number then follow each other: they are one
run of the order, found by two binary searches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import NestedField, StringType

from neve.errors import TableError
from neve.io.paths import canonical_all
from neve.model.partition import Specs
from neve.model.values import decode
from neve.plan.metrics_filter import FileRanges, of_field
from neve.plan.ranges import FieldRange, Mask
from neve.tree.entries import Content, EntryTable

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


PATH_FIELD_ID = 2147483546
NEWEST = np.iinfo(np.int64).max  # a file that is not committed yet is newer than all that are


def attach(data: EntryTable, deletes: EntryTable) -> pa.Table:
    """The pairs of data file and delete file that belong together, as row numbers, sorted by data file."""
    if not len(data) or not len(deletes):
        return _table(NO_PAIRS)
    return _Matching(data, deletes).table()


def referenced_paths(deletes: EntryTable) -> pa.Array:
    """The one data file each delete file is about, null when it is about more."""
    named = deletes["referenced_data_file"].combine_chunks()
    if not deletes.has("lower_bounds", "upper_bounds"):
        return named
    lower, upper = (of_field(deletes[name], PATH_FIELD_ID) for name in ("lower_bounds", "upper_bounds"))
    single = decode(pc.if_else(pc.equal(lower, upper), lower, pa.scalar(None, pa.binary())), StringType())
    of_positions = pc.equal(deletes["content"].combine_chunks(), int(Content.POSITION_DELETES))
    return pc.coalesce(named, pc.if_else(of_positions, single, pa.scalar(None, pa.string())))


@dataclass(frozen=True)
class _Matching:
    """Data files and delete files with what is needed to bring them together."""

    data: EntryTable
    deletes: EntryTable

    def table(self) -> pa.Table:
        self.refuse_vectors_without_file()
        vectors = self.by_path(self.is_vector)
        self.refuse_other_partitions(vectors)
        self.refuse_second_vectors(vectors)
        self.refuse_old_vectors(vectors)
        has_vector = np.zeros(len(self.data), bool)
        has_vector[vectors[0]] = True
        positions = (where(pairs, ~has_vector[pairs[0]]) for pairs in self.positions())
        pairs = [vectors, *positions, *self.equalities()]
        return _table(concat(pairs))

    def positions(self) -> Iterator[Pairs]:
        alone = self.is_position & ~self.is_vector & self.names_file
        named = self.by_path(alone)
        self.refuse_other_partitions(named)
        yield where(named, self.deletes_number[named[1]] >= self.data_number[named[0]])
        yield self.within_path_bounds(self.by_partition(self.is_position & ~self.names_file, "right").pairs())

    def equalities(self) -> Iterator[Pairs]:
        equality = self.deletes.numpy("content") == Content.EQUALITY_DELETES
        self.refuse_without_columns(equality)
        everywhere = equality & np.isin(self.deletes.numpy("spec_id"), self.unpartitioned)
        yield self.overlapping(self.everywhere(everywhere))
        yield self.overlapping(self.by_partition(equality & ~everywhere, "left"))

    # -- facts ------------------------------------------------------------------------------------------------------

    @property
    def specs(self) -> Specs:
        return self.data.specs

    @cached_property
    def is_position(self) -> Mask:
        return self.deletes.numpy("content") == Content.POSITION_DELETES

    @cached_property
    def is_vector(self) -> Mask:
        formats = self.deletes["file_format"].cast(pa.string())
        return self.is_position & pc.equal(formats, "PUFFIN").fill_null(False).to_numpy()

    @cached_property
    def references(self) -> pa.Array:
        return referenced_paths(self.deletes)

    @cached_property
    def paths(self) -> pa.Array:
        """The data files, spelled in one way: who wrote a delete file may have spelled them in another."""
        return canonical_all(self.data["file_path"])

    @cached_property
    def names_file(self) -> Mask:
        return self.references.is_valid().to_numpy(zero_copy_only=False)

    @cached_property
    def unpartitioned(self) -> list[int]:
        return [s for s in self.deletes.spec_ids() if self.specs.is_unpartitioned(s)]

    @cached_property
    def data_number(self) -> Rows:
        return _numbers(self.data)

    @cached_property
    def deletes_number(self) -> Rows:
        return _numbers(self.deletes)

    @cached_property
    def partitions(self) -> tuple[Rows, Rows]:
        """A number per data file and per delete file, equal for files of one spec and tuple."""
        names = ["spec_id", *(u.column for u in self.specs.union)]
        both = pa.concat_tables([t.columns.select(names) for t in (self.data, self.deletes)], promote_options="default")
        codes, _ = EntryTable(both, self.specs).partition_codes()
        return codes[: len(self.data)], codes[len(self.data) :]

    # -- bringing together ------------------------------------------------------------------------------------------

    def by_path(self, chosen: Mask) -> Pairs:
        """The chosen delete files with the data file each names."""
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return NO_PAIRS
        paths = canonical_all(self.references.take(pa.array(rows)))
        known = paths.drop_null().unique()
        data = places(self.paths, known)
        newest = np.full(len(rows), NEWEST)
        return runs(data, self.data_number, places(paths, known), newest, rows, "right").pairs()

    def by_partition(self, chosen: Mask, side: Side) -> Runs:
        """The chosen delete files with the data files of their partition that are old enough."""
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return NO_RUNS
        data, deletes = self.partitions
        return runs(data, self.data_number, deletes[rows], self.deletes_number[rows], rows, side)

    def everywhere(self, chosen: Mask) -> Runs:
        """The chosen delete files with every data file that is old enough."""
        rows = np.flatnonzero(chosen)
        same, code = np.zeros(len(self.data), np.int64), np.zeros(len(rows), np.int64)
        return runs(same, self.data_number, code, self.deletes_number[rows], rows, "left")

    def within_path_bounds(self, pairs: Pairs) -> Pairs:
        """Without the pairs whose data file lies outside the paths the delete file is about."""
        if not len(pairs[0]) or not self.deletes.has("lower_bounds", "upper_bounds"):
            return pairs
        bounds = [of_field(self.deletes[n], PATH_FIELD_ID) for n in ("lower_bounds", "upper_bounds")]
        outside = _outside(self.data["file_path"].combine_chunks(), bounds, pairs)
        if outside.any():
            outside &= _outside(self.paths, [canonical_all(decode(b, StringType())) for b in bounds], pairs)
        return where(pairs, ~outside)

    def overlapping(self, runs: Runs) -> Pairs:
        """The pairs of equality delete file and data file that have something in common in every column compared."""
        if not (self.data.has("lower_bounds") and self.deletes.has("lower_bounds")):
            return runs.pairs()
        return concat([self._overlapping(pairs) for pairs in runs.blocks()])

    def _overlapping(self, pairs: Pairs) -> Pairs:
        for comparing, data, deletes in self.compared:
            meet = data.take(pairs[0]).overlaps(deletes.take(pairs[1]))
            pairs = where(pairs, meet | ~comparing[pairs[1]])
        return pairs

    @cached_property
    def compared(self) -> list[tuple[Mask, FieldRange, FieldRange]]:
        """Per column of some equality delete: which delete files compare it, its ranges in data and in delete files."""
        ids = self.deletes["equality_ids"].combine_chunks()
        fields = [f for i in ids.flatten().unique().to_pylist() if (f := self._column(i)) is not None]
        data, deletes = FileRanges(self.data), FileRanges(self.deletes)
        return [(_lists_with(ids, f.field_id), data.of(f), deletes.of(f)) for f in fields]

    def _column(self, field_id: int) -> NestedField | None:
        """A column as the newest schema that has it knows it."""
        schema = next((s for s in self.specs.schemas if field_id in s.field_ids), None)
        return None if schema is None else schema.find_field(field_id)

    # -- corruption -------------------------------------------------------------------------------------------------

    def refuse_other_partitions(self, pairs: Pairs) -> None:
        if not len(pairs[0]):
            return
        data, deletes = self.partitions
        wrong = np.flatnonzero(data[pairs[0]] != deletes[pairs[1]])
        if len(wrong):
            file, delete = int(pairs[0][wrong[0]]), int(pairs[1][wrong[0]])
            raise TableError(
                f"Delete file {self._path(self.deletes, delete)} is of {self.deletes.partition_key(delete)}, but its "
                f"data file {self._path(self.data, file)} is of {self.data.partition_key(file)}: a delete file carries "
                "the spec and partition of its data file. Find out who wrote it."
            )

    def refuse_second_vectors(self, vectors: Pairs) -> None:
        files, counts = np.unique(vectors[0], return_counts=True)
        if (twice := files[counts > 1]).size:
            both = vectors[1][vectors[0] == twice[0]]
            found = ", ".join(self._path(self.deletes, int(d)) for d in both)
            raise TableError(
                f"Data file {self._path(self.data, int(twice[0]))} has {len(both)} deletion vectors ({found}): "
                "a file has one at most. Two writers must have committed without seeing each other."
            )

    def refuse_old_vectors(self, vectors: Pairs) -> None:
        old = np.flatnonzero(self.deletes_number[vectors[1]] < self.data_number[vectors[0]])
        if len(old):
            file, delete = int(vectors[0][old[0]]), int(vectors[1][old[0]])
            raise TableError(
                f"Deletion vector {self._path(self.deletes, delete)} is older than its data file "
                f"{self._path(self.data, file)}: sequence number {self.deletes_number[delete]} is less than "
                f"{self.data_number[file]}. Find out who wrote it."
            )

    def refuse_vectors_without_file(self) -> None:
        if (bare := np.flatnonzero(self.is_vector & ~self.names_file)).size:
            path = self._path(self.deletes, int(bare[0]))
            raise TableError(f"Deletion vector {path} names no data file; its entry is corrupt.")

    def refuse_without_columns(self, equality: Mask) -> None:
        counts = pc.list_value_length(self.deletes["equality_ids"]).fill_null(0).to_numpy()
        if (bare := np.flatnonzero(equality & (counts == 0))).size:
            path = self._path(self.deletes, int(bare[0]))
            raise TableError(f"Equality delete file {path} names no columns to compare; its entry is corrupt.")

    @staticmethod
    def _path(entries: EntryTable, row: int) -> str:
        return str(entries["file_path"][row].as_py())


def _outside(paths: pa.Array, bounds: list[pa.Array], pairs: Pairs) -> Mask:
    """Where the path of a data file is not within the bounds of a delete file."""
    at, found = pa.array(pairs[1]), paths.cast(pa.binary()).take(pa.array(pairs[0]))
    lower, upper = (bound.cast(pa.binary()).take(at) for bound in bounds)
    outside = pc.or_kleene(pc.less(found, lower), pc.greater(found, upper))
    return np.asarray(outside.fill_null(False).to_numpy(zero_copy_only=False), bool)


def _numbers(entries: EntryTable) -> Rows:
    return np.asarray(entries["sequence_number"].fill_null(NEWEST).to_numpy(), np.int64)


def _lists_with(lists: pa.Array, value: int) -> Mask:
    found = np.zeros(len(lists), bool)
    offsets = lists.offsets.to_numpy()
    hits = np.flatnonzero(lists.values.to_numpy(zero_copy_only=False)[offsets[0] : offsets[-1]] == value) + offsets[0]
    found[np.searchsorted(offsets, hits, side="right") - 1] = True
    return found


def _table(pairs: Pairs) -> pa.Table:
    order = np.lexsort((pairs[1], pairs[0]))
    return pa.table({"file": pa.array(pairs[0][order], pa.int64()), "delete": pa.array(pairs[1][order], pa.int64())})
