"""How often which other engine was asked and agreed: a section at the end of a run, and a row of `make proof`."""

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
    """What one test compared, each by the engine asked; Névé's own readings are none of it."""

    agreed: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)  # by the fault that is listed
    told: Counter[str] = field(default_factory=Counter)  # worth a figure, but no comparison with another engine

    def update(self, other: Tally) -> None:
        """Add the figures of another tally."""
        for name, figures in vars(other).items():
            getattr(self, name).update(figures)

    def kept_in(self, record_property: Any) -> None:
        """Hand the figures to the report of the test, which reaches the summary from any process."""
        record_property(_PROPERTY, {name: dict(figures) for name, figures in vars(self).items()})

    def line(self, test: str, end: str) -> ledger.Tally:
        """The figures as a line of the ledger; `end` is what a test that failed said, however it failed."""
        failures = [f"{test}: {name}" for name in self.wrong] or ([f"{test}: {end}"] if end else [])
        line = ledger.Tally(GUARANTEE, self.agreed.total() + self.wrong.total(), failures, test=test)
        for name, number in self.agreed.items():
            line.figure(f"by {name.split(',')[0]}", number)
        if self.left_out:
            line.figure("not asked: listed fault", self.left_out.total())
        for name, number in self.told.items():
            line.figure(name, number)
        return line


def summary_lines(reports: list[Any]) -> list[str]:
    """The figures of all tests, a line for each engine; nothing when none compared anything."""
    total = Tally()
    for report in reports:
        for name, figures in report.user_properties:
            if name == _PROPERTY:
                total.update(Tally(**{part: Counter(found) for part, found in figures.items()}))
    lines = [f"{total.agreed[name]:6} by {name}" for name in sorted(total.agreed)]
    lines += [f"{n:6} WRONG by {name}" for name, n in sorted(total.wrong.items())]
    lines += [f"{n:6} not asked for a fault that is listed: {name}" for name, n in sorted(total.left_out.items())]
    lines += [f"{n:6} {name}" for name, n in sorted(total.told.items())]
    return [f"{total.agreed.total():6} comparisons with other engines agree", *lines] if lines else []


def write_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end how much was compared; a test hands its figures over when it is torn down."""
    reports = [r for kind in terminalreporter.stats.values() for r in kind if getattr(r, "when", None) == "teardown"]
    if lines := summary_lines(reports):
        terminalreporter.section("peers")
        for line in lines:
            terminalreporter.write_line(line)
