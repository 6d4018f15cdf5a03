"""Group files by partition spec, as a manifest holds files of one spec.

Groups are in ascending order of the spec id, so two runs over the same files number their manifests alike.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.metadata import TableMetadata

from neve.errors import UnknownName
from neve.tree.entries import Content, EntryTable

FIRST_SPEC = 0
"""The spec of a v1 file that names none."""


def group_files_by_spec(files: EntryTable) -> dict[int, EntryTable]:
    """Return the files of each spec, tombstones included, in their order; one that names no spec counts as spec 0."""
    return dict(_with_default_spec(files).by_spec()) if len(files) else {}


def entries_by_manifest(entries: EntryTable, manifests: int) -> list[EntryTable]:
    """Split entries by the manifest they were read from; they must be in the order they were read."""
    ends = np.searchsorted(entries.numpy("manifest"), np.arange(manifests + 1))
    slices = (entries.columns.slice(start, end - start) for start, end in pairwise(ends))
    return [EntryTable(columns, entries.specs) for columns in slices]


def deletion_vector_mask(files: EntryTable) -> np.ndarray[Any, Any]:
    """Return a mask of the deletion vectors: position deletes stored in Puffin."""
    is_puffin = pc.fill_null(pc.equal(files["file_format"].cast(pa.string()), "PUFFIN"), False)
    return is_puffin.to_numpy() & (files.numpy("content") == Content.POSITION_DELETES)


def validate_added_data_files(metadata: TableMetadata, files: EntryTable) -> None:
    """Reject a file of a spec that the table does not have; any spec it has is allowed, not only the default one."""
    spec_ids = sorted(spec.spec_id for spec in metadata.partition_specs)
    files = _with_default_spec(files)
    for spec_id in files.spec_ids():
        if spec_id not in spec_ids:
            first = files.filter(pc.equal(files["spec_id"], spec_id))["file_path"][0].as_py()
            raise UnknownName("partition spec", spec_id, spec_ids, f"file {first}")


def _with_default_spec(files: EntryTable) -> EntryTable:
    if not files["spec_id"].null_count:
        return files
    return files.with_columns(spec_id=pc.fill_null(files["spec_id"], FIRST_SPEC))
