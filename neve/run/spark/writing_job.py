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
from neve.io.files import delete_all
from neve.run.spark.arrow_exchange import handover, mapped, packed, unpacked
from neve.run.spark.session import is_classic, options_around
from neve.run.write.data_files import file_rows
from neve.run.write.partitioning import FileNames
from neve.run.write.rolling_writer import WrittenFile
from neve.run.write.target import WriteTarget

Batches = Iterable[pa.RecordBatch]
WritingTask = Callable[[Batches, FileNames], tuple[list[WrittenFile], pa.Table | None]]
"""What a task does with its rows: the files it wrote, and what it has to say beside."""

_ANSWER = "files binary, note binary, problem string, is_input boolean"
_ANSWER_SCHEMA = pa.schema(
    [("files", pa.binary()), ("note", pa.binary()), ("problem", pa.string()), ("is_input", pa.bool_())]
)


@dataclass(frozen=True)
class Answer:
    """What one task answered: its files as rows of an entry table, and its note."""

    files: pa.Table | None
    note: pa.Table | None


def run_writing_job(
    rows: DataFrame, task: WritingTask, target: WriteTarget, options: Mapping[str, str]
) -> list[Answer]:
    """Run a task over the partitions of a DataFrame; what each of them wrote and noted.

    Files are deleted again when the job fails, or when a task answers with what it cannot store or read.
    """
    spark = rows.sparkSession
    finished = _Finished(spark)
    asked = mapped(rows, _answering(task, target, str(uuid4()), finished.note), _ANSWER)
    try:
        with options_around(spark, {**options, **handover(rows, target.row_bytes)}):
            collected = asked.collect()
    except BaseException as e:  # whatever the job failed of, its files are useless
        left = delete_all(target.open_io(), finished.paths())
        if not isinstance(e, Exception):  # somebody has stopped it
            raise
        raise WriteFailed(f"Cannot write data files: {_reason(e)}", left) from e
    finally:
        finished.forget()
    answers = [Answer(_table(a.files), _table(a.note)) for a in collected]
    problem = next((a for a in collected if a.problem is not None), None)
    if problem is not None:
        delete_all(target.open_io(), files_of(answers, target)["file_path"].to_pylist())
        raise (UserError if problem.is_input else TableError)(problem.problem)
    return answers


def files_of(answers: Sequence[Answer], target: WriteTarget) -> pa.Table:
    """The files of all tasks as rows of an entry table."""
    tables = [a.files for a in answers if a.files is not None]
    return pa.concat_tables([file_rows([], target), *tables]).unify_dictionaries().combine_chunks()


def _table(data: bytes | None) -> pa.Table | None:
    return None if data is None else unpacked(data)


def _answering(
    task: WritingTask, target: WriteTarget, write_id: str, note: Callable[[list[str]], None]
) -> Callable[[Batches], Batches]:
    """A task as Spark runs it: names for its files, and its answer."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        number, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        try:
            files, said = task(batches, FileNames(number, attempt, write_id))
        except (UserError, CorruptFile, MissingFile) as e:  # whatever else it is, another attempt may help
            yield _answer(problem=str(e), is_input=isinstance(e, UserError))
            return
        note([f.path for f in files])
        if files or said is not None:
            yield _answer(packed(file_rows(files, target)) if files else None, None if said is None else packed(said))

    return run


def _answer(
    files: bytes | None = None, note: bytes | None = None, problem: str | None = None, is_input: bool | None = None
) -> pa.RecordBatch:
    answer = {"files": files, "note": note, "problem": problem, "is_input": is_input}
    return pa.RecordBatch.from_pylist([answer], schema=_ANSWER_SCHEMA)


class _Finished:
    """The files of tasks that succeeded, known also when the job fails. Spark Connect has no such channel."""

    def __init__(self, spark: SparkSession) -> None:
        self._total = spark.sparkContext.accumulator([], _Paths()) if is_classic(spark) else None

    @property
    def note(self) -> Callable[[list[str]], None]:
        """What a task calls with the files it finished."""
        return (lambda paths: None) if self._total is None else self._total.add

    def paths(self) -> list[str]:
        """What has been noted so far."""
        return [] if self._total is None else list(self._total.value)

    def forget(self) -> None:
        """Free the memory: Spark keeps what it was told for as long as the driver lives."""
        if self._total is not None:
            self._total.value = []


class _Paths(AccumulatorParam[list[str]]):
    def zero(self, value: list[str]) -> list[str]:
        return []

    def addInPlace(self, value1: list[str], value2: list[str]) -> list[str]:  # noqa: N802
        return value1 + value2


def _reason(error: Exception) -> str:
    """What a job failed of: the end of the traceback of a task, or else the first line."""
    text = str(error).strip()
    _, found, traceback = text.partition("Traceback (most recent call last):")
    said = [line for line in traceback.splitlines() if line and not line[0].isspace()]
    return said[-1] if found and said else text.split("\n", 1)[0]


_ADAPTIVE = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"


def is_kept(frame: DataFrame) -> bool:
    """Whether Spark holds a frame such that none of it is computed again for want of memory.

    What the frame itself says of being cached stays true when the cache was cleared.
    """
    return bool(frame.storageLevel.useDisk)


@contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """A frame that stays on the executors, in memory and on their disks, until the block ends.

    One the caller keeps already is left alone.
    """
    if frame.storageLevel != StorageLevel.NONE:
        yield frame
        return
    # Without it Spark keeps hundreds of tiny partitions, and each costs a Python worker more than its rows do.
    with options_around(frame.sparkSession, {_ADAPTIVE: "true"}):
        frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame
    finally:
        frame.unpersist()
