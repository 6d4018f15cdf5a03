"""A proof takes hours; one that was stopped goes on where it was.

Beside its figures the ledger holds when each sitting began, on which sources, and which tests came to an end. A test
that has ended, well or not, is not run again before the whole is through; what one that was broken off had written is
forgotten. When the sources have changed, or all is through, the next proof begins anew.
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

from tests.proof.results_ledger import Line, add, left_out, table_of, too_few

ROOT = Path(__file__).parents[2]
SOURCES = ("neve", "tests", "pyproject.toml", "requirements.lock", "Makefile")
THROUGH: Line = {"through": True}
# What pytest ends with when it is through: all well, some failed, none left to run.
ENDS = (0, 1, 5)


def lines_in(path: Path) -> list[Line]:
    """What a ledger holds; the last line may have been cut off with the process that wrote it."""
    written = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in written]


def begin(path: Path, sources: str) -> str:
    """Open a ledger for a sitting, with what is to be kept of the sittings before; what to say of it."""
    before = kept(lines_in(path), sources)
    sitting = {"sitting": f"{datetime.now():%Y-%m-%d %H:%M}", "sources": sources}
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text("".join(json.dumps(line) + "\n" for line in [*before, sitting]))
    new.replace(path)
    return f"{n} tests have ended in earlier sittings and are not run again\n" if (n := len(ended(before))) else ""


def kept(lines: list[Line], sources: str) -> list[Line]:
    """The lines of sittings on the same sources that are not through, without those of tests that did not end."""
    if THROUGH in lines or {line["sources"] for line in lines if "sitting" in line} != {sources}:
        return []
    return whole(lines)


def whole(lines: list[Line]) -> list[Line]:
    """The lines without those of tests that did not come to an end."""
    over = ended(lines)
    return [line for line in lines if "guarantee" not in line or line["test"] in over]


def ended(lines: Iterable[Line]) -> dict[str, bool]:
    """The tests that came to an end, and whether they passed."""
    return {line["ended"]: line["passed"] for line in lines if "ended" in line}


def digest(root: Path = ROOT) -> str:
    """What tells these sources from others."""
    found = sha256()
    for file in sorted(f for name in SOURCES for f in [root / name, *(root / name).rglob("*")] if f.is_file()):
        if "__pycache__" not in file.parts:
            found.update(f"{file.relative_to(root)}\0".encode() + sha256(file.read_bytes()).digest())
    return found.hexdigest()


class Sitting:
    """Leaves out what has ended before this sitting, and writes down what ends in it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unsure: dict[str, str] = {}  # what became of a test, until it is torn down

    @pytest.hookimpl(trylast=True)  # after the names have got their groups
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Every process must leave out the same, one that is started in the middle too."""
        lines = lines_in(self._path)
        last = max((i for i, line in enumerate(lines) if "sitting" in line), default=0)
        over = ended(lines[:last])
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in over])
        items[:] = [item for item in items if item.nodeid not in over]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One that was skipped may be possible in the next sitting; workers report to the process that started them."""
        if "PYTEST_XDIST_WORKER" in os.environ:
            return
        if report.skipped:
            left_out(report.nodeid, str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr))
        if not report.passed:
            self._unsure[report.nodeid] = report.outcome
        if report.when not in ("setup", "call"):  # torn down, or its process is gone
            outcome = self._unsure.pop(report.nodeid, "passed")
            if outcome != "skipped":
                add(self._path, {"ended": report.nodeid, "passed": outcome == "passed"})


def failed(lines: list[Line]) -> list[str]:
    """The tests that failed, in whichever sitting."""
    return [f"failed: {test}" for test, passed in ended(lines).items() if not passed]


def end(path: Path, status: int) -> int:
    """Print the table after pytest has ended with a status; what the whole proof ends with."""
    lines = lines_in(path) if status in ENDS else whole(lines_in(path))
    wrong = [*failed(lines), *too_few(lines)]
    began = [line["sitting"] for line in lines if "sitting" in line]
    told = [f"{len(began)} sittings: {', '.join(began)}"] if len(began) > 1 else []
    sys.stdout.write("\n".join(["", table_of(lines), *told, *wrong, ""]))
    if status not in ENDS:
        sys.stdout.write("Not all is through; `make proof` goes on.\n")
        return status
    add(path, THROUGH)
    return 1 if wrong else 0


if __name__ == "__main__":
    ledger, *ended_with = sys.argv[1:]
    if ended_with:
        raise SystemExit(end(Path(ledger), int(ended_with[0])))
    sys.stdout.write(begin(Path(ledger), digest()))
