"""Parts: rows of one partition, on the way from the task that split them to the thread that writes them.

Where all work is done on one machine, rows need not pass through Spark's shuffle. Whoever splits rows by partition puts
the parts into memory while a budget lasts, then into a temporary file. Threads of this process then write the parts of
each partition one after the other, so that each partition gets full row groups and as few files as possible.

A task of Spark has no budget: its parts are in files, and it returns a table that says where.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from threading import Lock
from types import TracebackType
from typing import BinaryIO

import pyarrow as pa
from pyspark.sql import SparkSession

from neve.run.spark.arrow_exchange import from_ipc, to_ipc
from neve.run.spark.session import temporary_folder
from neve.run.spark.writing_job import ReportedProblem
from neve.run.write.partitioning import PartitionRows
from neve.run.write.target import WriteTarget

PARTS_SCHEMA = pa.schema(
    [
        ("name", pa.dictionary(pa.int32(), pa.string())),
        ("tuple", pa.dictionary(pa.int32(), pa.binary())),
        ("path", pa.dictionary(pa.int32(), pa.string())),
        ("offset", pa.int64()),
        ("size", pa.int64()),
        ("is_packed", pa.bool_()),
        ("arrow_bytes", pa.int64()),
        ("row_count", pa.int64()),
    ]
)
_PLAIN_BYTES = (
    256 << 20
)  # a task leaves its first rows uncompressed: compression is the largest cost of passing them on
_SIZE_BYTES = 8  # of the size before compression, at the beginning of packed rows
_SHARES_PER_THREAD, _MIN_SHARE_BYTES = 4, 2 << 20
_ARROW_BYTES_PER_STORED = 5.0  # if the table does not know the size of its rows


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows in a temporary file."""

    path: str
    offset: int
    size: int
    is_packed: bool

    def read(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the rows, which have the columns of a schema."""
        with reported_as_temporary(self.path), pa.OSFile(self.path) as file:
            file.seek(self.offset)
            data = file.read_buffer(self.size)
        return pa.ipc.read_record_batch(unpack(data) if self.is_packed else data, schema)


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows of a partition, in memory or in a temporary file."""

    name: str  # equal for equal tuples, and only for them
    key: tuple[object, ...]
    tuple_row: pa.RecordBatch | None  # None in an unpartitioned table
    rows: pa.RecordBatch | StoredRows
    arrow_bytes: int
    row_count: int

    def load(self, schema: pa.Schema) -> PartitionRows:
        """Return the part with its rows in memory."""
        rows = self.rows.read(schema) if isinstance(self.rows, StoredRows) else self.rows
        return PartitionRows(self.key, rows, self.tuple_row)


@dataclass
class MemoryBudget:
    """The bytes that parts may take in memory, shared by several threads."""

    left: int
    _lock: Lock = field(default_factory=Lock, repr=False)

    def take(self, size: int) -> bool:
        """Take some bytes, and return whether they were left."""
        with self._lock:
            is_left = size <= self.left
            self.left -= size if is_left else 0
            return is_left


class PartSink:
    """Takes the parts of one task; after an error, its file is gone."""

    def __init__(self, path: str, budget: MemoryBudget | None = None) -> None:
        self._path, self._budget = path, budget
        self._file: BinaryIO | None = None
        self.parts: list[Part] = []

    def __enter__(self) -> PartSink:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            with reported_as_temporary(self._path) if kind is None else suppress(OSError):
                self._file.close()
        if kind is not None:
            with suppress(OSError):
                Path(self._path).unlink(missing_ok=True)

    def add(self, piece: PartitionRows) -> None:
        """Take some rows of a partition."""
        size = piece.rows.nbytes
        has_room = self._budget is not None and self._budget.take(size)
        rows = piece.rows if has_room else self._store(piece.rows)
        self.parts.append(Part(repr(piece.key), piece.key, piece.tuple_row, rows, size, piece.rows.num_rows))

    def _store(self, rows: pa.RecordBatch) -> StoredRows:
        with reported_as_temporary(self._path):
            if self._file is None:
                self._file = open(self._path, "wb")  # noqa: SIM115 - closed at the end of the block
            offset = self._file.tell()
            is_packed = offset > _PLAIN_BYTES
            data = pack(rows) if is_packed else rows.serialize()
            return StoredRows(self._path, offset, self._file.write(data), is_packed)


@contextmanager
def reported_as_temporary(path: str) -> Iterator[None]:
    """Report an error about a temporary file in one sentence; another attempt would not help."""
    try:
        yield
    except OSError as e:
        raise ReportedProblem(
            f"Cannot keep rows temporarily in {path}: {e.strerror or e}. Free space there, or set "
            "spark.local.dir to another folder."
        ) from e


@contextmanager
def scratch_folder(spark: SparkSession | None) -> Iterator[str]:
    """Create a folder for temporary files, below that of the running session, which Spark removes if this process dies.

    An error of the block is not hidden by files that a stopped task still writes.
    """
    parent = None if spark is None else temporary_folder(spark)
    with reported_as_temporary(parent or gettempdir()):
        folder = mkdtemp(prefix="neve-rows-", dir=parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if Path(folder).exists():  # a task that was stopped may end a little later
            time.sleep(0.2)
            shutil.rmtree(folder, ignore_errors=True)


def as_parts_table(parts: Sequence[Part]) -> pa.Table:
    """Return a table that says where stored parts are; names, tuples and paths are in it once."""
    first_parts = {part.name: part for part in reversed(parts)}
    tuples = {name: part.tuple_row and _encode_tuple(part.tuple_row) for name, part in first_parts.items()}
    stored = [part.rows for part in parts if isinstance(part.rows, StoredRows)]
    columns = {
        "name": pa.array([part.name for part in parts], pa.string()).dictionary_encode(),
        "tuple": pa.array([tuples[part.name] for part in parts], pa.binary()).dictionary_encode(),
        "path": pa.array([rows.path for rows in stored], pa.string()).dictionary_encode(),
        **{name: [getattr(rows, name) for rows in stored] for name in ("offset", "size", "is_packed")},
        **{name: [getattr(part, name) for part in parts] for name in ("arrow_bytes", "row_count")},
    }
    return pa.table(columns, schema=PARTS_SCHEMA)


def parts_in_table(table: pa.Table, target: WriteTarget) -> list[Part]:
    """Return the parts that a table of tasks describes."""
    rows = table.to_pylist()
    tuples = {
        row["name"]: None if row["tuple"] is None else from_ipc(row["tuple"]).to_batches()[0]
        for row in {row["name"]: row for row in rows}.values()
    }
    key_of = target.partitioner.key_of
    keys = {name: () if tuple_row is None else key_of(tuple_row) for name, tuple_row in tuples.items()}
    return [
        Part(
            row["name"],
            keys[row["name"]],
            tuples[row["name"]],
            StoredRows(row["path"], row["offset"], row["size"], row["is_packed"]),
            row["arrow_bytes"],
            row["row_count"],
        )
        for row in rows
    ]


def share_parts(parts: Sequence[Part], target: WriteTarget, threads: int) -> list[list[Part]]:
    """Divide parts into what is written together, in the order of their partitions.

    The shares have about the same size and whole partitions. A partition whose rows fill several files is in several.
    """
    total = sum(part.arrow_bytes for part in parts)
    fair_bytes = max(total // (_SHARES_PER_THREAD * threads), _MIN_SHARE_BYTES)
    file_bytes = max(fair_bytes, int(target.target_file_size * _arrow_bytes_per_stored(parts, target)))
    shares: list[list[Part]] = []
    size, name = 0, None
    for part in sorted(parts, key=lambda part: part.name):
        is_full = size >= file_bytes or (size >= fair_bytes and part.name != name)
        if is_full or not shares:
            shares.append([])
            size = 0
        shares[-1].append(part)
        size, name = size + part.arrow_bytes, part.name
    return shares


def _arrow_bytes_per_stored(parts: Sequence[Part], target: WriteTarget) -> float:
    """Return how many bytes of these rows in Arrow become one byte in a file, by the rows that the table has."""
    stored = sum(part.row_count for part in parts) * target.average_row_bytes
    return max(sum(part.arrow_bytes for part in parts) / stored, 1.0) if stored else _ARROW_BYTES_PER_STORED


def pack(rows: pa.RecordBatch) -> bytes:
    """Encode rows, compressed as a whole: Arrow would compress the buffers of each column, at twice the cost."""
    plain = rows.serialize()
    return plain.size.to_bytes(_SIZE_BYTES, "big") + _codec().compress(plain, asbytes=True)


def unpack(packed: pa.Buffer) -> pa.Buffer:
    """Decompress rows that `pack` has encoded."""
    size = int.from_bytes(packed[:_SIZE_BYTES], "big")
    return _codec().decompress(packed[_SIZE_BYTES:], size)


def _codec() -> pa.Codec:
    return pa.Codec("lz4")  # as in Spark's own exchanges: half as large again as with zstd, at half the cost


def _encode_tuple(tuple_row: pa.RecordBatch) -> bytes:
    encoded: bytes = to_ipc(pa.Table.from_batches([tuple_row]))
    return encoded
