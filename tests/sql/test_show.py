"""SHOW and DESCRIBE: what they return, and that SHOW CREATE TABLE can be run again."""

from __future__ import annotations

import json

import pytest
from pyiceberg.types import GeometryType, NestedField
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

import neve
from neve.cli import app
from neve.errors import UnknownName, UserError
from neve.run.spark.types import spark_type_name


@pytest.fixture
def lake(spark_lake: neve.Lake) -> neve.Lake:
    spark_lake.create_table("db.sales", "id bigint, region string", ["region"])
    spark_lake.sql("CREATE TABLE other.t (id bigint COMMENT 'the key', s string) PARTITIONED BY (bucket(4, id), s)")
    return spark_lake


def rows(lake: neve.Lake, text: str) -> list[tuple]:
    found = lake.sql(text)
    assert isinstance(found, DataFrame)
    return [tuple(row) for row in found.collect()]


def test_tables_are_listed_by_namespace_and_pattern(lake):
    assert lake.sql("SHOW TABLES").columns == ["namespace", "tableName", "isTemporary"]
    assert rows(lake, "SHOW TABLES") == [("db", "sales", False), ("other", "t", False)]
    assert rows(lake, "SHOW TABLES IN other") == rows(lake, "SHOW TABLES FROM neve.other") == [("other", "t", False)]
    assert rows(lake, "SHOW TABLES LIKE 'S*|x'") == rows(lake, "SHOW TABLES IN db 'sales'") == [("db", "sales", False)]
    assert rows(lake, "SHOW TABLES LIKE 'sale'") == []
    with pytest.raises(UnknownName, match=r"Unknown namespace 'othr'\. Did you mean 'other'"):
        lake.sql("SHOW TABLES IN othr")


def test_namespaces_are_listed_level_by_level(lake):
    lake.sql("CREATE NAMESPACE other.inner")
    assert rows(lake, "SHOW NAMESPACES") == rows(lake, "SHOW SCHEMAS IN neve") == [("db",), ("other",)]
    assert rows(lake, "SHOW DATABASES LIKE 'o*'") == [("other",)]
    assert rows(lake, "SHOW NAMESPACES IN other") == [("other.inner",)]
    with pytest.raises(UnknownName, match="namespace 'nope'"):
        lake.sql("SHOW NAMESPACES IN nope")


def test_extended_tables_have_the_text_that_dbt_reads(lake):
    lake.sql("ALTER TABLE db.sales SET TBLPROPERTIES ('comment' = 'sold', 'owner' = 'me', 'a' = 'b')")
    ((namespace, name, is_temporary, information),) = rows(lake, "SHOW TABLE EXTENDED IN db LIKE 'sal*'")
    assert (namespace, name, is_temporary) == ("db", "sales", False)
    lines = information.splitlines()
    location = lake.table("db.sales").context.metadata.location
    assert lines[:8] == [
        "Catalog: neve",
        "Namespace: db",
        "Table: sales",
        "Type: MANAGED",
        "Comment: sold",
        f"Location: {location}",
        "Provider: iceberg",
        "Owner: me",
    ]
    assert lines[8].startswith("Table Properties: [a=b, current-snapshot-id=none, format=iceberg/parquet, format-v")
    assert lines[9:] == ["Schema: root", " |-- id: long (nullable = true)", " |-- region: string (nullable = true)", ""]
    assert len(rows(lake, "SHOW TABLE EXTENDED LIKE '*'")) == 2


def test_a_table_is_described(lake):
    assert rows(lake, "DESCRIBE other.t") == [
        ("id", "bigint", "the key"),
        ("s", "string", None),
        ("", "", ""),
        ("# Partitioning", "", ""),
        ("Part 0", "bucket(4, id)", ""),
        ("Part 1", "s", ""),
    ]
    assert rows(lake, "DESC TABLE db.sales")[2:] == [
        ("# Partition Information", "", ""),
        ("# col_name", "data_type", "comment"),
        ("region", "string", None),
    ]
    lake.table("db.sales").append([{"id": 1, "region": "eu"}])
    extended = rows(lake, "DESCRIBE FORMATTED db.sales")
    details = dict(row[:2] for row in extended[extended.index(("# Detailed Table Information", "", "")) + 1 :])
    assert {name: details[name] for name in ("Name", "Type", "Provider")} == {
        "Name": "neve.db.sales",
        "Type": "MANAGED",
        "Provider": "iceberg",
    }
    assert details["Statistics"].endswith("bytes, 1 rows") and "format-version=2" in details["Table Properties"]
    assert ("_spec_id", "int", "") in extended
    with pytest.raises(UnknownName, match=r"Unknown table 'other\.u'"):
        lake.sql("DESCRIBE other.u")


def test_a_column_is_described(lake):
    assert rows(lake, "DESCRIBE other.t ID") == [
        ("col_name", "id"),
        ("data_type", "bigint"),
        ("comment", "the key"),
    ]
    assert rows(lake, "DESC TABLE other.t s")[2] == ("comment", "NULL")
    with pytest.raises(UnknownName, match=r"Unknown column 'nope' in table other\.t"):
        lake.sql("DESCRIBE other.t nope")


def test_a_type_that_spark_lacks_is_described_in_the_words_of_iceberg():
    assert spark_type_name(NestedField(1, "where", GeometryType())) == "geometry"


def test_columns_properties_and_partitions_are_shown(lake):
    table = lake.table("db.sales")
    assert (
        rows(lake, "SHOW COLUMNS IN db.sales") == rows(lake, "SHOW COLUMNS FROM sales IN db") == [("id",), ("region",)]
    )
    table.append([{"id": 1, "region": "e u"}, {"id": 2, "region": None}])
    table.evolve_partitions(add=["bucket(2, id)"], drop=["region"]).append([{"id": 3, "region": "us"}])
    partitions = rows(lake, "SHOW PARTITIONS db.sales")
    assert partitions[-2:] == [("region=e+u",), ("region=null",)]
    assert len(partitions) == 3 and partitions[0][0].startswith("id_bucket_2=")
    lake.sql("ALTER TABLE db.sales WRITE ORDERED BY id DESC")
    properties = dict(rows(lake, "SHOW TBLPROPERTIES db.sales"))
    assert properties["sort-order"] == "id DESC NULLS LAST" and properties["write.distribution-mode"] == "range"
    assert properties["current-snapshot-id"] == str(table.refresh().context.head().snapshot_id)
    assert rows(lake, "SHOW TBLPROPERTIES db.sales ('format')") == [("format", "iceberg/parquet")]
    assert rows(lake, "SHOW TBLPROPERTIES db.sales ('x')") == [("x", "Table neve.db.sales does not have property: x")]
    lake.create_table("db.plain", "id bigint")
    with pytest.raises(UserError, match=r"db\.plain: it is not partitioned"):
        lake.sql("SHOW PARTITIONS db.plain")


DEFINITION = """
CREATE TABLE neve.db.kinds (
  id BIGINT NOT NULL DEFAULT -7,
  `date` DATE DEFAULT DATE '2026-01-02' COMMENT 'it\\'s a \\\\ day\\n',
  at TIMESTAMP DEFAULT TIMESTAMP '2026-01-02 03:04:05.000006+00:00',
  local TIMESTAMP_NTZ DEFAULT TIMESTAMP_NTZ '2026-01-02 03:04:05',
  price DECIMAL(10,2) DEFAULT 1.50,
  share DOUBLE DEFAULT 0.5,
  name STRING DEFAULT 'a, b)',
  is_new BOOLEAN DEFAULT TRUE,
  raw BINARY DEFAULT X'00FF',
  `odd name` FIXED(4),
  u UUID,
  t TIME,
  n TIMESTAMP_NS,
  z TIMESTAMPTZ_NS,
  s STRUCT<x: INT NOT NULL COMMENT 'inside', `y z`: ARRAY<FLOAT>>,
  m MAP<STRING, STRUCT<a: DECIMAL(38,0)>>)
USING iceberg
PARTITIONED BY (days(at), bucket(16, id), truncate(4, name) AS start, s.x)
COMMENT 'of all types'
LOCATION '{location}'
TBLPROPERTIES (
  'a' = '1',
  'format-version' = '3')
"""


def test_the_definition_of_a_table_can_be_run_again(lake, tmp_path):
    text = DEFINITION.lstrip().format(location=f"file://{tmp_path}/kinds")
    created = lake.sql(text).context.metadata
    assert rows(lake, "SHOW CREATE TABLE db.kinds") == [(text,)]
    lake.sql("ALTER TABLE db.kinds WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY id, hours(at) DESC")
    lake.sql("ALTER TABLE db.kinds SET IDENTIFIER FIELDS id")
    ((shown,),) = rows(lake, "SHOW CREATE TABLE db.kinds")
    assert shown.splitlines()[-2:] == [
        "-- ALTER TABLE neve.db.kinds WRITE LOCALLY ORDERED BY id ASC NULLS FIRST, hours(at) DESC NULLS LAST",
        "-- ALTER TABLE neve.db.kinds SET IDENTIFIER FIELDS id",
    ]
    lake.sql("DROP TABLE db.kinds")
    again = lake.sql(shown).context.metadata
    assert again.schema().fields == created.schema().fields
    assert (again.spec(), again.location, again.format_version) == (created.spec(), created.location, 3)
    assert again.properties == created.properties | {"write.distribution-mode": "hash"}
    for comment in shown.splitlines()[-2:]:
        changed = lake.sql(comment.removeprefix("-- ")).context.metadata
    assert len(changed.sort_order().fields) == 2 and changed.schema().identifier_field_ids == [1]


@pytest.mark.parametrize("term", ["`a.b`", "bucket(4, `a.b`)", "s.`c.d`", "truncate(2, s.`c.d`)", "s.e", "`f``g`"])
def test_a_name_with_a_dot_is_one_name_in_the_definition(lake, term):
    columns = "`a.b` INT NOT NULL, s STRUCT<`c.d`: INT NOT NULL, e: INT NOT NULL> NOT NULL, `f``g` INT NOT NULL"
    created = lake.sql(f"CREATE TABLE db.dots ({columns}) PARTITIONED BY ({term})").context.metadata
    lake.sql(f"ALTER TABLE db.dots WRITE LOCALLY ORDERED BY {term}")
    if "(" not in term:
        lake.sql(f"ALTER TABLE db.dots SET IDENTIFIER FIELDS {term}")
    ((shown,),) = rows(lake, "SHOW CREATE TABLE db.dots")
    assert f"PARTITIONED BY ({term})" in shown
    assert all(term in line for line in shown.splitlines() if line.startswith("--"))
    lake.sql("DROP TABLE db.dots")
    assert lake.sql(shown).context.metadata.spec() == created.spec()


def test_the_command_line_shows_without_spark(lake, lake_dir, monkeypatch):
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda builder: pytest.fail("Spark was started"))
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    found = []
    for text in ("SHOW TABLES", "DESCRIBE db.sales", "SHOW CREATE TABLE db.sales"):
        done = CliRunner().invoke(app, ["sql", text, "--lake", str(lake_dir), "--json"])
        assert done.exit_code == 0, done.output
        found.append([json.loads(line) for line in done.stdout.splitlines()])
    assert found[0][0] == {"namespace": "db", "tableName": "sales", "isTemporary": False}
    assert found[1][0] == {"col_name": "id", "data_type": "bigint", "comment": None}
    assert found[2][0]["createtab_stmt"].startswith("CREATE TABLE neve.db.sales (")
