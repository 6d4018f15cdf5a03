"""Streaming writes: every epoch is one commit, and lands only once even if Spark repeats it.

Mode append adds the rows of an epoch, mode complete replaces the rows of the table by them.

The summaries of the snapshots record the epochs of a streaming query. The property names are those of Iceberg's own
sink on Spark, so a query can switch from one sink to the other. Spark repeats an epoch if it stopped between the commit
and its own checkpoint. Every commit attempt checks whether the table already has the epoch, so that two drivers that
run the same query cannot both commit it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neve.commit.actions import Append
from neve.commit.outcome import Check, Conflict, Outcome, Rejected, require_committed
from neve.commit.window import CommitBase
from neve.errors import TableError
from neve.ops.write.append import with_added_files
from neve.source.batch_write import CommitMessages, TableWrite
from neve.source.workers import ExecutorStreamWriter

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


def is_repeated(outcome: Outcome) -> bool:
    """Return whether a commit was rejected because the table already has its epoch."""
    return isinstance(outcome, Rejected) and any(c.rule is Check.REPEATED for c in outcome.conflicts)


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
        if not is_repeated(outcome):
            require_committed(outcome, f"{write.operation_name} of epoch {epoch.number}")

    def abort(self, messages: CommitMessages, batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """Delete the files of the other tasks if a task failed."""
        self._write.abort(messages)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return ExecutorStreamWriter, (self._files,)  # executors only write; Spark creates another sink to commit
