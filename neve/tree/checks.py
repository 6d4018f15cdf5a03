"""What a manifest must say before it is believed: a wrong flag here would hide a file or bring deleted rows back."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow.compute as pc

from neve.errors import CorruptFile
from neve.tree.entries import Content, EntryTable, Manifest, Status

__all__ = ["check_entries", "check_fields"]

_REQUIRED = ("file_path", "file_format", "record_count")


def check_fields(manifest: Manifest, found: Collection[str]) -> None:
    """Refuse a manifest whose schema lacks what every version requires of a file."""
    if missing := [name for name in _REQUIRED if name not in found]:
        raise CorruptFile(manifest.path, f"files with the field {missing[0]}", f"the fields {sorted(found)}")


def check_entries(manifest: Manifest, entries: EntryTable) -> None:
    """Refuse entries that contradict their format version, or the list that names their manifest."""
    for name in ("status", "content", *_REQUIRED):
        if entries[name].null_count:
            raise CorruptFile(manifest.path, f"a {name} in every entry", f"{entries[name].null_count} without")
    if not len(entries):
        return
    _check_status(manifest, entries)
    _check_content(manifest, entries)


def _check_status(manifest: Manifest, entries: EntryTable) -> None:
    status = entries.numpy("status")
    if status.min() < Status.EXISTING or status.max() > Status.DELETED:
        wrong = sorted({int(s) for s in status} - {Status.EXISTING, Status.ADDED, Status.DELETED})
        raise CorruptFile(manifest.path, "entries of status 0, 1 or 2", f"status {wrong[0]}")
    if manifest.sequence_number < 0:
        return  # of the commit under way, which has no number yet
    unnumbered = entries["sequence_number"].is_null().to_numpy() & (status == Status.EXISTING)
    if unnumbered.any():
        raise CorruptFile(manifest.path, "a sequence number in every existing entry", f"{unnumbered.sum()} without")


def _check_content(manifest: Manifest, entries: EntryTable) -> None:
    content = entries.numpy("content")
    expected = (Content.POSITION_DELETES, Content.EQUALITY_DELETES) if manifest.is_deletes else (Content.DATA,)
    if not np.isin(content, expected).all():
        kind = "delete" if manifest.is_deletes else "data"
        found = sorted(set(pc.unique(entries["content"]).to_pylist()) - {int(c) for c in expected})
        raise CorruptFile(manifest.path, f"{kind} files, as the manifest list says", f"files of content {found[0]}")
