"""Write tracked-file rows to leaves, and manifests to a root."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from neve.io.files import write_new_file
from neve.io.paths import with_scheme_all
from neve.model.partition import Specs
from neve.model.values import decode_values_exactly
from neve.tree.entries import (
    LIVE_STATUSES,
    MANIFEST_COUNTS,
    MIXED_SPECS,
    Content,
    Leaf,
    Manifest,
    Status,
    count_by_status,
)
from neve.tree.v4 import statistics
from neve.tree.v4.commit_rows import live_rows_as_existing, stored_paths
from neve.tree.v4.fields import FORMAT_VERSION, LEGACY_VERSION
from neve.tree.v4.leaf import leaf_of
from neve.tree.v4.rows import concat_rows, encode_rows, make_rows, range_column, set_where
from neve.tree.write import SUMMARY_TYPES, UNASSIGNED, ManifestContext, ManifestListHeader, value_range

_NO_HIDDEN = np.zeros(0, np.int64)
_NO_SUMMARY = (None, None, None, None)


def write_leaves(io: FileIO, rows: pa.Table, context: ManifestContext) -> list[Manifest]:
    """Write rows of data files to leaves, one or more per spec."""
    spec_ids = rows["spec_id"].to_numpy()
    groups = (rows.filter(pa.array(spec_ids == s)) for s in np.unique(spec_ids))
    return [m for group in groups for m in _write_group(io, group, context)]


def _write_group(io: FileIO, rows: pa.Table, context: ManifestContext) -> Iterator[Manifest]:
    data = _encode_leaf(rows, context)
    pieces = min(rows.num_rows, -(-len(data) // max(context.target_bytes, 1)))
    if pieces <= 1 or len(data) < context.target_bytes * 5 // 4:
        yield _store_leaf(io, data, rows, context)
        return
    is_second = rows["status"].to_numpy() == Status.MODIFIED
    for part in np.array_split(np.flatnonzero(~is_second), pieces):
        # The two states of a changed row stay together.
        following = part[part + 1 < len(is_second)] + 1
        row_numbers = np.union1d(part, following[is_second[following]])
        if len(row_numbers):
            piece = rows.take(pa.array(row_numbers))
            yield _store_leaf(io, _encode_leaf(piece, context), piece, context)


def _encode_leaf(rows: pa.Table, context: ManifestContext) -> bytes:
    schema = context.specs.schemas[0]
    pairs = {
        "format-version": str(FORMAT_VERSION),
        "schema": schema.model_dump_json(),
        "schema-id": str(schema.schema_id),
        "content": "data",
    }
    return encode_rows(rows, context.specs, is_root=False, key_value_metadata=pairs)


def _store_leaf(io: FileIO, data: bytes, rows: pa.Table, context: ManifestContext) -> Manifest:
    """Store an encoded leaf, and describe it as the root lists it."""
    path, length = (context.new_leaf_path or context.new_path)(), len(data)
    write_new_file(io, path, data)
    live = np.isin(rows["status"].to_numpy(), LIVE_STATUSES)
    oldest = pc.min(rows["sequence_number"].filter(pa.array(live))).as_py()
    waiting = live & rows["first_row_id"].is_null().to_numpy()
    spec_ids = pc.unique(rows["spec_id"]).to_pylist()
    spec_id = spec_ids[0] if len(spec_ids) == 1 else MIXED_SPECS
    counts = count_by_status(rows)
    vectors = rows.num_rows - rows["vector_location"].null_count
    root_row = make_rows(
        {
            **counts,
            "content_type": int(Content.DATA_MANIFEST),
            "format_version": FORMAT_VERSION,
            "location": stored_paths(context.metadata.location, pa.array([path])),
            "file_format": "PARQUET",
            "record_count": rows.num_rows,
            "file_size_in_bytes": length,
            "spec_id": None if spec_id == MIXED_SPECS else spec_id,
            "vectors": vectors,
            **_partition_ranges(rows, context.specs, spec_ids),
            **_aggregate_statistics(rows, context.specs),
        },
        1,
        context.specs,
    )
    leaf = Leaf(
        path,
        location=context.metadata.location,
        vectors=vectors,
        rows_without_ids=int(rows["record_count"].to_numpy()[waiting].sum()),
        root_row=(root_row, 0),
    )
    return Manifest(
        path=path,
        length=length,
        spec_id=spec_id,
        is_deletes=False,
        sequence_number=UNASSIGNED,
        min_sequence_number=UNASSIGNED if oldest is None else oldest,
        added_snapshot_id=context.snapshot_id,
        **counts,
        leaf=leaf,
    )


def _aggregate_statistics(rows: pa.Table, specs: Specs) -> dict[str, pa.Array]:
    """Combine the statistics of rows. Deleted rows count too: readers of removed files also prune leaves by them."""
    rows = rows.filter(pc.not_equal(rows["status"], int(Status.REPLACED)))  # the MODIFIED row has the same statistics
    columns = {name: rows[name].combine_chunks() for name in rows.schema.names if name.startswith("s") and "." in name}
    metrics = statistics.shorten_bounds(statistics.aggregate_metrics(columns, specs.schemas[0]))
    return {name: pa.repeat(value.cast(columns[name].type), 1) for name, value in metrics.items()}


def _partition_ranges(rows: pa.Table, specs: Specs, spec_ids: Sequence[int]) -> dict[str, pa.Array]:
    """Return the range of each partition field over rows of one spec; they prune leaves, also by bucket."""
    if len(spec_ids) != 1:
        return {}
    ranges: dict[str, pa.Array] = {}
    types = {u.column: u.arrow_type for u in specs.union}
    for column in specs.columns(spec_ids[0]):
        if pa.types.is_null(types[column]):
            return {}
        contains_nan, lower, upper = value_range(rows[column])
        ranges |= {
            range_column(column, 2): pa.array([rows[column].null_count > 0]),
            range_column(column, 3): pa.array([contains_nan], pa.bool_()),
            range_column(column, 4): pa.array([lower.as_py()], types[column]),
            range_column(column, 5): pa.array([upper.as_py()], types[column]),
        }
    return ranges


def encode_root(manifests: Sequence[Manifest], header: ManifestListHeader, specs: Specs, location: str) -> bytes:
    """Encode the root of a snapshot; leaves and rows of this commit get the snapshot's sequence number."""
    leaves = [m for m in manifests if not m.is_inline and not m.is_view]
    tables = [_leaf_rows(leaves, specs, location, header.snapshot_id, header.sequence_number)] if leaves else []
    tables += [_inline_rows(m, header.sequence_number) for m in manifests if m.is_inline and not m.is_view]
    pairs = {
        "format-version": str(FORMAT_VERSION),
        "snapshot-id": str(header.snapshot_id),
        "parent-snapshot-id": "null" if header.parent_snapshot_id is None else str(header.parent_snapshot_id),
        "sequence-number": str(header.sequence_number),
        "first-row-id": str(header.first_row_id or 0),
    }
    rows = concat_rows(tables) if tables else make_rows({}, 0, specs)
    return encode_rows(rows, specs, is_root=True, key_value_metadata=pairs)


def _inline_rows(manifest: Manifest, sequence_number: int) -> pa.Table:
    """Return the rows of files in the root: those of this commit unchanged, older ones as existing."""
    rows: pa.Table = manifest.leaf.rows if manifest.leaf is not None else None
    if manifest.sequence_number != UNASSIGNED:
        return live_rows_as_existing(rows, _NO_HIDDEN)
    for name in ("sequence_number", "file_sequence_number"):
        rows = set_where(rows, rows[name].is_null().to_numpy(), **{name: sequence_number})
    return rows


def _leaf_rows(
    leaves: Sequence[Manifest], specs: Specs, location: str, snapshot_id: int, sequence_number: int
) -> pa.Table:
    numbers = [sequence_number if m.sequence_number == UNASSIGNED else m.sequence_number for m in leaves]
    oldest = [
        n if m.min_sequence_number == UNASSIGNED else m.min_sequence_number
        for m, n in zip(leaves, numbers, strict=True)
    ]
    facts = [leaf_of(m) for m in leaves]
    changed = [f.hidden_by == snapshot_id for f in facts]
    old_status = [int(Status.MODIFIED if c else Status.EXISTING) for c in changed]
    added = int(Status.ADDED)
    columns: dict[str, Any] = {
        "status": [added if m.added_snapshot_id == snapshot_id else s for m, s in zip(leaves, old_status, strict=True)],
        "snapshot_id": [m.added_snapshot_id for m in leaves],
        "sequence_number": numbers,
        "file_sequence_number": numbers,
        "first_row_id": [None if m.is_deletes else m.first_row_id for m in leaves],
        "min_sequence_number": oldest,
    }
    if any(f.hidden_bitmap is not None for f in facts):
        removed = [f.removed_bitmaps if c else (None, None) for f, c in zip(facts, changed, strict=True)]
        columns |= {
            "dv_snapshot_id": [f.hidden_by for f in facts],
            "hidden": [f.hidden_bitmap for f in facts],
            "hidden_count": [f.hidden_count if f.hidden_bitmap is not None else None for f in facts],
            "deleted_positions": [deleted for deleted, _ in removed],
            "replaced_positions": [replaced for _, replaced in removed],
        }
    return set_where(_collect_leaf_rows(leaves, specs, location), np.ones(len(leaves), bool), **columns)


def _collect_leaf_rows(leaves: Sequence[Manifest], specs: Specs, location: str) -> pa.Table:
    """Return the row of each leaf: from the root it was read from, from writing it, or from an older list."""
    sources: dict[int, tuple[Any, list[int], list[int]]] = {}
    older: list[int] = []
    for at, manifest in enumerate(leaves):
        root_row = leaf_of(manifest).root_row
        if root_row is None:
            older.append(at)
        else:
            source, row = root_row
            _, row_numbers, positions = sources.setdefault(id(source), (source, [], []))
            row_numbers.append(row)
            positions.append(at)
    tables: list[pa.Table] = []
    order: list[int] = []
    for source, row_numbers, positions in sources.values():
        rows = source if isinstance(source, pa.Table) else source.rows_with_statistics  # a table: of a new leaf
        for u in (u for u in specs.union if u.column not in rows.schema.names):  # of specs added since it was read
            rows = rows.append_column(u.column, pa.nulls(rows.num_rows, u.arrow_type))
        tables.append(rows.take(pa.array(row_numbers, pa.int64())))
        order += positions
    if older:
        tables.append(_rows_of_older_manifests([leaves[at] for at in older], specs, location))
        order += older
    return concat_rows(tables).take(pa.array(np.argsort(order)))


def _rows_of_older_manifests(leaves: Sequence[Manifest], specs: Specs, location: str) -> pa.Table:
    """Return the rows of manifests that older versions define; their partition summaries become ranges."""
    columns: dict[str, Any] = {name: [getattr(m, name) or 0 for m in leaves] for name in MANIFEST_COUNTS}
    kinds = [Content.DELETE_MANIFEST if m.is_deletes else Content.DATA_MANIFEST for m in leaves]
    columns |= {
        "replaced_files": 0,
        "replaced_rows": 0,
        "content_type": [int(k) for k in kinds],
        "format_version": LEGACY_VERSION,
        "location": with_scheme_all(location, pa.array([m.path for m in leaves])),
        "file_format": ["PARQUET" if m.path.endswith(".parquet") else "AVRO" for m in leaves],
        "record_count": [sum(getattr(m, name) or 0 for name in MANIFEST_COUNTS[:3]) for m in leaves],
        "file_size_in_bytes": [m.length for m in leaves],
        "spec_id": [m.spec_id for m in leaves],
        "key_metadata": [m.key_metadata for m in leaves],
    }
    return make_rows(columns | _ranges_from_summaries(leaves, specs), len(leaves), specs)


def _ranges_from_summaries(leaves: Sequence[Manifest], specs: Specs) -> dict[str, pa.Array]:
    ranges: dict[str, pa.Array] = {}
    for u in specs.union:
        own = [_summary_of_column(m, u.column, specs) for m in leaves]
        if pa.types.is_null(u.arrow_type) or not any(own):
            continue
        parts = zip(*(summary or _NO_SUMMARY for summary in own), strict=True)
        has_null, has_nan, *raw = (pa.array(part, kind) for part, kind in zip(parts, SUMMARY_TYPES, strict=True))
        lower, upper = (decode_values_exactly(bound, u.field.field_type) for bound in raw)
        # A bound that is not a value of its type must not look like a missing one: then the whole range is unknown.
        is_lost = pc.or_(pc.and_(raw[0].is_valid(), lower.is_null()), pc.and_(raw[1].is_valid(), upper.is_null()))
        ranges |= {
            range_column(u.column, 2): pc.if_else(is_lost, pa.scalar(None, pa.bool_()), has_null),
            range_column(u.column, 3): has_nan,
            range_column(u.column, 4): lower,
            range_column(u.column, 5): upper,
        }
    return ranges


def _summary_of_column(manifest: Manifest, column: str, specs: Specs) -> Any:
    columns, summaries = specs.columns(manifest.spec_id), manifest.partitions
    if summaries is None or len(summaries) != len(columns) or column not in columns:
        return None
    return summaries[columns.index(column)]
