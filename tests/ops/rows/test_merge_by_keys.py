"""If ON compares nothing but keys, Arrow joins the rows of a small source; the results are those of Spark's join."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import neve
from neve.ops.rows.merge_rows import MergeJob
from neve.table import Table
from tests.ops.conftest import use_engine
from tests.support.tables import unchanged

DDL = "id int, part string, name string, place struct<city: string, floor: int>"


@pytest.fixture
def table(spark_lake: neve.Lake, monkeypatch: pytest.MonkeyPatch) -> Table:
    use_engine(monkeypatch, "process")
    made = spark_lake.create_table("db.t", DDL, format_version=3)
    keys = [(None, "a"), (1, None), *((n, "ab"[n % 2]) for n in range(2, 8))]
    made.append([{"id": i, "part": p, "name": f"n{i}", "place": {"city": "x", "floor": i}} for i, p in keys])
    return made.refresh()


@pytest.fixture
def spark_joins(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One entry for each join that Spark makes."""
    joins: list[bool] = []
    join_rows = MergeJob._join_rows

    def spy(self: MergeJob, target: DataFrame) -> DataFrame:
        joins.append(True)
        return join_rows(self, target)

    monkeypatch.setattr(MergeJob, "_join_rows", spy)
    return joins


SOURCE = pa.table(
    {
        "id": pa.array([None, 1, 2, 3, 1 << 40], pa.int64()),  # longs, and one that no int equals
        "part": ["a", None, "a", "a", "a"],
        "Label": ["0", "1", "2", "3", "4"],
    }
)
PAIRS = "t.id = s.id AND s.part = t.part"


def names(table: Table) -> list[Any]:
    return list(table.refresh().to_arrow()["name"].to_pylist())


def test_nulls_match_nothing_and_numbers_of_two_widths_compare(table: Table, spark_joins: list[bool]):
    table.merge(SOURCE, PAIRS).when_matched_update({"name": "s.label"}).execute()
    assert {row["id"] for row in table.refresh().to_arrow().to_pylist() if row["name"] == "2"} == {2}
    assert sorted(n for n in names(table) if len(n) == 1) == ["2"] and not spark_joins


def test_expressions_name_columns_with_and_without_alias(table: Table, spark_joins: list[bool]):
    value = "concat(label, '-', t.name, '-', place.city, '-', t.place.floor, '-', s.part, '-', `s`.`Label`)"
    merge = table.merge(SOURCE, PAIRS).when_matched_update({"name": value}, condition="Label < '3' AND s.id = t.id")
    assert merge.execute().rows_by_clause == (1,)
    assert "2-n2-x-2-a-2" in names(table) and not spark_joins


@pytest.mark.parametrize("on", ["t.id = s.id AND s.label > '2'", "t.id = s.id OR t.name = s.label", "t.id <=> s.id"])
def test_another_condition_is_joined_by_spark(table: Table, spark_joins: list[bool], on: str):
    table.merge(SOURCE, on).when_matched_update({"name": "s.label"}).execute()
    assert spark_joins


def test_a_column_with_the_name_of_an_alias_is_joined_by_spark(table: Table, spark_joins: list[bool]):
    source = pa.table({"id": pa.array([2], pa.int64()), "t": ["new"]})
    table.merge(source, "t.id = s.id").when_matched_update({"name": "s.t"}).execute()
    assert "new" in names(table) and spark_joins


def test_a_key_that_must_equal_two_columns(table: Table):
    source = pa.table({"a": pa.array([2, 3], pa.int32()), "b": pa.array([2, 4], pa.int32())})
    result = table.merge(source, "t.id = s.a AND t.id = s.b").when_matched_update({"name": "'new'"}).execute()
    assert result.rows_updated == 1


def test_two_matches_of_one_row_are_refused(table: Table, spark_joins: list[bool]):
    twice = pa.concat_tables([SOURCE, SOURCE])
    with unchanged(table), pytest.raises(neve.UserError, match="matches several rows"):
        table.merge(twice, PAIRS).when_matched_update({"name": "s.label"}).execute()
    assert not spark_joins
