"""Convert PyIceberg data files to entries, to exchange files with code that uses PyIceberg."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from pyiceberg.manifest import DataFile

from neve.model.partition import Specs
from neve.tree.entries import CORE, DETAIL, EntryTable, Status

_MAP_FIELDS = {f.name for f in DETAIL} - {"key_metadata", "split_offsets"}
_NOT_OF_FILE = {"manifest", "row", "status", "snapshot_id", "sequence_number", "file_sequence_number", "spec_id"}


def entries_from_pyiceberg(files: Iterable[DataFile], specs: Specs) -> EntryTable:
    """Return new files as ADDED entries; a v1 file that names no spec counts as spec 0."""
    files = list(files)
    spec_ids = [int(getattr(f, "spec_id", 0)) for f in files]
    for file, spec_id in zip(files, spec_ids, strict=True):
        specs.refuse_unknown_specs([spec_id], f"file {file.file_path}")
    names = [f.name for f in CORE if f.name not in _NOT_OF_FILE] + DETAIL.names
    columns: dict[str, Any] = {name: [getattr(f, name, None) for f in files] for name in names}
    for name in _MAP_FIELDS:
        columns[name] = [None if m is None else [{"key": k, "value": v} for k, v in m.items()] for m in columns[name]]
    columns["file_format"] = [str(f.file_format.value) for f in files]
    columns["content"] = [int(f.content or 0) for f in files]
    columns["spec_id"] = spec_ids
    columns |= {u.column: [None] * len(files) for u in specs.union}
    for at, (file, spec_id) in enumerate(zip(files, spec_ids, strict=True)):
        for position, column in enumerate(specs.columns(spec_id)):
            value = file.partition[position]
            columns[column][at] = value.bytes if isinstance(value, UUID) else value
    columns |= {"manifest": -1, "row": -1, "status": int(Status.ADDED)}
    return EntryTable.from_columns(columns, specs, len(files), DETAIL.names)
