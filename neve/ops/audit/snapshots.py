"""What a snapshot promises about its files taken together: totals, no file twice, no row id twice."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from neve.ops.audit.findings import Finding, Severity
from neve.ops.audit.snapshot_index import Ints, SnapshotFiles, SnapshotIndex
from neve.tree.entries import Content

_TOTALS: dict[str, tuple[Severity, tuple[int, ...]]] = {  # with the rows of `_totals_per_manifest` any of which will do
    "total-data-files": ("error", (0,)),
    "total-records": ("error", (1,)),
    "total-delete-files": ("error", (2,)),
    "total-position-deletes": ("error", (3,)),
    "total-equality-deletes": ("error", (4,)),
    "total-files-size": ("note", (5, 6)),  # writers differ in whether a vector counts as its blob or as its file
}


def snapshot_findings(index: SnapshotIndex, next_row_id: int | None) -> Iterator[Finding]:
    """Every promise a snapshot breaks; a snapshot with an unreadable manifest is not summed up."""
    yield from totals_agree(index)
    yield from files_are_listed_once(index)
    yield from row_ids_are_unique(index, next_row_id)


def totals_agree(index: SnapshotIndex) -> Iterator[Finding]:
    """The totals in a summary are those of the live files."""
    per_manifest = _totals_per_manifest(index)
    for tree in index.snapshots:
        if tree.snapshot.summary is None or not tree.is_complete:
            continue
        stated = tree.snapshot.summary.additional_properties
        for name, (severity, measures) in _TOTALS.items():
            found = [str(per_manifest[at, tree.manifest_ordinals].sum()) for at in measures]
            if name in stated and stated[name] not in found:
                says = f"says {name} {stated[name]}, not {found[0]}"
                message = f"The summary of snapshot {tree.snapshot.snapshot_id} {says}."
                yield Finding("summary", tree.path, message, severity)


def _totals_per_manifest(index: SnapshotIndex) -> NDArray[np.int64]:
    """For each total, what every manifest adds to it."""
    entries, live = index.entries, index.is_live
    content, rows = entries.numpy("content"), entries.numpy("record_count")
    is_position, is_equality = content == Content.POSITION_DELETES, content == Content.EQUALITY_DELETES
    blobs = entries["content_size_in_bytes"].fill_null(0).to_numpy()
    whole = entries.numpy("file_size_in_bytes")
    sizes = (np.where(index.is_vector & (blobs > 0), blobs, whole), whole)
    is_data = index.is_data
    measures = (is_data, rows * is_data, ~is_data, rows * is_position, rows * is_equality, *sizes)
    found = np.zeros((len(measures), len(index.manifests)), np.int64)
    for at, measure in enumerate(measures):
        np.add.at(found[at], entries.numpy("manifest")[live], measure.astype(np.int64)[live])
    return found


def files_are_listed_once(index: SnapshotIndex) -> Iterator[Finding]:
    """A data file that is live twice gives its rows twice; a data file has one vector."""
    seen: set[tuple[str, int]] = set()
    for tree in index.snapshots:
        rows = index.live_entry_rows(tree)
        data = index.file_numbers[rows[index.is_data[rows]]]
        named = index.referenced_file_numbers[rows[index.is_vector[rows]]]
        for kind, files in (("duplicate-file", data), ("duplicate-vector", named[named >= 0])):
            times = np.bincount(files)
            for number in np.flatnonzero(times > 1).tolist():
                if (kind, number) not in seen:
                    seen.add((kind, number))
                    yield _repeated(kind, index.paths[number].as_py(), int(times[number]), tree)


def _repeated(kind: str, path: str, count: int, tree: SnapshotFiles) -> Finding:
    where = f"in snapshot {tree.snapshot.snapshot_id}"
    what = f"Live {count} times {where}." if kind == "duplicate-file" else f"Has {count} deletion vectors {where}."
    return Finding(kind, path, what)


def row_ids_are_unique(index: SnapshotIndex, next_row_id: int | None) -> Iterator[Finding]:
    """No two live files share a row id, and none has one that was not handed out."""
    column = index.entries["first_row_id"]
    if next_row_id is None or column.null_count == len(column):
        return
    first = column.fill_null(-1).to_numpy()
    end = first + index.entries.numpy("record_count")
    in_order = np.argsort(first, kind="stable")
    tracked = in_order[(index.is_live & index.is_data & (first >= 0) & (end > first))[in_order]]
    for row in tracked[end[tracked] > next_row_id]:
        message = f"Has row ids up to {end[row]}; the table's next row id is {next_row_id}."
        yield Finding("row-ids", index.entries["file_path"][int(row)].as_py(), message)
    yield from _row_id_overlaps(index, tracked, first, end)


def _row_id_overlaps(index: SnapshotIndex, tracked: Ints, first: Ints, end: Ints) -> Iterator[Finding]:
    """Files of one snapshot whose row ids overlap; `tracked` is in the order of the first row id."""
    seen: set[tuple[int, int]] = set()
    paths, manifests = index.entries["file_path"], index.entries.numpy("manifest")
    for tree in index.snapshots:
        rows = tracked[np.isin(manifests[tracked], tree.manifest_ordinals)]
        reached = np.maximum.accumulate(end[rows]) if len(rows) else rows
        for at in np.flatnonzero(first[rows[1:]] < reached[:-1]) + 1:
            pair = int(index.file_numbers[rows[at - 1]]), int(index.file_numbers[rows[at]])
            if pair not in seen and pair[0] != pair[1]:
                seen.add(pair)
                message = f"Shares row ids from {first[rows[at]]} on with {paths[int(rows[at - 1])].as_py()}."
                yield Finding("row-ids", paths[int(rows[at])].as_py(), message)
