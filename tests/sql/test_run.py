"""SQL on a lake: each statement does what Spark SQL defines."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import pytest
from pyiceberg.types import DecimalType, LongType
from pyspark.sql import DataFrame, SparkSession

import neve
from neve.errors import UnknownName, UserError
from neve.run.spark.session import substitute_variables, temporary_options
from tests.support.spark_sessions import names_in

ROWS = [{"id": 1, "region": "eu", "v": 10}, {"id": 2, "region": "us", "v": 20}, {"id": 3, "region": "eu", "v": 30}]


@pytest.fixture
def lake(spark: SparkSession, tmp_path) -> neve.Lake:
    lake = neve.connect(tmp_path / "lake", spark=spark)
    lake.create_table("db.sales", "id bigint, region string, v int", ["region"]).append(ROWS)
    return lake


def rows(lake: neve.Lake, text: str) -> list[tuple]:
    found = lake.sql(text)
    assert isinstance(found, DataFrame)
    return sorted(tuple(row) for row in found.collect())


def sales(lake: neve.Lake) -> list[tuple]:
    return rows(lake, "SELECT id, region, v FROM db.sales")


# -- queries ---------------------------------------------------------------------------------------------------------


def test_a_query_joins_tables_of_the_lake_with_views_of_the_caller(lake, spark):
    lake.create_table("db.names", "region string, name string").append([{"region": "eu", "name": "Europe"}])
    spark.createDataFrame([(1,), (3,)], "id bigint").createOrReplaceTempView("mine")
    found = rows(
        lake,
        """
        WITH big AS (SELECT * FROM db.sales WHERE v >= 10)
        SELECT big.id, names.name, (SELECT max(v) FROM db.sales) FROM big JOIN db.names ON names.region = big.region
        WHERE big.id IN (SELECT id FROM mine) AND EXISTS (SELECT 1 FROM db.sales s WHERE s.id = big.id)
        """,
    )
    assert found == [(1, "Europe", 30), (3, "Europe", 30)]
    spark.catalog.dropTempView("mine")


@pytest.mark.parametrize(
    "comment", ["-- c\n", "-- \\\n", "-- \\\r\n", "/* /* */ */", "/*/* */ */", "/* /*+ */", "-- /*\n"]
)
def test_comments_hide_of_a_condition_what_they_hide_in_spark(lake, spark, comment):
    for id_ in range(4, 10):
        lake.sql(f"INSERT INTO db.sales VALUES ({id_}, 'eu', 0)")
    condition = f"id > 0 {comment} AND id > 5"
    expected = [tuple(row) for row in spark.sql(f"SELECT id FROM range(10) WHERE {condition}").collect()]
    assert rows(lake, f"SELECT id FROM db.sales WHERE {condition}") == expected
    lake.sql(f"DELETE FROM db.sales WHERE {condition}")
    assert len(sales(lake)) == 9 - len(expected)


VARIABLES = {
    "neve.table": "db.sales",
    "neve.region": "us",
    "neve.nested": "<${neve.region}>",
    "neve.loop": "${neve.loop}",
}


@pytest.fixture
def variables(spark: SparkSession) -> Iterator[None]:
    for name, value in VARIABLES.items():
        spark.conf.set(name, value)
    yield
    for name in VARIABLES:
        spark.conf.unset(name)


@pytest.mark.parametrize(
    "text",
    [
        *("${env:HOME}", "${system:java.version}", "${spark.app.name}", "${spark:spark.app.name}", "${neve.region}"),
        *("${hivevar:neve.region}", "${neve.nested} ${neve.region}", "${spark.sql.shuffle.partitions}"),
        *(
            "${neve.nothing}",
            "${env:NOTHING_OF_THE_KIND}",
            "${neve.region",
            "${ neve.region}",
            "${x:neve.region}",
            "${}",
        ),
    ],
)
def test_variables_have_the_values_that_spark_gives_them(spark, variables, text):
    assert substitute_variables(spark, text) == spark.sql(f"SELECT '{text}'").first()[0]


def test_a_variable_that_refers_to_itself_is_an_error(lake, variables):
    with pytest.raises(UserError, match=r"\$\{neve\.loop\} refers to"):
        lake.sql("SELECT '${neve.loop}'")


def test_variables_have_the_same_value_in_every_statement(lake, variables):
    assert rows(lake, "SELECT id FROM ${neve.table} WHERE region = '${neve.region}'") == [(2,)]
    assert lake.sql("DELETE FROM db.sales WHERE region = '${neve.region}'").rows_deleted == 1
    lake.sql("INSERT INTO db.sales VALUES (4, '${neve.region}', 0)")
    lake.sql("INSERT INTO db.sales PARTITION (region = '${neve.region}') VALUES (5, 0)")
    assert lake.sql("UPDATE db.sales SET v = 5 WHERE region = '${neve.region}'").rows_updated == 2
    assert sales(lake) == [(1, "eu", 10), (3, "eu", 30), (4, "us", 5), (5, "us", 5)]
    lake.sql("CREATE TABLE db.owned (id int) TBLPROPERTIES ('owner' = '${neve.region}')")
    assert lake.table("db.owned").context.metadata.properties["owner"] == "us"


@pytest.mark.parametrize(("is_on", "deleted"), [("true", 1), ("false", 0)])
def test_a_condition_with_a_variable_is_left_to_spark(lake, spark, variables, is_on, deleted):
    with temporary_options(spark, {"spark.sql.variable.substitute": is_on}):
        condition = "region = '${neve.region}'"
        assert len(rows(lake, f"SELECT id FROM db.sales WHERE {condition}")) == deleted
        assert lake.table("db.sales").delete().where(condition).execute().rows_deleted == deleted


def test_a_query_leaves_no_view_behind_and_reads_later(lake, spark):
    before = names_in(spark)
    found = lake.sql("SELECT sum(v) AS total FROM db.sales")
    assert names_in(spark) == before
    assert found.where("total > 0").first()[0] == 60


def test_a_query_reads_the_past_branches_and_metadata(lake):
    first = lake.table("db.sales").create_tag("v1").create_branch("audit").context.head().snapshot_id
    lake.sql("INSERT INTO db.sales VALUES (4, 'us', 40)")
    lake.sql("INSERT INTO db.sales.branch_audit VALUES (5, 'us', 50)")
    counts = {
        "db.sales": 4,
        "db.sales VERSION AS OF 'v1'": 3,
        f"db.sales FOR VERSION AS OF {first}": 3,
        "db.sales.tag_v1": 3,
        "db.sales.branch_audit": 4,
        f"db.sales.snapshot_id_{first}": 3,
        "db.sales.at_timestamp_9999999999999": 4,
        "db.sales.snapshots": 3,
        "db.sales.files": 3,
    }
    for table, count in counts.items():
        assert rows(lake, f"SELECT count(*) FROM {table}") == [(count,)], table


def test_metadata_columns_are_there_for_who_names_them_and_no_part_of_a_star(lake):
    assert rows(lake, "SELECT id, _pos, _partition.region FROM db.sales") == [(1, 0, "eu"), (2, 0, "us"), (3, 1, "eu")]
    assert rows(lake, "SELECT *, _pos FROM db.sales WHERE _spec_id = 0 AND id * 2 = 6") == [(3, "eu", 30, 1)]
    assert rows(lake, "SELECT s.*, s._pos AS at FROM db.sales s WHERE id = 3") == [(3, "eu", 30, 1)]
    assert rows(lake, "SELECT count(*), count(DISTINCT _file) FROM db.sales") == [(3, 2)]
    assert rows(lake, "SELECT * FROM db.sales WHERE id = 3") == [(3, "eu", 30)]
    found = rows(lake, "SELECT a.id, b._pos FROM db.sales a JOIN db.sales b USING (id) WHERE b._pos = 1")
    assert found == [(3, 1)]
    found = rows(lake, "SELECT s._FILE IS NOT NULL, n._pos FROM db.sales s JOIN db.sales n USING (id) WHERE id = 3")
    assert found == [(True, 1)]
    own = "SELECT id % 2 AS _pos, count(*) FROM db.sales GROUP BY _pos"
    assert rows(lake, own) == [(0, 1), (1, 2)], "an alias is no metadata column"
    for text in ("SELECT * FROM (SELECT *, _pos FROM db.sales)", "SELECT hash(*) FROM db.sales WHERE _pos = 0"):
        with pytest.raises(UserError, match=r"whether \* means _pos too"):
            lake.sql(text)
    with pytest.raises(UserError, match="NATURAL JOIN"):
        lake.sql("SELECT _pos FROM db.sales a NATURAL JOIN db.sales b")
    lake.sql("CREATE TABLE db.left (_id bigint)")
    lake.sql("INSERT INTO db.left VALUES (7)")
    assert rows(lake, "SELECT _id FROM db.left a NATURAL JOIN db.left b") == [(7,)], "a column of its own"
    lake.sql("CREATE TABLE db.own (_pos string)")
    lake.sql("INSERT INTO db.own VALUES ('mine')")
    assert rows(lake, "SELECT *, _pos FROM db.own") == [("mine", "mine")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT id, v + 10 AS v FROM db.sales |> WHERE v = 20", [(1, 20)]),
        ("FROM db.sales |> SELECT id, 'x' AS region |> WHERE region = 'x'", [(1, "x"), (2, "x"), (3, "x")]),
        ("FROM db.sales |> AGGREGATE sum(v) AS id |> WHERE id = 60", [(60,)]),
    ],
)
def test_a_condition_behind_a_pipe_is_about_the_rows_before_it(lake, text, found):
    assert rows(lake, text) == found


def test_a_comment_may_stand_before_time_travel(lake):
    first = lake.table("db.sales").context.head().snapshot_id
    lake.sql("DELETE FROM db.sales")
    assert rows(lake, f"SELECT count(*) FROM db.sales /* before */ VERSION AS OF {first}") == [(3,)]


MERGE = "MERGE INTO db.sales t USING (SELECT 1L AS id, 2 AS w) s ON t.id = s.id\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT id FROM db.sales\nWHERE «regoin» = 'eu'", "unknown column 'regoin'. Did you mean one of .*region"),
        ("SELECT * FROM db.sales.«snapshot»", "Unknown metadata table 'snapshot' in table db.sales. Did you mean"),
        ("SELECT * FROM «db.saels»", "Unknown table 'db.saels'. Did you mean 'db.sales'"),
        ("SELECT id, «nope(v)» FROM db.sales", "nope"),
        ("SELECT id FORM «db».sales x", "unexpected 'db'"),
        ("INSERT INTO db.sales SELECT id, region, «vv» FROM db.sales", "unknown column 'vv'"),
        ("INSERT INTO db.sales (id, «vv») VALUES (1, 2)", "Unknown column 'vv'"),
        ("UPDATE db.sales SET «regoin» = 'x'", "Unknown column 'regoin' in table db.sales. Did you mean 'region'"),
        ("UPDATE db.sales SET v = 1,\n region = «`vV`» || region", "UPDATE SET region: unknown column 'vV'"),
        ("UPDATE db.sales SET v = «'a' || region»", "UPDATE SET v: Cannot store string in column 'v'"),
        ("UPDATE db.sales SET v = «sum(v)»", "UPDATE SET v: aggregate functions"),
        ("DELETE FROM db.sales WHERE v > 1 AND «sales.nix» = 1", "Unknown column 'sales.nix'"),
        ("DELETE FROM db.sales WHERE db.«sales.nix» = 1", "Unknown column 'sales.nix'"),
        ("DELETE FROM db.sales WHERE id IN (SELECT «idd» FROM db.sales)", "DELETE WHERE: unknown column 'idd'"),
        ("DELETE FROM db.sales WHERE «v = rand()»", "DELETE WHERE: .*evaluated again"),
        (MERGE.replace("s.id\n", "«s.idd»\n") + "WHEN MATCHED THEN DELETE", "MERGE ON: unknown column 's.idd'"),
        (MERGE + "WHEN MATCHED AND «S.q» > 1 THEN DELETE", "condition: unknown column"),
        (MERGE + "WHEN NOT MATCHED THEN INSERT (id, «vv») VALUES (s.id, 1)", "Unknown column 'vv'"),
        (MERGE + "WHEN MATCHED THEN UPDATE SET v = «t.region || w»", r"UPDATE\) v: Cannot store string"),
        ("ALTER TABLE db.sales ADD PARTITION FIELD bucket(4, «idd»)", "Unknown column 'idd'"),
    ],
)
def test_an_error_points_at_its_position(lake, text, message):
    start, end, text = text.index("«"), text.index("»") - 1, text.replace("«", "").replace("»", "")
    line, column = text.count("\n", 0, start) + 1, start - (text.rfind("\n", 0, start) + 1) + 1
    with pytest.raises(UserError, match=message) as caught:
        lake.sql(text)
    error_lines = str(caught.value).splitlines()
    assert error_lines[0].endswith(f" line {line}, column {column}:")
    at = error_lines[-1].index("^")
    assert (error_lines[-2][at : at + error_lines[-1].count("^")], error_lines[-1].lstrip()) == (
        text[start:end],
        "^" * (end - start),
    )


def test_an_error_about_words_in_several_places_points_at_none(lake):
    """The first is right: it is a column of the other table."""
    lake.create_table("db.keys", "k bigint")
    with pytest.raises(UnknownName) as caught:
        lake.sql("DELETE FROM db.sales WHERE id IN (SELECT k FROM db.keys) AND k = 1")
    assert "^" not in str(caught.value)


def test_a_place_that_is_pointed_at_shows_no_secret(lake):
    with pytest.raises(UnknownName) as caught:
        lake.sql("DELETE FROM db.sales WHERE nope = 's3://me:hunter2@bucket/x'")
    assert "s3://…@bucket" in str(caught.value) and "hunter2" not in str(caught.value)


# -- INSERT ----------------------------------------------------------------------------------------------------------


def test_insert_goes_by_position_by_name_or_by_the_columns_named(lake):
    assert lake.sql("INSERT INTO db.sales VALUES (4, 'us', 40), (5, NULL, 50)").rows_added == 2
    lake.sql("INSERT INTO db.sales (v, ID) SELECT v + 1, id + 5 FROM db.sales WHERE id = 1")
    lake.sql("INSERT INTO db.sales BY NAME SELECT 70 AS v, 7L AS id")
    lake.sql("WITH x AS (SELECT 8 AS a, 'eu' AS b, 80 AS c) INSERT INTO db.sales SELECT * FROM x")
    assert sales(lake)[3:] == [(4, "us", 40), (5, None, 50), (6, None, 11), (7, None, 70), (8, "eu", 80)]


def test_insert_stores_values_as_spark_does(lake):
    lake.sql("CREATE TABLE db.kinds (d double, m decimal(8, 2), at timestamp, day date)")
    lake.sql("INSERT INTO db.kinds VALUES (1.5, 2, DATE '2026-01-02', DATE '2026-01-02')")
    (found,) = rows(lake, "SELECT d, CAST(m AS string), CAST(at AS string), day FROM db.kinds")
    assert found == (1.5, "2.00", "2026-01-02 00:00:00", date(2026, 1, 2))
    with pytest.raises(UserError, match="Cannot store string in column 'd'"):
        lake.sql("INSERT INTO db.kinds (d) VALUES ('x')")
    with pytest.raises(neve.NeveError, match="does not fit column v"):
        lake.sql("INSERT INTO db.sales (id, v) VALUES (1, 3000000000)")


def test_insert_overwrite_replaces_the_partitions_of_the_rows(lake):
    done = lake.sql("INSERT OVERWRITE db.sales SELECT id + 10, region, v FROM db.sales WHERE region = 'us'")
    assert (done.rows_added, done.rows_removed) == (1, 1)
    assert sales(lake) == [(1, "eu", 10), (3, "eu", 30), (12, "us", 20)]


def test_replace_where_replaces_what_the_condition_covers(lake):
    lake.sql("INSERT INTO db.sales REPLACE WHERE region = 'eu' SELECT 9, 'eu', 90")
    assert sales(lake) == [(2, "us", 20), (9, "eu", 90)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("INSERT INTO db.sales VALUES (1)", "has 3 columns, but the query gives 1"),
        ("INSERT INTO db.sales (id, v) VALUES (1)", "names 2 columns, but the query gives 1"),
        ("INSERT INTO db.sales (id, ID) VALUES (1, 2)", "'id' twice"),
        ("INSERT INTO db.sales (idd) VALUES (1)", "Unknown column 'idd' in table db.sales"),
        ("INSERT INTO db.saels VALUES (1)", "Unknown table 'db.saels'"),
        ("INSERT INTO db.sales SELECT * FROM nope", "Unknown table 'nope'"),
        ("INSERT INTO db.sales.branch_nope VALUES (1, 'x', 1)", "nope"),
    ],
)
def test_wrong_inserts_change_nothing(lake, text, message):
    with pytest.raises(UserError, match=message):
        lake.sql(text)
    assert len(sales(lake)) == 3


# -- UPDATE, DELETE, MERGE -------------------------------------------------------------------------------------------


def test_update_with_an_alias_a_subquery_and_options(lake):
    done = lake.sql(
        "UPDATE db.sales AS x SET x.v = x.v + (SELECT max(v) FROM db.sales), region = upper(x.region) WHERE x.id < 3",
        mode="merge-on-read",
        snapshot_properties={"by": "test"},
    )
    assert done.rows_updated == 2 and done.delete_files_added > 0
    assert sales(lake) == [(1, "EU", 40), (2, "US", 50), (3, "eu", 30)]
    assert lake.table("db.sales").context.head().summary["by"] == "test"


def test_update_and_delete_know_the_table_by_its_name(lake):
    lake.sql("UPDATE db.sales SET sales.v = sales.id WHERE sales.region = 'us'")
    lake.sql("DELETE FROM db.sales WHERE sales.id = 1")
    assert sales(lake) == [(2, "us", 2), (3, "eu", 30)]


def test_columns_may_be_qualified_with_the_whole_name_of_a_table(lake):
    lake.sql("UPDATE db.sales SET db.sales.v = db.sales.v + 1 WHERE db.sales.id = 2")
    lake.sql("DELETE FROM db.sales WHERE db.sales.id = (SELECT min(db.sales.id) FROM db.sales)")
    lake.create_table("new.sales", "id bigint").append([{"id": 2}])
    with pytest.raises(UserError, match=r"[Uu]nknown column"):  # `sales` is another one inside
        lake.sql("DELETE FROM db.sales WHERE EXISTS (SELECT 1 FROM new.sales WHERE new.sales.id = db.sales.id)")
    inside = "SELECT id FROM db.sales WHERE EXISTS (SELECT 1 FROM new.sales WHERE new.sales.id = db.sales.id)"
    assert rows(lake, inside) == [(2,)]
    lake.create_table("db.new", "id bigint, v int").append([{"id": 3, "v": 7}])
    lake.sql(
        "MERGE INTO db.sales USING db.new ON db.sales.id = db.new.id "
        "WHEN MATCHED AND db.new.v > 0 THEN UPDATE SET v = db.sales.v + db.new.v"
    )
    assert sales(lake) == [(2, "us", 21), (3, "eu", 37)]
    with pytest.raises(UnknownName, match=r"Unknown column 'no\.sales\.id'"):
        lake.sql("DELETE FROM db.sales WHERE no.sales.id = 2")


def test_default_is_the_default_of_the_column(lake):
    lake.sql("CREATE TABLE db.d (id bigint, s string) TBLPROPERTIES ('format-version' = '3')")
    lake.sql("ALTER TABLE db.d ADD COLUMN n int DEFAULT 5")
    lake.sql("INSERT INTO db.d VALUES (1, 'a', 1), (2, 'b', 2)")
    lake.sql("UPDATE db.d SET n = DEFAULT, s = default WHERE id = 1")
    merge = "MERGE INTO db.d t USING (SELECT 3 AS id) s ON t.id = s.id"
    lake.sql(f"{merge} WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, DEFAULT)")
    assert rows(lake, "SELECT * FROM db.d") == [(1, None, 5), (2, "b", 2), (3, None, 5)]


def test_delete_by_another_table(lake):
    lake.create_table("db.gone", "id bigint").append([{"id": 1}, {"id": 2}])
    done = lake.sql("DELETE FROM db.sales s WHERE EXISTS (SELECT 1 FROM db.gone WHERE gone.id = s.id)")
    assert done.rows_deleted == 2
    assert sales(lake) == [(3, "eu", 30)]
    assert lake.sql("DELETE FROM db.sales").rows_deleted == 1


def test_common_table_expressions_come_before_changes_of_rows(lake):
    last = "WITH x AS (SELECT * FROM db.sales), last AS (SELECT max(id) AS id FROM x)"
    lake.sql(f"{last} DELETE FROM db.sales WHERE id IN (SELECT id FROM last)")
    lake.sql(
        """
        WITH new AS (SELECT id, v + 1 AS v FROM db.sales WHERE id = 1) MERGE INTO db.sales t USING new ON t.id = new.id
        WHEN MATCHED THEN UPDATE SET v = new.v
        """
    )
    assert rows(lake, "TABLE db.sales") == [(1, "eu", 11), (2, "us", 20)]


def test_merge_with_every_kind_of_clause(lake):
    lake.sql("CREATE TABLE db.changes AS SELECT * FROM VALUES (1, 'd', 0), (2, 'u', 99), (7, 'i', 70) AS c(id, op, v)")
    done = lake.sql(
        """
        MERGE INTO db.sales AS t USING (SELECT * FROM db.changes) AS s ON t.id = s.id
        WHEN MATCHED AND s.op = 'd' THEN DELETE
        WHEN MATCHED THEN UPDATE SET v = CASE WHEN s.v > 50 THEN s.v ELSE t.v END
        WHEN NOT MATCHED THEN INSERT (id, region, v) VALUES (s.id, 'new', s.v)
        WHEN NOT MATCHED BY SOURCE AND t.v > 25 THEN UPDATE SET region = 'old'
        """
    )
    assert (done.rows_deleted, done.rows_updated, done.rows_inserted) == (1, 2, 1)
    assert sales(lake) == [(2, "us", 99), (3, "old", 30), (7, "new", 70)]


def test_merge_of_everything_may_evolve_the_schema(lake, spark):
    spark.sql("SELECT 3L AS id, 'eu' AS region, 33 AS v, 'x' AS note").createOrReplaceTempView("news")
    lake.sql(
        "MERGE WITH SCHEMA EVOLUTION INTO db.sales USING news ON sales.id = news.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert rows(lake, "SELECT id, v, note FROM db.sales WHERE id > 1") == [(2, 20, None), (3, 33, "x")]
    spark.catalog.dropTempView("news")


def test_a_branch_is_written_by_name_or_by_option(lake):
    lake.sql("ALTER TABLE db.sales CREATE BRANCH audit")
    lake.sql("DELETE FROM db.sales.branch_audit WHERE id = 1")
    lake.sql("UPDATE db.sales SET v = 0", branch="audit")
    assert rows(lake, "SELECT id, v FROM db.sales.branch_audit") == [(2, 0), (3, 0)]
    assert len(sales(lake)) == 3
    with pytest.raises(UserError, match="Give only one"):
        lake.sql("DELETE FROM db.sales.branch_audit", branch="main")


def test_columns_may_be_named_like_statements(lake):
    lake.sql("CREATE TABLE db.notes (id int, comment string, load int, call int)")
    lake.sql("INSERT INTO db.notes VALUES (1, 'x', 10, 1), (2, 'y', 20, 2)")
    lake.sql("UPDATE db.notes SET load = call, call = load WHERE comment = 'x'")
    lake.sql("DELETE FROM db.notes WHERE call < 5")
    assert rows(lake, "SELECT id, load, call FROM db.notes") == [(1, 1, 10)]


def test_a_value_has_no_alias(lake):
    for text in ("UPDATE db.sales SET v = id region", "UPDATE db.sales SET v = id AS region"):
        with pytest.raises(UserError, match="unexpected alias 'region'"):
            lake.sql(text)
    with pytest.raises(UserError, match="unexpected alias 'region'"):
        lake.table("db.sales").update().set("v", "id region").execute()
    assert [v for _, _, v in sales(lake)] == [10, 20, 30]


def test_options_are_checked(lake):
    with pytest.raises(UserError, match="INSERT takes no option 'reruns'"):
        lake.sql("INSERT INTO db.sales VALUES (4, 'us', 40)", reruns=0)
    with pytest.raises(UnknownName, match=r"Unknown option 'mod'.*'mode'"):
        lake.sql("DELETE FROM db.sales", mod="merge-on-read")
    with pytest.raises(UserError, match="takes no option 'mode'"):
        lake.sql("SELECT 1", mode="merge-on-read")
    with pytest.raises(UnknownName, match="mode"):
        lake.sql("DELETE FROM db.sales", mode="fast")


# -- tables ----------------------------------------------------------------------------------------------------------


def test_a_table_is_created_with_its_spec_properties_and_version(lake):
    created = lake.sql(
        "CREATE TABLE db.events (id bigint NOT NULL, ts timestamp COMMENT 'when') USING iceberg "
        "PARTITIONED BY (days(ts), bucket(16, id)) TBLPROPERTIES ('format-version' = '3', 'a' = 'b')"
    )
    metadata = created.context.metadata
    assert [f.name for f in metadata.spec().fields] == ["ts_day", "id_bucket"]
    assert (metadata.format_version, metadata.properties["a"]) == (3, "b")
    assert created.schema.find_field("id").required and created.schema.find_field("ts").doc == "when"
    assert lake.sql("CREATE TABLE IF NOT EXISTS db.events (x int)").schema.column_names == ["id", "ts"]
    with pytest.raises(UserError, match="already exists"):
        lake.sql("CREATE TABLE db.events (x int)")


def test_a_table_made_of_a_query_has_its_rows_or_is_not_there(lake):
    created = lake.sql("CREATE TABLE db.eu PARTITIONED BY (region) AS SELECT * FROM db.sales WHERE region = 'eu'")
    assert created.scan().count() == 2
    with pytest.raises(neve.NeveError, match="no such luck"):
        lake.sql("CREATE TABLE db.broken AS SELECT id, CAST(raise_error('no such luck') AS int) AS x FROM db.sales")
    assert lake.tables() == ["db.eu", "db.sales"]


def test_a_table_is_renamed_and_dropped(lake):
    assert lake.sql("ALTER TABLE db.sales RENAME TO sold").name == "db.sold"
    lake.sql("DROP TABLE db.sold")
    lake.sql("DROP TABLE IF EXISTS db.sold")
    with pytest.raises(UnknownName, match=r"db\.sold"):
        lake.sql("DROP TABLE db.sold")


def spec(table: neve.Table) -> list[tuple[str, str]]:
    return [(f.name, str(f.transform)) for f in table.context.metadata.spec().fields]


def test_partition_fields_come_go_and_take_names(lake):
    added = lake.sql("ALTER TABLE db.sales ADD PARTITION FIELD bucket(4, id) AS shard")
    assert spec(added) == [("region", "identity"), ("shard", "bucket[4]")]
    replaced = lake.sql("ALTER TABLE db.sales REPLACE PARTITION FIELD shard WITH truncate(2, id) AS pair")
    assert spec(replaced) == [("region", "identity"), ("pair", "truncate[2]")]
    assert spec(lake.sql("ALTER TABLE db.sales DROP PARTITION FIELD truncate(2, id)")) == [("region", "identity")]
    assert spec(lake.sql("ALTER TABLE db.sales ADD PARTITION FIELD bucket(4, id)"))[1] == ("shard", "bucket[4]")
    assert len(replaced.refresh().context.metadata.partition_specs) == 3
    other = lake.sql("ALTER TABLE db.sales REPLACE PARTITION FIELD shard WITH bucket(4, id) AS part")
    assert spec(other)[1] == ("part", "bucket[4]")
    with pytest.raises(UnknownName, match="day"):
        lake.sql("ALTER TABLE db.sales DROP PARTITION FIELD day")


def test_columns_come_go_move_and_widen(lake):
    lake.sql("ALTER TABLE db.sales SET TBLPROPERTIES ('format-version' = '3')")
    lake.sql("ALTER TABLE db.sales ADD COLUMNS (s struct<a: int, b: decimal(6, 2)> COMMENT 'pair', n int FIRST)")
    lake.sql("ALTER TABLE db.sales ADD COLUMN s.c string DEFAULT 'none' AFTER a")
    lake.sql("ALTER TABLE db.sales RENAME COLUMN s.a TO first")
    lake.sql("ALTER TABLE db.sales ALTER COLUMN v TYPE bigint")
    lake.sql("ALTER TABLE db.sales ALTER COLUMN s.b TYPE decimal(8, 2)")
    lake.sql("ALTER TABLE db.sales ALTER COLUMN n AFTER id")
    lake.sql("ALTER TABLE db.sales DROP COLUMNS IF EXISTS (nope)")
    table = lake.sql("ALTER TABLE db.sales ALTER COLUMN id COMMENT 'key'")
    assert [f.name for f in table.schema.fields] == ["id", "n", "region", "v", "s"]
    assert [f.name for f in table.schema.find_type("s").fields] == ["first", "c", "b"]
    assert table.schema.find_type("v") == LongType() and table.schema.find_type("s.b") == DecimalType(8, 2)
    assert table.schema.find_field("id").doc == "key" and table.schema.find_field("s.c").initial_default == "none"
    assert lake.sql("ALTER TABLE db.sales DROP COLUMN n").schema.find_field("v").field_id == 3
    with pytest.raises(UnknownName, match="Unknown column 'nope'"):
        lake.sql("ALTER TABLE db.sales DROP COLUMN nope")
    with pytest.raises(UserError, match="give a constant"):
        lake.sql("ALTER TABLE db.sales ALTER COLUMN v SET DEFAULT id + 1")
    with pytest.raises(UserError, match="TYPE takes a type alone"):
        lake.sql("ALTER TABLE db.sales ALTER COLUMN id TYPE bigint COMMENT 'more'")


def test_a_column_may_say_that_it_takes_nulls(lake):
    created = lake.sql("CREATE TABLE db.nulls (id int NULL, s struct<a: int>, n int NOT NULL)")
    assert [f.required for f in created.schema.fields] == [False, False, True]
    assert not lake.sql("ALTER TABLE db.nulls ADD COLUMN more int NULL").schema.find_field("more").required


@pytest.fixture
def places_lake(spark: SparkSession, tmp_path) -> neve.Lake:
    """A lake with one empty table."""
    lake = neve.connect(tmp_path / "places", spark=spark)
    lake.sql(
        "CREATE TABLE db.places (id int, note string, at struct<x: int, y: int>, l array<struct<x: int>>) "
        "TBLPROPERTIES ('format-version' = '3')"
    )
    return lake


@pytest.mark.parametrize(
    "change",
    [
        "ADD COLUMN ID bigint",
        "ADD COLUMNS (new int, NEW string)",
        "ADD COLUMN AT.X int",
        "ADD COLUMN l.X int",
        "RENAME COLUMN id TO Note",
        "RENAME COLUMN at.y TO X",
    ],
)
def test_no_two_columns_differ_in_case_only(places_lake, change):
    before = places_lake.table("db.places").schema
    with pytest.raises(UserError, match="Cannot name two columns"):
        places_lake.sql(f"ALTER TABLE db.places {change}")
    assert places_lake.table("db.places").schema == before


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ("DROP COLUMN Note", "id at.x at.y"),
        ("DROP COLUMN IF EXISTS (Note, At.X, nope)", "id at.y"),
        ("RENAME COLUMN NOTE TO Note", "id Note at.x at.y"),
        ("RENAME COLUMN AT.Y TO z", "id note at.x at.z"),
        ("ADD COLUMN At.z int AFTER X", "id note at.x at.z at.y"),
        ("ADD COLUMNS (Z int FIRST, b int AFTER z)", "Z b id note at.x at.y"),
        ("ALTER COLUMN NOTE FIRST", "note id at.x at.y"),
        ("ALTER COLUMN Id AFTER NOTE", "note id at.x at.y"),
    ],
)
def test_columns_are_found_in_any_case(places_lake, change, names):
    schema = places_lake.sql(f"ALTER TABLE db.places {change}").schema
    inside = [f"at.{f.name}" for f in schema.find_type("at").fields]
    assert [f.name for f in schema.fields if f.name not in {"at", "l"}] + inside == names.split()


def test_a_case_sensitive_session_finds_columns_by_exact_case(places_lake, spark):
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert "ID" in places_lake.sql("ALTER TABLE db.places ADD COLUMN ID bigint").schema.column_names
        with pytest.raises(UnknownName, match="Unknown column 'Note'"):
            places_lake.sql("ALTER TABLE db.places DROP COLUMN Note")
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    with pytest.raises(UserError, match="ambiguous"):
        places_lake.sql("ALTER TABLE db.places DROP COLUMN Id")
    assert places_lake.sql("ALTER TABLE db.places DROP COLUMN id").schema.fields[-1].name == "ID"


@pytest.mark.parametrize(
    ("kind", "value", "moment"),
    [
        ("timestamp", "TIMESTAMP '2020-01-01 00:00:00'", "2019-12-31T23:00:00+00:00"),
        ("timestamp", "TIMESTAMP '2020-01-01 00:00:00Z'", "2020-01-01T00:00:00+00:00"),
        ("timestamp", "DATE '2020-01-01'", "2019-12-31T23:00:00+00:00"),
        ("timestamp_ntz", "TIMESTAMP '2020-01-01 00:00:00'", "2020-01-01T00:00:00"),
        ("timestamp_ntz", "TIMESTAMP_NTZ '2020-01-01 00:00:00.5'", "2020-01-01T00:00:00.500000"),
    ],
)
def test_a_default_time_is_read_on_the_clock_of_the_session(places_lake, spark, kind, value, moment):
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        table = places_lake.sql(f"ALTER TABLE db.places ADD COLUMN z {kind} DEFAULT {value}")
        assert table.schema.find_field("z").initial_default.isoformat() == moment
        table = places_lake.sql(f"ALTER TABLE db.places ALTER COLUMN Z SET DEFAULT {value}")
        assert table.schema.find_field("z").write_default.isoformat() == moment
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_properties_are_set_and_unset(lake):
    table = lake.sql("ALTER TABLE db.sales SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read', 'a' = 1)")
    assert table.context.metadata.properties["write.delete.mode"] == "merge-on-read"
    table = lake.sql("ALTER TABLE db.sales UNSET TBLPROPERTIES ('write.delete.mode')")
    assert "write.delete.mode" not in table.context.metadata.properties
    assert (
        lake.sql("ALTER TABLE db.sales SET TBLPROPERTIES ('format-version' = '3')").context.metadata.format_version == 3
    )


def test_branches_and_tags_come_and_go(lake):
    first = lake.table("db.sales").context.head().snapshot_id
    lake.sql("INSERT INTO db.sales VALUES (4, 'us', 40)")
    lake.sql(f"ALTER TABLE db.sales CREATE TAG v1 AS OF VERSION {first}")
    lake.sql("ALTER TABLE db.sales CREATE TAG IF NOT EXISTS v1")
    assert rows(lake, "SELECT count(*) FROM db.sales.tag_v1") == [(3,)]
    lake.sql("ALTER TABLE db.sales DROP TAG v1")
    lake.sql("ALTER TABLE db.sales DROP TAG IF EXISTS v1")
    with pytest.raises(UnknownName, match="v1"):
        lake.sql("ALTER TABLE db.sales DROP TAG v1")


def test_a_name_may_begin_with_that_of_the_catalog(lake):
    name = f"`{lake.catalog.name}`.db"
    lake.sql(f"CREATE TABLE {name}.more (id int)")
    lake.sql(f"INSERT INTO {name}.more VALUES (1)")
    assert rows(lake, f"SELECT more.id FROM {name}.more") == [(1,)]
    lake.sql(f"DROP TABLE {name}.more")
    assert lake.tables() == ["db.sales"]
