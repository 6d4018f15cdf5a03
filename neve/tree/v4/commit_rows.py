"""The changes of a commit to tracked-file rows: add files, copy or delete rows, change their vectors.

A row that changes becomes two: the old state, REPLACED, followed by the new one, MODIFIED. Only live rows are copied;
tombstones of earlier snapshots are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.io.paths import canonical_path_all, relativise_path_all, with_scheme_all
from neve.model.partition import Specs
from neve.model.values import combine_chunks
from neve.tree.entries import LIVE_STATUSES, EntryTable, Status
from neve.tree.v4 import statistics
from neve.tree.v4.fields import FORMAT_VERSION
from neve.tree.v4.rows import make_rows, set_where

VECTOR_COLUMNS = ("vector_location", "vector_offset", "vector_size", "vector_cardinality", "vector_key")


def stored_paths(location: str, paths: Any) -> pa.Array:
    """Return paths as the tree stores them: relative to the table location if below it, else with a scheme."""
    return relativise_path_all(location, with_scheme_all(location, paths))


def rows_from_entries(files: EntryTable, specs: Specs, location: str) -> pa.Table:
    """Return data files as rows, with their status and numbers."""
    columns: dict[str, Any] = {u.column: files[u.column] for u in specs.union}
    columns |= statistics.from_maps(files, specs.schemas[0])
    same = ("status", "snapshot_id", "sequence_number", "file_sequence_number", "first_row_id", "record_count")
    columns |= {name: files[name] for name in (*same, "sort_order_id", "file_size_in_bytes", "spec_id")}
    columns |= {name: files[name] for name in ("key_metadata", "split_offsets") if files.has(name)}
    columns |= {
        "content_type": files["content"],
        "format_version": FORMAT_VERSION,
        "location": stored_paths(location, files["file_path"]),
        "file_format": files["file_format"].cast(pa.string()),
    }
    return make_rows(columns, len(files), specs)


def vector_column_values(vectors: EntryTable, location: str) -> dict[str, Any]:
    """Return deletion vectors as columns of the rows of their data files."""
    return {
        "vector_location": stored_paths(location, vectors["file_path"]),
        "vector_offset": vectors["content_offset"],
        "vector_size": vectors["content_size_in_bytes"],
        "vector_cardinality": vectors["record_count"],
        "vector_key": vectors["key_metadata"] if vectors.has("key_metadata") else pa.nulls(len(vectors), pa.binary()),
    }


def join_new_vectors(
    rows: pa.Table, files: EntryTable, vectors: EntryTable, location: str, snapshot_id: int | None = None
) -> pa.Table:
    """Add to rows made of entries the vectors that name their files; without `snapshot_id` each keeps its snapshot."""
    if not len(vectors):
        return rows
    numbers = pc.index_in(
        canonical_path_all(files["file_path"]), value_set=canonical_path_all(vectors["referenced_data_file"])
    )
    has_vector = numbers.is_valid().to_numpy(zero_copy_only=False)
    own = vectors.take(numbers.drop_null())
    changed_by = own["snapshot_id"] if snapshot_id is None else snapshot_id
    return set_where(rows, has_vector, dv_snapshot_id=changed_by, **vector_column_values(own, location))


def live_rows_as_existing(rows: pa.Table, hidden: np.ndarray[Any, Any]) -> pa.Table:
    """Return the live rows of a leaf as existing rows, to be copied to a new one."""
    live = np.isin(rows["status"].to_numpy(), LIVE_STATUSES)
    live[hidden] = False
    return set_where(rows.filter(pa.array(live)), np.ones(int(live.sum()), bool), status=int(Status.EXISTING))


def apply_row_changes(
    rows: pa.Table,
    snapshot_id: int,
    *,
    deleted: np.ndarray[Any, Any],
    replaced: np.ndarray[Any, Any],
    vectors: Mapping[str, Any],
) -> pa.Table:
    """Return live rows as they are after a commit that deletes some, and changes or removes the vectors of others.

    The masks are over the rows; `vectors` has a value of each vector column for each replaced row, null for none.
    """
    order = np.repeat(np.arange(rows.num_rows), 1 + replaced)
    is_second = np.r_[False, order[1:] == order[:-1]] if len(order) else np.zeros(0, bool)
    status = np.where(deleted[order], Status.DELETED, Status.EXISTING)
    status[replaced[order]] = Status.REPLACED
    status[is_second] = Status.MODIFIED
    new_rows = set_where(rows.take(pa.array(order)), np.ones(len(order), bool), status=status)
    new_rows = set_where(new_rows, (deleted | replaced)[order] & ~is_second, snapshot_id=snapshot_id)
    has_vector = pc.is_valid(combine_chunks(vectors["vector_location"]))
    ids = pc.if_else(has_vector, pa.scalar(snapshot_id, pa.int64()), pa.scalar(None, pa.int64()))
    return set_where(new_rows, is_second, dv_snapshot_id=ids, **vectors)
