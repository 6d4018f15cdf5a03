"""A second process that works on a lake at the same time: `python -m tests.support.other_writer LAKE`.

It has a lake and a Spark of its own. It says when it is ready, then takes lines of JSON: SQL to run so many times, or
rows to append. It answers each with one line: how many of the statements changed something, or the error.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import neve
from neve.run.spark.session import local_session
from tests.support.spark_sessions import PLANS

ROOT = Path(__file__).parents[2]


@dataclass
class OtherWriter:
    """The second process, seen from the first."""

    lake: Path
    _process: subprocess.Popen[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "tests.support.other_writer", str(self.lake)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        assert self.answer() == {"ready": True}

    def begin(self, **order: Any) -> None:
        """Have it begin something: `sql=…, times=…`, or `table=…, rows=…`; the answer comes later."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """What came of the last order, when it is done."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the other process ended"
        return json.loads(line)

    def does(self, **order: Any) -> dict[str, Any]:
        """An order and its answer."""
        self.begin(**order)
        said = self.answer()
        assert "error" not in said, said
        return said

    def stop(self) -> None:
        """Let it end, and its Spark with it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()


def obey(lake: neve.Lake, order: dict[str, Any]) -> dict[str, Any]:
    if "rows" in order:
        lake.table(order["table"]).append(order["rows"])
        return {"changed": 1}
    options = order.get("options", {})
    try:
        results = [lake.sql(order["sql"], **options) for _ in range(order.get("times", 1))]
    except neve.NeveError as e:
        return {"error": type(e).__name__, "message": str(e)}
    return {"changed": sum(r.snapshot_id is not None for r in results)}


def say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main(folder: str) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        options = {
            "spark.driver.memory": "1g",
            "spark.local.dir": f"{scratch}/local",
            "spark.sql.warehouse.dir": f"{scratch}/warehouse",
            "spark.sql.shuffle.partitions": "1",
            "spark.default.parallelism": "1",
            **PLANS,
        }
        spark = local_session("local[1]", options)
        lake = neve.connect(folder, spark=spark)
        say({"ready": True})
        for line in sys.stdin:
            say(obey(lake, json.loads(line)))
        spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
