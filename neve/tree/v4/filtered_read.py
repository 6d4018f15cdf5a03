"""Live data files of leaves, chosen while they are read: what a filter leaves out is never put together.

Partitions are read first, then the statistics a filter compares, then everything else, of the files that are left.
Several leaves are looked at together, because what costs is the number of steps rather than of files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from neve.errors import NeveError
from neve.io.parquet_by_field_id import IdTable
from neve.model.partition import Specs
from neve.tree.entries import DETAIL, LIVE, EntryTable, Manifest, Sieve, Status, statistic_column
from neve.tree.v4.checks import check_leaf, check_numbers, check_rows, refuse_column_files, resolved
from neve.tree.v4.fields import ContentType
from neve.tree.v4.leaf import MAPS, files_of, first_row_ids, leaf_of, of_known_specs, open_leaf, shown_rows
from neve.tree.v4.rows import concat, read_rows
from neve.tree.v4.statistics import LOWER, NANS, NULLS, UPPER, column_of, kept_columns, metric_type

TOGETHER = 64
"""How many leaves are looked at together at most: more of them cost memory and save nothing."""

_JUDGED = ("status", "content_type", "format_version", "spec_id", "record_count")
_OTHERS = (
    "snapshot_id",
    "sequence_number",
    "file_sequence_number",
    "first_row_id",
    "location",
    "file_format",
    "file_size_in_bytes",
    "sort_order_id",
)

Positions = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The rows of some leaves that were chosen, how many were live, and how many lay in partitions that may match."""

    rows: pa.Table
    live: int
    in_partitions: int


def can_sift(manifest: Manifest) -> bool:
    """Whether a manifest is a leaf of tracked files, seen from the side of its data files."""
    leaf = manifest.leaf
    if leaf is None or manifest.is_deletes:
        return False
    return leaf.is_tracked and leaf.rows is None and not leaf.shows_removed


def chosen_files(
    io: FileIO,
    numbered: Sequence[tuple[int, Manifest]],
    specs: Specs,
    sieve: Sieve,
    detail: Collection[str],
    columns: Collection[int] | None,
) -> Chosen:
    """The live data files of some leaves that a sieve keeps, with the details asked for, of all columns or of some."""
    leaves = _Leaves.opened(io, numbered, specs)
    places = leaves.live()
    live, judged = len(places), _at(leaves.head, places)
    keep = np.asarray(sieve.by_partition(EntryTable(judged, specs)), bool)
    places, in_partitions, known = places[keep], int(keep.sum()), None
    if sieve.columns and in_partitions:
        known = leaves.read(places, lambda leaf, rows: leaf.compared(rows, sieve.columns))
        judged = _beside(judged if keep.all() else judged.filter(pa.array(keep)), _named(known))
        keep = np.asarray(sieve.by_statistics(EntryTable(judged, specs)), bool)
        places, known = places[keep], known if keep.all() else known.filter(pa.array(keep))
    rows = leaves.whole_rows(places, detail)
    if len(places) and not MAPS.keys().isdisjoint(detail):
        if known is None or columns is None or not sieve.columns.issuperset(columns):
            known = leaves.read(places, lambda leaf, rows: leaf.statistics(rows, columns))
        rows = _beside(rows, {name: known[name] for name in known.schema.names if name != "row"})
    return Chosen(rows, live, in_partitions)


@dataclass(frozen=True)
class _Leaf:
    """One leaf, opened."""

    ordinal: int
    manifest: Manifest
    table: IdTable
    specs: Specs
    head: pa.Table

    @classmethod
    def opened(cls, io: FileIO, ordinal: int, manifest: Manifest, specs: Specs) -> _Leaf:
        table = open_leaf(io, manifest)
        refuse_column_files(table)
        return cls(ordinal, manifest, table, specs, read_rows(table, specs, _JUDGED))

    def compared(self, rows: Positions, columns: frozenset[int]) -> dict[str, Any]:
        """Statistics of some columns; counts are not read where the root tells that there is no null in any file."""
        source, row = self.manifest.statistics or (None, 0)
        filled = columns & source.filled(row) if source is not None else frozenset()
        found = self.statistics(rows, columns - filled) | self.statistics(rows, filled, (LOWER, UPPER))
        zeros, kept = pa.array(np.zeros(len(rows), np.int64)), kept_columns(self.specs.schemas[0])
        counts = ((i, m) for i in sorted(filled) for m in (NULLS, NANS) if metric_type(kept[i], m) is not None)
        return found | {column_of(i, m): zeros for i, m in counts}

    def statistics(
        self, rows: Positions, columns: Collection[int] | None, metrics: Collection[int] = tuple(MAPS.values())
    ) -> dict[str, Any]:
        """Statistics of some rows, of all columns or of some."""
        if columns is not None and not columns:
            return {}
        found = read_rows(
            self.table, self.specs, (), metrics=metrics, partitions=False, rows=self._only(rows), columns=columns
        )
        return dict(zip(found.schema.names, found.columns, strict=True))

    def others(self, rows: Positions, names: Sequence[str]) -> dict[str, Any]:
        """The columns that were not judged; row ids depend on all rows before."""
        found = read_rows(self.table, self.specs, names, partitions=False, rows=self._only(rows), dictionaries=True)
        columns = dict(zip(found.schema.names, found.columns, strict=True))
        if not pa.types.is_dictionary(columns["file_format"].type):
            columns["file_format"] = columns["file_format"].dictionary_encode()
        if columns["first_row_id"].null_count:
            stated = read_rows(self.table, self.specs, ("first_row_id",), partitions=False)["first_row_id"]
            assigned = first_row_ids(self.head, stated, self.manifest)
            columns["first_row_id"] = (stated if assigned is None else assigned).take(pa.array(rows))
        return columns

    def _only(self, rows: Positions) -> Positions | None:
        return None if len(rows) == self.table.rows else rows


@dataclass(frozen=True)
class _Leaves:
    """Several leaves, their rows numbered through."""

    leaves: tuple[_Leaf, ...]
    specs: Specs

    @classmethod
    def opened(cls, io: FileIO, numbered: Iterable[tuple[int, Manifest]], specs: Specs) -> _Leaves:
        return cls(tuple(_Leaf.opened(io, ordinal, m, specs) for ordinal, m in numbered), specs)

    @cached_property
    def starts(self) -> Positions:
        """The number of the first row of each leaf, and of the one behind the last."""
        return np.cumsum([0, *(leaf.table.rows for leaf in self.leaves)])

    @cached_property
    def head(self) -> pa.Table:
        """What is judged of all rows, once it is believed."""
        rows = concat(leaf.head for leaf in self.leaves)
        try:
            return _believed(rows, self.specs, "")
        except NeveError:  # once more, leaf by leaf: the error names the file
            for leaf in self.leaves:
                _believed(leaf.head, self.specs, leaf.manifest.file)
            raise

    def live(self) -> Positions:
        """The rows of live data files."""
        status, content = self.head["status"].to_numpy(), self.head["content_type"].to_numpy()
        is_shown = (status == LIVE[0]) | (status == LIVE[1]) | (status == LIVE[2])
        is_shown &= content == ContentType.DATA
        for leaf, start, end in zip(self.leaves, self.starts, self.starts[1:], strict=False):
            if leaf.manifest.hides_entries:
                is_shown[start:end] &= shown_rows(leaf_of(leaf.manifest), end - start, leaf.manifest.file)
        return np.flatnonzero(is_shown)

    def parts(self, places: Positions) -> Iterator[tuple[_Leaf, Positions]]:
        """The leaves that hold some rows, with the positions of those."""
        cuts = np.searchsorted(places, self.starts)
        for leaf, start, (first, end) in zip(self.leaves, self.starts, pairwise(cuts), strict=False):
            if end > first:
                yield leaf, places[first:end] - start

    def read(self, places: Positions, read: Callable[[_Leaf, Positions], dict[str, Any]]) -> pa.Table:
        """Columns of some rows, leaf by leaf, and their positions."""
        return concat(
            pa.table({"row": pa.array(own, pa.int32()), **read(leaf, own)}) for leaf, own in self.parts(places)
        )

    def whole_rows(self, places: Positions, detail: Collection[str]) -> pa.Table:
        """All of some rows, with what they inherit."""
        if not len(places):
            return self.head.slice(0, 0)
        names = (*_OTHERS, *(name for name in ("key_metadata", "split_offsets") if name in detail))
        others = self.read(places, lambda leaf, rows: leaf.others(rows, names))
        rows = _beside(_at(self.head, places), dict(zip(others.schema.names, others.columns, strict=True)))
        of_leaf = np.searchsorted(self.starts, places, side="right") - 1
        ordinals = np.array([leaf.ordinal for leaf in self.leaves], np.int32)[of_leaf]
        rows = self._inherited(rows.append_column("manifest", pa.array(ordinals)), of_leaf)
        self._check_chosen(rows, of_leaf)
        return rows

    def _inherited(self, rows: pa.Table, of_leaf: Positions) -> pa.Table:
        """The rows with what the rows of their leaves give them."""
        is_new = pa.array(rows["status"].to_numpy() == Status.ADDED)
        numbers, ids = (
            pa.array(np.array([getattr(leaf.manifest, name) for leaf in self.leaves])[of_leaf])
            for name in ("sequence_number", "added_snapshot_id")
        )
        for name in ("sequence_number", "file_sequence_number"):
            if (own := rows[name]).null_count:
                rows = _set(rows, name, pc.if_else(pc.and_(own.is_null(), is_new), numbers, own))
        return (
            _set(rows, "snapshot_id", pc.coalesce(rows["snapshot_id"], ids)) if rows["snapshot_id"].null_count else rows
        )

    def _check_chosen(self, rows: pa.Table, of_leaf: Positions) -> None:
        try:
            check_rows(rows, "")
            check_numbers(rows, "")
        except NeveError:
            for at in np.unique(of_leaf):
                own, path = rows.filter(pa.array(of_leaf == at)), self.leaves[at].manifest.file
                check_rows(own, path)
                check_numbers(own, path)
            raise


def _believed(head: pa.Table, specs: Specs, path: str) -> pa.Table:
    check_leaf(head, path, as_is=True)
    return of_known_specs(head, specs, path)


def _named(known: pa.Table) -> dict[str, Any]:
    """Statistics under the names by which a filter asks for them."""
    names = {metric: name for name, metric in MAPS.items()}
    pairs = ((own[1:].split("."), known[own]) for own in known.schema.names if own != "row")
    return {statistic_column(names[int(metric)], int(field_id)): values for (field_id, metric), values in pairs}


def _beside(rows: pa.Table, others: Mapping[str, Any]) -> pa.Table:
    for name, values in others.items():
        rows = rows.append_column(name, values)
    return rows


def _set(rows: pa.Table, name: str, values: Any) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), values)


def _at(rows: pa.Table, places: Positions) -> pa.Table:
    return rows if len(places) == rows.num_rows else rows.take(pa.array(places))


def entries_of(
    chosen: Sequence[Chosen], manifests: Sequence[Manifest], specs: Specs, detail: Collection[str]
) -> EntryTable:
    """The files chosen in some leaves as entries."""
    found = _in_order([c.rows for c in chosen if c.rows.num_rows])
    names = [name for name in DETAIL.names if name in set(detail)]
    if not found:
        return EntryTable.empty(specs, names)
    rows = pa.concat_tables(found, promote_options="permissive").unify_dictionaries().combine_chunks()
    location = next(leaf_of(m).location for m in manifests if can_sift(m))
    try:
        paths = resolved(location, rows["location"], "")
    except NeveError:
        for at in pc.unique(rows["manifest"]).to_pylist():
            resolved(location, rows.filter(pc.equal(rows["manifest"], at))["location"], manifests[at].file)
        raise
    return files_of(rows, paths, specs, names)


def _in_order(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """The rows leaf by leaf, in the order of the leaves; those of one leaf lie together."""
    parts: list[tuple[int, pa.Table]] = []
    for table in tables:
        ordinals = table["manifest"].to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(ordinals)) + 1).tolist(), len(ordinals)]
        parts += [(int(ordinals[first]), table.slice(first, end - first)) for first, end in pairwise(starts)]
    return [part for _, part in sorted(parts, key=lambda found: found[0])]
