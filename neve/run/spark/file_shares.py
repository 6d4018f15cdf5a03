"""Share files out to the tasks that read them: neighbours to the same task, and about as many bytes to each.

A task gets a row for each of its files, or parts of files, with all that it must know to read it, as Arrow data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from neve.run.change_tally import CLAUSE_COLUMN, POSITION_COLUMN
from neve.run.spark.arrow_exchange import to_ipc
from neve.run.write.patch import FILE_TASK_COLUMN

GROUP_COLUMN = "__neve_group"
_TASK = "__neve_task"
_COLUMNS = [POSITION_COLUMN, CLAUSE_COLUMN, FILE_TASK_COLUMN, GROUP_COLUMN]  # what a task gets


def part_sizes(parts: pa.Table) -> NDArray[np.int64]:
    """Return about how many bytes each file, or part of a file, has."""
    return np.asarray(parts["file_size_in_bytes"].to_numpy() // parts["parts"].to_numpy())


@dataclass(frozen=True, eq=False)
class FileShares:
    """Files, or parts of files, and the task that reads each."""

    table: pa.Table
    count: int  # of tasks

    @classmethod
    def of(cls, parts: pa.Table, count: int, first: int = 0, group_id: int = 0) -> FileShares:
        """Share out files to at most `count` tasks, numbered from `first` on."""
        sizes = part_sizes(parts)
        # The middle of each part decides, as a share of the total size.
        middle = np.cumsum(sizes) - sizes / 2
        share = (middle * count // max(float(sizes.sum()), 1.0)).astype(np.int64)
        number = first + np.unique(np.minimum(share, count - 1), return_inverse=True)[1]
        rows = parts.num_rows
        columns = {
            _TASK: pa.array(number, pa.int32()),
            "number": pa.array(np.arange(rows), pa.int64()),
            GROUP_COLUMN: pa.array(np.full(rows, group_id), pa.int32()),
            POSITION_COLUMN: pa.array(np.full(rows, -1), pa.int64()),
            CLAUSE_COLUMN: pa.array(np.full(rows, -1), pa.int32()),
            FILE_TASK_COLUMN: pa.array([to_ipc(parts.slice(at, 1)) for at in range(rows)], pa.binary()),
        }
        return cls(pa.table(columns), int(number.max(initial=first - 1)) + 1)

    @classmethod
    def concat(cls, shares: Sequence[FileShares]) -> FileShares:
        """Combine shares whose tasks are numbered one after the other."""
        return cls(pa.concat_tables([each.table for each in shares]), shares[-1].count)

    def inputs(self) -> list[pa.RecordBatch]:
        """Return what each task gets, in this process."""
        rows = self.table.select(_COLUMNS).combine_chunks().to_batches()[0]
        tasks = self.table[_TASK].combine_chunks()
        return [rows.filter(pc.equal(tasks, task)) for task in range(self.count)]

    def spread(self, spark: SparkSession) -> DataFrame:
        """Return what each task gets, as the partitions of a DataFrame."""
        spread = spark.createDataFrame(self.table).repartitionById(max(self.count, 1), F.col(_TASK).cast("int"))
        return spread.sortWithinPartitions("number").select(*_COLUMNS)
