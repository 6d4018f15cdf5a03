"""Rewrite groups of files on Spark, many in one job: each task reads a part of a group and writes it.

If rows stay in their partition and need no order, nothing is shuffled: a task reads with Arrow, leaves out deleted
rows, and writes. Files larger than a task's share are read in parts. If rows move to another spec, or are sorted, they
are read and distributed by Spark.

On request, the rows are counted and summed up before and after. The sum after is read back from the new files. The sum
before is taken from the rows that the same task reads if nothing is shuffled; otherwise from a separate scan, because
Spark reads rows that it sorts more than once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf

from neve.errors import UnsupportedFeature
from neve.plan.rewrite_plan import FileGroup
from neve.run.change_tally import Effects
from neve.run.read.tasks import build_task_table, group_count, split_large_files
from neve.run.read.types import first_column_rounded_by_spark
from neve.run.row_checksum import Checksum
from neve.run.spark.arrow_job import run_in_arrow
from neve.run.spark.column_exchange import ColumnExchange, RowSource
from neve.run.spark.distribution import (
    TotalOrder,
    distribute_and_sort,
    is_clustered,
    quoted_field_path,
    shuffle_options,
    sort_globally,
)
from neve.run.spark.file_shares import GROUP_COLUMN, FileShares, part_sizes
from neve.run.spark.read import read_dataframe
from neve.run.spark.session import task_slots
from neve.run.spark.store_assignment import assign_dataframe
from neve.run.spark.writing_job import (
    LocalLimits,
    TaskOutput,
    WritingTask,
    files_with_note,
    run_tasks_in_process,
    run_writing_job,
    written_entries,
)
from neve.run.table_facts import TableFacts
from neve.run.write.data_files import write_batches
from neve.run.write.partitioning import FileNames
from neve.run.write.patch import Patch
from neve.run.write.rolling_writer import WrittenFile
from neve.run.write.store_assignment import assign_rows
from neve.run.write.target import WriteTarget
from neve.run.zorder import z_keys

_EXCHANGE_SPLIT_BYTES = 64 << 20  # of files that a task reads and splits by partition
_NO_EFFECTS = Effects((), ())
_CHECKSUM_FIELDS = [("rows", pa.int64()), ("total", pa.string())]
_NOTE_SCHEMA = pa.schema([("group", pa.int32()), ("is_before", pa.bool_()), *_CHECKSUM_FIELDS])

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True, eq=False)
class RewrittenGroups:
    """Groups and their new files."""

    groups: tuple[FileGroup, ...]
    files: pa.Table  # rows of an entry table
    checksum_before: Checksum | None = None  # of the live rows of the groups
    checksum_after: Checksum | None = None  # of the rows of the new files


@dataclass(frozen=True, slots=True)
class ZOrder:
    """The columns whose values are interleaved, by their ids, and how many bytes of them count."""

    field_ids: tuple[int, ...]
    text_bytes: int
    max_key_bytes: int

    def key_column(self, target: WriteTarget) -> Column:
        """Return the sort key of a row."""
        text_bytes, max_key_bytes = self.text_bytes, self.max_key_bytes

        def keys(*columns: pa.Array) -> pa.Array:
            return z_keys(columns, text_bytes, max_key_bytes)

        columns = [F.col(quoted_field_path(target.schema, field_id)) for field_id in self.field_ids]
        return arrow_udf(keys, "binary")(*columns)  # type: ignore[call-overload]


@dataclass(frozen=True)
class RewriteJob:
    """Rewrites groups of one output spec."""

    spark: SparkSession
    facts: TableFacts
    target: WriteTarget
    verifies: bool = False

    def rewrite_in_place(self, groups: Sequence[FileGroup]) -> list[RewrittenGroups]:
        """Rewrite groups whose rows stay in their partition, all in one job without a shuffle of rows."""
        targets = {group.group_id: self._target_of(group) for group in groups}
        task = self._reading_task({group: target.only_partition for group, target in targets.items()})
        targets[groups[0].group_id].check()
        shares = _shares_of_groups(groups)
        if self._is_local(groups):
            inputs = [[rows] for rows in shares.inputs()]
            outputs = run_tasks_in_process(inputs, task, self.target, task_slots(self.spark))
        else:
            outputs = run_writing_job(shares.spread(self.spark), task, self.target, {}, holds_rows=False)
        by_group: dict[int | None, list[TaskOutput]] = defaultdict(list)
        for output in outputs:
            by_group[None if output.note is None else output.note["group"][0].as_py()].append(output)
        return [self._collect_groups((group,), by_group[group.group_id]) for group in groups]

    def rewrite_redistributed(self, groups: Sequence[FileGroup]) -> RewrittenGroups:
        """Rewrite groups whose rows are distributed again: rows of all groups share the new files."""
        self.target.check()
        if ColumnExchange.suits(self.target):
            return self._exchange_rows(groups)
        rows = reduce(DataFrame.unionByName, [self._read_rows(g) for g in groups])
        spread = distribute_and_sort(rows, self.target)
        return self._run_rewrite(tuple(groups), rows, spread, is_clustered(self.target), shuffle_options(self.target))

    def _exchange_rows(self, groups: Sequence[FileGroup]) -> RewrittenGroups:
        exchange = ColumnExchange(self.target, self._row_source(), self._describe_function())
        shares = _shares_of_exchange(groups)
        if self._is_local(groups):
            outputs = exchange.run_in_process(shares.inputs(), task_slots(self.spark), self.spark)
        else:
            outputs = exchange.run(shares.spread(self.spark), holds_rows=False)
        return self._collect_groups(tuple(groups), outputs)

    def _is_local(self, groups: Sequence[FileGroup]) -> bool:
        return sum(group.bytes for group in groups) <= LocalLimits.of(self.spark).rewritten

    def prepare_sorted_rewrite(self, group: FileGroup, spread: TotalOrder) -> Callable[[], RewrittenGroups]:
        """Return a job that rewrites a group in a total order; several may run at the same time."""
        job = replace(self, target=self._target_of(group))
        job.target.check()
        rows = job._read_rows(group)
        return lambda: job._run_rewrite((group,), rows, sort_globally(rows, job.target, spread), True, {})

    def _run_rewrite(
        self,
        groups: tuple[FileGroup, ...],
        rows: DataFrame,
        spread: DataFrame,
        clustered: bool,
        options: Mapping[str, str],
    ) -> RewrittenGroups:
        before = self._checksum_of_rows(rows) if self.verifies else None
        outputs = run_writing_job(spread, self._writing_task(clustered), self.target, options)
        return self._collect_groups(groups, outputs, before)

    def _collect_groups(
        self, groups: tuple[FileGroup, ...], outputs: Sequence[TaskOutput], before: Checksum | None = None
    ) -> RewrittenGroups:
        files = written_entries(outputs, self.target)
        if not self.verifies:
            return RewrittenGroups(groups, files)
        return RewrittenGroups(groups, files, before or _sum_notes(outputs, True), _sum_notes(outputs, False))

    # -- tasks -------------------------------------------------------------------------------------------------------

    def _target_of(self, group: FileGroup) -> WriteTarget:
        """Return the target for a group; rows that stay in their partition keep its tuple, which may be all we know."""
        target = self.target
        if group.partition.spec_id != target.spec_id or not target.partitioner.is_partitioned:
            return target
        columns = group.files.columns.select(target.specs.columns(target.spec_id))
        return replace(target, only_partition=columns.slice(0, 1).combine_chunks().to_batches()[0])

    def _reading_task(self, partitions: Mapping[int, pa.RecordBatch | None]) -> WritingTask:
        """Return a task that gets the files to read; groups have known partitions, or None."""
        source, job_target, describe_files = self._row_source(), self.target, self._describe_function()

        def task(batches: Batches, names: FileNames) -> tuple[list[WrittenFile], pa.Table | None]:
            filled = (b for b in batches if b.num_rows)
            first = next(filled, None)
            if first is None:
                return [], None
            notes: list[pa.Table] = []
            group = first.column(GROUP_COLUMN)[0].as_py()
            target = replace(job_target, only_partition=partitions[group])
            files = write_batches(source(chain([first], filled), notes), target, names, is_clustered=False)
            files, note = files_with_note(files, describe_files, target)
            return files, pa.concat_tables([_note(group=group), *notes, *([] if note is None else [note])])

        return task

    def _describe_function(self) -> Callable[[list[WrittenFile]], pa.Table] | None:
        """Return what sums up the rows of new files, if they are verified."""
        target = self.target
        if not self.verifies:
            return None
        return lambda files: _note(is_before=False, checksum=_checksum_of_files(files, target))

    def _row_source(self) -> RowSource:
        """Return what gets the files to read, and gives their live rows."""
        patch, verifies = Patch(self.facts, self.target, _NO_EFFECTS, ()), self.verifies

        def source(batches: Batches, notes: list[pa.Table]) -> Iterator[pa.RecordBatch]:
            before = Checksum()
            for batch in patch.patched_rows(batches):
                if verifies:
                    before += Checksum.of(batch)
                yield batch
            if verifies:
                notes.append(_note(is_before=True, checksum=before))

        return source

    def _writing_task(self, clustered: bool) -> WritingTask:
        """Return a task that gets the rows."""
        target, describe_files = self.target, self._describe_function()

        def task(batches: Batches, names: FileNames) -> tuple[list[WrittenFile], pa.Table | None]:
            files = write_batches(batches, target, names, is_clustered=clustered)
            return files_with_note(files, describe_files, target)

        return task

    def _checksum_of_rows(self, rows: DataFrame) -> Checksum:
        """Return the checksum of rows in their stored form. Runs one action."""
        target = self.target

        def run(batches: Batches) -> Iterator[pa.RecordBatch]:
            checksum = Checksum.of_batches(assign_rows(b, target.file_schema, target.arrow_schema) for b in batches)
            row = {"rows": checksum.rows, "total": str(checksum.total)}
            yield pa.RecordBatch.from_pylist([row], schema=pa.schema(_CHECKSUM_FIELDS))

        found = run_in_arrow(rows, run, "rows bigint, total string", stored_row_bytes=target.average_row_bytes)
        return sum((Checksum(row.rows, int(row.total)) for row in found), Checksum())

    # -- rows --------------------------------------------------------------------------------------------------------

    def _read_rows(self, group: FileGroup) -> DataFrame:
        if (f := first_column_rounded_by_spark(self.target.schema)) is not None:
            raise UnsupportedFeature(
                f"Cannot redistribute rows: column {f.name!r} of type {f.field_type} is finer than Spark's timestamps, "
                "and would be rounded. Compact with keep_spec() and without an order: that copies exactly."
            )
        lineage = ("_row_id", "_last_updated_sequence_number") if self.target.options.row_lineage else ()
        return assign_dataframe(read_dataframe(self.spark, group.scan, self.facts, lineage), self.target.file_schema)


def _shares_of_groups(groups: Sequence[FileGroup]) -> FileShares:
    """Share out the files of each group to tasks of its own."""
    shares, count = [], 0
    for group in groups:
        parts = split_large_files(_file_tasks(group), group.split_size)
        shares.append(FileShares.of(parts, group.output_files, count, group.group_id))
        count = shares[-1].count
    return FileShares.concat(shares)


def _shares_of_exchange(groups: Sequence[FileGroup]) -> FileShares:
    """Share out the files of all groups to as many tasks as their bytes are worth."""
    parts = split_large_files(pa.concat_tables([_file_tasks(group) for group in groups]), _EXCHANGE_SPLIT_BYTES)
    return FileShares.of(parts, group_count(part_sizes(parts)))


def _file_tasks(group: FileGroup) -> pa.Table:
    tasks = build_task_table(group.files, group.scan.deletes, group.scan.attached)
    return tasks.append_column("vector", pa.nulls(len(tasks), pa.binary()))


def _checksum_of_files(files: Sequence[WrittenFile], target: WriteTarget) -> Checksum:
    """Read finished files again and sum up their rows."""
    io, total = target.open_io(), Checksum()
    for file in files:
        with io.new_input(file.path).open() as stream:
            total += Checksum.of_batches(pq.ParquetFile(stream).iter_batches())
    return total


def _note(*, group: int | None = None, is_before: bool | None = None, checksum: Checksum | None = None) -> pa.Table:
    """Return a note of a task: its group, or the checksum of rows before or after the rewrite."""
    sums = {} if checksum is None else {"rows": checksum.rows, "total": str(checksum.total)}
    return pa.Table.from_pylist([{"group": group, "is_before": is_before, **sums}], schema=_NOTE_SCHEMA)


def _sum_notes(outputs: Sequence[TaskOutput], is_before: bool) -> Checksum:
    """Sum up the checksums in the notes of all tasks."""
    notes = pa.concat_tables([_NOTE_SCHEMA.empty_table(), *(o.note for o in outputs if o.note is not None)])
    chosen = notes.filter(pc.equal(notes["is_before"], is_before)).to_pylist()
    return sum((Checksum(note["rows"], int(note["total"])) for note in chosen), Checksum())
