"""Run a Spark job whose tasks write data files and return them, and persist frames that are used several times.

Each task returns one row, and only if its attempt succeeded, so files of failed or speculative attempts are never
referenced.

If a row cannot be stored, or a file cannot be read, the task does not fail, because Spark would retry it in vain.
Instead it returns the reason; then the files of all tasks are deleted, and the reason is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar
from uuid import uuid4

import pyarrow as pa
from pyspark import AccumulatorParam, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from neve.errors import CorruptFile, MissingFile, NeveError, TableError, UserError, WriteFailed
from neve.io.files import delete_files
from neve.io.parallel import map_in_threads
from neve.run.spark.arrow_exchange import from_ipc, to_ipc
from neve.run.spark.arrow_job import MEASURED, run_in_arrow
from neve.run.spark.session import has_other_machines, is_classic, task_slots, temporary_options
from neve.run.write.data_files import data_file_entries
from neve.run.write.partitioning import FileNames
from neve.run.write.rolling_writer import WrittenFile
from neve.run.write.target import WriteTarget


@dataclass(frozen=True, slots=True)
class LocalLimits:
    """The bytes up to which work is done in this process, because a Spark job would cost more, and its threads."""

    rewritten: int  # files that are read and written
    carried: int  # files of which only the changed rows are read
    source: int  # rows of the source of a MERGE
    threads: int = 1

    @classmethod
    def of(cls, spark: SparkSession | None) -> LocalLimits:
        """Return the limits for a session, or for one that has not been started yet."""
        limits = _BESIDE_OTHER_MACHINES if has_other_machines(spark) else _ON_ONE_MACHINE
        return replace(limits, threads=task_slots(spark))


_BESIDE_OTHER_MACHINES = LocalLimits(rewritten=128 << 20, carried=512 << 20, source=32 << 20)
_ON_ONE_MACHINE = LocalLimits(rewritten=512 << 20, carried=4 << 30, source=128 << 20)

T = TypeVar("T")
Batches = Iterable[pa.RecordBatch]
WritingTask = Callable[[Batches, FileNames], tuple[list[WrittenFile], pa.Table | None]]
"""Writes the rows of a task; returns the files, and a note for the driver."""

_OUTPUT_DDL = "files binary, note binary, problem string, is_input boolean"
_OUTPUT_SCHEMA = pa.schema(
    [("files", pa.binary()), ("note", pa.binary()), ("problem", pa.string()), ("is_input", pa.bool_())]
)


class ReportedProblem(Exception):
    """A problem that a task before an exchange has reported."""


PROBLEMS = (UserError, CorruptFile, MissingFile, ReportedProblem)  # another attempt of the task would not help


@dataclass(frozen=True)
class TaskOutput:
    """The result of one task: its files as rows of an entry table, and its note."""

    files: pa.Table | None
    note: pa.Table | None


def run_writing_job(
    rows: DataFrame,
    task: WritingTask,
    target: WriteTarget,
    options: Mapping[str, str],
    *,
    exchange: Callable[[DataFrame], DataFrame] | None = None,
    holds_rows: bool = True,
) -> list[TaskOutput]:
    """Run a task over the partitions of a DataFrame, after an `exchange` of them; return the output of each.

    The written files are deleted if the job fails, or if a task reports a row or file that it cannot store or read.
    """
    spark = rows.sparkSession
    finished = _FinishedFiles(spark)
    spark_task = _as_spark_task(task, target, str(uuid4()), finished.add_paths)

    def remove_finished() -> None:
        delete_files(target.open_io(), finished.paths())

    try:
        collected = run_in_arrow(
            rows,
            spark_task,
            _OUTPUT_DDL,
            options=options,
            stored_row_bytes=target.average_row_bytes if holds_rows else MEASURED,
            exchange=exchange,
            before_retry=remove_finished,
        )
    except BaseException as e:  # whatever the reason, the files are useless
        left = delete_files(target.open_io(), finished.paths())
        if not isinstance(e, Exception):  # an interrupt
            raise
        raise WriteFailed(f"Cannot write data files: {failure_reason(e)}", left) from e
    finally:
        finished.clear()
    outputs = [TaskOutput(_optional_table(row.files), _optional_table(row.note)) for row in collected]
    failed = next((row for row in collected if row.problem is not None), None)
    if failed is not None:
        delete_files(target.open_io(), written_entries(outputs, target)["file_path"].to_pylist())
        raise (UserError if failed.is_input else TableError)(failed.problem)
    return outputs


def run_tasks_in_process(
    inputs: Sequence[T],
    task: Callable[[T, FileNames], tuple[list[WrittenFile], pa.Table | None]],
    target: WriteTarget,
    threads: int,
) -> list[TaskOutput]:
    """Run a task for each input in a thread of this process, without a Spark job, and return the output of each.

    The written files are deleted if a task fails.
    """
    write_id, finished = str(uuid4()), list[WrittenFile]()

    def run(number: int) -> TaskOutput:
        files, note = task(inputs[number], FileNames(number, 0, write_id))
        finished.extend(files)
        return TaskOutput(data_file_entries(files, target) if files else None, note)

    try:
        with errors_of_tasks():
            return map_in_threads(run, range(len(inputs)), threads)
    except BaseException:
        delete_files(target.open_io(), [file.path for file in finished])
        raise


@contextmanager
def errors_of_tasks() -> Iterator[None]:
    """Raise what goes wrong in tasks of this process as it is raised for tasks of Spark."""
    try:
        yield
    except NeveError:
        raise
    except ReportedProblem as e:
        raise TableError(str(e)) from e
    except Exception as e:
        raise WriteFailed(f"Cannot write data files: {type(e).__name__}: {e}") from e


def files_with_note(
    files: list[WrittenFile], describe: Callable[[list[WrittenFile]], pa.Table] | None, target: WriteTarget
) -> tuple[list[WrittenFile], pa.Table | None]:
    """Return the files of a task with a note about them; they are deleted if they cannot be described."""
    if describe is None:
        return files, None
    try:
        return files, describe(files)
    except BaseException:
        delete_files(target.open_io(), [file.path for file in files])
        raise


def written_entries(outputs: Sequence[TaskOutput], target: WriteTarget) -> pa.Table:
    """Return the files of all tasks as rows of an entry table."""
    tables = [output.files for output in outputs if output.files is not None]
    return pa.concat_tables([data_file_entries([], target), *tables]).unify_dictionaries().combine_chunks()


def _optional_table(data: bytes | None) -> pa.Table | None:
    return None if data is None else from_ipc(data)


def _as_spark_task(
    task: WritingTask, target: WriteTarget, write_id: str, add_paths: Callable[[list[str]], None]
) -> Callable[[Batches], Batches]:
    """Return the function for Spark, which chooses file names and encodes the output."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        number, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        try:
            files, note = task(batches, FileNames(number, attempt, write_id))
        except PROBLEMS as e:  # after any other error another attempt may help
            yield _output_batch(problem=str(e), is_input=isinstance(e, UserError))
            return
        add_paths([f.path for f in files])
        if files or note is not None:
            yield _output_batch(
                files=to_ipc(data_file_entries(files, target)) if files else None,
                note=None if note is None else to_ipc(note),
            )

    return run


def _output_batch(**output: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([output], schema=_OUTPUT_SCHEMA)


class _FinishedFiles:
    """The files of tasks that succeeded, known even if the job fails. Spark Connect has no such channel."""

    def __init__(self, spark: SparkSession) -> None:
        self._total = spark.sparkContext.accumulator([], _PathAccumulator()) if is_classic(spark) else None

    @property
    def add_paths(self) -> Callable[[list[str]], None]:
        """The function that a task calls with its finished files."""
        return (lambda paths: None) if self._total is None else self._total.add

    def paths(self) -> list[str]:
        """Return the files that were finished so far."""
        return [] if self._total is None else list(self._total.value)

    def clear(self) -> None:
        """Free the memory: Spark keeps accumulators for as long as the driver lives."""
        if self._total is not None:
            self._total.value = []


class _PathAccumulator(AccumulatorParam[list[str]]):
    def zero(self, value: list[str]) -> list[str]:
        return []

    def addInPlace(self, value1: list[str], value2: list[str]) -> list[str]:  # noqa: N802
        return value1 + value2


def failure_reason(error: Exception) -> str:
    """Return the last line of a task's traceback if there is one, else the first line of the error."""
    text = str(error).strip()
    _, _, traceback = text.partition("Traceback (most recent call last):")
    lines = [line for line in traceback.splitlines() if line and not line[0].isspace()]
    return lines[-1] if lines else text.split("\n", 1)[0]


_ADAPTIVE = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"


def is_persisted(frame: DataFrame) -> bool:
    """Return whether Spark holds a frame on disk, so that no part is computed again for lack of memory.

    The frame's own `is_cached` is not used, because it stays true after the cache was cleared.
    """
    return bool(frame.storageLevel.useDisk)


@contextmanager
def persisted(frame: DataFrame) -> Iterator[DataFrame]:
    """Persist a frame on the executors, in memory and on disk, until the block ends.

    A frame that the caller has persisted is left as it is.
    """
    if frame.storageLevel != StorageLevel.NONE:
        yield frame
        return
    # Otherwise Spark keeps hundreds of tiny partitions, and each costs a Python worker more than its rows do.
    with temporary_options(frame.sparkSession, {_ADAPTIVE: "true"}):
        frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame
    finally:
        frame.unpersist()
