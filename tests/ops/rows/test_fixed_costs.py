"""A statement runs as many Spark jobs as its work needs, and none where the process can do it."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import neve
from neve.catalog import metadata_files
from neve.table import Table
from tests.ops.conftest import use_engine

PRICES = pa.decimal128(12, 2)
SOURCE = [{"id": 5, "name": "q"}, {"id": 999, "name": "w"}]


def rows(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    prices = pa.array([Decimal(1)] * count, PRICES)
    return pa.table({"id": pa.array(ids, pa.int64()), "name": ["abc"[n % 3] for n in ids], "price": prices})


@pytest.fixture
def table(spark_lake: neve.Lake, monkeypatch: pytest.MonkeyPatch) -> Table:
    use_engine(monkeypatch, "process")
    made = spark_lake.create_table("db.t", "id bigint, name string, price decimal(12, 2)", format_version=2)
    made.append(rows(0, 100))
    made.evolve_partitions(add=["name"])
    made.append(rows(100, 100))
    return made.refresh()


def merge(table: Table, source: Any, mode: str) -> Any:
    matched = table.merge(source, "t.id = s.id").when_matched_update({"name": "s.name"})
    return matched.when_not_matched_insert({"id": "s.id", "name": "s.name"}).mode(mode).execute()


WITHOUT_A_JOB: dict[str, Callable[[Table], Any]] = {
    "append": lambda t: t.append(rows(200, 1)),
    "overwrite": lambda t: t.overwrite(rows(200, 1)),
    "delete merge-on-read": lambda t: t.delete().where("id IN (3, 150)").mode("merge-on-read").execute(),
    "delete copy-on-write": lambda t: t.delete().where("id IN (3, 150)").mode("copy-on-write").execute(),
    "scan": lambda t: t.to_arrow(),
    "first rows": lambda t: t.scan(limit=3).to_arrow(),
    "count": lambda t: t.scan().count(),
    "count some": lambda t: t.scan("id > 50").count(),
    "expire snapshots": lambda t: t.expire_snapshots().execute(),
    "rewrite manifests": lambda t: t.rewrite_manifests().execute(),
}
WITH_JOBS: dict[str, tuple[int, Callable[[Table], Any]]] = {
    # Spark computes the new values.
    "update merge-on-read": (1, lambda t: t.update().set("price", "price + 1").where("id = 3").execute()),
    "update copy-on-write": (
        1,
        lambda t: t.update().set("price", "price + 1").where("id = 3").mode("copy-on-write").execute(),
    ),
    # One more for the broadcast of its join, and one for the rows to insert.
    "merge merge-on-read": (3, lambda t: merge(t, SOURCE, "merge-on-read")),
    "merge copy-on-write": (3, lambda t: merge(t, SOURCE, "copy-on-write")),
    "merge of a frame": (4, lambda t: merge(t, "SELECT 5 AS id, 'q' AS name", "merge-on-read")),
}


def jobs_so_far(spark: SparkSession) -> int:
    scheduler: Any = spark.sparkContext._jsc.sc().dagScheduler()
    return int(scheduler.numTotalJobs())


@pytest.mark.parametrize("verb", WITHOUT_A_JOB)
def test_the_process_does_it_without_a_job(table: Table, spark: SparkSession, verb: str):
    before = jobs_so_far(spark)
    WITHOUT_A_JOB[verb](table)
    assert jobs_so_far(spark) == before


@pytest.mark.parametrize("verb", WITH_JOBS)
def test_spark_is_asked_no_more_often_than_needed(table: Table, spark: SparkSession, verb: str):
    expected, run = WITH_JOBS[verb]
    before = jobs_so_far(spark)
    run(table)
    assert 0 < jobs_so_far(spark) - before <= expected


LOADS: dict[str, Callable[[Table], Any]] = {
    "append": lambda t: t.append(rows(200, 1)),
    "delete": lambda t: t.delete().where("id = 3").execute(),
    "update": lambda t: t.update().set("price", "price + 1").where("id = 3").execute(),
}


@pytest.mark.parametrize("verb", LOADS)
def test_metadata_is_read_once_for_a_verb(table: Table, monkeypatch: pytest.MonkeyPatch, verb: str):
    LOADS[verb](table)
    changed = table.context.catalog.load_table(table.context.iceberg.name()).metadata_location
    read: list[str] = []
    parse = metadata_files.parse_metadata

    def spy(raw: bytes, location: str) -> Any:
        read.append(location)
        return parse(raw, location)

    monkeypatch.setattr(metadata_files, "parse_metadata", spy)
    LOADS["append"](table)
    assert read == [changed]
