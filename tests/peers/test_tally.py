"""The comparisons of a test reach the ledger, and every kind of test failure is a failure there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.peers.agreement_counts import GUARANTEE
from tests.proof.results_ledger import table_of

pytest_plugins = ("pytester",)

CONFTEST = "from tests.peers.conftest import pytest_runtest_makereport, tally"
TESTS = """
    import pytest

    @pytest.fixture
    def broken_setup():
        raise OSError("no lake")

    def test_agrees(tally):
        tally.agreed.update({"DuckDB": 2, "Spark, manifests": 1, "Spark, entries": 1})
        tally.skipped["DuckDB ends the process"] += 1
        tally.other_figures["steps by Spark"] += 7

    def test_differs(tally):
        tally.agreed["DuckDB"] += 1
        tally.wrong["PyIceberg"] += 1
        raise AssertionError("PyIceberg: a row is missing")

    def test_breaks_off(tally):
        raise ValueError("something else")

    def test_does_not_start(broken_setup, tally):
        pass

    def test_has_no_tally():
        raise AssertionError("the fault is gone")

    def test_is_skipped(tally):
        pytest.skip("no jar")

    def test_compares_nothing(tally):
        pass
"""


@pytest.fixture
def lines(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """Return the lines that the tests above write to their own ledger."""
    monkeypatch.setenv("NEVE_LEDGER", str(tmp_path / "ledger"))
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    pytester.runpytest_inprocess("-p", "no:cacheprovider")
    return [json.loads(line) for line in (tmp_path / "ledger").read_text().splitlines()]


def test_a_line_has_the_comparisons_and_every_way_to_fail(lines: list[dict[str, Any]]):
    assert {line["guarantee"] for line in lines} == {GUARANTEE}
    assert sum(line["cases"] for line in lines) == 6
    failures = [failure.split("::")[1] for line in lines for failure in line["failures"]]
    assert failures == [
        "test_differs: PyIceberg",
        "test_breaks_off: ValueError: something else",
        "test_does_not_start: OSError: no lake",
        "test_has_no_tally: AssertionError: the fault is gone",
    ]


def test_the_figures_of_all_tests_are_added_up(lines: list[dict[str, Any]]):
    head, row = table_of(lines).splitlines()
    assert head.split() == ["guarantee", "cases", "failures", "figures"]
    figures = "3 by DuckDB, 2 by Spark, 1 skipped: known bug, 7 steps by Spark, 1 tests skipped"
    assert row.split() == [*GUARANTEE.split(), "6", "4", *figures.split()]
