"""Read deleted positions: the rows of data files that position delete files and deletion vectors delete."""

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

# Both are required, but there are files with nulls in them: a row without a path or position deletes nothing.
_SCHEMA = Schema(
    NestedField(DELETE_PATH_ID, "file_path", StringType()), NestedField(DELETE_POSITION_ID, "pos", LongType())
)
_MAX_UNCOMPRESSED_ROWS = 4 << 20  # positions held uncompressed at once

Ints = NDArray[np.int64]
PathNumbering = Callable[[pa.Array], Ints]  # returns a number for each path, -1 for a path that is not requested


def with_deleted_positions(io: FileIO, tasks: Sequence[FileTask]) -> list[FileTask]:
    """Return the same tasks with all their deleted positions read; a delete file that they share is read once."""
    sets_by_task = [[task.positions] if task.positions is not None else [] for task in tasks]
    users: dict[DeleteFile, list[int]] = {}  # ordinals of the tasks
    for ordinal, task in enumerate(tasks):
        for delete in task.deletes:
            users.setdefault(delete, []).append(ordinal)
    vectors_by_path: dict[str, list[DeleteFile]] = {}  # each Puffin file is opened once
    for delete in users:
        if delete.content_offset is not None:
            vectors_by_path.setdefault(delete.path, []).append(delete)
    for path, vectors in vectors_by_path.items():
        blobs = [(v.content_offset or 0, v.content_size or 0, v.record_count or 0) for v in vectors]
        for vector, positions in zip(vectors, read_vectors(io, path, blobs), strict=True):
            for ordinal in users[vector]:
                sets_by_task[ordinal].append(positions)
    for delete, ordinals in users.items():
        if delete.content_offset is None:
            by_path = read_position_deletes(io, delete, [tasks[ordinal].path for ordinal in ordinals])
            for ordinal in ordinals:
                if tasks[ordinal].path in by_path:
                    sets_by_task[ordinal].append(by_path[tasks[ordinal].path])
    return [
        replace(task, positions=PositionSet().union(*sets) if sets else None, deletes=())
        for task, sets in zip(tasks, sets_by_task, strict=True)
    ]


@dataclass
class PositionDeleteCache:
    """The deletes of tasks that arrive one by one: a position delete file is read once, for all files in it."""

    io: FileIO
    positions_by_file: dict[DeleteFile, dict[str, PositionSet]] = field(default_factory=dict)  # by canonical path

    def with_deleted_positions(self, task: FileTask) -> FileTask:
        """Return the same task with all its deleted positions read."""
        path = canonical_path(task.path)
        delete_files = [d for d in task.deletes if d.content_offset is None]
        for delete in delete_files:
            if delete not in self.positions_by_file:
                self.positions_by_file[delete] = _read_all_positions(self.io, delete)
        sets = [self.positions_by_file[d][path] for d in delete_files if path in self.positions_by_file[d]]
        with_vectors = replace(task, deletes=tuple(d for d in task.deletes if d.content_offset is not None))
        [task] = with_deleted_positions(self.io, [with_vectors])
        if task.positions is not None:
            sets.append(task.positions)
        return replace(task, positions=PositionSet().union(*sets) if sets else None)


def read_position_deletes(io: FileIO, delete: DeleteFile, data_paths: Collection[str]) -> dict[str, PositionSet]:
    """Return the positions in a position delete file, for those of the given data files that it refers to.

    Paths are compared in their canonical form, because writers use several schemes for the same bucket.
    """
    names = pa.array(data_paths, pa.string())
    canonical = canonical_path_all(names).dictionary_encode()

    def number_requested_paths(paths: pa.Array) -> Ints:
        encoded = paths.dictionary_encode()  # so that every distinct path is looked up once
        numbers = pc.index_in(canonical_path_all(encoded.dictionary), value_set=canonical.dictionary).fill_null(-1)
        return np.asarray(numbers.to_numpy()[encoded.indices.to_numpy()], np.int64)

    positions = _read_positions_by_number(io, delete, number_requested_paths)
    numbered_names = zip(names.to_pylist(), canonical.indices.to_pylist(), strict=True)
    return {name: positions[number] for name, number in numbered_names if number in positions}


def _read_all_positions(io: FileIO, delete: DeleteFile) -> dict[str, PositionSet]:
    """Return the positions in a position delete file, by the canonical path of the data file."""
    number_by_path: dict[str, int] = {}

    def number_paths(paths: pa.Array) -> Ints:
        encoded = paths.dictionary_encode()
        names = canonical_path_all(encoded.dictionary).to_pylist()
        numbers = np.array([number_by_path.setdefault(name, len(number_by_path)) for name in names], np.int64)
        return numbers[encoded.indices.to_numpy()]

    positions = _read_positions_by_number(io, delete, number_paths)
    return {path: positions[number] for path, number in number_by_path.items()}


def _read_positions_by_number(io: FileIO, delete: DeleteFile, number_paths: PathNumbering) -> dict[int, PositionSet]:
    """Return the positions in a position delete file, by the number of the data file."""
    sets: defaultdict[int, list[PositionSet]] = defaultdict(list)
    for numbers, positions in _read_matching_rows(io, delete, number_paths):
        if not len(positions):
            continue
        lowest, highest = positions.min(), positions.max()
        if lowest < 0 or highest > MAX_POSITION:
            raise CorruptFile(delete.path, f"positions from 0 to {MAX_POSITION}", f"{lowest} to {highest}")
        order = np.argsort(numbers, kind="stable")
        files, starts = np.unique(numbers[order], return_index=True)
        for number, rows in zip(files.tolist(), np.split(order, starts[1:]), strict=True):
            sets[number].append(PositionSet.of(positions[rows]))
    return {number: PositionSet().union(*parts) for number, parts in sets.items()}


def _read_matching_rows(io: FileIO, delete: DeleteFile, number_paths: PathNumbering) -> Iterator[tuple[Ints, Ints]]:
    """Yield the numbers of the requested data files and the positions in them, in batches worth compressing.

    The rows of the file count, not their number in the manifest, which some writers get wrong.
    """
    pending: list[tuple[Ints, Ints]] = []
    with open_file(io, delete.path, delete.file_format, delete.file_size, None) as data:
        fields = assign_field_ids(data.fields, delete.path, None, [_SCHEMA])
        source = ProjectionSource(delete.path, fields, {}, {}, {}, data.prunes_nested)
        projection = compile_projection(_SCHEMA, source, ArrowFlavor.EXACT)
        for rows, columns in data.batches(projection.leaves):
            batch = projection.apply(columns, rows)
            if any(column.null_count for column in batch.columns):
                batch = batch.filter(pc.and_(*(column.is_valid() for column in batch.columns)))
            numbers = number_paths(batch.column(0))
            is_requested = numbers >= 0
            pending.append((numbers[is_requested], batch.column(1).to_numpy()[is_requested]))
            if sum(len(numbers) for numbers, _ in pending) >= _MAX_UNCOMPRESSED_ROWS:
                yield _concatenate(pending)
                pending = []
    if pending:
        yield _concatenate(pending)


def _concatenate(batches: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    return np.concatenate([numbers for numbers, _ in batches]), np.concatenate([p for _, p in batches])
