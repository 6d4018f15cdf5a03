"""Which rows of which data files are deleted by position, brought to the driver as bitmaps.

Vectors are small and the driver reads them. Position delete files are read by the driver while they are small together;
larger ones by a Spark job that sends back one compressed bitmap per data file, never the rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from neve.io.deletion_vectors import PositionSet, decode
from neve.io.puffin import read_vectors
from neve.run.arrow.deletes import positions_in
from neve.run.arrow.tasks import DeleteFile
from neve.run.facts import TableFacts
from neve.run.spark.mapped import mapped
from neve.run.spark.pairs import Pairs
from neve.tree.entries import EntryTable

__all__ = ["DRIVER_BYTES", "delete_files", "deleted_positions"]

DRIVER_BYTES = 32 << 20  # position delete files the driver reads by itself
_THREADS = 16
_ASKED = pa.schema(
    [
        ("path", pa.string()),
        ("format", pa.string()),
        ("size", pa.int64()),
        ("count", pa.int64()),
        ("files", pa.list_(pa.string())),
    ]
)
_FOUND = "path string, vector binary"

Found = Iterable[tuple[str, PositionSet]]  # by the path of a data file
Users = list[tuple[DeleteFile, list[str]]]  # a delete file, and the data files it applies to
T = TypeVar("T")


def deleted_positions(
    spark: SparkSession, paths: Sequence[str], deletes: EntryTable, attached: Pairs, facts: TableFacts
) -> list[PositionSet]:
    """The deleted rows of each data file; `attached` pairs places in `paths` with rows of `deletes`."""
    pairs = _users(paths, deletes, attached)
    vectors = [p for p in pairs if p[0].content_offset is not None]
    lists = [p for p in pairs if p[0].content_offset is None]
    is_small = sum(delete.file_size or 0 for delete, _ in lists) <= DRIVER_BYTES
    found = [*_vectors(facts, vectors), *(_on_driver(facts, lists) if is_small else _on_executors(spark, facts, lists))]
    sets: dict[str, list[PositionSet]] = defaultdict(list)
    for path, positions in found:
        sets[path].append(positions)
    return [PositionSet().union(*sets[path]) for path in paths]


def delete_files(deletes: EntryTable) -> list[DeleteFile]:
    """Entries of position delete files and vectors as what it takes to read them."""
    names = (
        "file_path",
        "file_format",
        "file_size_in_bytes",
        "record_count",
        "content_offset",
        "content_size_in_bytes",
    )
    return [DeleteFile(*values) for values in zip(*(deletes[name].to_pylist() for name in names), strict=True)]


def _users(paths: Sequence[str], deletes: EntryTable, attached: Pairs) -> Users:
    needed = np.unique(attached.delete)
    users: list[list[str]] = [[] for _ in needed]
    for file, place in zip(attached.file.tolist(), np.searchsorted(needed, attached.delete).tolist(), strict=True):
        users[place].append(paths[file])
    return list(zip(delete_files(deletes.take(needed)), users, strict=True))


def _vectors(facts: TableFacts, pairs: Users) -> Found:
    """The vectors, each Puffin file opened once."""
    by_file: dict[str, Users] = defaultdict(list)
    for pair in pairs:
        by_file[pair[0].path].append(pair)
    read = partial(_vectors_of, facts.io())
    return [found for some in _at_once(read, list(by_file.items())) for found in some]


def _vectors_of(io: Any, item: tuple[str, Users]) -> Found:
    path, pairs = item
    wanted = [(d.content_offset or 0, d.content_size or 0, d.record_count or 0) for d, _ in pairs]
    sets = read_vectors(io, path, wanted)
    return [(file, positions) for (_, files), positions in zip(pairs, sets, strict=True) for file in files]


def _on_driver(facts: TableFacts, pairs: Users) -> Found:
    io = facts.io()
    return [found for some in _at_once(lambda p: positions_in(io, *p).items(), pairs) for found in some]


def _at_once(work: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(work, items))


def _on_executors(spark: SparkSession, facts: TableFacts, pairs: Users) -> Found:
    """One row per delete file out, one bitmap per data file it names back."""
    rows = [(d.path, d.file_format, d.file_size, d.record_count, files) for d, files in pairs]
    columns = [pa.array(values, f.type) for f, values in zip(_ASKED, zip(*rows, strict=True), strict=True)]
    tasks = spark.createDataFrame(pa.Table.from_arrays(columns, schema=_ASKED)).repartition(len(rows))
    found = mapped(tasks, partial(_positions_of, facts), _FOUND).toArrow()
    for path, vector in zip(found["path"].to_pylist(), found["vector"].to_pylist(), strict=True):
        yield path, decode(vector, path)


def _positions_of(facts: TableFacts, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    io = facts.io()
    for batch in batches:
        for row in batch.to_pylist():
            delete = DeleteFile(row["path"], row["format"], row["size"], row["count"])
            found = positions_in(io, delete, row["files"])
            vectors = [positions.encode() for positions in found.values()]
            yield pa.record_batch(
                [pa.array(list(found), pa.string()), pa.array(vectors, pa.binary())], ["path", "vector"]
            )
