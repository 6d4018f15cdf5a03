"""Rewrite files with their changes, or only the changed rows, on Spark or in this process.

Only the changes are shuffled, to the tasks that read their files. If the rows of a file stay in their partition, the
task that patches the file also writes it. If they move to the default spec or to another partition, the patched rows
are distributed by partition before they are written, so that a file whose rows go to a thousand partitions does not
leave a thousand files per task. Small files are read and written in this process, without a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from neve.io.deletion_vectors import PositionSet
from neve.io.parallel import map_in_threads
from neve.run.change_tally import CHANGE_COLUMNS, CLAUSE_COLUMN, FILE_COLUMN, POSITION_COLUMN
from neve.run.read.tasks import group_count
from neve.run.spark.arrow_exchange import map_in_arrow, to_ipc
from neve.run.spark.column_exchange import ColumnExchange
from neve.run.spark.input_rows import create_dataframe
from neve.run.spark.read_columns import column_by_name
from neve.run.spark.types import spark_schema
from neve.run.spark.write import write_dataframe
from neve.run.spark.writing_job import LocalLimits, run_tasks_in_process, run_writing_job, written_entries
from neve.run.write.data_files import write_arrow_table, write_batches
from neve.run.write.partitioning import FileNames
from neve.run.write.patch import FILE_TASK_COLUMN, Patch
from neve.run.write.rolling_writer import WrittenFile

_GROUP = "__neve_group"
_BYTES_OF_ONE_WRITER = 128 << 20  # of files whose rows share the new files, because nothing distributes them
_MAX_CHANGED_BYTES = 64 << 20  # of changed rows that this process holds at once, as they are stored in files


@dataclass(frozen=True)
class PatchJob:
    """Files to rewrite, with their changes."""

    spark: Callable[[], SparkSession]
    patch: Patch
    tasks: pa.Table  # of `build_task_table`, with ordinals
    positions: Mapping[int, PositionSet]  # of the rows that change, by ordinal
    limits: LocalLimits
    running_spark: Callable[[], SparkSession | None]  # starts none
    changes: DataFrame | pa.Table | None = None  # rows with `CHANGE_COLUMNS` and the new values; None: rows are removed
    groups: int | None = None  # tasks that files are assigned to; None: as many as their bytes are worth

    def write_in_place(self) -> pa.Table:
        """Rewrite each file in the task that patches it; return the new files as rows of an entry table."""
        patch, target = self.patch, self.patch.target
        target.check()

        def task(batches: Iterable[pa.RecordBatch], names: FileNames) -> tuple[list[WrittenFile], pa.Table | None]:
            return write_batches(patch.patched_rows(batches), target, names, is_clustered=False), None

        if self._is_small:
            inputs = [[rows] for rows in self._task_inputs()]
            return written_entries(run_tasks_in_process(inputs, task, target, self.limits.threads), target)
        outputs = run_writing_job(self._tasks_and_changes(), task, target, {}, holds_rows=False)  # files among them
        return written_entries(outputs, target)

    def write_unsorted(self) -> pa.Table:
        """Rewrite files that are not, or will not be, in the table's sort order; the new files are marked unsorted."""
        target = self.patch.target.with_options(is_sorted=False)
        return replace(self, patch=replace(self.patch, target=target)).write_in_place()

    def write_redistributed(self) -> pa.Table:
        """Rewrite the files after distributing their rows by their new partition."""
        patch, target = self.patch, self.patch.target

        def source(batches: Iterable[pa.RecordBatch], notes: list[pa.Table]) -> Iterator[pa.RecordBatch]:
            return patch.patched_rows(batches)

        exchange = ColumnExchange(target, source)
        if self._is_small and ColumnExchange.suits(target):
            outputs = exchange.run_in_process(self._task_inputs(), self.limits.threads, self.running_spark())
            return written_entries(outputs, target)
        if self._is_small and not target.write_order.fields:
            return replace(self, groups=-(-self._bytes // _BYTES_OF_ONE_WRITER)).write_in_place()
        if not self.exchanges_columns:
            return write_dataframe(self.patched_rows(), target)
        return written_entries(exchange.run(self._tasks_and_changes(), holds_rows=False), target)

    @property
    def exchanges_columns(self) -> bool:
        """True if redistributed rows do not become rows of Spark, which would round some types."""
        target = self.patch.target
        return ColumnExchange.suits(target) or (self.patch.only_changed and not target.write_order.fields)

    def of_changed_rows(self) -> PatchJob:
        """Return the same job for the changed rows alone; the files are not rewritten."""
        return replace(self, patch=replace(self.patch, only_changed=True))

    @property
    def has_few_changes(self) -> bool:
        """True if the changed rows are read and written in this process."""
        if not isinstance(self.changes, pa.Table) or self._bytes > self.limits.carried:
            return False
        counts = [self.positions[ordinal].cardinality for ordinal in self.tasks["ordinal"].to_pylist()]
        sizes, rows = (self.tasks[name].to_numpy() for name in ("file_size_in_bytes", "record_count"))
        return float(np.sum(counts * sizes / np.maximum(rows, 1))) <= _MAX_CHANGED_BYTES

    def write_together(self) -> pa.Table:
        """Read the rows in this process, and write them there as one table: sorted, and few files."""
        patch = self.patch
        parts = map_in_threads(lambda rows: list(patch.patched_rows([rows])), self._task_inputs(), self.limits.threads)
        rows = pa.Table.from_batches([batch for part in parts for batch in part], patch.target.arrow_schema)
        return write_arrow_table(rows, patch.target)

    def patched_rows(self) -> DataFrame:
        """Return the rows after the changes."""
        patch = self.patch

        def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return patch.patched_rows(batches)

        return map_in_arrow(self._tasks_and_changes(), task, spark_schema(patch.target.file_schema))

    # -- what tasks get ----------------------------------------------------------------------------------------------

    @property
    def _is_small(self) -> bool:
        """True if the files are rewritten in this process."""
        return not isinstance(self.changes, DataFrame) and self._bytes <= self.limits.rewritten

    @property
    def _bytes(self) -> int:
        return int(pc.sum(self.tasks["file_size_in_bytes"]).as_py())

    @property
    def _columns(self) -> list[str]:
        assigned = () if self.changes is None else self.patch.assigned_columns
        return [POSITION_COLUMN, CLAUSE_COLUMN, FILE_TASK_COLUMN, *assigned]

    def _task_inputs(self) -> list[pa.RecordBatch]:
        """Return what each task gets, in this process."""
        file_tasks = self._file_task_rows()
        table = file_tasks
        if isinstance(self.changes, pa.Table):
            ordinals, groups = (file_tasks[name].to_numpy() for name in (FILE_COLUMN, _GROUP))
            group_of = np.zeros(int(ordinals.max()) + 1, np.int32)
            group_of[ordinals] = groups
            changes = self.changes.select([*CHANGE_COLUMNS, *self.patch.assigned_columns])
            changes = changes.append_column(_GROUP, pa.array(group_of[changes[FILE_COLUMN].to_numpy()]))
            table = pa.concat_tables([file_tasks, changes], promote_options="default")
        ordered = table.sort_by([(name, "ascending") for name in (_GROUP, FILE_COLUMN, POSITION_COLUMN)])
        [rows] = ordered.select(self._columns).combine_chunks().to_batches()
        starts = np.flatnonzero(np.diff(ordered[_GROUP].to_numpy(), prepend=-1))
        return [rows.slice(start, end - start) for start, end in pairwise([*starts.tolist(), rows.num_rows])]

    def _tasks_and_changes(self) -> DataFrame:
        """Return what all tasks get, as a DataFrame that is distributed and sorted."""
        file_tasks, spark = self._file_task_rows(), self.spark()
        count = file_tasks.column(_GROUP).to_numpy().max(initial=0) + 1
        frame = spark.createDataFrame(file_tasks)
        if self.changes is not None:
            changes = create_dataframe(spark, self.changes) if isinstance(self.changes, pa.Table) else self.changes
            groups = spark.createDataFrame(file_tasks.select([FILE_COLUMN, _GROUP]))
            assigned = changes.select(*map(column_by_name, (*CHANGE_COLUMNS, *self.patch.assigned_columns)))
            frame = frame.unionByName(assigned.join(F.broadcast(groups), FILE_COLUMN), allowMissingColumns=True)
        spread = frame.repartitionById(int(count), F.col(_GROUP).cast("int"))
        ordered = spread.sortWithinPartitions(FILE_COLUMN, POSITION_COLUMN)
        return ordered.select(*map(column_by_name, self._columns))

    def _file_task_rows(self) -> pa.Table:
        """Return one row per file, sorted before its changes, with what is needed to read the file."""
        ordinals = self.tasks["ordinal"].to_pylist()
        # Rows to remove are known here; other changes follow, and say only which row groups matter.
        needs_vector = self.changes is None or self.patch.only_changed
        vectors = [self.positions[o].encode() if needs_vector and o in self.positions else None for o in ordinals]
        table = self.tasks.append_column("vector", pa.array(vectors, pa.binary()))
        sizes = table["file_size_in_bytes"].to_numpy()
        # Sorted files get a task of their own, because rows of other files would break their order. Other files are
        # assigned to groups of about the same size: in turn, the largest file first.
        groups = np.arange(len(sizes))
        if not self.patch.target.write_order.fields:
            groups[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes)) % (self.groups or group_count(sizes))
        return pa.table(
            {
                FILE_COLUMN: pa.array(ordinals, pa.int32()),
                POSITION_COLUMN: pa.array(np.full(len(ordinals), -1, np.int64)),
                CLAUSE_COLUMN: pa.array(np.full(len(ordinals), -1, np.int32)),
                FILE_TASK_COLUMN: pa.array([to_ipc(table.slice(at, 1)) for at in range(len(ordinals))], pa.binary()),
                _GROUP: pa.array(groups, pa.int32()),
            }
        )
