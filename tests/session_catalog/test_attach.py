"""A lake that is attached to a session: what people type for Iceberg on Spark works on it, and detach undoes it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import neve
from neve import attach, detach
from neve.errors import UnknownName, UserError
from neve.session_catalog.session_lakes import session_lakes
from tests.support.spark_sessions import names_in

ROWS = [(1, "eu", 10), (2, "us", 20), (3, "eu", 30)]


@pytest.fixture
def lake(spark: SparkSession, tmp_path) -> Iterator[neve.Lake]:
    lake = neve.connect(tmp_path / "lake", spark=spark)
    table = lake.create_table("db.sales", "id bigint, region string, v int", ["region"], format_version=2)
    table.append([dict(zip(("id", "region", "v"), row, strict=True)) for row in ROWS])
    attach(spark, lake)
    yield lake
    detach(spark)


@pytest.fixture
def views(spark: SparkSession) -> Iterator[None]:
    """The names of the session's views are the same after the test."""
    before = names_in(spark)
    yield
    assert names_in(spark) == before


def rows(frame: DataFrame) -> list[tuple]:
    return sorted(tuple(row) for row in frame.collect())


def sales(spark: SparkSession) -> list[tuple]:
    return rows(spark.sql("SELECT id, region, v FROM lake.db.sales"))


# -- SQL -------------------------------------------------------------------------------------------------------------


def test_a_query_joins_a_table_of_the_lake_with_a_table_of_the_session(spark, lake, views):
    spark.createDataFrame([("eu", "Europe")], "region string, name string").createOrReplaceTempView("names")
    found = spark.sql("SELECT s.id, n.name FROM lake.db.sales s JOIN names n USING (region) WHERE s.v > 5")
    assert rows(found) == [(1, "Europe"), (3, "Europe")]
    spark.catalog.dropTempView("names")


def test_a_session_has_its_writes_audited(spark, lake):
    """As in Iceberg's own session catalog: by id, and by branch."""
    spark.sql("ALTER TABLE lake.db.sales SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    try:
        spark.sql("SET spark.wap.id=nightly")
        spark.sql("SELECT 4L AS id, 'us' AS region, 40 AS v").writeTo("lake.db.sales").append()
        assert spark.table("lake.db.sales").count() == 3
        spark.sql("RESET spark.wap.id")
        spark.sql("CALL lake.system.publish_changes('db.sales', 'nightly')")
        assert spark.table("lake.db.sales").count() == 4
        spark.sql("SET spark.wap.branch=audit")
        spark.sql("DELETE FROM lake.db.sales WHERE region = 'eu'")
        assert spark.table("lake.db.sales").count() == 2
        assert spark.read.option("branch", "main").table("lake.db.sales").count() == 4
    finally:
        spark.conf.unset("spark.wap.id")
        spark.conf.unset("spark.wap.branch")
    assert spark.table("lake.db.sales").count() == 4


def test_parameters_of_a_query_are_sparks(spark, lake):
    assert rows(spark.sql("SELECT id FROM lake.db.sales WHERE v > :v", {"v": 15})) == [(2,), (3,)]
    assert rows(spark.sql("SELECT id FROM lake.db.sales WHERE v > ?", [25])) == [(3,)]
    assert rows(spark.sql("SELECT id FROM lake.db.sales WHERE v > :v", {"v": F.lit(25)})) == [(3,)]
    assert rows(spark.sql("SELECT id FROM lake.db.sales WHERE v > :v", {"v": 25, "unused": 1})) == [(3,)]
    with pytest.raises(AnalysisException, match="UNBOUND_SQL_PARAMETER"):
        spark.sql("SELECT id FROM lake.db.sales WHERE v > :v", {"w": 25})


def test_parameters_may_stand_wherever_a_value_may(spark, lake, views):
    assert rows(spark.sql("SELECT lake.system.bucket(4, :v)", {"v": 7})) == rows(
        spark.sql("SELECT lake.system.bucket(4, 7)")
    )
    counted = "SELECT count(*) FROM lake.db.sales TIMESTAMP AS OF "
    assert rows(spark.sql(f"{counted}:time", {"time": "2100-01-01"})) == [(3,)]
    assert rows(spark.sql(f"{counted}?", [datetime(2100, 1, 1)])) == [(3,)]
    spark.sql("DELETE FROM lake.db.sales WHERE v > :v", {"v": 25, "unused": 1})
    spark.sql("UPDATE lake.db.sales SET v = ? WHERE id = ?", [11, 1, "unused"])
    assert sales(spark) == [(1, "eu", 11), (2, "us", 20)]
    with pytest.raises(UserError, match="no value for :w"):
        spark.sql("DELETE FROM lake.db.sales WHERE v > :w", {"v": 25})


def test_variables_are_replaced_in_every_statement(spark, lake):
    spark.conf.set("neve.region", "us")
    assert rows(spark.sql("SELECT id FROM lake.db.sales WHERE region = '${neve.region}'")) == [(2,)]
    spark.sql("DELETE FROM lake.db.sales WHERE region = '${neve.region}'")
    assert [row[0] for row in sales(spark)] == [1, 3]
    spark.conf.unset("neve.region")


def test_frames_stand_in_a_query_by_placeholders(spark, lake, views):
    chosen = spark.createDataFrame([(1,), (2,)], "id bigint")
    found = spark.sql("SELECT s.id FROM lake.db.sales s JOIN {d} d ON s.id = d.id WHERE s.v > {v}", d=chosen, v=15)
    assert rows(found) == [(2,)]
    spark.sql("DELETE FROM lake.db.sales WHERE id IN (SELECT id FROM {d})", d=chosen)
    assert sales(spark) == [(3, "eu", 30)]
    assert spark.sql("SELECT max(id) AS id FROM {d}", d=chosen).first().id == 2


def test_statements_change_rows(spark, lake, views):
    spark.sql("INSERT INTO lake.db.sales VALUES (4, 'us', 40)")
    spark.sql("UPDATE lake.db.sales SET v = v + 1 WHERE region = 'eu'")
    spark.sql("DELETE FROM lake.db.sales WHERE id = 2")
    spark.sql(
        "MERGE INTO lake.db.sales t USING (SELECT 4 AS id, 0 AS v) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = s.v"
    )
    assert sales(spark) == [(1, "eu", 11), (3, "eu", 31), (4, "us", 0)]
    assert rows(lake.sql("SELECT id, region, v FROM db.sales")) == sales(spark)


def test_statements_return_frames_without_rows_as_in_spark(spark, lake):
    result = spark.sql("DELETE FROM lake.db.sales WHERE id = 1")
    assert isinstance(result, DataFrame)
    assert result.collect() == []


def test_statements_change_tables(spark, lake):
    spark.sql("CREATE TABLE lake.db.new (id bigint) USING iceberg")
    spark.sql("ALTER TABLE lake.db.new ADD COLUMN name string")
    spark.sql("INSERT INTO lake.db.new VALUES (1, 'a')")
    assert spark.table("lake.db.new").columns == ["id", "name"]
    assert "db.new" in lake.tables()
    spark.sql("DROP TABLE lake.db.new")
    assert "db.new" not in lake.tables()


def test_a_procedure_of_the_lake_is_called_by_its_name(spark, lake):
    lake.table("db.sales").append([{"id": 9, "region": "eu", "v": 90}])
    spark.sql("CALL lake.system.rewrite_data_files(table => 'db.sales', options => map('rewrite-all', 'true'))")
    assert spark.sql("SELECT count(*) AS n FROM lake.db.sales.files").first().n == 2


def test_show_and_describe_are_rows(spark, lake):
    assert [row.tableName for row in spark.sql("SHOW TABLES IN lake.db").collect()] == ["sales"]
    assert [row.namespace for row in spark.sql("SHOW NAMESPACES IN lake").collect()] == ["db"]
    assert spark.sql("DESCRIBE lake.db.sales").first().col_name == "id"
    assert spark.sql("SHOW CREATE TABLE lake.db.sales").first()[0].startswith("CREATE TABLE lake.db.sales (")


def test_metadata_tables_and_time_travel(spark, lake):
    first = spark.sql("SELECT snapshot_id FROM lake.db.sales.snapshots").first().snapshot_id
    spark.sql("DELETE FROM lake.db.sales")
    assert spark.sql(f"SELECT count(*) AS n FROM lake.db.sales VERSION AS OF {first}").first().n == 3


def test_functions_of_iceberg_are_called_by_the_name_of_the_lake(spark, lake):
    found = spark.sql("SELECT lake.system.bucket(4, id) AS b, lake.system.truncate(1, region) AS r FROM lake.db.sales")
    assert {row.r for row in found.collect()} == {"e", "u"} and {row.b for row in found.collect()} <= {0, 1, 2, 3}


def test_a_temporary_view_reads_the_newest_rows(spark, lake):
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW europe AS SELECT id FROM lake.db.sales WHERE region = 'eu'")
    spark.sql("DELETE FROM lake.db.sales WHERE id = 1")
    assert rows(spark.sql("SELECT * FROM europe")) == [(3,)]
    spark.sql("DROP VIEW europe")
    with pytest.raises(AnalysisException):
        spark.sql("SELECT * FROM europe")


def test_explain_shows_what_a_statement_would_do(spark, lake):
    plan = spark.sql("EXPLAIN DELETE FROM lake.db.sales WHERE region = 'eu'").first()["plan"]
    assert plan.startswith(lake.table("db.sales").delete().where("region = 'eu'").explain().splitlines()[0])
    assert len(sales(spark)) == 3


def test_procedures_return_the_rows_of_iceberg(spark, lake):
    lake.table("db.sales").append([{"id": 9, "region": "eu", "v": 90}])
    options = "options => map('rewrite-all', 'true')"
    row = spark.sql(f"CALL lake.system.rewrite_data_files(table => 'db.sales', {options})").first()
    assert row.rewritten_data_files_count == 3 and row.added_data_files_count == 2


def test_rows_of_the_lake_are_inserted_into_a_table_of_spark(spark, lake, views):
    spark.sql("CREATE TABLE plain_sales USING parquet AS SELECT id, v FROM lake.db.sales WHERE region = 'eu'")
    try:
        spark.sql("INSERT INTO plain_sales SELECT id, v FROM lake.db.sales WHERE region = 'us'")
        assert rows(spark.table("plain_sales")) == [(1, 10), (2, 20), (3, 30)]
    finally:
        spark.sql("DROP TABLE plain_sales")


def test_a_table_of_one_lake_is_merged_into_another(spark, lake, tmp_path):
    attach(spark, neve.connect(tmp_path / "other"), name="other")
    spark.sql("CREATE TABLE other.db.sales AS SELECT * FROM lake.db.sales WHERE id = 1")
    spark.sql(
        "MERGE INTO other.db.sales t USING lake.db.sales s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = 0 WHEN NOT MATCHED THEN INSERT *"
    )
    assert rows(spark.table("other.db.sales")) == [(1, "eu", 0), (2, "us", 20), (3, "eu", 30)]
    assert sales(spark) == sorted(ROWS)


def test_what_is_not_about_the_lake_is_sparks_with_its_errors(spark, lake):
    assert spark.sql("SELECT 1 AS one").first().one == 1
    assert spark.range(3).count() == 3
    with pytest.raises(ParseException):
        spark.sql("SELEC 1")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM nothing_here")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM lake.db.nothing")
    with pytest.raises(UnknownName, match=r"nothing.*Did you mean|Unknown table"):
        spark.sql("DELETE FROM lake.db.nothing")


# -- the current catalog ---------------------------------------------------------------------------------------------


def test_use_makes_short_names_those_of_the_lake(spark, lake):
    spark.sql("USE lake")
    assert spark.sql("SELECT count(*) AS n FROM db.sales").first().n == 3
    spark.sql("USE lake.db")
    assert spark.sql("SELECT count(*) AS n FROM sales").first().n == 3
    spark.sql("INSERT INTO sales VALUES (5, 'eu', 50)")
    assert (spark.catalog.currentCatalog(), spark.catalog.currentDatabase()) == ("lake", "db")
    spark.sql("USE spark_catalog")
    assert spark.catalog.currentCatalog() == "spark_catalog"
    with pytest.raises(AnalysisException):
        spark.sql("SELECT * FROM db.sales")


def test_use_of_an_unknown_namespace_names_the_known_ones(spark, lake):
    with pytest.raises(UnknownName, match="dbb"):
        spark.sql("USE lake.dbb")


def test_a_temporary_view_hides_a_table_of_the_current_namespace(spark, lake):
    spark.createDataFrame([(7,)], "id bigint").createOrReplaceTempView("sales")
    spark.sql("USE lake.db")
    assert rows(spark.sql("SELECT * FROM sales")) == [(7,)]
    spark.catalog.dropTempView("sales")
    assert spark.sql("SELECT * FROM sales").count() == 3


def test_a_default_lake_needs_no_name(spark, lake):
    attach(spark, lake, default=True)
    assert spark.sql("SELECT count(*) AS n FROM db.sales").first().n == 3


# -- readers and writers ---------------------------------------------------------------------------------------------


def test_tables_are_read_by_name(spark, lake):
    first = spark.sql("SELECT snapshot_id FROM lake.db.sales.snapshots").first().snapshot_id
    lake.table("db.sales").create_tag("start")
    spark.sql("DELETE FROM lake.db.sales WHERE id = 1")
    assert spark.table("lake.db.sales").count() == 2
    assert spark.read.table("lake.db.sales").count() == 2
    assert spark.read.format("iceberg").load("lake.db.sales").count() == 2
    assert spark.read.option("snapshot-id", first).table("lake.db.sales").count() == 3
    assert spark.read.option("tag", "start").format("iceberg").load("lake.db.sales").count() == 3
    assert spark.table("lake.db.sales").select("sales.id").count() == 2


def test_frames_are_written_with_write_to(spark, lake):
    spark.createDataFrame([("us", 40, 4)], "region string, v int, id bigint").writeTo("lake.db.sales").append()
    assert (4, "us", 40) in sales(spark)
    spark.createDataFrame([(5, "us", 50)], "id bigint, region string, v int").writeTo(
        "lake.db.sales"
    ).overwritePartitions()
    assert sales(spark) == [(1, "eu", 10), (3, "eu", 30), (5, "us", 50)]
    frame = spark.createDataFrame([(6, "eu", 60)], "id bigint, region string, v int")
    frame.writeTo("lake.db.sales").overwrite(F.col("region") == "eu")
    assert sales(spark) == [(5, "us", 50), (6, "eu", 60)]


def test_tables_are_created_with_write_to(spark, lake):
    frame = spark.createDataFrame([(1, "eu")], "id bigint, region string")
    writer = frame.writeTo("lake.db.made").using("iceberg").tableProperty("format-version", "3")
    writer.partitionedBy(F.col("region"), F.bucket(4, F.col("id"))).create()
    table = lake.table("db.made")
    assert [str(f.transform) for f in table.context.metadata.spec().fields] == ["identity", "bucket[4]"]
    assert table.context.metadata.format_version == 3
    assert rows(table.to_spark()) == [(1, "eu")]
    with pytest.raises(UserError, match="exists"):
        frame.writeTo("lake.db.made").create()


def test_tables_are_saved_and_inserted_into(spark, lake):
    frame = spark.createDataFrame([(1, "eu")], "id bigint, region string")
    frame.write.format("iceberg").partitionBy("region").saveAsTable("lake.db.saved")
    frame.write.mode("append").saveAsTable("lake.db.saved")
    frame.write.insertInto("lake.db.saved")
    frame.write.saveAsTable("lake.db.saved", mode="ignore")
    assert rows(spark.table("lake.db.saved")) == [(1, "eu")] * 3
    assert [f.name for f in lake.table("db.saved").context.metadata.spec().fields] == ["region"]
    with pytest.raises(UserError, match="exists already"):
        frame.write.saveAsTable("lake.db.saved")


def test_writers_of_files_are_sparks(spark, lake, tmp_path):
    spark.range(2).write.mode("overwrite").parquet(str(tmp_path / "files"))
    assert spark.read.parquet(str(tmp_path / "files")).count() == 2


def test_options_of_a_write_name_the_branch_and_the_snapshot(spark, lake):
    lake.table("db.sales").create_branch("audit")
    frame = spark.createDataFrame([(4, "us", 40)], "id bigint, region string, v int")
    frame.writeTo("lake.db.sales").option("branch", "audit").option("snapshot-property.by", "me").append()
    assert len(sales(spark)) == 3
    assert spark.sql("SELECT * FROM lake.db.sales.branch_audit").count() == 4
    head = lake.table("db.sales").context.head("audit")
    assert head.summary.additional_properties["by"] == "me"


# -- the catalog of the session --------------------------------------------------------------------------------------


def test_the_catalog_of_the_session_knows_the_lake(spark, lake):
    catalog = spark.catalog
    assert catalog.tableExists("lake.db.sales")
    assert not catalog.tableExists("lake.db.nothing")
    assert [t.name for t in catalog.listTables("lake.db")] == ["sales"]
    assert catalog.databaseExists("lake.db")
    assert [c.name for c in catalog.listColumns("lake.db.sales") if c.isPartition] == ["region"]
    assert "lake" in [c.name for c in catalog.listCatalogs()]
    assert catalog.getTable("lake.db.sales").namespace == ["db"]


# -- attach and detach -----------------------------------------------------------------------------------------------


def test_detach_leaves_nothing_behind(spark, lake):
    kinds = {type(spark): ("sql", "table", "read", "catalog"), type(spark.range(0)): ("writeTo", "write", "mergeInto")}
    attached = {(kind, name): kind.__dict__[name] for kind, names in kinds.items() for name in names}
    catalog = spark.catalog
    assert detach(spark) == ["lake"]
    assert session_lakes(spark) is None
    assert all(kind.__dict__[name] is not own for (kind, name), own in attached.items())
    with pytest.raises(AnalysisException):
        spark.sql("SELECT * FROM lake.db.sales")
    with pytest.raises(AnalysisException):
        catalog.tableExists("lake.db.sales")
    assert detach(spark) == []


def test_another_session_does_not_see_the_lake(spark, lake):
    with pytest.raises(AnalysisException):
        spark.newSession().sql("SELECT * FROM lake.db.sales")


def test_another_object_of_the_same_session_sees_the_lake(spark, lake):
    active = SparkSession.getActiveSession()
    assert active.sql("SELECT max(id) AS id FROM lake.db.sales").first() == Row(id=3)


def test_options_of_the_session_stay_as_they_are(spark, tmp_path):
    before = spark.conf.getAll
    attach(spark, neve.connect(tmp_path / "lake"))
    spark.sql("CREATE TABLE lake.db.t AS SELECT 1 AS id")
    spark.table("lake.db.t").count()
    detach(spark)
    assert spark.conf.getAll == before


@pytest.mark.parametrize("name", ["", "a.b", "spark_catalog", "1a"])
def test_a_name_that_cannot_be_a_catalog_is_refused(spark, lake, name):
    with pytest.raises(UserError, match="Cannot attach"):
        attach(spark, lake, name=name)


def test_merge_into_says_what_to_type_instead(spark, lake):
    frame = spark.createDataFrame([(1, 0)], "id bigint, v int")
    with pytest.raises(UserError, match="MERGE INTO"):
        frame.mergeInto("lake.db.sales", F.expr("sales.id = id"))
