"""Exchange rows by partition as columns: rows that Python tasks hold as Arrow never become rows of the JVM.

A task splits its Arrow rows by partition and emits one Spark row per partition and some thousand rows: the partition
tuple and the rows, both as compressed Arrow data. Spark's shuffle brings equal tuples together, splits what is too
large for one task and joins what is small. Spill, speculation, lost executors and retries stay Spark's business. The
tasks behind the exchange write the rows without splitting them again.

In this process, no rows are moved: threads read and split them, and hand each part to the writer of its partition.

A sort order that spans tasks needs the keys of single rows, so sorted tables are distributed by `distribution`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import cpu_count
from threading import Lock
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame

from neve.errors import UserError
from neve.io.parallel import map_in_threads
from neve.run.spark.arrow_exchange import Batches, from_ipc, map_in_arrow, to_ipc
from neve.run.spark.writing_job import PROBLEMS, ReportedProblem, TaskOutput, run_writing_job
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

    def run(self, frame: DataFrame, *, holds_rows: bool) -> list[TaskOutput]:
        """Run the source on the Arrow batches of a frame, and write its rows; `holds_rows`: they are the frame's."""
        self.target.check()
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
        tuple_ipc = None if piece.tuple_row is None else to_ipc(pa.Table.from_batches([piece.tuple_row]))
        bytes_per_row = piece.rows.nbytes / piece.rows.num_rows
        step = max(int(_PAYLOAD_BYTES / max(bytes_per_row, 1)), 1)
        encoded += [
            {"key": repr(piece.key), "tuple": tuple_ipc, "rows": _pack(piece.rows.slice(start, step))}
            for start in range(0, piece.rows.num_rows, step)
        ]
    return _exchange_rows(encoded)


def _exchange_rows(rows: list[Mapping[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def _received_pieces(batches: Batches, target: WriteTarget, notes: list[pa.Table]) -> Iterator[PartitionRows]:
    """Decode what the exchange brings; raise the first problem that a task before it found."""
    tuple_rows: dict[str, pa.RecordBatch] = {}  # of the last partition: its payloads are neighbours
    for batch in batches:
        for name, tuple_ipc, rows, note, problem, is_input in zip(*batch.columns, strict=True):
            if problem.is_valid:
                raise (UserError if is_input.as_py() else ReportedProblem)(problem.as_py())
            if note.is_valid:
                notes.append(from_ipc(note.as_buffer()))
                continue
            if tuple_ipc.is_valid and name.as_py() not in tuple_rows:
                tuple_rows = {name.as_py(): from_ipc(tuple_ipc.as_buffer()).to_batches()[0]}
            tuple_row = tuple_rows[name.as_py()] if tuple_ipc.is_valid else None
            key = () if tuple_row is None else target.partitioner.key_of(tuple_row)
            yield PartitionRows(key, _unpack(rows.as_buffer()), tuple_row)


def _pack(rows: pa.RecordBatch) -> bytes:
    """Encode rows, compressed as a whole: Arrow would compress the buffers of each column, at twice the cost."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    plain = sink.getvalue()
    return plain.size.to_bytes(_SIZE_BYTES, "big") + _codec().compress(plain, asbytes=True)


def _unpack(packed: pa.Buffer) -> pa.RecordBatch:
    size = int.from_bytes(packed[:_SIZE_BYTES], "big")
    return pa.ipc.open_stream(_codec().decompress(packed[_SIZE_BYTES:], size)).read_next_batch()


def _codec() -> pa.Codec:
    return pa.Codec("lz4")  # as in Spark's own exchanges: half as large again as with zstd, at half the cost
