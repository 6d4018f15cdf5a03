"""Thousands of corrupt and malicious tables, each read in its own process: correct rows, or one clear error.

`make test` runs a sample, NEVE_PROOF=all one case of each kind and a larger sample. To run one by name:
`python -m tests.hostile.sandbox_runner "cut: v2: manifest at 17"`.
"""

from __future__ import annotations

import sys

import pytest

from tests.hostile.all_cases import FULL, PINNED, QUICK
from tests.hostile.sandbox_runner import Report, run
from tests.proof.results_ledger import new_tally
from tests.support.coverage import IS_FULL

EXPECTED = FULL if IS_FULL else len(PINNED) + QUICK

pytestmark = pytest.mark.xdist_group("hostile tables")  # all cases run once, for both tests


@pytest.fixture(scope="module")
def report() -> Report:
    return run("ALL" if IS_FULL else "QUICK")


def test_hostile_tables_do_no_harm(report: Report, capsys: pytest.CaptureFixture[str]):
    with new_tally("hostile input: right rows or one clear error") as tally:
        tally.cases = report.cases
        tally.failures += [f"{label}: {'; '.join(found)}" for label, found in report.faults.items()]
        for what, count in report.outcomes.items():
            tally.figure(what, count)
        with capsys.disabled():
            sys.stdout.write(f"\n{report.line}\n")
    assert report.cases == EXPECTED


def test_every_valid_outcome_occurs(report: Report):
    """A harness whose damage is never or always detected would prove little."""
    assert report.outcomes["rejected"] > report.cases // 4
    assert report.outcomes["same"] > report.cases // 10
