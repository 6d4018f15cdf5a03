"""One vector per data file: several vectors for a file inside one commit are united before they are listed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.commit.outcome import Check, Conflict
from neve.commit.scratch import Scratch
from neve.commit.window import Base, Refused
from neve.io.deletion_vectors import PositionSet
from neve.io.files import write_new
from neve.io.puffin import pack_vectors, read_vectors
from neve.tree.entries import EntryTable
from neve.tree.group_by_spec import vectors_in

__all__ = ["positions_of", "united"]


def united(base: Base, deletes: EntryTable, scratch: Scratch) -> EntryTable:
    """Delete files with the vectors of each data file united, in a new Puffin file where there were several."""
    is_vector = vectors_in(deletes)
    doubled = is_vector & _repeats(deletes["referenced_data_file"], is_vector)
    if not doubled.any():
        scratch.united, scratch.replaced = (
            (),
            frozenset(),
        )  # what an earlier attempt united is not in the table any more
        return deletes
    vectors = deletes.filter(pa.array(doubled))
    first = _first_of_each(vectors)
    _refuse_mixed(vectors)
    others = deletes.filter(pa.array(~doubled))
    scratch.replaced = frozenset(vectors["file_path"].to_pylist()) - frozenset(others["file_path"].to_pylist())
    return EntryTable.concat(
        [others, scratch.unite(vectors, lambda: _written(base, vectors, first, scratch))], deletes.specs
    )


def _repeats(names: pa.ChunkedArray, among: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Which of the chosen names occur more than once among the chosen."""
    codes = names.combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)
    return np.bincount(codes[among], minlength=int(codes.max(initial=0)) + 1)[codes] > 1


def _codes(vectors: EntryTable) -> np.ndarray[Any, Any]:
    names = vectors["referenced_data_file"].combine_chunks().dictionary_encode()
    return np.asarray(names.indices.to_numpy(zero_copy_only=False))


def _first_of_each(vectors: EntryTable) -> EntryTable:
    return vectors.take(np.unique(_codes(vectors), return_index=True)[1])


def _refuse_mixed(vectors: EntryTable) -> None:
    """Vectors of one file must agree on what the file is: its spec, its partition, and the number they apply from."""
    files = _codes(vectors)
    partitions, _ = vectors.partition_codes()
    numbers = pc.fill_null(vectors["sequence_number"], -1).to_numpy()
    for values, what in ((partitions, "specs or partitions"), (numbers, "sequence numbers")):
        if len(np.unique(np.stack([files, values]), axis=1)[0]) > len(np.unique(files)):
            paths = tuple(sorted(set(vectors["referenced_data_file"].to_pylist())))
            message = f"Cannot unite deletion vectors of one data file that name different {what}."
            raise Refused(Conflict(Check.ARGUMENTS, message, files=paths, spec_ids=tuple(vectors.spec_ids())))


def _written(base: Base, vectors: EntryTable, first: EntryTable, scratch: Scratch) -> EntryTable:
    names = first["referenced_data_file"].to_pylist()
    positions = positions_of(base, vectors)
    path = scratch.vector_path(base)
    data, rows = pack_vectors((name, positions[name]) for name in names)
    write_new(base.io, path, data)
    return first.with_columns(
        file_path=path,
        file_size_in_bytes=len(data),
        content_offset=rows["content_offset"],
        content_size_in_bytes=rows["content_size_in_bytes"],
        record_count=rows["record_count"],
    )


def positions_of(base: Base, vectors: EntryTable) -> dict[str, PositionSet]:
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
