"""Change the sources one place at a time, and see whether a test notices.

Usage: `python -m tests.mutants FOLDER`, or `make mutants`. FOLDER holds what was recorded by `covering_tests`, and the
results, so that an interrupted run continues. A mutant that was killed is not tried again while its function stays as
it is: `killed.txt` has their keys, so that a run on another machine continues too. Delete lines there, or the
file, to try them again. Ends with a table, and fails if fewer than 95 % were killed, or if a survivor has no reason in
`survivors.toml`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir

from tests.mutants.covering_tests import ROOT, CoveringTest, choose_tests, mutated_modules, read_covering_tests
from tests.mutants.mutation_operators import Mutant, keyed, mutants_of
from tests.mutants.one_mutant import preload_libraries, run_tests_on

REASONS = Path(__file__).with_name("survivors.toml")
KILLED = Path(__file__).with_name("killed.txt")
WANTED = 0.95
# First a few quick tests, then, if all pass, more of them.
ROUNDS = ((6.0, 40), (60.0, 400))
RUNNING = int(os.environ.get("TESTERS", "2"))


@dataclass(frozen=True)
class Result:
    """What became of a mutant: killed, survived, or not covered by any test."""

    key: str
    outcome: str
    tests: int = 0


@dataclass
class Ledger:
    """The results so far, in a file."""

    path: Path

    def read(self) -> dict[str, Result]:
        """Return the last result of each mutant."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return {result.key: result for result in (Result(**json.loads(line)) for line in lines)}

    def add(self, result: Result) -> None:
        """Record a result."""
        with self.path.open("a") as file:
            file.write(json.dumps(vars(result)) + "\n")


def read_killed() -> dict[str, Result]:
    """Return the mutants that earlier runs have killed, here or elsewhere."""
    keys = KILLED.read_text().split() if KILLED.exists() else []
    return {key: Result(key, "killed") for key in keys}


def write_killed(mutants: Mapping[str, Mutant], results: Mapping[str, Result]) -> None:
    """Record which of the mutants that exist are killed."""
    keys = sorted(key for key in mutants if key in results and results[key].outcome == "killed")
    KILLED.write_text("".join(f"{key}\n" for key in keys))


def waiting(mutants: Mapping[str, Mutant], done: Mapping[str, Result]) -> dict[str, Mutant]:
    """Return the mutants that have to be tried: those that were not killed before."""
    return {key: m for key, m in mutants.items() if done.get(key, Result("", "")).outcome != "killed"}


def try_all(mutants: Mapping[str, Mutant], tests: dict[tuple[str, int], list[CoveringTest]], ledger: Ledger) -> None:
    """Run the tests of each mutant, several mutants at a time."""
    running: dict[int, tuple[str, int, int]] = {}  # by process: the key of the mutant, the round, its number of tests
    queue = [(key, 0) for key in reversed([*mutants])]
    started, ended = time.monotonic(), 0
    while queue or running:
        while queue and len(running) < RUNNING:
            key, number = queue.pop()
            mutant = mutants[key]
            chosen = choose_tests(tests_of(mutant, tests), mutant.path, *ROUNDS[number])
            if not chosen:
                ledger.add(Result(key, "not covered"))
                continue
            running[run_in_child(mutant, chosen, ROUNDS[number][0])] = (key, number, len(chosen))
        if not running:
            break
        process, status = os.wait()
        key, number, count = running.pop(process)
        clean_up_after(process)
        is_killed = status != 0
        if not is_killed and number + 1 < len(ROUNDS) and len(tests_of(mutants[key], tests)) > count:
            queue.append((key, number + 1))
            continue
        ledger.add(Result(key, "killed" if is_killed else "survived", count))
        ended += 1
        if ended % 25 == 0:
            minutes = (time.monotonic() - started) / 60
            tell(f"{ended} of {len(mutants)} in {minutes:.0f} minutes")


def tests_of(mutant: Mutant, tests: dict[tuple[str, int], list[CoveringTest]]) -> list[CoveringTest]:
    """Return the tests that run the changed line, or the first line of its statement."""
    return tests.get((mutant.path, mutant.line)) or tests.get((mutant.path, mutant.statement_line)) or []


def existing_tests(tests: dict[tuple[str, int], list[CoveringTest]]) -> dict[tuple[str, int], list[CoveringTest]]:
    """Leave out tests that exist no more: their absence must not look like a failure."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--no-header", "-p", "no:xdist"]
    names = set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines())
    kept = {place: [test for test in found if test.name in names] for place, found in tests.items()}
    if not any(kept.values()):
        sys.exit("No test is recorded. Run `make mutants` without its folder first.")
    return kept


def run_in_child(mutant: Mutant, tests: list[str], seconds: float) -> int:
    """Start a process that runs tests on a mutant; it ends with 0 only if all pass in time."""
    process = os.fork()
    if process:
        return process
    os.setsid()
    signal.alarm(int(30 + 10 * seconds))  # an endless loop is a failure
    os._exit(run_tests_on(mutant, tests, scratch_of(os.getpid())))


def scratch_of(process: int) -> Path:
    """Return the folder for the temporary files of a process."""
    return Path(gettempdir()) / f"neve-mutant-{process}"


def clean_up_after(process: int) -> None:
    """Stop what a process has started, and delete its files."""
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    rmtree(scratch_of(process), ignore_errors=True)


def table_of(mutants: Mapping[str, Mutant], results: Mapping[str, Result], reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the report: counts by folder, then the survivors."""
    counts: dict[str, Counter[str]] = {}
    for key, mutant in mutants.items():
        outcome = results.get(key, Result("", "not tried")).outcome
        counts.setdefault(str(Path(mutant.path).parent), Counter())[outcome] += 1
    yield f"{'folder':28} {'mutants':>8} {'killed':>8} {'survived':>9} {'not covered':>12} {'killed %':>9}"
    for folder, found in (*sorted(counts.items()), ("all", sum(counts.values(), Counter()))):
        share = 100 * found["killed"] / max(found.total(), 1)
        line = f"{folder:28} {found.total():8} {found['killed']:8} {found['survived']:9} {found['not covered']:12}"
        yield f"{line} {share:9.1f}"
    for mutant in waiting(mutants, results).values():
        yield f"{mutant.name}\n    {mutant.text}\n    {reasons.get(mutant.place, 'no reason given')}"


def tell(*lines: str) -> None:
    """Print lines at once."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def main() -> None:
    """Try the mutants that have not been killed yet, and report."""
    folder = Path(sys.argv[1])
    mutants = keyed([m for module in mutated_modules() for m in mutants_of(module, ROOT)])
    wanted = {key: m for key, m in mutants.items() if len(sys.argv) < 3 or sys.argv[2] in m.path}
    ledger = Ledger(folder / "results.jsonl")
    preload_libraries()
    tests = existing_tests(read_covering_tests(folder))
    try:
        try_all(waiting(wanted, read_killed() | ledger.read()), tests, ledger)
    finally:
        results = read_killed() | ledger.read()
        write_killed(mutants, results)
    reasons = {
        place: reason for group in tomllib.loads(REASONS.read_text()).values() for place, reason in group.items()
    }
    tell(*table_of(wanted, results, reasons))
    alive = [*waiting(wanted, results).values()]
    stale = reasons.keys() - {m.place for m in alive} if wanted == mutants else set()
    for place in sorted(stale):
        tell(f"survivors.toml: {place} does not survive, or does not exist any more")
    is_enough = len(alive) <= (1 - WANTED) * len(wanted)
    sys.exit(0 if is_enough and not stale and all(m.place in reasons for m in alive) else 1)


if __name__ == "__main__":
    main()
