"""The tables for reports, built once; no test changes them."""

from __future__ import annotations

from pathlib import Path

import pytest

import neve
from neve.report import Report, gather_report
from tests.support.report_tables import hostile_table, old_table


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> neve.Table:
    return old_table(tmp_path_factory.mktemp("old"))


@pytest.fixture(scope="session")
def report(old: neve.Table) -> Report:
    return gather_report(old.context)


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> neve.Table:
    return hostile_table(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="session")
def old_page(old: neve.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return old.report(tmp_path_factory.mktemp("page") / "old.html")
