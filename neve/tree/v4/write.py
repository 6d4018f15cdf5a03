"""Tracked-file rows to leaves, and manifests to the rows of a root."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from neve.io.files import write_new_file
from neve.io.paths import with_scheme_all
from neve.model.partition import Specs
from neve.model.values import decode_values_exactly
from neve.tree.entries import LIVE_STATUSES, MIXED_SPECS, Leaf, Manifest, Status
from neve.tree.v4 import statistics
from neve.tree.v4.commit_rows import live_rows_as_existing, stored_paths
from neve.tree.v4.fields import FORMAT_VERSION, LEGACY_VERSION, ContentType
from neve.tree.v4.rows import concat_rows, encode_rows, make_rows, range_column, set_where
from neve.tree.write import UNASSIGNED, ManifestContext

_NO_HIDDEN = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class NewLeafRow:
    """The row of a leaf in the root it is to be in."""

    rows_with_statistics: pa.Table


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
    for places in _split_rows(rows, pieces):
        piece = rows.take(pa.array(places))
        yield _store_leaf(io, _encode_leaf(piece, context), piece, context)


def _split_rows(rows: pa.Table, pieces: int) -> Iterator[np.ndarray[Any, Any]]:
    """Row numbers in pieces of about the same size; the two states of a changed row stay together."""
    second = rows["status"].to_numpy() == Status.MODIFIED
    for part in np.array_split(np.flatnonzero(~second), pieces):
        with_second = np.r_[part, part[part + 1 < len(second)] + 1]
        kept = np.unique(np.r_[part, with_second[second[with_second]]])
        if len(kept):
            yield kept


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
    path = context.leaf_path()
    write_new_file(io, path, data)
    return build_leaf_manifest(path, len(data), rows, context)


def build_leaf_manifest(path: str, length: int, rows: pa.Table, context: ManifestContext) -> Manifest:
    """A leaf as the root lists it."""
    status, counts = rows["status"].to_numpy(), rows["record_count"].to_numpy()
    files = np.bincount(status, minlength=5)
    sums = np.bincount(status, weights=counts, minlength=5).astype(np.int64)
    live = np.isin(status, LIVE_STATUSES)
    oldest = pc.min(rows["sequence_number"].filter(pa.array(live))).as_py()
    waiting = live & rows["first_row_id"].is_null().to_numpy()
    spec_ids = pc.unique(rows["spec_id"]).to_pylist()
    spec_id = spec_ids[0] if len(spec_ids) == 1 else MIXED_SPECS
    named: dict[str, Any] = {
        "added_files": int(files[Status.ADDED]),
        # MODIFIED rows have no count of their own yet; as existing ones they keep the leaf from looking dead
        "existing_files": int(files[Status.EXISTING] + files[Status.MODIFIED]),
        "deleted_files": int(files[Status.DELETED]),
        "added_rows": int(sums[Status.ADDED]),
        "existing_rows": int(sums[Status.EXISTING] + sums[Status.MODIFIED]),
        "deleted_rows": int(sums[Status.DELETED]),
        "replaced_files": int(files[Status.REPLACED]),
        "replaced_rows": int(sums[Status.REPLACED]),
    }
    vectors = rows.num_rows - rows["vector_location"].null_count
    listed = make_rows(
        {
            **named,
            "content_type": int(ContentType.DATA_MANIFEST),
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
        rows_without_ids=int(counts[waiting].sum()),
        root_row=(NewLeafRow(listed), 0),
    )
    return Manifest(
        path=path,
        length=length,
        spec_id=spec_id,
        is_deletes=False,
        sequence_number=UNASSIGNED,
        min_sequence_number=UNASSIGNED if oldest is None else oldest,
        added_snapshot_id=context.snapshot_id,
        **named,
        leaf=leaf,
    )


def _aggregate_statistics(rows: pa.Table, specs: Specs) -> dict[str, pa.Array]:
    """Deleted rows count too: who looks for what a snapshot removed prunes leaves like everyone else."""
    rows = rows.filter(pc.not_equal(rows["status"], int(Status.REPLACED)))  # its new state says the same
    columns = {name: rows[name].combine_chunks() for name in rows.schema.names if name.startswith("s") and "." in name}
    found = statistics.shorten_bounds(statistics.aggregate_metrics(columns, specs.schemas[0]))
    return {name: pa.repeat(value.cast(columns[name].type), 1) for name, value in found.items()}


def _partition_ranges(rows: pa.Table, specs: Specs, spec_ids: Sequence[int]) -> dict[str, pa.Array]:
    """The range of each partition field over the rows of one spec: what prunes leaves by bucket."""
    if len(spec_ids) != 1:
        return {}
    found: dict[str, pa.Array] = {}
    types = {u.column: u.arrow_type for u in specs.union}
    for column in specs.columns(spec_ids[0]):
        values, kind = rows[column], types[column]
        if pa.types.is_null(kind):
            return {}
        nan = pc.fill_null(pc.is_nan(values), False) if pa.types.is_floating(kind) else None
        known = values.drop_null() if nan is None else values.filter(pc.invert(nan)).drop_null()
        ends = pc.min_max(known) if len(known) else {"min": pa.scalar(None, kind), "max": pa.scalar(None, kind)}
        found |= {
            range_column(column, 2): pa.array([values.null_count > 0]),
            range_column(column, 3): pa.array([None if nan is None else bool(pc.any(nan).as_py())], pa.bool_()),
            range_column(column, 4): pa.array([ends["min"].as_py()], kind),
            range_column(column, 5): pa.array([ends["max"].as_py()], kind),
        }
    return found


def encode_root(
    manifests: Sequence[Manifest],
    specs: Specs,
    location: str,
    *,
    snapshot_id: int,
    parent_snapshot_id: int | None,
    sequence_number: int,
    first_row_id: int | None,
) -> bytes:
    """The root of a snapshot; leaves and rows of this commit take the snapshot's sequence number."""
    leaves = [m for m in manifests if not m.is_inline and not m.is_view]
    tables = [_leaf_rows(leaves, specs, location, snapshot_id, sequence_number)] if leaves else []
    tables += [_inline_rows(m, sequence_number) for m in manifests if m.is_inline and not m.is_view]
    pairs = {
        "format-version": str(FORMAT_VERSION),
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_snapshot_id is None else str(parent_snapshot_id),
        "sequence-number": str(sequence_number),
        "first-row-id": str(first_row_id or 0),
    }
    rows = concat_rows(tables) if tables else make_rows({}, 0, specs)
    return encode_rows(rows, specs, is_root=True, key_value_metadata=pairs)


def _inline_rows(manifest: Manifest, sequence_number: int) -> pa.Table:
    """The rows of files in the root: those of this commit as they are, older ones as existing."""
    rows: pa.Table = manifest.leaf.rows if manifest.leaf is not None else None
    if manifest.sequence_number != UNASSIGNED:
        return live_rows_as_existing(rows, _NO_HIDDEN)
    for name in ("sequence_number", "file_sequence_number"):
        rows = set_where(rows, rows[name].is_null().to_numpy(), **{name: sequence_number})
    return rows


def _leaf_rows(
    leaves: Sequence[Manifest], specs: Specs, location: str, snapshot_id: int, sequence_number: int
) -> pa.Table:
    rows = _collect_leaf_rows(leaves, specs, location)
    numbers = [sequence_number if m.sequence_number == UNASSIGNED else m.sequence_number for m in leaves]
    oldest = [
        n if m.min_sequence_number == UNASSIGNED else m.min_sequence_number
        for m, n in zip(leaves, numbers, strict=True)
    ]
    hidden = [m.leaf if m.leaf is not None else Leaf(m.path) for m in leaves]
    changed = [leaf.hidden_by == snapshot_id for leaf in hidden]
    status = [
        Status.ADDED if m.added_snapshot_id == snapshot_id else Status.MODIFIED if c else Status.EXISTING
        for m, c in zip(leaves, changed, strict=True)
    ]
    every = np.ones(len(leaves), bool)
    columns: dict[str, Any] = {
        "status": [int(s) for s in status],
        "snapshot_id": [m.added_snapshot_id for m in leaves],
        "sequence_number": numbers,
        "file_sequence_number": numbers,
        "first_row_id": [None if m.is_deletes else m.first_row_id for m in leaves],
        "min_sequence_number": oldest,
    }
    if any(leaf.hidden_bitmap is not None for leaf in hidden):
        columns |= {
            "dv_snapshot_id": [leaf.hidden_by for leaf in hidden],
            "hidden": [leaf.hidden_bitmap for leaf in hidden],
            "hidden_count": [leaf.hidden_count if leaf.hidden_bitmap is not None else None for leaf in hidden],
            "deleted_positions": [
                leaf.removed_bitmaps[0] if c else None for leaf, c in zip(hidden, changed, strict=True)
            ],
            "replaced_positions": [
                leaf.removed_bitmaps[1] if c else None for leaf, c in zip(hidden, changed, strict=True)
            ],
        }
    return set_where(rows, every, **columns)


def _collect_leaf_rows(leaves: Sequence[Manifest], specs: Specs, location: str) -> pa.Table:
    """The row of each leaf: from the root it was read from, from its writing, or from an older list."""
    sources: dict[int, tuple[Any, list[int], list[int]]] = {}
    older: list[int] = []
    for at, manifest in enumerate(leaves):
        place = manifest.leaf.root_row if manifest.leaf is not None else None
        if place is None:
            older.append(at)
        else:
            source = sources.setdefault(id(place[0]), (place[0], [], []))
            source[1].append(place[1])
            source[2].append(at)
    tables = [
        _add_missing_fields(s.rows_with_statistics, specs).take(pa.array(rows, pa.int64()))
        for s, rows, _ in sources.values()
    ]
    order = [at for _, _, own in sources.values() for at in own]
    if older:
        tables.append(_rows_of_older_manifests([leaves[at] for at in older], specs, location))
        order += older
    return concat_rows(tables).take(pa.array(np.argsort(order)))


def _add_missing_fields(rows: pa.Table, specs: Specs) -> pa.Table:
    """Rows read under the specs of an earlier time; fields of specs added since are null."""
    lacking = [u for u in specs.union if u.column not in rows.schema.names]
    for u in lacking:
        rows = rows.append_column(u.column, pa.nulls(rows.num_rows, u.arrow_type))
    return rows


def _rows_of_older_manifests(leaves: Sequence[Manifest], specs: Specs, location: str) -> pa.Table:
    """The rows of manifests that older versions define; their partition summaries become ranges."""
    counts = ("added_files", "existing_files", "deleted_files", "added_rows", "existing_rows", "deleted_rows")
    columns: dict[str, Any] = {name: [getattr(m, name) or 0 for m in leaves] for name in counts}
    kinds = [ContentType.DELETE_MANIFEST if m.is_deletes else ContentType.DATA_MANIFEST for m in leaves]
    columns |= {
        "replaced_files": 0,
        "replaced_rows": 0,
        "content_type": [int(k) for k in kinds],
        "format_version": LEGACY_VERSION,
        "location": with_scheme_all(location, pa.array([m.path for m in leaves])),
        "file_format": ["PARQUET" if m.path.endswith(".parquet") else "AVRO" for m in leaves],
        "record_count": [sum(getattr(m, name) or 0 for name in counts[:3]) for m in leaves],
        "file_size_in_bytes": [m.length for m in leaves],
        "spec_id": [m.spec_id for m in leaves],
        "key_metadata": [m.key_metadata for m in leaves],
    }
    return make_rows(columns | _ranges_from_summaries(leaves, specs), len(leaves), specs)


def _ranges_from_summaries(leaves: Sequence[Manifest], specs: Specs) -> dict[str, pa.Array]:
    found: dict[str, pa.Array] = {}
    for u in specs.union:
        own = [_summary_of_column(m, u.column, specs) for m in leaves]
        if pa.types.is_null(u.arrow_type) or not any(own):
            continue
        kind = u.field.field_type
        told = [pa.array([getattr(s, e) if s else None for s in own], pa.binary()) for e in _BOUNDS]
        lower, upper = (decode_values_exactly(bounds, kind) for bounds in told)
        # a bound that is no value of its type must not look like one that was left out
        lost = [pc.and_(raw.is_valid(), typed.is_null()) for raw, typed in zip(told, (lower, upper), strict=True)]
        has_null = pa.array([s.contains_null if s else None for s in own], pa.bool_())
        found |= {
            range_column(u.column, 2): pc.if_else(pc.or_(*lost), pa.scalar(None, pa.bool_()), has_null),
            range_column(u.column, 3): pa.array([s.contains_nan if s else None for s in own], pa.bool_()),
            range_column(u.column, 4): lower,
            range_column(u.column, 5): upper,
        }
    return found


_BOUNDS = ("lower_bound", "upper_bound")


def _summary_of_column(manifest: Manifest, column: str, specs: Specs) -> Any:
    columns = specs.columns(manifest.spec_id)
    summaries = manifest.partitions
    if summaries is None or len(summaries) != len(columns) or column not in columns:
        return None
    return summaries[columns.index(column)]
