"""Everything the documentation says of Spark Connect, done by a client: one line of JSON, a check to each name.

Run as `python -m tests.support.connect_client ADDRESS FOLDER [CHECK …]`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import neve

TYPES = "id bigint, region string"
Check = Callable[[neve.Lake, SparkSession, Path], Any]
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def small(lake: neve.Lake, name: str, version: int = 3) -> neve.Table:
    table = lake.create_table(f"db.{name}", TYPES, ["region"], format_version=version)
    table.append(pa.table({"id": range(10), "region": ["eu", "us"] * 5}))
    return table


def ids(table: neve.Table) -> list[int]:
    return sorted(table.scan().to_arrow(engine="spark")["id"].to_pylist())


@check
def scan(lake: neve.Lake, spark: SparkSession, folder: Path) -> Any:
    return small(lake, "scan").scan("id > 7").to_spark().count() == 2


@check
def attach(lake: neve.Lake, spark: SparkSession, folder: Path) -> Any:
    small(lake, "attached")
    neve.attach(spark, lake)
    spark.createDataFrame([(10, "eu")], TYPES).writeTo("lake.db.attached").append()
    spark.sql("UPDATE lake.db.attached SET region = 'us' WHERE id = 10")
    spark.sql("CREATE TABLE lake.db.copied AS SELECT * FROM lake.db.attached WHERE region = 'us'")
    found = spark.table("lake.db.copied").count(), spark.sql("SELECT max(id) AS id FROM lake.db.attached").first().id
    known = spark.catalog.tableExists("lake.db.copied"), len(spark.sql("SHOW TABLES IN lake.db").collect()) >= 2
    return (found, known, neve.detach(spark)) == ((6, 10), (True, True), ["lake"])


@check
def append_frame(lake: neve.Lake, spark: SparkSession, folder: Path) -> Any:
    table = small(lake, "append_frame")
    table.append(spark.range(10, 20).selectExpr("id", "'eu' AS region"))
    return ids(table) == list(range(20))


@check
def overwrite_frame(lake: neve.Lake, spark: SparkSession, folder: Path) -> Any:
    table = small(lake, "overwrite_frame")
    table.overwrite(spark.range(1).selectExpr("id", "'eu' AS region"), where="region = 'eu'")
    return ids(table) == [0, 1, 3, 5, 7, 9]


@check
def delete_merge_on_read(lake: neve.Lake, spark: SparkSession, folder: Path) -> Any:
    table = small(lake, "delete_mor")
    table.delete().where("id % 3 = 0").mode("merge-on-read").execute()
    return ids(table) == [1, 2, 4, 5, 7, 8]


@check
def delete_copy_on_write(lake: neve.Lake, spark: SparkSession, folder: Path) -> Any:
    table = small(lake, "delete_cow")
    table.delete().where("id % 3 = 0").mode("copy-on-write").execute()
    return ids(table) == [1, 2, 4, 5, 7, 8]


@check
def update_by_text(lake: neve.Lake, spark: SparkSession, folder: Path) -> Any:
    table = small(lake, "update_text")
    return table.update().set("id", "id + 100").where("id > 8").execute().rows_updated == 1 and 109 in ids(table)


@check
def update_by_column(lake: neve.Lake, spark: SparkSession, folder: Path) -> Any:
    table = small(lake, "update_column")
    table.update().set("id", F.col("id") + 100).where("id > 8").mode("merge-on-read").execute()
    return 109 in ids(table)


@check
def merge_frame(lake: neve.Lake, spark: SparkSession, folder: Path) -> Any:
    table = small(lake, "merge")
    source = spark.createDataFrame([(1, "asia"), (77, "eu")], TYPES)
    merged = table.merge(source, on="t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()
    return (merged.rows_updated, merged.rows_inserted) == (1, 1) and 77 in ids(table)


@check
def sql(lake: neve.Lake, spark: SparkSession, folder: Path) -> Any:
    small(lake, "sql")
    lake.sql("UPDATE db.sql SET region = 'asia' WHERE id < 3")
    return lake.sql("SELECT count(*) AS n FROM db.sql WHERE region = 'asia'").collect()[0].n == 3


@check
def compaction(lake: neve.Lake, spark: SparkSession, folder: Path) -> Any:
    table = small(lake, "compaction")
    for _ in range(5):
        table.append([{"id": 50, "region": "eu"}])
    table.rewrite_data_files().where("region = 'eu'").execute()
    return len(ids(table)) == 15


@check
def version_4(lake: neve.Lake, spark: SparkSession, folder: Path) -> Any:
    table = small(lake, "v4", 4)
    table.delete().where("id = 3").mode("merge-on-read").execute()
    return ids(table) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


@check
def source_read(lake: neve.Lake, spark: SparkSession, folder: Path) -> Any:
    small(lake, "source_read")
    return spark.read.format("neve").load("db.source_read").where("region = 'eu'").count() == 5


@check
def source_write(lake: neve.Lake, spark: SparkSession, folder: Path) -> Any:
    table = small(lake, "source_write")
    spark.range(10, 12).selectExpr("id", "'eu' AS region").write.format("neve").mode("append").save("db.source_write")
    return ids(table) == list(range(12))


@check
def source_sink(lake: neve.Lake, spark: SparkSession, folder: Path) -> Any:
    table = small(lake, "source_sink")
    spark.range(100, 103).write.parquet(f"{folder}/in")
    rows = spark.readStream.schema("id bigint").parquet(f"{folder}/in").selectExpr("id", "'eu' AS region")
    query = rows.writeStream.format("neve").option("checkpointLocation", f"{folder}/checkpoint")
    query.trigger(availableNow=True).start("db.source_sink").awaitTermination()
    return ids(table)[-3:] == [100, 101, 102]


@check
def source_stream(lake: neve.Lake, spark: SparkSession, folder: Path) -> Any:
    small(lake, "from_table")
    target = lake.create_table("db.to_table", TYPES)
    query = spark.readStream.format("neve").load("db.from_table").writeStream.format("neve")
    query = query.option("checkpointLocation", f"{folder}/hop").trigger(availableNow=True)
    query.start("db.to_table").awaitTermination()
    return ids(target) == list(range(10))


def answer(function: Check, *given: Any) -> Any:
    try:
        return function(*given) is True or "wrong rows"
    except Exception as e:  # what went wrong is the answer
        return f"{type(e).__name__}: {str(e).strip().splitlines()[0][:300]}"


def main(address: str, folder: str, *names: str) -> None:
    spark = SparkSession.builder.remote(address).getOrCreate()
    lake = neve.connect(Path(folder) / "lake", spark=spark)
    neve.register(spark, lake)
    found = {}
    for name in names or CHECKS:
        started = time.monotonic()
        found[name] = answer(CHECKS[name], lake, spark, Path(folder))
        sys.stderr.write(f"{name}: {found[name]} in {time.monotonic() - started:.1f} s\n")
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
