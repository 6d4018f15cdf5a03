"""Statistics of a snapshot: distinct values of its columns in a Puffin file, counts of partitions in a Parquet file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasketches
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import neve
from neve.errors import CommitConflict, UnknownName, UserError
from neve.io.puffin import read_footer
from neve.io.theta import ThetaSketch
from neve.ops.maintenance import compute_table_stats
from neve.ops.metadata import statistics_files as statistics_step
from neve.run.column_sketches import sketch_columns
from neve.run.spark.column_sketches import sketch_columns_on_spark
from tests.support.copied_tables import evolved
from tests.support.coverage import on_versions
from tests.support.tables import local

VERSIONS = on_versions(1, 2, 3, 4)


def statistics_files(table: neve.Table) -> set[str]:
    folder = local(table.refresh().context.metadata.location) / "metadata"
    return {p.name for p in folder.iterdir() if p.suffix in {".stats", ".parquet"} and "stats" in p.name}


@VERSIONS
def test_distinct_values_of_a_table_with_deletes(lake: neve.Lake, version: int):
    t = evolved(lake, version)
    left = t.scan().to_arrow(engine="arrow")
    result = t.compute_table_stats()
    assert result.distinct_values == {name: len(set(left[name].to_pylist())) for name in left.column_names}
    assert result.summary == "distinct values of 2 columns estimated" and result.seconds > 0
    file = t.refresh().context.metadata.statistics[0]
    assert (file.snapshot_id, file.statistics_path) == (t.context.snapshot().snapshot_id, result.path)
    assert [(b.fields, b.properties) for b in file.blob_metadata] == [
        ([1], {"ndv": f"{len(left)}"}),
        ([2], {"ndv": "2"}),
    ]
    assert t.verify().findings == ()


def test_the_file_is_puffin_with_sketches_that_datasketches_reads(lake: neve.Lake):
    t = evolved(lake, 3)
    path = t.compute_table_stats("id").path
    [file] = t.refresh().context.metadata.statistics
    footer = read_footer(t.context.io, path)
    data = local(path).read_bytes()
    assert len(data) == file.file_size_in_bytes and data[-file.file_footer_size_in_bytes :][:4] == b"PFA1"
    [blob] = footer.blobs
    assert (blob.type, blob.fields, blob.compression_codec) == ("apache-datasketches-theta-v1", (1,), "zstd")
    assert (blob.snapshot_id, blob.sequence_number) == (file.snapshot_id, t.context.snapshot().sequence_number)
    packed = pa.BufferReader(data[blob.offset : blob.offset + blob.length])
    sketch = datasketches.compact_theta_sketch.deserialize(pa.CompressedInputStream(packed, "zstd").read())
    expected = datasketches.update_theta_sketch(12)
    for row in t.scan().to_arrow(engine="arrow").to_pylist():
        expected.update(row["id"])
    assert sorted(sketch) == sorted(expected)
    assert footer.properties["created-by"].startswith("neve ")


def test_an_older_snapshot_and_columns_of_structs_by_any_case(lake: neve.Lake):
    t = lake.create_table("db.t", "id bigint, place struct<city: string, zip: int>, tags array<int>")
    t.append([{"id": i, "place": {"city": "ab"[i % 2], "zip": i % 3} if i else None} for i in range(5)])
    first = t.refresh().context.snapshot()
    t.append([{"id": 100}])
    result = t.compute_table_stats("PLACE.City", "place.zip", "id", snapshot_id=first.snapshot_id)
    assert result.distinct_values == {"place.city": 2, "place.zip": 3, "id": 5}
    assert t.compute_table_stats().distinct_values == {"id": 6}, "without structs and lists"
    assert [s.snapshot_id for s in t.refresh().context.metadata.statistics] == [
        first.snapshot_id,
        t.context.snapshot().snapshot_id,
    ]
    t.compute_table_stats("place.zip", snapshot_id=first.snapshot_id)
    assert len(t.refresh().context.metadata.statistics) == 2, "new statistics of a snapshot replace the old"


def test_spark_and_this_process_make_the_same_sketches(lake_dir: Path, spark: Any, monkeypatch: pytest.MonkeyPatch):
    lake = neve.connect(lake_dir, spark=spark)
    t = lake.create_table("db.t", "id bigint, price decimal(9, 2), at timestamp, note string, deep struct<raw: binary>")
    t.append(spark.range(20_000).selectExpr(
        "id", "cast(id % 900 / 100 AS decimal(9, 2)) AS price", "timestamp_seconds(id % 50) AS at",
        "if(id % 3 = 0, null, concat('n', id)) AS note", "named_struct('raw', encode(id % 7, 'utf-8')) AS deep",
    ))  # fmt: skip
    names = ("id", "price", "at", "note", "deep.raw")
    on_spark = sketch_columns_on_spark(t.scan(columns=names).to_spark().repartition(3), names)
    here = sketch_columns(t.scan(columns=names).to_batches("arrow"), names)
    assert [s.to_bytes() for s in on_spark] == [s.to_bytes() for s in here]
    exact = (20_000, 900, 50, 13_333, 7)
    assert [abs(s.estimate / n - 1) < 0.05 for s, n in zip(here, exact, strict=True)] == [True] * 5
    monkeypatch.setattr(compute_table_stats, "_LOCAL_BYTES", 0)
    verb = compute_table_stats.ComputeTableStats(t.refresh().context)
    assert verb.plan().reads_with_spark and "with Spark" in verb.plan().explain()
    assert verb.execute().distinct_values["id"] == round(here[0].estimate)


@VERSIONS
def test_partitions_are_described_by_spec(lake: neve.Lake, version: int):
    t = evolved(lake, version)
    result = t.compute_partition_stats()
    rows = pq.read_table(local(result.path)).to_pylist()
    assert len(rows) == result.partitions and result.summary == f"{len(rows)} partitions described"
    data = [f for f in t.refresh().inspect.files().to_pylist() if f["content"] == 0]
    key = lambda r: (r["spec_id"], *r["partition"].values())  # noqa: E731
    files = Counter(map(key, data))
    count = Counter()
    for f in data:
        count[key(f)] += f["record_count"]
    assert {key(r): r["data_file_count"] for r in rows} == files
    assert {key(r): r["data_record_count"] for r in rows} == count
    deletes = [f for f in t.inspect.files().to_pylist() if f["content"] == 1]
    assert ("dv_count" in rows[0]) == (version > 2)
    in_files = [r["position_delete_file_count"] for r in rows]
    vectors = [r.get("dv_count", 0) for r in rows]
    assert (sum(vectors), sum(in_files)) == ((len(deletes), 0) if version > 2 else (0, len(deletes)))
    assert sum(r["position_delete_record_count"] for r in rows) == sum(f["record_count"] for f in deletes)
    known = {s.snapshot_id: s.timestamp_ms for s in t.context.metadata.snapshots}
    assert all(known[r["last_updated_snapshot_id"]] == r["last_updated_at"] for r in rows)
    [file] = t.context.metadata.partition_statistics
    assert (file.statistics_path, file.file_size_in_bytes) == (result.path, local(result.path).stat().st_size)


def test_columns_of_partition_statistics_have_the_ids_of_the_specification(lake: neve.Lake):
    schema = pq.read_schema(local(evolved(lake, 3).compute_partition_stats().path))
    assert [(int(f.metadata[b"PARQUET:field_id"]), f.name) for f in schema] == [
        (1, "partition"), (2, "spec_id"), (3, "data_record_count"), (4, "data_file_count"),
        (5, "total_data_file_size_in_bytes"), (6, "position_delete_record_count"), (7, "position_delete_file_count"),
        (8, "equality_delete_record_count"), (9, "equality_delete_file_count"), (10, "total_record_count"),
        (11, "last_updated_at"), (12, "last_updated_snapshot_id"), (13, "dv_count"),
    ]  # fmt: skip
    assert [int(f.metadata[b"PARQUET:field_id"]) for f in schema.field("partition").type] == [1000, 1001]
    assert [f.name for f in schema if f.nullable] == [
        "total_record_count",
        "last_updated_at",
        "last_updated_snapshot_id",
    ]


@pytest.mark.parametrize("compute", ["compute_table_stats", "compute_partition_stats"])
def test_a_snapshot_that_expires_meanwhile_leaves_no_file(
    lake: neve.Lake, compute: str, monkeypatch: pytest.MonkeyPatch
):
    t = evolved(lake, 2)
    first = t.context.metadata.snapshots[0].snapshot_id
    write = statistics_step.write_new_file

    def write_and_expire(*values: Any) -> None:
        write(*values)
        lake.table("db.t").expire_snapshots().snapshot_ids(first).execute()

    monkeypatch.setattr(statistics_step, "write_new_file", write_and_expire)
    with pytest.raises(CommitConflict, match=f"Snapshot {first} of table db.t was expired"):
        getattr(t, compute)(snapshot_id=first)
    assert statistics_files(t) == set()


def test_expiry_removes_the_statistics_of_its_snapshots(lake: neve.Lake):
    t = lake.create_table("db.t", "id bigint", ["id"])
    for i in range(2):
        t.append([{"id": i}])
        t.compute_table_stats()
        t.compute_partition_stats()
    assert len(statistics_files(t)) == 4
    t.expire_snapshots().retain_last(1).older_than(2**60).execute()
    assert len(statistics_files(t)) == 2 and len(t.refresh().context.metadata.statistics) == 1


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda t: t.compute_table_stats("reigon"), UnknownName, "Did you mean 'region'"),
        (lambda t: t.compute_table_stats("place"), UserError, "Cannot count the distinct values of column 'place'"),
        (lambda t: t.compute_table_stats(snapshot_id=7), UserError, "7"),
        (lambda t: t.compute_partition_stats(), UserError, "it is not partitioned"),
    ],
)
def test_what_cannot_be_computed(lake: neve.Lake, act: Callable[[neve.Table], Any], error: type, message: str):
    t = lake.create_table("db.t", "id bigint, region string, place struct<city: string>")
    t.append([{"id": 1}])
    before = t.context.catalog.load_table("db.t").metadata_location
    with pytest.raises(error, match=message):
        act(t)
    assert statistics_files(t) == set() and t.context.catalog.load_table("db.t").metadata_location == before


def test_a_table_without_snapshots_has_nothing_to_describe(lake: neve.Lake):
    lake.create_table("db.t", "id bigint", ["id"])
    t = lake.table("db.t")
    assert t.compute_table_stats().summary == t.compute_partition_stats().summary == "no snapshot to describe"
    assert lake.sql("CALL system.compute_table_stats('db.t')").output_rows.num_rows == 0


def test_procedures(lake: neve.Lake):
    t = evolved(lake, 2)
    first = t.context.metadata.snapshots[0].snapshot_id
    found = lake.sql(
        f"CALL system.compute_table_stats(table => 'db.t', snapshot_id => {first}, columns => array('id'))"
    )
    [file] = t.refresh().context.metadata.statistics
    assert found.output_rows.to_pylist() == [{"statistics_file": file.statistics_path}] and file.snapshot_id == first
    found = lake.sql("CALL system.compute_partition_stats('db.t')")
    [file] = t.refresh().context.metadata.partition_statistics
    assert found.output_rows == pa.table({"partition_statistics_file": [file.statistics_path]})
    assert lake.sql("EXPLAIN CALL system.compute_partition_stats('db.t')") is not None


def test_sketches_of_no_rows(lake: neve.Lake):
    t = lake.create_table("db.t", "id bigint, name string")
    t.append([{"id": 1, "name": None}])
    t.delete().where("id = 1").execute()
    assert t.compute_table_stats().distinct_values == {"id": 0, "name": 0}
    assert ThetaSketch().estimate == 0.0
