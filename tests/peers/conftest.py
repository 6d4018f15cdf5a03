"""One lake for Névé and for Spark with Iceberg, which runs in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

import neve
from tests.dml.duckdb_peer import DuckDB
from tests.peers.judge import Ground
from tests.peers.spark import Spark
from tests.peers.tally import Tally
from tests.sessions import unadaptive


@pytest.fixture(scope="session")
def ground(lake_folder: Any, spark: SparkSession, other_spark: Spark, duckdb: DuckDB) -> Ground:
    return Ground(neve.connect(lake_folder, spark=unadaptive(spark)), other_spark, duckdb)


@pytest.fixture
def tally(record_property: Any) -> Iterator[Tally]:
    made = Tally()
    yield made
    made.kept_in(record_property)
