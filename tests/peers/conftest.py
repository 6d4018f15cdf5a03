"""One lake for Névé and for Spark with Iceberg, which runs in its own process."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

import neve
from tests.peers.agreement_counts import Tally
from tests.peers.engine_comparison import SharedLake
from tests.peers.spark import Spark
from tests.support.duckdb_reader import DuckDB
from tests.support.spark_sessions import unadaptive

TALLY, END = pytest.StashKey[Tally](), pytest.StashKey[str]()


@pytest.fixture(scope="session")
def shared_lake(lake_folder: Any, spark: SparkSession, other_spark: Spark, duckdb: DuckDB) -> SharedLake:
    return SharedLake(neve.connect(lake_folder, spark=unadaptive(spark)), other_spark, duckdb)


@pytest.fixture
def tally(request: pytest.FixtureRequest, record_property: Any) -> Iterator[Tally]:
    tally = request.node.stash[TALLY] = Tally()
    yield tally
    tally.record_in(record_property)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write the line of a test at its end: a test may fail even before it has a tally."""
    report = yield
    tally = item.stash.setdefault(TALLY, Tally())
    if report.failed and call.excinfo is not None:
        item.stash[END] = call.excinfo.exconly()[-500:]
    if report.skipped:
        tally.other_figures["tests skipped"] += 1
    if report.when == "teardown":
        line = tally.line(item.nodeid, item.stash.get(END, ""))
        if line.failures or line.figures:
            line.write_to_ledger()
    return report
