"""The examples of the README and the documentation run and print the output shown."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import indent

import pytest
from pyspark.sql import SparkSession

from tests.docs.examples import ROOT, examples_of, is_slow, pages, run, without_varying_parts
from tests.support.spark_sessions import compiled


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """A session that no other test has changed; the examples find it as they find a user's."""
    return spark.newSession()


@pytest.mark.parametrize("page", pages())
def test_examples_print_what_stands_below_them(
    page: str, spark: SparkSession, session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    text = (ROOT / page).read_text()
    if is_slow(text) and os.environ.get("NEVE_PROOF") != "all":
        pytest.skip("run by make docs")
    session = compiled(spark) if is_slow(text) else session
    # Spark looks its formats up in the session that is active in the JVM: the one that was used last.
    SparkSession._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: session)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda builder: session)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for example in examples_of(text):
        for printed, shown in run(example, names):
            assert without_varying_parts(printed) == without_varying_parts(shown), f"{page}, line {example.line}"


def test_an_example_that_prints_something_else_is_noticed():
    right = "```python\nprint('right')\n```\n\n```\nright\n```\n"
    wrong = right.replace("\nright\n", "\nwrong\n")
    silent = "```python\nprint('right')\n```\n"
    examples = examples_of(f"{right}\n{wrong}\n{silent}\n{indent(right, '    ')}")
    outcomes = [
        without_varying_parts(printed) == without_varying_parts(shown)
        for e in examples
        for printed, shown in run(e, {})
    ]
    assert outcomes == [True, False, False, True]


def test_the_readme_is_among_the_pages_and_its_example_has_ten_lines():
    assert "README.md" in pages()
    (example,) = examples_of((ROOT / "README.md").read_text())
    assert len([line for line in example.code.splitlines() if line.strip()]) == 10
