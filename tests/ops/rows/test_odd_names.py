"""Columns whose names have dots, backticks, keywords or the names of others in them are changed like any other."""

from __future__ import annotations

import pyarrow as pa
import pytest

import neve
from neve import Table
from neve.errors import UnsupportedFeature, UserError

MODES = ("copy-on-write", "merge-on-read")


def made(lake: neve.Lake, *columns: str, version: int = 3) -> Table:
    """A table with an id and some columns of numbers, and two rows in one file."""
    names = ("id", *columns)
    ddl = ", ".join(f"`{name.replace('`', '``')}` bigint" for name in names)
    table = lake.create_table("db.t", ddl, format_version=version)
    table.append([dict.fromkeys(names, i) for i in (1, 2)])
    return table


def first(table: Table) -> dict[str, int]:
    return next(row for row in table.refresh().to_arrow().to_pylist() if row["id"] == 1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("column", ["a.b", "a`b", "case", "größe", "a b"])
def test_a_column_is_assigned_by_update_and_by_merge(spark_lake: neve.Lake, column: str, mode: str):
    table, name = made(spark_lake, column), f"`{column.replace('`', '``')}`"
    spark_lake.sql(f"UPDATE db.t SET {name} = {name} + 10 WHERE id = 1", mode=mode)
    assert first(table) == {"id": 1, column: 11}
    source = "(SELECT 1L AS id, 5L AS n)"
    spark_lake.sql(
        f"MERGE INTO db.t t USING {source} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET {name} = s.n", mode=mode
    )
    assert first(table) == {"id": 1, column: 5}
    assert table.verify().is_sound


def test_what_is_quoted_is_one_name(spark_lake: neve.Lake):
    table = made(spark_lake, "a.b", "b", "a`b", "ab")
    spark_lake.sql("UPDATE db.t AS a SET `a.b` = 10 WHERE id = 1")
    spark_lake.sql("UPDATE db.t AS a SET a.b = 20 WHERE id = 1")
    spark_lake.sql("UPDATE db.t SET `a``b` = 30 WHERE id = 1")
    spark_lake.sql("UPDATE db.t SET db.t.ab = 40 WHERE id = 1")
    assert first(table) == {"id": 1, "a.b": 10, "b": 20, "a`b": 30, "ab": 40}


def test_a_keyword_after_a_dot_is_a_name(spark_lake: neve.Lake):
    table = made(spark_lake, "case", "when")
    spark_lake.sql("UPDATE db.t AS t SET id = 1 WHERE t.case = 1")
    source = "(SELECT 1L AS when)"
    spark_lake.sql(f"MERGE INTO db.t t USING {source} s ON t.when = s.when WHEN MATCHED THEN UPDATE SET t.case = 9")
    assert first(table) == {"id": 1, "case": 9, "when": 1}


def test_metadata_columns_may_be_qualified(spark_lake: neve.Lake):
    table = made(spark_lake)
    spark_lake.sql("DELETE FROM db.t AS t WHERE t._pos = 0 AND t._file LIKE '%parquet'")
    assert [row["id"] for row in table.refresh().to_arrow().to_pylist()] == [2]


def test_a_column_is_found_in_its_own_case_first(spark_lake: neve.Lake):
    table = spark_lake.create_table("db.t", pa.schema([("a", pa.int64()), ("A", pa.int64())]), format_version=2)
    table.append([{"a": 1, "A": 2}])
    spark_lake.sql("DELETE FROM db.t WHERE a = 2")  # no row: statistics say so
    assert table.refresh().scan().to_arrow(engine="arrow").num_rows == 1
    table = spark_lake.create_table("db.u", pa.schema([("ab", pa.int64()), ("AB", pa.int64())]), format_version=2)
    with pytest.raises(UserError, match="'Ab' is ambiguous"):
        spark_lake.sql("DELETE FROM db.u WHERE Ab = 2")


@pytest.mark.parametrize("column", ["_row_id", "_last_updated_sequence_number"])
def test_a_column_with_the_name_of_a_lineage_column_is_refused_in_words(spark_lake: neve.Lake, column: str):
    table = made(spark_lake, column)
    with pytest.raises(UnsupportedFeature, match=f"column '{column}'.*Rename"):
        table.update().set("id", "3").where("id = 1").execute()
    with table.evolve_schema() as change:
        change.rename_column(column, "mine")
    assert table.refresh().update().set("id", "3").where("id = 1").execute().rows_updated == 1


def test_a_value_of_chance_is_asked_once(spark_lake: neve.Lake):
    """A number is checked to fit its column, and another one would be stored if it were asked again."""
    table = spark_lake.create_table("db.t", "id bigint, n int", format_version=3)
    table.append([{"id": i, "n": -1} for i in range(50)])
    spark_lake.sql("UPDATE db.t SET n = floor(rand() * 100)")
    assert all(0 <= row["n"] < 100 for row in table.refresh().to_arrow().to_pylist())
