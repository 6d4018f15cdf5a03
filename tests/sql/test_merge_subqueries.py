"""Subqueries in MERGE: allowed in values and refused in conditions, as by Spark with Iceberg."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import neve
from neve.errors import UserError
from tests.peers.spark import Spark, SparkSaid

MERGE = "MERGE INTO {t} AS t USING (SELECT 1L AS id UNION ALL SELECT 9L) AS s ON t.id = s.id"


@pytest.fixture(scope="module")
def lake(spark: SparkSession, lake_folder: Path, other_spark: Spark) -> neve.Lake:
    lake = neve.connect(lake_folder, spark=spark)
    for name in ("neve", "spark"):
        lake.sql(f"CREATE TABLE sub.{name} (id bigint, v bigint)")
        lake.sql(f"INSERT INTO sub.{name} VALUES (1, 10), (2, 20)")
    lake.sql("CREATE TABLE sub.other (x bigint)")
    lake.sql("INSERT INTO sub.other VALUES (5), (6)")
    return lake


@pytest.mark.parametrize(
    "statement",
    [
        f"{MERGE} AND t.id < (SELECT max(x) FROM sub.other) WHEN MATCHED THEN DELETE",
        f"{MERGE} WHEN MATCHED AND t.id NOT IN (SELECT x FROM sub.other) THEN DELETE",
        f"{MERGE} WHEN MATCHED AND EXISTS (SELECT 1 FROM sub.other WHERE x = t.v) THEN UPDATE SET v = 0",
        f"{MERGE} WHEN NOT MATCHED AND s.id IN (SELECT x FROM sub.other) THEN INSERT (id) VALUES (s.id)",
    ],
)
def test_a_condition_has_no_subquery(lake, other_spark, statement):
    with pytest.raises(UserError, match=r"cannot contain a subquery. Join it into the source"):
        lake.sql(statement.format(t="sub.neve"))
    with pytest.raises(SparkSaid, match="Subqueries are not allowed"):
        other_spark.sql(statement.format(t="sub.spark"))


def test_a_value_may_be_a_subquery(lake, other_spark):
    maximum = "(SELECT max(x) FROM sub.other)"
    statement = (
        f"{MERGE} WHEN MATCHED THEN UPDATE SET v = t.v + {maximum} "
        f"WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, {maximum} + (SELECT count(*) FROM {{t}}))"
    )
    lake.sql(statement.format(t="sub.neve"))
    theirs = other_spark.sql(statement.format(t="sub.spark"), "SELECT * FROM sub.spark ORDER BY id").to_pylist()
    assert [row.asDict() for row in lake.sql("SELECT * FROM sub.neve ORDER BY id").collect()] == theirs
    assert theirs == [{"id": 1, "v": 16}, {"id": 2, "v": 20}, {"id": 9, "v": 8}]
