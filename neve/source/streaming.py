"""Streaming reads and writes.

A stream reads the rows of the snapshots that are appended to a branch, in order.

An offset is the id of the last snapshot that was read, or null before the first. Compactions add no rows and are
skipped. A snapshot that deletes or replaces rows stops the stream unless an option skips it, because the stream has
already returned rows that no longer exist.

If the oldest snapshots are expired, the stream starts with all rows of the oldest one that is left.

A streaming write commits every epoch once, even if Spark repeats it. Mode append adds the rows of an epoch, mode
complete replaces the rows of the table by them.

The summaries of the snapshots record the epochs of a streaming query. The property names are those of Iceberg's own
sink on Spark, so a query can switch from one sink to the other. Spark repeats an epoch if it stopped between the commit
and its own checkpoint. Every commit attempt checks whether the table already has the epoch, so that two drivers that
run the same query cannot both commit it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyspark.sql import types as sp
from pyspark.sql.datasource import InputPartition

from neve.commit.actions import Append
from neve.commit.outcome import Check, Conflict, Rejected, require_committed
from neve.commit.window import CommitBase, Window
from neve.errors import TableError
from neve.model.pyiceberg_private import fields_by_id
from neve.model.snapshots import Snapshot, snapshot_operation
from neve.ops.context import TableContext
from neve.ops.scan import Scan
from neve.ops.write.append import with_added_files
from neve.plan.scan import ScanPlan, ScanStats, project_schema
from neve.source.batch_read import ReadPlan, pinned_schema, refuse_other_types
from neve.source.batch_write import CommitMessages, TableWrite
from neve.source.options import StreamReadOptions, TableOptions
from neve.source.workers import ExecutorStreamReader, ExecutorStreamWriter, PinnedState
from neve.tree.entries import EntryTable, Status

SNAPSHOT_ID_KEY = "snapshot-id"

Offset = dict[str, Any]
ProjectedColumns = tuple[Schema, tuple[str, ...]]  # of the table, and metadata columns


@dataclass(frozen=True)
class TableStream:
    """A stream of the snapshots of a table, with the columns of one of its schemas."""

    table: TableOptions
    options: StreamReadOptions
    schema_id: int

    @classmethod
    def of(cls, table: TableOptions, options: StreamReadOptions, pin: PinnedState | None) -> TableStream:
        """Create the stream of a table with the columns of the pinned state, or else with its current columns."""
        context = table.context()
        context.head(options.branch)
        return cls(table, options, context.metadata.current_schema_id if pin is None else pin.schema_id)

    def start_snapshot_id(self) -> int | None:
        """Return the snapshot after which the stream starts; None: it starts with the first snapshot."""
        from_ms = self.options.from_ms
        if from_ms is None:
            return None
        history = list(self._ancestors(self.table.context()))
        before = next((s.snapshot_id for s in history if s.timestamp_ms < from_ms), None)
        # If the snapshot before the start is expired, the oldest one that is left still has its id as parent.
        return before if before is not None or not history else history[-1].parent_snapshot_id

    def latest_snapshot_id(self) -> int | None:
        """Return the newest snapshot of the branch."""
        head = self.table.context().head(self.options.branch)
        return None if head is None else head.snapshot_id

    def plan(self, start: int | None, end: int | None, requested: sp.StructType) -> list[ReadPlan]:
        """Plan the read of the rows that the snapshots after `start` up to `end` added, the oldest first."""
        context, names = self.table.context(), requested.names
        schema = pinned_schema(context, PinnedState(end, self.schema_id))
        refuse_other_types(requested, schema, context)
        columns = project_schema(schema, names)
        _refuse_changed_columns(columns[0], context)
        snapshots = self._snapshots_between(context, start, end)
        plans: list[ScanPlan] = []
        if start is None and snapshots and snapshots[0].parent_snapshot_id is not None:
            plans.append(Scan(context, snapshots.pop(0), schema, None, tuple(names)).plan())
        from_ms = self.options.from_ms
        appended = [s for s in snapshots if (from_ms is None or s.timestamp_ms >= from_ms) and self._adds_rows(s)]
        if appended:
            plans.append(self._plan_appended_files(context, appended, start, columns))
        return [ReadPlan.of(p, context, None, names, self.options.split_bytes) for p in plans]

    def _snapshots_between(self, context: TableContext, start: int | None, end: int | None) -> list[Snapshot]:
        """Return the snapshots after `start` up to `end`, the oldest first."""
        newest_first = list(takewhile(lambda s: s.snapshot_id != start, self._ancestors(context)))
        oldest = newest_first[-1].parent_snapshot_id if newest_first else start
        ids: list[int | None] = [s.snapshot_id for s in newest_first]
        if (start is not None and oldest != start) or (end not in (*ids, start)):
            raise TableError(
                f"Cannot follow table {context.name} from snapshot {start} to {end}: the history of branch "
                f"{self.options.branch!r} no longer has both. They were expired, or the branch was moved. Start the "
                "stream again with another checkpoint."
            )
        return [] if end == start else newest_first[ids.index(end) :][::-1]

    def _adds_rows(self, snapshot: Snapshot) -> bool:
        """Return whether a snapshot adds rows to read; one that removes rows is rejected or skipped."""
        operation = snapshot_operation(snapshot)
        skipped = {
            Operation.REPLACE: True,
            Operation.DELETE: self.options.skips_deletes,
            Operation.OVERWRITE: self.options.skips_overwrites,
        }
        if operation is Operation.APPEND or skipped[operation]:
            return operation is Operation.APPEND
        raise TableError(
            f"Snapshot {snapshot.snapshot_id} has the operation {operation.value}: rows that were read from table "
            f"{self.table.name} no longer exist. Set the option streaming-skip-{operation.value}-snapshots to true "
            "to skip such snapshots."
        )

    def _plan_appended_files(
        self, context: TableContext, snapshots: list[Snapshot], start: int | None, columns: ProjectedColumns
    ) -> ScanPlan:
        """Plan the data files that the snapshots added. Deletes apply only to older files, so none applies."""
        base = CommitBase(context.io, context.metadata, self.options.branch)
        first = start if start is not None else snapshots[0].parent_snapshot_id
        new = Window(base, first).entries({Operation.APPEND}, is_deletes=False, statuses=[Status.ADDED])
        ids = pa.array([s.snapshot_id for s in snapshots], pa.int64())
        files = new.filter(pc.is_in(new["snapshot_id"], value_set=ids))
        none = EntryTable.empty(files.specs)
        pairs = pa.table({"file": pa.array([], pa.int64()), "delete": pa.array([], pa.int64())})
        schema, hidden = columns
        return ScanPlan(snapshots[-1].snapshot_id, schema, files, none, pairs, AlwaysTrue(), ScanStats(), hidden)

    def _ancestors(self, context: TableContext) -> Iterator[Snapshot]:
        return CommitBase(context.io, context.metadata, self.options.branch).ancestors()


def _refuse_changed_columns(columns: Schema, context: TableContext) -> None:
    """Reject a column that has changed since the stream started, if newer files may have values that do not fit it."""
    now = fields_by_id(context.metadata.schema())
    for field_id, old in fields_by_id(columns).items():
        new = now.get(field_id)
        may_be_null = old.required and (new is None or not new.required)
        has_other_type = new is not None and old.field_type.is_primitive and new.field_type != old.field_type
        if may_be_null or has_other_type:
            raise TableError(
                f"Column {old.name!r} of table {context.name} has changed since the stream began. Load the stream "
                "again and start it with the same checkpoint: it continues where it stopped."
            )


class TableStreamReader(ExecutorStreamReader):
    """Plans the micro-batches of a streaming query over a table."""

    def __init__(self, stream: TableStream, schema: sp.StructType) -> None:
        self._stream, self._schema = stream, schema

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the offset where a new query starts."""
        return {SNAPSHOT_ID_KEY: self._stream.start_snapshot_id()}

    def latestOffset(self) -> Offset:  # noqa: N802
        """Return the offset of the newest snapshot."""
        return {SNAPSHOT_ID_KEY: self._stream.latest_snapshot_id()}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the tasks of a micro-batch; each contains its own reader, since the table may change meanwhile."""
        plans = self._stream.plan(start[SNAPSHOT_ID_KEY], end[SNAPSHOT_ID_KEY], self._schema)
        return [InputPartition((plan.row_reader, group)) for plan in plans for group in plan.task_groups()]

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return ExecutorStreamReader, ()  # executors get only the part that reads rows


QUERY_ID = "spark.sql.streaming.queryId"
EPOCH_ID = "spark.sql.streaming.epochId"


@dataclass(frozen=True, slots=True)
class Epoch:
    """One micro-batch of a streaming query; the id of the query belongs to its checkpoint."""

    query_id: str
    number: int

    @property
    def properties(self) -> dict[str, str]:
        """The epoch as properties of a snapshot summary."""
        return {QUERY_ID: self.query_id, EPOCH_ID: str(self.number)}

    def conflict_with(self, base: CommitBase) -> Conflict | None:
        """Return the conflict with a snapshot that has this epoch, or a later one of the query."""
        for snapshot in base.ancestors():
            summary = snapshot.summary.additional_properties if snapshot.summary else {}
            if summary.get(QUERY_ID) == self.query_id and EPOCH_ID in summary:
                if int(summary[EPOCH_ID]) < self.number:
                    return None
                message = f"Epoch {self.number} of streaming query {self.query_id} is already in the table."
                return Conflict(Check.REPEATED, message, snapshot.snapshot_id)
        return None


class TableSink(ExecutorStreamWriter):
    """Commits the epochs of a streaming query to a table."""

    def __init__(self, write: TableWrite) -> None:
        super().__init__(write.files)
        self._write = write

    def commit(self, messages: CommitMessages, batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """Commit an epoch, unless the table already has it; then the files written for it are dropped."""
        write, context = self._write, self._write.table.context()
        files = write.collect_files(messages, context)
        if isinstance(write.change, Append) and not len(files):
            return
        query_id = next((m.query_id for m in messages if m is not None and m.query_id is not None), None)
        if query_id is None:  # without it, a repeated epoch would be committed twice
            reason = "Spark did not pass the id of the streaming query to the tasks"
            raise TableError(f"Cannot commit epoch {batchId}: {reason}.")
        epoch = Epoch(query_id, batchId)
        outcome = context.commit(
            with_added_files(write.change, files),
            branch=write.options.branch,
            properties={**write.options.snapshot_properties, **epoch.properties},
            written_files=files["file_path"].to_pylist(),
            extra_check=epoch.conflict_with,
        )
        is_repeated = isinstance(outcome, Rejected) and any(c.rule is Check.REPEATED for c in outcome.conflicts)
        if not is_repeated:
            require_committed(outcome, f"{write.operation_name} of epoch {epoch.number}")

    def abort(self, messages: CommitMessages, batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """Delete the files of the other tasks if a task failed."""
        self._write.abort(messages)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return ExecutorStreamWriter, (self._files,)  # executors only write; Spark creates another sink to commit
