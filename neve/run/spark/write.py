"""Rows to data files on Spark, in one job that answers with the files.

The plan is: columns matched to the table, rows brought together by partition or range, sorted where that is wanted,
handed to Arrow, written by the sink in each task (see `job`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from neve.run.change_tally import CHANGE_COLUMNS, CLAUSE_COLUMN, SOURCE_COLUMN, Effects, Tally, TallyBuilder
from neve.run.spark.arrow_exchange import arrow_batch_options, from_ipc, map_in_arrow, to_ipc
from neve.run.spark.distribution import distribute_and_sort, is_clustered, shuffle_options
from neve.run.spark.session import temporary_options
from neve.run.spark.store_assignment import assign_dataframe
from neve.run.spark.writing_job import WritingTask, run_writing_job, written_entries
from neve.run.write.data_files import write_batches
from neve.run.write.partitioning import FileNames
from neve.run.write.rolling_writer import WrittenFile
from neve.run.write.target import WriteTarget

_TALLY_DDL = "tally binary"


def write_dataframe(df: DataFrame, target: WriteTarget) -> pa.Table:
    """Write the rows of a DataFrame to data files; the files as rows of an entry table. Runs one action."""
    target.check()
    rows = distribute_and_sort(assign_dataframe(df, target.file_schema), target)
    return written_entries(
        run_writing_job(rows, _writing_task(target, is_clustered(target)), target, shuffle_options(target)), target
    )


def write_changes(df: DataFrame, target: WriteTarget, effects: Effects) -> tuple[pa.Table, Tally]:
    """Write the new rows among changed ones, and count which rows of which files they replace. Runs one action.

    The rows have the columns `CHANGE_COLUMNS` beside those of the table, and may have `SOURCE`.
    """
    target.check()
    rows = distribute_and_sort(assign_dataframe(df, target.file_schema, _change_columns(df)), target)
    task = _writing_task(target, is_clustered(target), effects)
    answers = run_writing_job(rows, task, target, shuffle_options(target))
    return written_entries(answers, target), Tally.from_tables(
        [a.note for a in answers if a.note is not None], len(effects)
    )


def count_changes(df: DataFrame, effects: Effects) -> Tally:
    """Count which rows of which files a statement concerns, and write nothing. Runs one action."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keeper = TallyBuilder(effects)
        for batch in batches:
            keeper.add(batch)
        yield pa.RecordBatch.from_pydict({"tally": pa.array([to_ipc(keeper.table())], pa.binary())})

    places = df.select(*_change_columns(df))
    with temporary_options(df.sparkSession, arrow_batch_options(places)):
        collected = map_in_arrow(places, run, _TALLY_DDL).collect()
    return Tally.from_tables([from_ipc(a.tally) for a in collected], len(effects))


def _change_columns(df: DataFrame) -> tuple[str, ...]:
    """The columns of changed rows that are not stored."""
    return (*CHANGE_COLUMNS, SOURCE_COLUMN) if SOURCE_COLUMN in df.columns else CHANGE_COLUMNS


def _writing_task(target: WriteTarget, is_clustered: bool, effects: Effects | None = None) -> WritingTask:
    def run(batches: Iterable[pa.RecordBatch], names: FileNames) -> tuple[list[WrittenFile], pa.Table | None]:
        if effects is None:
            return write_batches(batches, target, names, is_clustered=is_clustered), None
        keeper = TallyBuilder(effects)
        files = write_batches(_new_rows(batches, keeper, effects), target, names, is_clustered=is_clustered)
        return files, keeper.table()

    return run


def _new_rows(batches: Iterable[pa.RecordBatch], keeper: TallyBuilder, effects: Effects) -> Iterator[pa.RecordBatch]:
    """The rows to be written, without the columns that tell where they come from; all of them are counted."""
    writes = np.array(effects.writes, bool)
    for batch in batches:
        keeper.add(batch)
        kept = batch if writes.all() else batch.filter(pa.array(writes[batch.column(CLAUSE_COLUMN).to_numpy()]))
        if kept.num_rows:
            yield kept.drop_columns([n for n in kept.schema.names if n in (*CHANGE_COLUMNS, SOURCE_COLUMN)])
