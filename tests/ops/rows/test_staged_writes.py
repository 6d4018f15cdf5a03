"""A session that stages its writes never has them land on main unseen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

import neve
from neve import Table
from neve.errors import UnsupportedFeature

WRITES: dict[str, Callable[[Table], Any]] = {
    "append": lambda t: t.append([{"id": 2}]),
    "overwrite": lambda t: t.overwrite([{"id": 2}], where="id < 9"),
    "update": lambda t: t.update().set("id", "3").execute(),
    "delete": lambda t: t.delete().where("id = 3").execute(),
    "merge": lambda t: t.merge([{"id": 2}], "t.id = s.id").when_not_matched_insert_all().execute(),
}


@pytest.fixture(params=["spark.wap.id", "spark.wap.branch"])
def option(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    spark.conf.set(request.param, "audit")
    yield request.param
    spark.conf.unset(request.param)


def test_staged_writes_are_refused(spark_lake: neve.Lake, option: str):
    table = spark_lake.create_table("db.t", "id bigint", properties={"write.wap.enabled": "true"})
    for title, write in WRITES.items():
        with pytest.raises(UnsupportedFeature, match=rf"(?i)cannot stage the {title}.*write.wap.enabled.*{option}"):
            write(table)
    assert table.refresh().iceberg.metadata.current_snapshot_id is None


@pytest.mark.usefixtures("option")
def test_a_table_without_the_property_is_written_as_ever(spark_lake: neve.Lake):
    table = spark_lake.create_table("db.t", "id bigint")
    table.append([{"id": 1}])
    for write in WRITES.values():
        write(table.refresh())
    assert len(table.refresh().iceberg.metadata.snapshots) > len(WRITES)
