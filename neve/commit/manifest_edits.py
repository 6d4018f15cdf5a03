"""Look for files in manifests, and have the manifests that hold them written anew.

A manifest is rewritten only when it holds a file that leaves; the result is kept for later attempts.

Replace manifests by others that hold the same live files: what `RewriteManifests` does to the list of manifests.

Merge small manifests when committing: kinds and specs never mix, and the newest bin waits until it is full.

Manifests are packed from the oldest end, so the bin that is not full is the newest one and old bins stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.commit.actions import RewriteManifests
from neve.commit.file_selection import Selection, identities
from neve.commit.outcome import Check, Conflict
from neve.commit.window import Base, Refused
from neve.commit.written_files import Scratch
from neve.tree.entries import EntryTable, Manifest, Status
from neve.tree.read import read_entries, read_manifest
from neve.tree.tree_writer import Edit
from neve.tree.write import UNASSIGNED


@dataclass(frozen=True, slots=True)
class Finding:
    """What a selection found in one manifest: the files that leave it, and the oldest number among those that stay."""

    leaving: EntryTable
    oldest: int | None


@dataclass(frozen=True, slots=True)
class Filtered:
    """Manifests of one kind, and what a selection found in those it had to open."""

    manifests: tuple[Manifest, ...]
    findings: Mapping[str, Finding]
    removed: EntryTable
    duplicates: int

    @property
    def touched(self) -> frozenset[str]:
        """The manifests that must be rewritten."""
        return frozenset(path for path, finding in self.findings.items() if len(finding.leaving))

    def oldest_number(self, floor: int) -> int:
        """The lowest data sequence number among the files that stay; `floor` when none stays."""
        numbers, touched = [floor], self.touched
        for manifest in self.manifests:
            if manifest.path in touched:
                numbers.append(_or(self.findings[manifest.path].oldest, floor))
            elif manifest.may_hold_live_files:
                numbers.append(manifest.min_sequence_number)
        return min(numbers)


def find(base: Base, manifests: Sequence[Manifest], selection: Selection, scratch: Scratch) -> Filtered:
    """Look for the selected files in manifests of one kind; nothing is written."""
    if selection.is_empty:
        return Filtered(tuple(manifests), {}, EntryTable.empty(base.specs), 0)
    candidates = selection.candidates(manifests)
    _look_into(base, [m for m in candidates if (m.path, selection.token) not in scratch.findings], selection, scratch)
    findings = {m.path: scratch.findings[m.path, selection.token] for m in candidates}
    leaving = EntryTable.concat([f.leaving for f in findings.values() if len(f.leaving)], base.specs)
    removed = distinct(leaving)
    return Filtered(tuple(manifests), findings, removed, len(leaving) - len(removed))


def _look_into(base: Base, manifests: Sequence[Manifest], selection: Selection, scratch: Scratch) -> None:
    entries = read_entries(base.io, manifests, base.specs, detail=selection.detail, live_only=True)
    _refuse_partial(entries, selection)
    goes, ordinals = selection.chosen(entries), entries.numpy("manifest")
    untouched = Finding(EntryTable.empty(base.specs), None)
    scratch.findings |= {(m.path, selection.token): untouched for m in manifests}
    for ordinal in np.unique(ordinals[goes]):
        start, end = np.searchsorted(ordinals, (ordinal, ordinal + 1))
        own, leaves = EntryTable(entries.columns.slice(start, end - start), base.specs), goes[start:end]
        oldest = pc.min(own["sequence_number"].filter(pa.array(~leaves))).as_py()
        key = (manifests[int(ordinal)].path, selection.token)
        scratch.findings[key] = Finding(own.filter(pa.array(leaves)), oldest)


def rewrite(base: Base, manifests: Sequence[Manifest], edits: Mapping[str, Edit], scratch: Scratch) -> list[Manifest]:
    """The manifests with their edits applied, by file; untouched ones are kept as they are."""
    found: list[Manifest] = []
    for manifest in manifests:
        edit = edits.get(manifest.file)
        found += [manifest] if edit is None else _edited(base, manifest, edit, scratch)
    return found


def _refuse_partial(entries: EntryTable, selection: Selection) -> None:
    partial = entries.filter(pa.array(selection.partial(entries)))
    if len(partial):
        raise Refused(
            Conflict(
                Check.PARTIAL_MATCH,
                "Cannot drop files by filter: some of their rows match, others may not. Delete the rows instead.",
                files=tuple(sorted(partial["file_path"].to_pylist())),
                spec_ids=tuple(partial.spec_ids()),
            )
        )


def _edited(base: Base, manifest: Manifest, edit: Edit, scratch: Scratch) -> list[Manifest]:
    key = (manifest.path, edit.token)
    if key not in scratch.rewritten:
        scratch.rewritten[key] = base.shape.write_edited(base.io, manifest, edit, scratch.context(base))
    return scratch.rewritten[key]


def distinct(files: EntryTable) -> EntryTable:
    """Each file once: a path that is listed twice is one file, and its second entry a duplicate."""
    if not len(files):
        return files
    codes = identities(files).combine_chunks().dictionary_encode().indices.to_numpy()
    first = np.unique(codes, return_index=True)[1]
    return files if len(first) == len(files) else files.take(np.sort(first))


def _or(number: int | None, otherwise: int) -> int:
    return otherwise if number is None else number


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


def merge_manifests(base: Base, manifests: Sequence[Manifest], scratch: Scratch) -> list[Manifest]:
    """Manifests of one kind, newest first, with the small ones merged."""
    mergeable = [m for m in manifests if base.shape.can_merge(m)]
    if not mergeable or not base.properties.manifest_merge:
        return list(manifests)
    newest = mergeable[0]
    by_spec: dict[int, list[Manifest]] = {}
    for manifest in mergeable:
        by_spec.setdefault(manifest.spec_id, []).append(manifest)
    bins = (
        b
        for spec in sorted(by_spec, reverse=True)
        for b in pack_from_end(by_spec[spec], base.properties.manifest_target_size)
    )
    others = [m for m in manifests if not base.shape.can_merge(m)]
    return [*(m for b in bins for m in _merged(base, b, newest, scratch)), *others]


def _merged(base: Base, together: list[Manifest], newest: Manifest, scratch: Scratch) -> list[Manifest]:
    waits = newest in together and len(together) < base.properties.manifest_min_count
    if len(together) == 1 or waits:
        return together
    key = tuple(m.path for m in together)
    if key not in scratch.merged:
        scratch.merged[key] = base.shape.write_merged(base.io, together, scratch.context(base))
    return scratch.merged[key]


def pack_from_end(manifests: Sequence[Manifest], target: int) -> list[list[Manifest]]:
    """Neighbouring manifests in bins of at most `target` bytes, filled from the last one on."""
    return list(_packed(manifests, target))[::-1]


def _packed(manifests: Sequence[Manifest], target: int) -> Iterator[list[Manifest]]:
    filling: list[Manifest] = []
    size = 0
    for manifest in reversed(manifests):
        if filling and size + manifest.length > target:
            yield filling[::-1]
            filling, size = [], 0
        filling.append(manifest)
        size += manifest.length
    if filling:
        yield filling[::-1]
