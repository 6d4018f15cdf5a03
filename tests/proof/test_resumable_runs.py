"""An interrupted proof continues: ended tests count once and do not run again, and failures are remembered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.proof.resumable_runs import COMPLETE_EXIT_CODES, begin, digest, end, ended_tests, lines_in

pytest_plugins = ("pytester",)

CONFTEST = """
    import os
    from pathlib import Path
    from tests.proof.resumable_runs import ResumableRun

    def pytest_configure(config):
        config.pluginmanager.register(ResumableRun(Path(os.environ["NEVE_LEDGER"])))
"""
TESTS = """
    import os
    from pathlib import Path
    import pytest
    from tests.proof.results_ledger import new_tally

    def record(name):
        with Path("executed").open("a") as file:
            file.write(name)

    @pytest.mark.xdist_group("one")
    def test_passes():
        record("a")
        with new_tally("counted") as tally, tally.case("a"):
            pass

    def test_fails():
        record("b")
        with new_tally("counted") as tally, tally.case("b"):
            raise ValueError("lost")

    def test_is_skipped():
        record("c")
        pytest.skip("no jar")

    def test_is_broken_off():
        record("d")
        with new_tally("counted") as tally:
            for n in range(3):
                with tally.case(n):
                    pass
            if not Path("undisturbed").exists():
                {stopped}
"""
MODES = {
    "alone": ("-n0", "raise KeyboardInterrupt"),
    "workers": ("-n1", "os.kill(os.getppid(), 9); os.kill(os.getpid(), 9)"),
}


@pytest.fixture(params=MODES)
def run_proof(
    request: pytest.FixtureRequest, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], int]:
    """Return a function that runs the tests above as `make proof` does and returns the exit code."""
    monkeypatch.setenv("NEVE_LEDGER", str(pytester.path / "ledger"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # the process started here is not a worker
    workers, stopped = MODES[request.param]
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS.format(stopped=stopped))

    def run() -> int:
        begin(pytester.path / "ledger", "sources")
        ran = pytester.runpytest_subprocess("-p", "no:cacheprovider", workers, "--dist", "loadgroup")
        return end(pytester.path / "ledger", int(ran.ret))

    return run


def test_an_interrupted_proof_continues_and_then_starts_over(
    run_proof: Callable[[], int], pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
):
    assert run_proof() not in COMPLETE_EXIT_CODES
    printed = capsys.readouterr().out
    assert "`make proof` continues it" in printed
    assert counts_in_table(printed) == ["counted", "2", "1"], "an interrupted test does not count"
    pytester.path.joinpath("undisturbed").touch()
    assert run_proof() == 1, "the failure of the first run stays"
    printed = capsys.readouterr().out
    assert pytester.path.joinpath("executed").read_text() == "abcdcd"
    assert "2 runs" in printed and "failed: test_an_interrupted_proof" in printed and "::test_fails" in printed
    assert counts_in_table(printed) == ["counted", "5", "1"], "an interrupted test counts once"
    assert printed.count("skipped: ") == 1
    assert run_proof() == 1
    assert pytester.path.joinpath("executed").read_text() == "abcdcdabcd", "all tests run again after a complete proof"


def counts_in_table(printed: str) -> list[str]:
    """Return the row of the table: guarantee, cases and failures."""
    [row] = [line.split()[:3] for line in printed.splitlines() if line.startswith("counted")]
    return row


def test_changed_sources_start_a_new_proof(tmp_path: Path):
    path = tmp_path / "ledger"
    begin(path, "one")
    with path.open("a") as file:
        file.write('{"ended": "test_a", "passed": true}\n{"ended": "test_b", "pa')
    assert begin(path, "one") == "1 tests have ended in earlier runs and are not run again\n"
    assert ended_tests(lines_in(path)) == {"test_a": True}
    assert begin(path, "two") == ""
    assert ended_tests(lines_in(path)) == {}


def test_the_digest_changes_with_the_sources(tmp_path: Path):
    (tmp_path / "neve").mkdir()
    (tmp_path / "neve" / "a.py").write_text("1")
    first = digest(tmp_path)
    (tmp_path / "neve" / "__pycache__").mkdir()
    (tmp_path / "neve" / "__pycache__" / "a.pyc").write_text("compiled")
    assert digest(tmp_path) == first
    (tmp_path / "neve" / "a.py").write_text("2")
    assert digest(tmp_path) != first
