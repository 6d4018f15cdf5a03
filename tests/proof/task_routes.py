"""Let tasks of Spark do the work on small tables too, which this process would do itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark import TaskContext

from neve.plan import row_change
from neve.run.spark import write
from neve.run.spark.column_exchange import ColumnExchange
from neve.run.spark.writing_job import LocalLimits
from tests.proof.bad_storage import BadStorage, trigger_fault


def work_in_tasks() -> None:
    """Find and rewrite rows in tasks, which pass rows on through Spark's shuffle, as on a cluster."""
    row_change.MAX_ARROW_BYTES = write.MAX_COLLECTED_BYTES = -1
    LocalLimits.of = lambda spark: LocalLimits(rewritten=-1, carried=-1, source=32 << 20)  # type: ignore[method-assign]
    ColumnExchange.passes_files = staticmethod(lambda spark: False)  # type: ignore[method-assign]


def pass_rows_in_files() -> None:
    """The same in a local session, where tasks pass rows on in files: the fault of the storage is at their end."""
    passes_files, splitting_task = ColumnExchange.passes_files, ColumnExchange._splitting_task
    work_in_tasks()

    def faulty_task(self: ColumnExchange, folder: str) -> Callable[..., Any]:
        task, target = splitting_task(self, folder), self.target

        def run(*arguments: Any) -> Any:
            result, io = task(*arguments), target.open_io()
            if TaskContext.get() and isinstance(io, BadStorage):
                trigger_fault(io.properties)
            return result

        return run

    ColumnExchange.passes_files = staticmethod(passes_files)  # type: ignore[method-assign]
    ColumnExchange._splitting_task = faulty_task  # type: ignore[method-assign]
