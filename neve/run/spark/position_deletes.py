"""Which rows of which data files are deleted by position, brought to the driver as bitmaps.

Vectors are small and the driver reads them. Position delete files are read by the driver while they are small together;
larger ones by a Spark job that sends back one compressed bitmap per data file, never the rows.

Deleted positions as a small table that Spark joins with the rows it reads.

A row of the table is a stretch of 65,536 rows of one file: 1,024 longs with a bit for every deleted row, or none at all
when nothing in it is deleted. It is broadcast; a query pays for one lookup per row and one bit test.

Which delete applies to which data file, as row numbers side by side.

How a row read by Spark is matched with facts about its file: by one long where possible, else by path.

The size of a file is in the manifest, and Spark knows it for every row. Where sizes differ they make a key that is
joined several times faster than a path. A key that matches nothing would let deleted rows live again, so rows that find
no match stop the query.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # noqa: N812

from neve.io.deletion_vectors import WORDS_PER_CHUNK, PositionSet, decode_vector
from neve.io.paths import spark_uri_all
from neve.io.puffin import read_vectors
from neve.run.read.position_deletes import read_position_deletes
from neve.run.read.tasks import DeleteFile
from neve.run.spark.arrow_exchange import map_in_arrow
from neve.run.table_facts import TableFacts
from neve.tree.entries import EntryTable

RowIndices = NDArray[np.int64]


@dataclass(frozen=True)
class DeletePairs:
    """Rows of an entry table of data files, and the rows of the deletes that apply to them."""

    file: RowIndices
    delete: RowIndices

    @classmethod
    def of(cls, attached: pa.Table) -> DeletePairs:
        """The pairs of a scan plan."""
        return cls(attached["file"].to_numpy(), attached["delete"].to_numpy())

    def of_files(self, rows: RowIndices) -> DeletePairs:
        """The pairs of some files, renumbered by their place among `rows`, which ascend."""
        chosen = np.isin(self.file, rows)
        return DeletePairs(np.searchsorted(rows, self.file[chosen]), self.delete[chosen])

    def of_deletes(self, chosen: NDArray[np.bool_]) -> DeletePairs:
        """The pairs of the deletes a mask selects."""
        mine = chosen[self.delete]
        return DeletePairs(self.file[mine], self.delete[mine])

    def renumber_deletes(self, rows: RowIndices) -> DeletePairs:
        """The same pairs, their deletes renumbered by their place among `rows`, which ascend and hold them all."""
        return DeletePairs(self.file, np.searchsorted(rows, self.delete))

    def files_with_deletes(self, files: int) -> NDArray[np.bool_]:
        """Which of so many files have a delete."""
        mask = np.zeros(files, bool)
        mask[self.file] = True
        return mask

    def table(self) -> pa.Table:
        """The pairs as a plan holds them, sorted by file."""
        order = np.argsort(self.file, kind="stable")
        return pa.table({"file": self.file[order], "delete": self.delete[order]})


DRIVER_BYTES = 32 << 20  # position delete files the driver reads by itself
_THREADS = 16
_TASK_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("format", pa.string()),
        ("size", pa.int64()),
        ("count", pa.int64()),
        ("files", pa.list_(pa.string())),
    ]
)
_RESULT_SCHEMA = "path string, vector binary"

PositionsByPath = Iterable[tuple[str, PositionSet]]  # by the path of a data file
DeletesWithDataFiles = list[tuple[DeleteFile, list[str]]]  # a delete file, and the data files it applies to
T = TypeVar("T")


def deleted_positions(
    spark: SparkSession, paths: Sequence[str], deletes: EntryTable, attached: DeletePairs, facts: TableFacts
) -> list[PositionSet]:
    """The deleted rows of each data file; `attached` pairs places in `paths` with rows of `deletes`."""
    pairs = _data_files_by_delete(paths, deletes, attached)
    vectors = [p for p in pairs if p[0].content_offset is not None]
    lists = [p for p in pairs if p[0].content_offset is None]
    is_small = sum(delete.file_size or 0 for delete, _ in lists) <= DRIVER_BYTES
    found = [
        *_read_vectors(facts, vectors),
        *(_on_driver(facts, lists) if is_small else _read_on_executors(spark, facts, lists)),
    ]
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


def _data_files_by_delete(paths: Sequence[str], deletes: EntryTable, attached: DeletePairs) -> DeletesWithDataFiles:
    needed = np.unique(attached.delete)
    users: list[list[str]] = [[] for _ in needed]
    for file, place in zip(attached.file.tolist(), np.searchsorted(needed, attached.delete).tolist(), strict=True):
        users[place].append(paths[file])
    return list(zip(delete_files(deletes.take(needed)), users, strict=True))


def _read_vectors(facts: TableFacts, pairs: DeletesWithDataFiles) -> PositionsByPath:
    """The vectors, each Puffin file opened once."""
    by_file: dict[str, DeletesWithDataFiles] = defaultdict(list)
    for pair in pairs:
        by_file[pair[0].path].append(pair)
    read = partial(_read_puffin_file, facts.io())
    return [found for some in _map_in_threads(read, list(by_file.items())) for found in some]


def _read_puffin_file(io: Any, item: tuple[str, DeletesWithDataFiles]) -> PositionsByPath:
    path, pairs = item
    wanted = [(d.content_offset or 0, d.content_size or 0, d.record_count or 0) for d, _ in pairs]
    sets = read_vectors(io, path, wanted)
    return [(file, positions) for (_, files), positions in zip(pairs, sets, strict=True) for file in files]


def _on_driver(facts: TableFacts, pairs: DeletesWithDataFiles) -> PositionsByPath:
    io = facts.io()
    return [found for some in _map_in_threads(lambda p: read_position_deletes(io, *p).items(), pairs) for found in some]


def _map_in_threads(work: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(work, items))


def _read_on_executors(spark: SparkSession, facts: TableFacts, pairs: DeletesWithDataFiles) -> PositionsByPath:
    """One row per delete file out, one bitmap per data file it names back."""
    rows = [(d.path, d.file_format, d.file_size, d.record_count, files) for d, files in pairs]
    columns = [pa.array(values, f.type) for f, values in zip(_TASK_SCHEMA, zip(*rows, strict=True), strict=True)]
    tasks = spark.createDataFrame(pa.Table.from_arrays(columns, schema=_TASK_SCHEMA)).repartition(len(rows))
    found = map_in_arrow(tasks, partial(_read_positions_in_task, facts), _RESULT_SCHEMA).toArrow()
    for path, vector in zip(found["path"].to_pylist(), found["vector"].to_pylist(), strict=True):
        yield path, decode_vector(vector, path)


def _read_positions_in_task(facts: TableFacts, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    io = facts.io()
    for batch in batches:
        for row in batch.to_pylist():
            delete = DeleteFile(row["path"], row["format"], row["size"], row["count"])
            found = read_position_deletes(io, delete, row["files"])
            vectors = [positions.encode() for positions in found.values()]
            yield pa.record_batch(
                [pa.array(list(found), pa.string()), pa.array(vectors, pa.binary())], ["path", "vector"]
            )


CHUNK_BITS = 16  # rows in a chunk, as a power of two
_CHUNK_NUMBER_BITS = 20  # of a chunk number inside a key
_MAX_CHUNKS, _MAX_FILE_SIZE = 1 << _CHUNK_NUMBER_BITS, 1 << (62 - _CHUNK_NUMBER_BITS)


@dataclass(frozen=True)
class FileKeys:
    """The keys of a set of files, on the side of the manifests and on the side of Spark."""

    values: pa.Array  # one per file: its size, or the URI Spark shows
    by_size: bool

    @classmethod
    def of(cls, files: EntryTable, facts: TableFacts) -> FileKeys:
        """Sizes if they differ, else paths."""
        if has_unique_size(files).all():
            return cls(files["file_size_in_bytes"].combine_chunks(), True)
        return cls(spark_uri_all(files["file_path"], facts.schemes), False)

    @property
    def column(self) -> Column:
        """The key of the file a row comes from; to be selected straight from the read."""
        return F.col("_metadata.file_size" if self.by_size else "_metadata.file_path")

    def chunk_keys(self, file: np.ndarray, chunk: np.ndarray) -> list[pa.Array]:
        """The columns that tell a stretch of rows of a file apart, for files and chunk numbers side by side."""
        if self.by_size:
            return [pa.array((self.values.to_numpy()[file] << _CHUNK_NUMBER_BITS) | chunk)]
        return [self.values.take(pa.array(file)), pa.array(chunk)]

    def chunk_columns(self, key: Column, row: Column) -> list[Column]:
        """The same columns from the key of a row and its position."""
        chunk = F.shiftright(row, CHUNK_BITS)
        return [F.shiftleft(key, _CHUNK_NUMBER_BITS).bitwiseOR(chunk)] if self.by_size else [key, chunk]


def has_unique_size(files: EntryTable) -> np.ndarray:
    """Which files no other file of the set has the size of."""
    size, rows = files.numpy("file_size_in_bytes"), files.numpy("record_count")
    _, where, times = np.unique(size, return_inverse=True, return_counts=True)
    return (times[where] == 1) & (size < _MAX_FILE_SIZE) & (rows < _MAX_CHUNKS << CHUNK_BITS)


def split_by_unique_size(files: EntryTable) -> list[np.ndarray]:
    """The rows of a set of files in at most two groups: those told apart by size, and the others."""
    told = has_unique_size(files)
    return [rows for rows in (np.flatnonzero(told), np.flatnonzero(~told)) if len(rows)]


def stop_without_match(matched: Column, keep: Column, what: str) -> Column:
    """A condition that keeps rows, and stops the query at one that found no match."""
    message = (
        f"A row of a data file has no {what}: the size, path or row count of its file is not the one in the manifest."
    )
    return F.when(matched.isNull(), F.raise_error(F.lit(message)).cast("boolean")).otherwise(keep)


CHUNK_BYTES = 8 * WORDS_PER_CHUNK


def live_rows(
    spark: SparkSession,
    rows: DataFrame,
    key: str,
    position: str,
    keys: FileKeys,
    deleted: Sequence[PositionSet],
    counts: np.ndarray,
) -> DataFrame:
    """The rows that are not deleted, of a DataFrame with the key of each row's file and its position there."""
    table = bitmap_table(keys, deleted, counts)
    names = [f"__k{i}" for i in range(table.num_columns - 1)]
    words = spark.createDataFrame(table.rename_columns([*names, "__words"]))
    here = [c.alias(n) for c, n in zip(keys.chunk_columns(F.col(key), F.col(position)), ("__h0", "__h1"), strict=False)]
    matched = [F.col(f"__h{i}") == F.col(n) for i, n in enumerate(names)]
    joined = rows.select("*", *here).join(F.broadcast(words), matched, "left")
    live = stop_without_match(F.col("__words"), _is_live(F.col("__words"), F.col(position)), "deletion vector")
    return joined.where(live).select(*rows.columns)


def bitmap_table(keys: FileKeys, deleted: Sequence[PositionSet], counts: np.ndarray) -> pa.Table:
    """The keys of every chunk of every file, and its words."""
    files, chunks, words, sizes = [], [], [], []
    for file, (positions, count) in enumerate(zip(deleted, counts, strict=True)):
        found, table = positions.chunks()
        every = np.union1d(np.arange((count - 1 >> CHUNK_BITS) + 1), found)
        files.append(np.full(len(every), file))
        chunks.append(every)
        words.append(table.reshape(-1))
        sizes.append(np.where(np.isin(every, found), WORDS_PER_CHUNK, 0))
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(words)))
    columns = [*keys.chunk_keys(np.concatenate(files), np.concatenate(chunks)), lists]
    return pa.table(columns, names=[str(i) for i in range(len(columns))])


def _is_live(words: Column, position: Column) -> Column:
    word = F.shiftright(position, 6).bitwiseAND(WORDS_PER_CHUNK - 1).cast("int")
    bit = position.bitwiseAND(63).cast("int")
    return F.when(F.size(words) == 0, F.lit(True)).otherwise(F.getbit(words[word], bit) == 0)
