"""Check table metadata and the summaries of snapshots.

`metadata_findings` needs the table metadata only. `snapshot_findings` looks at all files of each snapshot together:
the totals are right, no file is listed twice, and no row id is used twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from neve.model.metadata import TableMetadata
from neve.ops.audit.findings import Finding, Severity
from neve.ops.audit.snapshot_index import Ints, SnapshotIndex
from neve.tree.entries import Content


def metadata_findings(metadata: TableMetadata, path: str) -> Iterator[Finding]:
    """Return all violations in the table metadata at a path."""
    yield from defaults_exist(metadata, path)
    yield from references_point_at_snapshots(metadata, path)
    yield from snapshots_are_distinct(metadata, path)
    yield from sequence_numbers_ascend(metadata, path)
    yield from ancestry_ends(metadata, path)
    yield from snapshot_schemas_exist(metadata, path)
    yield from row_ids_are_reserved(metadata, path)


def defaults_exist(metadata: TableMetadata, path: str) -> Iterator[Finding]:
    """Check that the current schema, the default spec and the default sort order are listed."""
    uses = {
        "schema": (metadata.current_schema_id, {s.schema_id for s in metadata.schemas}),
        "spec": (metadata.default_spec_id, {s.spec_id for s in metadata.partition_specs}),
        "sort-order": (metadata.default_sort_order_id, {s.order_id for s in metadata.sort_orders}),
    }
    for kind, (used, listed) in uses.items():
        if used not in listed:
            yield Finding(f"unknown-{kind}", path, f"The table uses {kind} {used}, but lists {sorted(listed)}.")


def references_point_at_snapshots(metadata: TableMetadata, path: str) -> Iterator[Finding]:
    """Check that branches, tags and the current snapshot exist; a log entry may outlive its snapshot."""
    snapshot_ids = {s.snapshot_id for s in metadata.snapshots}
    references = {f"Reference {name!r}": ref.snapshot_id for name, ref in metadata.refs.items()}
    if metadata.current_snapshot_id is not None:
        references["The current snapshot"] = metadata.current_snapshot_id
    for what, snapshot_id in references.items():
        if snapshot_id not in snapshot_ids:
            yield Finding("unknown-snapshot", path, f"{what} is {snapshot_id}, which is not among the snapshots.")
    for snapshot_id in dict.fromkeys(e.snapshot_id for e in metadata.snapshot_log):
        if snapshot_id not in snapshot_ids:
            message = f"The snapshot log names {snapshot_id}, which is not among the snapshots."
            yield Finding("snapshot-log", path, message, "note")


def snapshots_are_distinct(metadata: TableMetadata, path: str) -> Iterator[Finding]:
    """Check that no two snapshots share an id."""
    for snapshot_id, times in Counter(s.snapshot_id for s in metadata.snapshots).items():
        if times > 1:
            yield Finding("duplicate-snapshot", path, f"Snapshot {snapshot_id} is listed {times} times.")


def sequence_numbers_ascend(metadata: TableMetadata, path: str) -> Iterator[Finding]:
    """Check that no snapshot is numbered above the table, nor at or below its parent; in v1 every number is 0."""
    last = getattr(metadata, "last_sequence_number", 0)
    by_id = {s.snapshot_id: s for s in metadata.snapshots}
    for snapshot in metadata.snapshots:
        number = snapshot.sequence_number or 0
        if number > last:
            message = f"Snapshot {snapshot.snapshot_id} is numbered {number}, above the table's last number {last}."
            yield Finding("sequence-number", path, message)
        parent = by_id.get(snapshot.parent_snapshot_id or -1)
        if parent is not None and parent is not snapshot and 0 < number <= (parent.sequence_number or 0):
            message = f"Snapshot {snapshot.snapshot_id} is numbered {number}, not above its parent's number."
            yield Finding("sequence-number", path, message)


def ancestry_ends(metadata: TableMetadata, path: str) -> Iterator[Finding]:
    """Check that no snapshot is its own ancestor; an expired parent ends the walk."""
    parents = {s.snapshot_id: s.parent_snapshot_id for s in metadata.snapshots}
    visited: set[int] = set()
    for start in parents:
        walk: dict[int, None] = {}
        at: int | None = start
        while at is not None and at in parents and at not in visited and at not in walk:
            walk[at] = None
            at = parents[at]
        if at is not None and at in walk:
            yield Finding("parent", path, f"Snapshot {at} is an ancestor of itself.")
        visited |= walk.keys()


def snapshot_schemas_exist(metadata: TableMetadata, path: str) -> Iterator[Finding]:
    """Check that the schema of each snapshot is still listed."""
    schema_ids = {s.schema_id for s in metadata.schemas}
    for snapshot in metadata.snapshots:
        if snapshot.schema_id is not None and snapshot.schema_id not in schema_ids:
            message = f"Snapshot {snapshot.snapshot_id} was written with schema {snapshot.schema_id}, which is unknown."
            yield Finding("unknown-schema", path, message)


def row_ids_are_reserved(metadata: TableMetadata, path: str) -> Iterator[Finding]:
    """Check that the row ids of a snapshot are below the next free one, and that no two snapshots took the same."""
    free = getattr(metadata, "next_row_id", None)
    if free is None:
        return
    taken = sorted(
        (s.first_row_id, s.first_row_id + (s.added_rows or 0), s.snapshot_id)
        for s in metadata.snapshots
        if s.first_row_id is not None
    )
    for _, end, snapshot_id in taken:
        if end > free:
            message = f"Snapshot {snapshot_id} took row ids up to {end}, but the table's next row id is {free}."
            yield Finding("row-ids", path, message)
    for (_, end, one), (start, _, other) in pairwise(taken):
        if start < end:
            yield Finding("row-ids", path, f"Snapshots {one} and {other} took the same row ids from {start} on.")


# -- the files of a snapshot -------------------------------------------------------------------------------------------

_TOTALS: dict[str, tuple[Severity, tuple[int, ...]]] = {  # rows of `_totals_per_manifest`; one must match
    "total-data-files": ("error", (0,)),
    "total-records": ("error", (1,)),
    "total-delete-files": ("error", (2,)),
    "total-position-deletes": ("error", (3,)),
    "total-equality-deletes": ("error", (4,)),
    "total-files-size": ("note", (5, 6)),  # writers differ in whether a vector counts as its blob or as its file
}


def snapshot_findings(index: SnapshotIndex, next_row_id: int | None) -> Iterator[Finding]:
    """Return all violations in the files of the snapshots; totals need a snapshot whose manifests are all readable."""
    yield from totals_agree(index)
    yield from files_are_listed_once(index)
    yield from row_ids_are_unique(index, next_row_id)


def totals_agree(index: SnapshotIndex) -> Iterator[Finding]:
    """Check that the totals in a summary are those of the live files."""
    per_manifest = _totals_per_manifest(index)
    for tree in index.snapshots:
        if tree.snapshot.summary is None or not tree.is_complete:
            continue
        stated = tree.snapshot.summary.additional_properties
        for name, (severity, measures) in _TOTALS.items():
            actual = [str(per_manifest[at, tree.manifest_ordinals].sum()) for at in measures]
            if name in stated and stated[name] not in actual:
                what = f"The summary of snapshot {tree.snapshot.snapshot_id}"
                message = f"{what} says {name} {stated[name]}, not {actual[0]}."
                yield Finding("summary", tree.path, message, severity)


def _totals_per_manifest(index: SnapshotIndex) -> Ints:
    """Return the share of every manifest in each total."""
    entries, live = index.entries, index.is_live
    content, rows = entries.numpy("content"), entries.numpy("record_count")
    is_position, is_equality = content == Content.POSITION_DELETES, content == Content.EQUALITY_DELETES
    blobs = entries["content_size_in_bytes"].fill_null(0).to_numpy()
    file_sizes = entries.numpy("file_size_in_bytes")
    sizes = (np.where(index.is_vector & (blobs > 0), blobs, file_sizes), file_sizes)
    is_data = index.is_data
    measures = (is_data, rows * is_data, ~is_data, rows * is_position, rows * is_equality, *sizes)
    totals = np.zeros((len(measures), len(index.manifests)), np.int64)
    for at, measure in enumerate(measures):
        np.add.at(totals[at], entries.numpy("manifest")[live], measure.astype(np.int64)[live])
    return totals


def files_are_listed_once(index: SnapshotIndex) -> Iterator[Finding]:
    """Check that no data file is live twice (its rows would be read twice), and that each has one vector at most."""
    seen: set[tuple[str, int]] = set()
    for tree in index.snapshots:
        rows = index.live_entry_rows(tree)
        data = index.file_numbers[rows[index.is_data[rows]]]
        referenced = index.referenced_file_numbers[rows[index.is_vector[rows]]]
        for kind, files in (("duplicate-file", data), ("duplicate-vector", referenced[referenced >= 0])):
            times = np.bincount(files)
            for number in np.flatnonzero(times > 1).tolist():
                if (kind, number) not in seen:
                    seen.add((kind, number))
                    count, where = int(times[number]), f"in snapshot {tree.snapshot.snapshot_id}"
                    message = f"Live {count} times" if kind == "duplicate-file" else f"Has {count} deletion vectors"
                    yield Finding(kind, index.paths[number].as_py(), f"{message} {where}.")


def row_ids_are_unique(index: SnapshotIndex, next_row_id: int | None) -> Iterator[Finding]:
    """Check that no two live files share a row id, and that every row id was handed out."""
    column = index.entries["first_row_id"]
    if next_row_id is None or column.null_count == len(column):
        return
    first = column.fill_null(-1).to_numpy()
    end = first + index.entries.numpy("record_count")
    in_order = np.argsort(first, kind="stable")
    tracked = in_order[(index.is_live & index.is_data & (first >= 0) & (end > first))[in_order]]
    paths, manifests = index.entries["file_path"], index.entries.numpy("manifest")
    for row in tracked[end[tracked] > next_row_id]:
        message = f"Has row ids up to {end[row]}; the table's next row id is {next_row_id}."
        yield Finding("row-ids", paths[int(row)].as_py(), message)
    seen: set[tuple[int, int]] = set()
    for tree in index.snapshots:
        rows = tracked[np.isin(manifests[tracked], tree.manifest_ordinals)]
        reached = np.maximum.accumulate(end[rows]) if len(rows) else rows
        for at in np.flatnonzero(first[rows[1:]] < reached[:-1]) + 1:
            pair = int(index.file_numbers[rows[at - 1]]), int(index.file_numbers[rows[at]])
            if pair not in seen and pair[0] != pair[1]:
                seen.add(pair)
                message = f"Shares row ids from {first[rows[at]]} on with {paths[int(rows[at - 1])].as_py()}."
                yield Finding("row-ids", paths[int(rows[at])].as_py(), message)
