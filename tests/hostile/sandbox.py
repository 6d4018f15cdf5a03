"""A process that runs hostile cases, each in a child process with limits on memory and time.

It imports all modules once and opens nothing, so that forking is cheap and safe. The effects of a case on its process
end with that process. `python -m tests.hostile.sandbox FOLDER LANE LANES ALL|QUICK [PART]` runs every LANES-th case and
prints one line of JSON for each.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

import neve
from neve.errors import NeveError
from neve.predicate import parse
from tests.hostile.all_cases import select_cases
from tests.hostile.case import Case
from tests.hostile.honest_tables import VERSIONS, DamagedLake, build, load, save
from tests.hostile.operations import CONDITION, baseline, summarize_result, verbs_for
from tests.hostile.seeded_bugs import plant
from tests.support.metadata_tables import SCHEMA

MEMORY = 1280 << 20  # address space beyond what the process has when the case begins
CPU_SECONDS = 20
DEEPEST = 10_000  # recursion limit; the JSON encoder recurses once per level
WALL_SECONDS = 90  # long enough for a busy machine; a hang is still detected


@dataclass
class CaseResult:
    """The result of a case."""

    label: str
    changed: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)  # the names of all files of the lake
    verbs: list[dict[str, Any]] = field(default_factory=list)
    ending: str = "complete"  # or: a signal, a time-out, an exit code
    touched: list[str] = field(default_factory=list)  # files outside the lake
    cpu: float = 0.0
    grown: int = 0  # bytes of memory beyond those of the parent


def run_in_child(work: Callable[[Callable[[dict[str, Any]], None]], None], wall: float) -> tuple[list[dict], str, Any]:
    """Run a function in a forked child; return the lines it reports, how it ended, and the resources it used."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.setsid()
        with os.fdopen(write, "w") as out:
            try:
                work(lambda line: (out.write(json.dumps(line) + "\n"), out.flush()))
            except BaseException:
                out.write(json.dumps({"broken": traceback.format_exc()[-1500:]}) + "\n")
                out.flush()
        os._exit(0)
    os.close(write)
    lines, timed_out = _read_lines(read, wall)
    if timed_out:
        os.kill(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    if timed_out:
        return lines, f"no end after {wall:.0f} s", used
    if os.WIFSIGNALED(status):
        return lines, f"ended by {signal.Signals(os.WTERMSIG(status)).name}", used
    return lines, "complete" if status == 0 else f"exit code {os.WEXITSTATUS(status)}", used


def _read_lines(read: int, wall: float) -> tuple[list[dict], bool]:
    """Read lines until the other end closes or the time is up; return them and whether the time is up."""
    until, data = time.monotonic() + wall, b""
    with selectors.DefaultSelector() as waiting, os.fdopen(read, "rb", buffering=0) as stream:
        waiting.register(stream, selectors.EVENT_READ)
        while True:
            if not waiting.select(max(0.0, until - time.monotonic())):
                return _lines(data), True
            piece = stream.read(1 << 16)
            if not piece:
                return _lines(data), False
            data += piece


def _lines(data: bytes) -> list[dict]:
    return [json.loads(line) for line in data.splitlines() if line.endswith(b"}")]


def run_case(case: Case, lake: DamagedLake, turn: int) -> CaseResult:
    """Damage the table, run all verbs of the case, and restore the table."""

    load_all()

    def damage(report: Callable[[dict[str, Any]], None]) -> None:
        sys.setrecursionlimit(DEEPEST)
        case.apply(lake)
        report({"changed": lake.changed_files()})

    verbs = verbs_for(turn, deletes=case.deletes)
    result = CaseResult(case.label, known=sorted(path.name for path in lake.contents))
    try:
        done, ending, _ = run_in_child(damage, WALL_SECONDS)
        if ending != "complete" or "changed" not in done[-1]:
            result.ending = f"the case itself broke: {ending} {done}"
            return result
        result.changed = done[-1]["changed"]
        for some in [{name: verb} for name, verb in verbs.items()] if case.separate_processes else [verbs]:
            _run_verbs(some, lake, result)
        result.touched = lake.changed_outside()
    finally:
        lake.restore()
    return result


def _run_verbs(verbs: dict[str, Callable[[Any], Any]], lake: DamagedLake, result: CaseResult) -> None:
    """Run verbs one after the other in a child, and record the results."""

    def work(report: Callable[[dict[str, Any]], None]) -> None:
        os.environ["NEVE_TRAP"] = str(lake.outside / "mark")
        os.chdir(lake.outside)  # a relative path resolves here, and a file written here is detected
        _limit()
        opened = neve.connect(lake.folder)
        for name, verb in verbs.items():
            report({"verb": name})
            report({"verb": name, **_run_verb(verb, opened)})

    _, before = _memory_of_process()
    lines, ending, used = run_in_child(work, WALL_SECONDS)
    if result.ending == "complete":
        result.ending = next((f"broken: {line['broken']}" for line in lines if "broken" in line), ending)
    result.cpu += used.ru_utime + used.ru_stime
    result.grown = max(result.grown, (used.ru_maxrss << 10) - before)
    result.verbs += {line["verb"]: line for line in lines if "verb" in line}.values()


def _memory_of_process() -> tuple[int, int]:
    """Return the address space and resident memory of the process now; its peak may be much higher."""
    space, resident, *_ = (int(pages) for pages in Path("/proc/self/statm").read_text().split())
    return space * resource.getpagesize(), resident * resource.getpagesize()


@cache
def load_all() -> None:
    """Load modules and the condition parser before forking, so that the children share them."""
    for name in (
        "neve.lake",
        "neve.table",
        "sqlite3",
        "sqlalchemy.dialects.sqlite",
        "pyiceberg_core",
        "sqlglot.optimizer",
    ):
        importlib.import_module(name)
    parse(CONDITION, SCHEMA)
    gc.collect()
    gc.freeze()  # memory that the collector does not touch is not copied into every child


def _limit() -> None:
    size = _memory_of_process()[0] + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    spent = time.process_time()
    resource.setrlimit(resource.RLIMIT_CPU, (int(spent) + CPU_SECONDS, int(spent) + CPU_SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _run_verb(verb: Callable[[Any], Any], lake: neve.Lake) -> dict[str, Any]:
    """Run a verb; return its rows, its audit, nothing, a `NeveError`, or any other error."""
    try:
        return {"done": True, **summarize_result(verb(lake.table("db.t")))}
    except NeveError as e:
        return {"error": type(e).__name__, "message": str(e)}
    except BaseException as e:
        where = traceback.format_exc(limit=-3)
        return {"raw": type(e).__name__, "message": f"{e}"[:300], "where": where[-900:]}


def build_honest_tables(folder: Path) -> dict[int, DamagedLake]:
    """Build the valid tables in a child, so that nothing is open in this process."""

    def work(report: Callable[[dict[str, Any]], None]) -> None:
        os.fsync = lambda descriptor: None  # type: ignore[assignment]
        for version in VERSIONS:
            lake = build(folder / f"v{version}", version)
            lake.rows = baseline(lake)
            lake.restore()
            save(lake, folder / f"v{version}.pickle")

    lines, ending, _ = run_in_child(work, 300)
    if ending != "complete" or lines:
        raise RuntimeError(f"The valid tables could not be built: {ending} {lines}")
    return {version: load(folder / f"v{version}.pickle") for version in VERSIONS}


def main(folder: str, lane: str, lanes: str, amount: str, part: str = "") -> None:
    pa.set_cpu_count(1)
    plant(os.environ.get("NEVE_PLANTED", ""))
    lakes = build_honest_tables(Path(folder))
    for turn, case in enumerate(select_cases(amount == "ALL", part)):
        if turn % int(lanes) == int(lane):
            result = run_case(case, lakes[case.version], turn)
            sys.stdout.write(json.dumps({"turn": turn, **vars(result)}) + "\n")
            sys.stdout.flush()
    rows = {str(v): lakes[v].rows for v in VERSIONS}
    sys.stdout.write(json.dumps({"honest": rows}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
