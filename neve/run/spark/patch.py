"""Copy-on-write on Spark: only the changed rows are shuffled, to the tasks that rewrite their files.

If the rows of a file stay in their partition, the task that patches the file also writes it. If they move to the
default spec or to another partition, the patched rows return to Spark and are distributed by partition before they are
written, so that a file whose rows go to a thousand partitions does not leave a thousand files per task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from neve.io.deletion_vectors import PositionSet
from neve.run.change_tally import CHANGE_COLUMNS, CLAUSE_COLUMN, FILE_COLUMN, POSITION_COLUMN
from neve.run.read.tasks import group_count
from neve.run.spark.arrow_exchange import map_in_arrow, to_ipc
from neve.run.spark.column_exchange import ColumnExchange
from neve.run.spark.read_columns import column_by_name
from neve.run.spark.types import spark_schema
from neve.run.spark.write import write_dataframe
from neve.run.spark.writing_job import MAX_LOCAL_BYTES, run_tasks_in_process, run_writing_job, written_entries
from neve.run.write.data_files import write_batches
from neve.run.write.partitioning import FileNames
from neve.run.write.patch import FILE_TASK_COLUMN, Patch
from neve.run.write.rolling_writer import WrittenFile

_GROUP = "__neve_group"


@dataclass(frozen=True)
class PatchJob:
    """Files to rewrite, with their changes."""

    spark: SparkSession
    patch: Patch
    tasks: pa.Table  # of `build_task_table`, with ordinals
    changes: DataFrame | None = None  # rows with `CHANGE_COLUMNS` and the assigned columns
    removed_positions: Mapping[int, PositionSet] | None = None  # or positions to leave out, by ordinal

    def write_in_place(self) -> pa.Table:
        """Rewrite each file in the task that patches it; return the new files as rows of an entry table."""
        patch, target = self.patch, self.patch.target
        target.check()

        def task(batches: Iterable[pa.RecordBatch], names: FileNames) -> tuple[list[WrittenFile], pa.Table | None]:
            return write_batches(patch.patched_rows(batches), target, names, is_clustered=False), None

        if self._is_small:
            return written_entries(run_tasks_in_process(self._task_inputs(), task, target), target)
        return written_entries(run_writing_job(self._tasks_and_changes(), task, target, {}), target)

    @property
    def _is_small(self) -> bool:
        """True if the files are rewritten in this process: a Spark job would cost more than the rows."""
        return self.changes is None and pc.sum(self.tasks["file_size_in_bytes"]).as_py() <= MAX_LOCAL_BYTES

    def _task_inputs(self) -> list[pa.RecordBatch]:
        """Return what each task gets, if there are no changes but removed rows."""
        file_tasks = self._file_task_rows()
        groups = file_tasks[_GROUP].to_numpy()
        rows = file_tasks.select([POSITION_COLUMN, CLAUSE_COLUMN, FILE_TASK_COLUMN]).combine_chunks().to_batches()[0]
        return [rows.take(pa.array(np.flatnonzero(groups == group))) for group in np.unique(groups)]

    def write_unsorted(self) -> pa.Table:
        """Rewrite files that are not, or will not be, in the table's sort order; the new files are marked unsorted."""
        target = self.patch.target.with_options(is_sorted=False)
        return replace(self, patch=replace(self.patch, target=target)).write_in_place()

    @property
    def exchanges_columns(self) -> bool:
        """True if redistributed rows do not become rows of Spark, which would round some types."""
        return ColumnExchange.suits(self.patch.target)

    def write_redistributed(self) -> pa.Table:
        """Rewrite the files after distributing their rows by their new partition."""
        patch, target = self.patch, self.patch.target
        if not self.exchanges_columns:
            return write_dataframe(self.patched_rows(), target)

        def source(batches: Iterable[pa.RecordBatch], notes: list[pa.Table]) -> Iterator[pa.RecordBatch]:
            return patch.patched_rows(batches)

        return written_entries(ColumnExchange(target, source).run(self._tasks_and_changes(), holds_rows=False), target)

    def patched_rows(self) -> DataFrame:
        """Return the rows after the changes."""
        patch = self.patch

        def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return patch.patched_rows(batches)

        return map_in_arrow(self._tasks_and_changes(), task, spark_schema(patch.target.file_schema))

    def _tasks_and_changes(self) -> DataFrame:
        file_tasks = self._file_task_rows()
        count = file_tasks.column(_GROUP).to_numpy().max(initial=0) + 1
        frame = self.spark.createDataFrame(file_tasks)
        names = [POSITION_COLUMN, CLAUSE_COLUMN, FILE_TASK_COLUMN]
        if self.changes is not None:
            groups = self.spark.createDataFrame(file_tasks.select([FILE_COLUMN, _GROUP]))
            assigned = self.changes.select(*map(column_by_name, (*CHANGE_COLUMNS, *self.patch.assigned_columns)))
            changes = assigned.join(F.broadcast(groups), FILE_COLUMN)
            frame = frame.unionByName(changes, allowMissingColumns=True)
            names += self.patch.assigned_columns
        spread = frame.repartitionById(int(count), F.col(_GROUP).cast("int"))
        ordered = spread.sortWithinPartitions(FILE_COLUMN, POSITION_COLUMN)
        return ordered.select(*map(column_by_name, names))

    def _file_task_rows(self) -> pa.Table:
        """Return one row per file, sorted before its changes, with what is needed to read the file."""
        removed = self.removed_positions or {}
        ordinals = self.tasks["ordinal"].to_pylist()
        vectors = [removed[o].encode() if o in removed else None for o in ordinals]
        table = self.tasks.append_column("gone", pa.array(vectors, pa.binary()))
        sizes = table["file_size_in_bytes"].to_numpy()
        # Sorted files get a task of their own, because rows of other files would break their order. Other files are
        # assigned to groups of about the same size: in turn, the largest file first.
        groups = np.arange(len(sizes))
        if not self.patch.target.write_order.fields:
            groups[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes)) % group_count(sizes)
        return pa.table(
            {
                FILE_COLUMN: pa.array(ordinals, pa.int32()),
                POSITION_COLUMN: pa.array(np.full(len(ordinals), -1, np.int64)),
                CLAUSE_COLUMN: pa.array(np.full(len(ordinals), -1, np.int32)),
                FILE_TASK_COLUMN: pa.array([to_ipc(table.slice(at, 1)) for at in range(len(ordinals))], pa.binary()),
                _GROUP: pa.array(groups, pa.int32()),
            }
        )
