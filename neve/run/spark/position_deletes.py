"""Load deleted positions to the driver as bitmaps, and remove those rows from what Spark reads.

Deletion vectors are small, so the driver reads them. It also reads position delete files while they are small in total;
a Spark job reads larger ones and returns one compressed bitmap per data file, never the rows.

To remove the rows, the bitmaps become a small table that is broadcast and joined. Each of its rows is a chunk of 65,536
rows of one file: 1,024 longs with a bit for every row, or an empty list if nothing in the chunk is deleted. A query
pays for one lookup and one bit test per row.

A row is matched with its file by file size where possible, else by path. The size is in the manifest, and Spark has it
for every row. As a key, different sizes are joined several times faster than paths. If a key matched nothing, deleted
rows would reappear, so a row without a match stops the query.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from neve.io.deletion_vectors import WORDS_PER_CHUNK, PositionSet, decode_vector
from neve.io.parallel import map_in_threads, reader_count
from neve.io.paths import spark_uri_all
from neve.io.puffin import read_vectors
from neve.run.read.position_deletes import read_position_deletes
from neve.run.read.tasks import DELETE_FILE_COLUMNS, DeleteFile
from neve.run.spark.arrow_exchange import map_in_arrow
from neve.run.table_facts import TableFacts
from neve.tree.entries import EntryTable

RowIndices = NDArray[np.int64]


@dataclass(frozen=True)
class DeletePairs:
    """Which delete applies to which data file: row numbers of both entry tables, side by side."""

    file: RowIndices
    delete: RowIndices

    @classmethod
    def of(cls, attached: pa.Table) -> DeletePairs:
        """Return the pairs of a scan plan."""
        return cls(attached["file"].to_numpy(), attached["delete"].to_numpy())

    def of_files(self, rows: RowIndices) -> DeletePairs:
        """Return the pairs of some files, renumbered by their index in `rows`, which ascend."""
        mask = np.isin(self.file, rows)
        return DeletePairs(np.searchsorted(rows, self.file[mask]), self.delete[mask])

    def of_deletes(self, selected: NDArray[np.bool_]) -> DeletePairs:
        """Return the pairs of the deletes that a mask selects."""
        mask = selected[self.delete]
        return DeletePairs(self.file[mask], self.delete[mask])

    def renumber_deletes(self, rows: RowIndices) -> DeletePairs:
        """Renumber the deletes by their index in `rows`, which ascend and contain them all."""
        return DeletePairs(self.file, np.searchsorted(rows, self.delete))

    def files_with_deletes(self, files: int) -> NDArray[np.bool_]:
        """Return a mask of the files that have a delete, for a number of files."""
        mask = np.zeros(files, bool)
        mask[self.file] = True
        return mask

    def table(self) -> pa.Table:
        """Return the pairs in the form of a plan, sorted by file."""
        order = np.argsort(self.file, kind="stable")
        return pa.table({"file": self.file[order], "delete": self.delete[order]})


DRIVER_BYTES = 32 << 20  # position delete files up to this size in total are read by the driver
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


def deleted_positions(
    spark: SparkSession, paths: Sequence[str], deletes: EntryTable, attached: DeletePairs, facts: TableFacts
) -> list[PositionSet]:
    """Return the deleted positions of each data file; `attached` pairs indices of `paths` with rows of `deletes`."""
    pairs = _data_files_by_delete(paths, deletes, attached)
    vectors = [p for p in pairs if p[0].content_offset is not None]
    position_files = [p for p in pairs if p[0].content_offset is None]
    by_path = [*_read_vectors(facts, vectors)]
    size = sum(delete.file_size or 0 for delete, _ in position_files)
    if size <= DRIVER_BYTES:
        io = facts.io()
        threads = reader_count(io, (delete.path for delete, _ in position_files), size)
        for positions_of_files in map_in_threads(lambda p: read_position_deletes(io, *p), position_files, threads):
            by_path += positions_of_files.items()
    else:
        by_path += _read_on_executors(spark, facts, position_files)
    sets: dict[str, list[PositionSet]] = defaultdict(list)
    for path, positions in by_path:
        sets[path].append(positions)
    return [PositionSet().union(*sets[path]) for path in paths]


def _data_files_by_delete(paths: Sequence[str], deletes: EntryTable, attached: DeletePairs) -> DeletesWithDataFiles:
    needed = np.unique(attached.delete)
    users: list[list[str]] = [[] for _ in needed]
    for file, index in zip(attached.file.tolist(), np.searchsorted(needed, attached.delete).tolist(), strict=True):
        users[index].append(paths[file])
    columns = (deletes.take(needed)[name].to_pylist() for name in DELETE_FILE_COLUMNS)
    return list(zip(map(DeleteFile, *columns), users, strict=True))


def _read_vectors(facts: TableFacts, pairs: DeletesWithDataFiles) -> PositionsByPath:
    """Read vectors; each Puffin file is opened once."""
    by_file: dict[str, DeletesWithDataFiles] = defaultdict(list)
    for pair in pairs:
        by_file[pair[0].path].append(pair)
    io, size = facts.io(), sum(delete.content_size or 0 for delete, _ in pairs)
    threads = reader_count(io, by_file, size)
    return chain.from_iterable(map_in_threads(partial(_read_puffin_file, io), list(by_file.items()), threads))


def _read_puffin_file(io: Any, item: tuple[str, DeletesWithDataFiles]) -> PositionsByPath:
    path, pairs = item
    sets = read_vectors(io, path, [(d.content_offset or 0, d.content_size or 0, d.record_count or 0) for d, _ in pairs])
    return [(file, positions) for (_, files), positions in zip(pairs, sets, strict=True) for file in files]


def _read_on_executors(spark: SparkSession, facts: TableFacts, pairs: DeletesWithDataFiles) -> PositionsByPath:
    """Send one row per delete file, and get back one bitmap per data file that it names."""
    rows = [(d.path, d.file_format, d.file_size, d.record_count, files) for d, files in pairs]
    columns = [pa.array(values, f.type) for f, values in zip(_TASK_SCHEMA, zip(*rows, strict=True), strict=True)]
    tasks = spark.createDataFrame(pa.Table.from_arrays(columns, schema=_TASK_SCHEMA)).repartition(len(rows))
    results = map_in_arrow(tasks, partial(_read_positions_in_task, facts), _RESULT_SCHEMA).toArrow()
    for path, vector in zip(results["path"].to_pylist(), results["vector"].to_pylist(), strict=True):
        yield path, decode_vector(vector, path)


def _read_positions_in_task(facts: TableFacts, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    io = facts.io()
    for batch in batches:
        for row in batch.to_pylist():
            delete = DeleteFile(row["path"], row["format"], row["size"], row["count"])
            by_path = read_position_deletes(io, delete, row["files"])
            vectors = [positions.encode() for positions in by_path.values()]
            yield pa.record_batch(
                [pa.array(list(by_path), pa.string()), pa.array(vectors, pa.binary())], ["path", "vector"]
            )


CHUNK_BITS = 16  # rows in a chunk, as a power of two
_CHUNK_NUMBER_BITS = 20  # bits of the chunk number inside a key
_MAX_CHUNKS, _MAX_FILE_SIZE = 1 << _CHUNK_NUMBER_BITS, 1 << (62 - _CHUNK_NUMBER_BITS)


@dataclass(frozen=True)
class FileKeys:
    """The keys of a set of files, for the manifests and for Spark."""

    values: pa.Array  # one per file: its size, or the URI that Spark shows
    by_size: bool

    @classmethod
    def of(cls, files: EntryTable, facts: TableFacts) -> FileKeys:
        """Return sizes as keys if all differ, else paths."""
        if has_unique_size(files).all():
            return cls(files["file_size_in_bytes"].combine_chunks(), True)
        return cls(spark_uri_all(files["file_path"], facts.schemes), False)

    @property
    def column(self) -> Column:
        """The key of a row's file; it must be selected directly from the read."""
        return F.col("_metadata.file_size" if self.by_size else "_metadata.file_path")

    def chunk_keys(self, file: np.ndarray, chunk: np.ndarray) -> list[pa.Array]:
        """Return the columns that identify chunks, for files and chunk numbers side by side."""
        if self.by_size:
            return [pa.array((self.values.to_numpy()[file] << _CHUNK_NUMBER_BITS) | chunk)]
        return [self.values.take(pa.array(file)), pa.array(chunk)]

    def chunk_columns(self, key: Column, row: Column) -> list[Column]:
        """Return the same columns for a row, from the key of its file and its position."""
        chunk = F.shiftright(row, CHUNK_BITS)
        return [F.shiftleft(key, _CHUNK_NUMBER_BITS).bitwiseOR(chunk)] if self.by_size else [key, chunk]


def has_unique_size(files: EntryTable) -> np.ndarray:
    """Return a mask of the files whose size no other file has, and which fits into a key."""
    size, rows = files.numpy("file_size_in_bytes"), files.numpy("record_count")
    _, index, counts = np.unique(size, return_inverse=True, return_counts=True)
    return (counts[index] == 1) & (size < _MAX_FILE_SIZE) & (rows < _MAX_CHUNKS << CHUNK_BITS)


def split_by_unique_size(files: EntryTable) -> list[np.ndarray]:
    """Split the rows of an entry table in at most two groups: files with a unique size, and the others."""
    is_unique = has_unique_size(files)
    return [rows for rows in (np.flatnonzero(is_unique), np.flatnonzero(~is_unique)) if len(rows)]


def stop_without_match(matched: Column, keep: Column, what: str) -> Column:
    """Return a condition that keeps rows, and stops the query at a row without a match."""
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
    """Return the rows that are not deleted; `key` and `position` name the columns of a row's file and position."""
    table = bitmap_table(keys, deleted, counts)
    names = [f"__k{i}" for i in range(table.num_columns - 1)]
    bitmaps = spark.createDataFrame(table.rename_columns([*names, "__words"]))
    own = [c.alias(f"__h{i}") for i, c in enumerate(keys.chunk_columns(F.col(key), F.col(position)))]
    matched = [F.col(f"__h{i}") == F.col(n) for i, n in enumerate(names)]
    joined = rows.select("*", *own).join(F.broadcast(bitmaps), matched, "left")
    words = F.col("__words")
    word = words[F.shiftright(F.col(position), 6).bitwiseAND(WORDS_PER_CHUNK - 1).cast("int")]
    bit = F.getbit(word, F.col(position).bitwiseAND(63).cast("int"))
    is_live = F.when(F.size(words) == 0, F.lit(True)).otherwise(bit == 0)
    return joined.where(stop_without_match(words, is_live, "deletion vector")).select(*rows.columns)


def bitmap_table(keys: FileKeys, deleted: Sequence[PositionSet], counts: np.ndarray) -> pa.Table:
    """Return a table with the keys of every chunk of every file, and the words of its bitmap."""
    files, chunks, words, sizes = [], [], [], []
    for file, (positions, count) in enumerate(zip(deleted, counts, strict=True)):
        chunks_with_deletes, table = positions.chunks()
        all_chunks = np.union1d(np.arange((count - 1 >> CHUNK_BITS) + 1), chunks_with_deletes)
        files.append(np.full(len(all_chunks), file))
        chunks.append(all_chunks)
        words.append(table.reshape(-1))
        sizes.append(np.where(np.isin(all_chunks, chunks_with_deletes), WORDS_PER_CHUNK, 0))
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(words)))
    columns = [*keys.chunk_keys(np.concatenate(files), np.concatenate(chunks)), lists]
    return pa.table(columns, names=[str(i) for i in range(len(columns))])
