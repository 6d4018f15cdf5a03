"""Exchange rows by partition as columns: rows that Python tasks hold as Arrow never become rows of the JVM.

A task splits its Arrow rows by partition and emits one Spark row per partition and some thousand rows: the partition
tuple and the rows, both as compressed Arrow data. Spark's shuffle brings equal tuples together, splits what is too
large for one task and joins what is small. Spill, speculation, lost executors and retries stay Spark's business. The
tasks behind the exchange write the rows without splitting them again.

In a local session all tasks run on this machine. Then no payload passes through the JVM: a task appends its parts to a
temporary file, and threads of this process write those of each partition. Rows that this process reads itself are not
moved at all: threads split them, and hand each part to the writer of its partition.

A sort order that spans tasks needs the keys of single rows, so sorted tables are distributed by `distribution`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from os import cpu_count
from tempfile import TemporaryDirectory
from threading import Lock
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from neve.errors import UserError
from neve.io.parallel import map_in_threads
from neve.run.spark.arrow_exchange import Batches, from_ipc, map_in_arrow, to_ipc
from neve.run.spark.session import has_other_machines, local_folder
from neve.run.spark.writing_job import (
    PROBLEMS,
    ReportedProblem,
    TaskOutput,
    WritingTask,
    run_tasks_in_process,
    run_writing_job,
)
from neve.run.write.data_files import DataFileWriter, data_file_entries, join_small_batches, write_pieces
from neve.run.write.partitioning import FileNames, PartitionRows
from neve.run.write.rolling_writer import WrittenFile
from neve.run.write.store_assignment import assign_rows
from neve.run.write.target import WriteTarget

RowSource = Callable[[Batches, list[pa.Table]], Iterator[pa.RecordBatch]]
"""Returns the rows that a task contributes; may add notes for the driver to the list."""

_DDL = "key string, tuple binary, rows binary, note binary, problem string, is_input boolean"
_SCHEMA = pa.schema(
    [
        ("key", pa.string()),  # the same for equal tuples, whose Arrow data may differ
        ("tuple", pa.binary()),  # null in an unpartitioned table
        ("rows", pa.binary()),
        ("note", pa.binary()),
        ("problem", pa.string()),
        ("is_input", pa.bool_()),
    ]
)
_PARTS_SCHEMA = pa.schema(
    [
        *(_SCHEMA.field(name) for name in ("key", "tuple")),
        ("path", pa.string()),  # null in a row with a note
        ("offset", pa.int64()),
        ("size", pa.int64()),
        ("is_packed", pa.bool_()),
        ("note", pa.binary()),
    ]
)
_PLAIN_BYTES = 256 << 20  # that a task writes to its file before it compresses what follows, to save space
_TASKS_PER_CORE, _MIN_SHARE_BYTES = 4, 1 << 20
_SPLIT_ROWS, _SPLIT_BYTES = 1 << 20, 64 << 20  # rows and bytes that a task splits at once
_PAYLOAD_BYTES = 128 << 10  # of rows in one Spark row, before compression: a thousand of them make an Arrow batch
_SIZE_BYTES = 8  # of the size before compression, at the beginning of a payload
_WRITERS_PER_CORE = 4  # writers of this process: threads rarely wait for the same one
_BUFFERED_BYTES, _OPEN_FILES = 512 << 20, 256  # of all writers of this process: rows that wait for a row group, files
_SHUFFLED_PER_WRITTEN = 2.5  # bytes in the shuffle for one byte of Parquet
_ADVISORY = "spark.sql.adaptive.advisoryPartitionSizeInBytes"


@dataclass(frozen=True)
class ColumnExchange:
    """Distributes the rows of tasks by the partitions of a target, and writes them."""

    target: WriteTarget
    source: RowSource
    describe_files: Callable[[list[WrittenFile]], pa.Table] | None = None  # a note about the files of a task

    @staticmethod
    def suits(target: WriteTarget) -> bool:
        """Return whether rows of a target can be exchanged this way: by partition, and without an order."""
        return target.distribution == "hash" and target.partitioner.is_partitioned and not target.write_order.fields

    @staticmethod
    def passes_files(spark: SparkSession) -> bool:
        """Return whether tasks pass their rows on in files of this machine, and not through Spark's shuffle."""
        return not has_other_machines(spark)

    def run(self, frame: DataFrame, *, holds_rows: bool) -> list[TaskOutput]:
        """Run the source on the Arrow batches of a frame, and write its rows; `holds_rows`: they are the frame's."""
        self.target.check()
        if ColumnExchange.passes_files(frame.sparkSession):
            return self._run_through_files(frame, holds_rows)
        options = {_ADVISORY: f"{int(self.target.target_file_size * _SHUFFLED_PER_WRITTEN)}b"}
        return run_writing_job(frame, self._write, self.target, options, exchange=self._exchange, holds_rows=holds_rows)

    def run_in_process(self, inputs: Sequence[pa.RecordBatch]) -> list[TaskOutput]:
        """Run the source on each input in a thread of this process, and write the rows there, without Spark."""
        self.target.check()
        writers = _SharedWriters(self.target)

        def distribute(rows: pa.RecordBatch) -> list[pa.Table]:
            notes: list[pa.Table] = []
            for batch in join_small_batches(self.source([rows], notes), _SPLIT_ROWS, _SPLIT_BYTES):
                assigned = assign_rows(batch, self.target.file_schema, self.target.arrow_schema)
                writers.write(self.target.partitioner.split_by_partition(assigned))
            return notes

        try:
            notes = [note for each in map_in_threads(distribute, inputs, cpu_count() or 1) for note in each]
            files = writers.close()
        except BaseException:
            writers.abandon()
            raise
        if self.describe_files is not None:
            notes.append(self.describe_files(files))
        return [TaskOutput(data_file_entries(files, self.target), pa.concat_tables(notes) if notes else None)]

    def _run_through_files(self, frame: DataFrame, holds_rows: bool) -> list[TaskOutput]:
        with TemporaryDirectory(prefix="neve-exchange-", dir=local_folder(frame.sparkSession)) as folder:
            parts = self.split_into_files(frame, folder, holds_rows=holds_rows)
            inputs = _share_parts(parts.filter(parts["path"].is_valid()), self.target)
            written = run_tasks_in_process(inputs, self._write_parts, self.target)
        notes = parts["note"].drop_null()
        return [*written, *(TaskOutput(None, from_ipc(note.as_buffer())) for note in notes)]

    def split_into_files(self, frame: DataFrame, folder: str, *, holds_rows: bool) -> pa.Table:
        """Let tasks append their rows to files in a folder, part by part; return where each part is, and the notes."""
        few = frame.coalesce(_TASKS_PER_CORE * (cpu_count() or 1))  # a task of Python costs more than a few rows
        outputs = run_writing_job(few, self._spool_function(folder), self.target, {}, holds_rows=holds_rows)
        return pa.concat_tables([_PARTS_SCHEMA.empty_table(), *(o.note for o in outputs if o.note is not None)])

    def _spool_function(self, folder: str) -> WritingTask:
        """Return a task that appends its rows to a file; its note says where each part is."""
        source, target = self.source, self.target

        def spool(batches: Batches, names: FileNames) -> tuple[list[WrittenFile], pa.Table | None]:
            notes: list[pa.Table] = []
            parts: list[Mapping[str, object]] = []
            path = f"{folder}/{names.task}-{names.attempt}"
            with open(path, "wb") as file:
                for batch in join_small_batches(source(batches, notes), _SPLIT_ROWS, _SPLIT_BYTES):
                    assigned = assign_rows(batch, target.file_schema, target.arrow_schema)
                    for piece in target.partitioner.split_by_partition(assigned, copies=False):
                        is_packed = file.tell() > _PLAIN_BYTES
                        offset, rows = file.tell(), _pack(piece.rows) if is_packed else _encode(piece.rows)
                        place = {"path": path, "offset": offset, "size": file.write(rows), "is_packed": is_packed}
                        parts.append({**_describe_partition(piece), **place})
            parts += [{"note": to_ipc(note)} for note in notes]
            return [], pa.Table.from_pylist(parts, schema=_PARTS_SCHEMA)

        return spool

    def _write_parts(self, batches: Batches, names: FileNames) -> tuple[list[WrittenFile], pa.Table | None]:
        target = self.target
        files = write_pieces(_read_parts(batches, target), target, names, is_clustered=True)
        return files, None if self.describe_files is None else self.describe_files(files)

    def _exchange(self, frame: DataFrame) -> DataFrame:
        split = map_in_arrow(frame, self._split_function(), _DDL)
        return split.hint("rebalance", "key").sortWithinPartitions("key")

    def _split_function(self) -> Callable[[Batches], Batches]:
        source, target = self.source, self.target

        def split(batches: Batches) -> Iterator[pa.RecordBatch]:
            notes: list[pa.Table] = []
            try:
                for rows in join_small_batches(source(batches, notes), _SPLIT_ROWS, _SPLIT_BYTES):
                    yield _payloads(rows, target)
            except PROBLEMS as e:  # after any other error another attempt may help
                yield _exchange_rows([{"problem": str(e), "is_input": isinstance(e, UserError)}])
                return
            yield _exchange_rows([{"note": to_ipc(note)} for note in notes])

        return split

    def _write(self, batches: Batches, names: FileNames) -> tuple[list[WrittenFile], pa.Table | None]:
        notes: list[pa.Table] = []
        files = write_pieces(_received_pieces(batches, self.target, notes), self.target, names, is_clustered=True)
        if self.describe_files is not None:
            notes.append(self.describe_files(files))
        return files, pa.concat_tables(notes) if notes else None


class _SharedWriters:
    """Writers that several threads use at the same time; all rows of a partition go to the same one."""

    def __init__(self, target: WriteTarget) -> None:
        count = _WRITERS_PER_CORE * (cpu_count() or 1)
        share = target.with_options(buffered_bytes=_BUFFERED_BYTES // count, open_files=max(_OPEN_FILES // count, 1))
        write_id = str(uuid4())
        self._writers = [DataFileWriter(share, FileNames(n, 0, write_id), is_clustered=False) for n in range(count)]
        self._locks = [Lock() for _ in range(count)]

    def write(self, pieces: Iterable[PartitionRows]) -> None:
        """Write rows of some partitions; those of a writer that is busy wait until the others are done."""
        waiting: dict[int, list[PartitionRows]] = defaultdict(list)
        for piece in pieces:
            waiting[hash(piece.key) % len(self._writers)].append(piece)
        for number in sorted(waiting, key=lambda n: self._locks[n].locked()):
            with self._locks[number]:
                self._writers[number].write(waiting[number])

    def close(self) -> list[WrittenFile]:
        """Finish all files; they have reached the disk when this returns."""
        closed = map_in_threads(DataFileWriter.close, self._writers, cpu_count() or 1)
        return [file for files in closed for file in files]

    def abandon(self) -> None:
        """Remove all files."""
        for writer in self._writers:
            writer.abandon()


def _payloads(rows: pa.RecordBatch, target: WriteTarget) -> pa.RecordBatch:
    """Split rows by partition, and encode each part in pieces of bounded size."""
    assigned = assign_rows(rows, target.file_schema, target.arrow_schema)
    encoded: list[Mapping[str, object]] = []
    for piece in target.partitioner.split_by_partition(assigned, copies=False):
        partition = _describe_partition(piece)
        bytes_per_row = piece.rows.nbytes / piece.rows.num_rows
        step = max(int(_PAYLOAD_BYTES / max(bytes_per_row, 1)), 1)
        encoded += [
            {**partition, "rows": _pack(piece.rows.slice(start, step))} for start in range(0, piece.rows.num_rows, step)
        ]
    return _exchange_rows(encoded)


def _describe_partition(piece: PartitionRows) -> dict[str, object]:
    tuple_row = None if piece.tuple_row is None else to_ipc(pa.Table.from_batches([piece.tuple_row]))
    return {"key": repr(piece.key), "tuple": tuple_row}


def _exchange_rows(rows: list[Mapping[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def _received_pieces(batches: Batches, target: WriteTarget, notes: list[pa.Table]) -> Iterator[PartitionRows]:
    """Decode what the exchange brings; raise the first problem that a task before it found."""
    partitions = _PartitionDecoder(target)
    for batch in batches:
        for name, tuple_ipc, rows, note, problem, is_input in zip(*batch.columns, strict=True):
            if problem.is_valid:
                raise (UserError if is_input.as_py() else ReportedProblem)(problem.as_py())
            if note.is_valid:
                notes.append(from_ipc(note.as_buffer()))
                continue
            yield partitions.piece(name.as_py(), tuple_ipc, _unpack(rows.as_buffer()))


def _share_parts(parts: pa.Table, target: WriteTarget) -> list[pa.RecordBatch]:
    """Divide parts, in the order of their partitions, into what each thread writes: about equal shares of whole
    partitions, and several shares of a partition whose rows fill several files."""
    if not parts.num_rows:
        return []
    order = np.argsort(parts["key"].to_numpy(zero_copy_only=False).astype(str), kind="stable")
    ordered = parts.take(pa.array(order))
    keys, sizes = ordered["key"].to_pylist(), ordered["size"].to_pylist()
    share = max(sum(sizes) // (_TASKS_PER_CORE * (cpu_count() or 1)), _MIN_SHARE_BYTES)
    most, starts, size = target.target_file_size * _SHUFFLED_PER_WRITTEN, [0], 0
    for at in range(1, len(keys)):
        size += sizes[at - 1]
        if size >= most or (size >= share and keys[at] != keys[at - 1]):
            starts.append(at)
            size = 0
    bounds = pairwise([*starts, len(keys)])
    return [ordered.slice(start, end - start).combine_chunks().to_batches()[0] for start, end in bounds]


def _read_parts(batches: Batches, target: WriteTarget) -> Iterator[PartitionRows]:
    partitions = _PartitionDecoder(target)
    for batch in batches:
        for name, tuple_ipc, path, offset, size, is_packed, _ in zip(*batch.columns, strict=True):
            with pa.OSFile(path.as_py()) as file:
                file.seek(offset.as_py())
                data = file.read_buffer(size.as_py())
            yield partitions.piece(name.as_py(), tuple_ipc, _unpack(data) if is_packed.as_py() else _decode(data))


class _PartitionDecoder:
    """Decodes the tuples of partitions; once each, if the rows of a partition follow each other."""

    def __init__(self, target: WriteTarget) -> None:
        self._partitioner = target.partitioner
        self._name: str | None = None
        self._tuple_row: pa.RecordBatch | None = None
        self._key: tuple[object, ...] = ()

    def piece(self, name: str, tuple_ipc: pa.Scalar, rows: pa.RecordBatch) -> PartitionRows:
        """Return some rows of the partition with a name."""
        if tuple_ipc.is_valid and name != self._name:
            self._name, self._tuple_row = name, from_ipc(tuple_ipc.as_buffer()).to_batches()[0]
            self._key = self._partitioner.key_of(self._tuple_row)
        return PartitionRows(self._key, rows, self._tuple_row)


def _encode(rows: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return sink.getvalue()


def _decode(data: pa.Buffer) -> pa.RecordBatch:
    return pa.ipc.open_stream(data).read_next_batch()


def _pack(rows: pa.RecordBatch) -> bytes:
    """Encode rows, compressed as a whole: Arrow would compress the buffers of each column, at twice the cost."""
    plain = _encode(rows)
    return plain.size.to_bytes(_SIZE_BYTES, "big") + _codec().compress(plain, asbytes=True)


def _unpack(packed: pa.Buffer) -> pa.RecordBatch:
    size = int.from_bytes(packed[:_SIZE_BYTES], "big")
    return _decode(_codec().decompress(packed[_SIZE_BYTES:], size))


def _codec() -> pa.Codec:
    return pa.Codec("lz4")  # as in Spark's own exchanges: half as large again as with zstd, at half the cost
