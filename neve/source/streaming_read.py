"""A streaming read: the rows of the snapshots that are appended to a branch, one after the other.

An offset is the id of the last snapshot that was read; null stands before the first. Compactions bring no new rows and
are passed over. A snapshot that deletes or replaces rows stops the stream, unless an option says to pass over it: the
stream has handed on rows that are no longer there.

Where the oldest snapshots have been expired, the stream begins with all rows of the oldest one that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyspark.sql import types as sp
from pyspark.sql.datasource import InputPartition

from neve.commit.window import CommitBase, Window
from neve.errors import TableError
from neve.model.pyiceberg_private import fields_by_id
from neve.model.snapshots import Snapshot
from neve.ops.context import TableContext
from neve.ops.scan import Scan
from neve.plan.scan import ScanPlan, ScanStats, project_schema
from neve.source.batch_read import ReadPlan, pinned_schema, refuse_other_types
from neve.source.options import StreamReadOptions, TableOptions
from neve.source.workers import ExecutorStreamReader, PinnedState
from neve.tree.entries import EntryTable, Status

SNAPSHOT_ID_KEY = "snapshot-id"

Offset = dict[str, Any]
ProjectedColumns = tuple[Schema, tuple[str, ...]]  # of the table, and metadata columns


@dataclass(frozen=True)
class TableStream:
    """Which snapshots of which table are followed, in the columns of one of its schemas."""

    table: TableOptions
    options: StreamReadOptions
    schema_id: int

    @classmethod
    def of(cls, table: TableOptions, options: StreamReadOptions, pin: PinnedState | None) -> TableStream:
        """The stream of a table in the columns it was found with before, or else those it has now."""
        context = table.context()
        context.head(options.branch)
        return cls(table, options, context.metadata.current_schema_id if pin is None else pin.schema_id)

    def start_snapshot_id(self) -> int | None:
        """The snapshot after which the stream begins; None: it begins with the first."""
        from_ms = self.options.from_ms
        if from_ms is None:
            return None
        history = list(self._ancestors(self.table.context()))
        before = next((s.snapshot_id for s in history if s.timestamp_ms < from_ms), None)
        # where what came before is expired, the oldest that is left still knows what it came after
        return before if before is not None or not history else history[-1].parent_snapshot_id

    def latest_snapshot_id(self) -> int | None:
        """The newest snapshot of the branch."""
        head = self.table.context().head(self.options.branch)
        return None if head is None else head.snapshot_id

    def plan(self, start: int | None, end: int | None, wanted: sp.StructType) -> list[ReadPlan]:
        """What is new in the snapshots after `start` up to `end`, the oldest first."""
        context = self.table.context()
        schema = pinned_schema(context, PinnedState(end, self.schema_id))
        refuse_other_types(wanted, schema, context)
        _refuse_changed_columns(project_schema(schema, wanted.names)[0], context)
        found = self._snapshots_between(context, start, end)
        plans: list[ScanPlan] = []
        if start is None and found and found[0].parent_snapshot_id is not None:
            plans.append(Scan(context, found.pop(0), schema, None, tuple(wanted.names)).plan())
        appended = [s for s in found if self._is_late_enough(s) and self._brings_rows(s)]
        if appended:
            plans.append(self._plan_appended_files(context, appended, start, project_schema(schema, wanted.names)))
        return [ReadPlan.of(p, context, None, wanted.names, self.options.split_bytes) for p in plans]

    def _snapshots_between(self, context: TableContext, start: int | None, end: int | None) -> list[Snapshot]:
        """The snapshots after one up to another, the oldest first."""
        found: list[Snapshot] = []
        for snapshot in self._ancestors(context):
            if snapshot.snapshot_id == start:
                break
            found.append(snapshot)
        oldest = found[-1].parent_snapshot_id if found else start
        ids: list[int | None] = [s.snapshot_id for s in found]
        if (start is not None and oldest != start) or (end not in (*ids, start)):
            raise TableError(
                f"Cannot follow table {context.name} from snapshot {start} to {end}: the history of branch "
                f"{self.options.branch!r} no longer has both. They were expired, or the branch was moved; start the "
                "stream anew with another checkpoint."
            )
        return [] if end == start else found[ids.index(end) :][::-1]

    def _is_late_enough(self, snapshot: Snapshot) -> bool:
        return self.options.from_ms is None or snapshot.timestamp_ms >= self.options.from_ms

    def _brings_rows(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot brings rows to read; one that takes rows away is refused, or passed over."""
        operation = Operation.OVERWRITE if snapshot.summary is None else snapshot.summary.operation
        skipped = {
            Operation.REPLACE: True,
            Operation.DELETE: self.options.skips_deletes,
            Operation.OVERWRITE: self.options.skips_overwrites,
        }
        if operation is Operation.APPEND or skipped[operation]:
            return operation is Operation.APPEND
        raise TableError(
            f"Snapshot {snapshot.snapshot_id} is of operation {operation.value}: rows that were read from table "
            f"{self.table.name} are no longer there. Set the option streaming-skip-{operation.value}-snapshots to true "
            "to pass over such snapshots."
        )

    def _plan_appended_files(
        self, context: TableContext, snapshots: list[Snapshot], start: int | None, columns: ProjectedColumns
    ) -> ScanPlan:
        """The data files that some snapshots brought. No delete is older than they are, so none applies."""
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
    """Refuse to read newer files as older columns where they may hold what those cannot."""
    now = fields_by_id(context.metadata.schema())
    for field_id, old in fields_by_id(columns).items():
        new = now.get(field_id)
        has_gone = new is None and old.required
        has_changed = new is not None and (
            (old.required and not new.required) or (old.field_type.is_primitive and new.field_type != old.field_type)
        )
        if has_gone or has_changed:
            raise TableError(
                f"Column {old.name!r} of table {context.name} has changed since the stream began. Load the stream anew "
                "and start it with the same checkpoint: it goes on where it stopped."
            )


class TableStreamReader(ExecutorStreamReader):
    """Hands the rows appended to a table to a streaming query."""

    def __init__(self, stream: TableStream, schema: sp.StructType) -> None:
        self._stream, self._schema = stream, schema

    def initialOffset(self) -> Offset:  # noqa: N802
        """Where a new query begins."""
        return {SNAPSHOT_ID_KEY: self._stream.start_snapshot_id()}

    def latestOffset(self) -> Offset:  # noqa: N802
        """How far it may read now."""
        return {SNAPSHOT_ID_KEY: self._stream.latest_snapshot_id()}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The tasks of a micro-batch; each brings what it takes to read it, since the table may change meanwhile."""
        plans = self._stream.plan(start[SNAPSHOT_ID_KEY], end[SNAPSHOT_ID_KEY], self._schema)
        return [InputPartition((p.row_reader, parcel)) for p in plans for parcel in p.task_groups()]

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return ExecutorStreamReader, ()  # it travels to be read from
