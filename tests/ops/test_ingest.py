"""The rows of files are written into a table's layout: those that Spark reads from the folder, whatever its layout.

Spark writes the folders and reads them back as plain files; that is what the table must hold.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import neve
from neve import Table, UserError
from neve.run.spark import foreign_rows
from neve.run.spark.file_shares import FileShares
from neve.run.spark.writing_job import LocalLimits
from tests.ops.test_add_files import COLUMNS, ROWS, folder_of, rows_in, small_folder
from tests.support.tables import ids_of, paths_of, sorted_rows, unchanged

LAYOUTS = {
    "unpartitioned": (),
    "as the folder": ("region", "day"),
    "another": ("months(ts)", "bucket(3, id)"),
}


@pytest.fixture(params=["threads", "tasks"])
def where(request, monkeypatch) -> str:
    size = 1 << 40 if request.param == "threads" else -1
    monkeypatch.setattr(LocalLimits, "of", lambda spark: LocalLimits(size, size, size))
    return request.param


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_the_table_has_the_rows_that_spark_reads_from_the_folder(where, spark_lake, spark, tmp_path, version, layout):
    folder = folder_of(spark, tmp_path / "src")
    before = {path: path.read_bytes() for path in Path(folder).rglob("*.parquet")}
    t = spark_lake.create_table("db.t", COLUMNS, LAYOUTS[layout], format_version=version)
    result = t.ingest(folder).execute()
    assert rows_in(t.to_spark()) == rows_in(spark.read.schema(COLUMNS).parquet(folder))
    assert result.rows_added == len(ROWS)
    assert result.files_added_by_spec == {t.context.metadata.default_spec_id: len(paths_of(t))}
    assert {path: path.read_bytes() for path in Path(folder).rglob("*.parquet")} == before
    assert not {*before} & {Path(path.removeprefix("file://")) for path in paths_of(t)}
    assert t.verify().is_sound


def test_a_sorted_table_stays_sorted(where, spark_lake, spark, tmp_path):
    folder = folder_of(spark, tmp_path / "src", by=("region",))
    t = spark_lake.create_table("db.t", COLUMNS)
    t.set_sort_order("id DESC")
    t.ingest(folder).execute()
    assert rows_in(t.to_spark()) == rows_in(spark.read.schema(COLUMNS).parquet(folder))
    for path in paths_of(t):
        ids = pq.read_table(path.removeprefix("file://"))["id"].to_pylist()
        assert ids == sorted(ids, reverse=True)


def test_an_evolved_table_gets_files_of_its_newest_spec(where, spark_lake, spark, tmp_path):
    folder = folder_of(spark, tmp_path / "src", by=("region",))
    t = spark_lake.create_table("db.t", COLUMNS, ["region"])
    t.ingest(folder).execute()
    t.evolve_partitions(add=["bucket(2, id)"], drop=["region"])
    result = t.ingest(folder).execute()
    assert [*result.files_added_by_spec] == [t.context.metadata.default_spec_id]
    once = rows_in(spark.read.schema(COLUMNS).parquet(folder))
    assert rows_in(t.to_spark()) == once + once


def test_orc_and_avro_files(where, spark_lake, spark, tmp_path):
    folder = folder_of(spark, tmp_path / "orc", "orc", ("region",))
    local = COLUMNS.replace("ts timestamp", "ts timestamp_ntz")  # what ORC calls timestamp has no zone
    t = spark_lake.create_table("db.t", local, ["bucket(2, id)"])
    t.ingest(folder).execute()
    assert rows_in(t.to_spark()) == rows_in(spark.read.schema(COLUMNS).orc(folder))
    instants = spark_lake.create_table("db.instants", COLUMNS)
    with unchanged(instants), pytest.raises(UserError, match=r"orc: Cannot store timestamp\[ns\] in column 'ts'"):
        instants.ingest(folder).execute()
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]}
    with (tmp_path / "some.avro").open("wb") as file:
        fastavro.writer(file, schema, [{"id": i} for i in range(1000, 6000)], sync_interval=500)
    assert t.ingest([tmp_path / "some.avro"]).execute().rows_added == 5000
    assert ids_of(t, "id >= 1000") == list(range(1000, 6000))


def test_a_large_file_is_read_in_parts(where, lake, tmp_path, monkeypatch):
    monkeypatch.setattr(foreign_rows, "_EXCHANGE_SPLIT_BYTES", 4096)
    share_out, counts = FileShares.of, []
    monkeypatch.setattr(FileShares, "of", lambda *args: counts.append(args[1]) or share_out(*args))
    rows = pa.table({"id": range(20_000), "n": [i % 5 for i in range(20_000)]})
    pq.write_table(rows, tmp_path / "large.parquet", row_group_size=500)
    t = lake.create_table("db.t", "id bigint, n int", ["n"])
    t.ingest([tmp_path / "large.parquet"]).execute()
    assert ids_of(t) == [*range(20_000)]
    assert counts[0] > 1, "one task for each part"


def test_files_may_differ_in_columns_and_types(where, lake, tmp_path):
    tables = (
        pa.table({"ID": pa.array([1], pa.int16()), "price": [Decimal("1.50")]}),
        pa.table({"price": [2.25], "id": pa.array([2], pa.uint32())}),
        pa.table({"id": pa.array([3])}),
    )
    (tmp_path / "src").mkdir()
    for number, rows in enumerate(tables):
        pq.write_table(rows, tmp_path / "src" / f"{number}.parquet")
    t = lake.create_table("db.t", "id bigint, price double")
    t.ingest(tmp_path / "src").execute()
    assert sorted_rows(t) == [{"id": 1, "price": 1.5}, {"id": 2, "price": 2.25}, {"id": 3, "price": None}]


def test_times_of_96_bits_are_instants(lake, tmp_path):
    at = dt.datetime(2026, 1, 31, 10)
    kind = pa.struct([("of", pa.list_(pa.timestamp("us"))), ("by", pa.map_(pa.string(), pa.timestamp("us")))])
    rows = pa.table({"id": [1], "at": [at], "inside": pa.array([{"of": [at], "by": [("k", at)]}], kind)})
    pq.write_table(rows, tmp_path / "old.parquet", use_deprecated_int96_timestamps=True)
    t = lake.create_table(
        "db.t", "id int, at timestamp, inside struct<of: array<timestamp>, by: map<string, timestamp>>"
    )
    t.ingest([tmp_path / "old.parquet"]).execute()
    instant = at.replace(tzinfo=dt.UTC)
    assert t.to_arrow().to_pylist() == [{"id": 1, "at": instant, "inside": {"of": [instant], "by": [("k", instant)]}}]
    pq.write_table(rows, tmp_path / "new.parquet")
    with unchanged(t), pytest.raises(UserError, match=r"new.parquet: Cannot store timestamp\[us\] in column 'at'"):
        t.ingest([tmp_path / "new.parquet"]).execute()


def test_field_ids_of_another_table_are_not_followed(lake, tmp_path):
    there = lake.create_table("db.there", "a bigint, b bigint")
    there.append([{"a": 1, "b": 2}])
    here = lake.create_table("db.here", "b bigint, a bigint")
    here.ingest([path.removeprefix("file://") for path in paths_of(there)]).execute()
    assert here.to_arrow().to_pylist() == [{"b": 2, "a": 1}]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "7", 7),
        ("date", "2026-01-31", dt.date(2026, 1, 31)),
        ("decimal(5, 2)", "1.5", Decimal("1.50")),
        ("boolean", "true", True),
        ("string", "a%2Fb%3D", "a/b="),
        ("string", "Z%C3%BCrich", "Zürich"),  # as Arrow and pandas write it
        ("string", "__HIVE_DEFAULT_PARTITION__", None),
        ("timestamp_ntz", "2026-01-31 10%3A00%3A00", dt.datetime(2026, 1, 31, 10)),
    ],
)
def test_folders_give_values_of_the_columns_type(lake, tmp_path, kind, text, value):
    t = lake.create_table("db.t", f"id bigint, p {kind}")
    folder = tmp_path / "src" / f"P={text}"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), folder / "x.parquet")
    assert "with p from the names of folders" in t.ingest(tmp_path / "src").explain()
    t.ingest(tmp_path / "src").execute()
    t.ingest([folder / "x.parquet"]).execute()  # the folder counts for single files too
    t.ingest(folder / "x.parquet").execute()
    t.ingest(folder).execute()
    (folder / "batch").mkdir()
    (folder / "x.parquet").rename(folder / "batch" / "x.parquet")
    t.ingest(tmp_path / "src").execute()
    assert t.to_arrow()["p"].to_pylist() == [value] * 10


def test_a_file_may_store_the_column_of_its_folder(lake, tmp_path):
    other = lake.create_table("db.other", "id bigint, region string", ["region"])
    other.append([{"id": 1, "region": "eu"}, {"id": 2, "region": "us"}])
    t = lake.create_table("db.t", "id bigint, region string")
    t.ingest(f"{other.context.metadata.location}/data").execute()
    assert sorted_rows(t) == sorted_rows(other)


@pytest.fixture
def table(lake: neve.Lake) -> Table:
    t = lake.create_table("db.t", "id bigint, n int, region string not null")
    t.append([{"id": 0, "n": 0, "region": "eu"}])
    return t


def test_what_does_not_fit_is_one_error_and_nothing_is_written(where, table, tmp_path):
    cases = (
        ({"id": ["x"]}, "region=eu", r"part-0.parquet: Cannot store string in column 'id'"),
        ({"id": [1], "n": [1 << 40]}, "region=eu", r"part-0.parquet: .*'n'"),
        ({"id": [1], "area": [1]}, "region=eu", r"part-0.parquet: Unknown column 'area'"),
        ({"id": [1]}, "region=__HIVE_DEFAULT_PARTITION__", r"part-0.parquet: .*'region'"),
        ({"id": [1], "Region": ["us"]}, "region=eu", r"part-0.parquet: Column 'Region' has other values .* says 'eu'"),
        ({"id": [1]}, "region=eu/region=us", r"gives two values to column 'region': 'eu' and 'us'"),
        ({"id": [1]}, "aera=eu/batch", r"Unknown column 'aera' in the table"),
        ({"id": [1]}, "aera=eu", r"Unknown column 'aera' in the table, which folder .*aera=eu names"),
        ({"id": [1]}, "n=1.5", r"Folder .*n=1.5: '1.5' is no value of type int, which column 'n' has"),
        ({"id": [1]}, "plain", r"part-0.parquet: Missing column 'region'"),
    )
    for number, (columns, folder, message) in enumerate(cases):
        path = tmp_path / str(number) / folder
        path.mkdir(parents=True)
        pq.write_table(pa.table(columns), path / "part-0.parquet")
        with unchanged(table), pytest.raises(UserError, match=message):
            table.ingest(tmp_path / str(number)).execute()


def test_sources_that_cannot_be_read_are_one_error(table, tmp_path):
    small_folder(tmp_path / "two", "eu")
    small_folder(tmp_path / "two", "us")
    (tmp_path / "two" / "x.parquet").write_bytes((tmp_path / "two" / "region=eu" / "part-0.parquet").read_bytes())
    (tmp_path / "empty").mkdir()
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    (tmp_path / "delta" / "_delta_log" / "0.json").write_text("{}")
    twice = [tmp_path / "two" / "x.parquet"] * 2
    own = table.context.metadata.location
    for source, message in (
        (own, "overlaps the table's own folder"),
        (f"{own}/data", "overlaps the table's own folder"),
        ([tmp_path / "two"], "two: there is no such file"),
        ("nothing/*", "Patterns are not expanded"),
        (None, "Cannot ingest None: give the path of a folder"),
        ([b"x"], "give the path of a folder"),
        ([""], "give the path of a folder"),
        (tmp_path / "two", "the folders give values to region, and to no column"),
        (tmp_path / "empty", "Found no data files to ingest"),
        (tmp_path / "delta", "it is a Delta table"),
        (twice, "named twice"),
        ([tmp_path / "nowhere.parquet"], "nowhere.parquet: there is no such file"),
    ):
        with unchanged(table), pytest.raises(neve.NeveError, match=message):
            table.ingest(source).execute()


def test_an_ingestion_lands_on_a_branch_or_is_staged(table, tmp_path):
    small_folder(tmp_path / "src")
    table.create_branch("side")
    table.ingest(tmp_path / "src").branch("side").execute()
    table.ingest(tmp_path / "src").stage("audit").execute()
    assert ids_of(table) == [0]
    assert sorted(pc.unique(table.scan(ref="side").to_arrow()["id"]).to_pylist()) == [0, 1, 2]
    table.publish_changes("audit")
    assert ids_of(table) == [0, 1, 2]
