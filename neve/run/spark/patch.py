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
from neve.run.change_tally import CHANGE_COLUMNS, CLAUSE, FILE, POSITION
from neve.run.read.tasks import group_count
from neve.run.spark.arrow_exchange import mapped, packed
from neve.run.spark.read_columns import by_name
from neve.run.spark.types import spark_schema
from neve.run.spark.write import write
from neve.run.spark.writing_job import files_of, run_writing_job
from neve.run.write.data_files import write_batches
from neve.run.write.partitioning import FileNames
from neve.run.write.patch import HEAD, Patch
from neve.run.write.rolling_writer import WrittenFile

_GROUP = "__neve_group"


@dataclass(frozen=True)
class Patching:
    """Files to rewrite, and how."""

    spark: SparkSession
    patch: Patch
    tasks: pa.Table  # of `tasks_of`, with ordinals
    changes: DataFrame | None = None  # rows with `CHANGE_COLUMNS` and the columns assigned
    gone: Mapping[int, PositionSet] | None = None  # or positions to leave out, by ordinal

    def in_place(self) -> pa.Table:
        """Rewrite the files, each in the task that patches it; the new files as rows of an entry table."""
        patch, target = self.patch, self.patch.target
        target.check()

        def task(batches: Iterable[pa.RecordBatch], names: FileNames) -> tuple[list[WrittenFile], pa.Table | None]:
            return write_batches(patch.rows(batches), target, names, is_clustered=False), None

        return files_of(run_writing_job(self._heads_and_changes(), task, target, {}), target)

    def in_no_order(self) -> pa.Table:
        """The same for files that are not in the table's order, or no longer; those that come of them say so."""
        target = self.patch.target.with_options(is_sorted=False)
        return replace(self, patch=replace(self.patch, target=target)).in_place()

    def moving(self) -> pa.Table:
        """Rewrite the files with their rows brought together by where they belong now."""
        return write(self.rows(), self.patch.target)

    def rows(self) -> DataFrame:
        """The patched rows."""
        patch = self.patch

        def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return patch.rows(batches)

        return mapped(self._heads_and_changes(), task, spark_schema(patch.target.file_schema))

    def _heads_and_changes(self) -> DataFrame:
        heads = self._heads()
        count = heads.column(_GROUP).to_numpy().max(initial=0) + 1
        frame = self.spark.createDataFrame(heads)
        if self.changes is not None:
            groups = self.spark.createDataFrame(heads.select([FILE, _GROUP]))
            assigned = self.changes.select(*map(by_name, (*CHANGE_COLUMNS, *self.patch.columns)))
            changes = assigned.join(F.broadcast(groups), FILE)
            frame = frame.unionByName(changes, allowMissingColumns=True)
        spread = frame.repartitionById(int(count), F.col(_GROUP).cast("int"))
        names = [POSITION, CLAUSE, HEAD, *(self.patch.columns if self.changes is not None else ())]
        ordered = spread.sortWithinPartitions(FILE, POSITION)
        return ordered.select(*map(by_name, names))

    def _heads(self) -> pa.Table:
        """A row per file that comes before its changes: what it takes to read it."""
        gone = self.gone or {}
        ordinals = self.tasks["ordinal"].to_pylist()
        vectors = [gone[o].encode() if o in gone else None for o in ordinals]
        table = self.tasks.append_column("gone", pa.array(vectors, pa.binary()))
        return pa.table(
            {
                FILE: pa.array(ordinals, pa.int32()),
                POSITION: pa.array(np.full(len(ordinals), -1, np.int64)),
                CLAUSE: pa.array(np.full(len(ordinals), -1, np.int32)),
                HEAD: pa.array([packed(table.slice(at, 1)) for at in range(len(ordinals))], pa.binary()),
                _GROUP: pa.array(self._groups(table["file_size_in_bytes"].to_numpy()), pa.int32()),
            }
        )

    def _groups(self, sizes: np.ndarray) -> np.ndarray:
        """The task of each file: of its own where files are in an order, which rows of another would break."""
        return np.arange(len(sizes)) if self.patch.target.order.fields else _balanced(sizes)


def _balanced(sizes: np.ndarray) -> np.ndarray:
    """A group for each file, so that groups are of about the same size: dealt out in turn, the largest first."""
    found = np.zeros(len(sizes), np.int32)
    found[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes)) % group_count(sizes)
    return found
