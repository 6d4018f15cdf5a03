"""Copy-on-write on Spark: the changed rows meet the tasks that rewrite their files, and nothing else is shuffled.

Where the rows of a file stay in their partition the task that patches the file also writes it. Where they move, to the
default spec or to another partition, the patched rows come back to Spark and are brought together by partition before
they are written, so that a file cut in a thousand partitions does not leave a thousand files per task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from neve.io.deletion_vectors import PositionSet
from neve.run.change_tally import CHANGE_COLUMNS, CLAUSE_COLUMN, FILE_COLUMN, POSITION_COLUMN
from neve.run.read.tasks import group_count
from neve.run.spark.arrow_exchange import map_in_arrow, to_ipc
from neve.run.spark.read_columns import column_by_name
from neve.run.spark.types import spark_schema
from neve.run.spark.write import write_dataframe
from neve.run.spark.writing_job import run_writing_job, written_entries
from neve.run.write.data_files import write_batches
from neve.run.write.partitioning import FileNames
from neve.run.write.patch import FILE_TASK_COLUMN, Patch
from neve.run.write.rolling_writer import WrittenFile

_GROUP = "__neve_group"


@dataclass(frozen=True)
class PatchJob:
    """Files to rewrite, and how."""

    spark: SparkSession
    patch: Patch
    tasks: pa.Table  # of `build_task_table`, with ordinals
    changes: DataFrame | None = None  # rows with `CHANGE_COLUMNS` and the columns assigned
    removed_positions: Mapping[int, PositionSet] | None = None  # or positions to leave out, by ordinal

    def write_in_place(self) -> pa.Table:
        """Rewrite the files, each in the task that patches it; the new files as rows of an entry table."""
        patch, target = self.patch, self.patch.target
        target.check()

        def task(batches: Iterable[pa.RecordBatch], names: FileNames) -> tuple[list[WrittenFile], pa.Table | None]:
            return write_batches(patch.patched_rows(batches), target, names, is_clustered=False), None

        return written_entries(run_writing_job(self._tasks_and_changes(), task, target, {}), target)

    def write_unsorted(self) -> pa.Table:
        """The same for files that are not in the table's order, or no longer; those that come of them say so."""
        target = self.patch.target.with_options(is_sorted=False)
        return replace(self, patch=replace(self.patch, target=target)).write_in_place()

    def write_redistributed(self) -> pa.Table:
        """Rewrite the files with their rows brought together by where they belong now."""
        return write_dataframe(self.patched_rows(), self.patch.target)

    def patched_rows(self) -> DataFrame:
        """The patched rows."""
        patch = self.patch

        def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return patch.patched_rows(batches)

        return map_in_arrow(self._tasks_and_changes(), task, spark_schema(patch.target.file_schema))

    def _tasks_and_changes(self) -> DataFrame:
        heads = self._file_task_rows()
        count = heads.column(_GROUP).to_numpy().max(initial=0) + 1
        frame = self.spark.createDataFrame(heads)
        if self.changes is not None:
            groups = self.spark.createDataFrame(heads.select([FILE_COLUMN, _GROUP]))
            assigned = self.changes.select(*map(column_by_name, (*CHANGE_COLUMNS, *self.patch.assigned_columns)))
            changes = assigned.join(F.broadcast(groups), FILE_COLUMN)
            frame = frame.unionByName(changes, allowMissingColumns=True)
        spread = frame.repartitionById(int(count), F.col(_GROUP).cast("int"))
        names = [
            POSITION_COLUMN,
            CLAUSE_COLUMN,
            FILE_TASK_COLUMN,
            *(self.patch.assigned_columns if self.changes is not None else ()),
        ]
        ordered = spread.sortWithinPartitions(FILE_COLUMN, POSITION_COLUMN)
        return ordered.select(*map(column_by_name, names))

    def _file_task_rows(self) -> pa.Table:
        """A row per file that comes before its changes: what it takes to read it."""
        gone = self.removed_positions or {}
        ordinals = self.tasks["ordinal"].to_pylist()
        vectors = [gone[o].encode() if o in gone else None for o in ordinals]
        table = self.tasks.append_column("gone", pa.array(vectors, pa.binary()))
        return pa.table(
            {
                FILE_COLUMN: pa.array(ordinals, pa.int32()),
                POSITION_COLUMN: pa.array(np.full(len(ordinals), -1, np.int64)),
                CLAUSE_COLUMN: pa.array(np.full(len(ordinals), -1, np.int32)),
                FILE_TASK_COLUMN: pa.array([to_ipc(table.slice(at, 1)) for at in range(len(ordinals))], pa.binary()),
                _GROUP: pa.array(self._groups(table["file_size_in_bytes"].to_numpy()), pa.int32()),
            }
        )

    def _groups(self, sizes: np.ndarray) -> np.ndarray:
        """The task of each file: of its own where files are in an order, which rows of another would break."""
        return np.arange(len(sizes)) if self.patch.target.write_order.fields else _balanced(sizes)


def _balanced(sizes: np.ndarray) -> np.ndarray:
    """A group for each file, so that groups are of about the same size: dealt out in turn, the largest first."""
    found = np.zeros(len(sizes), np.int32)
    found[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes)) % group_count(sizes)
    return found
