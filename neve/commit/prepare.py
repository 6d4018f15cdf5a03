"""From a draft to a snapshot ready to be swapped in: row ids, manifest list, summary, requirements and updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetSnapshotRefUpdate

from neve.commit.actions import Action, ReplacePartitions, operation_of
from neve.commit.draft import Draft
from neve.commit.manifest_edits import with_counts
from neve.commit.summary import build_summary
from neve.commit.window import CommitBase
from neve.commit.written_files import WrittenFiles
from neve.model.snapshots import AddSnapshot, Snapshot
from neve.tree.entries import Manifest
from neve.tree.tree_writer import ManifestListHeader


@dataclass(frozen=True, slots=True)
class PreparedSnapshot:
    """A snapshot whose manifests and list are written, and what the catalog is asked to do."""

    snapshot: Snapshot
    manifests: tuple[Manifest, ...]
    requirements: tuple[Any, ...]
    updates: tuple[Any, ...]


def prepare_snapshot(
    base: CommitBase,
    action: Action,
    draft: Draft,
    written_files: WrittenFiles,
    *,
    attempt: int,
    now_ms: int,
    properties: Mapping[str, str],
) -> PreparedSnapshot:
    """Write the manifest list of an attempt and describe the snapshot."""
    manifests, row_ids = _assign_row_ids(base, draft.manifests)
    parent_id = base.parent.snapshot_id if base.parent else None
    path = written_files.new_list_path(base, attempt)
    listing = ManifestListHeader(written_files.snapshot_id, parent_id, base.next_sequence_number, row_ids[0])
    named = base.tree_writer.write_list_or_root(base.io, path, manifests, listing, written_files.manifest_context(base))
    snapshot = Snapshot(
        snapshot_id=written_files.snapshot_id,
        parent_snapshot_id=parent_id,
        sequence_number=base.next_sequence_number if base.format_version > 1 else None,
        timestamp_ms=max(now_ms, base.metadata.last_updated_ms + 1),  # clocks differ; history must not go back
        **named,
        summary=_summary(base, action, draft, manifests, properties),
        schema_id=base.metadata.current_schema_id,
        first_row_id=row_ids[0],
        added_rows=row_ids[1],
    )
    return PreparedSnapshot(snapshot, tuple(manifests), _requirements(base, parent_id), _updates(base, snapshot))


def _assign_row_ids(
    base: CommitBase, manifests: Sequence[Manifest]
) -> tuple[list[Manifest], tuple[int | None, int | None]]:
    """The manifests with row ids, the first id of the snapshot and how many it takes; nothing before v3."""
    if base.format_version == 1:
        return list(manifests), (None, None)
    counted_ones = [with_counts(base, m) for m in manifests]
    if base.format_version == 2:
        return counted_ones, (None, None)
    first: int = getattr(base.metadata, "next_row_id", None) or 0
    assigned, following = base.tree_writer.assign_row_ids(counted_ones, first)
    return assigned, (first, following - first)


def _summary(
    base: CommitBase, action: Action, draft: Draft, manifests: Sequence[Manifest], properties: Mapping[str, str]
) -> Summary:
    before = base.parent.summary if base.parent else None
    known = None if base.parent is None else dict(before.additional_properties) if before else {}
    found = build_summary(
        draft.added,
        draft.removed,
        parent=known,
        duplicates=draft.duplicates,
        partition_limit=base.properties.partition_summary_limit,
    )
    found |= _manifest_counts(base, draft, manifests)
    if isinstance(action, ReplacePartitions):
        found["replace-partitions"] = "true"
    return Summary(operation=Operation(operation_of(action)), **{**properties, **found})


def _manifest_counts(base: CommitBase, draft: Draft, manifests: Sequence[Manifest]) -> dict[str, str]:
    before, after = ({m.file for m in found if not m.is_inline} for found in (base.manifests, manifests))
    counts = {
        "manifests-created": len(after - before),
        "manifests-kept": len(after & before),
        "manifests-replaced": len(before - after),
    }
    if draft.entries_processed:
        counts["entries-processed"] = draft.entries_processed
    return {key: str(value) for key, value in counts.items()}


def _requirements(base: CommitBase, parent_id: int | None) -> tuple[Any, ...]:
    return (
        AssertTableUUID(uuid=base.metadata.table_uuid),
        AssertRefSnapshotId(ref=base.branch, snapshot_id=parent_id),
    )


def _updates(base: CommitBase, snapshot: Snapshot) -> tuple[Any, ...]:
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
