"""Rows to data files on Spark, in one job that answers with the files.

The plan is: columns matched to the table, rows brought together by partition or range, sorted where that is wanted,
handed to Arrow, written by the sink in each task. Nothing but one row per file comes back, and only from attempts that
succeeded, so files of failed or speculative attempts are never referenced.

A row that cannot be stored does not fail its task, which Spark would try again in vain: the task answers with the
reason, the files of all tasks are deleted, and the reason is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark import AccumulatorParam, TaskContext
from pyspark.sql import DataFrame, SparkSession

from neve.errors import UserError, WriteFailed
from neve.io.files import delete_all
from neve.run.spark.arrange import arranged, is_clustered, settings
from neve.run.spark.assign import assigned_frame
from neve.run.spark.packed import packed, unpacked
from neve.run.spark.session import is_classic, options_around
from neve.run.tally import CHANGE_COLUMNS, CLAUSE, Effects, Tally, TallyKeeper
from neve.run.writing.layout import FileNames
from neve.run.writing.rolling import WrittenFile
from neve.run.writing.sink import file_rows, write_batches
from neve.run.writing.target import WriteTarget

__all__ = ["WritingTask", "count_changes", "run_writing_job", "write", "write_changes"]

_ANSWER = "files binary, tally binary, problem string"
_ANSWER_SCHEMA = pa.schema([("files", pa.binary()), ("tally", pa.binary()), ("problem", pa.string())])


def write(df: DataFrame, target: WriteTarget) -> pa.Table:
    """Write the rows of a DataFrame to data files; the files as rows of an entry table. Runs one action."""
    target.check()
    rows = arranged(assigned_frame(df, target.file_schema), target)
    return _run(rows, target, None)[0]


def write_changes(df: DataFrame, target: WriteTarget, effects: Effects) -> tuple[pa.Table, Tally]:
    """Write the new rows among changed ones, and count which rows of which files they replace. Runs one action.

    The rows have the columns `CHANGE_COLUMNS` beside those of the table.
    """
    target.check()
    rows = arranged(assigned_frame(df, target.file_schema, CHANGE_COLUMNS), target)
    return _run(rows, target, effects)


def count_changes(df: DataFrame, effects: Effects) -> Tally:
    """Count which rows of which files a statement concerns, and write nothing. Runs one action."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keeper = TallyKeeper(effects)
        for batch in batches:
            keeper.add(batch)
        yield _answer(tally=packed(keeper.table()))

    collected = df.select(*CHANGE_COLUMNS).mapInArrow(run, _ANSWER).collect()
    return Tally.together([unpacked(a.tally) for a in collected], len(effects))


def _run(rows: DataFrame, target: WriteTarget, effects: Effects | None) -> tuple[pa.Table, Tally]:
    task = _task(target, is_clustered(target), effects)
    return run_writing_job(rows, task, target, settings(target), len(effects) if effects else 0)


Note = Callable[[list[str]], None]
Batches = Iterable[pa.RecordBatch]
WritingTask = Callable[[Batches, FileNames], tuple[list[WrittenFile], TallyKeeper | None]]


def run_writing_job(
    rows: DataFrame, task: WritingTask, target: WriteTarget, options: Mapping[str, str], clauses: int = 0
) -> tuple[pa.Table, Tally]:
    """Run a task that writes files over the partitions of a DataFrame; what all of them wrote and counted.

    Files are deleted again when the job fails, or when a task answers with a row that cannot be stored.
    """
    spark = rows.sparkSession
    finished = _Finished(spark)
    answers = rows.mapInArrow(_answering(task, target, str(uuid4()), finished.note), _ANSWER)
    try:
        with options_around(spark, options):
            collected = answers.collect()
    except Exception as e:  # whatever the job failed of, its files are useless
        left = delete_all(target.open_io(), finished.paths())
        raise WriteFailed(f"Cannot write data files: {_first_line(e)}", left) from e
    finally:
        finished.forget()
    tally = Tally.together([unpacked(a.tally) for a in collected if a.tally is not None], clauses)
    return _together([(a.files, a.problem) for a in collected], target), tally


def _answering(task: WritingTask, target: WriteTarget, write_id: str, note: Note) -> Callable[[Batches], Batches]:
    """A task as Spark runs it: names for its files, and its answer."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        number, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        try:
            files, keeper = task(batches, FileNames(number, attempt, write_id))
        except UserError as e:
            yield _answer(problem=str(e))
            return
        note([f.path for f in files])
        if files or keeper is not None:
            counted = None if keeper is None else packed(keeper.table())
            yield _answer(files=packed(file_rows(files, target)) if files else None, tally=counted)

    return run


def _task(target: WriteTarget, is_clustered: bool, effects: Effects | None) -> WritingTask:
    def run(batches: Batches, names: FileNames) -> tuple[list[WrittenFile], TallyKeeper | None]:
        keeper = None if effects is None else TallyKeeper(effects)
        rows = batches if keeper is None or effects is None else _new_rows(batches, keeper, effects)
        return write_batches(rows, target, names, is_clustered=is_clustered), keeper

    return run


def _new_rows(batches: Batches, keeper: TallyKeeper, effects: Effects) -> Iterator[pa.RecordBatch]:
    """The rows to be written, without the columns that tell where they come from; all of them are counted."""
    writes = np.array(effects.writes, bool)
    for batch in batches:
        keeper.add(batch)
        kept = batch if writes.all() else batch.filter(pa.array(writes[batch.column(CLAUSE).to_numpy()]))
        if kept.num_rows:
            yield kept.drop_columns(list(CHANGE_COLUMNS))


def _answer(files: bytes | None = None, tally: bytes | None = None, problem: str | None = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"files": files, "tally": tally, "problem": problem}], schema=_ANSWER_SCHEMA)


def _together(answers: list[tuple[bytes | None, str | None]], target: WriteTarget) -> pa.Table:
    tables = [unpacked(files) for files, _ in answers if files is not None]
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
