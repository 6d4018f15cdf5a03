"""Client for Spark with Iceberg's own runtime: SQL in, Arrow out, on the catalog of a lake."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.peers.jars import ICEBERG, SQLITE, path_of

ROOT = Path(__file__).parents[2]
NAME = f"Spark with Iceberg {ICEBERG.version}"


class SparkSaid(Exception):
    """A statement failed in the other Spark; the text is its error message."""


@dataclass
class Spark:
    """The other Spark; it starts at the first query."""

    lake: Path  # the folder of the lake whose catalog it shares
    folder: Path
    jars: tuple[Path, ...]
    _process: subprocess.Popen[str] | None = field(default=None, repr=False)

    def sql(self, *statements: str) -> pa.Table:
        """Run statements; return the rows of the last one."""
        return self._send({"sql": statements})

    def rows(self, metadata_location: str) -> pa.Table:
        """Return the rows of a table by its metadata file, even if it is not in the catalog."""
        return self._send({"metadata": metadata_location})

    def python(self, code: str) -> pa.Table:
        """Run code with `spark` and `F`; return the rows of `result`."""
        return self._send({"python": code})

    def distinct_values(self, table: str) -> dict[str, int]:
        """Return the distinct values of columns that the planner of this Spark expects."""
        return {row["name"]: row["values"] for row in self._send({"distinct": table}).to_pylist()}

    def _send(self, question: dict[str, Any]) -> pa.Table:
        process, into = self._start(), self.folder / "answer.arrow"
        assert process.stdin is not None
        process.stdin.write(json.dumps({**question, "into": str(into)}) + "\n")
        process.stdin.flush()
        answer = self._read_answer(process)
        if answer["error"] is not None:
            raise SparkSaid(f"{answer['error']}\n  request: {question}")
        with pa.OSFile(str(into)) as source:
            return pa.ipc.open_file(source).read_all()

    def _start(self) -> subprocess.Popen[str]:
        if self._process is None:
            command = [sys.executable, "-m", "tests.peers.spark_worker", str(self.lake), *map(str, self.jars)]
            with (self.folder / "worker.log").open("w") as log:
                self._process = subprocess.Popen(
                    command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
                )
            self._read_answer(self._process)
        return self._process

    def _read_answer(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        """Return the next line that is JSON: Java may print other lines."""
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise SparkSaid(f"The worker ended: {(self.folder / 'worker.log').read_text()[-4000:]}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.communicate()  # it exits at the end of its input
            self._process = None


@contextmanager
def running(lake: Path, folder: Path) -> Iterator[Spark]:
    """Yield the other Spark on a lake; raises NotToBeHad if its jars are not available."""
    spark = Spark(lake, folder, (path_of(ICEBERG), path_of(SQLITE)))
    try:
        yield spark
    finally:
        spark.stop()
