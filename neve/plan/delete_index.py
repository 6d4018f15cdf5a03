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
from neve.io.paths import canonical_path_all
from neve.model.partition import Specs
from neve.model.values import decode_values
from neve.plan.metrics_filter import FileRanges, values_of_field
from neve.plan.ranges import FieldRange, Mask
from neve.tree.entries import Content, EntryTable

Rows = np.ndarray[Any, np.dtype[np.int64]]
Pairs = tuple[Rows, Rows]  # rows of data files, rows of delete files
Side = Literal["left", "right"]  # numbers below the limit, or up to it

NO_PAIRS: Pairs = (np.empty(0, np.int64), np.empty(0, np.int64))
PAIRS_PER_BLOCK = 1 << 22


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
    """The data files with the code of each delete file and a number within its limit; a code below zero has none."""
    order = np.lexsort((data_sequence_numbers, data_codes))
    ranks, numbers = _dense(data_sequence_numbers[order], max_sequence_numbers)
    width = int(max(ranks.max(initial=0), numbers.max(initial=0))) + 2
    keys = data_codes[order] * width + ranks
    first = np.searchsorted(keys, delete_codes * width)
    last = np.searchsorted(keys, delete_codes * width + numbers, side=side)
    return Runs(order, first, np.where(delete_codes < 0, 0, np.maximum(last - first, 0)), delete_rows)


def index_in(values: pa.Array, value_set: pa.Array) -> Rows:
    """The place of each value in a list, -1 where it is not there."""
    return np.asarray(pc.index_in(values, value_set=value_set).fill_null(-1).to_numpy(zero_copy_only=False), np.int64)


def filter_pairs(pairs: Pairs, mask: np.ndarray[Any, Any]) -> Pairs:
    """The pairs a mask selects."""
    return pairs[0][mask], pairs[1][mask]


def concat_pairs(pairs: Sequence[Pairs]) -> Pairs:
    """Several pairs of columns as one."""
    return (np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])) if pairs else NO_PAIRS


def _dense(one: Rows, other: Rows) -> tuple[Rows, Rows]:
    ranked = np.unique(np.concatenate([one, other]), return_inverse=True)[1]
    return ranked[: len(one)], ranked[len(one) :]


PATH_FIELD_ID = 2147483546
NEWEST_SEQUENCE_NUMBER = np.iinfo(np.int64).max  # a file that is not committed yet is newer than all that are


def match_deletes(data: EntryTable, deletes: EntryTable) -> pa.Table:
    """The pairs of data file and delete file that belong together, as row numbers, sorted by data file."""
    if not len(data) or not len(deletes):
        return _pairs_as_table(NO_PAIRS)
    return _DeleteMatcher(data, deletes).pairs_table()


def referenced_paths(deletes: EntryTable) -> pa.Array:
    """The one data file each delete file is about, null when it is about more."""
    named = deletes["referenced_data_file"].combine_chunks()
    if not deletes.has("lower_bounds", "upper_bounds"):
        return named
    lower, upper = (values_of_field(deletes[name], PATH_FIELD_ID) for name in ("lower_bounds", "upper_bounds"))
    single = decode_values(pc.if_else(pc.equal(lower, upper), lower, pa.scalar(None, pa.binary())), StringType())
    of_positions = pc.equal(deletes["content"].combine_chunks(), int(Content.POSITION_DELETES))
    return pc.coalesce(named, pc.if_else(of_positions, single, pa.scalar(None, pa.string())))


@dataclass(frozen=True)
class _DeleteMatcher:
    """Data files and delete files with what is needed to bring them together."""

    data: EntryTable
    deletes: EntryTable

    def pairs_table(self) -> pa.Table:
        self.refuse_vectors_without_file()
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
        alone = self.is_position & ~self.is_vector & self.names_one_data_file
        named = self.pairs_by_path(alone)
        self.refuse_other_partitions(named)
        yield filter_pairs(named, self.delete_sequence_numbers[named[1]] >= self.data_sequence_numbers[named[0]])
        yield self.filter_by_path_bounds(
            self.runs_by_partition(self.is_position & ~self.names_one_data_file, "right").pairs()
        )

    def equality_delete_pairs(self) -> Iterator[Pairs]:
        equality = self.deletes.numpy("content") == Content.EQUALITY_DELETES
        self.refuse_without_columns(equality)
        everywhere = equality & np.isin(self.deletes.numpy("spec_id"), self.unpartitioned_spec_ids)
        yield self.filter_by_column_ranges(self.runs_over_all_data_files(everywhere))
        yield self.filter_by_column_ranges(self.runs_by_partition(equality & ~everywhere, "left"))

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
    def referenced_data_files(self) -> pa.Array:
        return referenced_paths(self.deletes)

    @cached_property
    def canonical_data_paths(self) -> pa.Array:
        """The data files, spelled in one way: who wrote a delete file may have spelled them in another."""
        return canonical_path_all(self.data["file_path"])

    @cached_property
    def names_one_data_file(self) -> Mask:
        return self.referenced_data_files.is_valid().to_numpy(zero_copy_only=False)

    @cached_property
    def unpartitioned_spec_ids(self) -> list[int]:
        return [s for s in self.deletes.spec_ids() if self.specs.is_unpartitioned(s)]

    @cached_property
    def data_sequence_numbers(self) -> Rows:
        return _sequence_numbers(self.data)

    @cached_property
    def delete_sequence_numbers(self) -> Rows:
        return _sequence_numbers(self.deletes)

    @cached_property
    def partitions(self) -> tuple[Rows, Rows]:
        """A number per data file and per delete file, equal for files of one spec and tuple."""
        names = ["spec_id", *(u.column for u in self.specs.union)]
        both = pa.concat_tables([t.columns.select(names) for t in (self.data, self.deletes)], promote_options="default")
        codes, _ = EntryTable(both, self.specs).partition_codes()
        return codes[: len(self.data)], codes[len(self.data) :]

    # -- bringing together ------------------------------------------------------------------------------------------

    def pairs_by_path(self, chosen: Mask) -> Pairs:
        """The chosen delete files with the data file each names."""
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return NO_PAIRS
        paths = canonical_path_all(self.referenced_data_files.take(pa.array(rows)))
        known = paths.drop_null().unique()
        data = index_in(self.canonical_data_paths, known)
        newest = np.full(len(rows), NEWEST_SEQUENCE_NUMBER)
        return find_runs(data, self.data_sequence_numbers, index_in(paths, known), newest, rows, "right").pairs()

    def runs_by_partition(self, chosen: Mask, side: Side) -> Runs:
        """The chosen delete files with the data files of their partition that are old enough."""
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return NO_RUNS
        data, deletes = self.partitions
        return find_runs(
            data, self.data_sequence_numbers, deletes[rows], self.delete_sequence_numbers[rows], rows, side
        )

    def runs_over_all_data_files(self, chosen: Mask) -> Runs:
        """The chosen delete files with every data file that is old enough."""
        rows = np.flatnonzero(chosen)
        same, code = np.zeros(len(self.data), np.int64), np.zeros(len(rows), np.int64)
        return find_runs(same, self.data_sequence_numbers, code, self.delete_sequence_numbers[rows], rows, "left")

    def filter_by_path_bounds(self, pairs: Pairs) -> Pairs:
        """Without the pairs whose data file lies outside the paths the delete file is about."""
        if not len(pairs[0]) or not self.deletes.has("lower_bounds", "upper_bounds"):
            return pairs
        bounds = [values_of_field(self.deletes[n], PATH_FIELD_ID) for n in ("lower_bounds", "upper_bounds")]
        outside = _is_outside_bounds(self.data["file_path"].combine_chunks(), bounds, pairs)
        if outside.any():
            outside &= _is_outside_bounds(
                self.canonical_data_paths, [canonical_path_all(decode_values(b, StringType())) for b in bounds], pairs
            )
        return filter_pairs(pairs, ~outside)

    def filter_by_column_ranges(self, runs: Runs) -> Pairs:
        """The pairs of equality delete file and data file that have something in common in every column compared."""
        if not (self.data.has("lower_bounds") and self.deletes.has("lower_bounds")):
            return runs.pairs()
        return concat_pairs([self._filter_block_by_column_ranges(pairs) for pairs in runs.blocks()])

    def _filter_block_by_column_ranges(self, pairs: Pairs) -> Pairs:
        for comparing, data, deletes in self.compared_column_ranges:
            meet = data.take(pairs[0]).overlaps(deletes.take(pairs[1]))
            pairs = filter_pairs(pairs, meet | ~comparing[pairs[1]])
        return pairs

    @cached_property
    def compared_column_ranges(self) -> list[tuple[Mask, FieldRange, FieldRange]]:
        """Per column of some equality delete: which delete files compare it, its ranges in data and in delete files."""
        ids = self.deletes["equality_ids"].combine_chunks()
        fields = [f for i in ids.flatten().unique().to_pylist() if (f := self._column(i)) is not None]
        data, deletes = FileRanges(self.data), FileRanges(self.deletes)
        return [(_list_contains(ids, f.field_id), data.of(f), deletes.of(f)) for f in fields]

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
        old = np.flatnonzero(self.delete_sequence_numbers[vectors[1]] < self.data_sequence_numbers[vectors[0]])
        if len(old):
            file, delete = int(vectors[0][old[0]]), int(vectors[1][old[0]])
            raise TableError(
                f"Deletion vector {self._path(self.deletes, delete)} is older than its data file "
                f"{self._path(self.data, file)}: sequence number {self.delete_sequence_numbers[delete]} is less than "
                f"{self.data_sequence_numbers[file]}. Find out who wrote it."
            )

    def refuse_vectors_without_file(self) -> None:
        if (bare := np.flatnonzero(self.is_vector & ~self.names_one_data_file)).size:
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


def _is_outside_bounds(paths: pa.Array, bounds: list[pa.Array], pairs: Pairs) -> Mask:
    """Where the path of a data file is not within the bounds of a delete file."""
    at, found = pa.array(pairs[1]), paths.cast(pa.binary()).take(pa.array(pairs[0]))
    lower, upper = (bound.cast(pa.binary()).take(at) for bound in bounds)
    outside = pc.or_kleene(pc.less(found, lower), pc.greater(found, upper))
    return np.asarray(outside.fill_null(False).to_numpy(zero_copy_only=False), bool)


def _sequence_numbers(entries: EntryTable) -> Rows:
    return np.asarray(entries["sequence_number"].fill_null(NEWEST_SEQUENCE_NUMBER).to_numpy(), np.int64)


def _list_contains(lists: pa.Array, value: int) -> Mask:
    found = np.zeros(len(lists), bool)
    offsets = lists.offsets.to_numpy()
    hits = np.flatnonzero(lists.values.to_numpy(zero_copy_only=False)[offsets[0] : offsets[-1]] == value) + offsets[0]
    found[np.searchsorted(offsets, hits, side="right") - 1] = True
    return found


def _pairs_as_table(pairs: Pairs) -> pa.Table:
    order = np.lexsort((pairs[1], pairs[0]))
    return pa.table({"file": pa.array(pairs[0][order], pa.int64()), "delete": pa.array(pairs[1][order], pa.int64())})
