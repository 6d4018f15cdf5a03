"""A folder of another engine becomes a table: with the rows that Spark reads from it, and nothing deletes its files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import neve
from neve import UserError

ROWS = [(i, f"note {i}", ("eu", "us/west", None)[i % 3], i % 2) for i in range(30)]
COLUMNS = "id bigint, note string, region string, shard int"


def folder_of(spark: SparkSession, path: Path, file_format: str, *by: str) -> str:
    spark.createDataFrame(ROWS, COLUMNS).write.format(file_format).partitionBy(*by).save(str(path))
    return str(path)


def rows_in(frame: Any) -> Counter[Any]:
    return Counter(tuple(row) for row in frame.select("id", "note", "region", "shard").collect())


@pytest.mark.parametrize(
    ("file_format", "by"), [("parquet", ("region", "shard")), ("parquet", ()), ("orc", ("shard",))], ids=str
)
def test_the_table_has_the_rows_and_the_partitions_of_the_folder(spark_lake, spark, tmp_path, file_format, by):
    folder = folder_of(spark, tmp_path / "day=1" / "src", file_format, *by)
    t = spark_lake.snapshot_folder(folder, "db.s", file_format=file_format)
    assert rows_in(t.to_spark()) == rows_in(spark.read.format(file_format).load(folder)) == Counter(ROWS)
    assert [field.name for field in t.context.metadata.spec().fields] == [*by]
    assert not t.context.metadata.location.startswith(Path(folder).as_uri())
    assert t.verify().is_sound


def test_no_file_of_the_folder_is_ever_deleted(spark_lake, spark, tmp_path):
    folder = folder_of(spark, tmp_path / "src", "parquet", "region")
    before = sorted(Path(folder).rglob("*"))
    t = spark_lake.snapshot_folder(folder, "db.s")
    t.delete().where("region = 'eu'").execute()
    t.update().set("note", "'x'").where("id < 5").execute()
    t.rewrite_data_files().option("rewrite-all", True).execute()
    with pytest.raises(UserError, match=r"gc\.enabled"):
        t.expire_snapshots().retain_last(1).older_than(1 << 42).execute()
    spark_lake.drop_table("db.s")
    assert sorted(Path(folder).rglob("*")) == before


@pytest.mark.parametrize(
    ("file_format", "by"), [("parquet", ("region", "shard")), ("parquet", ()), ("orc", ("shard",))]
)
def test_a_folder_that_is_taken_over_becomes_the_place_of_the_table(spark_lake, spark, tmp_path, file_format, by):
    folder = Path(folder_of(spark, tmp_path / "src", file_format, *by))
    files = {*folder.rglob(f"*.{file_format}")}
    t = spark_lake.migrate_folder(folder, "db.s", file_format=file_format)
    assert t.context.metadata.location.removeprefix("file://") == str(folder)
    assert rows_in(t.to_spark()) == Counter(ROWS) and t.verify().is_sound
    t.delete().where("id % 2 = 0").execute()
    t.rewrite_data_files().option("rewrite-all", True).execute()
    t.expire_snapshots().retain_last(1).older_than(1 << 42).execute()
    assert not {*folder.rglob(f"*.{file_format}")} & files
    assert rows_in(t.refresh().to_spark()) == Counter(row for row in ROWS if row[0] % 2)
    assert all(
        path.removeprefix("file://").startswith(str(folder)) for path in t.inspect.files()["file_path"].to_pylist()
    )
    assert t.verify().is_sound


def test_a_folder_that_cannot_be_taken_over_is_as_before(spark_lake, spark, tmp_path):
    folder = Path(folder_of(spark, tmp_path / "src", "parquet", "region"))
    (folder / "region=eu" / "odd").mkdir()
    (folder / "region=eu" / "odd" / "x.parquet").write_bytes(b"PAR1 no footer PAR1")
    before = sorted(folder.rglob("*"))
    with pytest.raises(neve.NeveError):
        spark_lake.migrate_folder(folder, "db.s")
    assert "db.s" not in spark_lake.tables()
    assert sorted(folder.rglob("*")) == before


def test_a_folder_that_another_table_uses_is_not_taken_over(spark_lake, spark, tmp_path):
    folder = folder_of(spark, tmp_path / "src", "parquet", "region")
    spark_lake.snapshot_folder(folder, "db.tried")
    with pytest.raises(UserError, match=r"Cannot take over .*src: table db\.tried is in it, or references its files"):
        spark_lake.migrate_folder(folder, "db.s")
    spark_lake.drop_table("db.tried")
    added = spark_lake.create_table("db.added", COLUMNS, ["region"])
    added.add_files(folder).execute()
    with pytest.raises(UserError, match=r"table db\.added is in it, or references its files"):
        spark_lake.migrate_folder(folder, "db.s")
    metadata = Path(added.refresh().iceberg.metadata_location.removeprefix("file://"))
    metadata.rename(metadata.with_suffix(".away"))
    with pytest.raises(UserError, match=r"table db\.added may reference its files, and cannot be read"):
        spark_lake.migrate_folder(folder, "db.s")
    metadata.with_suffix(".away").rename(metadata)
    spark_lake.drop_table("db.added")
    t = spark_lake.migrate_folder(folder, "db.s", properties={"format-version": "4"})
    assert t.scan().count() == len(ROWS) and t.verify().is_sound
    with pytest.raises(UserError, match=r"table db\.s is in it"):
        spark_lake.migrate_folder(folder, "db.again")
    with pytest.raises(UserError, match="it is an Iceberg table"):
        spark_lake.table("db.s").add_files(folder).execute()


def test_call_snapshot_counts_the_files(spark_lake, spark, tmp_path):
    folder = folder_of(spark, tmp_path / "src", "parquet", "region")
    text = f"CALL system.snapshot('`parquet`.`{folder}`', 'db.s', properties => map('owner', 'me'))"
    called = spark_lake.sql(text)
    files = len([*Path(folder).rglob("*.parquet")])
    assert called.output_rows.to_pylist() == [{"imported_files_count": files}]
    properties = spark_lake.table("db.s").context.metadata.properties
    assert {"owner": "me", "snapshot": "true", "gc.enabled": "false"}.items() <= properties.items()


def test_a_folder_that_does_not_fit_leaves_no_table(spark_lake, spark, tmp_path):
    folder = Path(folder_of(spark, tmp_path / "src", "parquet", "region"))
    next(folder.rglob("*.parquet")).write_bytes(b"PAR1 no footer PAR1")
    with pytest.raises(neve.NeveError):
        spark_lake.snapshot_folder(folder, "db.s")
    assert "db.s" not in spark_lake.tables()


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("nothing", {}, "Cannot find the columns of the parquet files in .*nothing"),
        (".", {"file_format": "csv"}, "files of format 'csv'. Give parquet, orc or avro"),
    ],
)
def test_what_is_no_folder_of_files_is_one_error(spark_lake, tmp_path, source, options, message):
    with pytest.raises(UserError, match=message):
        spark_lake.snapshot_folder(tmp_path / source, "db.s", **options)
    assert spark_lake.tables() == []


@pytest.fixture
def spark_table(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    spark.createDataFrame(ROWS, COLUMNS).write.partitionBy("region").option("path", str(tmp_path / "src")).saveAsTable(
        "spark_catalog.default.theirs"
    )
    yield "theirs"
    spark.sql("DROP TABLE spark_catalog.default.theirs")


@pytest.mark.parametrize("database", ["", "default.", "spark_catalog.default."])
def test_a_table_of_spark_is_a_source(spark_lake, spark_table, database):
    spark_lake.sql(f"CALL system.snapshot('{database}{spark_table}', 'db.s')")
    assert rows_in(spark_lake.table("db.s").to_spark()) == Counter(ROWS)
    spark_lake.sql("CREATE TABLE db.u LIKE db.s")
    spark_lake.sql(f"CALL system.add_files('db.u', '{database}{spark_table}')")
    assert rows_in(spark_lake.table("db.u").to_spark()) == Counter(ROWS)


def test_partitions_that_the_table_has_dropped_do_not_come_back(spark_lake, spark, tmp_path):
    """Their files stay in the folder of an external table; types are those of the table, not those of the texts."""
    name = "spark_catalog.default.dropped"
    spark.sql(
        f"CREATE TABLE {name} (id bigint COMMENT 'the key', zip string, town string) USING parquet "
        f"PARTITIONED BY (zip, town) LOCATION '{tmp_path}/dropped'"
    )
    try:
        rows = [(1, "01234", "O'Brien"), (2, "00007", "C:\\new=1"), (3, "5", None), (4, "6", None)]
        spark.createDataFrame(rows, "id bigint, zip string, town string").write.insertInto(name)
        spark.sql(f"ALTER TABLE {name} DROP PARTITION (zip = '5', town = NULL)")
        assert len([*(tmp_path / "dropped").rglob("zip=5/*/*.parquet")]) == 1
        spark_lake.sql("CALL system.snapshot('default.dropped', 'db.s')")
        found = spark_lake.table("db.s")
        assert found.to_spark().orderBy("id").collect() == spark.table(name).orderBy("id").collect()
        assert found.schema.find_field("id").doc == "the key" and str(found.schema.find_type("zip")) == "string"
        spark_lake.sql("CREATE TABLE db.u LIKE db.s")
        spark_lake.sql("CALL system.add_files('db.u', 'default.dropped')")
        assert spark_lake.table("db.u").scan().count() == 3
    finally:
        spark.sql(f"DROP TABLE {name}")


def test_a_partition_in_another_folder_is_an_error(spark_lake, spark, spark_table, tmp_path):
    spark.sql(
        f"ALTER TABLE spark_catalog.default.{spark_table} ADD PARTITION (region = 'as') LOCATION '{tmp_path}/elsewhere'"
    )
    with pytest.raises(UserError, match=r"partition region=as is in file:.*/elsewhere, outside the table's folder"):
        spark_lake.sql(f"CALL system.snapshot('{spark_table}', 'db.s')")
    assert spark_lake.tables() == []


def test_what_is_no_table_with_files_of_a_known_format_is_an_error(spark_lake, spark, tmp_path):
    spark.sql(f"CREATE TABLE spark_catalog.default.texts (t string) USING text LOCATION '{tmp_path}/texts'")
    spark.sql("CREATE VIEW spark_catalog.default.a_view AS SELECT 1 AS one")
    try:
        for name, message in (("texts", "they are text"), ("a_view", "it is a view"), ("nothing", "Unknown table")):
            with pytest.raises(UserError, match=message):
                spark_lake.sql(f"CALL system.snapshot('{name}', 'db.s')")
    finally:
        spark.sql("DROP TABLE spark_catalog.default.texts")
        spark.sql("DROP VIEW spark_catalog.default.a_view")
