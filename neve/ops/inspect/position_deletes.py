"""The table `position_deletes`: the rows of position delete files and deletion vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame

from neve.io.parallel import reader_count, stream_in_threads
from neve.io.paths import refuse_unreadable
from neve.ops.context import TableContext
from neve.run.read.position_delete_rows import (
    position_delete_tasks,
    position_deletes_target,
    read_position_delete_rows,
)
from neve.run.read.tasks import ReadTarget, file_tasks, group_tasks, split_large_files
from neve.run.read.types import ArrowFlavor, arrow_schema
from neve.run.spark.input_rows import create_dataframe
from neve.run.spark.read import read_in_spark_tasks
from neve.run.table_facts import TableFacts
from neve.tree.entries import Content, EntryTable

_ROWS_IN_PROCESS = 1 << 20  # more rows are read by a Spark job, if Spark asked for them
_READ_AHEAD_BYTES = 16 << 20  # of files that a thread reads at once


@dataclass(frozen=True)
class PositionDeletes:
    """The live position deletes of a snapshot."""

    context: TableContext
    entries: EntryTable

    @classmethod
    def of(cls, context: TableContext, snapshot: Snapshot | None) -> PositionDeletes:
        """Find the position deletes of a snapshot."""
        manifests = [m for m in context.live_manifests(snapshot) if m.is_deletes]
        entries = context.live_entries(manifests).of_content(Content.POSITION_DELETES)
        refuse_unreadable(entries["file_path"], context.metadata.location)
        return cls(context, entries)

    def read(self, flavor: ArrowFlavor = ArrowFlavor.EXACT) -> pa.Table:
        """Read all rows in this process, files in threads."""
        target, facts = self._target(flavor), self._facts
        tasks = split_large_files(position_delete_tasks(self.entries), _READ_AHEAD_BYTES)
        groups = list(group_tasks(tasks, _READ_AHEAD_BYTES)) if tasks.num_rows else []
        io = facts.io()

        def read_group(group: pa.Table) -> list[pa.RecordBatch]:
            return list(read_position_delete_rows(io, file_tasks(group, facts.specs), target))

        threads = min(len(groups), reader_count(io, self.entries["file_path"].to_pylist()[:1]))
        batches: Iterator[list[pa.RecordBatch]] = stream_in_threads(read_group, groups, threads)
        schema = arrow_schema(target.schema, flavor)
        return pa.Table.from_batches([batch for part in batches for batch in part], schema)

    def to_spark(self) -> DataFrame:
        """Return the rows as a DataFrame: many rows are read by a Spark job, few in this process."""
        spark = self.context.spark()
        if (pc.sum(self.entries["record_count"]).as_py() or 0) <= _ROWS_IN_PROCESS:
            return create_dataframe(spark, self.read(ArrowFlavor.SPARK))
        tasks = position_delete_tasks(self.entries)
        return read_in_spark_tasks(
            spark, tasks, self._target(ArrowFlavor.SPARK), self._facts, read=read_position_delete_rows
        )

    def _target(self, flavor: ArrowFlavor) -> ReadTarget:
        metadata = self.context.metadata
        return position_deletes_target(metadata.schema(), self.entries.specs, metadata.format_version, flavor)

    @property
    def _facts(self) -> TableFacts:
        return replace(self.context.facts, specs=self.entries.specs)
