"""Statements and compactions run in this process or on Spark; both are tried."""

from __future__ import annotations

import os
from zlib import crc32

import pytest

from neve.plan import row_change
from neve.run.spark import patch, rewrite


@pytest.fixture(autouse=True)
def engine_of_changes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables are changed in this process. Half of the tests, chosen by their names, make Spark do it.

    `NEVE_ENGINE` chooses one for all tests: `process` or `spark`.
    """
    chosen = os.environ.get("NEVE_ENGINE") or ("process", "spark")[crc32(request.node.nodeid.encode()) % 2]
    if chosen == "spark":
        monkeypatch.setattr(row_change, "MAX_ARROW_BYTES", -1)
        monkeypatch.setattr(patch, "MAX_LOCAL_BYTES", -1)
        monkeypatch.setattr(rewrite, "MAX_LOCAL_BYTES", -1)
