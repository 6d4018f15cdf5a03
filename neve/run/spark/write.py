"""Rows to data files on Spark, in one job that answers with the files.

The plan is: columns matched to the table, rows brought together by partition or range, sorted where that is wanted,
handed to Arrow, written by the sink in each task. Nothing but one row per file comes back, and only from attempts that
succeeded, so files of failed or speculative attempts are never referenced.

A row that cannot be stored does not fail its task, which Spark would try again in vain: the task answers with the
reason, the files of all tasks are deleted, and the reason is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from uuid import uuid4

import pyarrow as pa
from pyspark import AccumulatorParam, TaskContext
from pyspark.sql import DataFrame, SparkSession

from neve.errors import NeveError, UserError
from neve.io.files import delete_all
from neve.run.spark.arrange import arranged, is_clustered, settings
from neve.run.spark.assign import assigned_frame
from neve.run.spark.session import is_classic, options_around
from neve.run.writing.layout import FileNames
from neve.run.writing.sink import file_rows, write_batches
from neve.run.writing.target import WriteTarget

__all__ = ["WriteFailed", "write"]

_ANSWER = "files binary, problem string"
_ANSWER_SCHEMA = pa.schema([("files", pa.binary()), ("problem", pa.string())])


class WriteFailed(NeveError):
    """The job that writes data files failed. Nothing refers to its files; `leftover` names those still there."""

    def __init__(self, message: str, leftover: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.leftover = tuple(leftover)


def write(df: DataFrame, target: WriteTarget) -> pa.Table:
    """Write the rows of a DataFrame to data files; the files as rows of an entry table. Runs one action."""
    target.check()
    rows = arranged(assigned_frame(df, target.file_schema), target)
    spark = df.sparkSession
    finished = _Finished(spark)
    answers = rows.mapInArrow(_task(target, str(uuid4()), is_clustered(target), finished.note), _ANSWER)
    try:
        with options_around(spark, settings(target)):
            collected = answers.collect()
    except Exception as e:  # whatever the job failed of, its files are useless
        left = delete_all(target.open_io(), finished.paths())
        raise WriteFailed(f"Cannot write data files: {_first_line(e)}", left) from e
    finally:
        finished.forget()
    return _together([(a.files, a.problem) for a in collected], target)


def _task(
    target: WriteTarget, write_id: str, is_clustered: bool, note: Callable[[list[str]], None]
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        names = FileNames(task, attempt, write_id)
        try:
            files = write_batches(batches, target, names, is_clustered=is_clustered)
        except UserError as e:
            yield _answer(None, str(e))
            return
        note([f.path for f in files])
        if files:
            yield _answer(_packed(file_rows(files, target)), None)

    return run


def _answer(files: bytes | None, problem: str | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"files": files, "problem": problem}], schema=_ANSWER_SCHEMA)


def _packed(rows: pa.Table) -> bytes:
    """A table as bytes: partition values have types that Spark does not have."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(rows)
    return bytes(sink.getvalue())


def _together(answers: list[tuple[bytes | None, str | None]], target: WriteTarget) -> pa.Table:
    tables = [pa.ipc.open_stream(files).read_all() for files, _ in answers if files is not None]
    rows = pa.concat_tables([file_rows([], target), *tables]).unify_dictionaries()
    problem = next((p for _, p in answers if p is not None), None)
    if problem is not None:
        delete_all(target.open_io(), rows.column("file_path").to_pylist())
        raise UserError(problem)
    return rows.combine_chunks()


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


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
