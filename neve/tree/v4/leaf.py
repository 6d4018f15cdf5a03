"""From tracked-file rows to entries: the side of the data files, and the side of the deletes beside them.

A row that tracks a data file together with its deletion vector is two entries above the tree: the data file in one
manifest, the vector in another, both at the position of the row. What a row leaves to be inherited is filled in first.
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
from neve.tree.entries import DETAIL, LIVE_STATUSES, Content, EntryTable, Leaf, Manifest, Status, distinct_spec_ids
from neve.tree.v4 import statistics
from neve.tree.v4.checks import check_leaf, refuse_column_files, refuse_repeated_rows, resolve_manifest_paths
from neve.tree.v4.fields import ContentType
from neve.tree.v4.rows import read_rows, set_where

_TRACKING = ("status", "snapshot_id", "sequence_number", "file_sequence_number", "first_row_id")
_FILE = ("content_type", "format_version", "location", "file_format", "record_count", "file_size_in_bytes", "spec_id")
_VECTOR = ("dv_snapshot_id", "vector_location", "vector_offset", "vector_size", "vector_cardinality", "vector_key")
_DATA_VIEW = (*_TRACKING, *_FILE, "sort_order_id")
_DELETES_VIEW = (*_TRACKING, *_FILE, "sort_order_id", "equality_ids", *_VECTOR)
_ROWS = (*_DELETES_VIEW, "key_metadata", "split_offsets")
METRIC_BY_DETAIL = {
    "value_counts": 4,
    "null_value_counts": 5,
    "nan_value_counts": 6,
    "lower_bounds": 1,
    "upper_bounds": 2,
}


def open_leaf(io: FileIO, manifest: Manifest) -> IdTable:
    """The file of a leaf, once it is as long as the root says; on a disk of ours only what is asked for is read."""
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
    return open_id_table(data, manifest.file)


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
    """The entries a manifest of the tree shows; details only of those that `where` chooses."""
    leaf = leaf_of(manifest)
    asked = [n for n in DETAIL.names if n in set(detail)]
    early = () if where is not None and leaf.rows is None else asked
    if leaf.rows is not None:
        table, rows = None, leaf.rows
    else:
        table = open_leaf(io, manifest)
        refuse_column_files(table)
        names = (*(_DELETES_VIEW if manifest.is_deletes else _DATA_VIEW), *_columns_without_metrics(early))
        rows = read_rows(table, specs, names, metrics=_metrics(early), columns=columns)
        check_leaf(rows, manifest.file, as_is=as_is)
    places = np.arange(rows.num_rows, dtype=np.int32)
    rows = with_row_ids(fill_inherited(fill_spec_ids(rows, specs, manifest.file), manifest), manifest)
    rows, places = _visible_rows(rows, places, leaf, manifest.file)
    if not as_is and not repeats_allowed:
        refuse_repeated_rows(manifest.file, rows, places)
    entries = _entries_of_view(rows, places, manifest, specs, ordinal, list(early))
    entries = entries.live() if live_only else entries
    if table is None or where is None or not asked:
        return entries
    return _with_details_where(entries, table, specs, asked, np.asarray(where(entries), bool), columns)


def _with_details_where(
    entries: EntryTable, table: IdTable, specs: Specs, names: list[str], mask: Any, columns: Collection[int] | None
) -> EntryTable:
    """The entries with the details of those chosen, and null for the others."""
    if not mask.any():
        return entries.with_columns(**dict.fromkeys(names))
    own = entries.filter(pa.array(mask))
    found = _read_table_details(table, specs, own.numpy("row"), own.numpy("content"), names, columns)
    return entries.with_columns(
        **{name: _spread_over_rows(found.column(name).combine_chunks(), mask) for name in names}
    )


def _spread_over_rows(values: pa.Array, mask: np.ndarray[Any, Any]) -> pa.Array:
    """One value for each chosen row and null for the others; the items of lists stay where they are."""
    if not pa.types.is_list(values.type):
        return values.take(pa.array(np.cumsum(mask) - 1, mask=~mask))
    lengths, absent = np.zeros(len(mask) + 1, np.int32), ~mask
    lengths[1:][mask] = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    absent[mask] = values.is_null().to_numpy(zero_copy_only=False)
    offsets = pa.array(np.cumsum(lengths, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, pc.list_flatten(values), type=values.type, mask=pa.array(absent))


def _metrics(detail: Collection[str]) -> list[int]:
    return [METRIC_BY_DETAIL[name] for name in detail if name in METRIC_BY_DETAIL]


def read_leaf_details(
    io: FileIO, manifest: Manifest, specs: Specs, row_positions: Any, contents: Any, names: Collection[str]
) -> pa.Table:
    """Detail columns of some rows of a leaf, in the order given; the content of an entry tells which side it shows."""
    leaf = leaf_of(manifest)
    if leaf.rows is not None:
        return _details_from_rows(leaf.rows.take(pa.array(row_positions, pa.int64())), specs, contents, names)
    return _read_table_details(open_leaf(io, manifest), specs, row_positions, contents, names, None)


def _read_table_details(
    table: IdTable,
    specs: Specs,
    row_positions: Any,
    contents: Any,
    names: Collection[str],
    columns: Collection[int] | None,
) -> pa.Table:
    rows = read_rows(
        table,
        specs,
        (*_columns_without_metrics(names), "vector_key"),
        metrics=_metrics(names),
        partitions=False,
        rows=row_positions,
        columns=columns,
    )
    return _details_from_rows(rows, specs, contents, names)


def _details_from_rows(rows: pa.Table, specs: Specs, contents: Any, names: Collection[str]) -> pa.Table:
    of_vectors = np.asarray(contents) == Content.POSITION_DELETES
    found = _detail_columns(rows, specs, names, of_vectors)
    return pa.table([found[n] for n in names], schema=pa.schema([DETAIL.field(n) for n in names]))


def read_complete_rows(io: FileIO, manifest: Manifest, specs: Specs) -> pa.Table:
    """All that a leaf says of its rows, with what they inherit filled in, as a writer carries them."""
    leaf = leaf_of(manifest)
    if leaf.rows is not None:
        return leaf.rows
    table = open_leaf(io, manifest)
    refuse_column_files(table)
    rows = read_rows(table, specs, _ROWS, metrics=tuple(statistics.METRICS))
    check_leaf(rows, manifest.file)
    return with_row_ids(fill_inherited(fill_spec_ids(rows, specs, manifest.file), manifest), manifest)


def hidden_rows(manifest: Manifest) -> np.ndarray[Any, Any]:
    """The positions of rows that the root says are not live."""
    leaf = leaf_of(manifest)
    return np.zeros(0, np.int64) if leaf.hidden_bitmap is None else decode_positions(leaf.hidden_bitmap, manifest.file)


def leaf_of(manifest: Manifest) -> Leaf:
    """What the reader of a manifest has to know beyond its row."""
    return Leaf(manifest.path) if manifest.leaf is None else manifest.leaf


def _columns_without_metrics(detail: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in ("key_metadata", "split_offsets") if name in detail)


def fill_spec_ids(rows: pa.Table, specs: Specs, path: str) -> pa.Table:
    """The rows with a spec each: a row that names none is of the unpartitioned spec. Tuples keep their own fields."""
    if rows["spec_id"].null_count:
        plain = [s for s in sorted(specs.by_id) if specs.is_unpartitioned(s)]
        if not plain:
            row = int(np.flatnonzero(rows["spec_id"].is_null().to_numpy())[0])
            raise CorruptFile(path, "a spec_id in every row, as the table has no unpartitioned spec", f"none in {row}")
        rows = set_where(rows, rows["spec_id"].is_null().to_numpy(), spec_id=plain[0])
    known = distinct_spec_ids(rows["spec_id"])
    specs.refuse_unknown_specs(known, f"manifest {path}")
    for u in specs.union:
        if u.column in rows.schema.names and rows[u.column].null_count < rows.num_rows and {*known} - {*u.spec_ids}:
            foreign = ~np.isin(rows["spec_id"].to_numpy(), list(u.spec_ids))
            if rows[u.column].is_valid().to_numpy()[foreign].any():
                rows = set_where(rows, foreign, **{u.column: None})
    return rows


def fill_inherited(rows: pa.Table, manifest: Manifest) -> pa.Table:
    """The rows with what the row of their leaf gives them: snapshot id and numbers of new rows."""
    for name in ("sequence_number", "file_sequence_number"):
        values = rows[name]
        if values.null_count and manifest.sequence_number >= 0:
            is_new = pa.array(rows["status"].to_numpy() == Status.ADDED)
            number = pa.scalar(manifest.sequence_number, pa.int64())
            rows = _set_column(rows, name, pc.if_else(pc.and_(values.is_null(), is_new), number, values))
    if rows["snapshot_id"].null_count and manifest.added_snapshot_id is not None:
        rows = _set_column(rows, "snapshot_id", pc.fill_null(rows["snapshot_id"], manifest.added_snapshot_id))
    return rows


def with_row_ids(rows: pa.Table, manifest: Manifest) -> pa.Table:
    """All rows of a leaf with the row ids that the row of the leaf gives them."""
    first = first_row_ids(rows, rows["first_row_id"], manifest)
    return rows if first is None else _set_column(rows, "first_row_id", first)


def first_row_ids(rows: pa.Table, stated: pa.ChunkedArray, manifest: Manifest) -> pa.Array | None:
    """Row ids go to live rows that have none, in file order; a row hidden later keeps the ids it was given.

    All rows of the leaf have to be there. None: each row has what it states.
    """
    if manifest.first_row_id is None or not stated.null_count:
        return None
    status = rows["status"].to_numpy()
    waiting = rows["content_type"].to_numpy() == ContentType.DATA
    waiting &= (status != Status.DELETED) & (status != Status.REPLACED)
    if stated.null_count < len(stated):
        waiting &= stated.is_null().to_numpy()
    taken = rows["record_count"].to_numpy() * waiting
    absent = None if waiting.all() else ~waiting
    assigned = pa.array(manifest.first_row_id + np.cumsum(taken) - taken, pa.int64(), mask=absent)
    return pc.coalesce(stated.combine_chunks(), assigned) if stated.null_count < len(stated) else assigned


def _set_column(rows: pa.Table, name: str, values: Any) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), values)


def _visible_rows(rows: pa.Table, positions: Any, leaf: Leaf, path: str) -> tuple[pa.Table, Any]:
    """The rows that a manifest shows: without those hidden by the root, or those that were hidden last."""
    if leaf.hidden_bitmap is None and not leaf.shows_removed:
        return rows, positions
    if leaf.shows_removed:
        deleted, replaced = (_decode_row_positions(b, rows.num_rows, path) for b in leaf.removed_bitmaps)
        status = np.full(rows.num_rows, -1)
        status[deleted], status[replaced] = Status.DELETED, Status.REPLACED
        gone = status >= 0
        shown = set_where(rows, gone, status=pa.array(status[gone], pa.int32()), snapshot_id=leaf.hidden_by)
        return shown.filter(pa.array(gone)), positions[gone]
    keep = visible_row_mask(leaf, rows.num_rows, path)
    return rows.filter(pa.array(keep)), positions[keep]


def visible_row_mask(leaf: Leaf, rows: int, path: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which rows of a leaf the root does not hide."""
    keep = np.ones(rows, bool)
    if leaf.hidden_bitmap is not None:
        keep[_decode_row_positions(leaf.hidden_bitmap, rows, path)] = False
    return keep


def _decode_row_positions(bitmap: bytes | None, rows: int, path: str) -> np.ndarray[Any, Any]:
    found = np.zeros(0, np.int64) if bitmap is None else decode_positions(bitmap, path)
    if len(found) and found[-1] >= rows:
        raise CorruptFile(path, f"a manifest vector over {rows} rows", f"position {found[-1]}")
    return found


def _entries_of_view(
    rows: pa.Table, positions: Any, manifest: Manifest, specs: Specs, ordinal: int, detail: list[str]
) -> EntryTable:
    content = rows["content_type"].to_numpy()
    if not manifest.is_deletes:
        is_data = content == ContentType.DATA
        if not is_data.all():
            rows, positions = rows.filter(pa.array(is_data)), positions[is_data]
        return _file_entries(rows, positions, manifest, specs, ordinal, detail)
    has_vector = rows["vector_location"].is_valid().to_numpy()
    is_equality = content == ContentType.EQUALITY_DELETES
    tables = [
        build(rows.filter(pa.array(mask)), positions[mask], manifest, specs, ordinal, detail)
        for mask, build in ((is_equality, _file_entries), (has_vector, _vector_entries))
        if mask.any()
    ]
    return EntryTable.concat(tables, specs) if tables else EntryTable.empty(specs, detail)


def _common_columns(rows: pa.Table, positions: Any, specs: Specs, ordinal: int) -> dict[str, Any]:
    columns: dict[str, Any] = {u.column: rows[u.column] for u in specs.union}
    return columns | {
        "manifest": np.full(rows.num_rows, ordinal, np.int32),
        "row": positions,
        "spec_id": rows["spec_id"],
    }


def _file_entries(
    rows: pa.Table, positions: Any, manifest: Manifest, specs: Specs, ordinal: int, detail: list[str]
) -> EntryTable:
    paths = resolve_manifest_paths(leaf_of(manifest).location, rows["location"], manifest.file)
    numbered = rows.append_column("manifest", pa.repeat(pa.scalar(ordinal, pa.int32()), rows.num_rows))
    return entries_from_file_rows(numbered.append_column("row", pa.array(positions, pa.int32())), paths, specs, detail)


def entries_from_file_rows(rows: pa.Table, paths: pa.Array, specs: Specs, detail: list[str]) -> EntryTable:
    """Rows of files, numbered by manifest and row, as entries."""
    same = ("manifest", "row", "spec_id", "record_count", "file_size_in_bytes", "sort_order_id")
    columns: dict[str, Any] = {name: rows[name] for name in (*_TRACKING, *same, *(u.column for u in specs.union))}
    columns |= {"content": rows["content_type"], "file_path": paths, "file_format": _upper(rows["file_format"])}
    if "equality_ids" in rows.schema.names:
        columns["equality_ids"] = rows["equality_ids"]
    columns |= _detail_columns(rows, specs, detail, np.zeros(rows.num_rows, bool))
    return EntryTable.from_columns(columns, specs, rows.num_rows, detail)


def _vector_entries(
    rows: pa.Table, positions: Any, manifest: Manifest, specs: Specs, ordinal: int, detail: list[str]
) -> EntryTable:
    """The vectors of data files as delete files of their own, numbered by the snapshot that last changed each."""
    leaf = leaf_of(manifest)
    own = _common_columns(rows, positions, specs, ordinal)
    live = np.isin(rows["status"].to_numpy(), LIVE_STATUSES)
    changed = rows["dv_snapshot_id"]
    is_new = live & pc.fill_null(pc.equal(changed, manifest.added_snapshot_id), False).to_numpy()
    numbers = pc.coalesce(_numbers(changed, leaf), rows["sequence_number"])
    own |= {
        "status": np.where(live, np.where(is_new, Status.ADDED, Status.EXISTING), Status.DELETED),
        "snapshot_id": pc.if_else(pa.array(live), pc.coalesce(changed, rows["snapshot_id"]), rows["snapshot_id"]),
        "sequence_number": numbers,
        "file_sequence_number": numbers,
        "content": int(Content.POSITION_DELETES),
        "file_path": resolve_manifest_paths(leaf.location, rows["vector_location"], manifest.file),
        "file_format": "PUFFIN",
        "record_count": rows["vector_cardinality"],
        "file_size_in_bytes": rows["vector_size"],  # of the file itself nothing is known
        "referenced_data_file": resolve_manifest_paths(leaf.location, rows["location"], manifest.file),
        "content_offset": rows["vector_offset"],
        "content_size_in_bytes": rows["vector_size"],
    }
    if "key_metadata" in detail:
        own["key_metadata"] = rows["vector_key"]
    return EntryTable.from_columns(own, specs, rows.num_rows, detail)


def _numbers(snapshot_ids: pa.ChunkedArray, leaf: Leaf) -> pa.Array:
    """The sequence number of each snapshot; null where it is not known any more."""
    encoded = snapshot_ids.combine_chunks().dictionary_encode()
    known = pa.array([leaf.numbers.get(i) for i in encoded.dictionary.to_pylist()], pa.int64())
    return known.take(encoded.indices)


def _upper(names: pa.ChunkedArray) -> pa.DictionaryArray:
    whole = names.combine_chunks()
    encoded = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices, pc.utf8_upper(encoded.dictionary))


def _detail_columns(
    rows: pa.Table, specs: Specs, names: Collection[str], of_vectors: np.ndarray[Any, Any]
) -> dict[str, Any]:
    """Detail columns of rows; of a vector nothing is known but its key."""
    count = rows.num_rows
    columns = {name: rows[name] for name in rows.schema.names if name.startswith("s") and "." in name}
    found: dict[str, Any] = dict(statistics.as_maps(columns, specs.schemas[0], count, names))
    for name in names:
        if name in rows.schema.names:
            found[name] = rows[name].combine_chunks().cast(DETAIL.field(name).type)
        found.setdefault(name, pa.nulls(count, DETAIL.field(name).type))
        if of_vectors.any():
            other = rows["vector_key"].combine_chunks() if name == "key_metadata" else pa.scalar(None, found[name].type)
            found[name] = pc.if_else(pa.array(of_vectors), other, found[name])
    return found
