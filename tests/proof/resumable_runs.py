"""Continue an interrupted proof, which takes hours in total.

Besides the figures, the ledger records when each run started, on which sources, and which tests have ended. A test that
has ended, passed or failed, does not run again before the proof is complete. Lines of an interrupted test are dropped.
If the sources have changed or the proof is complete, the next run starts from the beginning.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import pytest

from tests.proof.results_ledger import Line, add, record_skip, table_of, too_few

ROOT = Path(__file__).parents[2]
SOURCES = ("neve", "tests", "pyproject.toml", "requirements.lock", "Makefile")
COMPLETE: Line = {"complete": True}
# Exit codes of a pytest run that was not interrupted: all passed, some failed, no tests left to run.
COMPLETE_EXIT_CODES = (0, 1, 5)


def lines_in(path: Path) -> list[Line]:
    """Return the lines of a ledger. An incomplete last line of a killed process is ignored."""
    written = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in written]


def begin(path: Path, sources: str) -> str:
    """Start a run: keep the reusable lines of earlier runs in the ledger; return a message for the user."""
    before = reusable_lines(lines_in(path), sources)
    run = {"run": f"{datetime.now():%Y-%m-%d %H:%M}", "sources": sources}
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text("".join(json.dumps(line) + "\n" for line in [*before, run]))
    new.replace(path)
    return f"{n} tests have ended in earlier runs and are not run again\n" if (n := len(ended_tests(before))) else ""


def reusable_lines(lines: list[Line], sources: str) -> list[Line]:
    """Return the lines of an incomplete proof on the same sources, without those of interrupted tests."""
    if COMPLETE in lines or {line["sources"] for line in lines if "run" in line} != {sources}:
        return []
    return without_interrupted_tests(lines)


def without_interrupted_tests(lines: list[Line]) -> list[Line]:
    """Return the lines except those of tests that have not ended."""
    done = ended_tests(lines)
    return [line for line in lines if "guarantee" not in line or line["test"] in done]


def ended_tests(lines: Iterable[Line]) -> dict[str, bool]:
    """Return the tests that have ended, and whether they passed."""
    return {line["ended"]: line["passed"] for line in lines if "ended" in line}


def digest(root: Path = ROOT) -> str:
    """Return a hash of the sources."""
    found = sha256()
    for file in sorted(f for name in SOURCES for f in [root / name, *(root / name).rglob("*")] if f.is_file()):
        if "__pycache__" not in file.parts:
            found.update(f"{file.relative_to(root)}\0".encode() + sha256(file.read_bytes()).digest())
    return found.hexdigest()


class ResumableRun:
    """Pytest plugin that deselects tests that ended in earlier runs, and records tests that end in this run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unsure: dict[str, str] = {}  # outcome of a test until its teardown

    @pytest.hookimpl(trylast=True)  # after xdist has added the groups to the names
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect ended tests. Every process must deselect the same ones, even one that starts later."""
        lines = lines_in(self._path)
        last = max((i for i, line in enumerate(lines) if "run" in line), default=0)
        done = ended_tests(lines[:last])
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
        items[:] = [item for item in items if item.nodeid not in done]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record an ended test. A skipped test may run next time. Workers report to the main process."""
        if "PYTEST_XDIST_WORKER" in os.environ:
            return
        if report.skipped:
            record_skip(
                report.nodeid, str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
            )
        if not report.passed:
            self._unsure[report.nodeid] = report.outcome
        if report.when not in ("setup", "call"):  # after teardown, or its process has died
            outcome = self._unsure.pop(report.nodeid, "passed")
            if outcome != "skipped":
                add(self._path, {"ended": report.nodeid, "passed": outcome == "passed"})


def failed_tests(lines: list[Line]) -> list[str]:
    """Return a message for each test that failed in any run."""
    return [f"failed: {test}" for test, passed in ended_tests(lines).items() if not passed]


def end(path: Path, status: int) -> int:
    """Print the table after pytest has ended with a status; return the exit code of the proof."""
    lines = lines_in(path) if status in COMPLETE_EXIT_CODES else without_interrupted_tests(lines_in(path))
    wrong = [*failed_tests(lines), *too_few(lines)]
    began = [line["run"] for line in lines if "run" in line]
    runs_text = [f"{len(began)} runs: {', '.join(began)}"] if len(began) > 1 else []
    sys.stdout.write("\n".join(["", table_of(lines), *runs_text, *wrong, ""]))
    if status not in COMPLETE_EXIT_CODES:
        sys.stdout.write("The proof is not complete; `make proof` continues it.\n")
        return status
    add(path, COMPLETE)
    return 1 if wrong else 0


if __name__ == "__main__":
    ledger, *ended_with = sys.argv[1:]
    if ended_with:
        raise SystemExit(end(Path(ledger), int(ended_with[0])))
    sys.stdout.write(begin(Path(ledger), digest()))
