"""Rows deleted by position: which rows of which data file a delete file or a deletion vector names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from neve.errors import CorruptFile
from neve.io.deletion_vectors import MAX_POSITION, PositionSet
from neve.io.paths import canonical_path, canonical_path_all
from neve.io.puffin import read_vectors
from neve.run.read.field_ids import assign_field_ids
from neve.run.read.formats import open_file
from neve.run.read.metadata_columns import DELETE_PATH_ID, DELETE_POSITION_ID
from neve.run.read.projection import ProjectionSource, compile_projection
from neve.run.read.tasks import DeleteFile, FileTask
from neve.run.read.types import ArrowFlavor

_SCHEMA = Schema(
    NestedField(DELETE_PATH_ID, "file_path", StringType(), required=True),
    NestedField(DELETE_POSITION_ID, "pos", LongType(), required=True),
)
_MAX_UNCOMPRESSED_ROWS = 4 << 20  # positions held uncompressed at once

Ints = NDArray[np.int64]
PathNumbering = Callable[[pa.Array], Ints]  # a number for each path, -1 for one that is not asked for


def with_deleted_positions(io: FileIO, tasks: Sequence[FileTask]) -> list[FileTask]:
    """The same tasks with all their deleted positions read; a delete file several of them share is read once."""
    found = [[task.positions] if task.positions is not None else [] for task in tasks]
    users: dict[DeleteFile, list[int]] = {}
    for at, task in enumerate(tasks):
        for delete in task.deletes:
            users.setdefault(delete, []).append(at)
    for at, positions in _read_vectors(io, users):
        found[at].append(positions)
    for delete, ordinals in users.items():
        if delete.content_offset is None:
            by_path = read_position_deletes(io, delete, [tasks[at].path for at in ordinals])
            for at in ordinals:
                found[at] += [by_path[tasks[at].path]] if tasks[at].path in by_path else []
    return [
        replace(task, positions=PositionSet().union(*sets) if sets else None, deletes=())
        for task, sets in zip(tasks, found, strict=True)
    ]


@dataclass
class PositionDeleteCache:
    """The deletes of tasks that come one by one: a position delete file is read once, for all files that it names."""

    io: FileIO
    positions_by_file: dict[DeleteFile, dict[str, PositionSet]] = field(default_factory=dict)  # by canonical path

    def with_deleted_positions(self, task: FileTask) -> FileTask:
        """The same task with all its deleted positions read."""
        name = canonical_path(task.path)
        shared = [self._positions_by_path(d) for d in task.deletes if d.content_offset is None]
        known = [by_path[name] for by_path in shared if name in by_path]
        alone = replace(task, deletes=tuple(d for d in task.deletes if d.content_offset is not None))
        [found] = with_deleted_positions(self.io, [alone])
        sets = [*known, *([] if found.positions is None else [found.positions])]
        return replace(found, positions=PositionSet().union(*sets) if sets else None)

    def _positions_by_path(self, delete: DeleteFile) -> dict[str, PositionSet]:
        if delete not in self.positions_by_file:
            met: dict[str, int] = {}
            united = _read_positions_by_number(self.io, delete, lambda paths: _number_paths(paths, met))
            self.positions_by_file[delete] = {path: united[at] for path, at in met.items()}
        return self.positions_by_file[delete]


def _read_vectors(io: FileIO, users: dict[DeleteFile, list[int]]) -> Iterator[tuple[int, PositionSet]]:
    """The vectors among the deletes, each Puffin file opened once."""
    by_file: dict[str, list[DeleteFile]] = {}
    for delete in users:
        if delete.content_offset is not None:
            by_file.setdefault(delete.path, []).append(delete)
    for path, deletes in by_file.items():
        wanted = [(d.content_offset or 0, d.content_size or 0, d.record_count or 0) for d in deletes]
        for delete, positions in zip(deletes, read_vectors(io, path, wanted), strict=True):
            yield from ((at, positions) for at in users[delete])


def read_position_deletes(io: FileIO, delete: DeleteFile, data_paths: Collection[str]) -> dict[str, PositionSet]:
    """The positions a position delete file names, for those of the given data files it names at all.

    Paths are compared in their canonical form: writers spell the scheme of one bucket in several ways.
    """
    names = pa.array(data_paths, pa.string())
    meant = canonical_path_all(names).dictionary_encode()
    united = _read_positions_by_number(io, delete, lambda paths: _which(paths, meant.dictionary))
    by_name = zip(names.to_pylist(), meant.indices.to_pylist(), strict=True)
    return {name: united[at] for name, at in by_name if at in united}


def _read_positions_by_number(io: FileIO, delete: DeleteFile, places: PathNumbering) -> dict[int, PositionSet]:
    """The positions a position delete file names, by the number of the data file."""
    sets: defaultdict[int, list[PositionSet]] = defaultdict(list)
    for which, positions in _join_batches(_read_matching_rows(io, delete, places)):
        for at, some in _positions_by_file(which, positions, delete.path):
            sets[at].append(some)
    return {at: PositionSet().union(*some) for at, some in sets.items()}


def _read_matching_rows(io: FileIO, delete: DeleteFile, places: PathNumbering) -> Iterator[tuple[Ints, Ints]]:
    """Per batch: which of the files asked for a row names, and the position in it."""
    with open_file(io, delete.path, delete.file_format, delete.file_size, delete.record_count) as data:
        fields = assign_field_ids(data.fields, delete.path, None, [_SCHEMA])
        source = ProjectionSource(delete.path, fields, {}, {}, {}, data.prunes_nested)
        projection = compile_projection(_SCHEMA, source, ArrowFlavor.EXACT)
        for rows, columns in data.batches(projection.leaves):
            batch = projection.apply(columns, rows)
            which = places(batch.column(0))
            hit = which >= 0
            yield which[hit], batch.column(1).to_numpy()[hit]


def _which(paths: pa.Array, wanted: pa.Array) -> Ints:
    """For each path its place among the wanted ones, or -1; every distinct path is looked at once."""
    encoded = paths.dictionary_encode()
    places = pc.index_in(canonical_path_all(encoded.dictionary), value_set=wanted).fill_null(-1)
    return np.asarray(places.to_numpy()[encoded.indices.to_numpy()], np.int64)


def _number_paths(paths: pa.Array, met: dict[str, int]) -> Ints:
    """For each path its number among those met so far, which new ones are added to."""
    encoded = paths.dictionary_encode()
    names = canonical_path_all(encoded.dictionary).to_pylist()
    numbers = np.array([met.setdefault(name, len(met)) for name in names], np.int64)
    return numbers[encoded.indices.to_numpy()]


def _join_batches(batches: Iterator[tuple[Ints, Ints]]) -> Iterator[tuple[Ints, Ints]]:
    """Batches put together until they are worth compressing."""
    held: list[tuple[Ints, Ints]] = []
    for batch in batches:
        held.append(batch)
        if sum(len(which) for which, _ in held) >= _MAX_UNCOMPRESSED_ROWS:
            yield _concatenate(held)
            held = []
    if held:
        yield _concatenate(held)


def _concatenate(held: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    return np.concatenate([w for w, _ in held]), np.concatenate([p for _, p in held])


def _positions_by_file(which: Ints, positions: Ints, path: str) -> Iterator[tuple[int, PositionSet]]:
    if not len(positions):
        return
    if positions.min() < 0 or positions.max() > MAX_POSITION:
        raise CorruptFile(path, f"positions from 0 to {MAX_POSITION}", f"{positions.min()} to {positions.max()}")
    order = np.argsort(which, kind="stable")
    files, starts = np.unique(which[order], return_index=True)
    for at, start, end in zip(files, starts, [*starts[1:], len(order)], strict=True):
        yield int(at), PositionSet.of(positions[order[start:end]])
