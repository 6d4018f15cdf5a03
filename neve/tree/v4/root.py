"""The root of a version 4 tree: rows of leaves, of any version, and rows of files that lie in the root itself.

A leaf of tracked files is shown as a manifest of data files and, when some of them have vectors, as a second one of
deletes. So is what lies in the root itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
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
    MIXED_SPECS,
    EntryTable,
    FieldSummary,
    Leaf,
    LeafStatistics,
    Manifest,
    Status,
)
from neve.tree.partition_types import partition_types_in
from neve.tree.v4 import statistics
from neve.tree.v4.checks import check_root, refuse_column_files, resolve_manifest_paths
from neve.tree.v4.fields import FIXED_FIELDS, ContentType, is_tracked_schema
from neve.tree.v4.leaf import fill_spec_ids
from neve.tree.v4.rows import range_column, read_rows

_MANIFESTS = (ContentType.DATA_MANIFEST, ContentType.DELETE_MANIFEST)
_METRICS = (statistics.LOWER, statistics.UPPER, statistics.VALUES, statistics.NULLS, statistics.NANS)
_NAMES = tuple(f.column for f in FIXED_FIELDS)
_FIRST_DRAFT_VERSION = 1  # what the first drafts called version 4
_COUNTS = ("added_files", "existing_files", "deleted_files", "added_rows", "existing_rows", "deleted_rows")


@dataclass(frozen=True)
class RootRows:
    """The rows of a root, with statistics only when they are looked at."""

    table: IdTable
    specs: Specs

    @cached_property
    def rows_without_statistics(self) -> pa.Table:
        """All rows without statistics."""
        return read_rows(self.table, self.specs, _NAMES, ranges=True)

    @cached_property
    def rows_with_statistics(self) -> pa.Table:
        """All rows with all they say."""
        return read_rows(self.table, self.specs, _NAMES, ranges=True, metrics=tuple(statistics.METRICS))

    @cached_property
    def statistics(self) -> LeafStatistics:
        """What the rows say about the columns of the files below them."""
        return LeafStatistics(lambda: self._statistics_table, self._filled)

    @cached_property
    def _metrics(self) -> pa.Table:
        return read_rows(self.table, self.specs, (), metrics=_METRICS, partitions=False)

    @cached_property
    def _rows_without_nulls(self) -> dict[int, np.ndarray[Any, Any]]:
        """For each column, the rows that are about files without nulls and NaNs in it."""
        found: dict[int, np.ndarray[Any, Any]] = {}
        for field_id, field in statistics.columns_with_statistics(self.specs.schemas[0]).items():
            counts = [m for m in (statistics.NULLS, statistics.NANS) if statistics.metric_type(field, m)]
            names = [statistics.metric_column(field_id, m) for m in counts]
            if all(name in self._metrics.schema.names for name in names):
                found[field_id] = np.logical_and.reduce([_is_zero(self._metrics[name]) for name in names])
        return found

    def _filled(self, row: int) -> frozenset[int]:
        return frozenset(field_id for field_id, rows in self._rows_without_nulls.items() if rows[row])

    @cached_property
    def _statistics_table(self) -> EntryTable:
        stats, rows = self._metrics, self.rows_without_statistics
        columns = {name: stats[name] for name in stats.schema.names}
        names = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
        maps = statistics.as_maps(columns, self.specs.schemas[0], rows.num_rows, names)
        live = pc.add(pc.fill_null(rows["added_rows"], 0), pc.fill_null(rows["existing_rows"], 0))
        gone = pc.add(pc.fill_null(rows["deleted_rows"], 0), pc.fill_null(rows["replaced_rows"], 0))
        counts = pc.add(live, gone)
        return EntryTable.from_columns({**maps, "record_count": counts}, self.specs, rows.num_rows, names)


def _is_zero(counts: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    return np.asarray(pc.fill_null(pc.equal(counts, 0), False).to_numpy(), bool)


def read_root(io: FileIO, metadata: Any, snapshot: Snapshot) -> tuple[Manifest, ...]:
    """The manifests of a snapshot whose root is a version 4 one."""
    location = metadata.location
    path = resolve_path(location, str(getattr(snapshot, "root_manifest", "")))
    table = open_id_table(read_file(io, path), path)
    if not is_tracked_schema(set(table.child_ids(()))):
        raise CorruptFile(path, "a root of tracked-file rows", f"the columns {table.schema.names}")
    refuse_column_files(table)
    specs = Specs.of(metadata)
    rows = RootRows(
        table, specs.with_learned_types(partition_types_in(table, specs)) if specs.untyped_fields else specs
    )
    check_root(rows.rows_without_statistics, path)
    numbers = {row["snapshot-id"]: row.get("sequence-number") or 0 for row in metadata.lazy_snapshots.rows}
    shared = Leaf("", location=location, numbers=numbers)
    return (*_leaf_manifests(rows, path, shared, snapshot), *_manifests_of_inline_rows(rows, path, shared, snapshot))


def _manifests_of_inline_rows(rows: RootRows, path: str, shared: Leaf, snapshot: Snapshot) -> Iterator[Manifest]:
    """The files that lie in the root itself, with what this snapshot did to others that lay there."""
    is_file = ~np.isin(rows.rows_without_statistics["content_type"].to_numpy(), _MANIFESTS)
    if is_file.any():
        own = fill_spec_ids(rows.rows_with_statistics.filter(pa.array(is_file)), rows.specs, path)
        yield from inline_manifests(own, path, shared, snapshot.snapshot_id, snapshot.sequence_number or 0)


def inline_manifests(
    rows: pa.Table, path: str, shared: Leaf, snapshot_id: int, sequence_number: int
) -> Iterator[Manifest]:
    """Rows of files that lie in a root, as manifests: one of data files, one of deletes when there are any."""
    status, counts = rows["status"].to_numpy(), rows["record_count"].to_numpy()
    files = np.bincount(status, minlength=5)
    sums = np.bincount(status, weights=counts, minlength=5).astype(np.int64)
    spec_ids = pc.unique(rows["spec_id"]).to_pylist()
    oldest = pc.min(rows["sequence_number"].filter(pa.array(np.isin(status, LIVE_STATUSES)))).as_py()
    facts: dict[str, Any] = {
        "location": shared.location,
        "numbers": shared.numbers,
        "rows": rows,
        "vectors": rows.num_rows - rows["vector_location"].null_count,
    }
    common: dict[str, Any] = {
        "length": 0,
        "spec_id": spec_ids[0] if len(spec_ids) == 1 else MIXED_SPECS,
        "sequence_number": sequence_number,
        "min_sequence_number": sequence_number if oldest is None else oldest,
        "added_snapshot_id": snapshot_id,
    }
    yield Manifest(
        path=f"{path}#files",
        is_deletes=False,
        added_files=int(files[Status.ADDED]),
        existing_files=int(files[Status.EXISTING] + files[Status.MODIFIED]),
        deleted_files=int(files[Status.DELETED]),
        added_rows=int(sums[Status.ADDED]),
        existing_rows=int(sums[Status.EXISTING] + sums[Status.MODIFIED]),
        deleted_rows=int(sums[Status.DELETED]),
        replaced_files=int(files[Status.REPLACED]),
        replaced_rows=int(sums[Status.REPLACED]),
        leaf=Leaf(path, **facts),
        **common,
    )
    deletes = (rows["content_type"].to_numpy() == ContentType.EQUALITY_DELETES).any()
    if facts["vectors"] or deletes:
        leaf = Leaf(path, is_view=True, **facts)
        yield Manifest(f"{path}#deletes", is_deletes=True, **_unknown_counts(), leaf=leaf, **common)


def _unknown_counts() -> dict[str, Any]:
    return dict(zip(_COUNTS, repeat(None), strict=False))


def _leaf_manifests(rows: RootRows, path: str, shared: Leaf, snapshot: Snapshot) -> Iterator[Manifest]:
    slim = rows.rows_without_statistics
    content, status = slim["content_type"].to_numpy(), slim["status"].to_numpy()
    wanted = np.flatnonzero(np.isin(content, _MANIFESTS) & np.isin(status, LIVE_STATUSES))
    if not len(wanted):
        return
    own = slim.take(pa.array(wanted))
    _refuse_older_without_spec(own, wanted, path)
    files = resolve_manifest_paths(shared.location, own["location"], path).to_pylist()
    leaves = map(
        _make_leaf,
        wanted.tolist(),
        files,
        *_column_lists(own, _LEAF_COLUMNS),
        repeat(rows),
        repeat(shared),
        repeat(path),
    )
    partitions, sources = (
        _partition_summaries(own, rows.specs, path),
        zip(repeat(rows.statistics), wanted.tolist(), strict=False),
    )
    listed = zip(leaves, *_column_lists(own, _MANIFEST_COLUMNS), partitions, sources, strict=False)
    for manifest in (_make_manifest(*facts) for facts in listed):
        yield manifest
        leaf = manifest.leaf
        if leaf is not None and leaf.is_tracked and not manifest.is_deletes:
            yield from _extra_views(manifest, leaf, snapshot)


def _column_lists(own: pa.Table, names: Sequence[str]) -> list[list[Any]]:
    return [own[name].to_pylist() for name in names]


def _refuse_older_without_spec(own: pa.Table, row_numbers: Any, path: str) -> None:
    lacking = own["spec_id"].is_null().to_numpy() & (own["format_version"].to_numpy() < _FIRST_DRAFT_VERSION)
    if lacking.any():
        at = int(np.flatnonzero(lacking)[0])
        found = f"none in row {row_numbers[at]} ({own['location'][at].as_py()})"
        raise CorruptFile(path, "the spec of a leaf of an older version", found)


_LEAF_COLUMNS = ("format_version", "hidden", "deleted_positions", "replaced_positions", "dv_snapshot_id", "vectors")


def _make_leaf(
    at: int,
    file: str,
    version: int,
    hidden: bytes | None,
    deleted: bytes | None,
    replaced: bytes | None,
    hidden_by: int | None,
    vectors: int | None,
    rows: RootRows,
    shared: Leaf,
    path: str,
) -> Leaf:
    return Leaf(
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
    "file_size_in_bytes",
    "spec_id",
    "content_type",
    "sequence_number",
    "min_sequence_number",
    "snapshot_id",
    *_COUNTS,
    "key_metadata",
    "first_row_id",
    "replaced_files",
    "replaced_rows",
)


def _make_manifest(leaf: Leaf, length: int, spec_id: int | None, content: int, *facts: Any) -> Manifest:
    *counts, key, first_row_id, replaced_files, replaced_rows, partitions, statistics = facts
    path = leaf.file if leaf.hidden_bitmap is None else f"{leaf.file}#{_state(leaf.hidden_by, leaf.hidden_bitmap)}"
    named = (path, length, MIXED_SPECS if spec_id is None else spec_id, content == ContentType.DELETE_MANIFEST)
    others = (partitions, key, first_row_id, replaced_files, replaced_rows, leaf, statistics)
    in_order: tuple[Any, ...] = (*named, *counts, *others)  # some thousands are made at once, and names cost
    return Manifest(*in_order)


def _state(hidden_by: int | None, hidden: bytes) -> int:
    """What tells two states of a leaf apart: who hid rows of it last, or which ones, where that is not told."""
    return crc32(hidden) if hidden_by is None else hidden_by


def _extra_views(manifest: Manifest, leaf: Leaf, snapshot: Snapshot) -> Iterator[Manifest]:
    """The vectors of the data files of a leaf, and the rows that this snapshot hid."""
    if leaf.vectors != 0:
        yield replace(
            manifest,
            path=f"{manifest.path}#deletes",
            is_deletes=True,
            first_row_id=None,
            **_unknown_counts(),
            leaf=replace(leaf, is_view=True),
        )
    if leaf.hidden_by == snapshot.snapshot_id and any(leaf.removed_bitmaps):
        deleted, replaced = (0 if b is None else len(decode_positions(b, leaf.file)) for b in leaf.removed_bitmaps)
        counts: dict[str, Any] = dict.fromkeys((*_COUNTS, "replaced_files", "replaced_rows"), 0)
        counts |= {"deleted_files": deleted, "replaced_files": replaced}
        yield replace(
            manifest,
            path=f"{manifest.path}#removed",
            added_snapshot_id=snapshot.snapshot_id,
            **counts,
            leaf=replace(leaf, is_view=True, shows_removed=True),
        )


def _partition_summaries(own: pa.Table, specs: Specs, path: str) -> Sequence[tuple[FieldSummary, ...] | None]:
    """The ranges of the partition fields of each leaf of one spec."""
    ends = {u.column: _field_summaries(own, u) for u in specs.union}
    spec_ids = own["spec_id"].to_pylist()
    try:
        columns = {s: [ends[c] for c in specs.columns(s)] for s in {*spec_ids} if s is not None}
    except TableError as e:
        at = next(at for at, s in enumerate(spec_ids) if s is not None and s not in specs.by_id)
        raise CorruptFile(path, "leaves of specs that the table has", f"spec {spec_ids[at]} in row {at}") from e
    found: list[tuple[FieldSummary, ...] | None] = []
    for at, spec_id in enumerate(spec_ids):
        summaries = None if spec_id is None else tuple(column[at] for column in columns[spec_id])
        found.append(None if summaries is None or None in summaries else summaries)  # type: ignore[arg-type]
    return found


def _field_summaries(own: pa.Table, union: Any) -> list[FieldSummary | None]:
    names = [range_column(union.column, end) for end in (2, 3, 4, 5)]
    if names[0] not in own.schema.names:
        return [None] * own.num_rows
    kind, absent = union.field.field_type, [None] * own.num_rows
    flags = [own[n].to_pylist() if n in own.schema.names else absent for n in names[:2]]
    bounds = [encode_values(own[n], kind).to_pylist() if n in own.schema.names else absent for n in names[2:]]
    rows = zip(*flags, *bounds, strict=True)
    return [None if row[0] is None else FieldSummary(*row) for row in rows]
