"""One lake for Névé and for Spark with Iceberg, which runs in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

import neve
from tests.dml.duckdb_peer import DuckDB
from tests.peers.jars import NotToBeHad
from tests.peers.judge import Ground
from tests.peers.spark import Spark, running
from tests.peers.tally import Tally
from tests.sessions import interpreted


@pytest.fixture(scope="session")
def lake_folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tmp_path_factory.mktemp("peers")


@pytest.fixture(scope="session")
def other_spark(lake_folder: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """Spark with Iceberg; tests that need it are skipped, aloud, where its jars cannot be had."""
    try:
        with running(lake_folder, tmp_path_factory.mktemp("other-spark")) as found:
            yield found
    except NotToBeHad as e:
        pytest.skip(f"Spark with Iceberg was not asked: {e}.")


@pytest.fixture(scope="session")
def duckdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDB]:
    witness = DuckDB(tmp_path_factory.mktemp("duckdb"))
    yield witness
    witness.stop()


@pytest.fixture(scope="session")
def ground(lake_folder: Any, spark: SparkSession, other_spark: Spark, duckdb: DuckDB) -> Ground:
    return Ground(neve.connect(lake_folder, spark=interpreted(spark, adaptive=False)), other_spark, duckdb)


@pytest.fixture
def tally(record_property: Any) -> Iterator[Tally]:
    made = Tally()
    yield made
    made.kept_in(record_property)
