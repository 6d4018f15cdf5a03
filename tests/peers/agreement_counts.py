"""Count comparisons with other engines: a section at the end of a run, and a row of `make proof`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.proof import results_ledger as ledger

GUARANTEE = "other engines read the same rows and structure"
SHOWN = "listed faults shown on their tables"
_PROPERTY = "peers"


@dataclass
class Tally:
    """The comparisons of one test, by engine; reads by Névé itself do not count."""

    agreed: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)  # by the known bug
    other_figures: Counter[str] = field(default_factory=Counter)  # figures that are no comparison with another engine

    def update(self, other: Tally) -> None:
        """Add the figures of another tally."""
        for name, figures in vars(other).items():
            getattr(self, name).update(figures)

    def record_in(self, record_property: Any) -> None:
        """Add the figures to the report of the test, which reaches the summary from any process."""
        record_property(_PROPERTY, {name: dict(figures) for name, figures in vars(self).items()})

    def line(self, test: str, end: str) -> ledger.Tally:
        """Return the figures as a line of the ledger; `end` is the message of a failed test."""
        failures = [f"{test}: {name}" for name in self.wrong] or ([f"{test}: {end}"] if end else [])
        line = ledger.Tally(GUARANTEE, self.agreed.total() + self.wrong.total(), failures, test=test)
        for name, number in self.agreed.items():
            line.figure(f"by {name.split(',')[0]}", number)
        if self.skipped:
            line.figure("skipped: known bug", self.skipped.total())
        for name, number in self.other_figures.items():
            line.figure(name, number)
        return line


def summary_lines(reports: list[Any]) -> list[str]:
    """Return the figures of all tests, one line per engine; nothing if no test compared anything."""
    total = Tally()
    for report in reports:
        for name, figures in report.user_properties:
            if name == _PROPERTY:
                total.update(Tally(**{part: Counter(found) for part, found in figures.items()}))
    lines = [f"{total.agreed[name]:6} by {name}" for name in sorted(total.agreed)]
    lines += [f"{n:6} WRONG by {name}" for name, n in sorted(total.wrong.items())]
    lines += [f"{n:6} skipped for a known bug: {name}" for name, n in sorted(total.skipped.items())]
    lines += [f"{n:6} {name}" for name, n in sorted(total.other_figures.items())]
    return [f"{total.agreed.total():6} comparisons with other engines agree", *lines] if lines else []


def write_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of comparisons; a test reports its figures at teardown."""
    reports = [r for kind in terminalreporter.stats.values() for r in kind if getattr(r, "when", None) == "teardown"]
    if lines := summary_lines(reports):
        terminalreporter.section("peers")
        for line in lines:
            terminalreporter.write_line(line)
