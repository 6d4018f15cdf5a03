"""Groups of files rewritten on Spark, many in one job: each task reads a stretch of a group and writes it.

Where rows stay in their partition and need no order nothing is shuffled: a task reads with Arrow, leaves out what is
deleted, and writes. Files larger than a task's share are read in parts. Where rows move to another spec, or are to be
sorted, the group goes through Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from neve.plan.rewrite import FileGroup
from neve.run.arrow.taskset import divided, tasks_of
from neve.run.facts import TableFacts
from neve.run.spark.job import Answer, files_of, run_writing_job
from neve.run.spark.packed import packed
from neve.run.spark.read import read
from neve.run.spark.write import write
from neve.run.tally import CLAUSE, POSITION, Effects
from neve.run.writing.layout import FileNames
from neve.run.writing.patch import HEAD, Patch
from neve.run.writing.rolling import WrittenFile
from neve.run.writing.sink import write_batches
from neve.run.writing.target import WriteTarget

__all__ = ["Rewriting", "Rewritten"]

_TASK, _GROUP = "__neve_task", "__neve_group"
_NOTHING = Effects((), ())
_NOTE = pa.schema([("group", pa.int32()), ("rows", pa.int64())])


@dataclass(frozen=True)
class Rewritten:
    """The files that groups became."""

    groups: tuple[FileGroup, ...]
    files: pa.Table  # rows of an entry table


@dataclass(frozen=True)
class Rewriting:
    """Groups of one output spec on their way to new files."""

    spark: SparkSession
    facts: TableFacts
    target: WriteTarget

    def in_place(self, groups: Sequence[FileGroup]) -> list[Rewritten]:
        """Rewrite groups whose rows stay in their partition, all in one job without a shuffle of rows."""
        self.target.check()
        heads = self._heads(groups)
        patch = Patch(self.facts, self.target, _NOTHING, ())
        target = self.target

        def task(batches: Iterable[pa.RecordBatch], names: FileNames) -> tuple[list[WrittenFile], pa.Table | None]:
            first, rest = _first_and_all(batches)
            if first is None:
                return [], None
            files = write_batches(patch.rows(rest), target, names, is_clustered=False)
            rows = sum(f.record_count for f in files)
            return files, pa.table([[first.column(_GROUP)[0].as_py()], [rows]], schema=_NOTE)

        answers = run_writing_job(heads, task, self.target, {})
        return [Rewritten((g,), self._files_of(g, answers)) for g in groups]

    def moving(self, groups: Sequence[FileGroup]) -> list[Rewritten]:
        """Rewrite groups whose rows are brought together anew: rows of all of them share the new files."""
        rows = reduce(DataFrame.unionByName, [self._rows(g) for g in groups])
        return [Rewritten(tuple(groups), write(rows, self.target))]

    def _rows(self, group: FileGroup) -> DataFrame:
        lineage = ("_row_id", "_last_updated_sequence_number") if self.target.options.row_lineage else ()
        return read(self.spark, group.scan, self.facts, lineage)

    def _files_of(self, group: FileGroup, answers: Sequence[Answer]) -> pa.Table:
        mine = [a for a in answers if a.note is not None and a.note["group"][0].as_py() == group.group_id]
        return files_of(mine, self.target)

    def _heads(self, groups: Sequence[FileGroup]) -> DataFrame:
        """A row per file or part of one, in the task that is to read it."""
        tables, first = [], 0
        for group in groups:
            table = _tasks(group, first)
            first = int(table[_TASK].to_numpy().max(initial=first - 1)) + 1
            tables.append(table)
        heads = self.spark.createDataFrame(pa.concat_tables(tables))
        spread = heads.repartitionById(max(first, 1), F.col(_TASK).cast("int"))
        return spread.sortWithinPartitions("place").select(POSITION, CLAUSE, HEAD, _GROUP)


def _tasks(group: FileGroup, first: int) -> pa.Table:
    """The files of a group, cut and put together to tasks of about its split size, numbered from `first` on."""
    tasks = tasks_of(group.files, group.scan.deletes, group.scan.attached)
    parts = divided(tasks, group.split_size)
    sizes = parts["file_size_in_bytes"].to_numpy() // parts["parts"].to_numpy()
    number = first + _shares(sizes, group.output_files)
    with_gone = parts.append_column("gone", pa.nulls(len(parts), pa.binary()))
    count = parts.num_rows
    return pa.table(
        {
            _TASK: pa.array(number, pa.int32()),
            "place": pa.array(np.arange(count), pa.int64()),
            _GROUP: pa.array(np.full(count, group.group_id), pa.int32()),
            POSITION: pa.array(np.full(count, -1), pa.int64()),
            CLAUSE: pa.array(np.full(count, -1), pa.int32()),
            HEAD: pa.array([packed(with_gone.slice(at, 1)) for at in range(count)], pa.binary()),
        }
    )


def _shares(sizes: np.ndarray, count: int) -> np.ndarray:
    """Neighbours put together to so many shares of about the same size."""
    middle = np.cumsum(sizes) - sizes / 2
    share = (middle * count // max(float(sizes.sum()), 1.0)).astype(np.int64)
    return np.unique(np.minimum(share, count - 1), return_inverse=True)[1]


def _first_and_all(batches: Iterable[pa.RecordBatch]) -> tuple[pa.RecordBatch | None, Iterator[pa.RecordBatch]]:
    """The first batch that has rows, and all of them."""
    filled = (b for b in batches if b.num_rows)
    first = next(filled, None)

    def again() -> Iterator[pa.RecordBatch]:
        if first is not None:
            yield first
        yield from filled

    return first, again()
