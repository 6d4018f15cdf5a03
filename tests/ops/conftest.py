"""Statements and compactions run in this process or on Spark; both are tried."""

from __future__ import annotations

import os
from zlib import crc32

import pytest

from neve.ops.rows import apply_change
from neve.plan import row_change
from neve.run.spark import patch, rewrite, write

ENGINES = ("process", "carry", "spark")


@pytest.fixture(autouse=True)
def engine_of_changes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables are changed in this process. Two of three tests, chosen by their names, make Spark do it.

    `NEVE_ENGINE` chooses one way for all tests: `process`; `carry`, where Arrow finds the rows and Spark's tasks carry
    them; or `spark`, where Spark finds them too.
    """
    chosen = os.environ.get("NEVE_ENGINE") or ENGINES[crc32(request.node.nodeid.encode()) % len(ENGINES)]
    if chosen == "spark":
        monkeypatch.setattr(row_change, "MAX_ARROW_BYTES", -1)
        monkeypatch.setattr(write, "MAX_COLLECTED_BYTES", -1)
    if chosen in ("carry", "spark"):
        monkeypatch.setattr(patch, "MAX_LOCAL_BYTES", -1)
        monkeypatch.setattr(rewrite, "MAX_LOCAL_BYTES", -1)
        monkeypatch.setattr(apply_change, "MAX_CARRIED_BYTES", -1)
