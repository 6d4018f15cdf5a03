"""CREATE, ALTER, DROP and DESCRIBE NAMESPACE, in SQL catalogs and in a REST catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import neve
from neve.catalog import EmbeddedCatalog
from neve.errors import UnknownName, UserError
from tests.support.servers import rest_server


@pytest.fixture(params=["embedded", "rest"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession) -> Iterator[neve.Lake]:
    if request.param == "embedded":
        yield neve.connect(tmp_path / "lake", spark=spark)
        return
    with rest_server(EmbeddedCatalog(tmp_path / "lake")) as server:
        yield neve.connect(catalog="rest", type="rest", uri=server.uri, spark=spark)


def describe(lake: neve.Lake, name: str) -> dict[str, str]:
    return dict(tuple(row) for row in lake.sql(f"DESCRIBE NAMESPACE EXTENDED {name}").collect())


def test_a_namespace_is_created_changed_and_dropped(lake):
    assert lake.sql("CREATE DATABASE db COMMENT 'shop' LOCATION 's3://b/db' WITH DBPROPERTIES (a = 'b', c = 1)") is None
    lake.sql("CREATE SCHEMA IF NOT EXISTS db COMMENT 'other'")
    with pytest.raises(UserError, match="Namespace db already exists"):
        lake.sql("CREATE NAMESPACE db")
    assert describe(lake, "db") == {
        "Catalog Name": lake.catalog.name,
        "Namespace Name": "db",
        "Comment": "shop",
        "Location": "s3://b/db",
        "Properties": "((a,b), (c,1))",
    }
    lake.sql("ALTER NAMESPACE db SET PROPERTIES ('a' = 'x', 'comment' = 'sold')")
    lake.sql("ALTER DATABASE db UNSET DBPROPERTIES (c, nope)")
    lake.sql("ALTER SCHEMA db SET LOCATION 's3://c/db'")
    found = describe(lake, "db")
    assert (found["Comment"], found["Location"], found["Properties"]) == ("sold", "s3://c/db", "((a,x))")
    lake.sql("DROP NAMESPACE db RESTRICT")
    lake.sql("DROP NAMESPACE IF EXISTS db")
    for text in ("DROP SCHEMA db", "DESCRIBE NAMESPACE db", "ALTER NAMESPACE db SET PROPERTIES (a = 1)"):
        with pytest.raises(UnknownName, match="Unknown namespace 'db'"):
            lake.sql(text)


def test_a_namespace_without_its_properties_is_still_there(lake):
    lake.sql("CREATE NAMESPACE db WITH PROPERTIES (a = 'b')")
    lake.sql("ALTER NAMESPACE db UNSET PROPERTIES (a)")
    assert describe(lake, "db")["Properties"] == ""
    assert lake.sql("SHOW NAMESPACES").count() == 1


def test_a_namespace_that_is_not_empty_is_not_dropped(lake):
    lake.create_table("db.t", "id bigint")
    for how in ("", "RESTRICT", "CASCADE"):
        with pytest.raises(UserError, match=r"Cannot drop namespace db: drop db\.t in it first"):
            lake.sql(f"DROP NAMESPACE db {how}")
    lake.sql("DROP TABLE db.t")
    lake.sql("DROP NAMESPACE db CASCADE")
    assert lake.sql("SHOW NAMESPACES").count() == 0


def test_a_namespace_has_others_inside(spark_lake):
    spark_lake.sql("CREATE NAMESPACE neve.a.b")
    with pytest.raises(UserError, match=r"drop a\.b in it first"):
        spark_lake.sql("DROP NAMESPACE a")
    spark_lake.sql("DROP NAMESPACE a.b")
    assert spark_lake.sql("SHOW NAMESPACES").count() == 0


def test_a_name_that_is_no_folder_is_no_namespace(spark_lake):
    with pytest.raises(UserError, match="cannot be a name"):
        spark_lake.sql("CREATE NAMESPACE `a/b`")


def test_tables_are_created_in_the_location_of_their_namespace(spark_lake, tmp_path):
    spark_lake.sql(f"CREATE NAMESPACE db LOCATION 'file://{tmp_path}/elsewhere'")
    created = spark_lake.sql("CREATE TABLE db.t (id bigint)")
    assert created.context.metadata.location == f"file://{tmp_path}/elsewhere/t"
