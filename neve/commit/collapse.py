"""Position delete files given to a table whose tree keeps a vector beside each data file: they become such vectors.

A vector is all there is of the deletes of a file. So it takes in what the file had before, vectors and, from the time
of an older version, position delete files; a vector that the file had leaves with the commit. The delete files
themselves are not part of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.commit.actions import Action, RewriteFiles, RowDelta
from neve.commit.outcome import Check, Conflict
from neve.commit.partitions import PartitionSet
from neve.commit.scratch import Scratch
from neve.commit.vectors import positions_of
from neve.commit.window import Base, Refused
from neve.errors import CorruptFile
from neve.io.deletion_vectors import PositionSet
from neve.io.files import read_all, write_new
from neve.io.parquet_by_field_id import open_by_id
from neve.io.paths import canonical_all
from neve.io.puffin import pack_vectors
from neve.plan.delete_index import PATH_FIELD_ID, attach
from neve.tree.entries import DETAIL, Content, EntryTable, Manifest
from neve.tree.group_by_spec import vectors_in
from neve.tree.read import read_entries

__all__ = ["collapsed"]

_POSITION_FIELD_ID = 2147483545

Sets = dict[str, PositionSet]  # by the canonical path of the data file


def collapsed(base: Base, action: Action, scratch: Scratch) -> Action:
    """The same action with vectors in place of position delete files, where the tree has no place for those."""
    scratch.collapsed, scratch.collapsed_files = (), frozenset()
    if not isinstance(action, RowDelta | RewriteFiles) or not action.added_deletes or not base.shape.joins_vectors:
        return action
    is_file = (action.added_deletes.numpy("content") == Content.POSITION_DELETES) & ~vectors_in(action.added_deletes)
    if not is_file.any():
        return action
    files = action.added_deletes.filter(pa.array(is_file))
    sets = _read(base, files["file_path"].to_pylist())
    holders = _holders(base, action, files, sets)
    before = _deletes_of(base, holders, files)
    vectors = scratch.collapse(files, before, lambda: _written(base, holders, sets, before, scratch))
    others = action.added_deletes.filter(pa.array(~is_file))
    gone = before.filter(pa.array(vectors_in(before)))
    known = [action.removed_deletes.entries] if action.removed_deletes.entries else []
    return replace(
        action,
        added_deletes=EntryTable.concat([others, vectors], base.specs),
        removed_deletes=replace(
            action.removed_deletes, entries=EntryTable.concat([*known, gone], base.specs), manifests=()
        ),
    )


def _read(base: Base, paths: Iterable[str]) -> Sets:
    """The positions that delete files name, by data file."""
    found: Sets = {}
    for path in paths:
        for name, positions in _positions_in(base, path):
            found[name] = found[name].union(positions) if name in found else positions
    return found


def _positions_in(base: Base, path: str) -> Iterator[tuple[str, PositionSet]]:
    table = open_by_id(read_all(base.io, path), path)
    wanted = ((PATH_FIELD_ID,), (_POSITION_FIELD_ID,))
    if not table.has(*wanted):
        raise CorruptFile(path, f"a position delete file with the fields {wanted[0][0]} and {wanted[1][0]}", "others")
    names, positions = (table.read(wanted)[w] for w in wanted)
    if names.null_count or positions.null_count or (len(positions) and pc.min(positions).as_py() < 0):
        raise CorruptFile(path, "a path and a position from 0 on in every row", "a row without")
    encoded = canonical_all(names.cast(pa.string())).dictionary_encode()
    codes, at = encoded.indices.to_numpy(), positions.to_numpy()
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        yield name, PositionSet.of(at[codes == code])


def _holders(base: Base, action: RowDelta | RewriteFiles, files: EntryTable, sets: Sets) -> EntryTable:
    """The data files that lose rows, live or new; one that is neither is refused: there is no row for its vector."""
    within = PartitionSet.of(files, base.specs)
    data = [m for m in base.manifests if not m.is_deletes and m.may_hold_live_files]
    live = read_entries(base.io, list(compress(data, within.may_meet(data))), base.specs, live_only=True)
    every = EntryTable.concat([live, *([action.added_data] if action.added_data else [])], base.specs)
    paths = canonical_all(every["file_path"])
    if missing := sorted(set(sets) - set(paths.to_pylist())):
        message = "Data files that new position deletes name are not in the table, or not in their partitions."
        raise Refused(Conflict(Check.REQUIRED_FILES, message, files=tuple(missing)))
    return every.filter(pc.is_in(paths, value_set=pa.array(sorted(sets), pa.string())))


def _deletes_of(base: Base, holders: EntryTable, files: EntryTable) -> EntryTable:
    """The deletes by position that data files have already."""
    within = PartitionSet.of(files, base.specs)
    manifests: list[Manifest] = [m for m in base.manifests if m.is_deletes]
    chosen = list(compress(manifests, within.may_meet(manifests)))
    live = read_entries(base.io, chosen, base.specs, detail=DETAIL.names, live_only=True)
    live = live.of_content(Content.POSITION_DELETES)
    return live.take(np.unique(attach(holders, live)["delete"].to_numpy()))


@dataclass(frozen=True)
class _Earlier:
    """The positions that the deletes of data files held before."""

    sets: Sets

    @classmethod
    def of(cls, base: Base, before: EntryTable) -> _Earlier:
        is_vector = vectors_in(before)
        vectors = before.filter(pa.array(is_vector))
        found = _by_canonical(positions_of(base, vectors)) if len(vectors) else {}
        # a file that has a vector has nothing else
        others = _read(base, before.filter(pa.array(~is_vector))["file_path"].to_pylist())
        return cls({**others, **found})


def _by_canonical(sets: Sets) -> Sets:
    names = canonical_all(pa.array(list(sets), pa.string())).to_pylist()
    return dict(zip(names, sets.values(), strict=True))


def _written(base: Base, holders: EntryTable, sets: Sets, before: EntryTable, scratch: Scratch) -> EntryTable:
    """The vectors of data files, in a new Puffin file, as delete files of the partitions of the data files."""
    earlier = _Earlier.of(base, before).sets
    keys = canonical_all(holders["file_path"]).to_pylist()
    united = [sets[key].union(earlier[key]) if key in earlier else sets[key] for key in keys]
    path = scratch.vector_path(base)
    data, rows = pack_vectors(zip(holders["file_path"].to_pylist(), united, strict=True))
    write_new(base.io, path, data)
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
