"""Write the rows of a DataFrame to data files, in one Spark job that returns the files.

Columns are matched to the table, rows are distributed by partition or range and sorted if required, and each task
writes its rows as Arrow batches (see `writing_job`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row

from neve.run.change_tally import CHANGE_COLUMNS, CLAUSE_COLUMN, SOURCE_COLUMN, Effects, Tally, TallyBuilder
from neve.run.spark.arrow_exchange import Batches, collect_table, from_ipc, to_ipc
from neve.run.spark.arrow_job import run_in_arrow
from neve.run.spark.column_exchange import ColumnExchange, RowSource
from neve.run.spark.distribution import distribute_and_sort, is_clustered, shuffle_options
from neve.run.spark.store_assignment import assign_dataframe
from neve.run.spark.writing_job import WritingTask, run_writing_job, written_entries
from neve.run.write.data_files import write_batches
from neve.run.write.partitioning import FileNames
from neve.run.write.rolling_writer import WrittenFile
from neve.run.write.target import WriteTarget

_CHANGES_DDL = "tally binary, rows binary, size long"
MAX_TASK_BYTES, MAX_COLLECTED_BYTES = (
    256 << 10,
    64 << 20,
)  # of changed rows: from a task, and in the driver


def write_dataframe(df: DataFrame, target: WriteTarget) -> pa.Table:
    """Write the rows of a DataFrame; return the files as rows of an entry table. Runs one action.

    On a cluster, Spark's own shuffle distributes the rows that Spark holds: to hand them to Python before the shuffle,
    and back for it, takes a fifth more CPU.
    """
    target.check()
    assigned = assign_dataframe(df, target.file_schema)
    if ColumnExchange.suits(target) and ColumnExchange.passes_files(df.sparkSession):
        outputs = ColumnExchange(target, lambda batches, _: iter(batches)).run(assigned, holds_rows=True)
        return written_entries(outputs, target)
    rows = distribute_and_sort(assigned, target)
    task = _writing_task(target, is_clustered(target))
    return written_entries(run_writing_job(rows, task, target, shuffle_options(target)), target)


def write_changes(df: DataFrame, target: WriteTarget, effects: Effects) -> tuple[pa.Table, Tally]:
    """Write the new rows of a change, and count which rows of which files they replace. Runs one action.

    Besides the columns of the table, the rows have `CHANGE_COLUMNS`, and may have `SOURCE_COLUMN`.
    """
    target.check()
    assigned = assign_dataframe(df, target.file_schema, _change_columns(df))
    if ColumnExchange.suits(target):
        outputs = ColumnExchange(target, _counted_rows(effects)).run(assigned, holds_rows=True)
    else:
        rows = distribute_and_sort(assigned, target)
        task = _writing_task(target, is_clustered(target), effects)
        outputs = run_writing_job(rows, task, target, shuffle_options(target))
    tally = Tally.from_tables([o.note for o in outputs if o.note is not None], len(effects))
    return written_entries(outputs, target), tally


def count_changes(df: DataFrame, effects: Effects) -> Tally:
    """Count which rows of which files a statement changes, and write nothing. Runs one action."""
    return _tally_changes(df.select(*_change_columns(df)), effects, 0)[0]


def collect_changes(df: DataFrame, effects: Effects) -> tuple[Tally, pa.Table | None]:
    """Count the changes of a statement, and return them; None if they are many. Runs one action, or two."""
    tally, collected = _tally_changes(df, effects, MAX_TASK_BYTES)
    if sum(row["size"] for row in collected) > MAX_COLLECTED_BYTES:
        return tally, None
    if any(row["size"] > MAX_TASK_BYTES for row in collected):
        return tally, collect_table(df)
    parts = [from_ipc(row["rows"]) for row in collected if row["rows"] is not None]
    return tally, pa.concat_tables(parts) if parts else None


def _tally_changes(df: DataFrame, effects: Effects, max_bytes: int) -> tuple[Tally, list[Row]]:
    """Count changes, and return the size of each task's changes; a task also returns its rows, up to some bytes."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tally, size = TallyBuilder(effects), 0
        kept: list[pa.RecordBatch] = []
        for batch in batches:
            tally.add(batch)
            size += batch.nbytes
            kept = [*kept, batch] if size <= max_bytes else []
        rows = to_ipc(pa.Table.from_batches(kept)) if kept else None
        columns = pa.array([to_ipc(tally.table())], pa.binary()), pa.array([rows], pa.binary()), pa.array([size])
        yield pa.RecordBatch.from_arrays([*columns], ["tally", "rows", "size"])

    collected = run_in_arrow(df, run, _CHANGES_DDL)
    return Tally.from_tables([from_ipc(row["tally"]) for row in collected], len(effects)), collected


def _change_columns(df: DataFrame) -> tuple[str, ...]:
    """Return the columns of changed rows that are not stored."""
    return (*CHANGE_COLUMNS, SOURCE_COLUMN) if SOURCE_COLUMN in df.columns else CHANGE_COLUMNS


def _counted_rows(effects: Effects) -> RowSource:
    def source(batches: Batches, notes: list[pa.Table]) -> Iterator[pa.RecordBatch]:
        tally = TallyBuilder(effects)
        yield from _new_rows(batches, tally, effects)
        notes.append(tally.table())

    return source


def _writing_task(target: WriteTarget, is_clustered: bool, effects: Effects | None = None) -> WritingTask:
    def run(batches: Iterable[pa.RecordBatch], names: FileNames) -> tuple[list[WrittenFile], pa.Table | None]:
        if effects is None:
            return write_batches(batches, target, names, is_clustered=is_clustered), None
        tally = TallyBuilder(effects)
        files = write_batches(_new_rows(batches, tally, effects), target, names, is_clustered=is_clustered)
        return files, tally.table()

    return run


def _new_rows(batches: Iterable[pa.RecordBatch], tally: TallyBuilder, effects: Effects) -> Iterator[pa.RecordBatch]:
    """Count all rows; yield those to be written, without the columns that are not stored."""
    writes = np.array(effects.writes, bool)
    for batch in batches:
        tally.add(batch)
        rows = batch if writes.all() else batch.filter(pa.array(writes[batch.column(CLAUSE_COLUMN).to_numpy()]))
        if rows.num_rows:
            yield rows.drop_columns([n for n in rows.schema.names if n in (*CHANGE_COLUMNS, SOURCE_COLUMN)])
