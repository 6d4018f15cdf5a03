"""`restricted=True`: text from somebody else reads tables of the lake, and nothing beside them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import neve
from neve.errors import UserError


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
    try:
        with pytest.raises(UserError):
            lake.sql(text.format(file=file), restricted=True).collect()
    finally:
        spark.sql("DROP TEMPORARY FUNCTION secret")
        spark.catalog.dropTempView("my_view")
    assert lake.tables() == ["db.t"]
