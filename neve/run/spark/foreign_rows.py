"""Write the rows of files that belong to no table: a few in threads of this process, many in tasks of Spark.

Each task reads its files as Arrow and writes them again, or splits their rows by partition for those that do. No row
passes through Spark, unless the table has a sort order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from neve.errors import UnsupportedFeature
from neve.run.foreign_rows import ForeignRows
from neve.run.read.tasks import group_count, split_large_files
from neve.run.read.types import first_column_rounded_by_spark
from neve.run.spark.arrow_exchange import Batches, map_in_arrow
from neve.run.spark.column_exchange import ColumnExchange
from neve.run.spark.file_shares import FileShares, part_sizes
from neve.run.spark.input_rows import with_spark_types
from neve.run.spark.session import task_slots
from neve.run.spark.write import write_dataframe
from neve.run.spark.writing_job import LocalLimits, TaskOutput, run_tasks_in_process, run_writing_job, written_entries
from neve.run.write.data_files import write_arrow_table, write_batches
from neve.run.write.partitioning import FileNames
from neve.run.write.rolling_writer import WrittenFile
from neve.run.write.target import WriteTarget

_EXCHANGE_SPLIT_BYTES = 64 << 20  # of files that a task reads and splits by partition


@dataclass(frozen=True)
class ForeignRowsJob:
    """Writes the rows of files to a table; `files` is a table of tasks without deletes."""

    files: pa.Table
    target: WriteTarget
    spark: Callable[[], SparkSession]
    running_spark: SparkSession | None

    def write(self) -> pa.Table:
        """Write the rows to data files, and return these as rows of an entry table."""
        self.target.check()
        if self.target.write_order.fields:
            return self._write_sorted()
        suits_exchange = ColumnExchange.suits(self.target)
        return written_entries(self._exchange_rows() if suits_exchange else self._write_in_place(), self.target)

    @property
    def _is_local(self) -> bool:
        return self._bytes <= LocalLimits.of(self.running_spark).rewritten

    @property
    def _bytes(self) -> int:
        return int(self.files["file_size_in_bytes"].to_numpy().sum())

    @property
    def _threads(self) -> int:
        return task_slots(self.running_spark)

    def _exchange_rows(self) -> list[TaskOutput]:
        rows = ForeignRows(self.target)
        exchange = ColumnExchange(self.target, lambda batches, _: rows.batches(batches))
        parts = split_large_files(self.files, _EXCHANGE_SPLIT_BYTES)
        shares = FileShares.of(parts, group_count(part_sizes(parts), _EXCHANGE_SPLIT_BYTES))
        if self._is_local:
            return exchange.run_in_process(shares.inputs(), self._threads, self.running_spark)
        return exchange.run(shares.spread(self.spark()), holds_rows=False)

    def _write_in_place(self) -> list[TaskOutput]:
        """Write the rows that each task reads to files of its own."""
        rows, target = ForeignRows(self.target), self.target

        def task(batches: Batches, names: FileNames) -> tuple[list[WrittenFile], None]:
            return write_batches(rows.batches(batches), target, names, is_clustered=False), None

        if self._is_local:
            inputs = [[share] for share in self._shares().inputs()]
            return run_tasks_in_process(inputs, task, target, self._threads)
        return run_writing_job(self._shares().spread(self.spark()), task, target, {}, holds_rows=False)

    def _shares(self) -> FileShares:
        """Share out the files to tasks: as few as the target size allows, and enough to keep every core busy."""
        parts = split_large_files(self.files)
        useful = max(self._threads, -(-self._bytes // self.target.target_file_size))
        return FileShares.of(parts, min(group_count(part_sizes(parts)), useful))

    def _write_sorted(self) -> pa.Table:
        rows, target = ForeignRows(self.target), self.target
        if self._is_local:
            batches = [batch for share in self._shares().inputs() for batch in rows.batches([share])]
            return write_arrow_table(pa.Table.from_batches(batches, target.arrow_schema), target)
        if (f := first_column_rounded_by_spark(target.schema)) is not None:
            raise UnsupportedFeature(
                f"Cannot sort rows on Spark: column {f.name!r} of type {f.field_type} is finer than Spark's "
                "timestamps, and would be rounded. Remove the table's sort order first, or ingest fewer files at once."
            )
        return write_dataframe(self._read_in_tasks(rows), target)

    def _read_in_tasks(self, rows: ForeignRows) -> DataFrame:
        schema = self.target.schema
        empty = with_spark_types(self.target.arrow_schema.empty_table(), schema)
        kinds = StructType(from_arrow_schema(empty.schema, prefer_timestamp_ntz=True).fields)

        def read(batches: Batches) -> Iterator[pa.RecordBatch]:
            for batch in rows.batches(batches):
                yield from with_spark_types(pa.Table.from_batches([batch]), schema).to_batches()

        return map_in_arrow(self._shares().spread(self.spark()), read, kinds)
