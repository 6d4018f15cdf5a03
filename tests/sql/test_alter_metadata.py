"""ALTER TABLE: sort orders, locations, identifier fields, and branches and tags with retention."""

from __future__ import annotations

import pytest

import neve
from neve.errors import UnknownName, UnsupportedFeature, UserError

DAY = 86_400_000


@pytest.fixture
def lake(spark_lake: neve.Lake) -> neve.Lake:
    spark_lake.create_table("db.t", "id bigint not null, region string, v int").append([{"id": 1}])
    return spark_lake


def order_and_mode(table: neve.Table) -> tuple[list[str], str | None]:
    metadata = table.context.metadata
    return [str(f) for f in metadata.sort_order().fields], metadata.properties.get("write.distribution-mode")


def test_the_sort_order_and_the_distribution_change_together(lake):
    by_id, by_bucket = "1 ASC NULLS FIRST", "bucket[4](1) DESC NULLS FIRST"
    steps = {
        "LOCALLY ORDERED BY id": ([by_id], None),
        "ORDERED BY bucket(4, id) DESC NULLS FIRST, id": ([by_bucket, by_id], "range"),
        "LOCALLY ORDERED BY (id)": ([by_id], "range"),
        "DISTRIBUTED BY PARTITION LOCALLY ORDERED BY id": ([by_id], "hash"),
        "UNORDERED": ([], "none"),
        "DISTRIBUTED BY PARTITION": ([], "hash"),
    }
    for text, expected in steps.items():
        assert order_and_mode(lake.sql(f"ALTER TABLE db.t WRITE {text}")) == expected, text
    assert len(lake.table("db.t").context.metadata.sort_orders) == 3, "an order that was there before is used again"
    with pytest.raises(UnknownName, match="Unknown column 'nope'"):
        lake.sql("ALTER TABLE db.t WRITE ORDERED BY nope")
    with pytest.raises(UserError, match=r"write\.distribution-mode"):
        lake.table("db.t").set_sort_order("id", distribution_mode="best")


def test_new_files_are_written_to_a_new_location(lake, tmp_path):
    old = {file.as_py() for file in lake.table("db.t").inspect.files()["file_path"]}
    moved = lake.sql(f"ALTER TABLE db.t SET LOCATION 'file://{tmp_path}/moved/t/'")
    assert moved.context.metadata.location == f"file://{tmp_path}/moved/t"
    moved.append([{"id": 2}])
    files = {file.as_py() for file in moved.inspect.files()["file_path"]}
    assert old < files and all("/moved/t/data/" in file for file in files - old)
    assert "/moved/t/metadata/" in moved.iceberg.metadata_location
    assert sorted(moved.to_arrow()["id"].to_pylist()) == [1, 2] and moved.verify().is_sound
    with pytest.raises(UserError, match="whole disk"):
        lake.sql("ALTER TABLE db.t SET LOCATION 'file:///'")
    moved.upgrade(4)
    with pytest.raises(UnsupportedFeature, match="relative to its location"):
        lake.sql(f"ALTER TABLE db.t SET LOCATION 'file://{tmp_path}/again'")


def test_identifier_fields_are_dropped(lake):
    lake.sql("ALTER TABLE db.t SET IDENTIFIER FIELDS id")
    with pytest.raises(UnknownName, match=r"Unknown identifier field 'v' in table db\.t"):
        lake.sql("ALTER TABLE db.t DROP IDENTIFIER FIELDS v")
    assert lake.sql("ALTER TABLE db.t DROP IDENTIFIER FIELDS ID").schema.identifier_field_ids == []


def retention(table: neve.Table, name: str) -> tuple[int | None, ...]:
    ref = table.context.metadata.refs[name]
    return ref.max_ref_age_ms, ref.max_snapshot_age_ms, ref.min_snapshots_to_keep


def test_branches_and_tags_have_a_retention_and_are_replaced(lake):
    first = lake.table("db.t").context.head().snapshot_id
    lake.sql("INSERT INTO db.t VALUES (2, 'eu', 20)")
    created = lake.sql("ALTER TABLE db.t CREATE BRANCH audit RETAIN 7 DAYS WITH SNAPSHOT RETENTION 2 SNAPSHOTS 1 DAYS")
    assert retention(created, "audit") == (7 * DAY, DAY, 2)
    moved = lake.sql(f"ALTER TABLE db.t REPLACE BRANCH audit AS OF VERSION {first} RETAIN 8 DAYS")
    assert moved.context.metadata.refs["audit"].snapshot_id == first
    assert retention(moved, "audit") == (8 * DAY, DAY, 2), "what is not given stays"
    assert retention(lake.sql("ALTER TABLE db.t CREATE OR REPLACE TAG v1 RETAIN 2 HOURS"), "v1")[0] == DAY // 12
    again = lake.sql(f"ALTER TABLE db.t CREATE OR REPLACE TAG v1 AS OF VERSION {first}")
    assert again.context.metadata.refs["v1"].snapshot_id == first
    for text, message in {
        "REPLACE TAG v2": "Unknown tag 'v2' in table db.t",
        "REPLACE TAG audit": "'audit' of table db.t by a tag: it is a branch",
        "CREATE BRANCH audit": "already has a branch 'audit'",
        "CREATE TAG v3 RETAIN 0 DAYS": "must be a whole number above 0",
    }.items():
        with pytest.raises(UserError, match=message):
            lake.sql(f"ALTER TABLE db.t {text}")


def test_the_python_api_takes_the_retention_of_a_branch(lake):
    table = lake.table("db.t").create_branch("audit", max_ref_age_ms=DAY, min_snapshots_to_keep=3)
    assert retention(table, "audit") == (DAY, None, 3)
    assert retention(table.create_branch("audit", replace=True, max_snapshot_age_ms=5), "audit") == (DAY, 5, 3)
    assert retention(table.create_tag("v1", max_ref_age_ms=7), "v1") == (7, None, None)
    location = table.iceberg.metadata_location
    assert table.create_tag("v1", replace=True).iceberg.metadata_location == location, "nothing has changed"
