"""Look for files in manifests, and have the manifests that hold them written anew.

A manifest is rewritten only when it holds a file that leaves; the result is kept for later attempts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.commit.outcome import Check, Conflict
from neve.commit.scratch import Scratch
from neve.commit.selection import Selection, identities
from neve.commit.window import Base, Refused
from neve.tree.entries import EntryTable, Manifest
from neve.tree.read import read_entries
from neve.tree.tree_writer import Edit

__all__ = ["Filtered", "Finding", "distinct", "find", "rewrite"]


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
