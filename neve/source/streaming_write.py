"""A streaming sink: every epoch is one commit, and lands once however often Spark repeats it.

Mode append adds the rows of an epoch, mode complete replaces the table by them.

Which epochs of a streaming query a table has, told by the summaries of its snapshots.

The names are those of Iceberg's own sink on Spark, so a query may go from one to the other. Spark repeats an epoch
when it stopped between the commit and its own checkpoint; the commit of an epoch the table has is refused at every
attempt, so two drivers that take themselves for the same query cannot both land it.
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
    """One micro-batch of a streaming query; the query keeps its id as long as it keeps its checkpoint."""

    query_id: str
    number: int

    @property
    def properties(self) -> dict[str, str]:
        """What the summary of its snapshot says."""
        return {QUERY_ID: self.query_id, EPOCH_ID: str(self.number)}

    def conflict_with(self, base: CommitBase) -> Conflict | None:
        """The conflict with the snapshot that has this epoch, or a later one of the query."""
        for snapshot in base.ancestors():
            said = snapshot.summary.additional_properties if snapshot.summary else {}
            if said.get(QUERY_ID) == self.query_id and EPOCH_ID in said:
                if int(said[EPOCH_ID]) < self.number:
                    return None
                message = f"Epoch {self.number} of streaming query {self.query_id} is in the table."
                return Conflict(Check.REPEATED, message, snapshot.snapshot_id)
        return None


def is_repeated(outcome: Outcome) -> bool:
    """Whether a commit was refused because the table has its epoch."""
    return isinstance(outcome, Rejected) and any(c.rule is Check.REPEATED for c in outcome.conflicts)


class TableSink(ExecutorStreamWriter):
    """Commits the epochs of a streaming query to a table."""

    def __init__(self, write: TableWrite) -> None:
        super().__init__(write.files)
        self._asked = write

    def commit(self, messages: CommitMessages, batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """Commit an epoch; one the table has already is left out, with the files that were written for it."""
        asked, context = self._asked, self._asked.table.context()
        files = asked.collect_files(messages, context)
        if isinstance(asked.change, Append) and not len(files):
            return
        epoch = _epoch(messages, batchId)
        outcome = context.commit(
            with_added_files(asked.change, files),
            branch=asked.options.branch,
            properties={**asked.options.snapshot_properties, **epoch.properties},
            written_files=files["file_path"].to_pylist(),
            extra_check=epoch.conflict_with,
        )
        if not is_repeated(outcome):
            require_committed(outcome, f"{asked.operation_name} of epoch {epoch.number}")

    def abort(self, messages: CommitMessages, batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """Delete the files of tasks when another task failed."""
        self._asked.abort(messages)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return ExecutorStreamWriter, (self._files,)  # it travels to write; Spark makes another one to commit


def _epoch(messages: CommitMessages, number: int) -> Epoch:
    query_id = next((m.query_id for m in messages if m is not None and m.query_id is not None), None)
    if query_id is None:  # without it a repeated epoch would land twice
        raise TableError(f"Cannot commit epoch {number}: Spark did not tell the tasks the id of the streaming query.")
    return Epoch(query_id, number)
