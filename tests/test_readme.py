"""What the README shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.compile(r"```python\n(.*?)```\n\n```\n(.*?)```", re.DOTALL)


def same_for_all(text: str) -> list[str]:
    """The lines without what differs between runs: ids, and sizes that follow the version of the Parquet writer."""
    return [re.sub(r"\d+…|\d{10,}|\d+(?= bytes)", "#", line.rstrip()) for line in text.strip().splitlines()]


def test_the_examples_print_what_stands_below_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    examples = EXAMPLES.findall(README.read_text())
    assert len(examples) == 2
    names: dict[str, object] = {}
    for code, shown in examples:
        exec(code, names)
        assert same_for_all(capsys.readouterr().out) == same_for_all(shown)
