"""Take files out of manifests: removed entries become tombstones under their own spec, the others are carried.

A manifest is rewritten only when it holds a file that leaves; the result is kept for later attempts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.commit.outcome import Check, Conflict
from neve.commit.scratch import Scratch
from neve.commit.selection import Selection, identities
from neve.commit.window import Base, Refused
from neve.tree.carry import write_carried
from neve.tree.entries import EntryTable, Manifest, Status
from neve.tree.read import read_entries, read_manifest
from neve.tree.write import UNASSIGNED

__all__ = ["Filtered", "Finding", "carried", "distinct", "find", "rewrite"]

_NO_ROW_ID_YET = -(1 << 62)


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


def rewrite(base: Base, filtered: Filtered, scratch: Scratch) -> list[Manifest]:
    """The manifests with the removed files turned into tombstones; untouched ones are kept as they are."""
    found: list[Manifest] = []
    for manifest in filtered.manifests:
        finding = filtered.findings.get(manifest.path)
        found += (
            [manifest] if finding is None or not len(finding.leaving) else _without(base, manifest, finding, scratch)
        )
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


def _without(base: Base, manifest: Manifest, finding: Finding, scratch: Scratch) -> list[Manifest]:
    rows = finding.leaving.numpy("row")
    key = (manifest.path, rows.tobytes())
    if key not in scratch.rewritten:
        live = read_manifest(base.io, manifest, base.specs).live()
        goes = np.isin(live.numpy("row"), rows)
        status = np.where(goes, Status.DELETED, Status.EXISTING)
        snapshot_ids = pc.if_else(pa.array(goes), scratch.snapshot_id, live["snapshot_id"])
        entries = live.with_columns(status=status, snapshot_id=snapshot_ids)
        scratch.rewritten[key] = write_carried(base.io, entries, [manifest], scratch.context(base))
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


def carried(base: Base, manifests: Sequence[Manifest], snapshot_id: int) -> EntryTable:
    """The entries of several manifests as one merged manifest holds them.

    Tombstones of earlier snapshots vanish, files that earlier snapshots added are carried; what this commit did stays
    visible.
    """
    entries = EntryTable.concat([_as_written(base, m, i) for i, m in enumerate(manifests)], base.specs)
    status, is_ours = entries.numpy("status"), pc.equal(entries["snapshot_id"], snapshot_id).to_numpy()
    entries = entries.with_columns(status=np.where((status == Status.ADDED) & ~is_ours, Status.EXISTING, status))
    return entries.filter(pa.array((status != Status.DELETED) | is_ours))


def _as_written(base: Base, manifest: Manifest, ordinal: int) -> EntryTable:
    """The entries of a manifest; from one of this commit, which has no numbers yet, nothing may be inherited."""
    if manifest.sequence_number != UNASSIGNED:
        return read_manifest(base.io, manifest, base.specs, ordinal=ordinal)
    row_id = None if manifest.is_deletes else _NO_ROW_ID_YET
    entries = read_manifest(base.io, replace(manifest, first_row_id=row_id), base.specs, ordinal=ordinal)
    names = ("sequence_number", "file_sequence_number", "first_row_id")
    return entries.with_columns(**{name: _unless_negative(entries[name]) for name in names})


def _unless_negative(column: pa.ChunkedArray) -> Any:
    return pc.if_else(pc.less(column, 0), pa.scalar(None, column.type), column)
