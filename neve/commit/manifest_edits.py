"""Find files in manifests, and rewrite, replace or merge manifests.

- A manifest is rewritten only if a file is removed from it. Later attempts reuse the result.
- `RewriteManifests` replaces manifests by others that list the same live files.
- Small manifests are merged when a commit writes. Kinds and specs are never mixed. Manifests are packed from the oldest
  end, so the bin that is not full is the newest one, and old bins stay as they are. The newest bin is merged only when
  it holds enough manifests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.commit.actions import RewriteManifests
from neve.commit.file_selection import FileSelection, file_identities
from neve.commit.outcome import Check, Conflict
from neve.commit.window import CommitBase, CommitRefused
from neve.commit.written_files import WrittenFiles
from neve.tree.entries import EntryTable, Manifest, count_by_status, value_codes
from neve.tree.read import read_entries, read_manifest
from neve.tree.tree_writer import ManifestEdit
from neve.tree.write import UNASSIGNED


@dataclass(frozen=True, slots=True)
class ManifestMatch:
    """What a selection found in one manifest: the selected files, and the lowest sequence number of the others."""

    leaving_files: EntryTable
    oldest_sequence_number: int | None


@dataclass(frozen=True, slots=True)
class SelectedFiles:
    """Manifests of one kind, and what a selection found in those it had to open."""

    manifests: tuple[Manifest, ...]
    matches_by_manifest: Mapping[str, ManifestMatch]
    removed: EntryTable
    duplicates: int

    @property
    def manifests_to_rewrite(self) -> frozenset[str]:
        """The manifests that must be rewritten."""
        return frozenset(path for path, match in self.matches_by_manifest.items() if len(match.leaving_files))

    def oldest_remaining_sequence_number(self, lowest: int) -> int:
        """Return the lowest data sequence number of the files that stay, or `lowest` if that is lower."""
        rewritten = self.manifests_to_rewrite
        for manifest in self.manifests:
            if manifest.path in rewritten:
                oldest = self.matches_by_manifest[manifest.path].oldest_sequence_number
                lowest = lowest if oldest is None else min(lowest, oldest)
            elif manifest.may_hold_live_files:
                lowest = min(lowest, manifest.min_sequence_number)
        return lowest


def find_selected_files(
    base: CommitBase, selection: FileSelection, written_files: WrittenFiles, *, is_deletes: bool
) -> SelectedFiles:
    """Find the selected files in the manifests of one kind; nothing is written."""
    manifests = tuple(m for m in base.manifests if m.is_deletes == is_deletes)
    if selection.is_empty:
        return SelectedFiles(manifests, {}, EntryTable.empty(base.specs), 0)
    candidates = selection.candidate_manifests(manifests)
    unsearched = [m for m in candidates if (m.path, selection.cache_key) not in written_files.matches]
    entries = read_entries(base.io, unsearched, base.specs, detail=selection.detail, live_only=True)
    in_part = entries.filter(pa.array(selection.selects_in_part(entries)))
    if len(in_part):
        message = "Cannot drop files by filter: some of their rows match, others may not. Delete the rows instead."
        paths, spec_ids = tuple(sorted(in_part["file_path"].to_pylist())), tuple(in_part.spec_ids())
        raise CommitRefused(Conflict(Check.PARTIAL_MATCH, message, files=paths, spec_ids=spec_ids))
    is_selected, ordinals = selection.selects(entries), entries.numpy("manifest")
    no_match = ManifestMatch(EntryTable.empty(base.specs), None)
    written_files.matches |= {(m.path, selection.cache_key): no_match for m in unsearched}
    for ordinal in np.unique(ordinals[is_selected]):
        start, end = np.searchsorted(ordinals, (ordinal, ordinal + 1))
        own, mask = EntryTable(entries.columns.slice(start, end - start), base.specs), is_selected[start:end]
        oldest = pc.min(own["sequence_number"].filter(pa.array(~mask))).as_py()
        key = (unsearched[int(ordinal)].path, selection.cache_key)
        written_files.matches[key] = ManifestMatch(own.filter(pa.array(mask)), oldest)
    matches = {m.path: written_files.matches[m.path, selection.cache_key] for m in candidates}
    selected = EntryTable.concat([m.leaving_files for m in matches.values() if len(m.leaving_files)], base.specs)
    removed = distinct_files(selected)
    return SelectedFiles(manifests, matches, removed, len(selected) - len(removed))


def apply_edits(
    base: CommitBase, manifests: Sequence[Manifest], edits: Mapping[str, ManifestEdit], written_files: WrittenFiles
) -> list[Manifest]:
    """Apply edits, by file, to manifests; other manifests stay unchanged."""
    context = written_files.manifest_context(base)
    edited: list[Manifest] = []
    for manifest in manifests:
        edit = edits.get(manifest.file)
        if edit is None:
            edited.append(manifest)
        else:
            write = partial(base.tree_writer.write_edited, base.io, manifest, edit, context)
            edited += written_files.write_manifests_once((manifest.path, edit.identity_key), base, write)
    return edited


def distinct_files(files: EntryTable) -> EntryTable:
    """Return each file once; the second entry of the same file is a duplicate."""
    if not len(files):
        return files
    first = np.unique(value_codes(file_identities(files))[0], return_index=True)[1]
    return files if len(first) == len(files) else files.take(np.sort(first))


def replace_manifests(
    base: CommitBase, action: RewriteManifests, written_files: WrittenFiles
) -> tuple[tuple[Manifest, ...], int]:
    """Return the manifests after the rewrite, new before old, and the number of entries in the replaced ones."""
    replaced = [m for m in base.manifests if m.path in action.removed]
    counted = [with_counts(base, m) for m in replaced]
    if missing := action.removed - {m.path for m in base.manifests}:
        message = "Manifests to be replaced are no longer in the table: another commit rewrote or merged them."
        head = base.parent.snapshot_id if base.parent else None
        raise CommitRefused(Conflict(Check.MANIFESTS, message, head, tuple(sorted(missing))))
    _refuse_other_content(action, counted)
    writer, context = base.tree_writer, written_files.manifest_context(base)
    groups = written_files.write_manifests_once(
        "groups", base, lambda: writer.write_groups(base.io, action.groups, replaced, context)
    )
    replaced_files = {m.file for m in replaced if not m.is_view}
    added = [replace(m, added_snapshot_id=written_files.snapshot_id, sequence_number=UNASSIGNED) for m in action.added]
    unchanged = [m for m in base.manifests if m.file not in replaced_files]
    return (*groups, *added, *unchanged), sum(_live_file_count(m) for m in counted)


def _refuse_other_content(action: RewriteManifests, replaced: list[Manifest]) -> None:
    for manifest in action.added:
        if manifest.added_files != 0 or manifest.deleted_files != 0 or manifest.existing_files is None:
            message = "Cannot add a manifest with added or deleted entries: a rewrite carries existing files only."
            paths, spec_ids = (manifest.path,), (manifest.spec_id,)
            raise CommitRefused(Conflict(Check.ARGUMENTS, message, files=paths, spec_ids=spec_ids))
    if any(not len(group) == len(group.live()) for group in action.groups):
        raise CommitRefused(Conflict(Check.ARGUMENTS, "Cannot carry entries that are not live into new manifests."))
    # per kind: a lost data file and a gained delete file would cancel out in the total
    for is_deletes in (False, True):
        before = sum(_live_file_count(m) for m in replaced if m.is_deletes == is_deletes)
        after = sum(_live_file_count(m) for m in action.added if m.is_deletes == is_deletes)
        after += sum(int(((group.numpy("content") != 0) == is_deletes).sum()) for group in action.groups)
        if before != after:
            kind = "delete" if is_deletes else "data"
            message = f"Cannot replace manifests of {before} live {kind} files by manifests of {after}."
            raise CommitRefused(Conflict(Check.MANIFESTS, message, files=tuple(sorted(action.removed))))


def _live_file_count(manifest: Manifest) -> int:
    return (manifest.added_files or 0) + (manifest.existing_files or 0) - manifest.hidden_files


def with_counts(base: CommitBase, manifest: Manifest) -> Manifest:
    """Return a manifest with its counts; v1 writers left them out, but later versions and row ids need them."""
    if manifest.added_files is not None and manifest.existing_rows is not None and manifest.added_rows is not None:
        return manifest
    return replace(manifest, **count_by_status(read_manifest(base.io, manifest, base.specs).columns))


def merge_manifests(base: CommitBase, manifests: Sequence[Manifest], written_files: WrittenFiles) -> list[Manifest]:
    """Merge the small manifests of one kind; `manifests` are sorted newest first."""
    mergeable = [m for m in manifests if base.tree_writer.can_merge(m)]
    if not mergeable or not base.properties.manifest_merge:
        return list(manifests)
    merged: list[Manifest] = []
    for spec_id in sorted({m.spec_id for m in mergeable}, reverse=True):
        of_spec = [m for m in mergeable if m.spec_id == spec_id]
        for group in pack_from_end(of_spec, base.properties.manifest_target_size):
            is_too_small = mergeable[0] in group and len(group) < base.properties.manifest_min_count
            if len(group) == 1 or is_too_small:
                merged += group
            else:
                write = partial(base.tree_writer.write_merged, base.io, group, written_files.manifest_context(base))
                merged += written_files.write_manifests_once(("merged", *(m.path for m in group)), base, write)
    return [*merged, *(m for m in manifests if not base.tree_writer.can_merge(m))]


def pack_from_end(manifests: Sequence[Manifest], target: int) -> list[list[Manifest]]:
    """Pack adjacent manifests into bins of at most `target` bytes, starting from the last manifest."""
    bins: list[list[Manifest]] = []
    size = 0
    for manifest in reversed(manifests):
        if not bins or size + manifest.length > target:
            bins.append([])
            size = 0
        bins[-1].append(manifest)
        size += manifest.length
    return [b[::-1] for b in reversed(bins)]
