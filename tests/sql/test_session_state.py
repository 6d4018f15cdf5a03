"""USE and temporary views: what a statement leaves behind for later ones of the same lake."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import neve
from neve.errors import UnknownName, UserError
from tests.support.spark_sessions import names_in


@pytest.fixture
def lake(spark: SparkSession, tmp_path) -> Iterator[neve.Lake]:
    lake = neve.connect(tmp_path / "lake", spark=spark)
    lake.sql("CREATE TABLE db.t (id bigint, v int)")
    lake.sql("INSERT INTO db.t VALUES (1, 10), (2, 20)")
    lake.sql("CREATE TABLE other.t (id bigint)")
    before = names_in(spark)
    yield lake
    assert names_in(spark) - before <= {"v", "w", "t"}, "only the views themselves stay"
    for name in ("v", "w", "t"):
        spark.catalog.dropTempView(name)


def ids(lake: neve.Lake, text: str) -> list:
    return sorted(row[0] for row in lake.sql(text).collect())


# -- USE -------------------------------------------------------------------------------------------------------------


def test_names_without_a_namespace_are_of_the_one_in_use(lake):
    assert lake.sql("SHOW CURRENT NAMESPACE").to_pylist() == [{"catalog": "neve", "namespace": ""}]
    assert lake.sql("USE db") is None
    assert lake.sql("SHOW CURRENT NAMESPACE").to_pylist() == [{"catalog": "neve", "namespace": "db"}]
    lake.sql("INSERT INTO t VALUES (3, 30)")
    lake.sql("UPDATE t SET v = v + (SELECT max(id) FROM t) WHERE t.id = 1")
    lake.sql("MERGE INTO t AS a USING t AS b ON a.id = b.id AND b.id = 2 WHEN MATCHED THEN DELETE")
    assert ids(lake, "SELECT v FROM t") == [13, 30]
    assert ids(lake, "SELECT id FROM t VERSION AS OF 'main' WHERE t.v > 20") == [3]
    assert ids(lake, "SELECT count(*) FROM t.snapshots") == [4]
    lake.sql("CREATE TABLE u (id bigint)")
    lake.sql("ALTER TABLE u RENAME TO w")
    shown = lake.sql("SHOW TABLES").collect()
    assert [(row.namespace, row.tableName) for row in shown] == [("db", "t"), ("db", "w")]
    lake.sql("ALTER TABLE t CREATE BRANCH b")
    lake.sql("INSERT INTO t.branch_b VALUES (9, 90)")
    assert ids(lake, "SELECT id FROM t.branch_b") == [1, 3, 9] and ids(lake, "SELECT id FROM db.t") == [1, 3]
    lake.sql("DROP TABLE w")
    assert lake.sql("CALL system.ancestors_of('t')").num_rows == 4
    lake.sql("USE NAMESPACE neve.other")
    assert ids(lake, "SELECT id FROM t") == []
    with pytest.raises(UnknownName, match=r"Unknown table 'other\.u'"):
        lake.sql("DESCRIBE u")
    lake.sql("USE neve")
    with pytest.raises(UserError, match="needs a namespace"):
        lake.sql("DELETE FROM t")


def test_the_namespace_in_use_belongs_to_one_lake(lake, spark):
    lake.sql("USE SCHEMA db")
    again = neve.connect(lake.catalog.properties["warehouse"].removeprefix("file://"), spark=spark)
    assert again.sql("SHOW CURRENT DATABASE")["namespace"].to_pylist() == [""]
    assert lake.sql("SHOW CURRENT SCHEMA")["namespace"].to_pylist() == ["db"]
    assert spark.catalog.currentDatabase() == "default"


def test_an_unknown_namespace_is_an_error_and_changes_nothing(lake):
    lake.sql("USE db")
    with pytest.raises(UnknownName, match="namespace 'bd'"):
        lake.sql("USE bd")
    assert lake.session.namespace == ("db",)
    with pytest.raises(UserError, match="expected NAMESPACE"):
        lake.sql("SHOW CURRENT TABLES")


def test_a_temporary_view_of_the_caller_hides_a_table_without_a_namespace(lake, spark):
    lake.sql("USE db")
    spark.range(7, 8).createOrReplaceTempView("t")
    assert ids(lake, "SELECT id FROM t") == [7] and ids(lake, "SELECT id FROM db.t") == [1, 2]


# -- temporary views -------------------------------------------------------------------------------------------------


def test_a_temporary_view_reads_the_newest_rows(lake, spark):
    assert lake.sql("CREATE TEMPORARY VIEW v AS SELECT id, v * 2 AS w FROM db.t WHERE v > 10") is None
    assert ids(lake, "SELECT v.w FROM v") == [40]
    lake.sql("INSERT INTO db.t VALUES (3, 30)")
    assert ids(lake, "SELECT id FROM V x WHERE x.w > 0") == [2, 3]
    assert ids(lake, "WITH v AS (SELECT 5 AS id) SELECT id FROM v") == [5], "a common table expression comes first"
    assert [row.id for row in spark.table("v").collect()] == [2], "for Spark, it has the rows of its creation"


def test_statements_read_temporary_views(lake):
    lake.sql("CREATE TEMP VIEW v (k, x) AS VALUES (1L, 5), (3L, 6)")
    lake.sql("CREATE TEMP VIEW w AS SELECT k + 1 AS k FROM v")
    lake.sql(
        "MERGE INTO db.t USING v ON t.id = v.k WHEN MATCHED THEN UPDATE SET v = v.x "
        "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (v.k, v.x)"
    )
    lake.sql("DELETE FROM db.t WHERE id IN (SELECT k FROM w)")
    lake.sql("INSERT INTO other.t SELECT k FROM w")
    assert ids(lake, "SELECT v FROM db.t") == [5, 6] and ids(lake, "TABLE other.t") == [2, 4]
    assert "Table db.t" in lake.sql("EXPLAIN SELECT * FROM w, db.t").first()[0]


def test_a_view_keeps_the_namespace_it_was_created_in(lake):
    lake.sql("USE db")
    first = lake.table("db.t").context.head().snapshot_id
    lake.sql(f"CREATE TEMPORARY VIEW v AS SELECT a.id FROM t a JOIN t VERSION AS OF {first} USING (id)")
    lake.sql("USE other")
    assert ids(lake, "SELECT id FROM v") == [1, 2]


def test_a_view_is_replaced_and_dropped(lake, spark):
    lake.sql("CREATE TEMPORARY VIEW v AS SELECT 1 AS id")
    with pytest.raises(UserError, match="already a temporary view 'v'"):
        lake.sql("CREATE TEMPORARY VIEW v AS SELECT 2 AS id")
    lake.sql("CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 2 AS id")
    assert ids(lake, "TABLE v") == [2]
    spark.range(3, 4).createOrReplaceTempView("v")
    assert ids(lake, "TABLE v") == [3], "the caller's own view of the same name"
    lake.sql("CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 4 AS id")
    lake.sql("CREATE OR REPLACE TEMPORARY VIEW w AS SELECT * FROM v")
    lake.sql("DROP VIEW v")
    with pytest.raises(UserError, match="Unknown table 'v'"):
        lake.sql("TABLE w")
    with pytest.raises(UnknownName, match="Unknown view 'v'"):
        lake.sql("DROP VIEW v")
    lake.sql("DROP VIEW IF EXISTS v")


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (["CREATE TEMPORARY VIEW v AS SELECT * FROM db.nothing"], "Unknown table 'db.nothing'"),
        (["CREATE TEMPORARY VIEW v USING csv"], "expected AS"),
        (["CREATE TEMPORARY VIEW v AS SELECT 1 AS a, 2 AS a"], "(?i)ambiguous|already exists"),
        (["CREATE TEMPORARY VIEW v AS SELECT 1 AS `a.b`, 2 AS c", "SELECT `a.b`, d FROM v"], "unknown column 'd'"),
        (["CREATE TEMPORARY VIEW v AS INSERT INTO db.t VALUES (1, 2)"], "expected a query"),
        (["CREATE TEMPORARY VIEW v AS SELECT 1 AS id", "SELECT * FROM v VERSION AS OF 1"], "as of another version"),
        (
            [
                "CREATE TEMPORARY VIEW v AS SELECT 1 AS id",
                "CREATE TEMPORARY VIEW w AS TABLE v",
                "CREATE OR REPLACE TEMPORARY VIEW v AS TABLE w",
            ],
            "v reads itself: v -> w -> v",
        ),
    ],
)
def test_a_wrong_view_is_an_error(lake, statements, message):
    *before, last = statements
    for statement in before:
        lake.sql(statement)
    with pytest.raises(UserError, match=message):
        lake.sql(last)


@pytest.mark.parametrize(
    "query",
    [
        *("SELECT * FROM v WHERE id > 0", "SELECT 5 AS id WHERE EXISTS (SELECT 1 FROM V)", "TABLE w"),
        *("WITH x AS (FROM v) SELECT * FROM x", "SELECT * FROM `v` a JOIN db.t USING (id)"),
    ],
)
@pytest.mark.parametrize("is_ours", [True, False])
def test_a_view_that_would_read_itself_leaves_the_old_one(lake, spark, query, is_ours):
    if is_ours:
        lake.sql("CREATE TEMPORARY VIEW v AS SELECT 1 AS id")
    else:
        spark.sql("SELECT 1 AS id").createOrReplaceTempView("v")
    lake.sql("CREATE TEMPORARY VIEW w AS TABLE v")
    with pytest.raises(UserError, match="reads itself"):
        lake.sql(f"CREATE OR REPLACE TEMPORARY VIEW v AS {query}")
    assert ids(lake, "TABLE v") == ids(lake, "TABLE w") == [1]


def test_a_view_may_be_called_like_what_it_reads(lake):
    lake.sql("USE db")
    for _ in range(2):
        lake.sql("CREATE OR REPLACE TEMPORARY VIEW v AS WITH v AS (SELECT id AS v FROM db.t AS v) SELECT v FROM v")
        assert ids(lake, "TABLE v") == [1, 2]
    lake.sql("CREATE OR REPLACE TEMPORARY VIEW t AS SELECT id + 1 AS id FROM t")
    assert ids(lake, "TABLE t") == [2, 3]
