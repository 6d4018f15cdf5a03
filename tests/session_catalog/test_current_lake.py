"""A lake as the current catalog: its short names work in every statement, and what is Spark's stays Spark's."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.catalog import Catalog

from neve.errors import UserError
from neve.run.spark.session import spark_itself
from tests.support.spark_sessions import names_in


def rows(frame: DataFrame) -> list[tuple]:
    return sorted(tuple(row) for row in frame.collect())


def names_in_spark(spark) -> set[str]:
    with spark_itself():
        return names_in(spark)


# Statements that name nothing a lake may have: with a current lake, Spark runs them as it does without.
OF_SPARK = [
    "SET spark.sql.shuffle.partitions",
    "SET my.own.option = db.t",
    "SET TIME ZONE 'UTC'",
    "RESET my.own.option",
    "CLEAR CACHE",
    "SHOW CATALOGS",
    "SHOW FUNCTIONS LIKE 'abs'",
    "SHOW USER FUNCTIONS",
    "SHOW VIEWS",
    "DESCRIBE FUNCTION abs",
    "DESC FUNCTION EXTENDED abs",
    "DESCRIBE QUERY SELECT 1 AS a",
    "DESCRIBE SELECT 1 AS a",
    "LIST FILES",
    "DECLARE OR REPLACE VARIABLE vv = 1",
    "SET VAR vv = 2",
    "DROP TEMPORARY VARIABLE vv",
    "SHOW TABLES IN global_temp",
]


@pytest.mark.parametrize("current", ["spark_catalog", "lake", "lake.db"])
def test_statements_of_spark_alone_run_as_they_are(spark, lakes, current):
    spark.sql(f"USE {current}")
    for statement in OF_SPARK:
        spark.sql(statement).collect()
    with pytest.raises(AnalysisException, match="class"):
        spark.sql("CREATE TEMPORARY FUNCTION ff AS 'x.Y'")


# Each statement of the reference, with short names.
OF_LAKE = [
    "CREATE TABLE u (id bigint, s string) USING iceberg PARTITIONED BY (s)",
    "CREATE TABLE IF NOT EXISTS u (id bigint)",
    "INSERT INTO u VALUES (1, 'a')",
    "INSERT INTO TABLE u SELECT id, s FROM t",
    "INSERT INTO u (s, id) VALUES ('b', 2)",
    "INSERT INTO u BY NAME SELECT 'c' AS s, 3 AS id",
    "INSERT INTO u REPLACE WHERE id = 3 SELECT 3, 'd'",
    "INSERT OVERWRITE u PARTITION (s = 'b') SELECT 5",
    "INSERT OVERWRITE TABLE u SELECT 5, 'b'",
    "WITH x AS (SELECT * FROM t) INSERT INTO u SELECT * FROM x",
    "UPDATE u SET id = id + 1 WHERE u.id = 5",
    "WITH x AS (SELECT 6 AS id) DELETE FROM u WHERE id IN (SELECT id FROM x)",
    "DELETE FROM u AS a WHERE a.id = 100",
    "MERGE INTO u USING t ON u.id = t.id WHEN MATCHED THEN UPDATE SET s = t.s WHEN NOT MATCHED THEN INSERT *",
    "MERGE WITH SCHEMA EVOLUTION INTO u USING (SELECT 9L AS id, 'n' AS s, 1 AS n) AS x ON u.id = x.id "
    "WHEN NOT MATCHED THEN INSERT *",
    "SELECT * FROM u JOIN t USING (id)",
    "TABLE u",
    "FROM u SELECT id",
    "(SELECT id FROM u) UNION ALL (SELECT id FROM t)",
    "WITH x AS (SELECT * FROM u) SELECT * FROM x",
    "SELECT * FROM u VERSION AS OF 'main'",
    "SELECT * FROM u.snapshots",
    "SELECT * FROM db.u.files",
    "EXPLAIN SELECT * FROM u",
    "EXPLAIN EXTENDED DELETE FROM u WHERE id = 1",
    "EXPLAIN INSERT INTO u SELECT * FROM u",
    "EXPLAIN CALL system.rewrite_data_files('u')",
    "DESCRIBE u",
    "DESC TABLE EXTENDED u",
    "DESCRIBE FORMATTED u",
    "DESCRIBE u id",
    "SHOW TABLES",
    "SHOW TABLES LIKE 'u'",
    "SHOW TABLES IN db",
    "SHOW TABLE EXTENDED LIKE 'u'",
    "SHOW TABLE EXTENDED IN db LIKE 'u'",
    "SHOW NAMESPACES",
    "SHOW DATABASES LIKE 'd*'",
    "SHOW SCHEMAS IN db",
    "SHOW CURRENT NAMESPACE",
    "SHOW COLUMNS IN u",
    "SHOW COLUMNS FROM db.u",
    "SHOW CREATE TABLE u",
    "SHOW TBLPROPERTIES u",
    "SHOW TBLPROPERTIES u ('format')",
    "SHOW PARTITIONS u",
    "ALTER TABLE u ADD COLUMN extra int",
    "ALTER TABLE u ADD PARTITION FIELD bucket(4, id)",
    "ALTER TABLE u SET TBLPROPERTIES ('a' = 'b')",
    "ALTER TABLE u WRITE ORDERED BY id",
    "ALTER TABLE u CREATE BRANCH audit",
    "INSERT INTO u.branch_audit (id, s) VALUES (7, 'x')",
    "SELECT * FROM u.branch_audit",
    "ALTER TABLE u CREATE TAG start",
    "ALTER TABLE u RENAME TO w",
    "ALTER TABLE w RENAME TO db.u",
    "CREATE TABLE w LIKE u",
    "CREATE OR REPLACE TABLE w AS SELECT * FROM u",
    "REPLACE TABLE w AS SELECT 1 AS id",
    "CALL system.rewrite_data_files('u')",
    "CALL system.rewrite_manifests('db.u')",
    "CALL lake.system.expire_snapshots('lake.db.u')",
    "TRUNCATE TABLE w",
    "DROP TABLE w",
    "DROP TABLE IF EXISTS w",
    "CREATE NAMESPACE IF NOT EXISTS foo COMMENT 'x'",
    "ALTER NAMESPACE foo SET PROPERTIES ('a' = 'b')",
    "DESCRIBE NAMESPACE EXTENDED foo",
    "DROP NAMESPACE foo",
    "CREATE OR REPLACE TEMPORARY VIEW v AS SELECT * FROM u",
    "SELECT * FROM v",
    "CREATE OR REPLACE TEMP VIEW v (a, b) AS SELECT id, s FROM u",
    "DROP VIEW v",
    "DROP VIEW IF EXISTS v",
    "DROP TABLE u PURGE",
]


def test_every_statement_of_the_reference_runs_with_short_names(spark, lakes, of):
    spark.sql("USE lake.db")
    for statement in OF_LAKE:
        spark.sql(statement).collect()
    assert lakes["lake"].tables() == ["db.t"] and of("t") == ["lake"]
    assert "u" not in names_in_spark(spark)


@pytest.mark.parametrize(
    "name",
    ["temp", "temporary", "view", "partitions", "columns", "tables", "namespace", "extended", "function", "query"],
)
def test_a_table_is_called_like_a_keyword(spark, lakes, name):
    spark.sql("USE lake.db")
    spark.sql(f"CREATE TABLE {name} (id int)")
    spark.sql(f"INSERT INTO {name} VALUES (1)")
    spark.sql(f"UPDATE {name} SET id = 2")
    assert rows(spark.sql(f"SELECT id FROM {name}")) == [(2,)]
    assert spark.sql(f"DESCRIBE {name}").first().col_name == "id"
    assert spark.sql(f"DESCRIBE db.{name}").first().col_name == "id"
    spark.sql(f"DELETE FROM {name}")
    spark.sql(f"DROP TABLE {name}")
    assert lakes["lake"].tables() == ["db.t"]


# -- temporary views -------------------------------------------------------------------------------------------------


@pytest.fixture(params=[False, True], ids=["", "catalog used before"])
def view(spark, lakes, request):
    """A temporary view `t` of three rows, with a table `t` in the current namespace."""
    spark.sql("USE lake.db")
    spark.range(3).createOrReplaceTempView("t")
    if request.param:
        assert spark.catalog.currentCatalog() == "lake"
    return "t"


def test_a_temporary_view_hides_a_table_in_every_call(spark, lakes, view):
    assert spark.sql("SELECT * FROM t").count() == 3
    assert spark.table("t").count() == 3
    assert spark.read.table("t").count() == 3
    assert [row.col_name for row in spark.sql("DESCRIBE t").collect()] == ["id"]
    assert [row.col_name for row in spark.sql("SHOW COLUMNS IN t").collect()] == ["id"]
    assert spark.catalog.getTable("t").isTemporary and spark.catalog.tableExists("t")
    assert [column.name for column in spark.catalog.listColumns("t")] == ["id"]
    spark.sql("CACHE TABLE t")
    spark.sql("UNCACHE TABLE t")
    for statement in ("DELETE FROM t", "INSERT INTO t VALUES (1)", "UPDATE t SET id = 1"):
        with pytest.raises((PySparkException, Py4JJavaError)):  # Spark has no message of its own for some
            spark.sql(statement)
    with pytest.raises(AnalysisException):
        spark.range(1).write.insertInto("t")
    assert lakes["lake"].table("db.t").scan().count() == 1
    spark.sql("DROP VIEW t")
    assert [row.col_name for row in spark.sql("DESCRIBE t").collect()] == ["id", "s"]


def test_a_temporary_view_hides_no_full_name(spark, lakes, view):
    assert spark.table("lake.db.t").count() == spark.table("db.t").count() == 1
    spark.sql("INSERT INTO db.t VALUES (2, 'new')")
    assert spark.sql("SELECT * FROM lake.db.t").count() == 2


def test_a_new_table_may_be_called_like_a_temporary_view(spark, lakes):
    spark.sql("USE lake.db")
    spark.range(3).createOrReplaceTempView("u")
    spark.sql("CREATE TABLE u (id int)")
    spark.range(1).write.saveAsTable("w")
    assert lakes["lake"].tables() == ["db.t", "db.u", "db.w"]


def test_the_catalog_that_a_session_keeps_stays_as_it_is(spark, lakes):
    assert spark.catalog.tableExists("lake.db.t")
    with spark_itself():
        assert type(spark.catalog) is Catalog


def test_a_lake_owns_no_name_of_one_part(spark, lakes):
    spark.range(2).createOrReplaceTempView("lake")
    assert spark.sql("SELECT * FROM lake").count() == spark.table("lake").count() == 2
    assert spark.sql("DESCRIBE lake").first().col_name == "id"
    assert spark.sql("SELECT s FROM lake.db.t").count() == 1


# -- views of lake tables --------------------------------------------------------------------------------------------


def test_a_temporary_view_of_a_lake_is_read_anew_by_every_statement(spark, lakes):
    spark.sql("CREATE TEMPORARY VIEW v AS SELECT id FROM lake.db.t")
    spark.sql("CREATE TABLE plain (id bigint) USING parquet")
    spark.sql("INSERT INTO lake.db.t VALUES (2, 'new')")
    spark.sql("CREATE TABLE plain2 USING parquet AS SELECT * FROM v")
    spark.sql("INSERT INTO plain SELECT * FROM v")
    assert rows(spark.table("plain")) == rows(spark.table("plain2")) == [(1,), (2,)]
    assert rows(spark.table("v")) == rows(spark.read.table("v")) == [(1,), (2,)]


# -- queries inside statements of Spark ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO plain SELECT id FROM {}",
        "INSERT INTO plain (SELECT id FROM {})",
        "INSERT INTO plain (id) SELECT id FROM {}",
        "INSERT INTO plain (id) (SELECT id FROM {})",
        "INSERT INTO plain TABLE {}",
        "INSERT INTO plain FROM {} SELECT id",
        "INSERT OVERWRITE plain WITH x AS (SELECT id FROM {}) SELECT * FROM x",
        "WITH x AS (SELECT id FROM {}) INSERT INTO plain SELECT * FROM x",
        "WITH x AS (SELECT id FROM {}) INSERT INTO plain TABLE x",
        "INSERT INTO plain SELECT * FROM VALUES (1L) AS a(id) WHERE id IN (SELECT id FROM {})",
    ],
)
@pytest.mark.parametrize("current", ["spark_catalog", "other.db"])
def test_a_statement_about_a_table_of_spark_reads_a_lake(spark, lakes, statement, current):
    spark.sql("CREATE TABLE plain (id bigint) USING parquet")
    spark.sql("CREATE TABLE lake.db.u AS SELECT id FROM lake.db.t")
    spark.sql(f"USE {current}")
    target = "spark_catalog.default.plain"
    spark.sql(statement.replace("plain", target).format("lake.db.u"))
    assert rows(spark.table(target)) == [(1,)]
    assert "plan" in spark.sql("EXPLAIN " + statement.replace("plain", target).format("lake.db.u")).columns[0]


def test_other_statements_with_queries_read_a_lake(spark, lakes, tmp_path):
    assert spark.sql("DESCRIBE QUERY SELECT s FROM lake.db.t").first().col_name == "s"
    spark.sql("DECLARE OR REPLACE VARIABLE vv = 0L")
    spark.sql("SET VAR vv = (SELECT max(id) FROM lake.db.t)")
    assert spark.sql("SELECT vv").first()[0] == 1
    spark.sql("DROP TEMPORARY VARIABLE vv")
    spark.sql(f"INSERT OVERWRITE DIRECTORY '{tmp_path}/out' USING parquet SELECT * FROM lake.db.t")
    assert spark.read.parquet(f"{tmp_path}/out").count() == 1


@pytest.mark.parametrize("beginning", ["CACHE TABLE cached AS", "CREATE GLOBAL TEMPORARY VIEW cached AS"])
def test_a_view_that_spark_keeps_as_text_reads_no_lake(spark, lakes, beginning):
    before = names_in_spark(spark)
    with pytest.raises(UserError, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"{beginning} SELECT * FROM lake.db.t")
    spark.sql("USE lake.db")
    with pytest.raises(UserError):
        spark.sql(f"{beginning} SELECT * FROM t")
    assert names_in_spark(spark) == before


def test_a_view_in_the_catalog_of_spark_reads_no_lake(spark, lakes):
    before = names_in_spark(spark)
    for name in ("cached", "spark_catalog.default.cached"):
        with pytest.raises(UserError, match="CREATE TEMPORARY VIEW"):
            spark.sql(f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM lake.db.t")
    assert names_in_spark(spark) == before


def test_text_that_only_spark_reads_is_passed_on(spark, lakes):
    spark.sql("USE lake.db")
    with pytest.raises(AnalysisException):
        spark.sql("INSERT INTO spark_catalog.default.plain (values, `a`) SELECT FROM WHERE")
    with pytest.raises((AnalysisException, UserError)):
        spark.sql("INSERT INTO spark_catalog.default.plain SELECT * FROM lake.db.nothing")
