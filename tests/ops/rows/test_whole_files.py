"""Rows deleted with whole files, by metadata alone: those rows and no others, and what is told of them is true."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import IntegerType
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import neve
from neve import Table
from neve.commit.environment import Environment, Phase
from neve.errors import CommitConflict
from neve.ops.events import Event, subscribe
from tests.support.tables import ids_of, local
from tests.support.two_writers import Interruption

ROWS = [{"id": i, "region": region} for i, region in enumerate(["eu", "us", "eu", "asia"])]


def made(folder: Path, spark: SparkSession, environment: Environment | None = None, version: int = 2) -> Table:
    lake = neve.connect(folder, spark=spark, environment=environment or Environment())
    table = lake.create_table("db.t", "id bigint, region string", ["region"], format_version=version)
    table.append(ROWS)
    return table


@pytest.mark.parametrize(
    "where",
    [
        "region = 'eu' OR (1 = 0 AND id IN (SELECT id FROM db.t))",
        "region = 'eu' AND (true OR EXISTS (SELECT 1 FROM db.t))",
        "region = 'eu' AND id IN (SELECT id FROM db.t)",
    ],
)
@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_a_subquery_on_the_table_itself_deletes_no_more(
    tmp_path: Path, spark: SparkSession, where: str, isolation: str
):
    """That it reads the whole table says which other writers it minds, not which rows go."""
    table = made(tmp_path, spark)
    assert table.delete().where(where).isolation(isolation).execute().rows_deleted == 2
    assert ids_of(table.refresh()) == [1, 3]


@pytest.mark.parametrize("unit", ["years", "months", "days"])
@pytest.mark.parametrize("kind", ["date", "timestamp"])
def test_a_time_far_from_1970_is_not_null(tmp_path: Path, unit: str, kind: str):
    last = 2**31 - 1 if kind == "date" else 2**63 - 1
    integer, time = (pa.int32(), pa.date32()) if kind == "date" else (pa.int64(), pa.timestamp("us", "UTC"))
    table = neve.connect(tmp_path).create_table("db.t", f"id bigint, at {kind}", [f"{unit}(at)"])
    times = pa.array([last, -last - 1, 0, None], integer).cast(time)
    table.append(pa.table({"id": range(4), "at": times}))
    conditions = {"at > date '2020-01-01'": [0], "at < date '1960-01-01'": [1], "at IS NULL": [3]}
    assert {where: ids_of(table.refresh(), where) for where in conditions} == conditions
    assert table.delete().where("at IS NULL").execute().rows_deleted == 1
    assert ids_of(table.refresh()) == [0, 1, 2]


def test_files_that_came_meanwhile_are_counted_too(tmp_path: Path, spark: SparkSession):
    table = made(tmp_path, spark, meanwhile(lambda: other(tmp_path).append([{"id": 9, "region": "eu"}])))
    statement = table.delete().where("region = 'eu'")
    assert "conflicts  none" in statement.explain()
    result = statement.execute()
    assert (result.rows_deleted, result.files_removed, sum(result.files_removed_by_spec.values())) == (3, 2, 2)
    assert ids_of(table.refresh()) == [1, 3]


def test_a_partition_whose_deletes_are_lost_can_be_deleted(tmp_path: Path, spark: SparkSession):
    """What was deleted before can no longer be told from what goes now; the rows are gone all the same."""
    table = made(tmp_path, spark)
    table.delete().where("id = 0").mode("merge-on-read").execute()
    [lost] = [f["file_path"] for f in table.inspect.files().to_pylist() if f["content"] == 1]
    local(lost).unlink()
    assert table.delete().where("region = 'eu'").execute().rows_deleted == 2
    assert ids_of(table.refresh()) == [1, 3]


def test_a_merge_whose_columns_another_writer_brings_is_run_again(tmp_path: Path, spark: SparkSession):
    table = made(tmp_path, spark, version=3)
    source = spark.sql("SELECT 1L AS id, 'us' AS region, 7 AS extra")
    merge = table.merge(source, on="t.id = s.id").with_schema_evolution().when_matched_update_all()
    with subscribe(once("write", lambda: bring(other(tmp_path), "extra"))):
        assert merge.mode("merge-on-read").execute().reruns == 1
    assert table.refresh().scan("id = 1").to_arrow(engine="arrow")["extra"].to_pylist() == [7]
    again = table.merge(source.withColumn("more", F.lit(1)), on="t.id = s.id").with_schema_evolution()
    again = again.when_matched_update_all().mode("merge-on-read").reruns(0)
    with (
        subscribe(once("write", lambda: bring(other(tmp_path), "more"))),
        pytest.raises(CommitConflict, match=r"by a concurrent writer.*Nothing was changed"),
    ):
        again.execute()
    assert table.refresh().verify().is_sound


def bring(table: Table, name: str) -> None:
    with table.evolve_schema() as change:
        change.add_column(name, IntegerType())


def once(step: str, act: Callable[[], object]) -> Callable[[Event], object]:
    """Something another writer does when a step begins for the first time."""
    waiting = [act]
    return lambda event: event.name == step and waiting and waiting.pop()()  # type: ignore[union-attr]


def other(folder: Path) -> Table:
    return neve.connect(folder).table("db.t")


def meanwhile(act: Callable[[], object]) -> Environment:
    """Something another writer does right before the second commit of a table finds it."""
    return Interruption([None, act], Phase.REFRESH).environment
