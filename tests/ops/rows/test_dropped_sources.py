"""Spark writes to a table whose partition field was dropped, and then the column the field was of.

Version 1 keeps such a field as void in every later spec; the column that it names is in no schema any more.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import neve
from neve import Table

Change = Callable[[Table, SparkSession], object]

CHANGES: dict[str, tuple[Change, dict[int, str]]] = {
    "append": (
        lambda t, spark: t.append(spark.sql("SELECT 4L AS id, 'd' AS name")),
        {1: "a", 2: "b", 3: "c", 4: "d"},
    ),
    "update": (lambda t, _: t.update().set("name", "'x'").where("id = 1").execute(), {1: "x", 2: "b", 3: "c"}),
    "delete": (lambda t, _: t.delete().where("id = 1").execute(), {2: "b", 3: "c"}),
    "merge": (
        lambda t, spark: (
            t.merge(spark.sql("SELECT 3L AS id, 'y' AS name UNION ALL SELECT 4L, 'z'"), "t.id = s.id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        ),
        {1: "a", 2: "b", 3: "y", 4: "z"},
    ),
    "compact": (
        lambda t, _: t.rewrite_data_files().option("rewrite-all", "true").execute(),
        {1: "a", 2: "b", 3: "c"},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("version", [1, 3])
def test_rows_are_written_after_a_field_and_then_its_column_were_dropped(
    tmp_path: Path, spark: SparkSession, version: int, change: str
):
    lake = neve.connect(tmp_path, spark=spark)
    table = lake.create_table("db.t", "id bigint, name string, n int", ["bucket(3, n)"], format_version=version)
    table.append([{"id": 1, "name": "a", "n": 1}, {"id": 2, "name": "b", "n": 2}])
    table.evolve_partitions(add=["truncate(1, name)"], drop=["bucket(3, n)"])
    with table.evolve_schema() as evolution:
        evolution.delete_column("n")
    table.append([{"id": 3, "name": "c"}])

    run, wanted = CHANGES[change]
    run(table, spark)

    rows = table.refresh().to_arrow().to_pylist()
    assert {row["id"]: row["name"] for row in rows} == wanted
    assert table.verify().is_sound
