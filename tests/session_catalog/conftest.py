"""Two lakes attached to one session, with a table of the same name in each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import neve
from neve import attach, detach
from tests.support.spark_sessions import names_in

# Names that a test may leave in the session; they are dropped after it.
LEFT = ("t", "u", "v", "w", "tv", "lake", "cached")


@pytest.fixture
def lakes(spark: SparkSession, tmp_path) -> Iterator[dict[str, neve.Lake]]:
    """The lakes `lake` and `other`; `db.t` of each holds the name of its lake."""
    lakes = {name: neve.connect(tmp_path / name, spark=spark) for name in ("lake", "other")}
    for name, each in lakes.items():
        each.create_table("db.t", "id bigint, s string", format_version=2).append([{"id": 1, "s": name}])
        attach(spark, each, name=name)
    before = names_in(spark)
    yield lakes
    detach(spark)
    for name in LEFT:
        spark.catalog.dropTempView(name)
    for name in names_in(spark) - before - set(LEFT):
        spark.sql(f"DROP TABLE {name}")


@pytest.fixture
def of(spark: SparkSession, lakes):
    """Return the values of the column `s` of a table."""
    return lambda name: sorted(row.s for row in spark.sql(f"SELECT s FROM {name}").collect())
