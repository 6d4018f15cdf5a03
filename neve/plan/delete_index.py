"""Match delete files with the data files they apply to.

* A deletion vector names its data file. A data file has at most one vector, whose sequence number is at least that of
  the data file. Position delete files for a data file with a vector are ignored.
* A position delete file that names one data file, by reference or by equal bounds of its path column, applies to that
  file; any other applies to the files of its partition. Its sequence number is at least that of the data file.
* An equality delete file applies to the files of its partition, or under an unpartitioned spec to every file of the
  table. Its sequence number is greater than that of the data file. If statistics were read, it is left out when the
  ranges of a compared column do not overlap.

A partition is the pair of spec and tuple. A vector or a delete file that names a data file of another partition is
corrupt and raises an error.

The join is by a code (of the path or of the partition) and a sequence number, without a loop over the files. Data files
are sorted by code and sequence number. All data files of one code up to some sequence number are then a contiguous
run, which two binary searches find.
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
from pyiceberg.types import StringType

from neve.errors import TableError
from neve.io.paths import canonical_path_all
from neve.model.values import decode_values
from neve.plan.metrics_filter import FileRanges, values_of_field
from neve.plan.ranges import FieldRange, Mask
from neve.tree.entries import Content, EntryTable

Rows = np.ndarray[Any, np.dtype[np.int64]]
Pairs = tuple[Rows, Rows]  # rows of data files, rows of delete files
Side = Literal["left", "right"]  # sequence numbers below the limit, or up to and including it

NO_PAIRS: Pairs = (np.empty(0, np.int64), np.empty(0, np.int64))
PAIRS_PER_BLOCK = 1 << 22
PATH_FIELD_ID = 2147483546
NEWEST_SEQUENCE_NUMBER = np.iinfo(np.int64).max  # an uncommitted file is newer than all committed ones


@dataclass(frozen=True, slots=True)
class Runs:
    """The data files of each delete file, as a run of rows in a sorted order of data files."""

    order: Rows
    first: Rows
    counts: Rows
    deletes: Rows

    def pairs(self, start: int = 0, stop: int | None = None) -> Pairs:
        """Return the pairs of the delete files from `start` to `stop`."""
        first, counts, deletes = (a[start:stop] for a in (self.first, self.counts, self.deletes))
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.order[np.repeat(first, counts) + within], np.repeat(deletes, counts)

    def blocks(self) -> Iterator[Pairs]:
        """Yield the pairs in blocks of a few million; the pairs of one delete file stay together."""
        block = (np.cumsum(self.counts) - self.counts) // PAIRS_PER_BLOCK
        edges = [*np.flatnonzero(np.diff(block, prepend=-1)).tolist(), len(self.counts)]
        for start, stop in pairwise(edges):
            yield self.pairs(start, stop)


NO_RUNS = Runs(*(np.empty(0, np.int64) for _ in range(4)))


def find_runs(
    data_codes: Rows,
    data_sequence_numbers: Rows,
    delete_codes: Rows,
    max_sequence_numbers: Rows,
    delete_rows: Rows,
    side: Side,
) -> Runs:
    """Find the data files with the code of each delete file, within its limit; a negative code matches none."""
    order = np.lexsort((data_sequence_numbers, data_codes))
    both = np.concatenate([data_sequence_numbers[order], max_sequence_numbers])
    ranks, numbers = np.split(np.unique(both, return_inverse=True)[1], [len(order)])
    width = int(max(ranks.max(initial=0), numbers.max(initial=0))) + 2
    keys = data_codes[order] * width + ranks
    first = np.searchsorted(keys, delete_codes * width)
    last = np.searchsorted(keys, delete_codes * width + numbers, side=side)
    return Runs(order, first, np.where(delete_codes < 0, 0, np.maximum(last - first, 0)), delete_rows)


def index_in(values: pa.Array, value_set: pa.Array) -> Rows:
    """Return the index of each value in a list, or -1."""
    return np.asarray(pc.index_in(values, value_set=value_set).fill_null(-1).to_numpy(zero_copy_only=False), np.int64)


def filter_pairs(pairs: Pairs, mask: np.ndarray[Any, Any]) -> Pairs:
    """Return the pairs that a mask selects."""
    return pairs[0][mask], pairs[1][mask]


def concat_pairs(pairs: Sequence[Pairs]) -> Pairs:
    """Concatenate pairs of columns."""
    return (np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])) if pairs else NO_PAIRS


def match_deletes(data: EntryTable, deletes: EntryTable) -> pa.Table:
    """Return which delete file applies to which data file, as pairs of row numbers, sorted by data file."""
    if not len(data) or not len(deletes):
        return _pairs_as_table(NO_PAIRS)
    return _DeleteMatcher(data, deletes).pairs_table()


def referenced_paths(deletes: EntryTable) -> pa.Array:
    """Return the path of the only data file that each delete file names; null if it may apply to several."""
    named = deletes["referenced_data_file"].combine_chunks()
    if not deletes.has("lower_bounds", "upper_bounds"):
        return named
    lower, upper = (values_of_field(deletes[name], PATH_FIELD_ID) for name in ("lower_bounds", "upper_bounds"))
    single = decode_values(pc.if_else(pc.equal(lower, upper), lower, pa.scalar(None, pa.binary())), StringType())
    is_position = pc.equal(deletes["content"].combine_chunks(), int(Content.POSITION_DELETES))
    return pc.coalesce(named, pc.if_else(is_position, single, pa.scalar(None, pa.string())))


@dataclass(frozen=True)
class _DeleteMatcher:
    data: EntryTable
    deletes: EntryTable

    def pairs_table(self) -> pa.Table:
        self.refuse_incomplete(self.is_vector & ~self.names_one_data_file, "Deletion vector", "names no data file")
        vectors = self.pairs_by_path(self.is_vector)
        self.refuse_other_partitions(vectors)
        self.refuse_second_vectors(vectors)
        self.refuse_old_vectors(vectors)
        has_vector = np.zeros(len(self.data), bool)
        has_vector[vectors[0]] = True
        positions = (filter_pairs(pairs, ~has_vector[pairs[0]]) for pairs in self.position_delete_pairs())
        pairs = [vectors, *positions, *self.equality_delete_pairs()]
        return _pairs_as_table(concat_pairs(pairs))

    def position_delete_pairs(self) -> Iterator[Pairs]:
        named = self.pairs_by_path(self.is_position & ~self.is_vector & self.names_one_data_file)
        self.refuse_other_partitions(named)
        yield filter_pairs(named, self.delete_sequence_numbers[named[1]] >= self.data_sequence_numbers[named[0]])
        yield self.filter_by_path_bounds(
            self.runs_by_partition(self.is_position & ~self.names_one_data_file, "right").pairs()
        )

    def equality_delete_pairs(self) -> Iterator[Pairs]:
        equality = self.deletes.numpy("content") == Content.EQUALITY_DELETES
        counts = pc.list_value_length(self.deletes["equality_ids"]).fill_null(0).to_numpy()
        self.refuse_incomplete(equality & (counts == 0), "Equality delete file", "names no columns to compare")
        unpartitioned = [s for s in self.deletes.spec_ids() if self.data.specs.is_unpartitioned(s)]
        everywhere = equality & np.isin(self.deletes.numpy("spec_id"), unpartitioned)
        yield self.filter_by_column_ranges(self.runs_over_all_data_files(everywhere))
        yield self.filter_by_column_ranges(self.runs_by_partition(equality & ~everywhere, "left"))

    # -- facts ------------------------------------------------------------------------------------------------------

    @cached_property
    def is_position(self) -> Mask:
        return self.deletes.numpy("content") == Content.POSITION_DELETES

    @cached_property
    def is_vector(self) -> Mask:
        formats = self.deletes["file_format"].cast(pa.string())
        return self.is_position & pc.equal(formats, "PUFFIN").fill_null(False).to_numpy()

    @cached_property
    def referenced_data_files(self) -> pa.Array:
        return referenced_paths(self.deletes)

    @cached_property
    def canonical_data_paths(self) -> pa.Array:
        """The paths of the data files in canonical form; writers of delete files may use another form."""
        return canonical_path_all(self.data["file_path"])

    @cached_property
    def names_one_data_file(self) -> Mask:
        return self.referenced_data_files.is_valid().to_numpy(zero_copy_only=False)

    @cached_property
    def data_sequence_numbers(self) -> Rows:
        return _sequence_numbers(self.data)

    @cached_property
    def delete_sequence_numbers(self) -> Rows:
        return _sequence_numbers(self.deletes)

    @cached_property
    def partitions(self) -> tuple[Rows, Rows]:
        """A number per data file and per delete file, equal for files of one spec and tuple."""
        names = ["spec_id", *(u.column for u in self.data.specs.union)]
        both = pa.concat_tables([t.columns.select(names) for t in (self.data, self.deletes)], promote_options="default")
        codes, _ = EntryTable(both, self.data.specs).partition_codes()
        return codes[: len(self.data)], codes[len(self.data) :]

    # -- matching ---------------------------------------------------------------------------------------------------

    def pairs_by_path(self, chosen: Mask) -> Pairs:
        """Return the chosen delete files with the data file that each names."""
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return NO_PAIRS
        paths = canonical_path_all(self.referenced_data_files.take(pa.array(rows)))
        named = paths.drop_null().unique()
        data = index_in(self.canonical_data_paths, named)
        no_limit = np.full(len(rows), NEWEST_SEQUENCE_NUMBER)
        return find_runs(data, self.data_sequence_numbers, index_in(paths, named), no_limit, rows, "right").pairs()

    def runs_by_partition(self, chosen: Mask, side: Side) -> Runs:
        """Return the chosen delete files with the data files of their partition that are old enough."""
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return NO_RUNS
        data, deletes = self.partitions
        return find_runs(
            data, self.data_sequence_numbers, deletes[rows], self.delete_sequence_numbers[rows], rows, side
        )

    def runs_over_all_data_files(self, chosen: Mask) -> Runs:
        """Return the chosen delete files with every data file that is old enough."""
        rows = np.flatnonzero(chosen)
        same, code = np.zeros(len(self.data), np.int64), np.zeros(len(rows), np.int64)
        return find_runs(same, self.data_sequence_numbers, code, self.delete_sequence_numbers[rows], rows, "left")

    def filter_by_path_bounds(self, pairs: Pairs) -> Pairs:
        """Drop pairs whose data file is outside the path bounds of the delete file."""
        if not len(pairs[0]) or not self.deletes.has("lower_bounds", "upper_bounds"):
            return pairs
        bounds = [values_of_field(self.deletes[n], PATH_FIELD_ID) for n in ("lower_bounds", "upper_bounds")]
        outside = _is_outside_bounds(self.data["file_path"].combine_chunks(), bounds, pairs)
        if outside.any():  # only a path that is outside in both forms is excluded
            outside &= _is_outside_bounds(
                self.canonical_data_paths, [canonical_path_all(decode_values(b, StringType())) for b in bounds], pairs
            )
        return filter_pairs(pairs, ~outside)

    def filter_by_column_ranges(self, runs: Runs) -> Pairs:
        """Return the pairs whose ranges overlap in every column that the equality delete file compares."""
        if not (self.data.has("lower_bounds") and self.deletes.has("lower_bounds")):
            return runs.pairs()
        overlapping: list[Pairs] = []
        for block in runs.blocks():
            pairs = block
            for comparing, data, deletes in self.compared_column_ranges:
                overlaps = data.take(pairs[0]).overlaps(deletes.take(pairs[1]))
                pairs = filter_pairs(pairs, overlaps | ~comparing[pairs[1]])
            overlapping.append(pairs)
        return concat_pairs(overlapping)

    @cached_property
    def compared_column_ranges(self) -> list[tuple[Mask, FieldRange, FieldRange]]:
        """For each compared column: which delete files compare it, its ranges in data files and in delete files."""
        ids = self.deletes["equality_ids"].combine_chunks()
        compared = ids.flatten().unique().to_pylist()
        # a column has the type of the newest schema that contains it; unknown columns exclude nothing
        schemas = [next((s for s in self.data.specs.schemas if i in s.field_ids), None) for i in compared]
        fields = [s.find_field(i) for i, s in zip(compared, schemas, strict=True) if s is not None]
        data, deletes = FileRanges(self.data), FileRanges(self.deletes)
        return [(_list_contains(ids, f.field_id), data.of(f), deletes.of(f)) for f in fields]

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
            paths = ", ".join(self._path(self.deletes, int(d)) for d in both)
            raise TableError(
                f"Data file {self._path(self.data, int(twice[0]))} has {len(both)} deletion vectors ({paths}): "
                "a file has one at most. Two writers must have committed without seeing each other."
            )

    def refuse_old_vectors(self, vectors: Pairs) -> None:
        old = np.flatnonzero(self.delete_sequence_numbers[vectors[1]] < self.data_sequence_numbers[vectors[0]])
        if len(old):
            file, delete = int(vectors[0][old[0]]), int(vectors[1][old[0]])
            raise TableError(
                f"Deletion vector {self._path(self.deletes, delete)} is older than its data file "
                f"{self._path(self.data, file)}: sequence number {self.delete_sequence_numbers[delete]} is less than "
                f"{self.data_sequence_numbers[file]}. Find out who wrote it."
            )

    def refuse_incomplete(self, is_incomplete: Mask, kind: str, problem: str) -> None:
        if is_incomplete.any():
            path = self._path(self.deletes, int(is_incomplete.argmax()))
            raise TableError(f"{kind} {path} {problem}; its entry is corrupt.")

    @staticmethod
    def _path(entries: EntryTable, row: int) -> str:
        return str(entries["file_path"][row].as_py())


def _is_outside_bounds(paths: pa.Array, bounds: list[pa.Array], pairs: Pairs) -> Mask:
    data_paths = paths.cast(pa.binary()).take(pa.array(pairs[0]))
    lower, upper = (bound.cast(pa.binary()).take(pa.array(pairs[1])) for bound in bounds)
    outside = pc.or_kleene(pc.less(data_paths, lower), pc.greater(data_paths, upper))
    return np.asarray(outside.fill_null(False).to_numpy(zero_copy_only=False), bool)


def _sequence_numbers(entries: EntryTable) -> Rows:
    return np.asarray(entries["sequence_number"].fill_null(NEWEST_SEQUENCE_NUMBER).to_numpy(), np.int64)


def _list_contains(lists: pa.Array, value: int) -> Mask:
    contains = np.zeros(len(lists), bool)
    offsets = lists.offsets.to_numpy()
    hits = np.flatnonzero(lists.values.to_numpy(zero_copy_only=False)[offsets[0] : offsets[-1]] == value) + offsets[0]
    contains[np.searchsorted(offsets, hits, side="right") - 1] = True
    return contains


def _pairs_as_table(pairs: Pairs) -> pa.Table:
    order = np.lexsort((pairs[1], pairs[0]))
    return pa.table({"file": pa.array(pairs[0][order], pa.int64()), "delete": pa.array(pairs[1][order], pa.int64())})
