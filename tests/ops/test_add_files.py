"""Files of another engine become part of a table: with the rows that Spark reads from the folder, also after changes.

Spark writes the folders and reads them back as plain files; that is what the table must hold.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types as ice
from pyspark.sql import SparkSession

import neve
from neve import NeveError, Table, UserError
from neve.ops.write import add_files as verb
from neve.plan.partition_folders import parse_folder_value
from neve.run.spark import foreign_files
from tests.support.tables import files_of, ids_of, sorted_rows, unchanged

COLUMNS = (
    "id bigint, n int, ratio double, price decimal(9, 2), note string, ts timestamp, tags array<string>, "
    "place struct<city: string, zip: int>, counts map<string, int>, region string, day date"
)
REGIONS = ("eu", "us/west", "a b", "100%", "x=y", "é:ü", "#1?", None)
ROWS = [
    (
        *(i, i % 3 if i % 4 else None, (float("nan"), -0.0, 1.5)[i % 3], Decimal(i) / 4, "text " * (i % 9)),
        *(dt.datetime(2024, 1, 1 + i % 9, 12, 30), [f"t{i}", None], {"city": f"c{i}", "zip": i}, {"k": i}),
        *(REGIONS[i % len(REGIONS)], dt.date(2024, 1, 1 + i % 2) if i % 5 else None),
    )
    for i in range(40)
]


def folder_of(
    spark: SparkSession, path: Path, file_format: str = "parquet", by: tuple[str, ...] = ("region", "day")
) -> str:
    write = spark.createDataFrame(ROWS, COLUMNS).repartition(2).write.format(file_format)
    write.partitionBy(*by).save(str(path))
    return str(path)


def rows_in(frame: Any) -> Counter[str]:
    return Counter(repr(row.asDict(recursive=True)) for row in frame.select(*NAMES).collect())


NAMES = ("id", "n", "ratio", "price", "note", "ts", "tags", "place", "counts", "region", "day")


def small_folder(path: Path, partition: str = "eu", /, **columns: Any) -> Path:
    folder = path / f"region={partition}"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns or {"id": [1, 2]}), folder / "part-0.parquet")
    return path


@pytest.fixture
def table(lake: neve.Lake) -> Table:
    return lake.create_table("db.t", "id bigint, n int, region string", ["region"])


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_the_table_has_the_rows_that_spark_reads_from_the_folder(spark_lake, spark, tmp_path, version):
    folder = folder_of(spark, tmp_path / "src")
    t = spark_lake.create_table("db.t", COLUMNS, ["region", "day"], format_version=version)
    result = t.add_files(folder).execute()
    expected = spark.read.schema(COLUMNS).parquet(folder)
    assert rows_in(t.to_spark()) == rows_in(expected)
    assert result.rows_added == len(ROWS) == sum(rows_in(expected).values())
    assert result.files_added == len([*Path(folder).rglob("*.parquet")])
    assert t.verify().is_sound
    if version < 3:  # from version 3 on PyIceberg does not cast the INT96 times that Spark writes
        assert sorted(t.iceberg.scan().to_arrow()["id"].to_pylist()) == [r[0] for r in ROWS]
        found = t.iceberg.scan("region = 'us/west'").to_arrow()["id"].to_pylist()
        assert sorted(found) == [r[0] for r in ROWS if r[9] == "us/west"]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_added_rows_are_changed_and_compacted_like_others(spark_lake, spark, tmp_path, version):
    folder = folder_of(spark, tmp_path / "src")
    properties = {f"write.{verb}.mode": "merge-on-read" for verb in ("update", "delete")}
    t = spark_lake.create_table("db.t", COLUMNS, ["region", "day"], format_version=version, properties=properties)
    t.add_files(folder).execute()
    model = {r[0]: (r[1], r[9]) for r in ROWS}
    t.delete().where("id % 7 = 3").execute()
    t.update().set("n", "n + 100").where("region = '100%' OR id < 5").execute()
    model = {
        i: (n if n is None or not (region == "100%" or i < 5) else n + 100, region)
        for i, (n, region) in model.items()
        if i % 7 != 3
    }
    assert {r["id"]: (r["n"], r["region"]) for r in sorted_rows(t)} == model
    t.rewrite_data_files().option("rewrite-all", True).execute()
    assert {r["id"]: (r["n"], r["region"]) for r in sorted_rows(t)} == model
    assert t.verify().is_sound


def test_orc_folders(spark_lake, spark, tmp_path):
    folder = folder_of(spark, tmp_path / "src", "orc", ("region",))
    t = spark_lake.create_table("db.t", COLUMNS, ["region"])
    call = f"CALL system.add_files(table => 'db.t', source_table => '`orc`.`{folder}`')"
    assert spark_lake.sql(call).output_rows.to_pylist()[0]["changed_partition_count"] == len(REGIONS)
    assert rows_in(t.to_spark()) == rows_in(spark.read.schema(COLUMNS).orc(folder))


def test_avro_folders(table, tmp_path):
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
    path = tmp_path / "src" / "region=eu" / "some.avro"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        fastavro.writer(file, schema, [{"id": i} for i in range(5000)], sync_interval=500)
    assert table.add_files(tmp_path / "src").execute().rows_added == 5000
    assert ids_of(table, "region = 'eu'") == list(range(5000))


def test_unpartitioned_folders_and_single_files(lake, tmp_path):
    t = lake.create_table("db.t", "id bigint, n int")
    folder = tmp_path / "src"
    folder.mkdir()
    for name in ("a.parquet", "b.parquet", "_c.parquet", ".d.parquet"):
        pq.write_table(pa.table({"id": [ord(name[0])]}), folder / name)
    (folder / "_SUCCESS").touch()
    (folder / "_temporary").mkdir()
    (folder / "_temporary" / "e.parquet").write_bytes(b"nothing")
    assert t.add_files(folder).execute().files_added == 2
    assert ids_of(t) == [97, 98]
    assert t.add_files([folder / "_c.parquet"]).execute().rows_added == 1
    assert ids_of(t) == [95, 97, 98]


def test_a_filter_selects_folders(table, tmp_path):
    for region, first in (("eu", 1), ("us", 3), ("__HIVE_DEFAULT_PARTITION__", 5)):
        small_folder(tmp_path / "src", region, id=[first])
    assert "2 files left out" in table.add_files(tmp_path / "src", {"region": "us"}).explain()
    table.add_files(tmp_path / "src", {"REGION": "us"}).execute()
    table.add_files(tmp_path / "src", {"region": None}).execute()
    assert sorted_rows(table) == [{"id": 3, "n": None, "region": "us"}, {"id": 5, "n": None, "region": None}]
    with pytest.raises(UserError, match=r"no data files to add in the selected partitions"):
        table.add_files(tmp_path / "src", {"region": "apac"}).execute()
    with pytest.raises(UserError, match="'area' is no partition field"):
        table.add_files(tmp_path / "src", {"area": "eu"}).plan()


def test_many_footers_are_read_by_spark_with_the_same_result(spark_lake, spark, tmp_path, monkeypatch):
    folder = folder_of(spark, tmp_path / "src")
    here, there = (spark_lake.create_table(f"db.t{n}", COLUMNS, ["region", "day"]) for n in (1, 2))
    here.add_files(folder).execute()
    monkeypatch.setattr(foreign_files, "MAX_FILES_IN_PROCESS", 2)
    monkeypatch.setattr(foreign_files, "_FILES_PER_TASK", 3)
    there.add_files(folder).execute()
    assert here.inspect.files().drop_columns(["readable_metrics"]).to_pylist() == (
        there.inspect.files().drop_columns(["readable_metrics"]).to_pylist()
    )
    (Path(folder) / "region=eu" / "day=2024-01-01" / "bad.parquet").write_bytes(b"PAR1 and no more")
    with unchanged(there), pytest.raises(NeveError, match=r"bad\.parquet"):
        there.add_files(folder, check_duplicate_files=False).execute()


def test_files_of_the_table_are_not_added_again(table, tmp_path):
    small_folder(tmp_path / "src")
    table.add_files(tmp_path / "src").execute()
    with unchanged(table), pytest.raises(UserError, match=r"twice, as table db\.t has them already: .*part-0\.parquet"):
        table.add_files(tmp_path / "src").execute()
    table.add_files(tmp_path / "src", check_duplicate_files=False).execute()
    assert ids_of(table) == [1, 1, 2, 2]
    table.delete().where("true").execute()
    table.add_files(tmp_path / "src").execute()
    assert ids_of(table) == [1, 2]


def test_a_name_mapping_is_made_unless_there_is_one(lake, table, tmp_path):
    small_folder(tmp_path / "src")
    table.add_files(tmp_path / "src").execute()
    assert table.iceberg.name_mapping() is not None and len(table.iceberg.snapshots()) == 1
    mapping = '[{"field-id":1,"names":["id","number"]}]'
    own = lake.create_table("db.own", "id bigint", properties={verb.NAME_MAPPING: mapping})
    (tmp_path / "other").mkdir()
    pq.write_table(pa.table({"number": [4]}), tmp_path / "other" / "x.parquet")
    own.add_files(tmp_path / "other").execute()
    assert ids_of(own) == [4] and own.iceberg.properties[verb.NAME_MAPPING] == mapping


def beside(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    """Let another writer act once, while footers are read."""
    read, left = verb.read_footers, [act]

    def read_beside(*arguments: Any) -> Any:
        if left:
            left.pop()()
        return read(*arguments)

    monkeypatch.setattr(verb, "read_footers", read_beside)


def test_writers_beside_it(lake, table, tmp_path, monkeypatch):
    small_folder(tmp_path / "src")
    beside(monkeypatch, lambda: lake.table("db.t").append([{"id": 9, "n": 1, "region": "eu"}]))
    assert table.add_files(tmp_path / "src").execute().reruns == 0
    assert ids_of(table) == [1, 2, 9]
    small_folder(tmp_path / "more", id=[3])
    beside(monkeypatch, lambda: lake.table("db.t").add_files(tmp_path / "more").execute())
    with pytest.raises(UserError, match="has them already"):
        table.add_files(tmp_path / "more").execute()
    assert ids_of(table) == [1, 2, 3, 9]


def test_columns_that_change_beside_it_are_looked_at_again(lake, table, tmp_path, monkeypatch):
    def drop_column() -> None:
        with lake.table("db.t").evolve_schema() as change:
            change.delete_column("n")

    small_folder(tmp_path / "src", id=[1], n=pa.array([1], pa.int32()))
    beside(monkeypatch, drop_column)
    assert table.add_files(tmp_path / "src").execute().reruns == 1
    assert sorted_rows(table) == [{"id": 1, "region": "eu"}]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": ["a"]}, "expected long for column 'id' .*found string"),
        ({"id": pa.array([1], pa.uint64())}, "column 'id', found uint64"),
        ({"id": [1], "n": [1]}, "expected int for column 'n' .*found int64"),
        ({"id": [1], "N": pa.array([1], pa.int32())}, "its column 'N' is 'n' in the table"),
        ({"other": [1]}, "none of the table's columns"),
        ({"id": [1], "region": ["us"]}, "stores column 'region', with other values than its folder"),
        ({"id": [1], "region": pa.array([None], pa.string())}, "stores column 'region'"),
    ],
)
def test_files_that_do_not_fit_are_refused(table, tmp_path, columns, message):
    small_folder(tmp_path / "src", **columns)
    with unchanged(table), pytest.raises(UserError, match=message):
        table.add_files(tmp_path / "src").execute()


def test_a_stored_partition_column_that_agrees_is_fine(table, tmp_path):
    small_folder(tmp_path / "src", id=[1], region=["eu"])
    table.add_files(tmp_path / "src").execute()
    assert sorted_rows(table) == [{"id": 1, "n": None, "region": "eu"}]


def test_required_columns(lake, tmp_path):
    t = lake.create_table("db.t", "id bigint NOT NULL, n int, region string NOT NULL", ["region"])
    for region, columns, message in (
        ("a", {"n": pa.array([1], pa.int32())}, "required column 'id'"),
        ("b", {"id": [1, None]}, "it has nulls in column 'id', which is required"),
        ("__HIVE_DEFAULT_PARTITION__", {"id": [1]}, "column 'region' is required, and this is null"),
    ):
        folder = small_folder(tmp_path / message[:3] / region, region, **columns)
        with unchanged(t), pytest.raises(UserError, match=message):
            t.add_files(folder).execute()


def test_field_ids_of_another_table_are_refused(table, tmp_path):
    fields = [pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"2"})]
    folder = tmp_path / "src" / "region=eu"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}, schema=pa.schema(fields)), folder / "x.parquet")
    with unchanged(table), pytest.raises(UserError, match="its column 'id' has field id 2, which is 'n' in the table"):
        table.add_files(tmp_path / "src").execute()


@pytest.mark.parametrize(
    ("by", "folder", "message"),
    [
        (["bucket(4, id)"], "region=eu", r"partition field 'id_bucket.*' is a bucket\[4\] transform"),
        (["region"], "area=eu", "'area' is no partition field of the table. Its fields: region"),
        (["region"], "region=eu/n=1", "spec has 1 partition folder such as name=value below"),
        ([], "region=eu", "spec has no folders below"),
        (["region", "n"], "region=eu", "no folder names a value of the partition field 'n'"),
        (["n"], "n=1.5", "'1.5' is no value of type int"),
        (["n"], "n=2147483648", "'2147483648' is no value of type int"),
        (["region"], "region=", "'' is no value of type string"),
        (["region"], "nothing", "1 partition folder such as name=value below"),
    ],
)
def test_folders_that_do_not_fit_are_refused(lake, tmp_path, by, folder, message):
    t = lake.create_table("db.t", "id bigint, n int, region string", by)
    path = tmp_path / "src" / folder
    path.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), path / "x.parquet")
    with unchanged(t), pytest.raises(UserError, match=message):
        t.add_files(tmp_path / "src").execute()


def test_other_wrong_input(lake, table, tmp_path):
    small_folder(tmp_path / "src")
    path = tmp_path / "src" / "region=eu" / "part-0.parquet"
    for call, message in (
        (lambda: table.add_files(tmp_path / "none").plan(), "no data files to add in"),
        (lambda: table.add_files(tmp_path / "src", parallelism=0).plan(), "parallelism is 0"),
        (lambda: table.add_files(tmp_path / "src", file_format="csv").plan(), "formats are parquet, orc and avro"),
        (lambda: table.add_files([path, path]).plan(), "twice, as they are named twice"),
        (lambda: lake.sql("CALL system.add_files('db.t', 'db.other')"), "Unknown table of Spark 'db.other'"),
        (lambda: lake.sql("CALL system.add_files('db.t')"), "needs the argument 'source_table'"),
    ):
        with unchanged(table), pytest.raises(UserError, match=message):
            call()


def test_damaged_files_are_named_and_nothing_is_added(table, tmp_path):
    small_folder(tmp_path / "src", id=list(range(50)), n=pa.array(range(50), pa.int32()))
    path = tmp_path / "src" / "region=eu" / "part-0.parquet"
    honest, dice = path.read_bytes(), random.Random(3)
    refused = 0
    for _ in range(150):
        damaged = bytearray(honest)
        at = dice.randrange(len(honest) - 400, len(honest))
        damaged[at] ^= 1 << dice.randrange(8)
        path.write_bytes(damaged if dice.random() < 0.8 else damaged[:at])
        add = table.add_files(tmp_path / "src")
        try:
            add._write(table.context, add.plan(), verb.Execution())
        except NeveError as e:
            refused += "part-0.parquet" in str(e)
    assert refused > 20
    path.write_bytes(b"")
    with unchanged(table), pytest.raises(NeveError, match=r"part-0\.parquet"):
        table.add_files(tmp_path / "src").execute()


def test_bounds_are_those_of_the_rows(lake, tmp_path):
    t = lake.create_table("db.t", "id bigint, ratio double, price decimal(20, 4), note string, ts timestamp_ntz")
    (tmp_path / "src").mkdir()
    rows = {
        "id": pa.array([5, -7, None], pa.int32()),
        "ratio": pa.array([0.0, 2.5, None]),
        "price": pa.array([Decimal("-1.5000"), Decimal("300.2500"), None], pa.decimal128(10, 4)),
        "note": pa.array(["a" * 30, "ü" * 30, None]),
        "ts": pa.array([1, 2_000, None], pa.timestamp("ms")),
    }
    pq.write_table(pa.table(rows), tmp_path / "src" / "x.parquet", row_group_size=1)
    t.add_files(tmp_path / "src").execute()
    metrics = t.inspect.files()["readable_metrics"][0].as_py()
    found = {name: (m["lower_bound"], m["upper_bound"]) for name, m in metrics.items()}
    assert found["id"] == (-7, 5) and repr(found["ratio"][0]) == "-0.0" and found["ratio"][1] == 2.5
    assert found["price"] == (Decimal("-1.5000"), Decimal("300.2500"))
    assert found["note"] == ("a" * 16, "ü" * 15 + "ý")
    assert found["ts"] == (dt.datetime(1970, 1, 1, 0, 0, 0, 1000), dt.datetime(1970, 1, 1, 0, 0, 2))
    assert [metrics[n]["null_value_count"] for n in rows] == [1] * 5
    assert len(files_of(t)) == 1 and t.verify().is_sound


def test_values_of_folders_are_exact():
    for kind, text, value in (
        (ice.LongType(), "-9223372036854775808", -(2**63)),
        (ice.LongType(), "9223372036854775808", None),
        (ice.IntegerType(), "1_0", None),
        (ice.DecimalType(5, 2), "1.50", Decimal("1.50")),
        (ice.DecimalType(5, 2), "-1.5", Decimal("-1.50")),
        (ice.DecimalType(5, 2), "1.505", None),
        (ice.DecimalType(5, 2), "1000", None),
        (ice.BooleanType(), "TRUE", True),
        (ice.BooleanType(), "1", None),
        (ice.DoubleType(), "1.0E10", 1e10),
        (ice.DoubleType(), "0x1", None),
        (ice.DateType(), "1969-12-31", -1),
        (ice.DateType(), "2024-02-30", None),
        (ice.TimestampType(), "1970-01-01 00:00:01.5", 1_500_000),
        (ice.TimestampType(), "1970-01-01 00:00:00.0000001", None),
        (ice.TimestamptzType(), "1970-01-01 01:00:00+01:00", 0),
        (ice.BinaryType(), "a", None),
        (ice.UUIDType(), "no", None),
    ):
        found = parse_folder_value(text, kind)
        assert found == value and type(found) is type(value), (kind, text)
