"""Build the snapshot summary: what a commit adds and removes, and the totals of the table, with the keys of Iceberg.

Counts come from columns of entries. Zero counts are left out. Totals are carried over from the parent; a total that the
parent does not have stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import UserError
from neve.model.partition import partition_folders
from neve.tree.entries import Content, EntryTable
from neve.tree.group_by_spec import deletion_vector_mask

_KEYS = {  # for each count of files: the keys of what is added and removed, and of the total if there is one
    "data_files": ("added-data-files", "deleted-data-files", "total-data-files"),
    "delete_files": ("added-delete-files", "removed-delete-files", "total-delete-files"),
    "position_delete_files": ("added-position-delete-files", "removed-position-delete-files", None),
    "vectors": ("added-dvs", "removed-dvs", None),
    "equality_delete_files": ("added-equality-delete-files", "removed-equality-delete-files", None),
    "records": ("added-records", "deleted-records", "total-records"),
    "bytes": ("added-files-size", "removed-files-size", "total-files-size"),
    "position_deletes": ("added-position-deletes", "removed-position-deletes", "total-position-deletes"),
    "equality_deletes": ("added-equality-deletes", "removed-equality-deletes", "total-equality-deletes"),
}


def refuse_reserved_properties(properties: Iterable[str]) -> None:
    """Reject properties that a commit sets itself."""
    if "operation" in properties:
        raise UserError("Cannot set the snapshot property 'operation': the commit sets it.")


@dataclass(frozen=True, slots=True)
class FileCounts:
    """Counts of files and rows by kind."""

    data_files: int
    records: int
    position_delete_files: int
    position_deletes: int
    vectors: int
    equality_delete_files: int
    equality_deletes: int
    bytes: int

    @classmethod
    def of(cls, files: EntryTable) -> FileCounts:
        """Count files; the size of a vector is that of its blob, because vectors may share a file."""
        content, rows = files.numpy("content"), files.numpy("record_count")
        is_vector = deletion_vector_mask(files)
        is_data, is_equality = content == Content.DATA, content == Content.EQUALITY_DELETES
        is_position = content == Content.POSITION_DELETES
        sizes = pc.if_else(pa.array(is_vector), files["content_size_in_bytes"], files["file_size_in_bytes"])
        return cls(
            data_files=int(is_data.sum()),
            records=int(rows[is_data].sum()),
            position_delete_files=int((is_position & ~is_vector).sum()),
            position_deletes=int(rows[is_position].sum()),
            vectors=int(is_vector.sum()),
            equality_delete_files=int(is_equality.sum()),
            equality_deletes=int(rows[is_equality].sum()),
            bytes=int(pc.sum(sizes).as_py() or 0),
        )

    @property
    def delete_files(self) -> int:
        """The number of delete files of all kinds."""
        return self.position_delete_files + self.vectors + self.equality_delete_files


def build_summary(
    added: EntryTable,
    removed: EntryTable,
    *,
    parent: Mapping[str, str] | None,
    duplicates: int = 0,
    partition_limit: int = 0,
) -> dict[str, str]:
    """Build the summary of a commit; `parent` is the summary of the previous snapshot, None if there is none."""
    counts = _change_counts(FileCounts.of(added), FileCounts.of(removed))
    if duplicates:
        counts["deleted-duplicate-files"] = duplicates
    summary = {key: str(value) for key, value in counts.items()}
    return summary | _partition_counts(added, removed, partition_limit) | totals(counts, parent)


def totals(counts: Mapping[str, int], parent: Mapping[str, str] | None) -> dict[str, str]:
    """Return the totals after a commit: the totals of the parent with the counts applied."""
    new_totals = {}
    for added, removed, name in _KEYS.values():
        if name is None:
            continue
        with suppress(KeyError, ValueError):  # a total that the parent does not have, or that is no number
            total = (0 if parent is None else int(parent[name])) + counts.get(added, 0) - counts.get(removed, 0)
            if total >= 0:  # a wrong count in the parent makes the total unknown, not negative
                new_totals[name] = str(total)
    return new_totals


def _change_counts(added: FileCounts, removed: FileCounts) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, (added_key, removed_key, _) in _KEYS.items():
        counts |= {added_key: getattr(added, name), removed_key: getattr(removed, name)}
    return {key: value for key, value in counts.items() if value > 0}


def _partition_counts(added: EntryTable, removed: EntryTable, limit: int) -> dict[str, str]:
    # without detail columns, which the two tables need not share
    names = EntryTable.schema(added.specs).names
    tables = [EntryTable(files.columns.select(names), files.specs) for files in (added, removed)]
    files = EntryTable.concat(tables, added.specs)
    if not len(files):
        return {"changed-partition-count": "0"}
    codes, firsts = files.partition_codes()
    summary = {"changed-partition-count": str(len(firsts))}
    if len(firsts) > limit:
        return summary
    summary["partition-summaries-included"] = "true"
    is_added = np.arange(len(files)) < len(added)
    by_path: dict[str, np.ndarray[Any, Any]] = {}
    for code in range(len(firsts)):
        values, spec_id = firsts.stored_values(code), firsts["spec_id"][code].as_py()
        # empty if the spec is unpartitioned
        path = "" if values is None else "/".join(partition_folders(firsts.specs, spec_id, values))
        by_path[path] = by_path.get(path, False) | (codes == code)
    for path, mask in by_path.items():
        counts = _change_counts(*(FileCounts.of(files.filter(pa.array(mask & side))) for side in (is_added, ~is_added)))
        summary[f"partitions.{path}"] = ",".join(f"{key}={value}" for key, value in counts.items())
    return summary
