"""Iceberg's functions have the values that they have in Spark with Iceberg."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import neve
from neve.errors import UserError
from neve.predicate.sql_text import tokenize_sql
from neve.sql.iceberg_functions import FUNCTIONS, _probes, replace_iceberg_functions
from tests.peers.spark import Spark
from tests.support.spark_sessions import names_in

VALUES = {
    "int": ["0", "1", "-1", "34", "2147483647", "-2147483648"],
    "bigint": ["0L", "34L", "-34L", "9223372036854775807L", "-9223372036854775808L"],
    "smallint": ["34S", "-7S"],
    "tinyint": ["34Y", "-7Y"],
    "date": ["DATE '2017-11-16'", "DATE '1969-12-31'", "DATE '0001-01-01'", "DATE '9999-12-31'"],
    "timestamp": ["TIMESTAMP '2017-11-16 22:31:08.000001'", "TIMESTAMP '1969-12-31 23:59:59.999999'"],
    "timestamp_ntz": ["TIMESTAMP_NTZ '2017-11-16 22:31:08.123456'", "TIMESTAMP_NTZ '1969-12-31 23:59:59.999999'"],
    "string": ["''", "'a'", "'ab'", "'abc'", "'abcd'", "'iceberg'", "'üñ雪'", "'a longer text of 30 bytes...'"],
    "binary": ["X''", "X'00'", "X'FF'", "X'0001FF'", "X'000102FF'", "X'FFFEFDFCFBFAF9'"],
    "decimal(9,2)": ["0", "14.20", "-14.20", "1.27", "1.28", "-1.28", "-1.29", "9999999.99", "-9999999.99"],
    "decimal(18,0)": ["0", "255", "-256", "999999999999999999"],
    "decimal(38,10)": ["0.0000000001", "-0.0000000001", "9999999999999999999999999999.9999999999"],
    "decimal(38,0)": ["-" + "9" * 38, "9" * 38, "18446744073709551616", "-18446744073709551616", "-1"],
    "decimal(3,3)": ["0.125", "-0.125"],
}
COLUMNS = {f"c{at}": kind for at, kind in enumerate(VALUES)}


@pytest.fixture(scope="module")
def lake(spark: SparkSession, other_spark: Spark, lake_folder: Path) -> neve.Lake:
    """A table with a column for each type, which both engines read."""
    lake = neve.connect(lake_folder, spark=spark)
    columns = ", ".join(
        f"{name} {kind.replace('smallint', 'int').replace('tinyint', 'int')}" for name, kind in COLUMNS.items()
    )
    lake.sql(f"CREATE TABLE fn.t (num int, {columns}) TBLPROPERTIES ('format-version' = '3')")
    longest = max(map(len, VALUES.values()))
    rows = []
    for at in range(longest + 1):  # the last one has only nulls
        values = (f"CAST({values[at]} AS {kind})" if at < len(values) else "NULL" for kind, values in VALUES.items())
        rows.append(f"({at}, {', '.join(values)})")
    lake.sql(f"INSERT INTO fn.t VALUES {', '.join(rows)}")
    return lake


def by_both(lake: neve.Lake, other_spark: Spark, query: str) -> None:
    ours, theirs = lake.sql(query).toArrow(), other_spark.sql(query)
    assert ours.to_pylist() == theirs.to_pylist()
    assert [f.type for f in ours.schema] == [f.type for f in theirs.schema]


def calls(function: str, *kinds: str) -> str:
    return ", ".join(f"{function.format(c)} AS {c}" for c, kind in COLUMNS.items() if kind.split("(")[0] in kinds)


ALL = ("int", "bigint", "smallint", "tinyint", "date", "timestamp", "timestamp_ntz", "string", "binary", "decimal")


@pytest.mark.parametrize("count", [1, 16, 2147483647])
def test_bucket_is_the_hash_of_the_format_for_every_type(lake, other_spark, count):
    query = f"SELECT num, {calls(f'system.bucket({count}, {{}})', *ALL)} FROM fn.t ORDER BY num"
    by_both(lake, other_spark, query)


@pytest.mark.parametrize("width", [1, 3, 10])
def test_truncate_keeps_the_type(lake, other_spark, width):
    kinds = ("bigint", "string", "binary", "decimal")
    truncated = calls(f"system.truncate({width}, {{}})", *kinds)
    by_both(lake, other_spark, f"SELECT num, {truncated} FROM fn.t WHERE num NOT IN (0, 4) ORDER BY num")
    small = f"system.truncate({width}, c0) AS a, system.truncate({width}, 34Y) AS b"
    by_both(lake, other_spark, f"SELECT {small} FROM fn.t WHERE num < 4 ORDER BY num")


def test_times_are_cut_in_utc(lake, other_spark, spark):
    days = (calls(f"system.{unit}({{}})", "date", "timestamp", "timestamp_ntz") for unit in ("years", "months", "days"))
    for columns in (*days, calls("neve.system.hours({})", "timestamp", "timestamp_ntz")):
        spark.conf.set("spark.sql.session.timeZone", "Pacific/Apia")
        other_spark.sql("SET spark.sql.session.timeZone=Pacific/Apia")
        try:
            by_both(lake, other_spark, f"SELECT {columns} FROM fn.t ORDER BY num")
        finally:
            spark.conf.set("spark.sql.session.timeZone", "UTC")
            other_spark.sql("SET spark.sql.session.timeZone=UTC")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) AS n FROM fn.t WHERE system.bucket(4, c7) = 1 OR SYSTEM.Days(c5) < DATE '2000-01-01'",
        "WITH x AS (SELECT num, system.bucket(4, c1) AS b FROM fn.t), "
        "y AS (SELECT system.truncate(2, b) AS u, num FROM x) "
        "SELECT num, u, system.bucket(3, u) AS v FROM y WHERE system.bucket(2, num) = 0 ORDER BY num",
        "SELECT a.num FROM fn.t a JOIN fn.t b ON system.bucket(8, a.c0) = system.bucket(8, b.c1) ORDER BY a.num, b.num",
        "SELECT num FROM fn.t a WHERE EXISTS (SELECT 1 FROM fn.t b WHERE b.num = system.truncate(2, a.num)) ORDER BY 1",
        "SELECT system.bucket(128, 'abc') AS a, system.bucket(16, system.truncate(2, 'abcd')) AS b, "
        "system.bucket(4, NULL) AS c UNION ALL SELECT system.bucket(4, c7), 1, 2 FROM fn.t WHERE num = 3",
        "SELECT system.bucket(4, upper(concat(c7, 'x'))) AS b, count(*) AS n FROM fn.t GROUP BY ALL ORDER BY b",
        "SELECT s.b FROM (SELECT system.bucket(4, u.c9) AS b FROM fn.t u) s WHERE system.bucket(9, s.b) > 1 ORDER BY b",
    ],
)
def test_a_call_may_stand_anywhere_in_a_query(lake, other_spark, spark, query):
    before = names_in(spark)
    if "NULL" in query:
        assert lake.sql(query).collect()
    else:
        by_both(lake, other_spark, query)
    assert names_in(spark) == before


def test_a_column_without_a_name_is_called_as_it_is_written(lake):
    query = (
        "SELECT system.bucket(4,  num), num, neve.system.truncate(2, num) FROM fn.t WHERE num = 1 "
        "ORDER BY num, system.bucket(4, num)"
    )
    found = lake.sql(query)
    assert found.columns == ["system.bucket(4,  num)", "num", "neve.system.truncate(2, num)"] and found.count() == 1
    inner = "(SELECT 1, system.truncate(5, num) FROM fn.t) AS s(x, num)"
    assert lake.sql(f"SELECT abs(system.bucket(4, num)) AS a FROM {inner}").columns == ["a"]
    assert lake.sql("SELECT num FROM fn.t GROUP BY num, system.bucket(4, num) HAVING num = 2").count() == 1


def test_statements_that_change_rows_call_them(lake):
    lake.sql("CREATE OR REPLACE TEMPORARY VIEW none AS SELECT 1 AS one")
    lake.sql("CREATE TABLE fn.u (id bigint, s string, b int)")
    lake.sql("INSERT INTO fn.u SELECT num, concat('k', num), system.bucket(16, concat('k', num)) FROM fn.t")
    assert (
        lake.sql("SELECT count(*) FROM fn.u WHERE b = system.bucket(16, s)").first()[0]
        == lake.table("fn.u").scan().count()
    )
    lake.sql("UPDATE fn.u x SET b = system.bucket(4, x.s), s = system.truncate(1, s) WHERE system.truncate(5, id) = 5")
    assert lake.sql("SELECT DISTINCT s FROM fn.u WHERE id >= 5").collect() == [("k",)]
    merge = "MERGE INTO fn.u USING (SELECT 1L AS k) s ON u.id = s.k AND system.bucket(2, s.k) = system.bucket(2, u.id)"
    assert lake.sql(f"{merge} WHEN MATCHED AND system.bucket(1, u.id) = 0 THEN UPDATE SET b = -1").rows_updated == 1
    subquery = "id IN (SELECT num FROM fn.t WHERE system.truncate(2, num) = 2)"
    assert lake.sql(f"DELETE FROM fn.u WHERE {subquery}").rows_deleted == 2
    lake.sql("DROP TABLE fn.u")
    lake.sql("DROP VIEW none")


def test_the_version_is_ours(lake):
    assert lake.sql("SELECT neve.system.iceberg_version() AS v").first()[0] == f"neve {neve.__version__}"
    assert set(FUNCTIONS) == {"bucket", "truncate", "years", "months", "days", "hours", "iceberg_version"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT system.bucket(16) FROM fn.t", "it takes 2 arguments, not 1"),
        ("SELECT system.bucket(0, num) FROM fn.t", "must be a number from 1"),
        ("SELECT system.bucket(num, num) FROM fn.t", "must be a number from 1"),
        (
            "SELECT system.bucket(4, nothing) FROM fn.t",
            r"(?s)cannot tell the type of nothing: .*unknown column 'nothing'",
        ),
        ("SELECT system.bucket(4, 1.5D)", "of type double, but must be one of"),
        ("SELECT system.hours(DATE '2026-01-01')", "of type date, but must be one of timestamp, timestamp_ntz"),
        ("DELETE FROM fn.t WHERE system.bucket(4, nothing) = 1", "cannot tell the type of nothing"),
    ],
)
def test_a_wrong_call_is_an_error_that_points_at_it(lake, text, message):
    with pytest.raises(UserError, match=message):
        lake.sql(text)


def test_a_restricted_query_may_call_them(lake):
    assert lake.sql("SELECT system.bucket(4, num) FROM fn.t WHERE num = 0", restricted=True).count() == 1
    with pytest.raises(UserError, match="restricted query"):
        lake.sql("SELECT system.bucket(4, value) FROM text.`/etc/hostname`", restricted=True)


def test_other_words_stay_as_they_are():
    def unused(query: str):
        raise AssertionError(query)

    for text in ("SELECT 'system.bucket(4, id)', system.other(1), bucket(4, id), a.system.bucket FROM system.t",):
        assert replace_iceberg_functions(text, "neve", unused) == text
    text = "SELECT * FROM (SELECT x FROM a JOIN b ON 1 = system.bucket(4, b.x) WHERE y) WHERE z"
    at = next(i for i, w in enumerate(tokenize_sql(text)) if w.text == "system")
    found = list(_probes(text, tokenize_sql(text), at, "neve", "b.x", ""))
    assert found[0] == "SELECT b.x AS value FROM a JOIN b ON 1 = NULL"
