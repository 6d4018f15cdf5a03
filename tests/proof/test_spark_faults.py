"""Tasks that fail, workers that die, executors that are killed, copies of slow tasks, jobs that are cancelled.

Each statement writes through storage that goes wrong once (`bad_storage`), in a Spark that tries tasks again. The table
must then be as if nothing had happened, or, where the job was cancelled, as it was before; the judge is that of every
crash. What an attempt left behind may lie there: it is what orphan removal finds.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from neve.run.spark.java import find_java, launcher_home
from tests.proof.audit import Unsound, audit, lake_in, on_disk, reachable
from tests.proof.operations import VERSIONS, Ground
from tests.proof.results_ledger import Tally, tallied
from tests.proof.spark_driver_operations import BY_DRIVER, orders, states, told, working
from tests.proof.statements_without_spark import opened
from tests.support.compaction_process import ROOT, Order, Worker
from tests.support.coverage import IS_FULL
from tests.support.spark_sessions import EVERY_JAVA

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.task.duration.threshold": "1s",  # otherwise a stage of one task has no copies
    "spark.executor.memory": "600m",
}

pytestmark = pytest.mark.skipif(not IS_FULL, reason="NEVE_PROOF=all starts clusters")


def test_a_task_that_fails_is_tried_again(tmp_path: Path):
    """`local[2,4]`: before a file has bytes, after it is complete, and with the worker dying."""
    ways = [("fail", "open"), ("fail", "close"), ("end worker", "close")]
    with tallied("a task of a Spark job fails or its worker dies, and is tried again") as tally:
        faults(tally, tmp_path, "local[2,4]", {}, ways, VERSIONS)
        require_left(tally, "a worker that dies cannot clean up")


def test_an_executor_that_is_killed_is_replaced(tmp_path: Path):
    with tallied("kill -9 of a Spark executor that writes") as tally:
        options = {"spark.executor.memory": "600m"}
        faults(tally, tmp_path, "local-cluster[2,1,700]", options, [("kill executor", "close")], VERSIONS)
        require_left(tally, "an executor that dies cannot clean up")


def test_of_two_copies_of_a_task_one_counts(tmp_path: Path):
    """Speculation needs workers on two hosts; two addresses of the loopback are two hosts."""
    with tallied("speculation: two attempts of a task of a Spark job") as tally, standalone(tmp_path) as master:
        ways = [("hang", "open"), ("hang", "close")]
        faults(tally, tmp_path, master, SPECULATION, ways, (3,))
        require_left(tally, "the copy that hangs has written a file, which is not the one that counts")


def test_a_job_that_is_cancelled_changes_nothing(tmp_path: Path):
    with tallied("a Spark job is cancelled while it writes") as tally:
        ways = [("hang", "open"), ("hang", "close")]
        faults(tally, tmp_path, "local[2,4]", {}, ways, VERSIONS, cancels=True)


def test_files_that_count_because_they_are_there_are_found_out(tmp_path: Path):
    """The test of the test: a commit that takes what lies in the folder takes rows twice."""
    here = Ground(tmp_path / "lake", 3)
    order = orders(3)["append"]
    with tallied("planted faults are found by their harness") as tally, tally.case("a commit lists the folder"):
        with working(Worker(here.folder, "local[2,4]")) as worker:
            before, after = states(here, worker, "append", order)
            here.restore("append")
            mark = tmp_path / "mark"
            fault = trouble("end worker", "close", mark, False) | {
                "plant": "tests.proof.spark_seeded_bugs.list_the_folder"
            }
            played(worker, order | fault, mark, False)
        with pytest.raises(Unsound, match="neither before nor after"):
            audit(here.folder, before, after, acknowledged=True)
        tally.figure("found")


def written_by_tasks(version: int) -> dict[str, Order]:
    return {name: order for name, order in orders(version).items() if name not in BY_DRIVER}


def require_left(tally: Tally, why: str) -> None:
    """That the faults were really met shows in what they left."""
    tally.settle()
    assert tally.figures["files left"] > 0, why


def faults(
    tally: Tally,
    folder: Path,
    master: str,
    options: dict[str, str],
    ways: list[tuple[str, str]],
    versions: tuple[int, ...],
    cancels: bool = False,
) -> None:
    """Every statement in every way, on one Spark a version."""
    for version in versions:
        here = Ground(folder / f"v{version}" / "lake", version)
        with working(Worker(here.folder, master, options)) as worker:
            for name, order in written_by_tasks(version).items():
                before, after = states(here, worker, name, order)
                for kind, when in ways:
                    with tally.case(f"{name} v{version}: {kind} at {when}"):
                        here.restore(name)
                        mark = folder / f"{version}-{name}-{kind}-{when}"
                        played(worker, order | trouble(kind, when, mark, cancels), mark, cancels)
                        tally.figure("files left", left_in(here.folder))
                        audit(here.folder, before, before if cancels else after, acknowledged=not cancels)


def trouble(kind: str, when: str, mark: Path, cancels: bool) -> Order:
    """What an order brings to meet a fault."""
    fault = {"fault.kind": kind, "fault.when": when, "fault.mark": str(mark)}
    storage = {"py-io-impl": "tests.proof.bad_storage.BadStorage", **fault}
    return {"storage": storage, "cancel": str(mark) if cancels else None}


def played(worker: Worker, order: Order, mark: Path, cancels: bool) -> None:
    came = told(worker, order)
    assert mark.exists(), "no task came to the fault"
    if not cancels:
        assert came["landed"], came
    elif order["do"] != "compact":
        assert "WriteFailed" in came["error"], came
    else:
        assert came.get("files", 0) == 0, came


def left_in(folder: Path) -> int:
    """How many files nothing leads to."""
    return len(on_disk(folder) - reachable(opened(lake_in(folder))))


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A master and two workers of one core each, on three addresses of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    with daemon("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"):
        at = [("--host", f"127.0.0.{n}", "--work-dir", str(folder / f"worker{n}")) for n in (2, 3)]
        size = ("--cores", "1", "--memory", "700m", "--webui-port", "0")
        with daemon("worker.Worker", *at[0], *size, master), daemon("worker.Worker", *at[1], *size, master):
            yield master


@contextmanager
def daemon(name: str, *arguments: str) -> Iterator[None]:
    home = Path(pyspark.__file__).parent
    environment = os.environ | EVERY_JAVA | {"JAVA_HOME": str(launcher_home(find_java())), "PYTHONPATH": str(ROOT)}
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()
