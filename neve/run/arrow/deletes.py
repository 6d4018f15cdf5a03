"""Rows deleted by position: which rows of which data file a delete file or a deletion vector names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from neve.errors import CorruptFile
from neve.io.paths import canonical_all
from neve.io.puffin import read_vectors
from neve.io.vectors import MAX_POSITION, PositionSet
from neve.run.arrow.columns import DELETE_PATH_ID, DELETE_POSITION_ID
from neve.run.arrow.formats import open_file
from neve.run.arrow.ids import identified
from neve.run.arrow.project import Source, compile_projection
from neve.run.arrow.tasks import DeleteFile, FileTask
from neve.run.arrow.types import Carrier

__all__ = ["positions_in", "with_positions"]

_SCHEMA = Schema(
    NestedField(DELETE_PATH_ID, "file_path", StringType(), required=True),
    NestedField(DELETE_POSITION_ID, "pos", LongType(), required=True),
)
_FOLD_ROWS = 4 << 20  # positions held uncompressed at once

Ints = NDArray[np.int64]


def with_positions(io: FileIO, tasks: Sequence[FileTask]) -> list[FileTask]:
    """The same tasks with all their deleted positions read; a delete file several of them share is read once."""
    found = [[task.positions] if task.positions is not None else [] for task in tasks]
    users: dict[DeleteFile, list[int]] = {}
    for at, task in enumerate(tasks):
        for delete in task.deletes:
            users.setdefault(delete, []).append(at)
    for at, positions in _vectors(io, users):
        found[at].append(positions)
    for delete, ordinals in users.items():
        if delete.content_offset is None:
            by_path = positions_in(io, delete, [tasks[at].path for at in ordinals])
            for at in ordinals:
                found[at] += [by_path[tasks[at].path]] if tasks[at].path in by_path else []
    return [
        replace(task, positions=PositionSet().union(*sets) if sets else None, deletes=())
        for task, sets in zip(tasks, found, strict=True)
    ]


def _vectors(io: FileIO, users: dict[DeleteFile, list[int]]) -> Iterator[tuple[int, PositionSet]]:
    """The vectors among the deletes, each Puffin file opened once."""
    by_file: dict[str, list[DeleteFile]] = {}
    for delete in users:
        if delete.content_offset is not None:
            by_file.setdefault(delete.path, []).append(delete)
    for path, deletes in by_file.items():
        wanted = [(d.content_offset or 0, d.content_size or 0, d.record_count or 0) for d in deletes]
        for delete, positions in zip(deletes, read_vectors(io, path, wanted), strict=True):
            yield from ((at, positions) for at in users[delete])


def positions_in(io: FileIO, delete: DeleteFile, data_paths: Collection[str]) -> dict[str, PositionSet]:
    """The positions a position delete file names, for those of the given data files it names at all.

    Paths are compared in their canonical form: writers spell the scheme of one bucket in several ways.
    """
    names = pa.array(data_paths, pa.string())
    meant = canonical_all(names).dictionary_encode()
    sets: list[list[PositionSet]] = [[] for _ in meant.dictionary]
    for which, positions in _folded(_hits(io, delete, meant.dictionary)):
        for at, some in _by_file(which, positions, delete.path):
            sets[at].append(some)
    united = [PositionSet().union(*some) if some else None for some in sets]
    by_name = zip(names.to_pylist(), (united[at] for at in meant.indices.to_pylist()), strict=True)
    return {name: positions for name, positions in by_name if positions is not None}


def _hits(io: FileIO, delete: DeleteFile, wanted: pa.Array) -> Iterator[tuple[Ints, Ints]]:
    """Per batch: which of the wanted files a row names, and the position in it."""
    with open_file(io, delete.path, delete.file_format, delete.file_size, delete.record_count) as data:
        fields = identified(data.fields, delete.path, None, [_SCHEMA])
        source = Source(delete.path, fields, {}, {}, {}, data.prunes_nested)
        projection = compile_projection(_SCHEMA, source, Carrier.EXACT)
        for rows, columns in data.batches(projection.leaves):
            batch = projection.apply(columns, rows)
            which = _which(batch.column(0), wanted)
            hit = which >= 0
            yield which[hit], batch.column(1).to_numpy()[hit]


def _which(paths: pa.Array, wanted: pa.Array) -> Ints:
    """For each path its place among the wanted ones, or -1; every distinct path is looked at once."""
    encoded = paths.dictionary_encode()
    places = pc.index_in(canonical_all(encoded.dictionary), value_set=wanted).fill_null(-1)
    return np.asarray(places.to_numpy()[encoded.indices.to_numpy()], np.int64)


def _folded(batches: Iterator[tuple[Ints, Ints]]) -> Iterator[tuple[Ints, Ints]]:
    """Batches put together until they are worth compressing."""
    held: list[tuple[Ints, Ints]] = []
    for batch in batches:
        held.append(batch)
        if sum(len(which) for which, _ in held) >= _FOLD_ROWS:
            yield _together(held)
            held = []
    if held:
        yield _together(held)


def _together(held: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    return np.concatenate([w for w, _ in held]), np.concatenate([p for _, p in held])


def _by_file(which: Ints, positions: Ints, path: str) -> Iterator[tuple[int, PositionSet]]:
    if not len(positions):
        return
    if positions.min() < 0 or positions.max() > MAX_POSITION:
        raise CorruptFile(path, f"positions from 0 to {MAX_POSITION}", f"{positions.min()} to {positions.max()}")
    order = np.argsort(which, kind="stable")
    files, starts = np.unique(which[order], return_index=True)
    for at, start, end in zip(files, starts, [*starts[1:], len(order)], strict=True):
        yield int(at), PositionSet.of(positions[order[start:end]])
