"""Deletion vectors where they are stored: every blob decodes, and says what the manifest and the footer say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from neve.io import files
from neve.io.deletion_vectors import decode
from neve.io.paths import canonical, refuse_unreadable
from neve.io.puffin import VECTOR_TYPE, Blob, read_footer
from neve.ops.audit.findings import Finding, about
from neve.ops.audit.forest import Forest, Ints

__all__ = ["vector_findings"]

_THREADS = 16
_TOGETHER = 64  # vectors of one file that are in memory at once


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector as a manifest describes it."""

    row: int
    path: str
    offset: int
    length: int
    cardinality: int
    data_file: str


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of some vectors of one file: findings, and the last position of each that could be decoded."""

    findings: tuple[Finding, ...]
    last_positions: dict[int, int]


def vector_findings(io: FileIO, forest: Forest, pairs: Ints, location: str) -> Iterator[Finding]:
    """Every promise a stored vector breaks; `pairs` puts each vector beside its data file."""
    with ThreadPoolExecutor(_THREADS) as pool:
        checked = list(pool.map(lambda group: _check(io, group, location), _groups(forest)))
    last = np.full(len(forest.entries), -1, np.int64)
    for result in checked:
        yield from result.findings
        for row, position in result.last_positions.items():
            last[row] = position
    vectors, data = pairs[pairs[:, 1] >= 0].T
    rows = forest.entries.numpy("record_count")
    paths = forest.entries["file_path"]
    for row, covered in zip(*(side[last[vectors] >= rows[data]] for side in (vectors, data)), strict=True):
        name = paths[int(covered)].as_py()
        message = f"Deletes position {last[row]} of {name}, which has {rows[covered]} rows."
        yield Finding("vector-position", paths[int(row)].as_py(), message)


def _groups(forest: Forest) -> Iterator[list[Vector]]:
    """The distinct vectors, those of one file together, a bounded number at a time."""
    names = ("content_offset", "content_size_in_bytes", "referenced_data_file")
    whole = np.logical_and.reduce([forest.entries[name].is_valid().to_numpy() for name in names])
    rows = np.flatnonzero(forest.is_vector & forest.is_live & whole & ~forest.is_encrypted)
    columns = ["file_path", "content_offset", "content_size_in_bytes", "record_count", "referenced_data_file"]
    table = forest.entries.columns.select(columns).take(rows)
    by_file: dict[str, dict[tuple[object, ...], Vector]] = {}
    for row, values in zip(rows, zip(*(c.to_pylist() for c in table.columns), strict=True), strict=True):
        by_file.setdefault(values[0], {}).setdefault(values, Vector(int(row), *values))
    for distinct in by_file.values():
        vectors = list(distinct.values())
        yield from (vectors[at : at + _TOGETHER] for at in range(0, len(vectors), _TOGETHER))


def _check(io: FileIO, vectors: Sequence[Vector], location: str) -> Checked:
    path = vectors[0].path
    try:
        refuse_unreadable(pa.array([path]), location)
        footer = {(b.offset, b.length): b for b in read_footer(io, path).blobs}
        known = [v for v in vectors if (v.offset, v.length) in footer]
        blobs = files.read_ranges(io, path, [(v.offset, v.length) for v in known])
    except Exception as e:  # whatever the bytes do to a reader, the audit goes on
        return Checked((about(path, e),), {})
    findings = [f for v in vectors for f in _against_footer(v, footer.get((v.offset, v.length)))]
    last: dict[int, int] = {}
    for vector, blob in zip(known, blobs, strict=True):
        try:
            last[vector.row] = decode(blob, path, vector.cardinality, vector.offset).maximum or 0
        except Exception as e:
            findings.append(Finding("vector", path, str(e)))
    return Checked(tuple(findings), last)


def _against_footer(vector: Vector, blob: Blob | None) -> Iterator[Finding]:
    place = f"at byte {vector.offset}"
    if blob is None or blob.type != VECTOR_TYPE:
        yield Finding("vector", vector.path, f"The footer knows no vector of {vector.length} bytes {place}.")
        return
    named = blob.properties.get("referenced-data-file")
    if named is not None and canonical(named) != canonical(vector.data_file):
        message = f"The vector {place} is of {named} by the footer, of {vector.data_file} by the manifest."
        yield Finding("vector", vector.path, message)
