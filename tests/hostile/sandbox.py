"""A process that runs hostile cases, each in a child process with limits on memory and time.

It loads everything once and opens nothing, so that forking is cheap and safe. What a case does to its process ends
with that process. `python -m tests.hostile.sandbox FOLDER LANE LANES ALL|QUICK [PART]` runs every LANES-th case and
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
from tests.hostile.all_cases import chosen
from tests.hostile.case import Case
from tests.hostile.honest_tables import VERSIONS, Place, build, load, save
from tests.hostile.operations import CONDITION, baseline, told, verbs_for
from tests.hostile.seeded_bugs import plant
from tests.support.metadata_tables import SCHEMA

MEMORY = 1280 << 20  # address space beyond what the process has when the case begins
CPU_SECONDS = 20
DEEPEST = 10_000  # levels of what is damaged; JSON is written level by level
WALL_SECONDS = 90  # the machine may be busy; a hang is noticed all the same


@dataclass
class Played:
    """How a case ended."""

    label: str
    changed: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)  # the names of all files of the lake
    verbs: list[dict[str, Any]] = field(default_factory=list)
    ending: str = "whole"  # or: a signal, a time-out, an exit code
    touched: list[str] = field(default_factory=list)  # files outside the lake
    cpu: float = 0.0
    grown: int = 0  # bytes of memory beyond those of the parent


def in_child(work: Callable[[Callable[[dict[str, Any]], None]], None], wall: float) -> tuple[list[dict], str, Any]:
    """Work in a forked child that reports lines; how it ended, and what it used."""
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
    lines, timed_out = _collected(read, wall)
    if timed_out:
        os.kill(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    if timed_out:
        return lines, f"no end after {wall:.0f} s", used
    if os.WIFSIGNALED(status):
        return lines, f"ended by {signal.Signals(os.WTERMSIG(status)).name}", used
    return lines, "whole" if status == 0 else f"exit code {os.WEXITSTATUS(status)}", used


def _collected(read: int, wall: float) -> tuple[list[dict], bool]:
    """All lines until the other end closes, or until the time is up."""
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


def play(case: Case, place: Place, turn: int) -> Played:
    """Damage the table, try everything with it, and bring it back."""

    load_all()

    def damage(say: Callable[[dict[str, Any]], None]) -> None:
        sys.setrecursionlimit(DEEPEST)
        case.apply(place)
        say({"changed": place.changed_files()})

    verbs = verbs_for(turn, deletes=case.deletes)
    played = Played(case.label, known=sorted(path.name for path in place.whole))
    try:
        done, trouble, _ = in_child(damage, WALL_SECONDS)
        if trouble != "whole" or "changed" not in done[-1]:
            played.ending = f"the case itself broke: {trouble} {done}"
            return played
        played.changed = done[-1]["changed"]
        for some in [{name: verb} for name, verb in verbs.items()] if case.apart else [verbs]:
            _try(some, place, played)
        played.touched = place.touched_outside()
    finally:
        place.restore()
    return played


def _try(verbs: dict[str, Callable[[Any], Any]], place: Place, played: Played) -> None:
    """Try verbs one after the other in a child, and note how it went."""

    def work(say: Callable[[dict[str, Any]], None]) -> None:
        os.environ["NEVE_TRAP"] = str(place.outside / "mark")
        os.chdir(place.outside)  # a relative path would be looked for here, and a file written here is noticed
        _limit()
        lake = neve.connect(place.folder)
        for name, verb in verbs.items():
            say({"verb": name})
            say({"verb": name, **_tried(verb, lake)})

    _, before = _taken()
    lines, ending, used = in_child(work, WALL_SECONDS)
    if played.ending == "whole":
        played.ending = next((f"broken: {line['broken']}" for line in lines if "broken" in line), ending)
    played.cpu += used.ru_utime + used.ru_stime
    played.grown = max(played.grown, (used.ru_maxrss << 10) - before)
    played.verbs += {line["verb"]: line for line in lines if "verb" in line}.values()


def _taken() -> tuple[int, int]:
    """The address space and the memory that a process has now; what it has had at most may be a lot more."""
    space, resident, *_ = (int(pages) for pages in Path("/proc/self/statm").read_text().split())
    return space * resource.getpagesize(), resident * resource.getpagesize()


@cache
def load_all() -> None:
    """Have in memory what the children would load one by one: modules, and the parser of conditions."""
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
    gc.freeze()  # what is not looked at by the collector is not copied into every child


def _limit() -> None:
    size = _taken()[0] + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    spent = time.process_time()
    resource.setrlimit(resource.RLIMIT_CPU, (int(spent) + CPU_SECONDS, int(spent) + CPU_SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _tried(verb: Callable[[Any], Any], lake: neve.Lake) -> dict[str, Any]:
    """What came of a verb: rows, an audit, nothing to speak of, an error of ours, or one that is not."""
    try:
        return {"done": True, **told(verb(lake.table("db.t")))}
    except NeveError as e:
        return {"error": type(e).__name__, "said": str(e)}
    except BaseException as e:
        where = traceback.format_exc(limit=-3)
        return {"raw": type(e).__name__, "said": f"{e}"[:300], "where": where[-900:]}


def prepared(folder: Path) -> dict[int, Place]:
    """The honest tables, made in a child so that nothing is open here."""

    def work(say: Callable[[dict[str, Any]], None]) -> None:
        os.fsync = lambda descriptor: None  # type: ignore[assignment]
        for version in VERSIONS:
            place = build(folder / f"v{version}", version)
            place.rows = baseline(place)
            place.restore()
            save(place, folder / f"v{version}.pickle")

    lines, ending, _ = in_child(work, 300)
    if ending != "whole" or lines:
        raise RuntimeError(f"The honest tables could not be made: {ending} {lines}")
    return {version: load(folder / f"v{version}.pickle") for version in VERSIONS}


def main(folder: str, lane: str, lanes: str, amount: str, part: str = "") -> None:
    pa.set_cpu_count(1)
    plant(os.environ.get("NEVE_PLANTED", ""))
    places = prepared(Path(folder))
    for turn, case in enumerate(chosen(amount == "ALL", part)):
        if turn % int(lanes) == int(lane):
            played = play(case, places[case.version], turn)
            sys.stdout.write(json.dumps({"turn": turn, **vars(played)}) + "\n")
            sys.stdout.flush()
    rows = {str(v): places[v].rows for v in VERSIONS}
    sys.stdout.write(json.dumps({"honest": rows}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
