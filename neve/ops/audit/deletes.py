"""Check delete files against the data files they belong to.

`delete_findings` needs metadata only. `vector_findings` reads deletion vectors from storage: every blob must decode and
agree with the manifest and the Puffin footer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from neve.io import files
from neve.io.deletion_vectors import decode_vector
from neve.io.parallel import map_in_threads
from neve.io.paths import canonical_path, refuse_unreadable
from neve.io.puffin import VECTOR_TYPE, Blob, read_footer
from neve.model.partition import Specs
from neve.model.pyiceberg_private import fields_by_id
from neve.ops.audit.findings import Finding, error_finding, findings_for_rows
from neve.ops.audit.snapshot_index import Ints, SnapshotIndex
from neve.tree.entries import Content


def delete_findings(index: SnapshotIndex, pairs: Ints, specs: Specs) -> Iterator[Finding]:
    """Return all violations by delete files in the metadata; `pairs` is from `pair_deletes_with_files`."""
    yield from vectors_have_locations(index)
    yield from covered_files_are_live(index, pairs)
    yield from partitions_agree(index, pairs)
    yield from equality_ids_are_known(index, specs)


def pair_deletes_with_files(index: SnapshotIndex) -> Ints:
    """Pair the row of each delete that names a data file with the file's; -1: not live in the same snapshot."""
    pairs = [np.empty((0, 2), np.int64)]
    row_of_file = np.full(len(index.paths) + 2, -1, np.int64)  # the last two are of files that no snapshot lists
    for tree in index.snapshots:
        rows = index.live_entry_rows(tree)
        naming = rows[~index.is_data[rows] & (index.referenced_file_numbers[rows] != -1)]
        if tree.is_complete and len(naming):
            data = rows[index.is_data[rows]]
            row_of_file[:] = -1
            row_of_file[index.file_numbers[data]] = data
            pairs.append(np.column_stack([naming, row_of_file[index.referenced_file_numbers[naming]]]))
    return np.unique(np.concatenate(pairs), axis=0)


def vectors_have_locations(index: SnapshotIndex) -> Iterator[Finding]:
    """Check that a vector names its data file, and its offset and size in the Puffin file."""
    names = ("referenced_data_file", "content_offset", "content_size_in_bytes")
    absent = np.logical_or.reduce([index.entries[name].is_null().to_numpy() for name in names])
    incomplete = index.is_vector & index.is_live & absent
    yield from findings_for_rows("vector", index.entries, incomplete, f"A vector without all of {', '.join(names)}.")


def covered_files_are_live(index: SnapshotIndex, pairs: Ints) -> Iterator[Finding]:
    """Check that the data file of a delete is live; if not, the delete has no effect, so this is a note."""
    paths, data_files = index.entries["file_path"], index.entries["referenced_data_file"]
    for row in np.unique(pairs[pairs[:, 1] < 0, 0]).tolist():
        message = f"Deletes rows of {data_files[row].as_py()}, which is not live in the same snapshot."
        yield Finding("dangling-delete", paths[row].as_py(), message, "note")


def partitions_agree(index: SnapshotIndex, pairs: Ints) -> Iterator[Finding]:
    """Check that a delete has the spec and partition of its data file, and no lower sequence number.

    Readers do not apply it otherwise.
    """
    deletes, data = pairs[pairs[:, 1] >= 0].T
    elsewhere = np.zeros(len(deletes), bool)
    for name in ("spec_id", *(u.column for u in index.entries.specs.union)):
        left, right = (index.entries[name].take(pa.array(rows)) for rows in (deletes, data))
        equal = pc.fill_null(pc.equal(left, right), False)
        # Two NaN values are equal.
        alike = pc.or_(equal, pc.and_(*(pc.is_null(side, nan_is_null=True) for side in (left, right))))
        elsewhere |= ~pc.and_(alike, pc.equal(pc.is_null(left), pc.is_null(right))).to_numpy()
    numbers = index.entries["sequence_number"].fill_null(0).to_numpy()
    older = numbers[deletes] < numbers[data]
    for row, covered in zip(deletes[elsewhere], data[elsewhere], strict=True):
        own_spec, file_spec = (index.entries.partition_key(int(r)).spec_id for r in (row, covered))
        where = f"spec {own_spec}, its data file under spec {file_spec}"
        values = "" if own_spec != file_spec else " with other values"
        yield _pair_finding(index, row, "delete-partition", f"Is in a partition under {where}{values}", covered)
    for row, covered in zip(deletes[older], data[older], strict=True):
        message = f"Is numbered {numbers[row]}, before its data file ({numbers[covered]})"
        yield _pair_finding(index, row, "delete-sequence-number", message, covered)


def equality_ids_are_known(index: SnapshotIndex, specs: Specs) -> Iterator[Finding]:
    """Check that an equality delete names its columns, and that each is or was a column of the table."""
    rows = np.flatnonzero(index.is_live & (index.entries.numpy("content") == Content.EQUALITY_DELETES))
    if not len(rows):
        return
    chosen = index.entries.take(rows)
    ids: Any = chosen["equality_ids"].combine_chunks()
    known_ids = pa.array(sorted({i for s in specs.schemas for i in fields_by_id(s)}), pa.int32())
    wrong = (pc.list_value_length(ids).fill_null(0).to_numpy() == 0).copy()
    parents = pc.list_parent_indices(ids).to_numpy()
    wrong[parents[~pc.is_in(pc.list_flatten(ids), value_set=known_ids).to_numpy(zero_copy_only=False)]] = True
    yield from findings_for_rows(
        "equality-ids", chosen, wrong, lambda row: f"Compares columns {ids[row].as_py()}, not all known to the table."
    )


def _pair_finding(index: SnapshotIndex, row: Any, kind: str, message: str, covered: Any) -> Finding:
    paths = index.entries["file_path"]
    return Finding(kind, paths[int(row)].as_py(), f"{message} {paths[int(covered)].as_py()}.")


# -- deletion vectors in storage -------------------------------------------------------------------------------------

_THREADS = 16
_BATCH_VECTORS = 64  # vectors of one file that are in memory at once


@dataclass(frozen=True, slots=True)
class VectorEntry:
    """A vector as described by its manifest entry."""

    row: int
    path: str
    offset: int
    length: int
    cardinality: int
    data_file: str


def vector_findings(io: FileIO, index: SnapshotIndex, pairs: Ints, location: str) -> Iterator[Finding]:
    """Return all violations by stored vectors; `pairs` is from `pair_deletes_with_files`."""
    last = np.full(len(index.entries), -1, np.int64)
    batches = list(_vector_batches(index))
    for findings, positions in map_in_threads(lambda batch: _check_vectors(io, batch, location), batches, _THREADS):
        yield from findings
        for row, position in positions.items():
            last[row] = position
    vectors, data = pairs[pairs[:, 1] >= 0].T
    rows = index.entries.numpy("record_count")
    paths = index.entries["file_path"]
    for row, covered in zip(*(side[last[vectors] >= rows[data]] for side in (vectors, data)), strict=True):
        name = paths[int(covered)].as_py()
        message = f"Deletes position {last[row]} of {name}, which has {rows[covered]} rows."
        yield Finding("vector-position", paths[int(row)].as_py(), message)


def _vector_batches(index: SnapshotIndex) -> Iterator[list[VectorEntry]]:
    """Return the distinct vectors in batches of bounded size; a batch is from one file."""
    names = ("content_offset", "content_size_in_bytes", "referenced_data_file")
    is_complete = np.logical_and.reduce([index.entries[name].is_valid().to_numpy() for name in names])
    rows = np.flatnonzero(index.is_vector & index.is_live & is_complete & ~index.is_encrypted)
    columns = ["file_path", "content_offset", "content_size_in_bytes", "record_count", "referenced_data_file"]
    table = index.entries.columns.select(columns).take(rows)
    by_file: dict[str, dict[tuple[object, ...], VectorEntry]] = {}
    for row, values in zip(rows, zip(*(c.to_pylist() for c in table.columns), strict=True), strict=True):
        by_file.setdefault(values[0], {}).setdefault(values, VectorEntry(int(row), *values))
    for distinct in by_file.values():
        vectors = list(distinct.values())
        yield from (vectors[at : at + _BATCH_VECTORS] for at in range(0, len(vectors), _BATCH_VECTORS))


def _check_vectors(io: FileIO, vectors: Sequence[VectorEntry], location: str) -> tuple[list[Finding], dict[int, int]]:
    """Return the findings on some vectors of one file, and by row the last position in each that could be decoded."""
    path = vectors[0].path
    try:
        refuse_unreadable(pa.array([path]), location)
        footer = {(b.offset, b.length): b for b in read_footer(io, path).blobs}
        listed = [v for v in vectors if (v.offset, v.length) in footer]
        blobs = files.read_many_ranges(io, path, [(v.offset, v.length) for v in listed])
    except Exception as e:  # whatever the bytes do to a reader, the audit goes on
        return [error_finding(path, e)], {}
    findings = [f for v in vectors for f in _footer_findings(v, footer.get((v.offset, v.length)))]
    last: dict[int, int] = {}
    for vector, blob in zip(listed, blobs, strict=True):
        try:
            last[vector.row] = decode_vector(blob, path, vector.cardinality, vector.offset).maximum or 0
        except Exception as e:
            findings.append(Finding("vector", path, str(e)))
    return findings, last


def _footer_findings(vector: VectorEntry, blob: Blob | None) -> Iterator[Finding]:
    where = f"at byte {vector.offset}"
    if blob is None or blob.type != VECTOR_TYPE:
        yield Finding("vector", vector.path, f"The footer lists no vector of {vector.length} bytes {where}.")
        return
    data_file = blob.properties.get("referenced-data-file")
    if data_file is not None and canonical_path(data_file) != canonical_path(vector.data_file):
        message = f"The vector {where} belongs to {data_file} by the footer, to {vector.data_file} by the manifest."
        yield Finding("vector", vector.path, message)
