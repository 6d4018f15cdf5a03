"""A streaming query whose driver is killed once, right after an epoch has landed and before Spark knows of it.

Run as `python -m tests.support.dying_driver FOLDER`: the first time it dies, the second time it ends.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

import neve
from neve.run.spark.session import local_session
from neve.source.connection import Connection
from neve.source.planner import Planner, data_source_class
from neve.source.streaming import TableSink
from neve.source.workers import SealedValue, TaskCommitMessage
from tests.support import dying_driver  # by the name that workers find it under, not as __main__

DIES_AT = 1


class DyingSink(TableSink):
    def commit(self, messages: Sequence[TaskCommitMessage | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        super().commit(messages, batchId)
        died = Path(self._write.table.connection.folder or "") / "died"
        if batchId == DIES_AT and not died.exists():
            died.touch()
            java = next(p for p in psutil.Process().parents() if "java" in p.name())
            driver = java.parent()
            assert driver is not None
            driver.kill()
            java.kill()


class DyingPlanner(Planner):
    def stream_writer(self, *given: Any) -> TableSink:
        return DyingSink(super().stream_writer(*given)._write)


def main(folder: Path) -> None:
    spark = local_session("local[2]", {"spark.driver.memory": "1g", "spark.local.dir": str(folder / "local")})
    home = Connection.of(neve.connect(folder / "lake"), "UTC")
    source = data_source_class(home)
    source.planner = SealedValue.of(dying_driver.DyingPlanner(home))
    spark.dataSource.register(source)
    rows = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).parquet(f"{folder}/in")
    query = rows.writeStream.format("neve").option("checkpointLocation", f"{folder}/checkpoint")
    query.trigger(availableNow=True).start("db.t").awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
