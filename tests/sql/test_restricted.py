"""`restricted=True`: text from somebody else reads tables of the lake, and nothing beside them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import neve
from neve.errors import UserError
from neve.ops.sql_views import Views
from neve.run.spark.session import temporary_options
from neve.sql.query import _refuse_outside_plan


@pytest.fixture
def lake(spark_lake: neve.Lake) -> neve.Lake:
    spark_lake.create_table("db.t", "id bigint, name string").append([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    return spark_lake


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT count(*), max(upper(name)) FROM db.t", [(2, "B")]),
        ("WITH a(x) AS (SELECT id FROM db.t) SELECT sum(x) FROM a WHERE x IN (1, 2)", [(3,)]),
        (
            "SELECT cast(id AS decimal(10, 2)) FROM db.t WHERE EXISTS (SELECT 1 FROM db.t u) AND id = 1",
            [(1,)],
        ),
        ("SELECT count(*) FROM db.t.files", [(1,)]),
        ("SELECT count(*) FROM db.t TIMESTAMP AS OF (SELECT max(committed_at) FROM db.t.snapshots)", [(2,)]),
        ("SELECT transform(array(id), x -> x + 1)[0] FROM db.t WHERE id = 1", [(2,)]),
        ("SELECT a.id FROM db.t a JOIN db.t b USING (id) WHERE a.id = 1", [(1,)]),
        ("SELECT id FROM range(2)", [(0,), (1,)]),
        ("VALUES (1)", [(1,)]),
        ("SELECT x <= current_date() FROM VALUES (current_date()) AS v(x)", [(True,)]),
        ("WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT max(n) FROM r", [(3,)]),
        ("SELECT /*+ BROADCAST(t) */ sum(u.id) FROM db.t JOIN db.t u USING (id) -- the sum\n", [(3,)]),
        (
            "SELECT x FROM db.t, LATERAL (SELECT t.id + 1 AS x) LATERAL VIEW explode(array(1, 2)) AS y WHERE y = id",
            [(2,), (3,)],
        ),
        ("FROM db.t |> WHERE id = 1 |> SELECT name", [("a",)]),
        ("SELECT name FROM db.t WHERE name LIKE ANY ('a', upper(name)) AND name LIKE lower('A')", [("a",)]),
        ("SELECT max(id) FROM (SELECT * FROM db.t UNION ALL VALUES (7, 'g'))", [(7,)]),
    ],
)
def test_tables_of_the_lake_are_read(lake: neve.Lake, text: str, rows: list[tuple[object, ...]]):
    assert [tuple(row) for row in lake.sql(text, restricted=True).collect()] == rows
    for statement in ("SHOW TABLES", "DESCRIBE db.t", "SHOW CREATE TABLE db.t", "DESCRIBE NAMESPACE db"):
        assert lake.sql(statement, restricted=True).count()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM csv.`{file}`",
        "SELECT * FROM text.`{file}`",
        "SELECT * FROM `text`.`{file}`",
        "WITH x AS (SELECT * FROM text.`{file}`) SELECT * FROM x",
        "SELECT id FROM db.t WHERE name IN (SELECT value FROM text.`{file}`)",
        "SELECT id, (SELECT max(value) FROM text.`{file}`) FROM db.t",
        "SELECT * FROM db.t UNION ALL SELECT 1, value FROM text.`{file}`",
        "FROM text.`{file}`",
        "TABLE text.`{file}`",
        "SELECT * FROM IDENTIFIER('text.`{file}`')",
        "SELECT reflect('java.lang.System', 'getProperty', 'user.home')",
        "SELECT java_method('java.lang.System', 'getProperty', 'user.home') FROM db.t",
        "SELECT `reflect`('java.lang.System', 'getProperty', 'user.home')",
        "SELECT try_reflect('java.lang.System', 'getProperty', 'user.home')",
        "SELECT 'a' LIKE reflect('java.lang.System', 'getProperty', 'user.home')",
        "SELECT 'a' ILIKE reflect('java.lang.System', 'getProperty', 'user.home')",
        "SELECT 'a' NOT LIKE java_method('java.lang.System', 'getProperty', 'user.home')",
        "SELECT 'a' RLIKE reflect('java.lang.System', 'getProperty', 'user.home')",
        "SELECT 'a' LIKE ANY (reflect('java.lang.System', 'getProperty', 'user.home'))",
        "SELECT 'a' LIKE secret(id) FROM db.t",
        "SELECT begin fetch, reflect('java.lang.System', 'getProperty', 'user.home') FROM (SELECT 1 AS begin)",
        "SELECT begin show, (SELECT max(value) FROM text.`{file}`) FROM (SELECT 1 AS begin)",
        "SELECT * FROM \u0131dentifier('text.`{file}`')",
        "SELECT \u0131dentifier('reflect')('java.lang.System', 'getProperty', 'user.home')",
        "\u017felect value FROM text.`{file}`",
        "SELECT TRAN\u017fFORM (id) U\u017fING 'cat {file}' AS (line string) FROM db.t",
        "SELECT 'a' LIKE spark_catalog.default.f(id) FROM db.t",
        "SELECT TRANSFORM (id) USING 'cat {file}' AS (line string) FROM db.t",
        "FROM db.t MAP id USING 'cat {file}' AS line",
        "FROM db.t REDUCE id USING 'cat {file}' AS line",
        "SELECT secret(id) FROM db.t",
        "SELECT spark_catalog.default.f(id) FROM db.t",
        "SELECT * FROM my_view",
        "SELECT * FROM db.t TIMESTAMP AS OF reflect('java.lang.System', 'getProperty', 'user.home')",
        "SELECT * FROM db.t TIMESTAMP AS OF (SELECT max(value) FROM text.`{file}`)",
        "SELECT * FROM db.t TIMESTAMP AS OF (SELECT CASE WHEN v > '' THEN now() END FROM (TABLE text.`{file}`) x(v))",
        "SELECT * FROM db.t TIMESTAMP AS OF (FROM text.`{file}`)",
        "SELECT * FROM db.t TIMESTAMP AS OF coalesce((WITH x AS (FROM text.`{file}`) SELECT value FROM x), now())",
        "SELECT * FROM db.t TIMESTAMP AS OF (SELECT now() FROM my_view)",
        "SELECT * FROM db.t TIMESTAMP AS OF now() + INTERVAL 1 DAY * (SELECT count(*) FROM text.`{file}`)",
        "SELECT * FROM db.t.files TIMESTAMP AS OF (SELECT now() FROM text.`{file}`)",
        "SELECT * FROM db.t VERSION AS OF (SELECT max(value) FROM text.`{file}`)",
        "SELECT * FROM spark_catalog.default.x",
        "SELECT * FROM (TABLE text.`{file}`)",
        "SELECT EXISTS (TABLE text.`{file}`)",
        "SELECT name IN (FROM text.`{file}`) FROM db.t",
        "VALUES ((SELECT max(value) FROM text.`{file}`))",
        "SELECT * FROM db.t, LATERAL (SELECT * FROM text.`{file}`)",
        "SELECT * FROM db.t JOIN LATERAL (TABLE text.`{file}`)",
        "SELECT name FROM db.t UNION ALL TABLE text.`{file}`",
        "WITH RECURSIVE r(v) AS (SELECT value FROM text.`{file}` UNION ALL SELECT v FROM r WHERE false) FROM r",
        "WITH my_view AS (SELECT * FROM my_view) SELECT * FROM my_view",
        "SELECT * FROM (WITH my_view AS (SELECT 1) SELECT * FROM my_view) JOIN my_view",
        "SELECT * FROM STREAM text.`{file}`",
        "SELECT * FROM STREAM(text.`{file}`)",
        "FROM db.t |> SELECT name |> UNION ALL (SELECT value FROM text.`{file}`)",
        "FROM db.t |> SELECT name |> UNION ALL TABLE text.`{file}`",
        "FROM db.t |> CROSS JOIN text.`{file}` |> SELECT value",
        "FROM db.t |> EXTEND reflect('java.lang.System', 'getProperty', 'user.home') AS home",
        "SELECT IDENTIFIER('reflect')('java.lang.System', 'getProperty', 'user.home')",
        "SELECT 'a' LIKE IDENTIFIER('reflect')('java.lang.System', 'getProperty', 'user.home')",
        "SELECT system.builtin.reflect('java.lang.System', 'getProperty', 'user.home')",
        "SELECT * FROM db.t LATERAL VIEW reflect('java.lang.System', 'getProperty', 'user.home') x",
        "SELECT from_xml('<a/>', 'a string', map('rowValidationXSDPath', '{file}'))",
        "SELECT schema_of_xml('<a/>', map('rowValidationXSDPath', '{file}'))",
        "SELECT from_avro(X'00', '\"string\"', map('avroSchemaUrl', '{file}'))",
        "SELECT xpath('<!DOCTYPE a SYSTEM \"file://{file}\"><a/>', 'a')",
        "SELECT xpath_string('<!DOCTYPE a SYSTEM \"file://{file}\"><a/>', 'a')",
        "SELECT * FROM python_worker_logs()",
        "SELECT my_variable",
        "SELECT system.session.my_variable",
        "SELECT id FROM db.t WHERE name = session.my_variable",
        "SELECT (SELECT max(name) FROM db.t WHERE name < my_variable)",
        "EXECUTE IMMEDIATE 'SELECT * FROM text.`{file}`'",
        "BEGIN SELECT * FROM text.`{file}`; END",
        "DECLARE VARIABLE x = 1",
        "SET VAR my_variable = 'b'",
        "SET spark.sql.ansi.enabled = false",
        "FROM db.t INSERT INTO db.t SELECT id, name",
        "FROM db.t INSERT OVERWRITE DIRECTORY '{file}' USING csv SELECT *",
        "EXPLAIN SELECT * FROM text.`{file}`",
        "DESCRIBE QUERY SELECT * FROM text.`{file}`",
        "DESCRIBE text.`{file}`",
        "SHOW COLUMNS IN text.`{file}`",
        "SHOW CREATE TABLE text.`{file}`",
        "CACHE TABLE x AS SELECT 1",
        "ADD FILE '{file}'",
        "SELECT '${{env:HOME}}'",
        "SELECT '${{system:user.home}}'",
        "SELECT '${{spark.app.name}}'",
        "SELECT 1 AS `${{hivevar:x}}`",
        "SHOW TABLES LIKE '${{env:HOME}}'",
        "SELECT name FROM db.t WHERE true -- \\\n OR '\n UNION ALL SELECT value FROM text.`{file}` -- ' = ''",
        "SELECT name FROM db.t WHERE true /*/* */ OR '*/ UNION ALL SELECT value FROM text.`{file}` -- ' = ''",
        "SELECT name FROM db.t WHERE true /* /*+ */ UNION ALL SELECT value FROM text.`{file}` -- */ */",
        "SELECT /*+ x('*/ 1, ') */ value FROM text.`{file}` -- ' FROM db.t",
        "DELETE FROM db.t",
        "INSERT INTO db.t SELECT 1, value FROM text.`{file}`",
        "CALL system.expire_snapshots('db.t')",
        "DROP TABLE db.t",
        "CREATE NAMESPACE other",
        "TRUNCATE TABLE db.t",
    ],
)
def test_nothing_else_is_read_or_run(lake: neve.Lake, spark: SparkSession, tmp_path: Path, text: str):
    file = tmp_path / "secret.txt"
    file.write_text("secret\n")
    spark.udf.register("secret", lambda value: "secret")
    spark.range(1).createOrReplaceTempView("my_view")
    spark.sql("DECLARE OR REPLACE VARIABLE my_variable = 'secret'")
    try:
        with pytest.raises(UserError):
            lake.sql(text.format(file=file), restricted=True).collect()
    finally:
        spark.sql("DROP TEMPORARY FUNCTION secret")
        spark.sql("DROP TEMPORARY VARIABLE my_variable")
        spark.catalog.dropTempView("my_view")
    assert lake.tables() == ["db.t"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM text.`{file}`",
        "SELECT name FROM db.t UNION ALL SELECT value FROM text.`{file}`",
        "WITH x AS (SELECT * FROM text.`{file}`) SELECT * FROM x",
        "SELECT id FROM db.t WHERE name IN (SELECT value FROM text.`{file}`)",
        "SELECT (SELECT EXISTS (SELECT 1 FROM my_view)) FROM db.t",
        "SELECT * FROM db.t, LATERAL (SELECT * FROM my_view WHERE my_view.id = t.id)",
        "SELECT * FROM my_view AS t",
    ],
)
def test_the_plan_of_spark_is_checked_too(
    lake: neve.Lake, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
):
    file = tmp_path / "secret.txt"
    file.write_text("secret\n")
    spark.range(1).createOrReplaceTempView("my_view")
    monkeypatch.setattr("neve.sql.query._refuse_outside_names", lambda name: None)
    with pytest.raises(UserError, match="no table of the lake"):
        lake.sql(text.format(file=file), restricted=True)
    spark.catalog.dropTempView("my_view")


@pytest.mark.parametrize("text", ["SET neve.x = 1", "CREATE TEMPORARY VIEW my_view AS SELECT 1"])
def test_a_command_in_the_plan_is_not_run(spark: SparkSession, text: str):
    with pytest.raises(UserError, match="Cannot run a command"):
        _refuse_outside_plan(spark, Views((text,), (), (), lambda: spark))
    assert spark.conf.get("neve.x", None) is None and not spark.catalog.tableExists("my_view")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('SELECT * FROM "text"."{file}"', ["spark.sql.ansi.enabled", "spark.sql.ansi.doubleQuotedIdentifiers"]),
        ("SELECT r'\\' || 'a'", ["spark.sql.parser.escapedStringLiterals"]),
    ],
)
def test_text_that_the_session_reads_in_another_way_is_refused(
    lake: neve.Lake, spark: SparkSession, tmp_path: Path, text: str, options: list[str]
):
    with (
        temporary_options(spark, dict.fromkeys(options, "true")),
        pytest.raises(UserError, match="reads quotes in another way"),
    ):
        lake.sql(text.format(file=tmp_path), restricted=True)
