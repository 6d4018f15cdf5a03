"""Check manifest lists and entries as they are read, and delete files before they are added.

The bytes are not trusted: a wrong flag would hide a file or bring deleted rows back.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.metadata import TableMetadata

from neve.errors import CorruptFile
from neve.tree.entries import Content, EntryTable, Manifest, Status
from neve.tree.group_by_spec import deletion_vector_mask

_REQUIRED = ("file_path", "file_format", "record_count")
LIST_TYPES = {  # of the fields of a manifest list; counts are int64
    "manifest_path": pa.string(),
    "manifest_length": pa.int64(),
    "partition_spec_id": pa.int32(),
    "content": pa.int32(),
    "sequence_number": pa.int64(),
    "min_sequence_number": pa.int64(),
    "added_snapshot_id": pa.int64(),
    "first_row_id": pa.int64(),
    "key_metadata": pa.binary(),
}
_IN_EVERY_LIST = ("manifest_path", "manifest_length", "partition_spec_id")
_NEVER_NULL = (*_IN_EVERY_LIST, "content", "sequence_number", "min_sequence_number")


def check_manifest_list(rows: pa.RecordBatch, path: str) -> pa.RecordBatch:
    """Return the rows of a manifest list in the types of the format; reject one without the required fields."""
    names = rows.schema.names
    if missing := [name for name in _IN_EVERY_LIST if name not in names]:
        raise CorruptFile(path, f"a manifest list with the field {missing[0]}", f"the fields {sorted(names)}")
    types = [pa.int64() if f.name.endswith("_count") else LIST_TYPES.get(f.name, f.type) for f in rows.schema]
    columns = [column.cast(type_) for column, type_ in zip(rows.columns, types, strict=True)]
    typed = pa.RecordBatch.from_arrays(columns, names)
    for name in _NEVER_NULL:
        if name in names and typed.column(name).null_count:
            raise CorruptFile(path, f"a {name} in every row", f"{typed.column(name).null_count} without")
    contents = pa.array([0, 1], pa.int32())  # min_count=0: the list may be empty
    if "content" in names and not pc.all(pc.is_in(typed.column("content"), contents), min_count=0).as_py():
        raise CorruptFile(path, "manifests of content 0 or 1", "another")
    return typed


def check_manifest_fields(manifest: Manifest, field_names: Collection[str]) -> None:
    """Reject a manifest without the fields that every version requires of a file."""
    if missing := [name for name in _REQUIRED if name not in field_names]:
        raise CorruptFile(manifest.path, f"files with the field {missing[0]}", f"the fields {sorted(field_names)}")


def check_entries(manifest: Manifest, entries: EntryTable) -> None:
    """Reject entries that contradict their format version, or the list that names their manifest."""
    for name in ("status", "content", *_REQUIRED):
        if entries[name].null_count:
            raise CorruptFile(manifest.path, f"a {name} in every entry", f"{entries[name].null_count} without")
    if not len(entries):
        return
    status = entries.numpy("status")
    if status.min() < Status.EXISTING or status.max() > Status.DELETED:
        wrong = sorted({int(s) for s in status} - {Status.EXISTING, Status.ADDED, Status.DELETED})
        raise CorruptFile(manifest.path, "entries of status 0, 1 or 2", f"status {wrong[0]}")
    if manifest.sequence_number >= 0:  # otherwise it belongs to the current commit, which has no number yet
        unnumbered = entries["sequence_number"].is_null().to_numpy() & (status == Status.EXISTING)
        if unnumbered.any():
            raise CorruptFile(manifest.path, "a sequence number in every existing entry", f"{unnumbered.sum()} without")
    expected = (Content.POSITION_DELETES, Content.EQUALITY_DELETES) if manifest.is_deletes else (Content.DATA,)
    if not np.isin(entries.numpy("content"), expected).all():
        kind = "delete" if manifest.is_deletes else "data"
        others = sorted(set(pc.unique(entries["content"]).to_pylist()) - {int(c) for c in expected})
        raise CorruptFile(manifest.path, f"{kind} files, as the manifest list says", f"files of content {others[0]}")


def unsupported_deletes(metadata: TableMetadata, deletes: EntryTable) -> tuple[np.ndarray[Any, Any], str]:
    """Return a mask of the delete files that a table, which may have been upgraded, does not take, and the reason."""
    content, is_vector = deletes.numpy("content"), deletion_vector_mask(deletes)
    by_file = (content == Content.POSITION_DELETES) & ~is_vector
    match version := int(metadata.format_version):
        case 1:
            why = "A version 1 table has no delete files. Upgrade it, or rewrite the data files."
            return np.full(len(deletes), True), why
        case 2:
            return is_vector, "A version 2 table has no deletion vectors. Write position delete files."
        case 3:
            return by_file, "A version 3 table takes position deletes as deletion vectors only."
        case _:
            formats = deletes["file_format"].cast(pa.string())
            unreadable = by_file & ~pc.is_in(formats, value_set=pa.array(["PARQUET", "AVRO"])).to_numpy()
            why = (
                f"A version {version} table takes new deletes by position only: deletion vectors, or position delete "
                "files in Parquet or Avro, which become vectors."
            )
            return unreadable | (content == Content.EQUALITY_DELETES), why
