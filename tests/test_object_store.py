"""A table in an object store that Spark has no connector for: every byte goes through PyIceberg's FileIO."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import neve
from tests.support.servers import ObjectStore


@pytest.fixture(scope="module")
def lake(object_store: ObjectStore, spark, tmp_path_factory) -> neve.Lake:
    folder: Path = tmp_path_factory.mktemp("catalog")
    settings = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": "s3://lake/warehouse", **object_store.properties}
    catalog = SqlCatalog("remote", **settings)
    catalog.create_tables()
    return neve.connect(catalog=catalog, spark=spark)


def test_a_table_lives_in_an_object_store(lake: neve.Lake, object_store: ObjectStore, spark):
    table = lake.create_table("db.events", "id bigint, region string", partition_by=["region"], format_version=3)
    table.append(pa.table({"id": [1, 2, 3], "region": ["eu", "us", None]}))
    table.evolve_partitions(add=["bucket(2, id)"], drop=["region"])
    frame = spark.range(10, 20).selectExpr("id", "if(id % 2 = 0, 'eu', 'us') AS region")
    written = table.append(frame)
    assert written.rows_added == 10
    assert len(object_store.objects("warehouse/db/events/data")) == 3 + written.files_added

    expected = {1: "eu", 2: "us", 3: None} | {i: "eu" if i % 2 == 0 else "us" for i in range(10, 20)}
    rows = table.scan().to_arrow(engine="spark")
    assert dict(zip(rows["id"].to_pylist(), rows["region"].to_pylist(), strict=True)) == expected
    chosen = table.scan("region = 'eu' AND id > 1", columns=["id"]).to_spark()
    assert sorted(r.id for r in chosen.collect()) == [10, 12, 14, 16, 18]
    assert table.verify().is_sound, str(table.verify())


def test_a_failed_write_leaves_no_object_behind(lake: neve.Lake, object_store: ObjectStore, spark):
    table = lake.create_table("db.strict", "id bigint not null, region string")
    before = object_store.objects("warehouse/db/strict")
    with pytest.raises(neve.UserError, match="id"):
        table.append(spark.range(5).selectExpr("if(id = 3, null, id) AS id", "'eu' AS region"))
    assert object_store.objects("warehouse/db/strict") == before
    assert table.scan().count() == 0


def test_credentials_stay_out_of_the_table(lake: neve.Lake, object_store: ObjectStore):
    table = lake.table("db.events")
    secret = object_store.properties["s3.secret-access-key"]
    assert secret == "test"
    assert "secret-access-key" not in repr(table) + repr(table.context.facts)
    text = table.context.io.new_input(table.context.iceberg.metadata_location).open().read().decode()
    assert "access-key" not in text
