"""Merge deletion vectors, and convert position delete files into vectors, so that each data file has one vector.

- Several vectors for one data file inside one commit are merged before they are listed.
- Concurrent deletes from one data file are merged instead of failing one of them. This holds for pure deletes only: a
  delta that adds and removes no data file, concurrent with snapshots that did the same. Both vectors together then hold
  the rows that both delete, in either order. Anything else is a conflict of rule G.
- If the tree stores a vector beside each data file, new position delete files become such vectors. The vector then
  holds all deletes of the data file. It includes the earlier deletes: a vector, which is removed with the commit, or
  position delete files from an older format version. The new delete files themselves never become part of the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.snapshots import Operation

from neve.commit.actions import Action, RemovedFiles, RewriteFiles, RowDelta
from neve.commit.outcome import Check, Conflict
from neve.commit.partition_set import PartitionSet
from neve.commit.window import CommitBase, CommitRefused, Window
from neve.commit.written_files import WrittenFiles
from neve.errors import CorruptFile
from neve.io.deletion_vectors import PositionSet
from neve.io.files import read_file, write_new_file
from neve.io.parquet_by_field_id import open_id_table
from neve.io.paths import canonical_path_all
from neve.io.puffin import pack_vectors, read_vectors
from neve.plan.delete_index import PATH_FIELD_ID, match_deletes
from neve.plan.ranges import Mask
from neve.tree.entries import DETAIL, Content, EntryTable, Status, value_codes
from neve.tree.group_by_spec import deletion_vector_mask
from neve.tree.read import read_entries


def merge_vectors_per_file(base: CommitBase, deletes: EntryTable, written_files: WrittenFiles) -> EntryTable:
    """Merge the vectors of each data file; if there were several, the result is in a new Puffin file."""
    is_vector = deletion_vector_mask(deletes)
    codes, data_files = value_codes(deletes["referenced_data_file"])
    has_several = is_vector & (np.bincount(codes[is_vector], minlength=data_files)[codes] > 1)
    if not has_several.any():
        # the vectors that an earlier attempt merged are no longer in the table
        written_files.merged_vectors_key, written_files.superseded_files = (), frozenset()
        return deletes
    vectors, others = deletes.filter(pa.array(has_several)), deletes.filter(pa.array(~has_several))
    files, (partitions, _) = codes[has_several], vectors.partition_codes()
    numbers = pc.fill_null(vectors["sequence_number"], -1).to_numpy()
    for values, what in ((partitions, "specs or partitions"), (numbers, "sequence numbers")):
        if len(np.unique(np.stack([files, values]), axis=1)[0]) > len(np.unique(files)):
            names = tuple(sorted(set(vectors["referenced_data_file"].to_pylist())))
            message = f"Cannot merge deletion vectors of one data file that have different {what}."
            raise CommitRefused(Conflict(Check.ARGUMENTS, message, files=names, spec_ids=tuple(vectors.spec_ids())))
    paths, other_paths = (frozenset(table["file_path"].to_pylist()) for table in (vectors, others))
    written_files.superseded_files = paths - other_paths
    merged = written_files.write_merged_vectors_once(
        vectors, lambda: _write_merged_vectors(base, vectors, written_files)
    )
    return EntryTable.concat([others, merged], deletes.specs)


def _write_merged_vectors(base: CommitBase, vectors: EntryTable, written_files: WrittenFiles) -> EntryTable:
    codes, _ = value_codes(vectors["referenced_data_file"])
    first = vectors.take(np.unique(codes, return_index=True)[1])  # one entry per data file
    positions = positions_by_data_file(base, vectors)
    pairs = ((name, positions[name]) for name in first["referenced_data_file"].to_pylist())
    return first.with_columns(**_write_puffin_file(base, pairs, written_files))


def _write_puffin_file(
    base: CommitBase, vectors: Iterable[tuple[str, PositionSet]], written_files: WrittenFiles
) -> dict[str, Any]:
    """Write vectors to a new Puffin file; returns the columns of their entries that locate them."""
    path = written_files.new_vector_path(base)
    data, rows = pack_vectors(vectors)
    write_new_file(base.io, path, data)
    return {name: rows[name] for name in rows.column_names} | {"file_path": path, "file_size_in_bytes": len(data)}


def positions_by_data_file(base: CommitBase, vectors: EntryTable) -> dict[str, PositionSet]:
    """Read the positions that vectors delete, by data file; each Puffin file is opened once."""
    columns = ("file_path", "referenced_data_file", "content_offset", "content_size_in_bytes", "record_count")
    by_file: dict[str, list[tuple[str, tuple[int, int, int]]]] = {}
    for path, name, offset, size, count in zip(*(vectors[c].to_pylist() for c in columns), strict=True):
        by_file.setdefault(path, []).append((name, (offset, size, count)))
    positions: dict[str, PositionSet] = {}
    for path, blobs in by_file.items():
        for (name, _), vector in zip(blobs, read_vectors(base.io, path, [blob for _, blob in blobs]), strict=True):
            positions[name] = positions[name].union(vector) if name in positions else vector
    return positions


_POSITION_FIELD_ID = 2147483545

PositionsByPath = dict[str, PositionSet]  # by the canonical path of the data file


def convert_position_deletes(base: CommitBase, action: Action, written_files: WrittenFiles) -> Action:
    """Replace position delete files of an action by vectors, if the tree cannot store position delete files."""
    written_files.converted_deletes_key, written_files.converted_delete_files = (), frozenset()
    if not isinstance(action, RowDelta | RewriteFiles) or not base.tree_writer.joins_vectors:
        return action
    added = action.added_deletes
    if not added:
        return action
    is_file = (added.numpy("content") == Content.POSITION_DELETES) & ~deletion_vector_mask(added)
    if not is_file.any():
        return action
    files, others = added.filter(pa.array(is_file)), added.filter(pa.array(~is_file))
    positions = _read_position_deletes(base, files["file_path"].to_pylist())
    live = _live_entries_in_partitions(base, files, is_deletes=False)
    data_files = EntryTable.concat([live, action.added_data], base.specs)
    paths = canonical_path_all(data_files["file_path"])
    if missing := sorted(set(positions) - set(paths.to_pylist())):
        message = "Data files that new position deletes name are not in the table, or not in their partitions."
        raise CommitRefused(Conflict(Check.REQUIRED_FILES, message, files=tuple(missing)))
    data_files = data_files.filter(pc.is_in(paths, value_set=pa.array(sorted(positions), pa.string())))
    live_deletes = _live_entries_in_partitions(base, files, is_deletes=True, detail=DETAIL.names)
    live_deletes = live_deletes.of_content(Content.POSITION_DELETES)
    existing = live_deletes.take(np.unique(match_deletes(data_files, live_deletes)["delete"].to_numpy()))
    vectors = written_files.write_converted_vectors_once(
        files, existing, lambda: _write_vectors(base, data_files, positions, existing, written_files)
    )
    existing_vectors = existing.filter(pa.array(deletion_vector_mask(existing)))
    removed_entries = EntryTable.concat([action.removed_deletes.entries, existing_vectors], base.specs)
    return replace(
        action,
        added_deletes=EntryTable.concat([others, vectors], base.specs),
        removed_deletes=replace(action.removed_deletes, entries=removed_entries, manifests=()),
    )


def _read_position_deletes(base: CommitBase, paths: Iterable[str]) -> PositionsByPath:
    columns = ((PATH_FIELD_ID,), (_POSITION_FIELD_ID,))
    by_path: PositionsByPath = {}
    for path in paths:
        table = open_id_table(read_file(base.io, path), path)
        if not table.has(*columns):
            fields = f"{PATH_FIELD_ID} and {_POSITION_FIELD_ID}"
            raise CorruptFile(path, f"a position delete file with the fields {fields}", "others")
        names, positions = (table.read(columns)[column] for column in columns)
        if names.null_count or positions.null_count or (len(positions) and pc.min(positions).as_py() < 0):
            raise CorruptFile(path, "a path and a position from 0 on in every row", "a row without")
        encoded = canonical_path_all(names.cast(pa.string())).dictionary_encode()
        codes, numbers = encoded.indices.to_numpy(), positions.to_numpy()
        for code, name in enumerate(encoded.dictionary.to_pylist()):
            own = PositionSet.of(numbers[codes == code])
            by_path[name] = by_path[name].union(own) if name in by_path else own
    return by_path


def _live_entries_in_partitions(
    base: CommitBase, files: EntryTable, *, is_deletes: bool, detail: Collection[str] = ()
) -> EntryTable:
    """Return the live entries of all manifests of one kind that may list files in the partitions of `files`."""
    manifests = [m for m in base.manifests if m.is_deletes == is_deletes and m.may_hold_live_files]
    within = compress(manifests, PartitionSet.of(files, base.specs).may_match_manifests(manifests))
    return read_entries(base.io, list(within), base.specs, detail=detail, live_only=True)


def _write_vectors(
    base: CommitBase,
    data_files: EntryTable,
    positions: PositionsByPath,
    existing: EntryTable,
    written_files: WrittenFiles,
) -> EntryTable:
    """Write the vectors of data files to a new Puffin file; a vector has the partition of its data file."""
    is_vector = deletion_vector_mask(existing)
    old_vectors, files = existing.filter(pa.array(is_vector)), existing.filter(pa.array(~is_vector))
    earlier = _read_position_deletes(base, files["file_path"].to_pylist())
    if len(old_vectors):  # a data file with a vector has no other position deletes
        by_name = positions_by_data_file(base, old_vectors)
        paths = canonical_path_all(pa.array(list(by_name), pa.string())).to_pylist()
        earlier |= dict(zip(paths, by_name.values(), strict=True))
    keys = canonical_path_all(data_files["file_path"]).to_pylist()
    merged = [positions[key].union(earlier[key]) if key in earlier else positions[key] for key in keys]
    vectors = zip(data_files["file_path"].to_pylist(), merged, strict=True)
    partition: dict[str, Any] = {name: data_files[name] for name in ("spec_id", *(u.column for u in base.specs.union))}
    columns = partition | _write_puffin_file(base, vectors, written_files)
    columns |= {"manifest": -1, "row": -1, "content": int(Content.POSITION_DELETES), "file_format": "PUFFIN"}
    return EntryTable.from_columns(columns, base.specs, len(data_files), DETAIL.names)


OPERATIONS_ADDING_VECTORS = frozenset({Operation.OVERWRITE, Operation.DELETE, Operation.REPLACE})


def concurrent_vectors(window: Window, action: RowDelta | RewriteFiles) -> EntryTable:
    """Return the vectors that concurrent commits added for data files to which this commit adds a vector."""
    own = action.added_deletes and action.added_deletes.filter(pa.array(deletion_vector_mask(action.added_deletes)))
    if not own:
        return EntryTable.empty(window.base.specs)
    new = window.entries(OPERATIONS_ADDING_VECTORS, is_deletes=True, statuses=(Status.ADDED, Status.EXISTING))
    return _vectors_referencing(new, pc.unique(own["referenced_data_file"]))


def can_be_merged(window: Window, action: RowDelta | RewriteFiles, vectors: EntryTable) -> Mask:
    """Return which vectors of concurrent commits can be merged with the vectors of this commit."""
    if isinstance(action, RewriteFiles) or not action.merge_vectors or action.added_data or action.removed_data:
        return np.zeros(len(vectors), bool)
    pure_deletes = []
    for snapshot in window.snapshots_with({Operation.DELETE}):
        manifests = (m for m in window.manifests_written_by(snapshot) if not m.is_deletes)
        # a data manifest without added and deleted files comes from a merge of manifests
        if all(m.added_files == 0 and m.deleted_files == 0 for m in manifests):
            pure_deletes.append(snapshot.snapshot_id)
    return np.isin(vectors.numpy("snapshot_id"), pure_deletes)


def merge_concurrent_vectors(base: CommitBase, action: Action) -> Action:
    """Merge an action with the vectors that concurrent commits added to its data files."""
    if not isinstance(action, RowDelta) or not action.merge_vectors or base.parent is None or not action.added_deletes:
        return action
    new = concurrent_vectors(Window(base, action.start_snapshot_id), action)
    if not len(new):
        return action
    live = _live_entries_in_partitions(base, new, is_deletes=True)
    theirs = _vectors_referencing(live, pc.unique(new["referenced_data_file"]))
    removed = EntryTable.concat([action.removed_deletes.entries, theirs], base.specs)
    return replace(
        action,
        added_deletes=EntryTable.concat([action.added_deletes, theirs.with_columns(sequence_number=None)], base.specs),
        removed_deletes=RemovedFiles(removed, action.removed_deletes.paths),
    )


def _vectors_referencing(deletes: EntryTable, data_files: pa.Array) -> EntryTable:
    named = pc.is_in(deletes["referenced_data_file"], value_set=data_files).to_numpy()
    return deletes.filter(pa.array(deletion_vector_mask(deletes) & named))
