"""Views that the catalog keeps, in SQL: run by the lake itself, and by a session that it is attached to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

import neve
from neve.errors import NeveError, UnknownName, UserError
from neve.model.view import replace_definition
from tests.support.spark_sessions import names_in

Sql = Callable[[str], Any]
ROWS = "(1, 'eu', 10), (2, 'us', 20), (3, 'eu', 30)"


@pytest.fixture
def lake(spark: SparkSession, tmp_path) -> Iterator[neve.Lake]:
    lake = neve.connect(tmp_path / "lake", spark=spark)
    lake.sql("CREATE TABLE db.t (id bigint, region string, n int) PARTITIONED BY (region)")
    lake.sql(f"INSERT INTO db.t VALUES {ROWS}")
    before = names_in(spark)
    yield lake
    neve.detach(spark)
    assert names_in(spark) - before <= {"tv", "v"}, "only the views themselves stay"
    for name in ("tv", "v"):
        spark.catalog.dropTempView(name)


@pytest.fixture(params=["lake", "session"])
def sql(request: pytest.FixtureRequest, lake: neve.Lake, spark: SparkSession) -> Sql:
    """Run a statement on the lake itself, or in a session in which it is the current catalog."""
    if request.param == "lake":
        return lake.sql
    neve.attach(spark, lake, name="neve")
    spark.sql("USE neve")
    return spark.sql


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()))


def test_a_view_reads_the_newest_state_of_its_tables(sql: Sql):
    sql("CREATE VIEW db.v AS SELECT id, n * 2 AS twice FROM db.t WHERE region = 'eu'")
    assert rows(sql("SELECT * FROM db.v")) == [(1, 20), (3, 60)]
    sql("INSERT INTO db.t VALUES (4, 'eu', 40)")
    sql("DELETE FROM db.t WHERE id = 1")
    assert rows(sql("SELECT * FROM db.v")) == [(3, 60), (4, 80)]
    assert rows(sql("SELECT v.twice, count(*) FROM db.v JOIN db.t ON v.id = t.id GROUP BY 1")) == [(60, 1), (80, 1)]
    assert rows(sql("SELECT id FROM neve.db.v AS x WHERE x.id IN (SELECT max(id) FROM db.v)")) == [(4,)]
    assert rows(sql("WITH v AS (SELECT 1 AS id) SELECT v.id FROM v")) == [(1,)]


@pytest.mark.parametrize(
    "definition",
    [
        "CREATE VIEW db.v AS SELECT * FROM db.t",
        "CREATE VIEW db.v (`a b` COMMENT 'it''s', place) COMMENT 'Eu\"rope' TBLPROPERTIES ('k' = 'x', 'l' = 'it''s') "
        "AS SELECT id, upper(region) FROM db.t WHERE region = 'eu' -- only there",
    ],
)
def test_show_create_table_is_the_statement_that_creates_the_view(sql: Sql, definition: str):
    def described() -> list[Any]:
        found = [*sql("DESCRIBE EXTENDED db.v").collect(), *sql("SHOW TBLPROPERTIES db.v").collect()]
        return [re.sub(r"(?<=/db/v)-\w+", "", "|".join(row)) for row in found]  # a new view gets a new folder

    sql(definition)
    first, [[text]] = described(), sql("SHOW CREATE TABLE db.v").collect()
    assert "View Catalog and Namespace|neve.db|" in first
    sql("DROP VIEW db.v")
    sql(text)
    assert described() == first and sql("SHOW CREATE TABLE db.v").collect()[0][0] == text


def test_a_view_keeps_its_columns_when_its_tables_change(sql: Sql):
    sql("CREATE VIEW db.v (nr COMMENT 'the number', place, much) AS SELECT * FROM db.t -- all of it")
    sql("ALTER TABLE db.t ADD COLUMN more string FIRST")
    assert sql("SELECT * FROM db.v").columns == ["nr", "place", "much"], "by position: as in Spark, more comes first"
    sql("ALTER TABLE db.t DROP COLUMN more")
    sql("ALTER TABLE db.t RENAME COLUMN n TO amount")
    sql("ALTER TABLE db.t ALTER COLUMN amount TYPE bigint")
    assert rows(sql("SELECT much, nr FROM db.v WHERE place = 'us'")) == [(20, 2)]
    sql("ALTER TABLE db.t DROP COLUMN amount")
    with pytest.raises(UserError, match=r"Cannot read view db\.v: its query has 2 columns now, and had 3"):
        sql("SELECT * FROM db.v")


def test_views_read_views_and_never_themselves(sql: Sql, lake: neve.Lake):
    sql("CREATE VIEW db.a AS SELECT id FROM db.t")
    sql("CREATE VIEW db.b AS WITH big AS (SELECT id FROM db.a WHERE id > 1) SELECT id AS b FROM big")
    sql("CREATE VIEW db.c AS SELECT * FROM db.b JOIN db.a ON a.id = b.b")
    assert rows(sql("SELECT * FROM db.c")) == [(2, 2), (3, 3)]
    with pytest.raises(UserError, match=r"Cannot replace view db\.a: its query would read the view itself"):
        sql("CREATE OR REPLACE VIEW db.a AS SELECT b AS id FROM db.c")
    # another engine may make a cycle all the same
    view = neve.catalog.load_view(lake.catalog, "db.a")
    definition = neve.model.view.ViewDefinition("SELECT b AS id FROM db.c", view.metadata.current_schema())
    neve.catalog.replace_view(lake.catalog, view, replace_definition(view.metadata, definition))
    with pytest.raises(UserError, match=r"View db\.\w reads itself: db\.\w -> db\.\w"):
        sql("SELECT * FROM db.a")


def test_names_mean_what_they_meant_where_the_view_was_created(sql: Sql):
    sql("CREATE TABLE other.t (id bigint)")
    sql("USE neve.db")
    sql("CREATE VIEW v AS SELECT id FROM t VERSION AS OF 'main' WHERE t.id > 1")
    sql("CREATE OR REPLACE VIEW w AS SELECT v.id FROM v JOIN neve.db.t ON v.id = t.id")
    sql("USE neve.other")
    assert rows(sql("SELECT * FROM db.v")) == [(2,), (3,)] == rows(sql("SELECT * FROM db.w"))
    assert rows(sql("SELECT count(*) FROM t")) == [(0,)]
    assert rows(sql("SHOW VIEWS")) == [] and [r[1] for r in rows(sql("SHOW VIEWS IN db LIKE 'v|x*'"))] == ["v"]
    sql("USE neve.db")
    assert [r[1] for r in rows(sql("SHOW VIEWS"))] == ["v", "w"]
    sql("ALTER VIEW v RENAME TO db.x")
    sql("DROP VIEW x")
    with pytest.raises(UnknownName, match=r"Unknown view 'db\.x'"):
        sql("DROP VIEW db.x")
    sql("DROP VIEW IF EXISTS db.x")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO db.t SELECT id + 10, place, 0 FROM db.v",
        "UPDATE db.t SET n = (SELECT max(id) + 10 FROM db.v) WHERE id IN (SELECT id FROM db.v)",
        "DELETE FROM db.t WHERE EXISTS (SELECT 1 FROM db.v WHERE v.id = t.id)",
        "MERGE INTO db.t USING db.v ON t.id = v.id WHEN MATCHED THEN UPDATE SET region = upper(place)",
        "MERGE INTO db.t USING (SELECT * FROM db.v) AS s ON t.id = s.id WHEN MATCHED THEN DELETE",
        "CREATE OR REPLACE TABLE db.t AS SELECT id, upper(place) AS region, 0 AS n FROM db.v",
        "WITH eu AS (SELECT * FROM db.v) DELETE FROM db.t WHERE id IN (SELECT id FROM eu)",
    ],
)
def test_statements_read_views(sql: Sql, statement: str, lake: neve.Lake):
    sql("CREATE TABLE db.copy AS SELECT * FROM db.t")
    query = "SELECT id, region AS place FROM {} WHERE region = 'eu' AND system.truncate(2, region) = 'eu'"
    sql(f"CREATE VIEW db.v AS {query.format('db.t')}")
    # the oracle: the same statement on a copy, with the query of the view in its place
    over_the_copy = statement.replace("db.t ", "db.copy AS t " if "CREATE" not in statement else "db.copy ")
    for name in ("FROM db.v", "USING db.v"):
        over_the_copy = over_the_copy.replace(name, f"{name[:-5]} ({query.format('db.copy')}) AS v")
    over_the_copy = over_the_copy.replace("INTO db.copy AS t SELECT", "INTO db.copy SELECT")
    lake.sql(over_the_copy)
    sql(statement)
    changed = rows(sql("SELECT * FROM db.t"))
    assert changed == rows(sql("SELECT * FROM db.copy")) != rows(sql(f"SELECT * FROM VALUES {ROWS}"))


BAD = {
    "CREATE VIEW db.v AS SELECT 1 AS a": r"There is already a view db\.v\. Write CREATE OR REPLACE VIEW",
    "CREATE VIEW db.t AS SELECT 1 AS a": r"There is already a table db\.t",
    "CREATE VIEW db.x (a) AS SELECT 1, 2": "it names 1 columns, and its query has 2",
    "CREATE VIEW db.x AS SELECT 1 AS a, 2 AS A": "two columns 'A'",
    "CREATE VIEW db.x AS SELECT * FROM tv": r"Cannot keep a view that reads tv: .* Create a TEMPORARY VIEW instead",
    "CREATE VIEW db.x AS SELECT * FROM db.nowhere": "Unknown table",
    "CREATE VIEW db.x COMMENT 'a' TBLPROPERTIES ('comment' = 'b') AS SELECT 1": "'comment' is given twice",
    "CREATE VIEW db.x SECURITY DEFINER AS SELECT 1": "expected COMMENT, TBLPROPERTIES or AS",
    "CREATE VIEW db.x AS DELETE FROM db.t": "expected a query",
    "ALTER VIEW db.v AS SELECT 1": "write CREATE OR REPLACE VIEW",
    "ALTER VIEW db.v ADD COLUMN x int": "expected RENAME TO, SET TBLPROPERTIES or UNSET TBLPROPERTIES",
    "ALTER VIEW db.nowhere SET TBLPROPERTIES ('a' = 'b')": r"Unknown view 'db\.nowhere'",
    "INSERT INTO db.v VALUES (1)": r"db\.v is a view, and this statement needs a table",
    "DELETE FROM db.v": r"db\.v is a view",
    "SELECT * FROM db.v VERSION AS OF 1": r"Cannot read view db\.v as of another version",
    "DROP TABLE db.v": "Unknown table",
}


@pytest.mark.parametrize("statement", BAD)
def test_bad_input_is_one_error_and_changes_nothing(sql: Sql, lake: neve.Lake, spark: SparkSession, statement: str):
    sql("CREATE VIEW db.v AS SELECT id FROM db.t")
    spark.range(3).createOrReplaceTempView("tv")
    before = lake.view("db.v").metadata
    with pytest.raises(NeveError, match=BAD[statement]):
        sql(statement)
    assert lake.views() == ["db.v"] and lake.view("db.v").metadata == before and lake.table("db.t").scan().count() == 3


def test_a_temporary_view_hides_one_of_the_namespace_in_use(sql: Sql):
    sql("CREATE VIEW db.v AS SELECT id FROM db.t")
    sql("CREATE TEMPORARY VIEW v AS SELECT id + 100 AS id FROM db.v")
    sql("USE neve.db")
    assert rows(sql("SELECT * FROM v")) == [(101,), (102,), (103,)]
    assert rows(sql("SELECT * FROM db.v")) == [(1,), (2,), (3,)]
    sql("DROP VIEW v")
    assert rows(sql("SELECT * FROM v")) == [(1,), (2,), (3,)]
    sql("DROP VIEW v")
    with pytest.raises((UnknownName, AnalysisException)):
        sql("SELECT * FROM v")


def test_a_restricted_query_reads_views_but_not_what_they_must_not_reach(lake: neve.Lake, tmp_path):
    lake.sql("CREATE VIEW db.v AS SELECT * FROM db.t")
    assert lake.sql("SELECT count(*) FROM db.v", restricted=True).first()[0] == 3
    view = neve.catalog.load_view(lake.catalog, "db.v")
    for text in (f"SELECT * FROM text.`{tmp_path}`", "SELECT java_method('java.lang.System', 'getProperty', 'x') AS x"):
        definition = neve.model.view.ViewDefinition(text, view.metadata.current_schema())
        neve.catalog.replace_view(
            lake.catalog,
            neve.catalog.load_view(lake.catalog, "db.v"),
            replace_definition(neve.catalog.load_view(lake.catalog, "db.v").metadata, definition),
        )
        with pytest.raises(UserError, match="A restricted query reads only tables of the lake"):
            lake.sql("SELECT * FROM db.v", restricted=True)


def test_a_session_reads_views_by_every_way(lake: neve.Lake, spark: SparkSession, tmp_path):
    other = neve.connect(tmp_path / "other", spark=spark)
    neve.attach(spark, lake, name="lake")
    neve.attach(spark, other, name="other")
    spark.sql("CREATE VIEW lake.db.v AS SELECT id FROM lake.db.t WHERE n > 10")
    assert lake.view("db.v").current_version().default_namespace == ()
    for frame in (spark.table("lake.db.v"), spark.read.table("lake.db.v"), lake.sql("SELECT * FROM db.v")):
        assert rows(frame) == [(2,), (3,)]
    assert rows(spark.table("lake.db.v").where(col("v.id") > 2)) == [(3,)]
    assert spark.catalog.tableExists("lake.db.v") and not spark.catalog.tableExists("other.db.v")
    spark.sql("CREATE TABLE other.db.u AS SELECT id FROM lake.db.v")
    assert rows(spark.sql("SELECT u.id FROM other.db.u JOIN lake.db.v USING (id)")) == [(2,), (3,)]
    for query in ("SELECT * FROM other.db.u", "SELECT * FROM spark_catalog.default.x"):
        with pytest.raises((UserError, AnalysisException)):
            spark.sql(f"CREATE VIEW lake.db.w AS {query}")
    spark.sql("DROP VIEW lake.db.v")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM lake.db.v")
