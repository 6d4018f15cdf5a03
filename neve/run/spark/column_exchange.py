"""Exchange rows by partition as columns: rows that Python tasks hold as Arrow never become rows of the JVM.

A task splits its Arrow rows by partition and emits one Spark row per partition and some thousand rows: the partition
tuple and the rows, both as compressed Arrow data. Spark's shuffle brings equal tuples together, splits what is too
large for one task and joins what is small. Spill, speculation, lost executors and retries stay Spark's business. The
tasks behind the exchange write the rows without splitting them again.

In a local session all tasks run on this machine. Then no payload passes through the JVM: a task leaves its parts in a
temporary file, and threads of this process write those of each partition. Rows that this process reads itself are split
by threads, and kept in memory if they are few.

A sort order that spans tasks needs the keys of single rows, so sorted tables are distributed by `distribution`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from neve.errors import UserError
from neve.io.parallel import map_in_threads
from neve.run.spark.arrow_exchange import Batches, from_ipc, map_in_arrow, to_ipc
from neve.run.spark.row_parts import (
    MemoryBudget,
    Part,
    PartSink,
    as_parts_table,
    pack,
    parts_in_table,
    scratch_folder,
    share_parts,
    unpack,
)
from neve.run.spark.session import has_other_machines, task_slots
from neve.run.spark.writing_job import (
    PROBLEMS,
    ReportedProblem,
    TaskOutput,
    WritingTask,
    errors_of_tasks,
    files_with_note,
    run_tasks_in_process,
    run_writing_job,
)
from neve.run.write.data_files import join_small_batches, write_pieces
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
_SPLIT_SCHEMA = pa.schema([("parts", pa.binary()), ("notes", pa.list_(pa.binary()))])
_SPLIT_ROWS, _SPLIT_BYTES = 1 << 20, 64 << 20  # rows and bytes that a task splits at once
_HELD_BYTES = 512 << 20  # of parts that this process keeps in memory
_TASKS_PER_SLOT = 4  # a task of Python costs more than a few rows
_PAYLOAD_BYTES = 128 << 10  # of rows in one Spark row, before compression: a thousand of them make an Arrow batch
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

    def run_in_process(
        self, inputs: Sequence[pa.RecordBatch], threads: int, running_spark: SparkSession | None
    ) -> list[TaskOutput]:
        """Run the source on each input in a thread of this process, and write the rows there, without Spark."""
        self.target.check()
        budget = MemoryBudget(_HELD_BYTES)
        with scratch_folder(running_spark) as folder:

            def split(number: int) -> tuple[list[Part], list[pa.Table]]:
                return self._split_into_parts([inputs[number]], f"{folder}/{number}", budget)

            with errors_of_tasks():
                results = map_in_threads(split, range(len(inputs)), threads)
            written = self._write_parts([part for parts, _ in results for part in parts], threads)
        return [*written, *(TaskOutput(None, note) for _, notes in results for note in notes)]

    def _run_through_files(self, frame: DataFrame, holds_rows: bool) -> list[TaskOutput]:
        spark = frame.sparkSession
        with scratch_folder(spark) as folder:
            parts, notes = self.split_with_tasks(frame, folder, holds_rows=holds_rows)
            written = self._write_parts(parts, task_slots(spark))
        return [*written, *(TaskOutput(None, note) for note in notes)]

    def split_with_tasks(
        self, frame: DataFrame, folder: str, *, holds_rows: bool
    ) -> tuple[list[Part], Iterator[pa.Table]]:
        """Let tasks split the rows, and leave the parts in files of a folder; return the parts, and the notes."""
        fewer_tasks = frame.coalesce(_TASKS_PER_SLOT * task_slots(frame.sparkSession))
        outputs = run_writing_job(fewer_tasks, self._splitting_task(folder), self.target, {}, holds_rows=holds_rows)
        task_notes = [output.note for output in outputs if output.note is not None]
        parts = chain.from_iterable(
            parts_in_table(from_ipc(note["parts"][0].as_buffer()), self.target) for note in task_notes
        )
        return list(parts), (from_ipc(ipc.as_buffer()) for note in task_notes for ipc in note["notes"][0].values)

    def _splitting_task(self, folder: str) -> WritingTask:
        """Return a task that splits its rows, and leaves the parts in a file."""

        def task(batches: Batches, names: FileNames) -> tuple[list[WrittenFile], pa.Table | None]:
            for path in Path(folder).glob(f"{names.task}-*"):  # of an earlier attempt
                path.unlink(missing_ok=True)
            parts, notes = self._split_into_parts(batches, f"{folder}/{names.task}-{names.attempt}", None)
            table = {"parts": [to_ipc(as_parts_table(parts))], "notes": [[to_ipc(note) for note in notes]]}
            return [], pa.table(table, schema=_SPLIT_SCHEMA)

        return task

    def _split_into_parts(
        self, batches: Batches, path: str, budget: MemoryBudget | None
    ) -> tuple[list[Part], list[pa.Table]]:
        notes: list[pa.Table] = []
        target = self.target
        with PartSink(path, budget) as sink:
            for batch in join_small_batches(self.source(batches, notes), _SPLIT_ROWS, _SPLIT_BYTES):
                assigned = assign_rows(batch, target.file_schema, target.arrow_schema)
                for piece in target.partitioner.split_by_partition(assigned, copies=False):
                    sink.add(piece)
        return sink.parts, notes

    def _write_parts(self, parts: Sequence[Part], threads: int) -> list[TaskOutput]:
        target = self.target

        def write(share: list[Part], names: FileNames) -> tuple[list[WrittenFile], pa.Table | None]:
            pieces = (part.load(target.arrow_schema) for part in share)
            return files_with_note(write_pieces(pieces, target, names, is_clustered=True), self.describe_files, target)

        return run_tasks_in_process(share_parts(parts, target, threads), write, target, threads)

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
        files, note = files_with_note(files, self.describe_files, self.target)
        notes += [] if note is None else [note]
        return files, pa.concat_tables(notes) if notes else None


def _payloads(rows: pa.RecordBatch, target: WriteTarget) -> pa.RecordBatch:
    """Split rows by partition, and encode each part in pieces of bounded size."""
    assigned = assign_rows(rows, target.file_schema, target.arrow_schema)
    encoded: list[Mapping[str, object]] = []
    for piece in target.partitioner.split_by_partition(assigned, copies=False):
        tuple_row = None if piece.tuple_row is None else to_ipc(pa.Table.from_batches([piece.tuple_row]))
        partition = {"key": repr(piece.key), "tuple": tuple_row}
        bytes_per_row = piece.rows.nbytes / piece.rows.num_rows
        step = max(int(_PAYLOAD_BYTES / max(bytes_per_row, 1)), 1)
        encoded += [
            {**partition, "rows": pack(piece.rows.slice(start, step))} for start in range(0, piece.rows.num_rows, step)
        ]
    return _exchange_rows(encoded)


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
            yield partitions.piece(
                name.as_py(), tuple_ipc, pa.ipc.read_record_batch(unpack(rows.as_buffer()), target.arrow_schema)
            )


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
