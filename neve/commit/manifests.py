"""Replace manifests by others that hold the same live files: what `RewriteManifests` does to the list of manifests."""

from __future__ import annotations

from dataclasses import replace

from neve.commit.actions import RewriteManifests
from neve.commit.outcome import Check, Conflict
from neve.commit.scratch import Scratch
from neve.commit.window import Base, Refused
from neve.tree.entries import EntryTable, Manifest, Status
from neve.tree.read import read_manifest
from neve.tree.write import UNASSIGNED

__all__ = ["counted", "replaced_manifests"]


def replaced_manifests(base: Base, action: RewriteManifests, scratch: Scratch) -> tuple[tuple[Manifest, ...], int]:
    """The manifests after the rewrite, new before old, and how many entries were carried over."""
    removed = [counted(base, m) for m in base.manifests if m.path in action.removed]
    _refuse_absent(base, action)
    _refuse_new_entries(action)
    _refuse_other_count(action, removed)
    groups = scratch.once("groups", base, lambda: _write_groups(base, action, scratch))
    gone = {m.file for m in base.manifests if m.path in action.removed and not m.is_view}
    claimed = [replace(m, added_snapshot_id=scratch.snapshot_id, sequence_number=UNASSIGNED) for m in action.added]
    kept = [m for m in base.manifests if m.file not in gone]
    return (*groups, *claimed, *kept), sum(_live(m) for m in removed)


def _write_groups(base: Base, action: RewriteManifests, scratch: Scratch) -> list[Manifest]:
    replaced = [m for m in base.manifests if m.path in action.removed]
    return base.shape.write_groups(base.io, action.groups, replaced, scratch.context(base))


def _refuse_absent(base: Base, action: RewriteManifests) -> None:
    if gone := action.removed - {m.path for m in base.manifests}:
        message = "Manifests to be replaced are no longer in the table: another commit rewrote or merged them."
        head = base.parent.snapshot_id if base.parent else None
        raise Refused(Conflict(Check.MANIFESTS, message, head, tuple(sorted(gone))))


def _refuse_new_entries(action: RewriteManifests) -> None:
    for manifest in action.added:
        if manifest.added_files != 0 or manifest.deleted_files != 0 or manifest.existing_files is None:
            message = "Cannot add a manifest with added or deleted entries: a rewrite carries existing files only."
            raise Refused(Conflict(Check.ARGUMENTS, message, files=(manifest.path,), spec_ids=(manifest.spec_id,)))
    if any(not len(group) == len(group.live()) for group in action.groups):
        raise Refused(Conflict(Check.ARGUMENTS, "Cannot carry entries that are not live into new manifests."))


def _refuse_other_count(action: RewriteManifests, removed: list[Manifest]) -> None:
    """Data and delete files are counted apart: one of each kind lost and gained would not show in the sum."""
    for is_deletes in (False, True):
        before = sum(_live(m) for m in removed if m.is_deletes == is_deletes)
        after = sum(_live(m) for m in action.added if m.is_deletes == is_deletes)
        after += sum(_count(group, is_deletes) for group in action.groups)
        if before != after:
            kind = "delete" if is_deletes else "data"
            message = f"Cannot replace manifests of {before} live {kind} files by manifests of {after}."
            raise Refused(Conflict(Check.MANIFESTS, message, files=tuple(sorted(action.removed))))


def _count(group: EntryTable, is_deletes: bool) -> int:
    return int(((group.numpy("content") != 0) == is_deletes).sum())


def _live(manifest: Manifest) -> int:
    return (manifest.added_files or 0) + (manifest.existing_files or 0) - manifest.hidden_files


def counted(base: Base, manifest: Manifest) -> Manifest:
    """A manifest with its counts: v1 writers left them out, later versions and row ids need them."""
    if manifest.added_files is not None and manifest.existing_rows is not None and manifest.added_rows is not None:
        return manifest
    entries = read_manifest(base.io, manifest, base.specs)
    status, rows = entries.numpy("status"), entries.numpy("record_count")
    count = {s: int((status == s).sum()) for s in Status}
    sums = {s: int(rows[status == s].sum()) for s in Status}
    return replace(
        manifest,
        added_files=count[Status.ADDED],
        existing_files=count[Status.EXISTING],
        deleted_files=count[Status.DELETED],
        added_rows=sums[Status.ADDED],
        existing_rows=sums[Status.EXISTING],
        deleted_rows=sums[Status.DELETED],
    )
