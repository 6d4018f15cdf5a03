"""Spark reads columns by their ids, but filters files by names: what a name was once must not decide what it skips."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType
from pyspark.sql import SparkSession

import neve
from tests.support.spark_sessions import compiled


def test_a_filter_is_not_taken_to_a_column_nobody_remembers(tmp_path: Path, spark: SparkSession):
    """`n` was dropped and added again, and the schemas that knew the first one are gone."""
    lake = neve.connect(tmp_path, spark=compiled(spark))
    table = lake.create_table("db.t", "id bigint, n bigint", format_version=2)
    table.append([{"id": 1, "n": 5}])
    with table.evolve_schema() as change:
        change.delete_column("n")
    with table.refresh().evolve_schema() as change:
        change.add_column("n", LongType())
    table = table.refresh()
    table.append([{"id": 2, "n": 7}])
    now = table.refresh().context.environment.now_ms() + 1000
    table.expire_snapshots().older_than(now).retain_last(1).clean_expired_metadata().execute()
    assert len(table.refresh().context.metadata.schemas) == 1
    rows = table.refresh().to_spark()
    assert [row.id for row in rows.where("n IS NULL").collect()] == [1]
    assert [row.id for row in rows.where("n = 7").collect()] == [2]


def test_tuples_with_a_name_that_was_used_twice_are_shown(tmp_path: Path, spark: SparkSession):
    lake = neve.connect(tmp_path, spark=spark)
    table = lake.create_table("db.t", "id bigint", format_version=2)
    lake.sql("ALTER TABLE db.t ADD PARTITION FIELD bucket(4, id) AS shard")
    table.refresh().append([{"id": 1}])
    lake.sql("ALTER TABLE db.t DROP PARTITION FIELD shard")
    lake.sql("ALTER TABLE db.t ADD PARTITION FIELD bucket(8, id) AS shard")
    table.refresh().append([{"id": 2}])
    found = table.refresh().scan(columns=["id", "_partition"]).to_spark().collect()
    assert sorted((row.id, sum(v is not None for v in row._partition)) for row in found) == [(1, 1), (2, 1)]


def test_files_in_an_order_stay_so_one_by_one(tmp_path: Path, spark: SparkSession):
    lake = neve.connect(tmp_path, spark=spark)
    by_id = SortOrder(SortField(source_id=1, transform=IdentityTransform()))
    table = lake.create_table("db.t", "id bigint, n int", format_version=2, sort_order=by_id)
    for first in range(8, 0, -1):  # more than there are tasks for files so small
        table.refresh().append([{"id": i, "n": 0} for i in (first, first + 10, first + 20)])
    table.refresh().delete().where("id BETWEEN 11 AND 18").mode("copy-on-write").execute()
    files = table.refresh().scan().plan().files
    assert set(files["sort_order_id"].to_pylist()) == {1}
    for path in files["file_path"].to_pylist():
        ids = spark.read.parquet(path).toArrow()["id"].to_pylist()
        assert ids == sorted(ids)
