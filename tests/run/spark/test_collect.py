"""Few rows come from Spark's tasks into this process in one job; of many, tasks stop sending."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from neve.run.change_tally import CLAUSE_COLUMN, FILE_COLUMN, POSITION_COLUMN, Effects
from neve.run.spark import write
from neve.run.spark.arrow_exchange import collect_if_small
from neve.run.spark.write import collect_changes

KIB, MIB = 1 << 10, 1 << 20
EFFECTS = Effects(removes=(True,), writes=(True,))


def test_rows_of_all_tasks_arrive_under_their_names(spark: SparkSession):
    rows = spark.range(0, 10_000, 1, 4).selectExpr("id", "id % 3 AS `a.b`", "CAST(id AS string) AS `c``d`")
    found = collect_if_small(rows, MIB, MIB)
    assert found is not None
    assert found.sort_by("id").to_pydict() == {
        "id": list(range(10_000)),
        "a.b": [n % 3 for n in range(10_000)],
        "c`d": [str(n) for n in range(10_000)],
    }


def test_values_are_those_of_spark(spark: SparkSession):
    rows = spark.sql("SELECT TIMESTAMP '2026-03-08 02:30:00Z' AS at, 1.50BD AS price, named_struct('x', array(1)) AS s")
    found = collect_if_small(rows, MIB, MIB)
    assert found is not None
    assert found.to_pylist() == [
        {"at": datetime(2026, 3, 8, 2, 30, tzinfo=UTC), "price": Decimal("1.50"), "s": {"x": [1]}}
    ]


def test_no_rows_have_their_columns(spark: SparkSession):
    found = collect_if_small(spark.range(0).selectExpr("id", "'x' AS name"), MIB, MIB)
    assert found is not None
    assert (found.num_rows, found.column_names) == (0, ["id", "name"])


@pytest.mark.parametrize("limits", [(10 * KIB, MIB), (MIB, 10 * KIB)])
def test_many_rows_are_left_to_spark(spark: SparkSession, limits: tuple[int, int]):
    assert collect_if_small(spark.range(0, 10_000, 1, 2), *limits) is None


@pytest.mark.parametrize(
    ("max_task_bytes", "max_bytes", "is_collected"), [(MIB, MIB, True), (KIB, MIB, True), (MIB, KIB, False)]
)
def test_changes_are_collected_if_they_are_few(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, max_task_bytes: int, max_bytes: int, is_collected: bool
):
    monkeypatch.setattr(write, "MAX_TASK_BYTES", max_task_bytes)
    monkeypatch.setattr(write, "MAX_COLLECTED_BYTES", max_bytes)
    tally, found = collect_changes(changes(spark), EFFECTS)
    assert tally.rows_by_clause == (2000,)
    assert {file: p.cardinality for file, p in tally.removed_positions.items()} == {0: 1000, 1: 1000}
    if not is_collected:
        assert found is None
        return
    assert isinstance(found, pa.Table)
    assert found.sort_by(POSITION_COLUMN)["name"].to_pylist() == [f"n{n}" for n in range(2000)]


def changes(spark: SparkSession) -> DataFrame:
    return spark.range(0, 2000, 1, 2).selectExpr(
        f"CAST(id % 2 AS int) AS {FILE_COLUMN}",
        f"id AS {POSITION_COLUMN}",
        f"0 AS {CLAUSE_COLUMN}",
        "concat('n', id) AS name",
    )
