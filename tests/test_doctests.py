"""The examples in docstrings run, and say what really comes out.

Each module has a folder of its own to run in. Examples of verbs may use `t`, a table of three rows by region.
"""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import neve

PACKAGE = Path(neve.__file__).parent
USE_SPARK = ("neve.ops", "neve.table", "neve.session_catalog")


def modules_with_examples() -> list[str]:
    found = (path for path in sorted(PACKAGE.rglob("*.py")) if ">>> " in path.read_text())
    names = (".".join(("neve", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in found)
    return [name.removesuffix(".__init__") for name in names]


def run(name: str, **names: object) -> None:
    module = import_module(name)
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for example in finder.find(module, globs={**vars(module), **names}):
        runner.run(example)
    assert runner.tries and not runner.failures


def uses_spark(name: str) -> bool:
    return name == "neve" or name.startswith(USE_SPARK)


MODULES = modules_with_examples()


@pytest.mark.parametrize("name", [m for m in MODULES if not uses_spark(m)])
def test_examples_are_true(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    run(name)


@pytest.mark.parametrize("name", [m for m in MODULES if uses_spark(m)])
def test_examples_on_spark_are_true(name: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    t = neve.connect("shop", spark=spark).create_table("db.sales", "id bigint, region string", ["region"])
    t.append([{"id": 1, "region": "eu"}, {"id": 2, "region": "us"}, {"id": 3, "region": "eu"}])
    run(name, t=t)


def test_no_example_is_skipped():
    skipped = [str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.py") if "doctest: +SKIP" in p.read_text()]
    assert not skipped
