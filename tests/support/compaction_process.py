"""A process that works on a lake beside others: `python -m tests.support.compaction_process LAKE`.

It has a lake and a Spark of its own, and takes an order at a time as a line of JSON: compact, delete, update, merge,
append, insert or evolve. It says when it is ready and begins when it is told to go. An order may ask it to stop once
more in the middle, at a phase of one of its commits, until it is told to go on; it may bring properties of the storage,
a file whose appearance cancels the jobs of Spark, and a fault to be put into the engine. In the end it says what came
of the order.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

import neve
from neve import Table
from neve.commit.environment import Environment, Phase
from neve.errors import CommitConflict
from neve.ops.maintenance.rewrite_data_files import RewriteDataFiles
from neve.run.spark.session import local_session
from tests.support.spark_sessions import AS_MADE, EVERY_JAVA, INTERPRETED

ROOT = Path(__file__).parents[2]
PATIENCE = 300  # seconds; only a process that hangs takes longer

Order = dict[str, Any]


@dataclass
class Worker:
    """The process, seen from the test."""

    lake: Path
    master: str = "local[1]"
    options: dict[str, str] = field(default_factory=dict)  # of its Spark
    prepare: str = ""  # a function that it calls first, by its full name
    _process: subprocess.Popen[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        pipe = subprocess.PIPE
        spark = [self.master, json.dumps(self.options), self.prepare]
        command = [sys.executable, "-m", "tests.support.compaction_process", str(self.lake), *spark]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | EVERY_JAVA, stdin=pipe, stdout=pipe, text=True
        )

    def tell(self, what: Any) -> None:
        """Give it an order, or let it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """What it says next; it never says two things without being told something in between."""
        out = self._process.stdout
        assert out is not None and select.select([out], [], [], PATIENCE)[0], "the process hangs"
        line = out.readline()
        assert line, "the process ended"
        return json.loads(line)

    def stop(self) -> None:
        """Let it end, and its Spark with it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()


@dataclass
class Halt:
    """Stops the process at one phase of one of the commits of an order, until it is told to go on."""

    at: tuple[str, int] | None = None  # the phase, and which commit of the order
    commits: int = 0

    def observe(self, phase: Phase, attempt: int) -> None:
        self.commits += phase is Phase.REFRESH and attempt == 0
        if self.at == (phase.value, self.commits):
            self.at = None
            say({"at": phase.value})
            sys.stdin.readline()


# --- orders ---


def compaction(table: Table, order: Order) -> RewriteDataFiles:
    """The compaction an order asks for."""
    rewrite = table.rewrite_data_files().options(order["options"]).verify_rows(order["verifies"])
    rewrite = rewrite.where(order["where"]) if order["where"] else rewrite
    rewrite = rewrite.sort(*order["sort"]) if order["sort"] else rewrite
    match order["spec"]:
        case "keep":
            return rewrite.keep_spec()
        case "upgrade":
            return rewrite.upgrade_spec()
        case int(spec_id):
            return rewrite.upgrade_spec(spec_id)
    return rewrite


def compact(table: Table, order: Order) -> dict[str, Any]:
    result = compaction(table, order).execute()
    return {"lost": result.races + len(result.failed_groups), "said": result.summary, "files": result.files_rewritten}


def delete(table: Table, order: Order) -> dict[str, Any]:
    return run(table.delete().where(order["where"]), order)


def update(table: Table, order: Order) -> dict[str, Any]:
    return run(table.update().set(order["set"]).where(order["where"]), order)


def merge(table: Table, order: Order) -> dict[str, Any]:
    upsert = table.merge(order["rows"], on="t.id = s.id").when_matched_update_all().when_not_matched_insert_all()
    return run(upsert, order)


def run(statement: Any, order: Order) -> dict[str, Any]:
    result = statement.mode(order["mode"]).isolation(order["isolation"]).reruns(order["reruns"]).execute()
    return {"lost": result.reruns, "said": result.summary}


def pack_deletes(table: Table, order: Order) -> dict[str, Any]:
    return {"lost": 0, "said": table.rewrite_position_deletes().options(order["options"]).execute().summary}


def append(table: Table, order: Order) -> dict[str, Any]:
    return {"lost": 0, "said": f"{table.append(order['rows']).rows_added} rows added"}


def insert(table: Table, order: Order) -> dict[str, Any]:
    rows = SparkSession.active().createDataFrame(order["rows"], order["columns"])
    return {"lost": 0, "said": f"{table.append(rows).rows_added} rows added"}


def evolve(table: Table, order: Order) -> dict[str, Any]:
    table.evolve_partitions(add=order["add"], drop=order["drop"])
    return {"lost": 0, "said": str(table.refresh())}


VERBS: dict[str, Callable[[Table, Order], dict[str, Any]]] = {
    verb.__name__: verb for verb in (compact, pack_deletes, delete, update, merge, append, insert, evolve)
}


def obey(table: Table, order: Order) -> dict[str, Any]:
    """What came of an order: it landed, it lost to another writer, or it failed in a way it must not."""
    try:
        return {"landed": True, **VERBS[order["do"]](table, order)}
    except CommitConflict as e:
        return {"landed": False, "lost": 1, "said": str(e)}
    except Exception:
        return {"landed": False, "lost": 0, "said": "", "error": traceback.format_exc()}


# --- the process ---


def say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


@contextmanager
def cancelled_when(mark: str | None) -> Iterator[None]:
    """Cancel every job once a file is there."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            if mark and Path(mark).exists():
                SparkContext._active_spark_context.cancelAllJobs()  # type: ignore[union-attr]
                return

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


def call(name: str) -> None:
    module, _, function = name.rpartition(".")
    getattr(import_module(module), function)()


def main(folder: str, master: str, given: str, prepare: str) -> int:
    if prepare:
        call(prepare)
    with tempfile.TemporaryDirectory() as scratch:
        options = {
            "spark.driver.memory": "1g",
            "spark.local.dir": f"{scratch}/local",
            "spark.sql.warehouse.dir": f"{scratch}/warehouse",
            "spark.sql.shuffle.partitions": "1",
            "spark.default.parallelism": "1",
            **INTERPRETED,
            **AS_MADE,
            **json.loads(given),
        }
        spark, halt = local_session(master, options), Halt()
        environment = Environment(observe=halt.observe)
        say({"ready": True})
        while line := sys.stdin.readline():
            order = json.loads(line)
            lake = neve.connect(folder, spark=spark, environment=environment, **order.get("storage", {}))
            table = lake.table(order["table"])
            halt.at, halt.commits = order["halt"] and tuple(order["halt"]), 0
            say({"ready": True})
            sys.stdin.readline()
            if planted := order.get("plant"):
                call(planted)
            with cancelled_when(order.get("cancel")):
                came = obey(table, order)
            say(came)
        spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
