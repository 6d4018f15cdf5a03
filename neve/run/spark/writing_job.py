"""A Spark job whose tasks write data files, and answer with them.

Nothing but one row per task comes back, and only from attempts that succeeded, so files of failed or speculative
attempts are never referenced.

A row that cannot be stored, or a file that cannot be read as it is written, does not fail its task, which Spark would
try again in vain: the task answers with the reason, the files of all tasks are deleted, and the reason is raised.

Frames that are computed once, though they are used several times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark import AccumulatorParam, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from neve.errors import CorruptFile, MissingFile, TableError, UserError, WriteFailed
from neve.io.files import delete_files
from neve.run.spark.arrow_exchange import arrow_batch_options, from_ipc, map_in_arrow, to_ipc
from neve.run.spark.session import is_classic, temporary_options
from neve.run.write.data_files import data_file_entries
from neve.run.write.partitioning import FileNames
from neve.run.write.rolling_writer import WrittenFile
from neve.run.write.target import WriteTarget

Batches = Iterable[pa.RecordBatch]
WritingTask = Callable[[Batches, FileNames], tuple[list[WrittenFile], pa.Table | None]]
"""What a task does with its rows: the files it wrote, and what it has to say beside."""

_OUTPUT_DDL = "files binary, note binary, problem string, is_input boolean"
_OUTPUT_SCHEMA = pa.schema(
    [("files", pa.binary()), ("note", pa.binary()), ("problem", pa.string()), ("is_input", pa.bool_())]
)


@dataclass(frozen=True)
class TaskOutput:
    """What one task answered: its files as rows of an entry table, and its note."""

    files: pa.Table | None
    note: pa.Table | None


def run_writing_job(
    rows: DataFrame, task: WritingTask, target: WriteTarget, options: Mapping[str, str]
) -> list[TaskOutput]:
    """Run a task over the partitions of a DataFrame; what each of them wrote and noted.

    Files are deleted again when the job fails, or when a task answers with what it cannot store or read.
    """
    spark = rows.sparkSession
    finished = _FinishedFiles(spark)
    asked = map_in_arrow(rows, _as_spark_task(task, target, str(uuid4()), finished.add_paths), _OUTPUT_DDL)
    try:
        with temporary_options(spark, {**options, **arrow_batch_options(rows, target.average_row_bytes)}):
            collected = asked.collect()
    except BaseException as e:  # whatever the job failed of, its files are useless
        left = delete_files(target.open_io(), finished.paths())
        if not isinstance(e, Exception):  # somebody has stopped it
            raise
        raise WriteFailed(f"Cannot write data files: {_failure_reason(e)}", left) from e
    finally:
        finished.clear()
    answers = [TaskOutput(_optional_table(a.files), _optional_table(a.note)) for a in collected]
    problem = next((a for a in collected if a.problem is not None), None)
    if problem is not None:
        delete_files(target.open_io(), written_entries(answers, target)["file_path"].to_pylist())
        raise (UserError if problem.is_input else TableError)(problem.problem)
    return answers


def written_entries(answers: Sequence[TaskOutput], target: WriteTarget) -> pa.Table:
    """The files of all tasks as rows of an entry table."""
    tables = [a.files for a in answers if a.files is not None]
    return pa.concat_tables([data_file_entries([], target), *tables]).unify_dictionaries().combine_chunks()


def _optional_table(data: bytes | None) -> pa.Table | None:
    return None if data is None else from_ipc(data)


def _as_spark_task(
    task: WritingTask, target: WriteTarget, write_id: str, note: Callable[[list[str]], None]
) -> Callable[[Batches], Batches]:
    """A task as Spark runs it: names for its files, and its answer."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        number, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        try:
            files, said = task(batches, FileNames(number, attempt, write_id))
        except (UserError, CorruptFile, MissingFile) as e:  # whatever else it is, another attempt may help
            yield _output_batch(problem=str(e), is_input=isinstance(e, UserError))
            return
        note([f.path for f in files])
        if files or said is not None:
            yield _output_batch(
                to_ipc(data_file_entries(files, target)) if files else None, None if said is None else to_ipc(said)
            )

    return run


def _output_batch(
    files: bytes | None = None, note: bytes | None = None, problem: str | None = None, is_input: bool | None = None
) -> pa.RecordBatch:
    answer = {"files": files, "note": note, "problem": problem, "is_input": is_input}
    return pa.RecordBatch.from_pylist([answer], schema=_OUTPUT_SCHEMA)


class _FinishedFiles:
    """The files of tasks that succeeded, known also when the job fails. Spark Connect has no such channel."""

    def __init__(self, spark: SparkSession) -> None:
        self._total = spark.sparkContext.accumulator([], _PathAccumulator()) if is_classic(spark) else None

    @property
    def add_paths(self) -> Callable[[list[str]], None]:
        """What a task calls with the files it finished."""
        return (lambda paths: None) if self._total is None else self._total.add

    def paths(self) -> list[str]:
        """What has been noted so far."""
        return [] if self._total is None else list(self._total.value)

    def clear(self) -> None:
        """Free the memory: Spark keeps what it was told for as long as the driver lives."""
        if self._total is not None:
            self._total.value = []


class _PathAccumulator(AccumulatorParam[list[str]]):
    def zero(self, value: list[str]) -> list[str]:
        return []

    def addInPlace(self, value1: list[str], value2: list[str]) -> list[str]:  # noqa: N802
        return value1 + value2


def _failure_reason(error: Exception) -> str:
    """What a job failed of: the end of the traceback of a task, or else the first line."""
    text = str(error).strip()
    _, found, traceback = text.partition("Traceback (most recent call last):")
    said = [line for line in traceback.splitlines() if line and not line[0].isspace()]
    return said[-1] if found and said else text.split("\n", 1)[0]


_ADAPTIVE = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"


def is_persisted(frame: DataFrame) -> bool:
    """Whether Spark holds a frame such that none of it is computed again for want of memory.

    What the frame itself says of being cached stays true when the cache was cleared.
    """
    return bool(frame.storageLevel.useDisk)


@contextmanager
def persisted(frame: DataFrame) -> Iterator[DataFrame]:
    """A frame that stays on the executors, in memory and on their disks, until the block ends.

    One the caller keeps already is left alone.
    """
    if frame.storageLevel != StorageLevel.NONE:
        yield frame
        return
    # Without it Spark keeps hundreds of tiny partitions, and each costs a Python worker more than its rows do.
    with temporary_options(frame.sparkSession, {_ADAPTIVE: "true"}):
        frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame
    finally:
        frame.unpersist()
