"""From a draft to a snapshot ready to be swapped in: row ids, manifest list, summary, requirements and updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetSnapshotRefUpdate

from neve.commit.actions import Action, ReplacePartitions, operation_of
from neve.commit.draft import Draft
from neve.commit.manifest_edits import counted
from neve.commit.summary import summarise
from neve.commit.window import Base
from neve.commit.written_files import Scratch
from neve.model.snapshots import AddSnapshot, Snapshot
from neve.tree.entries import Manifest
from neve.tree.tree_writer import Listing


@dataclass(frozen=True, slots=True)
class Prepared:
    """A snapshot whose manifests and list are written, and what the catalog is asked to do."""

    snapshot: Snapshot
    manifests: tuple[Manifest, ...]
    requirements: tuple[Any, ...]
    updates: tuple[Any, ...]


def prepare(
    base: Base,
    action: Action,
    made: Draft,
    scratch: Scratch,
    *,
    attempt: int,
    now_ms: int,
    properties: Mapping[str, str],
) -> Prepared:
    """Write the manifest list of an attempt and describe the snapshot."""
    manifests, row_ids = _numbered(base, made.manifests)
    parent_id = base.parent.snapshot_id if base.parent else None
    path = scratch.list_path(base, attempt)
    listing = Listing(scratch.snapshot_id, parent_id, base.next_sequence_number, row_ids[0])
    named = base.shape.write_listing(base.io, path, manifests, listing, scratch.context(base))
    snapshot = Snapshot(
        snapshot_id=scratch.snapshot_id,
        parent_snapshot_id=parent_id,
        sequence_number=base.next_sequence_number if base.format_version > 1 else None,
        timestamp_ms=max(now_ms, base.metadata.last_updated_ms + 1),  # clocks differ; history must not go back
        **named,
        summary=_summary(base, action, made, manifests, properties),
        schema_id=base.metadata.current_schema_id,
        first_row_id=row_ids[0],
        added_rows=row_ids[1],
    )
    return Prepared(snapshot, tuple(manifests), _requirements(base, parent_id), _updates(base, snapshot))


def _numbered(base: Base, manifests: Sequence[Manifest]) -> tuple[list[Manifest], tuple[int | None, int | None]]:
    """The manifests with row ids, the first id of the snapshot and how many it takes; nothing before v3."""
    if base.format_version == 1:
        return list(manifests), (None, None)
    counted_ones = [counted(base, m) for m in manifests]
    if base.format_version == 2:
        return counted_ones, (None, None)
    first: int = getattr(base.metadata, "next_row_id", None) or 0
    assigned, following = base.shape.assign_row_ids(counted_ones, first)
    return assigned, (first, following - first)


def _summary(
    base: Base, action: Action, made: Draft, manifests: Sequence[Manifest], properties: Mapping[str, str]
) -> Summary:
    before = base.parent.summary if base.parent else None
    known = None if base.parent is None else dict(before.additional_properties) if before else {}
    found = summarise(
        made.added,
        made.removed,
        parent=known,
        duplicates=made.duplicates,
        partition_limit=base.properties.partition_summary_limit,
    )
    found |= _manifest_counts(base, made, manifests)
    if isinstance(action, ReplacePartitions):
        found["replace-partitions"] = "true"
    return Summary(operation=Operation(operation_of(action)), **{**properties, **found})


def _manifest_counts(base: Base, made: Draft, manifests: Sequence[Manifest]) -> dict[str, str]:
    before, after = ({m.file for m in found if not m.is_inline} for found in (base.manifests, manifests))
    counts = {
        "manifests-created": len(after - before),
        "manifests-kept": len(after & before),
        "manifests-replaced": len(before - after),
    }
    if made.entries_processed:
        counts["entries-processed"] = made.entries_processed
    return {key: str(value) for key, value in counts.items()}


def _requirements(base: Base, parent_id: int | None) -> tuple[Any, ...]:
    return (
        AssertTableUUID(uuid=base.metadata.table_uuid),
        AssertRefSnapshotId(ref=base.branch, snapshot_id=parent_id),
    )


def _updates(base: Base, snapshot: Snapshot) -> tuple[Any, ...]:
    ref = base.metadata.refs.get(base.branch)
    kept = (
        {}
        if ref is None
        else {
            "max_ref_age_ms": ref.max_ref_age_ms,
            "max_snapshot_age_ms": ref.max_snapshot_age_ms,
            "min_snapshots_to_keep": ref.min_snapshots_to_keep,
        }
    )
    move = SetSnapshotRefUpdate(ref_name=base.branch, type="branch", snapshot_id=snapshot.snapshot_id, **kept)
    return (AddSnapshot(snapshot=snapshot), move)
