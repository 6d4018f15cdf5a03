"""Check tracked-file rows as they are read, as the bytes are not trusted; errors name the file and the row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import CorruptFile, TableError, UnsupportedFeature
from neve.io.parquet_by_field_id import IdTable
from neve.io.paths import resolve_path, resolve_path_all
from neve.tree.entries import LIVE_STATUSES, MANIFESTS, Content, EntryTable, Manifest, Status, value_codes
from neve.tree.v4.fields import COLUMN_FILE_FIELD_IDS, FIXED_FIELDS, FORMAT_VERSION, MANIFEST_INFO, VECTOR

_REQUIRED = [f.column for f in FIXED_FIELDS if f.required and f.ids[0] not in (VECTOR, MANIFEST_INFO)]

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def check_rows(rows: pa.Table, path: str) -> None:
    """Reject rows of any manifest with values that no version 4 writer may write; columns not read are not checked."""
    for name in _REQUIRED:
        if name in rows.schema.names and rows[name].null_count:
            _refuse(path, rows[name].is_null(), f"a {name} in every row")
    status, content, version = (rows[name].to_numpy() for name in ("status", "content_type", "format_version"))
    is_valid = (status >= Status.EXISTING) & (status <= Status.MODIFIED)
    _refuse(path, ~is_valid, "a status of 0 to 4", lambda row: f"status {status[row]}")
    newer = version > FORMAT_VERSION
    if newer.any():
        row = int(np.flatnonzero(newer)[0])
        raise UnsupportedFeature(
            f"Row {row} of {path} is of format version {version[row]}; this engine supports versions up to 4."
        )
    is_position_deletes = content == Content.POSITION_DELETES
    _refuse(path, is_position_deletes, "no position delete files in a version 4 manifest", lambda _: "content type 1")
    _refuse(path, (content < 0) | (content > 4), "a content type of 0 to 4", lambda row: f"content type {content[row]}")


def check_leaf(rows: pa.Table, path: str, *, as_is: bool = False) -> None:
    """Reject rows that a leaf cannot have; a tree has two levels at most."""
    check_rows(rows, path)
    content = rows["content_type"].to_numpy()
    _refuse(path, np.isin(content, MANIFESTS), "files in a leaf", lambda row: f"a manifest (content {content[row]})")
    if not as_is:
        check_sequence_numbers(rows, path)


def check_root(rows: pa.Table, path: str) -> None:
    """Reject rows that a root cannot have: there is nothing above it that they could inherit missing values from."""
    check_rows(rows, path)
    live = np.isin(rows["status"].to_numpy(), LIVE_STATUSES)
    for name in ("snapshot_id", "sequence_number", "file_sequence_number"):
        _refuse(path, live & rows[name].is_null().to_numpy(), f"a {name} in every row of a root")
    is_manifest = live & np.isin(rows["content_type"].to_numpy(), MANIFESTS)
    _refuse(path, is_manifest & rows["added_files"].is_null().to_numpy(), "manifest_info of every leaf")
    own, file = (pc.fill_null(rows[n], -1).to_numpy() for n in ("sequence_number", "file_sequence_number"))
    _refuse(
        path, is_manifest & (own != file), "equal sequence numbers of a leaf", lambda row: f"{own[row]} and {file[row]}"
    )
    refuse_repeated_rows(path, rows)


def check_sequence_numbers(rows: pa.Table, path: str) -> None:
    """Reject rows that are not new and have no sequence numbers: only new rows inherit them."""
    inherits = rows["status"].to_numpy() == Status.ADDED
    for name in (n for n in ("sequence_number", "file_sequence_number") if rows[n].null_count):
        incomplete = ~inherits & rows[name].is_null().to_numpy()
        _refuse(path, incomplete, f"a {name} in every row that is not new")


def refuse_repeated_rows(path: str, rows: pa.Table, row_positions: Any = None) -> None:
    """Reject two live rows of one manifest for one location; `row_positions` are the positions in the file."""
    live = np.flatnonzero(np.isin(rows["status"].to_numpy(), LIVE_STATUSES))
    locations = rows["location"].take(pa.array(live)) if len(live) < rows.num_rows else rows["location"]
    if pc.count_distinct(locations).as_py() == len(live):
        return
    numbers = live if row_positions is None else row_positions[live]
    first, again = _first_repetition(locations)
    found = f"row {numbers[first]} and row {numbers[again]} for {locations[again].as_py()}"
    raise CorruptFile(path, "one live row for each location", found)


def _first_repetition(values: pa.ChunkedArray) -> tuple[int, int]:
    """Return the positions of the first value that repeats an earlier one: of the earlier one, and its own."""
    codes, _ = value_codes(values)
    again = int(np.setdiff1d(np.arange(len(codes)), np.unique(codes, return_index=True)[1])[0])
    return int(np.flatnonzero(codes == codes[again])[0]), again


def refuse_files_tracked_twice(entries: EntryTable, manifests: Sequence[Manifest]) -> None:
    """Reject a data file that two live rows track: its rows would be read twice, or with one of two vectors."""
    live = np.isin(entries.numpy("status"), LIVE_STATUSES)
    paths = entries["file_path"] if live.all() else entries["file_path"].filter(pa.array(live))
    if pc.count_distinct(paths).as_py() == len(paths):
        return
    repeated = _first_repetition(paths)
    pair = np.flatnonzero(live)[list(repeated)]
    one, other = (manifests[int(ordinal)].file for ordinal in entries.numpy("manifest")[pair])
    row_in_one, row_in_other = entries.numpy("row")[pair]
    where = f"row {row_in_one} of {one} and in row {row_in_other} of {other}"
    raise CorruptFile(other, "one live row for each location", f"{paths[repeated[1]].as_py()} in {where}")


def refuse_column_files(table: IdTable) -> None:
    """Reject rows with column files: some of their columns are in other files, which this engine does not read."""
    for own, ids in table.layout.struct_lists.items():
        if not ids & COLUMN_FILE_FIELD_IDS:
            continue
        lengths = pc.fill_null(pc.list_value_length(table.read([own])[own]), 0).to_numpy(zero_copy_only=False)
        if lengths.any():
            raise UnsupportedFeature(
                f"Row {np.flatnonzero(lengths)[0]} of {table.path} has column files, which this engine cannot read. "
                "Rewrite the data file with the engine that wrote them."
            )


def resolve_manifest_paths(location: str, paths: Any, path: str) -> pa.Array:
    """Return the absolute paths of those in a manifest; the error for one outside the table names its row."""
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


def _refuse(path: str, wrong: Any, expected: str, found: Callable[[int], str] = lambda row: "none") -> None:
    mask = wrong.to_numpy() if isinstance(wrong, pa.ChunkedArray) else np.asarray(wrong)
    if mask.any():
        row = int(np.flatnonzero(mask)[0])
        raise CorruptFile(path, expected, f"{found(row)} in row {row}")
