"""Read the root of a version 4 tree: rows of leaves, of any version, and rows of files in the root itself.

A leaf of tracked files becomes a manifest of data files and, if some of them have vectors, a second one of deletes. The
same goes for the files in the root itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import repeat
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.table.snapshots import Snapshot

from neve.errors import CorruptFile, TableError
from neve.io.files import read_file
from neve.io.mumbling import decode_positions
from neve.io.parquet_by_field_id import IdTable, open_id_table
from neve.io.paths import resolve_path
from neve.model.partition import Specs
from neve.model.values import encode_values
from neve.tree.entries import (
    LIVE_STATUSES,
    MANIFEST_COUNTS,
    MANIFESTS,
    MIXED_SPECS,
    Content,
    EntryTable,
    FieldSummary,
    Leaf,
    LeafStatistics,
    Manifest,
    count_by_status,
)
from neve.tree.partition_types import partition_types_in
from neve.tree.v4 import statistics
from neve.tree.v4.checks import check_root, refuse_column_files, resolve_manifest_paths
from neve.tree.v4.fields import FIXED_FIELDS, is_tracked_schema
from neve.tree.v4.leaf import fill_spec_ids
from neve.tree.v4.rows import range_column, read_rows

_METRICS = tuple(statistics.METRIC_BY_DETAIL.values())
_NAMES = tuple(f.column for f in FIXED_FIELDS)
_FIRST_DRAFT_VERSION = 1  # the number of version 4 in the first drafts of the format
_UNKNOWN_COUNTS: dict[str, Any] = dict.fromkeys(MANIFEST_COUNTS)


@dataclass(frozen=True)
class RootRows:
    """The rows of a root; statistics are read on first use."""

    table: IdTable
    specs: Specs

    @cached_property
    def rows_without_statistics(self) -> pa.Table:
        """All rows, without statistics."""
        return read_rows(self.table, self.specs, _NAMES, ranges=True)

    @cached_property
    def rows_with_statistics(self) -> pa.Table:
        """All rows, with statistics."""
        return read_rows(self.table, self.specs, _NAMES, ranges=True, metrics=tuple(statistics.METRICS))

    @cached_property
    def statistics(self) -> LeafStatistics:
        """The column statistics of the leaves."""

        def columns_without_nulls(row: int) -> frozenset[int]:
            return frozenset(field_id for field_id, rows in self._rows_without_nulls.items() if rows[row])

        return LeafStatistics(lambda: self._statistics_table, columns_without_nulls)

    @cached_property
    def _metrics(self) -> pa.Table:
        return read_rows(self.table, self.specs, (), metrics=_METRICS, partitions=False)

    @cached_property
    def _rows_without_nulls(self) -> dict[int, np.ndarray[Any, Any]]:
        """By column, a mask of the rows whose files have neither nulls nor NaNs in it."""
        masks: dict[int, np.ndarray[Any, Any]] = {}
        for field_id, field in statistics.columns_with_statistics(self.specs.schemas[0]).items():
            counts = [m for m in (statistics.NULLS, statistics.NANS) if statistics.metric_type(field, m)]
            names = [statistics.metric_column(field_id, m) for m in counts]
            if all(name in self._metrics.schema.names for name in names):
                zeros = (pc.fill_null(pc.equal(self._metrics[name], 0), False).to_numpy() for name in names)
                masks[field_id] = np.logical_and.reduce(list(zeros))
        return masks

    @cached_property
    def _statistics_table(self) -> EntryTable:
        stats, rows = self._metrics, self.rows_without_statistics
        metrics = {name: stats[name] for name in stats.schema.names}
        names = tuple(statistics.METRIC_BY_DETAIL)
        maps = statistics.as_maps(metrics, self.specs.schemas[0], rows.num_rows, names)
        counts = [pc.fill_null(rows[f"{s}_rows"], 0) for s in ("added", "existing", "deleted", "replaced")]
        columns = {**maps, "record_count": reduce(pc.add, counts)}
        return EntryTable.from_columns(columns, self.specs, rows.num_rows, names)


def read_root(io: FileIO, metadata: Any, snapshot: Snapshot) -> tuple[Manifest, ...]:
    """Return the manifests of a snapshot with a version 4 root."""
    location = metadata.location
    path = resolve_path(location, str(getattr(snapshot, "root_manifest", "")))
    table = open_id_table(read_file(io, path), path)
    if not is_tracked_schema(set(table.child_ids(()))):
        raise CorruptFile(path, "a root of tracked-file rows", f"the columns {table.layout.schema.names}")
    refuse_column_files(table)
    specs = Specs.of(metadata)
    if specs.untyped_fields:
        specs = specs.with_learned_types(partition_types_in(table, specs))
    rows = RootRows(table, specs)
    check_root(rows.rows_without_statistics, path)
    numbers = {row["snapshot-id"]: row.get("sequence-number") or 0 for row in metadata.lazy_snapshots.rows}
    shared = Leaf("", location=location, numbers=numbers)
    manifests = list(_leaf_manifests(rows, path, shared, snapshot))
    # The other rows are of files in the root itself, tombstones of this snapshot included.
    is_file = ~np.isin(rows.rows_without_statistics["content_type"].to_numpy(), MANIFESTS)
    if is_file.any():
        files = fill_spec_ids(rows.rows_with_statistics.filter(pa.array(is_file)), specs, path)
        manifests += inline_manifests(files, path, shared, snapshot.snapshot_id, snapshot.sequence_number or 0)
    return tuple(manifests)


def inline_manifests(
    rows: pa.Table, path: str, shared: Leaf, snapshot_id: int, sequence_number: int
) -> Iterator[Manifest]:
    """Return rows of files in a root as manifests: one of data files, and one of deletes if there are any."""
    spec_ids = pc.unique(rows["spec_id"]).to_pylist()
    live = pa.array(np.isin(rows["status"].to_numpy(), LIVE_STATUSES))
    oldest = pc.min(rows["sequence_number"].filter(live)).as_py()
    common: dict[str, Any] = {
        "length": 0,
        "spec_id": spec_ids[0] if len(spec_ids) == 1 else MIXED_SPECS,
        "sequence_number": sequence_number,
        "min_sequence_number": sequence_number if oldest is None else oldest,
        "added_snapshot_id": snapshot_id,
    }
    vectors = rows.num_rows - rows["vector_location"].null_count
    leaf = replace(shared, file=path, rows=rows, vectors=vectors)
    yield Manifest(f"{path}#files", is_deletes=False, **count_by_status(rows), leaf=leaf, **common)
    has_equality_deletes = (rows["content_type"].to_numpy() == Content.EQUALITY_DELETES).any()
    if vectors or has_equality_deletes:
        view = replace(leaf, is_view=True)
        yield Manifest(f"{path}#deletes", is_deletes=True, **_UNKNOWN_COUNTS, leaf=view, **common)


def _leaf_manifests(rows: RootRows, path: str, shared: Leaf, snapshot: Snapshot) -> Iterator[Manifest]:
    all_rows = rows.rows_without_statistics
    content, status = all_rows["content_type"].to_numpy(), all_rows["status"].to_numpy()
    row_numbers = np.flatnonzero(np.isin(content, MANIFESTS) & np.isin(status, LIVE_STATUSES))
    if not len(row_numbers):
        return
    own = all_rows.take(pa.array(row_numbers))
    lacking = own["spec_id"].is_null().to_numpy() & (own["format_version"].to_numpy() < _FIRST_DRAFT_VERSION)
    if lacking.any():
        at = int(np.flatnonzero(lacking)[0])
        found = f"none in row {row_numbers[at]} ({own['location'][at].as_py()})"
        raise CorruptFile(path, "the spec of a leaf of an older version", found)
    files = resolve_manifest_paths(shared.location, own["location"], path).to_pylist()
    leaves = _leaves(own, zip(row_numbers.tolist(), files, strict=True), rows, shared, path)
    partitions = _partition_summaries(own, rows.specs, path)
    sources = zip(repeat(rows.statistics), row_numbers.tolist(), strict=False)
    columns = (own[name].to_pylist() for name in _MANIFEST_COLUMNS)
    facts_of_manifests = zip(leaves, *columns, partitions, sources, strict=False)
    for manifest in (_make_manifest(*facts) for facts in facts_of_manifests):
        yield manifest
        leaf = manifest.leaf
        if leaf is not None and leaf.is_tracked and not manifest.is_deletes:
            yield from _extra_views(manifest, leaf, snapshot)


_LEAF_COLUMNS = ("format_version", "hidden", "deleted_positions", "replaced_positions", "dv_snapshot_id", "vectors")


def _leaves(own: pa.Table, files: Iterable[tuple[int, str]], rows: RootRows, shared: Leaf, path: str) -> Iterator[Leaf]:
    for (at, file), *facts in zip(files, *(own[name].to_pylist() for name in _LEAF_COLUMNS), strict=True):
        version, hidden, deleted, replaced, hidden_by, vectors = facts
        yield Leaf(
            file,
            is_tracked=version >= _FIRST_DRAFT_VERSION,
            location=shared.location,
            numbers=shared.numbers,
            hidden_bitmap=hidden,
            hidden_count=0 if hidden is None else len(decode_positions(hidden, path)),
            removed_bitmaps=(deleted, replaced),
            hidden_by=hidden_by,
            vectors=vectors,
            root_row=(rows, at),
        )


_MANIFEST_COLUMNS = (
    *("file_size_in_bytes", "spec_id", "content_type", "sequence_number", "min_sequence_number", "snapshot_id"),
    *MANIFEST_COUNTS,
    *("key_metadata", "first_row_id", "replaced_files", "replaced_rows"),
)


def _make_manifest(leaf: Leaf, length: int, spec_id: int | None, content: int, *facts: Any) -> Manifest:
    *counts, key, first_row_id, replaced_files, replaced_rows, partitions, statistics = facts
    path = leaf.file
    if leaf.hidden_bitmap is not None:
        # Two states of a leaf differ in who last hid rows of it or, if that is unknown, in which rows are hidden.
        path += f"#{crc32(leaf.hidden_bitmap) if leaf.hidden_by is None else leaf.hidden_by}"
    first = (path, length, MIXED_SPECS if spec_id is None else spec_id, content == Content.DELETE_MANIFEST)
    last = (partitions, key, first_row_id, replaced_files, replaced_rows, leaf, statistics)
    in_order: tuple[Any, ...] = (*first, *counts, *last)  # by position: thousands are made at once, and names cost time
    return Manifest(*in_order)


def _extra_views(manifest: Manifest, leaf: Leaf, snapshot: Snapshot) -> Iterator[Manifest]:
    """Return views of a leaf: the vectors of its data files, and the rows that this snapshot hid."""
    if leaf.vectors != 0:
        yield replace(
            manifest,
            path=f"{manifest.path}#deletes",
            is_deletes=True,
            first_row_id=None,
            **_UNKNOWN_COUNTS,
            leaf=replace(leaf, is_view=True),
        )
    if leaf.hidden_by == snapshot.snapshot_id and any(leaf.removed_bitmaps):
        deleted, replaced = (0 if b is None else len(decode_positions(b, leaf.file)) for b in leaf.removed_bitmaps)
        counts: dict[str, Any] = dict.fromkeys((*MANIFEST_COUNTS, "replaced_files", "replaced_rows"), 0)
        counts |= {"deleted_files": deleted, "replaced_files": replaced}
        yield replace(
            manifest,
            path=f"{manifest.path}#removed",
            added_snapshot_id=snapshot.snapshot_id,
            **counts,
            leaf=replace(leaf, is_view=True, shows_removed=True),
        )


def _partition_summaries(own: pa.Table, specs: Specs, path: str) -> Sequence[tuple[FieldSummary, ...] | None]:
    """Return the ranges of the partition fields of each leaf; None for a leaf of several specs."""
    ends = {u.column: _field_summaries(own, u) for u in specs.union}
    spec_ids = own["spec_id"].to_pylist()
    try:
        columns = {s: [ends[c] for c in specs.columns(s)] for s in {*spec_ids} if s is not None}
    except TableError as e:
        at = next(at for at, s in enumerate(spec_ids) if s is not None and s not in specs.by_id)
        raise CorruptFile(path, "leaves of specs that the table has", f"spec {spec_ids[at]} in row {at}") from e
    by_leaf: list[tuple[FieldSummary, ...] | None] = []
    for at, spec_id in enumerate(spec_ids):
        summaries = None if spec_id is None else tuple(column[at] for column in columns[spec_id])
        by_leaf.append(None if summaries is None or None in summaries else summaries)  # type: ignore[arg-type]
    return by_leaf


def _field_summaries(own: pa.Table, union: Any) -> list[FieldSummary | None]:
    names = [range_column(union.column, end) for end in (2, 3, 4, 5)]
    if names[0] not in own.schema.names:
        return [None] * own.num_rows
    kind, absent = union.field.field_type, [None] * own.num_rows
    flags = [own[n].to_pylist() if n in own.schema.names else absent for n in names[:2]]
    bounds = [encode_values(own[n], kind).to_pylist() if n in own.schema.names else absent for n in names[2:]]
    rows = zip(*flags, *bounds, strict=True)
    return [None if row[0] is None else FieldSummary(*row) for row in rows]
