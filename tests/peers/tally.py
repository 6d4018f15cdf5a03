"""How often which engine was asked and agreed, for the summary at the end of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

_PROPERTY = "peers"


@dataclass
class Tally:
    """Comparisons of one test: by engine, and those left out for a fault that is listed."""

    agreed: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)

    def kept_in(self, record_property: Any) -> None:
        """Hand the figures to the report of the test, which reaches the summary from any process."""
        record_property(_PROPERTY, {"agreed": dict(self.agreed), "left_out": dict(self.left_out)})


def summary_lines(reports: list[Any]) -> list[str]:
    """The figures of all tests, a line for each engine; nothing when none compared anything."""
    total = Tally()
    for report in reports:
        for name, figures in report.user_properties:
            if name == _PROPERTY:
                total.agreed.update(figures["agreed"])
                total.left_out.update(figures["left_out"])
    lines = [f"{total.agreed[name]:6} by {name}" for name in sorted(total.agreed)]
    lines += [f"{n:6} not asked for a fault that is listed: {name}" for name, n in sorted(total.left_out.items())]
    return [f"{total.agreed.total():6} comparisons with other engines agree", *lines] if lines else []


def write_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end how much was compared; a test hands its figures over when it is torn down."""
    reports = [r for kind in terminalreporter.stats.values() for r in kind if getattr(r, "when", None) == "teardown"]
    if lines := summary_lines(reports):
        terminalreporter.section("peers")
        for line in lines:
            terminalreporter.write_line(line)
