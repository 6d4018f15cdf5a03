"""CREATE, ALTER and DROP TABLE as values."""

from __future__ import annotations

import pytest

from neve.errors import UserError
from neve.sql import parse
from neve.sql.alter_columns import (
    AddColumns,
    AlterColumn,
    ColumnPosition,
    DropColumns,
    DropIdentifierFields,
    NewColumn,
    RenameColumn,
    SetIdentifierFields,
)
from neve.sql.alter_table import (
    CreateRef,
    DropRef,
    EvolvePartitions,
    RenameTable,
    SetLocation,
    SetProperties,
    SetSortOrder,
    UnsetProperties,
)
from neve.sql.change_rows import Delete
from neve.sql.create_table import CreateTable, CreateTableLike, DropTable, ReplaceTable
from neve.sql.describe import DescribeTable
from neve.sql.namespaces import DescribeNamespace

T = ("db", "t")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("CREATE TABLE db.t (id bigint)", CreateTable(T, "id bigint")),
        (
            "CREATE TABLE IF NOT EXISTS db.t (id bigint NOT NULL COMMENT 'key', s struct<a: int, b: decimal(10, 2)>) "
            "USING iceberg PARTITIONED BY (days(ts), bucket(16, id), region) LOCATION 's3://b/t' COMMENT 'sold' "
            "TBLPROPERTIES ('format-version' = '3', write.delete.mode = 'merge-on-read', 'n' 5, 'b' = true)",
            CreateTable(
                T,
                "id bigint NOT NULL COMMENT 'key', s struct<a: int, b: decimal(10, 2)>",
                ("days(ts)", "bucket(16, id)", "region"),
                {
                    "comment": "sold",
                    "format-version": "3",
                    "write.delete.mode": "merge-on-read",
                    "n": "5",
                    "b": "true",
                },
                "s3://b/t",
                if_not_exists=True,
            ),
        ),
        (
            "CREATE TABLE db.t USING ICEBERG PARTITIONED BY (region) AS SELECT * FROM db.u",
            CreateTable(T, None, ("region",), query="SELECT * FROM db.u"),
        ),
        (
            "CREATE TABLE db.t (id bigint DEFAULT 5 COMMENT 'key', s string NOT NULL DEFAULT 'a, b', n int)",
            CreateTable(T, "id bigint DEFAULT 5 COMMENT 'key', s string NOT NULL DEFAULT 'a, b', n int"),
        ),
        (
            "CREATE OR REPLACE TABLE db.t (id bigint) PARTITIONED BY (id)",
            ReplaceTable(CreateTable(T, "id bigint", ("id",))),
        ),
        ("REPLACE TABLE db.t AS SELECT 1", ReplaceTable(CreateTable(T, query="SELECT 1"), must_exist=True)),
        (
            "CREATE TABLE IF NOT EXISTS db.t LIKE db.u USING iceberg LOCATION 's3://b/t' TBLPROPERTIES ('a' = 'b')",
            CreateTableLike(T, ("db", "u"), {"a": "b"}, "s3://b/t", if_not_exists=True),
        ),
        ("TRUNCATE TABLE db.t", Delete(T)),
        ("DROP TABLE db.t", DropTable(T)),
        ("DROP TABLE IF EXISTS db.t;", DropTable(T, if_exists=True)),
        ("drop table db.t purge", DropTable(T, purge=True)),
    ],
)
def test_tables_come_and_go(text, found):
    assert parse(text) == found


def test_a_namespace_may_be_named_like_its_keyword():
    assert parse("DESCRIBE schema.t") == DescribeTable(("schema", "t"))
    assert parse("DESCRIBE SCHEMA t") == DescribeNamespace(("t",))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("ADD PARTITION FIELD days(ts)", EvolvePartitions(T, ("days(ts)",))),
        ("ADD PARTITION FIELD bucket(16, id) AS shard", EvolvePartitions(T, ("bucket(16, id) AS shard",))),
        ("DROP PARTITION FIELD `old field`", EvolvePartitions(T, drop=("old field",))),
        ("DROP PARTITION FIELD truncate(4, name)", EvolvePartitions(T, drop=("truncate(4, name)",))),
        (
            "REPLACE PARTITION FIELD ts_day WITH hours(ts) AS h",
            EvolvePartitions(T, ("hours(ts) AS h",), ("ts_day",)),
        ),
        ("SET TBLPROPERTIES ('a' = 'b', c.d = -1)", SetProperties(T, {"a": "b", "c.d": "-1"})),
        ("SET TBLPROPERTIES ('a''b' = \"c\"\"d\", 'e' = '''')", SetProperties(T, {"a'b": 'c"d', "e": "'"})),
        ("SET LOCATION 's3://b/it''s'", SetLocation(T, "s3://b/it's")),
        ("UNSET TBLPROPERTIES IF EXISTS ('a', b.c)", UnsetProperties(T, ("a", "b.c"))),
        ("RENAME TO db.u", RenameTable(T, ("db", "u"))),
        ("ADD COLUMN a int", AddColumns(T, (NewColumn(("a",), "int"),))),
        (
            "ADD COLUMNS (a decimal(10, 2) NOT NULL COMMENT 'x, y' FIRST, s.b map<string, array<int>> AFTER c)",
            AddColumns(
                T,
                (
                    NewColumn(("a",), "decimal(10, 2) NOT NULL COMMENT 'x, y'", position=ColumnPosition()),
                    NewColumn(("s", "b"), "map<string, array<int>>", position=ColumnPosition("c")),
                ),
            ),
        ),
        ("ADD COLUMN a int DEFAULT 5 FIRST", AddColumns(T, (NewColumn(("a",), "int", "5", ColumnPosition()),))),
        ("DROP COLUMN s.a", DropColumns(T, (("s", "a"),))),
        ("DROP COLUMNS IF EXISTS (a, b)", DropColumns(T, (("a",), ("b",)), if_exists=True)),
        ("RENAME COLUMN s.a TO `b c`", RenameColumn(T, ("s", "a"), "b c")),
        ("ALTER COLUMN a TYPE decimal(12, 2)", AlterColumn(T, ("a",), type="decimal(12, 2)")),
        ("ALTER COLUMN a COMMENT 'x'", AlterColumn(T, ("a",), comment="x")),
        ("ALTER COLUMN a SET NOT NULL", AlterColumn(T, ("a",), is_required=True)),
        ("CHANGE COLUMN a DROP NOT NULL", AlterColumn(T, ("a",), is_required=False)),
        ("ALTER COLUMN a SET DEFAULT 'x'", AlterColumn(T, ("a",), default="'x'")),
        ("ALTER COLUMN a DROP DEFAULT", AlterColumn(T, ("a",), default="NULL")),
        ("ALTER COLUMN s.a AFTER b", AlterColumn(T, ("s", "a"), position=ColumnPosition("b"))),
        ("SET IDENTIFIER FIELDS a, s.b", SetIdentifierFields(T, (("a",), ("s", "b")))),
        ("DROP IDENTIFIER FIELDS a, s.b", DropIdentifierFields(T, (("a",), ("s", "b")))),
        ("SET LOCATION 's3://b/u'", SetLocation(T, "s3://b/u")),
        ("WRITE ORDERED BY a, bucket(4, b) DESC", SetSortOrder(T, ("a", "bucket(4, b) DESC"), "range")),
        ("WRITE ORDERED BY (a NULLS LAST, b)", SetSortOrder(T, ("a NULLS LAST", "b"), "range")),
        ("WRITE LOCALLY ORDERED BY a", SetSortOrder(T, ("a",))),
        ("WRITE UNORDERED", SetSortOrder(T, (), "none")),
        ("WRITE DISTRIBUTED BY PARTITION", SetSortOrder(T, (), "hash")),
        ("WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY a", SetSortOrder(T, ("a",), "hash")),
        ("WRITE ORDERED BY a DISTRIBUTED BY PARTITION", SetSortOrder(T, ("a",), "hash")),
        ("CREATE BRANCH audit", CreateRef(T, "branch", "audit")),
        (
            "CREATE BRANCH audit AS OF VERSION 3 RETAIN 7 DAYS WITH SNAPSHOT RETENTION 2 SNAPSHOTS 12 HOURS",
            CreateRef(
                T,
                "branch",
                "audit",
                3,
                retention={
                    "max_ref_age_ms": 604_800_000,
                    "min_snapshots_to_keep": 2,
                    "max_snapshot_age_ms": 43_200_000,
                },
            ),
        ),
        (
            "CREATE BRANCH audit WITH SNAPSHOT RETENTION 30 MINUTES",
            CreateRef(T, "branch", "audit", retention={"max_snapshot_age_ms": 1_800_000}),
        ),
        (
            "CREATE OR REPLACE BRANCH audit WITH SNAPSHOT RETENTION 3 SNAPSHOTS",
            CreateRef(T, "branch", "audit", replaces=True, retention={"min_snapshots_to_keep": 3}),
        ),
        (
            "REPLACE TAG v1 AS OF VERSION 12 RETAIN 1 DAYS",
            CreateRef(T, "tag", "v1", 12, replaces=True, must_exist=True, retention={"max_ref_age_ms": 86_400_000}),
        ),
        ("CREATE TAG IF NOT EXISTS v1 AS OF VERSION 12", CreateRef(T, "tag", "v1", 12, if_not_exists=True)),
        ("DROP BRANCH IF EXISTS audit", DropRef(T, "branch", "audit", if_exists=True)),
        ("DROP TAG v1", DropRef(T, "tag", "v1")),
    ],
)
def test_changes_of_a_table_are_read(change, found):
    assert parse(f"ALTER TABLE db.t {change}") == found


@pytest.mark.parametrize(
    ("text", "message", "marked"),
    [
        ("CREATE VIEWS v AS SELECT 1", "expected TABLE", "VIEWS v AS SELECT 1"),
        (
            "CREATE OR REPLACE TABLE IF NOT EXISTS db.t (id int)",
            "columns in parentheses|expected",
            "NOT EXISTS db.t (id int)",
        ),
        ("CREATE TABLE db.t LIKE db.u PARTITIONED BY (id)", "partitioned like it", "PARTITIONED BY (id)"),
        ("REPLACE VIEW db.t AS SELECT 1", "expected TABLE", "VIEW db.t AS SELECT 1"),
        ("TRUNCATE TABLE db.t PARTITION (a = 1)", "unexpected 'PARTITION'", "PARTITION (a = 1)"),
        ("CREATE TABLE db.t", "columns in parentheses", ""),
        ("CREATE TABLE db.t (id int) AS SELECT 1", "not both", ""),
        ("CREATE TABLE db.t (id int) USING parquet", "expected ICEBERG", "parquet"),
        ("CREATE TABLE db.t (id int) CLUSTERED BY (id)", "expected USING iceberg, PARTITIONED BY", "CLUSTERED BY (id)"),
        ("CREATE TABLE db.t (id int", "closing \\) is missing|expected \\)", ""),
        (
            "CREATE TABLE db.t (id int) PARTITIONED BY (id) LOCATION 'x' PARTITIONED BY (a)",
            "PARTITIONED is given twice",
            "PARTITIONED BY (a)",
        ),
        ("CREATE TABLE db.t (id int) COMMENT 'x' COMMENT 'y'", "COMMENT is given twice", "COMMENT 'y'"),
        ("CREATE TABLE db.t (id int) LOCATION 'x' LOCATION 'y'", "LOCATION is given twice", "LOCATION 'y'"),
        ("CREATE TABLE db.t (id int) TBLPROPERTIES (a = 1) TBLPROPERTIES (b = 2)", "twice", "TBLPROPERTIES (b = 2)"),
        ("CREATE TABLE db.t (id int) TBLPROPERTIES ('a.b' = 1, a.b = 2)", "property 'a.b' is given twice", "a.b = 2)"),
        ("CREATE TABLE db.t (id int) TBLPROPERTIES (comment = 'x') COMMENT 'y'", "'comment' is given", "COMMENT 'y'"),
        ("ALTER TABLE db.t SET TBLPROPERTIES ('a' = 1, 'a' = 2)", "property 'a' is given twice", "'a' = 2)"),
        ("CREATE DATABASE db WITH (a = 1)", "expected PROPERTIES", "(a = 1)"),
        ("CREATE NAMESPACE db COMMENT 'a' WITH PROPERTIES (comment = 'b')", "twice", "WITH PROPERTIES (comment = 'b')"),
        ("ALTER NAMESPACE db RENAME TO x", "expected SET", "RENAME TO x"),
        ("DROP SCHEMA db RESTRICT CASCADE", "unexpected 'CASCADE'", "CASCADE"),
        ("SHOW VIEW", "expected TABLES, VIEWS, TABLE EXTENDED, NAMESPACES", "VIEW"),
        ("SHOW TABLE EXTENDED IN db", "expected LIKE", ""),
        ("SHOW COLUMNS db.t", "expected FROM", "db.t"),
        ("ALTER TABLE db.t WRITE", "expected .LOCALLY. ORDERED BY", ""),
        ("ALTER TABLE db.t WRITE SORTED BY a", "expected .LOCALLY. ORDERED BY", "SORTED BY a"),
        ("ALTER TABLE db.t CREATE TAG v RETAIN 7", "expected DAYS, HOURS, MINUTES", ""),
        (
            "ALTER TABLE db.t CREATE TAG v WITH SNAPSHOT RETENTION 2 SNAPSHOTS",
            "unexpected 'WITH'",
            "WITH SNAPSHOT RETENTION 2 SNAPSHOTS",
        ),
        ("ALTER TABLE db.t REFRESH", "expected ADD, DROP or REPLACE PARTITION FIELD; .*BRANCH or TAG", "REFRESH"),
        ("ALTER TABLE db.t ADD COLUMN a", "expected a type", ""),
        ("ALTER TABLE db.t ALTER COLUMN a INT", "expected TYPE", "INT"),
        ("ALTER TABLE db.t RENAME TO u v", "unexpected 'v'", "v"),
        ("ALTER TABLE db.t SET TBLPROPERTIES ('a' = )", "value of 'a'", ")"),
        ("ALTER TABLE db.t REPLACE PARTITION FIELD a b", "expected WITH", ""),
    ],
)
def test_an_error_points_at_its_position(text, message, marked):
    with pytest.raises(UserError, match=message) as caught:
        parse(text)
    *_, line, mark = str(caught.value).splitlines()
    assert line[mark.index("^") :] == marked
