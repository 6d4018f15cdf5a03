"""CREATE OR REPLACE TABLE, REPLACE TABLE, CREATE TABLE LIKE, column defaults and TRUNCATE."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

import neve
from neve.catalog import EmbeddedCatalog
from neve.commit.environment import Environment, Phase
from neve.errors import CommitConflict, UnknownName, UserError
from neve.model.metadata import TableMetadata
from neve.ops.write import replace_table
from tests.support.servers import rest_server

ROWS = [{"id": 1, "region": "eu", "v": 10}, {"id": 2, "region": "us", "v": 20}]


@pytest.fixture(params=[1, 2, 3, 4])
def lake(request: pytest.FixtureRequest, spark_lake: neve.Lake) -> neve.Lake:
    """A lake with a table of each format version."""
    schema, version = "id bigint, region string, v int", request.param
    spark_lake.create_table("db.t", schema, ["region"], format_version=version).append(ROWS)
    return spark_lake


@pytest.fixture
def lake_v2(spark_lake: neve.Lake) -> neve.Lake:
    spark_lake.create_table("db.t", "id bigint, region string, v int", ["region"]).append(ROWS)
    return spark_lake


def metadata_of(lake: neve.Lake) -> TableMetadata:
    return lake.table("db.t").context.metadata


def rows(lake: neve.Lake, text: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in lake.sql(text).collect())


def ids(metadata: TableMetadata) -> dict[str, int]:
    return {name: metadata.schema().find_field(name).field_id for name in metadata.schema().column_names}


def test_a_replaced_table_keeps_its_id_its_history_and_the_ids_of_its_columns(lake):
    lake.table("db.t").create_tag("before")
    before = metadata_of(lake)
    replaced = lake.sql(
        "CREATE OR REPLACE TABLE db.t (v int, w string, region string) PARTITIONED BY (truncate(2, w), region) "
        "TBLPROPERTIES ('a' = 'b')"
    )
    after = replaced.context.metadata
    assert (after.table_uuid, after.location, after.format_version) == (
        before.table_uuid,
        before.location,
        before.format_version,
    )
    assert ids(after) == {"v": 3, "w": 4, "region": 2} and after.properties["a"] == "b"
    assert len(after.snapshots) == 1 and after.current_snapshot() is None and set(after.refs) == {"before"}
    fields = {f.name: f.field_id for f in after.spec().fields}
    assert fields == {"w_trunc": 1001, "region": 1000} and len(after.partition_specs) == 2
    assert rows(lake, "SELECT * FROM db.t") == []
    assert rows(lake, "SELECT id, v FROM db.t.tag_before") == [(1, 10), (2, 20)]
    lake.sql("INSERT INTO db.t VALUES (5, 'xyz', 'eu')")
    assert rows(lake, "SELECT * FROM db.t WHERE region = 'eu'") == [(5, "xyz", "eu")]
    assert replaced.verify().is_sound


def test_a_table_is_replaced_by_rows_read_from_itself_in_one_commit(lake):
    before = metadata_of(lake)
    lake.sql("CREATE OR REPLACE TABLE db.t AS SELECT id, upper(region) AS region, v * 2.5D AS v FROM db.t")
    after = metadata_of(lake)
    assert len(after.metadata_log) == len(before.metadata_log) + 1, "one commit"
    assert len(after.snapshots) == 2 and after.current_snapshot().parent_snapshot_id is None
    assert after.spec().is_unpartitioned() or str(after.spec().fields[0].transform) == "void"
    assert ids(after) == {"id": 1, "region": 2, "v": 4}, "a double is no int"
    assert rows(lake, "SELECT * FROM db.t") == [(1, "EU", 25.0), (2, "US", 50.0)]
    assert rows(lake, f"SELECT * FROM db.t VERSION AS OF {before.current_snapshot_id}") == [
        (1, "eu", 10),
        (2, "us", 20),
    ]
    assert lake.table("db.t").verify().is_sound
    lake.sql("REPLACE TABLE db.t PARTITIONED BY (region) AS SELECT * FROM db.t WHERE id = 1")
    assert rows(lake, "SELECT id, region FROM db.t") == [(1, "EU")]
    assert lake.table("db.t").verify().is_sound


def test_a_replacement_without_rows_is_an_empty_table(lake_v2):
    lake_v2.sql("CREATE OR REPLACE TABLE db.t AS SELECT id, 'x' AS w FROM db.t WHERE id > 9")
    assert lake_v2.table("db.t").schema.column_names == ["id", "w"]
    assert rows(lake_v2, "SELECT * FROM db.t") == []


def test_a_missing_table_is_created_unless_it_must_exist(spark_lake):
    assert spark_lake.sql("CREATE OR REPLACE TABLE db.n AS SELECT 1 AS one").scan().count() == 1
    assert spark_lake.sql("CREATE OR REPLACE TABLE db.m (id bigint)").schema.column_names == ["id"]
    with pytest.raises(UnknownName, match=r"Unknown table 'db\.o'"):
        spark_lake.sql("REPLACE TABLE db.o (id bigint)")


def test_the_same_definition_again_is_no_new_one(lake_v2):
    first = lake_v2.sql("REPLACE TABLE db.t (id bigint, region string, v int) PARTITIONED BY (region)").context.metadata
    assert (len(first.schemas), len(first.partition_specs), first.current_snapshot_id) == (1, 1, None)
    second = lake_v2.sql("REPLACE TABLE db.t (id bigint, region string, v int) PARTITIONED BY (region)")
    assert second.iceberg.metadata_location == lake_v2.table("db.t").iceberg.metadata_location
    assert second.context.metadata == first


def test_a_replacement_may_upgrade_but_not_go_back(lake_v2):
    text = "CREATE OR REPLACE TABLE db.t (id bigint) TBLPROPERTIES ('format-version' = '{}')"
    assert lake_v2.sql(text.format(3)).context.metadata.format_version == 3
    with pytest.raises(UserError, match="from format version 3 back to 2"):
        lake_v2.sql(text.format(2))


def test_a_replacement_that_fails_leaves_the_table_and_no_files(lake_v2, tmp_path):
    before, files = metadata_of(lake_v2), set(tmp_path.rglob("*.parquet"))
    with pytest.raises(neve.NeveError, match="no such luck"):
        lake_v2.sql(
            "CREATE OR REPLACE TABLE db.t AS SELECT id, CAST(raise_error('no such luck') AS int) AS x FROM db.t"
        )
    lake_v2.table("db.t").evolve_partitions(add=["bucket(4, id) AS shard"])
    with pytest.raises(UserError, match="has a field of that name"):
        lake_v2.sql("CREATE OR REPLACE TABLE db.t (id bigint, shard string)")
    assert metadata_of(lake_v2).current_snapshot_id == before.current_snapshot_id
    assert set(tmp_path.rglob("*.parquet")) == files


@pytest.mark.parametrize(
    ("query", "change", "message"),
    [
        ("SELECT id FROM db.t", "INSERT INTO db.t VALUES (3, 'x', 30)", "from which the new ones were read"),
        ("SELECT 7L AS id, 8 AS w", "INSERT INTO db.t VALUES (3, 'x', 30)", None),
        ("SELECT 7L AS id, 8 AS w", "ALTER TABLE db.t ADD COLUMN x int", "columns or partition fields"),
    ],
)
def test_a_concurrent_writer_is_noticed(lake_v2, monkeypatch, tmp_path, query, change, message):
    of_others = set(tmp_path.rglob("*.parquet"))
    write_rows = replace_table.write_rows

    def write_late(rows: Any, target: Any) -> Any:
        written = write_rows(rows, target)
        own = {*tmp_path.rglob("*.parquet")} - of_others
        lake_v2.sql(change)
        of_others.update({*tmp_path.rglob("*.parquet")} - own)
        return written

    monkeypatch.setattr(replace_table, "write_rows", write_late)
    if message is None:
        lake_v2.sql(f"CREATE OR REPLACE TABLE db.t AS {query}")
        assert rows(lake_v2, "SELECT * FROM db.t") == [(7, 8)]
        assert len(metadata_of(lake_v2).snapshots) == 3
        return
    with pytest.raises(CommitConflict, match=message):
        lake_v2.sql(f"CREATE OR REPLACE TABLE db.t AS {query}")
    assert rows(lake_v2, "SELECT count(*) FROM db.t WHERE region IS NOT NULL")[0][0] >= 2
    assert {*tmp_path.rglob("*.parquet")} == of_others, "the files written for the replacement are gone"


@pytest.mark.parametrize("reads_itself", [False, True])
def test_a_lost_race_is_run_again_or_noticed(lake, lake_dir, spark, reads_itself):
    """Another writer commits between the checks and the swap."""

    def observe(phase: Phase, attempt: int) -> None:
        if (phase, attempt) == (Phase.SWAP, 1):
            lake.table("db.t").append([{"id": 3, "region": "eu"}])

    environment = Environment(sleep=lambda seconds: None, observe=observe)
    racing = neve.connect(lake_dir, spark=spark, environment=environment)
    if reads_itself:
        with pytest.raises(CommitConflict, match="from which the new ones were read"):
            racing.sql("CREATE OR REPLACE TABLE db.t AS SELECT id FROM db.t")
        assert rows(lake, "SELECT id FROM db.t") == [(1,), (2,), (3,)]
    else:
        racing.sql("CREATE OR REPLACE TABLE db.t AS SELECT 7L AS id, 8 AS w")
        assert rows(lake, "SELECT * FROM db.t") == [(7, 8)] and len(metadata_of(lake).snapshots) == 3
    assert lake.table("db.t").verify().is_sound


def test_a_rest_catalog_replaces_too(spark: SparkSession, tmp_path):
    with rest_server(EmbeddedCatalog(tmp_path / "lake")) as server:
        lake = neve.connect(catalog="rest", type="rest", uri=server.uri, spark=spark)
        lake.create_table("db.t", "id bigint, region string, v int", ["region"]).append(ROWS)
        lake.sql("CREATE OR REPLACE TABLE db.t PARTITIONED BY (bucket(2, id)) AS SELECT id, v FROM db.t")
        assert rows(lake, "SELECT * FROM db.t") == [(1, 10), (2, 20)]
        lake.sql("REPLACE TABLE db.t (id bigint)")
        assert rows(lake, "SELECT * FROM db.t") == []


def test_a_table_like_another_has_its_definition_but_not_its_rows(lake):
    source = lake.table("db.t").set_sort_order("id DESC")
    lake.sql("ALTER TABLE db.t SET TBLPROPERTIES ('comment' = 'sold', 'write.delete.mode' = 'merge-on-read')")
    made = lake.sql("CREATE TABLE db.u LIKE db.t TBLPROPERTIES ('x' = 'y')")
    metadata, like = source.refresh().context.metadata, made.context.metadata
    assert like.schema().fields == metadata.schema().fields and like.spec() == metadata.spec()
    assert like.sort_order().fields == metadata.sort_order().fields
    assert (like.format_version, like.properties) == (metadata.format_version, {"comment": "sold", "x": "y"})
    assert like.location != metadata.location and made.scan().count() == 0
    assert lake.sql("CREATE TABLE IF NOT EXISTS db.u LIKE db.t").name == "db.u"


def test_columns_are_created_with_defaults(spark_lake):
    text = "CREATE TABLE db.d (id bigint, n int DEFAULT 5 COMMENT 'some', s string DEFAULT 'a') "
    spark_lake.sql(f"{text} TBLPROPERTIES ('format-version' = '3')")
    spark_lake.sql("INSERT INTO db.d (id) VALUES (1)")
    assert rows(spark_lake, "SELECT * FROM db.d") == [(1, 5, "a")]
    with pytest.raises(UserError, match="default in a table of format version 2"):
        spark_lake.sql(text.replace("db.d", "db.e"))
    with pytest.raises(UserError, match="Cannot take 'x' as a default"):
        spark_lake.sql("CREATE TABLE db.e (n int DEFAULT 'x') TBLPROPERTIES ('format-version' = '3')")


def test_truncate_drops_all_rows_without_reading_them(lake):
    done = lake.sql("TRUNCATE TABLE db.t")
    assert (done.rows_deleted, done.files_removed) == (2, 2)
    assert rows(lake, "SELECT * FROM db.t") == [] and len(metadata_of(lake).snapshots) == 2
