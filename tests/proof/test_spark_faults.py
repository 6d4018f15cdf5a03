"""Failing tasks, dying workers, killed executors, speculative copies of slow tasks, cancelled jobs.

Each statement writes to storage with one fault (`bad_storage`), in a Spark that retries tasks. Afterwards the table
must be as if there was no fault or, if the job was cancelled, as before; `audit` checks it, as after every crash. Files
of failed attempts may remain: orphan removal finds them.
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
from tests.proof.audit import Unsound, audit, files_on_disk, lake_in, reachable_files
from tests.proof.operations import VERSIONS, RestorableLake
from tests.proof.results_ledger import Tally, new_tally
from tests.proof.spark_driver_operations import BY_DRIVER, BY_EXCHANGE, orders, ready_worker, run_order, states
from tests.proof.statements_without_spark import open_table
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
    kinds_and_times = [("fail", "open"), ("fail", "close"), ("end worker", "close")]
    with new_tally("a task of a Spark job fails or its worker dies, and is tried again") as tally:
        run_all_faults(tally, tmp_path, "local[2,4]", {}, kinds_and_times, VERSIONS)
        require_files_left(tally, "a worker that dies cannot clean up")


def test_a_task_that_passes_rows_on_in_a_file_is_tried_again(tmp_path: Path):
    kinds_and_times = [("fail", "close"), ("end worker", "close")]
    with new_tally("a task that leaves rows in a temporary file fails or its worker dies") as tally:
        run_all_faults(tally, tmp_path, "local[2,4]", {}, kinds_and_times, VERSIONS, in_files=True)


def test_a_job_that_is_cancelled_while_rows_are_in_temporary_files_changes_nothing(tmp_path: Path):
    with new_tally("a Spark job is cancelled while its rows are in temporary files") as tally:
        run_all_faults(tally, tmp_path, "local[2,4]", {}, [("hang", "close")], VERSIONS, cancels=True, in_files=True)


def test_an_executor_that_is_killed_is_replaced(tmp_path: Path):
    with new_tally("kill -9 of a Spark executor that writes") as tally:
        options = {"spark.executor.memory": "600m"}
        run_all_faults(tally, tmp_path, "local-cluster[2,1,700]", options, [("kill executor", "close")], VERSIONS)
        require_files_left(tally, "an executor that dies cannot clean up")


def test_of_two_copies_of_a_task_one_counts(tmp_path: Path):
    """Speculation needs workers on two hosts; two addresses of the loopback are two hosts."""
    with new_tally("speculation: two attempts of a task of a Spark job") as tally, standalone(tmp_path) as master:
        kinds_and_times = [("hang", "open"), ("hang", "close")]
        run_all_faults(tally, tmp_path, master, SPECULATION, kinds_and_times, (3,))
        require_files_left(tally, "the copy that hangs has written a file, which is not the one that counts")


def test_a_job_that_is_cancelled_changes_nothing(tmp_path: Path):
    with new_tally("a Spark job is cancelled while it writes") as tally:
        kinds_and_times = [("hang", "open"), ("hang", "close")]
        run_all_faults(tally, tmp_path, "local[2,4]", {}, kinds_and_times, VERSIONS, cancels=True)


def test_a_commit_of_all_files_in_the_folder_is_detected(tmp_path: Path):
    """Test of the test: a commit that takes every file in the folder adds rows twice."""
    case_lake = RestorableLake(tmp_path / "lake", 3)
    order = orders(3)["append"]
    with new_tally("planted faults are found by their harness") as tally, tally.case("a commit lists the folder"):
        with ready_worker(
            Worker(case_lake.folder, "local[2,4]", prepare="tests.proof.task_routes.work_in_tasks")
        ) as worker:
            before, after = states(case_lake, worker, "append", order)
            case_lake.restore("append")
            mark = tmp_path / "mark"
            fault = fault_order("end worker", "close", mark, False) | {
                "plant": "tests.proof.spark_seeded_bugs.list_the_folder"
            }
            run_with_fault(worker, order | fault, mark, False)
        with pytest.raises(Unsound, match="neither before nor after"):
            audit(case_lake.folder, before, after, acknowledged=True)
        tally.figure("found")


def written_by_tasks(version: int) -> dict[str, Order]:
    return {name: order for name, order in orders(version).items() if name not in BY_DRIVER}


def require_files_left(tally: Tally, why: str) -> None:
    """Check that files are left behind: this shows that the faults occurred."""
    tally.raise_failures()
    assert tally.figures["files left"] > 0, why


def run_all_faults(
    tally: Tally,
    folder: Path,
    master: str,
    options: dict[str, str],
    kinds_and_times: list[tuple[str, str]],
    versions: tuple[int, ...],
    cancels: bool = False,
    in_files: bool = False,
) -> None:
    """Run every statement with every fault, on one Spark per format version; `in_files`: where tasks pass rows on."""
    prepare = f"tests.proof.task_routes.{'pass_rows_in_files' if in_files else 'work_in_tasks'}"
    for version in versions:
        case_lake = RestorableLake(folder / f"v{version}" / "lake", version)
        with ready_worker(Worker(case_lake.folder, master, options, prepare)) as worker:
            for name, order in written_by_tasks(version).items():
                if in_files and name not in BY_EXCHANGE:
                    continue
                before, after = states(case_lake, worker, name, order)
                for kind, when in kinds_and_times:
                    with tally.case(f"{name} v{version}: {kind} at {when}"):
                        case_lake.restore(name)
                        mark = folder / f"{version}-{name}-{kind}-{when}"
                        run_with_fault(worker, order | fault_order(kind, when, mark, cancels), mark, cancels)
                        tally.figure("files left", count_orphans(case_lake.folder))
                        audit(case_lake.folder, before, before if cancels else after, acknowledged=not cancels)


def fault_order(kind: str, when: str, mark: Path, cancels: bool) -> Order:
    """Return the part of an order that configures a fault."""
    fault = {"fault.kind": kind, "fault.when": when, "fault.mark": str(mark)}
    storage = {"py-io-impl": "tests.proof.bad_storage.BadStorage", **fault}
    return {"storage": storage, "cancel": str(mark) if cancels else None}


def run_with_fault(worker: Worker, order: Order, mark: Path, cancels: bool) -> None:
    result = run_order(worker, order)
    assert mark.exists(), "no task reached the fault"
    if not cancels:
        assert result["landed"], result
    elif order["do"] != "compact":
        assert "WriteFailed" in result["error"], result
    else:
        assert result.get("files", 0) == 0, result


def count_orphans(folder: Path) -> int:
    """Return the number of unreachable files."""
    return len(files_on_disk(folder) - reachable_files(open_table(lake_in(folder))))


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A master and two workers of one core each, on three addresses of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    with daemon("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"):
        workers_at = [("--host", f"127.0.0.{n}", "--work-dir", str(folder / f"worker{n}")) for n in (2, 3)]
        size = ("--cores", "1", "--memory", "700m", "--webui-port", "0")
        with (
            daemon("worker.Worker", *workers_at[0], *size, master),
            daemon("worker.Worker", *workers_at[1], *size, master),
        ):
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
