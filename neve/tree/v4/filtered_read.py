"""Filter the live data files of leaves while reading them, so that no entries are built for other files.

Partitions are read first, then the statistics that the filter needs, then everything else, each only for the files that
are left. Several leaves are filtered together, because the cost depends on the number of steps, not of files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
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
from neve.tree.entries import LIVE_STATUSES, Content, EntryFilter, EntryTable, Manifest, statistic_column
from neve.tree.v4 import statistics as stats
from neve.tree.v4.checks import check_leaf, check_rows, check_sequence_numbers, resolve_manifest_paths
from neve.tree.v4.leaf import entries_from_file_rows, fill_spec_ids, first_row_ids, leaf_of, open_leaf, visible_row_mask
from neve.tree.v4.rows import concat_rows, fill_inherited, read_rows

MAX_LEAVES_AT_ONCE = 64
"""The most leaves that are filtered together: more of them cost memory and save nothing."""

_FILTER_COLUMNS = ("status", "content_type", "format_version", "spec_id", "record_count")
_INHERITABLE = ("snapshot_id", "sequence_number", "file_sequence_number", "first_row_id")
_REMAINING_COLUMNS = (*_INHERITABLE, "location", "file_format", "file_size_in_bytes", "sort_order_id")

Positions = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class MatchingRows:
    """The matching rows of some leaves, with the number of live rows and of those in partitions that may match."""

    rows: pa.Table
    live_count: int
    in_partitions: int


def is_data_leaf(manifest: Manifest) -> bool:
    """Check whether a manifest is a leaf of tracked files that shows its data files."""
    shows_files = not manifest.is_deletes and not leaf_of(manifest).shows_removed
    return manifest.is_tracked and not manifest.is_inline and shows_files


def read_matching_rows(
    io: FileIO,
    numbered: Sequence[tuple[int, Manifest]],
    specs: Specs,
    entry_filter: EntryFilter,
    detail: Collection[str],
    columns: Collection[int] | None,
) -> MatchingRows:
    """Return the live data files of some leaves that match a filter, with details; `columns` as in `read_entries`."""
    leaves = _LeafBatch(tuple(_OpenLeaf.of(io, ordinal, m, specs) for ordinal, m in numbered), specs)
    positions = leaves.live_positions()
    live_count, filter_rows = len(positions), _take_rows(leaves.filter_columns, positions)
    mask = np.asarray(entry_filter.by_partition(EntryTable(filter_rows, specs)), bool)
    positions, in_partitions, metrics = positions[mask], int(mask.sum()), None
    if entry_filter.columns and in_partitions:
        metrics = leaves.read_columns(positions, lambda leaf, rows: leaf.filter_statistics(rows, entry_filter.columns))
        filter_rows = filter_rows if mask.all() else filter_rows.filter(pa.array(mask))
        filter_rows = _append_columns(filter_rows, _with_statistic_names(metrics))
        mask = np.asarray(entry_filter.by_statistics(EntryTable(filter_rows, specs)), bool)
        positions, metrics = positions[mask], metrics if mask.all() else metrics.filter(pa.array(mask))
    rows = leaves.complete_rows(positions, detail)
    if len(positions) and not stats.METRIC_BY_DETAIL.keys().isdisjoint(detail):
        if metrics is None or columns is None or not entry_filter.columns.issuperset(columns):
            metrics = leaves.read_columns(positions, lambda leaf, rows: leaf.statistics(rows, columns))
        rows = _append_columns(rows, metrics.drop_columns("row"))
    return MatchingRows(rows, live_count, in_partitions)


@dataclass(frozen=True)
class _OpenLeaf:
    ordinal: int
    manifest: Manifest
    table: IdTable
    specs: Specs
    filter_columns: pa.Table

    @classmethod
    def of(cls, io: FileIO, ordinal: int, manifest: Manifest, specs: Specs) -> _OpenLeaf:
        table = open_leaf(io, manifest)
        return cls(ordinal, manifest, table, specs, read_rows(table, specs, _FILTER_COLUMNS))

    def filter_statistics(self, rows: Positions, columns: frozenset[int]) -> dict[str, Any]:
        """Read statistics of some columns; counts are 0 and not read where the root shows that no file has a null."""
        source, row = self.manifest.statistics or (None, 0)
        no_nulls = columns & source.columns_without_nulls(row) if source is not None else frozenset()
        metrics = self.statistics(rows, columns - no_nulls)
        metrics |= self.statistics(rows, no_nulls, (stats.LOWER, stats.UPPER))
        zeros, fields = pa.array(np.zeros(len(rows), np.int64)), stats.columns_with_statistics(self.specs.schemas[0])
        for field_id in sorted(no_nulls):
            for metric in (stats.NULLS, stats.NANS):
                if stats.metric_type(fields[field_id], metric) is not None:
                    metrics[stats.metric_column(field_id, metric)] = zeros
        return metrics

    def statistics(
        self,
        rows: Positions,
        columns: Collection[int] | None,
        metrics: Collection[int] = tuple(stats.METRIC_BY_DETAIL.values()),
    ) -> dict[str, Any]:
        """Read statistics of some rows, of the given columns or of all."""
        if columns is not None and not columns:
            return {}
        selected = self._rows_or_all(rows)
        table = read_rows(self.table, self.specs, (), metrics=metrics, partitions=False, rows=selected, columns=columns)
        return dict(zip(table.schema.names, table.columns, strict=True))

    def remaining_columns(self, rows: Positions, names: Sequence[str]) -> dict[str, Any]:
        """Read the columns that the filter does not use; row ids depend on all rows before."""
        selected = self._rows_or_all(rows)
        table = read_rows(self.table, self.specs, names, partitions=False, rows=selected, keep_dictionaries=True)
        columns = dict(zip(table.schema.names, table.columns, strict=True))
        if not pa.types.is_dictionary(columns["file_format"].type):
            columns["file_format"] = columns["file_format"].dictionary_encode()
        if columns["first_row_id"].null_count:
            stated = read_rows(self.table, self.specs, ("first_row_id",), partitions=False)["first_row_id"]
            assigned = first_row_ids(self.filter_columns, stated, self.manifest)
            columns["first_row_id"] = (stated if assigned is None else assigned).take(pa.array(rows))
        return columns

    def _rows_or_all(self, rows: Positions) -> Positions | None:
        return None if len(rows) == self.table.rows else rows


@dataclass(frozen=True)
class _LeafBatch:
    """Several leaves, with their rows numbered consecutively."""

    leaves: tuple[_OpenLeaf, ...]
    specs: Specs

    @cached_property
    def starts(self) -> Positions:
        """The number of the first row of each leaf, and the number of all rows."""
        return np.cumsum([0, *(leaf.table.rows for leaf in self.leaves)])

    @cached_property
    def filter_columns(self) -> pa.Table:
        """The checked columns of all rows that the filter needs."""
        rows = concat_rows(leaf.filter_columns for leaf in self.leaves)
        try:
            return _check_filter_columns(rows, self.specs, "")
        except NeveError:  # check again leaf by leaf, so that the error names the file
            for leaf in self.leaves:
                _check_filter_columns(leaf.filter_columns, self.specs, leaf.manifest.file)
            raise

    def live_positions(self) -> Positions:
        """Return the rows of live data files."""
        status, content = self.filter_columns["status"].to_numpy(), self.filter_columns["content_type"].to_numpy()
        is_live = (status == LIVE_STATUSES[0]) | (status == LIVE_STATUSES[1]) | (status == LIVE_STATUSES[2])
        is_live &= content == Content.DATA
        for leaf, start, end in zip(self.leaves, self.starts, self.starts[1:], strict=False):
            if leaf.manifest.hides_entries:
                is_live[start:end] &= visible_row_mask(leaf_of(leaf.manifest), end - start, leaf.manifest.file)
        return np.flatnonzero(is_live)

    def split_by_leaf(self, positions: Positions) -> Iterator[tuple[_OpenLeaf, Positions]]:
        """Return the leaves of some rows, with the positions of the rows in each."""
        cuts = np.searchsorted(positions, self.starts)
        for leaf, start, (first, end) in zip(self.leaves, self.starts, pairwise(cuts), strict=False):
            if end > first:
                yield leaf, positions[first:end] - start

    def read_columns(self, positions: Positions, read: Callable[[_OpenLeaf, Positions], dict[str, Any]]) -> pa.Table:
        """Read columns of some rows leaf by leaf, and add their positions."""
        return concat_rows(
            pa.table({"row": pa.array(own, pa.int32()), **read(leaf, own)})
            for leaf, own in self.split_by_leaf(positions)
        )

    def complete_rows(self, positions: Positions, detail: Collection[str]) -> pa.Table:
        """Return all columns of some rows, with inherited values filled in."""
        if not len(positions):
            return self.filter_columns.slice(0, 0)
        names = (*_REMAINING_COLUMNS, *(name for name in ("key_metadata", "split_offsets") if name in detail))
        remaining = self.read_columns(positions, lambda leaf, rows: leaf.remaining_columns(rows, names))
        rows = _append_columns(_take_rows(self.filter_columns, positions), remaining)
        of_leaf = np.searchsorted(self.starts, positions, side="right") - 1
        ordinals = np.array([leaf.ordinal for leaf in self.leaves], np.int32)[of_leaf]
        numbers, ids = (
            pa.array(np.array([getattr(leaf.manifest, name) for leaf in self.leaves])[of_leaf])
            for name in ("sequence_number", "added_snapshot_id")
        )
        rows = fill_inherited(rows.append_column("manifest", pa.array(ordinals)), numbers, ids)
        try:
            check_rows(rows, "")
            check_sequence_numbers(rows, "")
        except NeveError:  # check again leaf by leaf, so that the error names the file
            for at in np.unique(of_leaf):
                own, path = rows.filter(pa.array(of_leaf == at)), self.leaves[at].manifest.file
                check_rows(own, path)
                check_sequence_numbers(own, path)
            raise
        return rows


def _check_filter_columns(filter_columns: pa.Table, specs: Specs, path: str) -> pa.Table:
    check_leaf(filter_columns, path, as_is=True)
    return fill_spec_ids(filter_columns, specs, path)


def _with_statistic_names(metrics: pa.Table) -> pa.Table:
    """Return metrics under the names that a filter uses."""
    names, metrics = {metric: name for name, metric in stats.METRIC_BY_DETAIL.items()}, metrics.drop_columns("row")
    pairs = (map(int, own[1:].split(".")) for own in metrics.schema.names)
    return metrics.rename_columns([statistic_column(names[metric], field_id) for field_id, metric in pairs])


def _append_columns(rows: pa.Table, columns: pa.Table) -> pa.Table:
    for name in columns.schema.names:
        rows = rows.append_column(name, columns[name])
    return rows


def _take_rows(rows: pa.Table, positions: Positions) -> pa.Table:
    return rows if len(positions) == rows.num_rows else rows.take(pa.array(positions))


def entries_from_leaves(
    matching: Sequence[MatchingRows], manifests: Sequence[Manifest], specs: Specs, detail: Collection[str]
) -> EntryTable:
    """Return the matching rows of some leaves as entries."""
    parts: list[tuple[int, pa.Table]] = []
    for table in (m.rows for m in matching if m.rows.num_rows):
        # The rows of one leaf are together already; the leaves are put in order.
        ordinals = table["manifest"].to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(ordinals)) + 1).tolist(), len(ordinals)]
        parts += [(int(ordinals[first]), table.slice(first, end - first)) for first, end in pairwise(starts)]
    tables = [part for _, part in sorted(parts, key=lambda numbered: numbered[0])]
    if not tables:
        return EntryTable.empty(specs, detail)
    rows = pa.concat_tables(tables, promote_options="permissive").unify_dictionaries().combine_chunks()
    location = next(leaf_of(m).location for m in manifests if is_data_leaf(m))
    try:
        paths = resolve_manifest_paths(location, rows["location"], "")
    except NeveError:  # resolve again leaf by leaf, so that the error names the file
        for at in pc.unique(rows["manifest"]).to_pylist():
            own = rows.filter(pc.equal(rows["manifest"], at))
            resolve_manifest_paths(location, own["location"], manifests[at].file)
        raise
    return entries_from_file_rows(rows, paths, specs, detail)
