"""INSERT with PARTITION and DEFAULT: what Spark with Iceberg, or Spark over Parquet, makes of the same statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import neve
from neve.errors import UnknownName, UnsupportedFeature, UserError
from neve.sql.column_defaults import replace_default_words
from tests.peers.spark import Spark, SparkSaid

Rows = list[tuple]


@pytest.fixture
def lake(spark: SparkSession, tmp_path) -> neve.Lake:
    lake = neve.connect(tmp_path / "lake", spark=spark)
    lake.sql("CREATE TABLE db.t (id bigint, region string, day date, v int) PARTITIONED BY (region, day)")
    lake.sql("INSERT INTO db.t VALUES (1, 'eu', DATE '2026-01-01', 10), (2, 'us', DATE '2026-01-01', 20)")
    lake.sql("INSERT INTO db.t VALUES (3, 'eu', DATE '2026-01-02', 30), (4, NULL, DATE '2026-01-02', 40)")
    return lake


def rows_of(lake: neve.Lake, query: str = "TABLE db.t") -> Rows:
    return sorted((tuple(row) for row in lake.sql(query).collect()), key=repr)


OURS, THEIRS = "ins.t_neve", "ins.t_spark"
TABLE = (
    "CREATE TABLE {t} (id bigint, region string, day date, v int) USING iceberg PARTITIONED BY (region, day)",
    "INSERT INTO {t} VALUES (1, 'eu', DATE '2026-01-01', 10), (2, 'us', DATE '2026-01-01', 20), "
    "(3, 'eu', DATE '2026-01-02', 30), (4, NULL, DATE '2026-01-02', 40)",
)


@pytest.fixture(scope="module")
def two_tables(spark: SparkSession, other_spark: Spark, lake_folder: Path) -> neve.Lake:
    """A lake with the same table twice: made by this package, and by Spark with Iceberg."""
    lake = neve.connect(lake_folder, spark=spark)
    for text in TABLE:
        lake.sql(text.format(t=OURS))
    other_spark.sql("CREATE NAMESPACE IF NOT EXISTS ins", *(text.format(t=THEIRS) for text in TABLE))
    return lake


@pytest.fixture
def by_both(spark: SparkSession, other_spark: Spark, two_tables: neve.Lake) -> Callable[..., tuple[Rows, Rows]]:
    """Run a statement in this package and in Spark with Iceberg, each on its table as it was; return both's rows."""
    for table in map(two_tables.table, (OURS, THEIRS)):
        table.rollback(table.context.metadata.snapshots[0].snapshot_id)

    def run(statement: str, mode: str | None = None) -> tuple[Rows, Rows]:
        option = "spark.sql.sources.partitionOverwriteMode"
        try:
            if mode is not None:
                spark.conf.set(option, mode)
                other_spark.sql(f"SET {option}={mode}")
            two_tables.sql(statement.format(t=OURS))
            found = other_spark.sql(statement.format(t=THEIRS), f"SELECT * FROM {THEIRS}")
        finally:
            spark.conf.unset(option)
            other_spark.sql(f"RESET {option}")
        expected = [tuple(row.values()) for row in found.to_pylist()]
        return rows_of(two_tables, f"TABLE {OURS}"), sorted(expected, key=repr)

    return run


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO {t} PARTITION (region = 'eu', day) SELECT 5L, DATE '2026-01-03', 50",
        "INSERT INTO {t} PARTITION (region = 'eu') SELECT 5L, DATE '2026-01-03', 50",
        "INSERT INTO {t} PARTITION (day, region) VALUES (5, 'eu', DATE '2026-01-03', 50)",
        "INSERT INTO {t} PARTITION (DAY = '2026-01-03', region = NULL) VALUES (5, 50), (6, 60)",
        "INSERT INTO {t} PARTITION (region = 7, day = DATE '2026-01-03') SELECT 5L, 50",
        "INSERT INTO {t} PARTITION (region = 'eu') (v, day, id) VALUES (50, DATE '2026-01-03', 5)",
        "INSERT INTO {t} PARTITION (region = 'eu') (v, id) VALUES (50, 5)",
        "INSERT INTO {t} PARTITION (region = 'eu') BY NAME SELECT 50 AS v, DATE '2026-01-03' AS day, 5L AS id",
        "INSERT OVERWRITE {t} PARTITION (region = 'eu') SELECT 5L, DATE '2026-01-02', 50",
        "INSERT OVERWRITE {t} PARTITION (region = 'eu', day = '2026-01-02') SELECT 5L, 50",
        "INSERT OVERWRITE {t} PARTITION (region = NULL, day) SELECT 5L, DATE '2026-01-01', 50",
        "INSERT OVERWRITE {t} PARTITION (region = 'eu') SELECT id, day, v FROM {t} WHERE id > 9",
    ],
)
def test_partition_values_do_what_they_do_in_spark(by_both, statement):
    ours, theirs = by_both(statement)
    assert ours == theirs


@pytest.mark.parametrize("mode", ["static", "DYNAMIC"])
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OVERWRITE {t} SELECT 5L, 'eu', DATE '2026-01-02', 50",
        "INSERT OVERWRITE {t} PARTITION (region = 'eu', day) SELECT 5L, DATE '2026-01-02', 50",
    ],
)
def test_the_overwrite_mode_of_the_session_decides_as_in_spark(by_both, mode, statement):
    ours, theirs = by_both(statement, mode=mode)
    assert ours == theirs


def test_without_an_overwrite_mode_only_the_partitions_of_the_new_rows_are_replaced(lake):
    lake.sql("INSERT OVERWRITE db.t PARTITION (region, day) SELECT 5L, 'eu', DATE '2026-01-02', 50")
    assert [row[0] for row in rows_of(lake)] == [1, 2, 4, 5]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("INSERT INTO db.t PARTITION (v = 1) VALUES (1, 'eu', NULL)", "Unknown partition column 'v'.*region.*day"),
        ("INSERT INTO db.t PARTITION (day = 'soon') VALUES (1, 'eu', 1)", "day = 'soon'.*date, and 'soon' is no such"),
        ("INSERT INTO db.t PARTITION (day = now()) VALUES (1, 'eu', 1)", "give a constant"),
        ("INSERT INTO db.t PARTITION (region = DEFAULT) VALUES (1, NULL, 1)", "give a constant"),
        (
            "INSERT INTO db.t PARTITION (region = 'eu') VALUES (1, 'eu', NULL, 1)",
            "3 columns besides.*the query gives 4",
        ),
        ("INSERT INTO db.t PARTITION (region = 'eu') (id, region) VALUES (1, 'eu')", "'region' again after PARTITION"),
        ("INSERT INTO db.t PARTITION (region = 'eu') BY NAME SELECT 'eu' AS region", "'region' again after PARTITION"),
    ],
)
def test_a_wrong_partition_clause_is_an_error(lake, statement, message):
    before = rows_of(lake)
    with pytest.raises((UserError, UnknownName), match=message):
        lake.sql(statement)
    assert rows_of(lake) == before


def test_columns_behind_a_transform_take_no_partition_value(lake, other_spark, lake_folder):
    lake.sql("CREATE TABLE db.b (id bigint, ts timestamp) PARTITIONED BY (bucket(4, id), days(ts))")
    with pytest.raises(UnknownName, match="Unknown partition column 'id'"):
        lake.sql("INSERT INTO db.b PARTITION (id = 1) SELECT now()")
    create = "CREATE TABLE ins.b (id bigint, ts timestamp) USING iceberg PARTITIONED BY (bucket(4, id), days(ts))"
    other_spark.sql("CREATE NAMESPACE IF NOT EXISTS ins", create)
    with pytest.raises(SparkSaid, match=r"NON_PARTITION_COLUMN|not a partition column"):
        other_spark.sql("INSERT INTO ins.b PARTITION (id = 1) SELECT now()")


# -- DEFAULT ---------------------------------------------------------------------------------------------------------

DEFAULTS = (
    "id bigint, s string DEFAULT 'one two' COMMENT 'DEFAULT 1', n int DEFAULT 5, d date DEFAULT DATE '2026-01-02', "
    "m decimal(5,2) DEFAULT 1.50, ts timestamp DEFAULT TIMESTAMP '2026-01-02 03:04:05.5', "
    "tn timestamp_ntz DEFAULT TIMESTAMP_NTZ '2026-01-02 03:04:05.5', b boolean DEFAULT true, "
    "x double DEFAULT 0.5D, y binary DEFAULT X'00FF', st struct<`default`: int, b: string>"
)


@pytest.fixture
def parquet_table(spark: SparkSession) -> Iterator[str]:
    spark.sql(f"CREATE TABLE with_defaults ({DEFAULTS}) USING parquet")
    yield "with_defaults"
    spark.sql("DROP TABLE with_defaults")


def test_default_stands_for_the_default_of_the_column_as_in_spark(lake, spark, parquet_table):
    lake.sql(f"CREATE TABLE db.d ({DEFAULTS}) TBLPROPERTIES ('format-version' = '3')")
    for statement in (
        "INSERT INTO {t} VALUES (1, DEFAULT, DEFAULT, DEFAULT, DEFAULT, DEFAULT, DEFAULT, DEFAULT, DEFAULT, DEFAULT, "
        "DEFAULT), (2, 'a', 6, NULL, default, NULL, NULL, false, 1, X'', NULL)",
        "INSERT INTO {t} (id) VALUES (3)",
        "INSERT INTO {t} (n, id, s) VALUES (DEFAULT, 4, 'DEFAULT'), (4, DEFAULT, DEFAULT)",
        "INSERT INTO {t} (n, id) SELECT DEFAULT, 5",
        "INSERT INTO {t} (id) VALUES DEFAULT, 7",
    ):
        lake.sql(statement.format(t="db.d"))
        spark.sql(statement.format(t=parquet_table))
    expected = sorted((tuple(row) for row in spark.table(parquet_table).collect()), key=repr)
    assert rows_of(lake, "TABLE db.d") == expected
    assert lake.table("db.d").schema.find_field("s").doc == "DEFAULT 1"


def test_a_column_named_default_is_a_column(lake):
    text = "SELECT t.default, x.`default` FROM t"
    assert replace_default_words(text, lake.table("db.t").schema.fields) == text
    lake.sql("CREATE TABLE db.odd (`default` int, id int)")
    lake.sql("INSERT INTO db.odd (id, `default`) VALUES (1, 2)")
    lake.sql("INSERT INTO db.odd (id) SELECT `default` FROM db.odd")
    assert rows_of(lake, "SELECT id, `default` FROM db.odd") == [(1, 2), (2, None)]


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("CREATE TABLE db.e (id int, n int DEFAULT 5)", UnsupportedFeature, "'n' a default.*version 2"),
        ("CREATE TABLE db.e (n int DEFAULT now()) {v3}", UserError, "give a constant"),
        ("CREATE TABLE db.e (n int DEFAULT 'a') {v3}", UserError, "default value of type int"),
        ("CREATE TABLE db.e (n int DEFAULT) {v3}", UserError, "expected a value"),
        ("INSERT INTO db.t VALUES (DEFAULT + 1, 'eu', NULL, 1)", UserError, "(?i)default"),
    ],
)
def test_a_wrong_default_is_an_error(lake, statement, error, message):
    with pytest.raises(error, match=message):
        lake.sql(statement.format(v3="TBLPROPERTIES ('format-version' = '3')"))
    assert lake.tables() == ["db.t"]
