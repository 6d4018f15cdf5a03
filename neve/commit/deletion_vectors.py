"""Position delete files given to a table whose tree keeps a vector beside each data file: they become such vectors.

A vector is all there is of the deletes of a file. So it takes in what the file had before, vectors and, from the time
of an older version, position delete files; a vector that the file had leaves with the commit. The delete files
themselves are not part of the table.

One vector per data file: several vectors for a file inside one commit are united before they are listed.

Deletes of one data file that were committed side by side: their vectors are united instead of one of them failing.

Only pure deletes get along: a delta that adds and removes no data file, beside snapshots that did the same. Then the
rows both delete are the rows of both vectors, in either order. Anything else is a conflict of rule G.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
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
from neve.model.snapshots import Snapshot
from neve.plan.delete_index import PATH_FIELD_ID, match_deletes
from neve.plan.ranges import Mask
from neve.tree.entries import DETAIL, Content, EntryTable, Manifest, Status
from neve.tree.group_by_spec import deletion_vector_mask
from neve.tree.read import read_entries


def merge_vectors_per_file(base: CommitBase, deletes: EntryTable, written_files: WrittenFiles) -> EntryTable:
    """Delete files with the vectors of each data file united, in a new Puffin file where there were several."""
    is_vector = deletion_vector_mask(deletes)
    doubled = is_vector & _repeats(deletes["referenced_data_file"], is_vector)
    if not doubled.any():
        written_files.merged_vectors_key, written_files.superseded_files = (
            (),
            frozenset(),
        )  # what an earlier attempt united is not in the table any more
        return deletes
    vectors = deletes.filter(pa.array(doubled))
    first = _first_of_each(vectors)
    _refuse_mixed(vectors)
    others = deletes.filter(pa.array(~doubled))
    written_files.superseded_files = frozenset(vectors["file_path"].to_pylist()) - frozenset(
        others["file_path"].to_pylist()
    )
    return EntryTable.concat(
        [
            others,
            written_files.write_merged_vectors_once(
                vectors, lambda: _write_merged_vectors(base, vectors, first, written_files)
            ),
        ],
        deletes.specs,
    )


def _repeats(names: pa.ChunkedArray, among: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Which of the chosen names occur more than once among the chosen."""
    codes = names.combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)
    return np.bincount(codes[among], minlength=int(codes.max(initial=0)) + 1)[codes] > 1


def _data_file_codes(vectors: EntryTable) -> np.ndarray[Any, Any]:
    names = vectors["referenced_data_file"].combine_chunks().dictionary_encode()
    return np.asarray(names.indices.to_numpy(zero_copy_only=False))


def _first_of_each(vectors: EntryTable) -> EntryTable:
    return vectors.take(np.unique(_data_file_codes(vectors), return_index=True)[1])


def _refuse_mixed(vectors: EntryTable) -> None:
    """Vectors of one file must agree on what the file is: its spec, its partition, and the number they apply from."""
    files = _data_file_codes(vectors)
    partitions, _ = vectors.partition_codes()
    numbers = pc.fill_null(vectors["sequence_number"], -1).to_numpy()
    for values, what in ((partitions, "specs or partitions"), (numbers, "sequence numbers")):
        if len(np.unique(np.stack([files, values]), axis=1)[0]) > len(np.unique(files)):
            paths = tuple(sorted(set(vectors["referenced_data_file"].to_pylist())))
            message = f"Cannot unite deletion vectors of one data file that name different {what}."
            raise CommitRefused(Conflict(Check.ARGUMENTS, message, files=paths, spec_ids=tuple(vectors.spec_ids())))


def _write_merged_vectors(
    base: CommitBase, vectors: EntryTable, first: EntryTable, written_files: WrittenFiles
) -> EntryTable:
    names = first["referenced_data_file"].to_pylist()
    positions = positions_by_data_file(base, vectors)
    path = written_files.new_vector_path(base)
    data, rows = pack_vectors((name, positions[name]) for name in names)
    write_new_file(base.io, path, data)
    return first.with_columns(
        file_path=path,
        file_size_in_bytes=len(data),
        content_offset=rows["content_offset"],
        content_size_in_bytes=rows["content_size_in_bytes"],
        record_count=rows["record_count"],
    )


def positions_by_data_file(base: CommitBase, vectors: EntryTable) -> dict[str, PositionSet]:
    """The positions that vectors delete, by data file; each Puffin file is opened once."""
    columns = ("file_path", "referenced_data_file", "content_offset", "content_size_in_bytes", "record_count")
    by_file: dict[str, list[tuple[str, tuple[int, int, int]]]] = {}
    for path, name, *place in zip(*(vectors[c].to_pylist() for c in columns), strict=True):
        by_file.setdefault(path, []).append((name, (place[0], place[1], place[2])))
    found: dict[str, PositionSet] = {}
    for path, wanted in by_file.items():
        read = read_vectors(base.io, path, [place for _, place in wanted])
        for (name, _), vector in zip(wanted, read, strict=True):
            found[name] = found[name].union(vector) if name in found else vector
    return found


_POSITION_FIELD_ID = 2147483545

PositionsByPath = dict[str, PositionSet]  # by the canonical path of the data file


def convert_position_deletes(base: CommitBase, action: Action, written_files: WrittenFiles) -> Action:
    """The same action with vectors in place of position delete files, where the tree has no place for those."""
    written_files.converted_deletes_key, written_files.converted_delete_files = (), frozenset()
    if (
        not isinstance(action, RowDelta | RewriteFiles)
        or not action.added_deletes
        or not base.tree_writer.joins_vectors
    ):
        return action
    is_file = (action.added_deletes.numpy("content") == Content.POSITION_DELETES) & ~deletion_vector_mask(
        action.added_deletes
    )
    if not is_file.any():
        return action
    files = action.added_deletes.filter(pa.array(is_file))
    sets = _read_position_deletes(base, files["file_path"].to_pylist())
    holders = _data_files_losing_rows(base, action, files, sets)
    before = _existing_position_deletes(base, holders, files)
    vectors = written_files.write_converted_vectors_once(
        files, before, lambda: _write_vectors(base, holders, sets, before, written_files)
    )
    others = action.added_deletes.filter(pa.array(~is_file))
    gone = before.filter(pa.array(deletion_vector_mask(before)))
    known = [action.removed_deletes.entries] if action.removed_deletes.entries else []
    return replace(
        action,
        added_deletes=EntryTable.concat([others, vectors], base.specs),
        removed_deletes=replace(
            action.removed_deletes, entries=EntryTable.concat([*known, gone], base.specs), manifests=()
        ),
    )


def _read_position_deletes(base: CommitBase, paths: Iterable[str]) -> PositionsByPath:
    """The positions that delete files name, by data file."""
    found: PositionsByPath = {}
    for path in paths:
        for name, positions in _positions_in_delete_file(base, path):
            found[name] = found[name].union(positions) if name in found else positions
    return found


def _positions_in_delete_file(base: CommitBase, path: str) -> Iterator[tuple[str, PositionSet]]:
    table = open_id_table(read_file(base.io, path), path)
    wanted = ((PATH_FIELD_ID,), (_POSITION_FIELD_ID,))
    if not table.has(*wanted):
        raise CorruptFile(path, f"a position delete file with the fields {wanted[0][0]} and {wanted[1][0]}", "others")
    names, positions = (table.read(wanted)[w] for w in wanted)
    if names.null_count or positions.null_count or (len(positions) and pc.min(positions).as_py() < 0):
        raise CorruptFile(path, "a path and a position from 0 on in every row", "a row without")
    encoded = canonical_path_all(names.cast(pa.string())).dictionary_encode()
    codes, at = encoded.indices.to_numpy(), positions.to_numpy()
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        yield name, PositionSet.of(at[codes == code])


def _data_files_losing_rows(
    base: CommitBase, action: RowDelta | RewriteFiles, files: EntryTable, sets: PositionsByPath
) -> EntryTable:
    """The data files that lose rows, live or new; one that is neither is refused: there is no row for its vector."""
    within = PartitionSet.of(files, base.specs)
    data = [m for m in base.manifests if not m.is_deletes and m.may_hold_live_files]
    live = read_entries(base.io, list(compress(data, within.may_match_manifests(data))), base.specs, live_only=True)
    every = EntryTable.concat([live, *([action.added_data] if action.added_data else [])], base.specs)
    paths = canonical_path_all(every["file_path"])
    if missing := sorted(set(sets) - set(paths.to_pylist())):
        message = "Data files that new position deletes name are not in the table, or not in their partitions."
        raise CommitRefused(Conflict(Check.REQUIRED_FILES, message, files=tuple(missing)))
    return every.filter(pc.is_in(paths, value_set=pa.array(sorted(sets), pa.string())))


def _existing_position_deletes(base: CommitBase, holders: EntryTable, files: EntryTable) -> EntryTable:
    """The deletes by position that data files have already."""
    within = PartitionSet.of(files, base.specs)
    manifests: list[Manifest] = [m for m in base.manifests if m.is_deletes]
    chosen = list(compress(manifests, within.may_match_manifests(manifests)))
    live = read_entries(base.io, chosen, base.specs, detail=DETAIL.names, live_only=True)
    live = live.of_content(Content.POSITION_DELETES)
    return live.take(np.unique(match_deletes(holders, live)["delete"].to_numpy()))


@dataclass(frozen=True)
class _ExistingPositions:
    """The positions that the deletes of data files held before."""

    positions_by_path: PositionsByPath

    @classmethod
    def of(cls, base: CommitBase, before: EntryTable) -> _ExistingPositions:
        is_vector = deletion_vector_mask(before)
        vectors = before.filter(pa.array(is_vector))
        found = _by_canonical(positions_by_data_file(base, vectors)) if len(vectors) else {}
        # a file that has a vector has nothing else
        others = _read_position_deletes(base, before.filter(pa.array(~is_vector))["file_path"].to_pylist())
        return cls({**others, **found})


def _by_canonical(sets: PositionsByPath) -> PositionsByPath:
    names = canonical_path_all(pa.array(list(sets), pa.string())).to_pylist()
    return dict(zip(names, sets.values(), strict=True))


def _write_vectors(
    base: CommitBase, holders: EntryTable, sets: PositionsByPath, before: EntryTable, written_files: WrittenFiles
) -> EntryTable:
    """The vectors of data files, in a new Puffin file, as delete files of the partitions of the data files."""
    earlier = _ExistingPositions.of(base, before).positions_by_path
    keys = canonical_path_all(holders["file_path"]).to_pylist()
    united = [sets[key].union(earlier[key]) if key in earlier else sets[key] for key in keys]
    path = written_files.new_vector_path(base)
    data, rows = pack_vectors(zip(holders["file_path"].to_pylist(), united, strict=True))
    write_new_file(base.io, path, data)
    same: dict[str, Any] = {name: holders[name] for name in ("spec_id", *(u.column for u in base.specs.union))}
    columns = same | {
        "manifest": -1,
        "row": -1,
        "content": int(Content.POSITION_DELETES),
        "file_path": path,
        "file_format": "PUFFIN",
        "file_size_in_bytes": len(data),
        "referenced_data_file": holders["file_path"],
        "content_offset": rows["content_offset"],
        "content_size_in_bytes": rows["content_size_in_bytes"],
        "record_count": rows["record_count"],
    }
    return EntryTable.from_columns(columns, base.specs, len(holders), DETAIL.names)


OPERATIONS_ADDING_VECTORS = frozenset({Operation.OVERWRITE, Operation.DELETE, Operation.REPLACE})


def concurrent_vectors(window: Window, action: RowDelta | RewriteFiles) -> EntryTable:
    """The vectors that others added meanwhile for data files this commit adds one for."""
    mine = _vectors(action.added_deletes)
    if mine is None:
        return EntryTable.empty(window.base.specs)
    new = window.entries(OPERATIONS_ADDING_VECTORS, is_deletes=True, statuses=(Status.ADDED, Status.EXISTING))
    return _vectors_referencing(new, pc.unique(mine["referenced_data_file"]))


def can_be_merged(window: Window, action: RowDelta | RewriteFiles, vectors: EntryTable) -> Mask:
    """Which of the vectors that others added can be united with those of this commit."""
    if isinstance(action, RewriteFiles) or not action.merge_vectors or action.added_data or action.removed_data:
        return np.zeros(len(vectors), bool)
    pure = [s.snapshot_id for s in window.snapshots_with({Operation.DELETE}) if _changes_no_data(window, s)]
    return np.isin(vectors.numpy("snapshot_id"), pure)


def merge_concurrent_vectors(base: CommitBase, action: Action) -> Action:
    """The same action on top of the vectors of its data files that others committed meanwhile."""
    if not isinstance(action, RowDelta) or not action.merge_vectors or base.parent is None or not action.added_deletes:
        return action
    new = concurrent_vectors(Window(base, action.start_snapshot_id), action)
    if not len(new):
        return action
    theirs = _live_vectors(base, new)
    known = [action.removed_deletes.entries] if action.removed_deletes.entries else []
    return replace(
        action,
        added_deletes=EntryTable.concat([action.added_deletes, theirs.with_columns(sequence_number=None)], base.specs),
        removed_deletes=RemovedFiles(EntryTable.concat([*known, theirs], base.specs), action.removed_deletes.paths),
    )


def _changes_no_data(window: Window, snapshot: Snapshot) -> bool:
    """Whether a snapshot added and removed no data file; it may have merged manifests."""
    written = (m for m in window.manifests_written_by(snapshot) if not m.is_deletes)
    return all(m.added_files == 0 and m.deleted_files == 0 for m in written)


def _live_vectors(base: CommitBase, like: EntryTable) -> EntryTable:
    """The vectors that the data files of some vectors have now."""
    deletes = [m for m in base.manifests if m.is_deletes]
    manifests = list(compress(deletes, PartitionSet.of(like, base.specs).may_match_manifests(deletes)))
    live = read_entries(base.io, manifests, base.specs, live_only=True)
    return _vectors_referencing(live, pc.unique(like["referenced_data_file"]))


def _vectors(deletes: EntryTable | None) -> EntryTable | None:
    found = deletes.filter(pa.array(deletion_vector_mask(deletes))) if deletes else None
    return found or None


def _vectors_referencing(deletes: EntryTable, data_files: pa.Array) -> EntryTable:
    named = pc.is_in(deletes["referenced_data_file"], value_set=data_files).to_numpy()
    return deletes.filter(pa.array(deletion_vector_mask(deletes) & named))
