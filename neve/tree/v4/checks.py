"""What tracked-file rows must say before they are believed; errors name the file and the row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import CorruptFile, TableError, UnsupportedFeature
from neve.io.parquet_by_field_id import IdTable
from neve.io.paths import resolve_path, resolve_path_all
from neve.tree.entries import LIVE_STATUSES, EntryTable, Manifest, Status
from neve.tree.v4.fields import COLUMN_FILE_FIELD_IDS, FORMAT_VERSION, ContentType

_REQUIRED = (
    "status",
    "content_type",
    "format_version",
    "location",
    "file_format",
    "record_count",
    "file_size_in_bytes",
)
_FILES = (ContentType.DATA, ContentType.EQUALITY_DELETES)
_MANIFESTS = (ContentType.DATA_MANIFEST, ContentType.DELETE_MANIFEST)

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def check_rows(rows: pa.Table, path: str) -> None:
    """Refuse rows of any manifest whose values no version 4 writer may write, as far as they were read."""
    for name in _REQUIRED:
        if name in rows.schema.names and rows[name].null_count:
            _refuse(path, rows[name].is_null(), f"a {name} in every row", lambda _: "none")
    status, content, version = (rows[name].to_numpy() for name in ("status", "content_type", "format_version"))
    known = (status >= Status.EXISTING) & (status <= Status.MODIFIED)
    _refuse(path, ~known, "a status of 0 to 4", lambda row: f"status {status[row]}")
    newer = version > FORMAT_VERSION
    if newer.any():
        row = int(np.flatnonzero(newer)[0])
        raise UnsupportedFeature(
            f"Row {row} of {path} is of format version {version[row]}; this engine knows versions up to 4."
        )
    position = content == ContentType.POSITION_DELETES
    _refuse(path, position, "no position delete files in a version 4 manifest", lambda row: f"content type {1}")
    _refuse(path, (content < 0) | (content > 4), "a content type of 0 to 4", lambda row: f"content type {content[row]}")


def check_leaf(rows: pa.Table, path: str, *, as_is: bool = False) -> None:
    """Refuse rows that a leaf cannot have; a tree has two levels at most."""
    check_rows(rows, path)
    content = rows["content_type"].to_numpy()
    _refuse(path, np.isin(content, _MANIFESTS), "files in a leaf", lambda row: f"a manifest (content {content[row]})")
    if not as_is:
        check_sequence_numbers(rows, path)


def check_root(rows: pa.Table, path: str) -> None:
    """Refuse rows that a root cannot have: nothing above it could give them what they leave out."""
    check_rows(rows, path)
    live = np.isin(rows["status"].to_numpy(), LIVE_STATUSES)
    for name in ("snapshot_id", "sequence_number", "file_sequence_number"):
        _refuse(path, live & rows[name].is_null().to_numpy(), f"a {name} in every row of a root", lambda _: "none")
    is_manifest = live & np.isin(rows["content_type"].to_numpy(), _MANIFESTS)
    _refuse(
        path, is_manifest & rows["added_files"].is_null().to_numpy(), "manifest_info of every leaf", lambda _: "none"
    )
    own, file = (pc.fill_null(rows[n], -1).to_numpy() for n in ("sequence_number", "file_sequence_number"))
    _refuse(
        path, is_manifest & (own != file), "equal sequence numbers of a leaf", lambda row: f"{own[row]} and {file[row]}"
    )
    refuse_repeated_rows(path, rows)


def check_sequence_numbers(rows: pa.Table, path: str) -> None:
    """Only new rows may leave their numbers to be inherited."""
    inherits = rows["status"].to_numpy() == Status.ADDED
    for name in (n for n in ("sequence_number", "file_sequence_number") if rows[n].null_count):
        lacking = ~inherits & rows[name].is_null().to_numpy()
        _refuse(path, lacking, f"a {name} in every row that is not new", lambda _: "none")


def refuse_repeated_rows(path: str, rows: pa.Table, row_positions: Any = None) -> None:
    """Refuse two live rows of one manifest for one location; `places` are the positions of the rows in the file."""
    live = np.flatnonzero(np.isin(rows["status"].to_numpy(), LIVE_STATUSES))
    found = rows["location"].take(pa.array(live)) if len(live) < rows.num_rows else rows["location"]
    if pc.count_distinct(found).as_py() == len(live):
        return
    at = live if row_positions is None else row_positions[live]
    encoded = found.combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    again = np.setdiff1d(np.arange(len(live)), np.unique(codes, return_index=True)[1])[0]
    first = int(np.flatnonzero(codes == codes[again])[0])
    where = encoded.dictionary[int(codes[again])].as_py()
    raise CorruptFile(path, "one live row for each location", f"row {at[first]} and row {at[again]} for {where}")


def refuse_files_tracked_twice(entries: EntryTable, manifests: Sequence[Manifest]) -> None:
    """Refuse a data file that two live rows track: its rows would be read twice, or with one of two vectors."""
    live = np.isin(entries.numpy("status"), LIVE_STATUSES)
    paths = entries["file_path"] if live.all() else entries["file_path"].filter(pa.array(live))
    if pc.count_distinct(paths).as_py() == len(paths):
        return
    places = np.flatnonzero(live)
    codes = paths.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    again = np.setdiff1d(np.arange(len(places)), np.unique(codes, return_index=True)[1])[0]
    first = int(np.flatnonzero(codes == codes[again])[0])
    ordinals, rows = entries.numpy("manifest")[places], entries.numpy("row")[places]
    one, other = (f"row {rows[i]} of {manifests[int(ordinals[i])].file}" for i in (first, int(again)))
    raise CorruptFile(
        manifests[int(ordinals[int(again)])].file,
        "one live row for each location",
        f"{paths[int(again)].as_py()} in {one} and in {other}",
    )


def refuse_column_files(table: IdTable) -> None:
    """Refuse rows with column files: parts of their columns lie elsewhere, and nothing here reads them there."""
    for own, ids in table.layout.struct_lists.items():
        if ids & COLUMN_FILE_FIELD_IDS:
            _refuse_non_empty_list(table, table.read([own])[own])


def _refuse_non_empty_list(table: IdTable, lists: pa.Array) -> None:
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    if lengths.any():
        row = int(np.flatnonzero(lengths)[0])
        raise UnsupportedFeature(
            f"Row {row} of {table.path} has column files, which this engine cannot read. "
            "Rewrite the data file with the engine that wrote them."
        )


def resolve_manifest_paths(location: str, paths: Any, path: str) -> pa.Array:
    """The absolute form of the paths in a manifest; one that leads out of the table names its row."""
    try:
        return resolve_path_all(location, paths)
    except TableError as e:
        for row, one in enumerate(paths.to_pylist()):
            try:
                if one is not None:
                    resolve_path(location, one)
            except TableError:
                raise CorruptFile(path, "paths inside the table", f"row {row} with {one!r}") from e
        raise


def _refuse(path: str, wrong: Any, expected: str, found: Callable[[int], str]) -> None:
    mask = wrong.to_numpy() if isinstance(wrong, pa.ChunkedArray) else np.asarray(wrong)
    if mask.any():
        row = int(np.flatnonzero(mask)[0])
        raise CorruptFile(path, expected, f"{found(row)} in row {row}")
