"""Two lakes in one session: a name means the same in every statement, whichever lake is the current one."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812

from neve.errors import NeveError, UserError


def snapshots(lake, name: str = "db.t") -> list[int]:
    return [s.snapshot_id for s in lake.table(name).context.metadata.snapshots]


# -- procedures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("current", ["spark_catalog", "lake", "lake.db", "other", "other.db"])
@pytest.mark.parametrize("name", ["db.t", "lake.db.t"])
def test_a_procedure_works_on_the_tables_of_its_own_lake(spark, lakes, of, current, name):
    for lake in lakes.values():
        lake.table("db.t").append([{"id": 2, "s": "new"}])
    first, of_other = snapshots(lakes["lake"])[0], snapshots(lakes["other"])[0]
    spark.sql(f"USE {current}")
    with pytest.raises(NeveError):
        spark.sql(f"CALL lake.system.rollback_to_snapshot('{name}', {of_other})")
    spark.sql(f"CALL lake.system.rollback_to_snapshot('{name}', {first})")
    assert (of("lake.db.t"), of("other.db.t")) == (["lake"], ["new", "other"])


@pytest.mark.parametrize(
    "call",
    [
        "expire_snapshots('{}')",
        "rewrite_data_files(table => '{}', options => map('rewrite-all', 'true'))",
        "rollback_to_snapshot('{}', 1)",
        "ancestors_of('{}')",
        "register_table('{}', '/x/metadata.json')",
    ],
)
@pytest.mark.parametrize("name", ["other.db.t", "spark_catalog.db.t"])
def test_a_procedure_refuses_tables_of_other_catalogs(spark, lakes, call, name):
    before = snapshots(lakes["other"])
    with pytest.raises(UserError, match="another catalog"):
        spark.sql(f"CALL lake.system.{call.format(name)}")
    assert snapshots(lakes["other"]) == before


def test_a_procedure_without_a_catalog_is_of_the_current_lake(spark, lakes):
    spark.sql("USE other")
    ids = [row.snapshot_id for row in spark.sql("CALL system.ancestors_of('db.t')").collect()]
    assert ids == snapshots(lakes["other"])
    spark.sql("USE lake.db")
    assert [row.snapshot_id for row in spark.sql("CALL system.ancestors_of('t')").collect()] == snapshots(lakes["lake"])


def test_a_procedure_takes_a_branch_in_the_name_of_a_table(spark, lakes):
    spark.sql("USE lake.db")
    spark.sql("ALTER TABLE t CREATE BRANCH audit")
    for name in ("t.branch_audit", "db.t.branch_audit", "lake.db.t.branch_audit"):
        spark.sql(f"CALL lake.system.rewrite_manifests(table => '{name}')")


# -- names of tables -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["SELECT s FROM {}", "SELECT s FROM {} VERSION AS OF 'main'", "SELECT a.s FROM {} a"])
@pytest.mark.parametrize(("used", "name"), [("lake.db", "t"), ("lake", "db.t"), ("spark_catalog", "lake.db.t")])
@pytest.mark.parametrize("later", ["other.db", "other", "lake", "spark_catalog"])
def test_a_temporary_view_reads_the_table_that_its_name_meant_at_its_creation(
    spark, lakes, of, query, used, name, later
):
    spark.sql(f"USE {used}")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v AS {query.format(name)}")
    spark.sql(f"USE {later}")
    assert of("v") == ["lake"]


def test_a_temporary_view_of_a_branch_or_a_metadata_table_keeps_its_table(spark, lakes, of):
    spark.sql("USE lake.db")
    spark.sql("ALTER TABLE t CREATE BRANCH audit")
    spark.sql("CREATE TEMPORARY VIEW v AS SELECT s FROM t.branch_audit")
    spark.sql("CREATE TEMPORARY VIEW w AS SELECT snapshot_id FROM t.snapshots")
    spark.sql("USE other.db")
    assert of("v") == ["lake"]
    assert [row.snapshot_id for row in spark.sql("SELECT * FROM w").collect()] == snapshots(lakes["lake"])


def test_a_temporary_view_over_a_temporary_view_reads_that_view(spark, lakes, of):
    spark.createDataFrame([("mine",)], "s string").createOrReplaceTempView("t")
    spark.sql("USE lake.db")
    spark.sql("CREATE TEMPORARY VIEW v AS SELECT s FROM t")
    assert of("v") == ["mine"]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE r (id int)",
        "CREATE TABLE IF NOT EXISTS lake.r (id int)",
        "CREATE OR REPLACE TABLE r AS SELECT 1 AS id",
        "ALTER TABLE db.t RENAME TO lake.r",
        "CALL lake.system.register_table('lake.r', '/x/metadata.json')",
    ],
)
def test_a_new_table_needs_a_namespace(spark, lakes, statement):
    spark.sql("USE lake")
    with pytest.raises(UserError):
        spark.sql(statement)
    assert lakes["lake"].tables() == ["db.t"] and lakes["lake"].catalog.list_namespaces() == [("db",)]


def test_a_new_table_of_a_frame_needs_a_namespace(spark, lakes):
    spark.sql("USE lake")
    frame = spark.range(1)
    for write in (lambda: frame.writeTo("r").create(), lambda: frame.write.saveAsTable("r")):
        with pytest.raises(UserError, match="needs a namespace"):
            write()
    assert lakes["lake"].tables() == ["db.t"]


@pytest.mark.parametrize("name", ["other.db.u", "other.u", "spark_catalog.db.u"])
@pytest.mark.parametrize("current", ["spark_catalog", "lake.db", "other.db"])
def test_a_table_is_not_renamed_into_another_catalog(spark, lakes, name, current):
    spark.sql(f"USE {current}")
    with pytest.raises(UserError, match="another catalog"):
        spark.sql(f"ALTER TABLE lake.db.t RENAME TO {name}")
    assert lakes["lake"].tables() == ["db.t"] and lakes["other"].tables() == ["db.t"]


@pytest.mark.parametrize("name", ["u", "db.u", "lake.db.u"])
def test_a_new_name_without_a_catalog_is_in_the_lake_of_the_table(spark, lakes, name):
    spark.sql("USE other")
    spark.sql(f"ALTER TABLE lake.db.t RENAME TO {name}")
    assert lakes["lake"].tables() == ["db.u"] and lakes["other"].tables() == ["db.t"]


def test_the_source_of_a_new_table_may_be_in_another_lake(spark, lakes):
    spark.sql("CREATE TABLE lake.db.u LIKE other.db.t")
    assert spark.table("lake.db.u").columns == ["id", "s"]


def test_a_subquery_of_a_branch_reads_another_lake(spark, lakes, of):
    spark.sql("ALTER TABLE lake.db.t CREATE BRANCH audit")
    spark.sql("DELETE FROM lake.db.t.branch_audit WHERE id IN (SELECT id FROM other.db.t)")
    assert (of("lake.db.t.branch_audit"), of("lake.db.t")) == ([], ["lake"])


# -- namespaces ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("current", ["lake", "lake.db"])
@pytest.mark.parametrize("kind", ["NAMESPACE", "DATABASE", "SCHEMA"])
def test_a_namespace_is_at_the_top_of_the_current_lake(spark, lakes, current, kind):
    catalog = lakes["lake"].catalog
    spark.sql(f"USE {current}")
    spark.sql(f"CREATE {kind} foo")
    assert set(catalog.list_namespaces()) == {("db",), ("foo",)} and catalog.list_namespaces(("db",)) == []
    spark.sql(f"ALTER {kind} foo SET PROPERTIES ('comment' = 'mine')")
    described = {row.info_name: row.info_value for row in spark.sql(f"DESCRIBE {kind} foo").collect()}
    assert (described["Namespace Name"], described["Comment"]) == ("foo", "mine")
    spark.sql("CREATE TABLE foo.x (id int)")
    assert [row.tableName for row in spark.sql("SHOW TABLES IN foo").collect()] == ["x"]
    assert [row.tableName for row in spark.sql("SHOW TABLE EXTENDED IN foo LIKE '*'").collect()] == ["x"]
    spark.sql("DROP TABLE foo.x")
    spark.sql(f"DROP {kind} foo")
    assert catalog.list_namespaces() == [("db",)]


def test_show_tables_lists_the_current_namespace(spark, lakes):
    lakes["lake"].create_table("more.u", "id int")
    spark.sql("USE lake.db")
    assert [row.tableName for row in spark.sql("SHOW TABLES").collect()] == ["t"]
    assert [row.tableName for row in spark.sql("SHOW TABLES LIKE 'u'").collect()] == []
    assert spark.sql("SHOW CURRENT NAMESPACE").first() == ("lake", "db")
    assert [row.namespace for row in spark.sql("SHOW NAMESPACES").collect()] == ["db", "more"]
    spark.sql("USE lake")
    assert [row.tableName for row in spark.sql("SHOW TABLES").collect()] == ["t", "u"]
    assert [row.tableName for row in spark.sql("SHOW TABLES IN other").collect()] == ["t"]


def test_a_namespace_named_like_its_lake_is_reached(spark, lakes):
    spark.sql("CREATE NAMESPACE lake.lake")
    spark.sql("CREATE NAMESPACE lake.lake.db")
    assert spark.sql("DESCRIBE NAMESPACE lake.lake").collect()[1].info_value == "lake"
    spark.sql("DROP NAMESPACE lake.lake.db")
    spark.sql("DROP NAMESPACE lake.lake")
    assert lakes["lake"].tables() == ["db.t"]


@pytest.mark.parametrize("statement", ["CREATE NAMESPACE lake", "DROP NAMESPACE lake", "DESCRIBE NAMESPACE lake"])
def test_a_lake_is_no_namespace(spark, lakes, statement):
    with pytest.raises(UserError, match=r"Name a namespace in it, as in lake\.db"):
        spark.sql(statement)


@pytest.mark.parametrize("statement", ["SHOW COLUMNS IN t IN db", "SHOW COLUMNS FROM t FROM lake.db"])
def test_columns_are_shown_of_a_table_in_a_namespace(spark, lakes, statement):
    spark.sql("USE lake")
    assert [row.col_name for row in spark.sql(statement).collect()] == ["id", "s"]


# -- other Lake objects of the session -------------------------------------------------------------------------------


def test_a_lake_object_means_its_own_tables_whichever_lake_is_current(spark, lakes, of):
    mine = lakes["lake"]
    spark.sql("USE other.db")
    with pytest.raises(UserError, match="Unknown table 't'"):
        mine.sql("SELECT * FROM t")
    mine.sql("CREATE TEMPORARY VIEW v AS SELECT s FROM db.t")
    mine.sql("INSERT INTO db.t VALUES (2, 'new')")
    assert sorted(row.s for row in mine.sql("SELECT s FROM v").collect()) == ["lake", "new"]
    assert sorted(row.s for row in mine.sql("SELECT s FROM v").collect()) == ["lake", "new"]
    assert mine.sql("SELECT upper(s) AS s FROM db.t WHERE id = 1", restricted=True).first().s == "LAKE"
    with pytest.raises(NeveError):
        mine.table("db.t").delete().where("id IN (SELECT id FROM t)").execute()
    with pytest.raises(NeveError):
        mine.table("db.t").merge("t", on="t.id = s.id").when_matched_delete().execute()
    assert of("lake.db.t") == ["lake", "new"]


def test_a_verb_of_a_lake_object_finds_views_of_the_session(spark, lakes, of):
    spark.range(1, 2).createOrReplaceTempView("t")
    spark.sql("USE other.db")
    lakes["lake"].table("db.t").delete().where("id IN (SELECT id FROM t)").execute()
    assert of("lake.db.t") == [] and of("other.db.t") == ["other"]


def test_groups_that_are_sorted_at_once_are_not_looked_up_in_the_current_lake(spark, lakes):
    spark.sql("USE other.db")
    table = lakes["lake"].create_table("db.p", "id bigint, g int", ["g"])
    table.append(spark.range(30).select("id", (F.col("id") % 3).cast("int").alias("g")))
    table.append(spark.range(30).select("id", (F.col("id") % 3).cast("int").alias("g")))
    result = table.rewrite_data_files().options({"rewrite-all": "true"}).sort("id").execute()
    assert result.files_rewritten == 6 and table.to_spark().count() == 60


# -- USE -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    ["USE spark_catalog.nope", "USE lake.nope", "USE lake.db and more", "USE lake.my-db", "SET CATALOG nope"],
)
def test_a_failed_use_changes_nothing(spark, lakes, statement):
    spark.sql("USE lake.db")
    with pytest.raises((AnalysisException, Py4JJavaError, UserError)):
        spark.sql(statement)
    assert (spark.catalog.currentCatalog(), spark.catalog.currentDatabase()) == ("lake", "db")


@pytest.mark.parametrize("name", ["spark_catalog", "'spark_catalog'", "lake", "'lake'", "other"])
def test_set_catalog_takes_a_name_or_a_string(spark, lakes, name):
    spark.sql("USE lake.db")
    spark.sql(f"SET CATALOG {name}")
    assert spark.catalog.currentCatalog() == name.strip("'")
    spark.catalog.setCurrentCatalog("lake")
    assert (spark.catalog.currentCatalog(), spark.catalog.currentDatabase()) == ("lake", "")
