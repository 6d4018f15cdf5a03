"""A proof that was stopped goes on: what has ended is counted once and not run again, and no failure is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.proof.resumable_runs import ENDS, begin, digest, end, ended, lines_in

pytest_plugins = ("pytester",)

CONFTEST = """
    import os
    from pathlib import Path
    from tests.proof.resumable_runs import Sitting

    def pytest_configure(config):
        config.pluginmanager.register(Sitting(Path(os.environ["NEVE_LEDGER"])))
"""
TESTS = """
    import os
    from pathlib import Path
    import pytest
    from tests.proof.results_ledger import tallied

    def played(name):
        with Path("played").open("a") as file:
            file.write(name)

    @pytest.mark.xdist_group("one")
    def test_passes():
        played("a")
        with tallied("kept") as tally, tally.case("a"):
            pass

    def test_fails():
        played("b")
        with tallied("kept") as tally, tally.case("b"):
            raise ValueError("lost")

    def test_is_skipped():
        played("c")
        pytest.skip("no jar")

    def test_is_broken_off():
        played("d")
        with tallied("kept") as tally:
            for n in range(3):
                with tally.case(n):
                    pass
            if not Path("undisturbed").exists():
                {stopped}
"""
HOW = {
    "alone": ("-n0", "raise KeyboardInterrupt"),
    "workers": ("-n1", "os.kill(os.getppid(), 9); os.kill(os.getpid(), 9)"),
}


@pytest.fixture(params=HOW)
def sit(
    request: pytest.FixtureRequest, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], int]:
    """Play the tests above for a sitting, as `make proof` does; what it ends with."""
    monkeypatch.setenv("NEVE_LEDGER", str(pytester.path / "ledger"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # what is started here is none
    workers, stopped = HOW[request.param]
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS.format(stopped=stopped))

    def sitting() -> int:
        begin(pytester.path / "ledger", "sources")
        ran = pytester.runpytest_subprocess("-p", "no:cacheprovider", workers, "--dist", "loadgroup")
        return end(pytester.path / "ledger", int(ran.ret))

    return sitting


def test_a_proof_goes_on_and_then_begins_anew(
    sit: Callable[[], int], pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
):
    assert sit() not in ENDS
    told = capsys.readouterr().out
    assert "`make proof` goes on" in told
    assert counted(told) == ["kept", "2", "1"], "what was broken off does not count"
    pytester.path.joinpath("undisturbed").touch()
    assert sit() == 1, "the failure of the first sitting stays"
    told = capsys.readouterr().out
    assert pytester.path.joinpath("played").read_text() == "abcdcd"
    assert "2 sittings" in told and "failed: test_a_proof" in told and "::test_fails" in told
    assert counted(told) == ["kept", "5", "1"], "what was broken off counts once"
    assert told.count("left out: ") == 1
    assert sit() == 1
    assert pytester.path.joinpath("played").read_text() == "abcdcdabcd", "after the whole is through"


def counted(told: str) -> list[str]:
    """The row of the table: its guarantee, cases and failures."""
    [row] = [line.split()[:3] for line in told.splitlines() if line.startswith("kept")]
    return row


def test_other_sources_begin_anew(tmp_path: Path):
    path = tmp_path / "ledger"
    begin(path, "one")
    with path.open("a") as file:
        file.write('{"ended": "test_a", "passed": true}\n{"ended": "test_b", "pa')
    assert begin(path, "one") == "1 tests have ended in earlier sittings and are not run again\n"
    assert ended(lines_in(path)) == {"test_a": True}
    assert begin(path, "two") == ""
    assert ended(lines_in(path)) == {}


def test_sources_are_told_apart(tmp_path: Path):
    (tmp_path / "neve").mkdir()
    (tmp_path / "neve" / "a.py").write_text("1")
    first = digest(tmp_path)
    (tmp_path / "neve" / "__pycache__").mkdir()
    (tmp_path / "neve" / "__pycache__" / "a.pyc").write_text("compiled")
    assert digest(tmp_path) == first
    (tmp_path / "neve" / "a.py").write_text("2")
    assert digest(tmp_path) != first
