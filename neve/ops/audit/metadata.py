"""What table metadata promises about itself, before any other file is opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

from pyiceberg.table.snapshots import Snapshot

from neve.model.metadata import TableMetadata
from neve.ops.audit.findings import Finding

Rule = Callable[[TableMetadata, str], Iterator[Finding]]


def metadata_findings(metadata: TableMetadata, path: str) -> Iterator[Finding]:
    """Every rule that the metadata at a path breaks."""
    for rule in RULES:
        yield from rule(metadata, path)


def defaults_exist(metadata: TableMetadata, path: str) -> Iterator[Finding]:
    """The current schema, the default spec and the default sort order are among those listed."""
    known = {
        "schema": (metadata.current_schema_id, {s.schema_id for s in metadata.schemas}),
        "spec": (metadata.default_spec_id, {s.spec_id for s in metadata.partition_specs}),
        "sort-order": (metadata.default_sort_order_id, {s.order_id for s in metadata.sort_orders}),
    }
    for kind, (chosen, listed) in known.items():
        if chosen not in listed:
            yield Finding(f"unknown-{kind}", path, f"The table uses {kind} {chosen}, but lists {sorted(listed)}.")


def references_point_at_snapshots(metadata: TableMetadata, path: str) -> Iterator[Finding]:
    """Branches, tags and the current snapshot exist; a log entry may outlive its snapshot."""
    known = {s.snapshot_id for s in metadata.snapshots}
    named = {f"Reference {name!r}": ref.snapshot_id for name, ref in metadata.refs.items()}
    if metadata.current_snapshot_id is not None:
        named["The current snapshot"] = metadata.current_snapshot_id
    for what, snapshot_id in named.items():
        if snapshot_id not in known:
            yield Finding("unknown-snapshot", path, f"{what} is {snapshot_id}, which is not among the snapshots.")
    for snapshot_id in dict.fromkeys(e.snapshot_id for e in metadata.snapshot_log):
        if snapshot_id not in known:
            message = f"The snapshot log names {snapshot_id}, which is not among the snapshots."
            yield Finding("snapshot-log", path, message, "note")


def snapshots_are_distinct(metadata: TableMetadata, path: str) -> Iterator[Finding]:
    """No two snapshots share an id."""
    for snapshot_id, times in Counter(s.snapshot_id for s in metadata.snapshots).items():
        if times > 1:
            yield Finding("duplicate-snapshot", path, f"Snapshot {snapshot_id} is listed {times} times.")


def sequence_numbers_ascend(metadata: TableMetadata, path: str) -> Iterator[Finding]:
    """No snapshot is numbered above the table, and none at or below its parent; v1 numbers everything 0."""
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
    """Following parents never comes back; a parent that was expired ends the walk."""
    parents = {s.snapshot_id: s.parent_snapshot_id for s in metadata.snapshots}
    cleared: set[int] = set()
    for start in parents:
        walk: dict[int, None] = {}
        at: int | None = start
        while at is not None and at in parents and at not in cleared and at not in walk:
            walk[at] = None
            at = parents[at]
        if at is not None and at in walk:
            yield Finding("parent", path, f"Snapshot {at} is an ancestor of itself.")
        cleared |= walk.keys()


def snapshots_know_their_schema(metadata: TableMetadata, path: str) -> Iterator[Finding]:
    """The schema a snapshot was written with is still listed."""
    known = {s.schema_id for s in metadata.schemas}
    for snapshot in metadata.snapshots:
        if snapshot.schema_id is not None and snapshot.schema_id not in known:
            message = f"Snapshot {snapshot.snapshot_id} was written with schema {snapshot.schema_id}, which is unknown."
            yield Finding("unknown-schema", path, message)


def row_ids_are_reserved(metadata: TableMetadata, path: str) -> Iterator[Finding]:
    """The row ids a snapshot took are below the next free one, and no two snapshots took the same."""
    free = getattr(metadata, "next_row_id", None)
    if free is None:
        return
    taken = sorted((s.first_row_id, _end(s), s.snapshot_id) for s in metadata.snapshots if s.first_row_id is not None)
    for _, end, snapshot_id in taken:
        if end > free:
            message = f"Snapshot {snapshot_id} took row ids up to {end}, but the table's next row id is {free}."
            yield Finding("row-ids", path, message)
    for (_, end, one), (start, _, other) in pairwise(taken):
        if start < end:
            yield Finding("row-ids", path, f"Snapshots {one} and {other} took the same row ids from {start} on.")


def _end(snapshot: Snapshot) -> int:
    return (snapshot.first_row_id or 0) + (snapshot.added_rows or 0)


RULES: tuple[Rule, ...] = (
    defaults_exist,
    references_point_at_snapshots,
    snapshots_are_distinct,
    sequence_numbers_ascend,
    ancestry_ends,
    snapshots_know_their_schema,
    row_ids_are_reserved,
)
