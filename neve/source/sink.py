"""A streaming sink: every epoch is one commit, and lands once however often Spark repeats it.

Mode append adds the rows of an epoch, mode complete replaces the table by them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neve.commit.actions import Append
from neve.commit.outcome import require
from neve.commit.protocol import commit
from neve.errors import TableError
from neve.source.epochs import Epoch, is_repeated
from neve.source.workers import SinkTask
from neve.source.writing import Answers, TableWrite

__all__ = ["TableSink"]


class TableSink(SinkTask):
    """Commits the epochs of a streaming query to a table."""

    def __init__(self, write: TableWrite) -> None:
        super().__init__(write.files)
        self._asked = write

    def commit(self, messages: Answers, batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """Commit an epoch; one the table has already is left out, with the files that were written for it."""
        asked, context = self._asked, self._asked.table.context()
        files = asked.written(messages, context)
        if isinstance(asked.change, Append) and not len(files):
            return
        epoch = _epoch(messages, batchId)
        outcome = commit(
            context.catalog,
            context.iceberg,
            asked.changed(files),
            branch=asked.options.branch,
            properties={**asked.options.snapshot_properties, **epoch.properties},
            environment=context.environment,
            owned=files["file_path"].to_pylist(),
            unless=epoch.refused,
        )
        if not is_repeated(outcome):
            require(outcome, f"{asked.doing} of epoch {epoch.number}")

    def abort(self, messages: Answers, batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """Delete the files of tasks when another task failed."""
        self._asked.abort(messages)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return SinkTask, (self._files,)  # it travels to write; Spark makes another one to commit


def _epoch(messages: Answers, number: int) -> Epoch:
    query_id = next((m.query_id for m in messages if m is not None and m.query_id is not None), None)
    if query_id is None:  # without it a repeated epoch would land twice
        raise TableError(f"Cannot commit epoch {number}: Spark did not tell the tasks the id of the streaming query.")
    return Epoch(query_id, number)
