"""The format `neve` in a real Spark: rows are those of plain Spark over Parquet, and of the table's own scan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import neve
from tests.support.coverage import IS_LONG
from tests.support.tables import local

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
TYPES = "id bigint, region string, x double, ts timestamp, tags array<string>, s struct<a: int, b: string>"


@pytest.fixture(scope="module")
def home(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> neve.Lake:
    lake = neve.connect(tmp_path_factory.mktemp("lake"), spark=spark)
    spark.createDataFrame([], "id int")  # makes the session the active one, where Spark looks formats up
    neve.register(spark, lake)
    return lake


def made_of(spark: SparkSession, count: int, first: int = 0) -> DataFrame:
    return spark.range(first, first + count).selectExpr(
        "id",
        "if(id % 3 = 0, null, concat('r', id % 3)) AS region",
        "if(id % 5 = 0, double('NaN'), id / 2) AS x",
        "timestamp '2026-01-01 00:00:00' + make_dt_interval(0, id) AS ts",
        "array(concat('t', id), null) AS tags",
        "if(id % 4 = 0, null, named_struct('a', int(id), 'b', string(id))) AS s",
    )


def assert_same_rows(found: DataFrame, expected: DataFrame) -> None:
    assert found.columns == expected.columns
    assert sorted(map(repr, found.collect())) == sorted(map(repr, expected.collect()))


def read(spark: SparkSession, name: str, **options: Any) -> DataFrame:
    reader = spark.read.format("neve")
    for key, value in options.items():
        reader = reader.option(key.replace("_", "-"), value)
    return reader.load(name)


@pytest.mark.parametrize("version", [1, 2, 3, 4] if IS_LONG else [4])
def test_a_table_that_has_lived_is_read_as_spark_reads_it(spark: SparkSession, home: neve.Lake, version: int):
    name = f"db.lived{version}"
    table = home.create_table(name, TYPES, ["region"], format_version=version)
    made_of(spark, 20).write.format("neve").mode("append").save(name)
    table.evolve_partitions(add=["bucket(4, id)"], drop=["region"])
    with table.evolve_schema() as change:
        change.rename_column("x", "y")
    made_of(spark, 20, 20).withColumnRenamed("x", "y").write.format("neve").mode("append").save(name)
    mode = "merge-on-read" if version > 1 else "copy-on-write"
    table.delete().where("id % 10 = 3").mode(mode).execute()
    found = read(spark, name)
    assert_same_rows(found, table.to_spark())
    assert found.count() == 36
    assert found.where("region = 'r1' AND id < 10").count() == 3
    assert not table.verify().findings


def test_what_is_written_comes_back_as_from_parquet(spark: SparkSession, home: neve.Lake, tmp_path: Path):
    rows = made_of(spark, 50).repartition(3)
    rows.write.parquet(f"{tmp_path}/plain")
    home.create_table("db.plain", TYPES, ["region"])
    rows.write.format("neve").mode("append").option("snapshot-property.job", "night").save("db.plain")
    assert_same_rows(read(spark, "db.plain"), spark.read.parquet(f"{tmp_path}/plain"))
    head = home.table("db.plain").iceberg.metadata.current_snapshot()
    assert head is not None and head.summary is not None and head.summary["job"] == "night"
    rows.where("region = 'r1'").write.format("neve").mode("overwrite").option("overwrite-where", "region = 'r1'").save(
        "db.plain"
    )
    assert home.table("db.plain").scan().count() == 50
    rows.limit(0).write.format("neve").mode("overwrite").save("db.plain")
    assert read(spark, "db.plain").count() == 0


def test_a_write_that_fails_leaves_the_table_and_its_folder_alone(spark: SparkSession, home: neve.Lake):
    table = home.create_table("db.failing", "id bigint not null")
    bad = spark.range(4).selectExpr("if(id = 2, null, id) AS id")
    with pytest.raises(PySparkException, match="Null in required column 'id'"):
        bad.write.format("neve").mode("append").save("db.failing")
    assert table.scan().count() == 0
    assert not list(local(table.iceberg.location()).rglob("*.parquet"))


def test_one_frame_in_two_queries_keeps_all_its_rows(spark: SparkSession, home: neve.Lake):
    """Spark 4.1 hands what was planned for one query of a DataFrame to the next, so filters stay out of the plan."""
    home.create_table("db.twice", "id bigint").append([{"id": i} for i in range(5)])
    spark.conf.set(PUSHDOWN, "true")
    try:
        frame = read(spark, "db.twice")
        assert (frame.where("id > 3").count(), frame.count()) == (1, 5)
        assert frame.where("id = 1").union(frame.where("id = 2")).count() == 2
        asked = read(spark, "db.twice", filter_pushdown="true")
        assert asked.where("id > 3").collect() == [(4,)]
    finally:
        spark.conf.unset(PUSHDOWN)


def test_plans_do_not_show_where_tables_are(spark: SparkSession, home: neve.Lake):
    home.create_table("db.shown", "id bigint")
    frame = read(spark, "db.shown")
    text = frame._jdf.queryExecution().toString()  # type: ignore[operator]
    assert "neve" in text and str(home.catalog.properties["uri"]) not in text


class TestStreams:
    @pytest.fixture
    def given(self, spark: SparkSession, tmp_path: Path) -> Path:
        spark.range(0, 10).coalesce(1).write.parquet(f"{tmp_path}/in")
        return tmp_path

    def start(self, spark: SparkSession, place: Path, name: str) -> None:
        rows = spark.readStream.schema("id bigint").parquet(f"{place}/in")
        query = rows.writeStream.format("neve").option("checkpointLocation", f"{place}/checkpoint")
        running = query.trigger(availableNow=True).start(name)
        running.awaitTermination()

    def test_an_epoch_spark_repeats_after_its_checkpoint_is_lost_lands_once(
        self, spark: SparkSession, home: neve.Lake, given: Path
    ):
        table = home.create_table("db.sink", "id bigint")
        self.start(spark, given, "db.sink")
        spark.range(10, 20).coalesce(1).write.mode("append").parquet(f"{given}/in")
        self.start(spark, given, "db.sink")
        newest = max((given / "checkpoint" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
        newest.unlink()  # as if the driver had died before it noted the epoch
        newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
        self.start(spark, given, "db.sink")
        assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(20))
        summaries = [s.summary for s in table.iceberg.metadata.snapshots]
        query_id = json.loads((given / "checkpoint" / "metadata").read_text())["id"]
        assert [s and s["spark.sql.streaming.queryId"] for s in summaries] == [query_id] * 2

    @pytest.mark.skipif(not IS_LONG, reason="its halves are tried without Spark; runs in the long tests")
    def test_a_stream_goes_from_table_to_table(self, spark: SparkSession, home: neve.Lake, tmp_path: Path):
        first = home.create_table("db.first", "id bigint")
        second = home.create_table("db.second", "id bigint")
        for batch in ([1, 2], [3]):
            first.append([{"id": i} for i in batch])
            rows = spark.readStream.format("neve").load("db.first")
            query = rows.writeStream.format("neve").option("checkpointLocation", f"{tmp_path}/hop")
            query.trigger(availableNow=True).start("db.second").awaitTermination()
        assert sorted(second.to_arrow()["id"].to_pylist()) == [1, 2, 3]
        assert len(second.iceberg.metadata.snapshots) == 2
