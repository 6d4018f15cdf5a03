"""EXPLAIN shows what a statement would read and change, and runs nothing."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

import neve
from neve.errors import UserError
from tests.support.spark_sessions import names_in


@pytest.fixture
def lake(spark: SparkSession, tmp_path) -> neve.Lake:
    lake = neve.connect(tmp_path / "lake", spark=spark)
    lake.create_table("db.t", "id bigint, v int", ["id"]).append([{"id": i, "v": i} for i in range(4)])
    return lake


def explain(lake: neve.Lake, text: str, **options) -> str:
    found = lake.sql(text, **options)
    assert isinstance(found, DataFrame) and found.dtypes == [("plan", "string")] and found.count() == 1
    return found.first()[0]


def test_the_plan_of_a_query_begins_with_the_scans_of_its_tables(lake, spark):
    before = names_in(spark)
    text = explain(lake, "EXPLAIN SELECT a.v FROM db.t a, db.t.snapshots s, range(3) r WHERE a.id > 2 AND r.id = a.id")
    scans, plan = text.split("== Physical Plan ==")
    assert "Table db.t\n" in scans and "where      a.id > 2 AND r.id = a.id" in scans
    assert "files      1 of 4, 3 pruned by partition" in scans and "Table db.t.snapshots" in scans
    assert "Project" in plan and names_in(spark) == before


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("EXTENDED", ["== Parsed Logical Plan ==", "== Analyzed Logical Plan ==", "== Optimized Logical Plan =="]),
        ("FORMATTED", ["== Physical Plan ==", "(1) "]),
        ("COST", ["== Optimized Logical Plan ==", "Statistics(sizeInBytes="]),
        ("CODEGEN", ["WholeStageCodegen"]),
    ],
)
def test_the_modes_are_those_of_spark(lake, mode, words):
    text = explain(lake, f"explain {mode} WITH x AS (SELECT 1 AS one) SELECT * FROM x, db.t")
    assert all(word in text for word in words) and "files      4 of 4" in text


def test_statements_that_change_rows_are_planned_by_their_builders_and_not_run(lake):
    table, head = lake.table("db.t"), lake.table("db.t").context.head().snapshot_id
    cases = {
        "UPDATE db.t SET v = 0 WHERE id = 1": table.update().set("v", "0").where("id = 1").explain(),
        "DELETE FROM db.t WHERE id = 1": table.delete().where("id = 1").explain(),
        "CALL system.rewrite_data_files('db.t')": table.rewrite_data_files().explain(),
        "CALL system.expire_snapshots('db.t')": table.expire_snapshots().explain(),
    }
    for statement, expected in cases.items():
        assert explain(lake, f"EXPLAIN {statement}") == expected, statement
    merge = "MERGE INTO db.t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    assert "the keys of the source rule out files" in explain(lake, f"EXPLAIN {merge}")
    assert "copy-on-write" in explain(lake, "EXPLAIN DELETE FROM db.t WHERE v = 1", mode="copy-on-write")
    assert table.refresh().context.head().snapshot_id == head


def test_an_insert_is_explained_by_what_it_replaces_and_its_query(lake):
    head = lake.table("db.t").context.head().snapshot_id
    query = "SELECT id, v FROM db.t WHERE id = 3"
    cases = {
        f"INSERT INTO db.t {query}": "Append to db.t, branch main, the rows of a query:",
        f"INSERT OVERWRITE db.t {query}": "Replace the partitions of db.t, branch main that get new rows by",
        "INSERT OVERWRITE db.t PARTITION (id = 1) SELECT 5": "Replace the rows of db.t, branch main where id = 1 by",
        f"INSERT INTO db.t REPLACE WHERE id > 1 {query}": "Replace the rows of db.t, branch main where id > 1 by",
    }
    for statement, expected in cases.items():
        text = explain(lake, f"EXPLAIN {statement}")
        assert text.startswith(expected) and "== Physical Plan ==" in text
    assert lake.table("db.t").context.head().snapshot_id == head


@pytest.mark.parametrize(
    "statement", ["DROP TABLE db.t", "SHOW TABLES", "CALL system.ancestors_of('db.t')", "EXPLAIN SELECT 1"]
)
def test_a_statement_without_a_plan_is_an_error(lake, statement):
    with pytest.raises(UserError, match="This statement has no plan"):
        lake.sql(f"EXPLAIN {statement}")
    assert lake.tables() == ["db.t"]


def test_an_error_points_into_the_whole_text(lake):
    with pytest.raises(UserError, match=r"line 1, column 34"):
        lake.sql("EXPLAIN SELECT * FROM db.t WHERE nothing = 1")
    with pytest.raises(UserError, match="unknown statement 'VACUUM'"):
        lake.sql("EXPLAIN VACUUM db.t")
