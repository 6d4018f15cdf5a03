"""Groups of files rewritten on Spark, many in one job: each task reads a stretch of a group and writes it.

Where rows stay in their partition and need no order nothing is shuffled: a task reads with Arrow, leaves out what is
deleted, and writes. Files larger than a task's share are read in parts. Where rows move to another spec, or are to be
sorted, the group goes through Spark.

On request the rows are counted and summed up before and after. After means read back from the new files. Before means,
where nothing is shuffled, the rows as the same task reads them; otherwise a scan of its own, since Spark reads rows it
sorts more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf

from neve.errors import UnsupportedFeature
from neve.plan.rewrite_plan import FileGroup
from neve.run.change_tally import CLAUSE, POSITION, Effects
from neve.run.read.tasks import divided, tasks_of
from neve.run.read.types import rounded_by_spark
from neve.run.row_checksum import Checksum
from neve.run.spark.arrow_exchange import handover, mapped, packed
from neve.run.spark.distribution import Spread, arranged, column_of, in_order, is_clustered, settings
from neve.run.spark.read import read
from neve.run.spark.session import options_around
from neve.run.spark.store_assignment import assigned_frame
from neve.run.spark.writing_job import Answer, WritingTask, files_of, run_writing_job
from neve.run.table_facts import TableFacts
from neve.run.write.data_files import write_batches
from neve.run.write.partitioning import FileNames
from neve.run.write.patch import HEAD, Patch
from neve.run.write.rolling_writer import WrittenFile
from neve.run.write.store_assignment import assigned
from neve.run.write.target import WriteTarget
from neve.run.zorder import z_keys

_TASK, _GROUP = "__neve_task", "__neve_group"
_NOTHING = Effects((), ())
_NO_GROUP = -1
_SUM = [("rows", pa.int64()), ("total", pa.string())]
_NOTE = pa.schema([("group", pa.int32()), ("is_before", pa.bool_()), *_SUM])

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True, eq=False)
class Rewritten:
    """The files that groups became."""

    groups: tuple[FileGroup, ...]
    files: pa.Table  # rows of an entry table
    before: Checksum | None = None  # of the live rows of the groups
    after: Checksum | None = None  # of the rows of the files


@dataclass(frozen=True, slots=True)
class ZOrder:
    """The columns whose values are interleaved, by their ids, and how much of them counts."""

    field_ids: tuple[int, ...]
    text_bytes: int
    most: int

    def key(self, target: WriteTarget) -> Column:
        """The key of a row."""
        text_bytes, most = self.text_bytes, self.most

        def keys(*columns: pa.Array) -> pa.Array:
            return z_keys(columns, text_bytes, most)

        columns = [F.col(column_of(target.schema, field_id)) for field_id in self.field_ids]
        return arrow_udf(keys, "binary")(*columns)  # type: ignore[call-overload]


@dataclass(frozen=True)
class Rewriting:
    """Groups of one output spec on their way to new files."""

    spark: SparkSession
    facts: TableFacts
    target: WriteTarget
    verifies: bool = False

    def in_place(self, groups: Sequence[FileGroup]) -> list[Rewritten]:
        """Rewrite groups whose rows stay in their partition, all in one job without a shuffle of rows."""
        self.target.check()
        answers = run_writing_job(self._heads(groups), self._reading_task(), self.target, {})
        return [self._rewritten((g,), [a for a in answers if _group_of(a) == g.group_id]) for g in groups]

    def moving(self, groups: Sequence[FileGroup]) -> Rewritten:
        """Rewrite groups whose rows are brought together anew: rows of all of them share the new files."""
        self.target.check()
        rows = reduce(DataFrame.unionByName, [self._rows(g) for g in groups])
        spread = arranged(rows, self.target)
        return self._written(tuple(groups), rows, spread, is_clustered(self.target), settings(self.target))

    def ordered(self, group: FileGroup, spread: Spread) -> Callable[[], Rewritten]:
        """A job that rewrites a group in a total order; it may run beside others."""
        self.target.check()
        rows = self._rows(group)
        return lambda: self._written((group,), rows, in_order(rows, self.target, spread), True, {})

    def _written(
        self,
        groups: tuple[FileGroup, ...],
        rows: DataFrame,
        spread: DataFrame,
        clustered: bool,
        options: Mapping[str, str],
    ) -> Rewritten:
        before = self._sum_of(rows) if self.verifies else None
        answers = run_writing_job(spread, self._writing_task(clustered), self.target, options)
        return self._rewritten(groups, answers, before)

    def _rewritten(
        self, groups: tuple[FileGroup, ...], answers: Sequence[Answer], before: Checksum | None = None
    ) -> Rewritten:
        files = files_of(answers, self.target)
        if not self.verifies:
            return Rewritten(groups, files)
        return Rewritten(groups, files, before or _noted(answers, True), _noted(answers, False))

    # -- tasks -------------------------------------------------------------------------------------------------------

    def _reading_task(self) -> WritingTask:
        """A task that is told which files to read."""
        patch, target, verifies = Patch(self.facts, self.target, _NOTHING, ()), self.target, self.verifies

        def task(batches: Batches, names: FileNames) -> tuple[list[WrittenFile], pa.Table | None]:
            first, rest = _first_and_all(batches)
            if first is None:
                return [], None
            group = first.column(_GROUP)[0].as_py()
            met: list[Checksum] = []
            rows = _summed(patch.rows(rest), met) if verifies else patch.rows(rest)
            files = write_batches(rows, target, names, is_clustered=False)
            sums = [(True, sum(met, Checksum())), (False, _read_back(files, target))] if verifies else []
            return files, _note(group, sums)

        return task

    def _writing_task(self, clustered: bool) -> WritingTask:
        """A task that is given the rows."""
        target, verifies = self.target, self.verifies

        def task(batches: Batches, names: FileNames) -> tuple[list[WrittenFile], pa.Table | None]:
            files = write_batches(batches, target, names, is_clustered=clustered)
            return files, _note(_NO_GROUP, [(False, _read_back(files, target))]) if verifies else None

        return task

    def _sum_of(self, rows: DataFrame) -> Checksum:
        """The sum of rows as they are stored. Runs one action."""
        target = self.target

        def run(batches: Batches) -> Iterator[pa.RecordBatch]:
            stored = (assigned(b, target.file_schema, target.arrow_schema) for b in batches)
            yield _sums([Checksum.over(stored)])

        with options_around(self.spark, handover(rows, target.row_bytes)):
            return _together(mapped(rows, run, "rows bigint, total string").toArrow())

    # -- rows --------------------------------------------------------------------------------------------------------

    def _rows(self, group: FileGroup) -> DataFrame:
        if (f := rounded_by_spark(self.target.schema)) is not None:
            raise UnsupportedFeature(
                f"Cannot bring rows together anew: column {f.name!r} of type {f.field_type} is finer than Spark's "
                "timestamps, and would be rounded. Compact with keep_spec() and without an order: that copies exactly."
            )
        lineage = ("_row_id", "_last_updated_sequence_number") if self.target.options.row_lineage else ()
        return assigned_frame(read(self.spark, group.scan, self.facts, lineage), self.target.file_schema)

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


def _summed(batches: Batches, met: list[Checksum]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        met.append(Checksum.of(batch))
        yield batch


def _read_back(files: Sequence[WrittenFile], target: WriteTarget) -> Checksum:
    """The rows of finished files, read again."""
    io, total = target.open_io(), Checksum()
    for file in files:
        with io.new_input(file.path).open() as stream:
            total += Checksum.over(pq.ParquetFile(stream).iter_batches())
    return total


def _note(group: int, sums: Sequence[tuple[bool, Checksum]]) -> pa.Table:
    """What a task has to say: its group, and what it summed up."""
    columns = (
        ([group], [None], [None], [None])
        if not sums
        else zip(*((group, is_before, c.rows, str(c.total)) for is_before, c in sums), strict=True)
    )
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, _NOTE, strict=True)], schema=_NOTE)


def _sums(found: Sequence[Checksum]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"rows": [c.rows for c in found], "total": [str(c.total) for c in found]}, schema=pa.schema(_SUM)
    )


def _group_of(answer: Answer) -> int | None:
    return None if answer.note is None else answer.note["group"][0].as_py()


def _noted(answers: Sequence[Answer], is_before: bool) -> Checksum:
    notes = [a.note for a in answers if a.note is not None]
    return sum((_together(n.filter(pc.equal(n["is_before"], is_before))) for n in notes), Checksum())


def _together(found: pa.Table) -> Checksum:
    rows, totals = found["rows"].to_pylist(), found["total"].to_pylist()
    return sum((Checksum(n, int(total)) for n, total in zip(rows, totals, strict=True)), Checksum())
