"""How much was tried and what failed, one line for each harness, and the table of it.

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

# What was promised to be tried at least, by words of its guarantee.
LEAST = {
    "kill -9 at every durable step": 300,
    "every interleaving": 3_000,
    "hostile input": 2_000,
    "random sequences of 30 steps": 300,
    "other engines read": 400,
}


def add(path: Path, line: Line) -> None:
    """Write one line more; several processes do, and each line arrives whole."""
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


@dataclass
class Tally:
    """The cases of one harness: how many, which failed, and figures worth telling."""

    guarantee: str
    cases: int = 0
    failures: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    test: str = field(default_factory=lambda: os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0])

    @contextmanager
    def case(self, name: object) -> Iterator[None]:
        """One case; what it raises is noted, and the others go on."""
        self.cases += 1
        try:
            yield
        except Exception as e:
            self.failures.append(f"{name}: {type(e).__name__}: {e}")

    def figure(self, name: str, value: float = 1) -> None:
        """Add to a figure."""
        self.figures[name] = self.figures.get(name, 0) + value

    def write_down(self) -> None:
        """Add a line to the ledger, if one is kept."""
        if "NEVE_LEDGER" in os.environ:
            add(Path(os.environ["NEVE_LEDGER"]), asdict(self))

    def settle(self) -> None:
        """Fail with every failure."""
        assert not self.failures, f"{len(self.failures)} of {self.cases} cases:\n" + "\n".join(self.failures[:20])


@contextmanager
def tallied(guarantee: str) -> Iterator[Tally]:
    """A tally that is written down when the harness ends, however it ends."""
    tally, started = Tally(guarantee), monotonic()
    try:
        yield tally
        tally.settle()
    except BaseException as e:
        if not tally.failures:
            tally.failures.append(f"{type(e).__name__}: {e}")
        raise
    finally:
        tally.figure("seconds", round(monotonic() - started, 1))
        tally.write_down()


def tallies(lines: list[Line]) -> list[Tally]:
    """The figures among the lines of a ledger."""
    return [Tally(**line) for line in lines if "guarantee" in line]


def table_of(lines: list[Line]) -> str:
    """The lines of a ledger as a table, one row a guarantee, in the order in which they came."""
    rows: dict[str, Tally] = {}
    for found in tallies(lines):
        row = rows.setdefault(found.guarantee, Tally(found.guarantee))
        row.cases += found.cases
        row.failures += found.failures
        row.notes += found.notes
        for name, value in found.figures.items():
            row.figure(name, value)
    cells = [("guarantee", "cases", "failures", "figures")]
    cells += [(r.guarantee, f"{r.cases:,}", f"{len(r.failures):,}", _figures(r)) for r in rows.values()]
    widths = [max(len(row[i]) for row in cells) for i in range(3)]
    return "\n".join(
        f"{name:<{widths[0]}}  {cases:>{widths[1]}}  {failed:>{widths[2]}}  {told}"
        for name, cases, failed, told in cells
    )


def _figures(row: Tally) -> str:
    told = [f"{value:,.0f} {name}" for name, value in row.figures.items()]
    return "; ".join([*row.notes, ", ".join(told)])


def too_few(lines: list[Line]) -> list[str]:
    """What was tried less often than promised."""
    counts = {words: sum(t.cases for t in tallies(lines) if words in t.guarantee) for words in LEAST}
    return [f"too few: {words!r} {counts[words]:,} of {n:,}" for words, n in LEAST.items() if counts[words] < n]


def left_out(test: str, reason: str) -> None:
    """Write down that a test was skipped."""
    Tally(f"left out: {reason}", notes=[test], test=test).write_down()
