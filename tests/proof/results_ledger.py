"""The number of cases and the failures of each harness, one line each, and a table of them.

Tests write to the file that NEVE_LEDGER names; without it nothing is written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

Line = dict[str, Any]

# Minimum number of cases by a part of the name of the guarantee.
MINIMUM_CASES = {
    "kill -9 at every durable step": 300,
    "every interleaving": 3_000,
    "hostile input": 2_000,
    "random sequences of 30 steps": 300,
    "other engines read": 400,
    "random neighbourhoods": 2_000,
}


def add(path: Path, line: Line) -> None:
    """Append a line. Several processes do so at once; each line is written completely."""
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


@dataclass
class Tally:
    """The cases of one harness: their number, the failures, and other figures."""

    guarantee: str
    cases: int = 0
    failures: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    test: str = field(default_factory=lambda: os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0])

    @contextmanager
    def case(self, name: object) -> Iterator[None]:
        """Run one case. An error is recorded, and the other cases still run."""
        self.cases += 1
        try:
            yield
        except Exception as e:
            self.failures.append(f"{name}: {type(e).__name__}: {e}")

    def figure(self, name: str, value: float = 1) -> None:
        """Add to a figure."""
        self.figures[name] = self.figures.get(name, 0) + value

    def write_to_ledger(self) -> None:
        """Append a line to the ledger, if NEVE_LEDGER is set."""
        if "NEVE_LEDGER" in os.environ:
            add(Path(os.environ["NEVE_LEDGER"]), asdict(self))

    def raise_failures(self) -> None:
        """Raise an error that lists the failures."""
        assert not self.failures, f"{len(self.failures)} of {self.cases} cases:\n" + "\n".join(self.failures[:20])


@contextmanager
def new_tally(guarantee: str) -> Iterator[Tally]:
    """Yield a tally, which is written to the ledger when the harness ends, even after an error."""
    tally, started = Tally(guarantee), monotonic()
    try:
        yield tally
        tally.raise_failures()
    except BaseException as e:
        if not tally.failures:
            tally.failures.append(f"{type(e).__name__}: {e}")
        raise
    finally:
        tally.figure("seconds", round(monotonic() - started, 1))
        tally.write_to_ledger()


def tallies(lines: list[Line]) -> list[Tally]:
    """Return the tallies among the lines of a ledger."""
    return [Tally(**line) for line in lines if "guarantee" in line]


def table_of(lines: list[Line]) -> str:
    """Format the lines of a ledger as a table, one row per guarantee, in the order of the lines."""
    rows: dict[str, Tally] = {}
    for found in tallies(lines):
        row = rows.setdefault(found.guarantee, Tally(found.guarantee))
        row.cases += found.cases
        row.failures += found.failures
        row.notes += found.notes
        for name, value in found.figures.items():
            row.figure(name, value)
    cells = [("guarantee", "cases", "failures", "figures")]
    cells += [(r.guarantee, f"{r.cases:,}", f"{len(r.failures):,}", _format_figures(r)) for r in rows.values()]
    widths = [max(len(row[i]) for row in cells) for i in range(3)]
    return "\n".join(
        f"{name:<{widths[0]}}  {cases:>{widths[1]}}  {failed:>{widths[2]}}  {figures}"
        for name, cases, failed, figures in cells
    )


def _format_figures(row: Tally) -> str:
    figures = [f"{value:,.0f} {name}" for name, value in row.figures.items()]
    return "; ".join([*row.notes, ", ".join(figures)])


def too_few(lines: list[Line]) -> list[str]:
    """Return a message for each guarantee with fewer cases than required."""
    counts = {words: sum(t.cases for t in tallies(lines) if words in t.guarantee) for words in MINIMUM_CASES}
    return [f"too few: {words!r} {counts[words]:,} of {n:,}" for words, n in MINIMUM_CASES.items() if counts[words] < n]


def record_skip(test: str, reason: str) -> None:
    """Record that a test was skipped."""
    Tally(f"skipped: {reason}", notes=[test], test=test).write_to_ledger()
