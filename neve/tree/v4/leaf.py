"""Convert the tracked-file rows of a leaf to entries.

A row that tracks a data file with its deletion vector becomes two entries: the data file in one manifest, the vector in
another, both at the position of the row. Inherited values are filled in first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from neve.errors import CorruptFile
from neve.io.files import read_file, translate_storage_errors
from neve.io.mumbling import decode_positions
from neve.io.parquet_by_field_id import IdTable, open_id_table
from neve.io.storage_paths import check_is_file, local_file_path
from neve.model.partition import Specs
from neve.tree.entries import (
    DETAIL,
    LIVE_STATUSES,
    Content,
    EntryTable,
    Leaf,
    Manifest,
    Status,
    details_in_order,
    distinct_spec_ids,
    fit_to_type,
)
from neve.tree.v4 import statistics
from neve.tree.v4.checks import check_leaf, refuse_column_files, refuse_repeated_rows, resolve_manifest_paths
from neve.tree.v4.rows import fill_inherited, read_rows, set_column, set_where
from neve.tree.v4.statistics import METRIC_BY_DETAIL

_TRACKING = ("status", "snapshot_id", "sequence_number", "file_sequence_number", "first_row_id")
_FILE = ("content_type", "format_version", "location", "file_format", "record_count", "file_size_in_bytes", "spec_id")
_VECTOR = ("dv_snapshot_id", "vector_location", "vector_offset", "vector_size", "vector_cardinality", "vector_key")
_DATA_VIEW = (*_TRACKING, *_FILE, "sort_order_id")
_DELETES_VIEW = (*_TRACKING, *_FILE, "sort_order_id", "equality_ids", *_VECTOR)
_ROWS = (*_DELETES_VIEW, "key_metadata", "split_offsets")


def open_leaf(io: FileIO, manifest: Manifest) -> IdTable:
    """Open the file of a leaf and check it; on a local disk only the requested columns are read."""
    local = local_file_path(io, manifest.file)
    if local is None:
        data: Any = read_file(io, manifest.file)
        size = len(data)
    else:
        with translate_storage_errors(manifest.file, "read"):
            check_is_file(local, manifest.file)
            data = pa.OSFile(local)
            size = data.size()
    if size < manifest.length:
        raise CorruptFile(manifest.file, f"{manifest.length} bytes, as the root says", f"{size}")
    table = open_id_table(data, manifest.file)
    refuse_column_files(table)
    return table


def read_leaf_entries(
    io: FileIO,
    manifest: Manifest,
    specs: Specs,
    ordinal: int,
    detail: Collection[str],
    *,
    as_is: bool = False,
    repeats_allowed: bool = False,
    live_only: bool = False,
    where: Callable[[EntryTable], Any] | None = None,
    columns: Collection[int] | None = None,
) -> EntryTable:
    """Return the entries that a manifest of the tree shows, with details of those that `where` selects."""
    leaf = leaf_of(manifest)
    details = details_in_order(detail)
    early_details = [] if where is not None and leaf.rows is None else details
    if leaf.rows is not None:
        table, rows = None, leaf.rows
    else:
        table = open_leaf(io, manifest)
        names = (*(_DELETES_VIEW if manifest.is_deletes else _DATA_VIEW), *_columns_without_metrics(early_details))
        rows = read_rows(table, specs, names, metrics=_metrics(early_details), columns=columns)
        check_leaf(rows, manifest.file, as_is=as_is)
    positions = np.arange(rows.num_rows, dtype=np.int32)
    rows = _complete_rows(rows, specs, manifest)
    rows, positions = _visible_rows(rows, positions, leaf, manifest.file)
    if not as_is and not repeats_allowed:
        refuse_repeated_rows(manifest.file, rows, positions)
    entries = _entries_of_view(rows, positions, manifest, specs, ordinal, early_details)
    entries = entries.live() if live_only else entries
    if table is None or where is None or not details:
        return entries
    mask = np.asarray(where(entries), bool)
    if not mask.any():
        return entries.with_columns(**dict.fromkeys(details))
    rows, contents = entries.numpy("row")[mask], entries.numpy("content")[mask]
    return entries.with_details_where(mask, _read_details(table, specs, rows, contents, details, columns))


def _metrics(detail: Collection[str]) -> list[int]:
    return [METRIC_BY_DETAIL[name] for name in detail if name in METRIC_BY_DETAIL]


def read_leaf_details(
    io: FileIO, manifest: Manifest, specs: Specs, row_positions: Any, contents: Any, names: Collection[str]
) -> pa.Table:
    """Return detail columns of some rows of a leaf, each of the data file or of its vector, as the content says."""
    rows = leaf_of(manifest).rows
    source = open_leaf(io, manifest) if rows is None else rows
    return _read_details(source, specs, row_positions, contents, names)


def _read_details(
    source: Any, specs: Specs, at: Any, contents: Any, names: Collection[str], columns: Collection[int] | None = None
) -> pa.Table:
    """Return detail columns of the rows at some positions of a file, or of a table in memory."""
    if isinstance(source, IdTable):
        fixed, metrics = (*_columns_without_metrics(names), "vector_key"), _metrics(names)
        rows = read_rows(source, specs, fixed, metrics=metrics, partitions=False, rows=at, columns=columns)
    else:
        rows = source.take(pa.array(at, pa.int64()))
    details = _detail_columns(rows, specs, names, np.asarray(contents) == Content.POSITION_DELETES)
    return pa.table({name: details[name] for name in names})


def read_complete_rows(io: FileIO, manifest: Manifest, specs: Specs) -> pa.Table:
    """Return all columns of the rows of a leaf for a writer, with inherited values filled in."""
    leaf = leaf_of(manifest)
    if leaf.rows is not None:
        return leaf.rows
    rows = read_rows(open_leaf(io, manifest), specs, _ROWS, metrics=tuple(statistics.METRICS))
    check_leaf(rows, manifest.file)
    return _complete_rows(rows, specs, manifest)


def hidden_rows(manifest: Manifest) -> np.ndarray[Any, Any]:
    """Return the positions of the rows that the root hides."""
    leaf = leaf_of(manifest)
    return np.zeros(0, np.int64) if leaf.hidden_bitmap is None else decode_positions(leaf.hidden_bitmap, manifest.file)


def leaf_of(manifest: Manifest) -> Leaf:
    """Return what a reader needs of a manifest beyond its row in the list."""
    return Leaf(manifest.path) if manifest.leaf is None else manifest.leaf


def _columns_without_metrics(detail: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in ("key_metadata", "split_offsets") if name in detail)


def fill_spec_ids(rows: pa.Table, specs: Specs, path: str) -> pa.Table:
    """Give each row a spec: a row that names none is of the unpartitioned spec.

    Values of partition fields that the spec of a row does not have are set to null.
    """
    if rows["spec_id"].null_count:
        unpartitioned = [s for s in sorted(specs.by_id) if specs.is_unpartitioned(s)]
        if not unpartitioned:
            row = int(np.flatnonzero(rows["spec_id"].is_null().to_numpy())[0])
            raise CorruptFile(path, "a spec_id in every row, as the table has no unpartitioned spec", f"none in {row}")
        rows = set_where(rows, rows["spec_id"].is_null().to_numpy(), spec_id=unpartitioned[0])
    spec_ids = distinct_spec_ids(rows["spec_id"])
    specs.refuse_unknown_specs(spec_ids, f"manifest {path}")
    for u in specs.union:
        if u.column in rows.schema.names and rows[u.column].null_count < rows.num_rows and {*spec_ids} - {*u.spec_ids}:
            foreign = ~np.isin(rows["spec_id"].to_numpy(), list(u.spec_ids))
            if rows[u.column].is_valid().to_numpy()[foreign].any():
                rows = set_where(rows, foreign, **{u.column: None})
    return rows


def _complete_rows(rows: pa.Table, specs: Specs, manifest: Manifest) -> pa.Table:
    """Give all rows of a leaf their specs, inherited values and row ids."""
    number = manifest.sequence_number if manifest.sequence_number >= 0 else None  # none before the commit numbers it
    inherited = (pa.scalar(value, pa.int64()) for value in (number, manifest.added_snapshot_id))
    rows = fill_inherited(fill_spec_ids(rows, specs, manifest.file), *inherited)
    first = first_row_ids(rows, rows["first_row_id"], manifest)
    return rows if first is None else set_column(rows, "first_row_id", first)


def first_row_ids(rows: pa.Table, stated: pa.ChunkedArray, manifest: Manifest) -> pa.Array | None:
    """Assign row ids in file order to live rows without any; rows that the root hides count too, and keep their ids.

    `rows` must be all rows of the leaf. None: every row keeps the stated value.
    """
    if manifest.first_row_id is None or not stated.null_count:
        return None
    status = rows["status"].to_numpy()
    waiting = rows["content_type"].to_numpy() == Content.DATA
    waiting &= (status != Status.DELETED) & (status != Status.REPLACED)
    if stated.null_count < len(stated):
        waiting &= stated.is_null().to_numpy()
    taken = rows["record_count"].to_numpy() * waiting
    absent = None if waiting.all() else ~waiting
    assigned = pa.array(manifest.first_row_id + np.cumsum(taken) - taken, pa.int64(), mask=absent)
    return pc.coalesce(stated.combine_chunks(), assigned) if stated.null_count < len(stated) else assigned


def _visible_rows(rows: pa.Table, positions: Any, leaf: Leaf, path: str) -> tuple[pa.Table, Any]:
    """Return the rows that a manifest shows: those not hidden by the root, or only those that were hidden last."""
    if leaf.hidden_bitmap is None and not leaf.shows_removed:
        return rows, positions
    if leaf.shows_removed:
        deleted, replaced = (_decode_row_positions(b, rows.num_rows, path) for b in leaf.removed_bitmaps)
        status = np.full(rows.num_rows, -1)
        status[deleted], status[replaced] = Status.DELETED, Status.REPLACED
        is_removed = status >= 0
        new_status = pa.array(status[is_removed], pa.int32())
        rows = set_where(rows, is_removed, status=new_status, snapshot_id=leaf.hidden_by)
        return rows.filter(pa.array(is_removed)), positions[is_removed]
    is_visible = visible_row_mask(leaf, rows.num_rows, path)
    return rows.filter(pa.array(is_visible)), positions[is_visible]


def visible_row_mask(leaf: Leaf, rows: int, path: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return a mask of the rows of a leaf that the root does not hide."""
    is_visible = np.ones(rows, bool)
    is_visible[_decode_row_positions(leaf.hidden_bitmap, rows, path)] = False
    return is_visible


def _decode_row_positions(bitmap: bytes | None, rows: int, path: str) -> np.ndarray[Any, Any]:
    positions = np.zeros(0, np.int64) if bitmap is None else decode_positions(bitmap, path)
    if len(positions) and positions[-1] >= rows:
        raise CorruptFile(path, f"a manifest vector over {rows} rows", f"position {positions[-1]}")
    return positions


def _entries_of_view(
    rows: pa.Table, positions: Any, manifest: Manifest, specs: Specs, ordinal: int, detail: list[str]
) -> EntryTable:
    content = rows["content_type"].to_numpy()
    if not manifest.is_deletes:
        is_data = content == Content.DATA
        if not is_data.all():
            rows, positions = rows.filter(pa.array(is_data)), positions[is_data]
        return _file_entries(rows, positions, manifest, specs, ordinal, detail)
    has_vector = rows["vector_location"].is_valid().to_numpy()
    is_equality = content == Content.EQUALITY_DELETES
    tables = [
        build(rows.filter(pa.array(mask)), positions[mask], manifest, specs, ordinal, detail)
        for mask, build in ((is_equality, _file_entries), (has_vector, _vector_entries))
        if mask.any()
    ]
    return EntryTable.concat(tables, specs) if tables else EntryTable.empty(specs, detail)


def _file_entries(
    rows: pa.Table, positions: Any, manifest: Manifest, specs: Specs, ordinal: int, detail: list[str]
) -> EntryTable:
    paths = resolve_manifest_paths(leaf_of(manifest).location, rows["location"], manifest.file)
    numbered = rows.append_column("manifest", pa.repeat(pa.scalar(ordinal, pa.int32()), rows.num_rows))
    return entries_from_file_rows(numbered.append_column("row", pa.array(positions, pa.int32())), paths, specs, detail)


def entries_from_file_rows(rows: pa.Table, paths: pa.Array, specs: Specs, detail: Collection[str]) -> EntryTable:
    """Return rows of files as entries; the rows have the columns `manifest` and `row`."""
    same = ("manifest", "row", "spec_id", "record_count", "file_size_in_bytes", "sort_order_id")
    columns: dict[str, Any] = {name: rows[name] for name in (*_TRACKING, *same, *(u.column for u in specs.union))}
    formats = rows["file_format"].combine_chunks()
    formats = formats if pa.types.is_dictionary(formats.type) else formats.dictionary_encode()
    formats = pa.DictionaryArray.from_arrays(formats.indices, pc.utf8_upper(formats.dictionary))
    columns |= {"content": rows["content_type"], "file_path": paths, "file_format": formats}
    if "equality_ids" in rows.schema.names:
        columns["equality_ids"] = rows["equality_ids"]
    columns |= _detail_columns(rows, specs, detail, np.zeros(rows.num_rows, bool))
    return EntryTable.from_columns(columns, specs, rows.num_rows, detail)


def _vector_entries(
    rows: pa.Table, positions: Any, manifest: Manifest, specs: Specs, ordinal: int, detail: list[str]
) -> EntryTable:
    """Return the vectors of data files as delete files; each has the number of the snapshot that last changed it."""
    leaf = leaf_of(manifest)
    columns: dict[str, Any] = {u.column: rows[u.column] for u in specs.union}
    live = np.isin(rows["status"].to_numpy(), LIVE_STATUSES)
    changed_by = rows["dv_snapshot_id"]
    is_new = live & pc.fill_null(pc.equal(changed_by, manifest.added_snapshot_id), False).to_numpy()
    # A snapshot that has expired has no number: then the number of the data file is used.
    encoded = changed_by.combine_chunks().dictionary_encode()
    snapshot_numbers = pa.array([leaf.numbers.get(i) for i in encoded.dictionary.to_pylist()], pa.int64())
    numbers = pc.coalesce(snapshot_numbers.take(encoded.indices), rows["sequence_number"])
    columns |= {
        "manifest": ordinal,
        "row": positions,
        "spec_id": rows["spec_id"],
        "status": np.where(live, np.where(is_new, Status.ADDED, Status.EXISTING), Status.DELETED),
        "snapshot_id": pc.if_else(pa.array(live), pc.coalesce(changed_by, rows["snapshot_id"]), rows["snapshot_id"]),
        "sequence_number": numbers,
        "file_sequence_number": numbers,
        "content": int(Content.POSITION_DELETES),
        "file_path": resolve_manifest_paths(leaf.location, rows["vector_location"], manifest.file),
        "file_format": "PUFFIN",
        "record_count": rows["vector_cardinality"],
        "file_size_in_bytes": rows["vector_size"],  # the size of the Puffin file is unknown
        "referenced_data_file": resolve_manifest_paths(leaf.location, rows["location"], manifest.file),
        "content_offset": rows["vector_offset"],
        "content_size_in_bytes": rows["vector_size"],
    }
    if "key_metadata" in detail:
        columns["key_metadata"] = rows["vector_key"]
    return EntryTable.from_columns(columns, specs, rows.num_rows, detail)


def _detail_columns(
    rows: pa.Table, specs: Specs, names: Collection[str], of_vectors: np.ndarray[Any, Any]
) -> dict[str, Any]:
    """Return detail columns of rows; a vector has only its key metadata."""
    count = rows.num_rows
    metrics = {name: rows[name] for name in rows.schema.names if name.startswith("s") and "." in name}
    columns: dict[str, Any] = dict(statistics.as_maps(metrics, specs.schemas[0], count, names))
    for name in names:
        kind = DETAIL.field(name).type
        if name not in columns:
            columns[name] = fit_to_type(rows[name] if name in rows.schema.names else None, kind, count)
        if of_vectors.any():
            of_vector = rows["vector_key"].combine_chunks() if name == "key_metadata" else pa.scalar(None, kind)
            columns[name] = pc.if_else(pa.array(of_vectors), of_vector, columns[name])
    return columns
