"""Statements and compactions run in this process or on Spark; both are tried."""

from __future__ import annotations

import os
from zlib import crc32

import pytest

from neve.plan import row_change
from neve.run.spark import write
from neve.run.spark.writing_job import LocalLimits

SOURCE_BYTES = 32 << 20
ENGINES = ("process", "carry", "spark")


def use_engine(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    """Choose who finds and who carries rows.

    `process`: Arrow, in this process. `carry`: Arrow finds the rows, Spark's tasks carry them. `spark`: Spark finds
    them too, and its tasks get the changes from Spark.
    """
    in_process, found_here = (1 << 40 if engine in names else -1 for names in (("process",), ("process", "carry")))
    monkeypatch.setattr(row_change, "MAX_ARROW_BYTES", found_here)
    monkeypatch.setattr(write, "MAX_COLLECTED_BYTES", found_here)
    monkeypatch.setattr(LocalLimits, "of", lambda spark: LocalLimits(in_process, in_process, SOURCE_BYTES))


@pytest.fixture(autouse=True)
def engine_of_changes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables are changed in this process. Two of three tests, chosen by their names, make Spark do it.

    `NEVE_ENGINE` chooses one way for all tests.
    """
    use_engine(monkeypatch, os.environ.get("NEVE_ENGINE") or ENGINES[crc32(request.node.nodeid.encode()) % 3])


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, engine_of_changes: None) -> str:
    """All three ways, one after the other."""
    use_engine(monkeypatch, request.param)
    return str(request.param)
