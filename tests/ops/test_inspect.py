"""What metadata tables show, and how little they read for it; `tests/peers` compares them with those of Iceberg."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType
from pyspark.sql import SparkSession

import neve
from neve.commit.actions import RowDelta
from neve.ops.inspect import position_deletes
from neve.tree import read
from neve.tree.entries import Content
from neve.tree.v4 import leaf
from tests.support.spark_oracle import multiset
from tests.support.tables import commit_to, delete_rows, stored


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each manifest was opened."""
    counts: Counter[str] = Counter()

    def count_calls(module: Any, name: str) -> None:
        original = getattr(module, name)

        def spy(io: Any, manifest: Any, *rest: Any) -> Any:
            counts[manifest.file] += 1
            return original(io, manifest, *rest)

        monkeypatch.setattr(module, name, spy)

    count_calls(read, "_open_manifest")
    count_calls(leaf, "open_leaf")
    return counts


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_tables_of_all_snapshots_read_a_manifest_once(tmp_path: Path, opened: Counter[str], version: int):
    table = neve.connect(tmp_path).create_table("db.t", "id bigint", format_version=version)
    for i in range(5):
        table.append([{"id": i}])
    opened.clear()
    files = table.refresh().inspect.all_files()
    assert set(files["file_path"].to_pylist()) == set(table.inspect.files()["file_path"].to_pylist())
    opened.clear()
    assert table.inspect.all_data_files().num_rows == 5
    assert set(opened.values()) == {1} and len(opened) == 5
    assert len(table.inspect.all_manifests()) == 1 + 2 + 3 + 4 + 5


def test_a_leaf_that_hides_more_and_more_files_is_read_once(tmp_path: Path, opened: Counter[str]):
    properties = {"neve.manifest-vectors.enabled": "true"}
    table = neve.connect(tmp_path).create_table(
        "db.t", "id bigint, region string", ["region"], format_version=4, properties=properties
    )
    table.append([{"id": i, "region": f"r{i}"} for i in range(8)])
    for i in range(3):
        table.overwrite([{"id": 10 + i, "region": f"r{i}"}], where=f"region = 'r{i}'")
    paths = {s: set(table.inspect.files(s)["file_path"].to_pylist()) for s in snapshot_ids(table)}
    opened.clear()
    everything = table.inspect.all_data_files()["file_path"].to_pylist()
    assert set(everything) == set.union(*paths.values()) and len(everything) == 11
    assert set(opened.values()) == {1}
    first, *_, last = snapshot_ids(table)
    table.expire_snapshots().snapshot_ids(first).execute()
    left = set.union(*(paths[s] for s in snapshot_ids(table)))
    assert set(table.inspect.all_data_files()["file_path"].to_pylist()) == left != paths[last]


def snapshot_ids(table: neve.Table) -> list[int]:
    return table.refresh().inspect.snapshots()["snapshot_id"].to_pylist()


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_partition_says_when_it_last_changed(tmp_path: Path, version: int):
    table = neve.connect(tmp_path).create_table("db.t", "id bigint, region string", ["region"], format_version=version)
    table.append([{"id": 1, "region": "eu"}, {"id": 2, "region": "us"}])
    later = table.append([{"id": 3, "region": "us"}]).snapshot_id
    times = {s["snapshot_id"]: s["committed_at"] for s in table.refresh().inspect.snapshots().to_pylist()}
    (first,) = times.keys() - {later}
    rows = table.inspect.partitions().to_pylist()
    found = [(r["partition"]["region"], r["last_updated_snapshot_id"], r["last_updated_at"]) for r in rows]
    assert found == [("eu", first, times[first]), ("us", later, times[later])]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_position_deletes_say_which_rows_are_deleted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
):
    lake = neve.connect(tmp_path, spark=spark)
    table = lake.create_table("db.t", "id bigint, region string", ["region"], format_version=version)
    table.append([{"id": i, "region": ("eu", "us")[i % 2]} for i in range(10)])
    places = table.scan(columns=["id", "_file", "_pos"]).to_arrow(engine="arrow").to_pylist()
    before = table.delete().where("id IN (2, 3)").mode("merge-on-read").execute().snapshot_id
    table.delete().where("id = 5").mode("merge-on-read").execute()
    found = table.refresh().inspect.position_deletes()
    expected = {(p["_file"], p["_pos"], ("eu", "us")[p["id"] % 2]) for p in places if p["id"] in (2, 3, 5)}
    rows = found.to_pylist()
    assert {(r["file_path"], r["pos"], r["partition"]["region"]) for r in rows} == expected
    assert len(rows) == 3 and {r["spec_id"] for r in rows} == {0} and {r["row"] for r in rows} == {None}
    deletes = table.inspect.delete_files()
    assert {r["delete_file_path"] for r in rows} == set(deletes["file_path"].to_pylist())
    if version > 2:
        names = ("file_path", "content_offset", "content_size_in_bytes")
        vectors = {tuple(row.values()) for row in deletes.select(names).to_pylist()}
        assert {(r["delete_file_path"], r["content_offset"], r["content_size_in_bytes"]) for r in rows} == vectors
    assert table.inspect.position_deletes(before).num_rows == 2
    monkeypatch.setattr(position_deletes, "_ROWS_IN_PROCESS", 0)
    by_job = lake.sql("SELECT * FROM db.t.position_deletes").toArrow()
    assert by_job.column_names == found.column_names and multiset(by_job) == multiset(found)


def test_a_position_delete_file_may_hold_the_deleted_rows(tmp_path: Path):
    table = neve.connect(tmp_path).create_table("db.t", "id bigint, name string", format_version=2)
    table.append([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    path = table.refresh().inspect.files()["file_path"][0].as_py()
    ids = {"file_path": 2147483546, "pos": 2147483545, "row": 2147483544}
    row = pa.struct([with_id(pa.field("id", pa.int64()), 1), with_id(pa.field("name", pa.string()), 2)])
    fields = [pa.field("file_path", pa.string()), pa.field("pos", pa.int64()), pa.field("row", row)]
    rows = pa.table(
        [[path], [1], pa.array([{"id": 2, "name": "b"}], row)], pa.schema([with_id(f, ids[f.name]) for f in fields])
    )
    commit_to(table, RowDelta(added_deletes=stored(table, rows, Content.POSITION_DELETES)))
    with table.refresh().evolve_schema() as change:
        change.rename_column("name", "label")
    [deleted] = table.refresh().inspect.position_deletes().to_pylist()
    assert (deleted["pos"], deleted["row"]) == (1, {"id": 2, "label": "b"})
    assert "partition" not in deleted and "content_offset" not in deleted


def with_id(field: pa.Field, field_id: int) -> pa.Field:
    return field.with_metadata({"PARQUET:field_id": str(field_id)})


def test_readable_metrics_have_the_types_and_names_of_the_columns(spark_lake: neve.Lake):
    table = spark_lake.create_table("db.t", "id int, key uuid, s struct<b: double>, t array<date>", ["key"])
    key = UUID(int=7)
    table.append(pa.table({"id": [2, 1], "key": [key.bytes] * 2, "s": [{"b": 0.5}, None], "t": [[], None]}))
    with table.refresh().evolve_schema() as change:
        change.update_column("id", LongType())
    [file] = table.refresh().inspect.files().to_pylist()
    metrics = file["readable_metrics"]
    assert list(metrics) == ["id", "key", "s.b", "t.element"]
    assert (metrics["id"]["lower_bound"], metrics["id"]["upper_bound"], metrics["id"]["value_count"]) == (1, 2, 2)
    assert (metrics["s.b"]["lower_bound"], metrics["s.b"]["null_value_count"]) == (0.5, 1)
    assert metrics["key"]["upper_bound"] == file["partition"]["key"] == key.bytes
    by_sql = spark_lake.sql("SELECT readable_metrics.key.upper_bound AS high, partition.key FROM db.t.files").first()
    assert by_sql is not None and tuple(by_sql) == (str(key), str(key))


def test_readable_metrics_of_many_files_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table = neve.connect(tmp_path).create_table("db.t", "id bigint, name string", ["bucket(16, id)"])
    table.append([{"id": i, "name": None if i % 2 else f"n{i}"} for i in range(40)])
    expected = table.refresh().inspect.files()
    monkeypatch.setattr("neve.ops.inspect.readable_metrics._FILES_AT_ONCE", 3)
    assert table.inspect.files().to_pylist() == expected.to_pylist()


def test_a_vector_has_no_rows_even_if_columns_are_required(tmp_path: Path):
    nested = StructType(NestedField(3, "x", StringType(), required=True))
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "s", nested))
    table = neve.connect(tmp_path).create_table("db.t", schema, format_version=3)
    table.append([{"id": 1, "s": {"x": "a"}}, {"id": 2, "s": None}])
    delete_rows(table.refresh(), 1)
    assert table.refresh().inspect.position_deletes()["row"].to_pylist() == [None]
