"""Thousands of corrupt and malicious tables, each met in a process of its own: right rows, or one clear error.

`make test` plays a spread of them, NEVE_PROOF=all one of each kind and a larger spread. One by name:
`python -m tests.hostile.sandbox_runner "cut: v2: manifest at 17"`.
"""

from __future__ import annotations

import sys

import pytest

from tests.hostile.all_cases import FULL, PINNED, QUICK
from tests.hostile.sandbox_runner import Report, run
from tests.proof.results_ledger import tallied
from tests.support.coverage import IS_FULL

EXPECTED = FULL if IS_FULL else len(PINNED) + QUICK

pytestmark = pytest.mark.xdist_group("hostile tables")  # all are met once, for both tests


@pytest.fixture(scope="module")
def report() -> Report:
    return run("ALL" if IS_FULL else "QUICK")


def test_hostile_tables_do_no_harm(report: Report, capsys: pytest.CaptureFixture[str]):
    with tallied("hostile input: right rows or one clear error") as tally:
        tally.cases = report.cases
        tally.failures += [f"{label}: {'; '.join(found)}" for label, found in report.faults.items()]
        for what, count in report.outcomes.items():
            tally.figure(what, count)
        with capsys.disabled():
            sys.stdout.write(f"\n{report.line}\n")
    assert report.cases == EXPECTED


def test_every_way_to_end_well_is_met(report: Report):
    """A harness whose damage is never noticed, or always, would prove little."""
    assert report.outcomes["refused"] > report.cases // 4
    assert report.outcomes["same"] > report.cases // 10
