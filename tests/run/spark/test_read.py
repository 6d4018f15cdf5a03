"""Scan plans as DataFrames: rows of real files compared with the same rows in plain Python."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from neve.errors import UserError
from neve.run.spark import position_deletes as positions
from neve.run.spark.read import read_dataframe
from neve.run.spark.session import temporary_options
from tests.support.file_tables import Row, TestLake, expected, rows_of


def column(field_id: int, name: str, kind: ice.IcebergType = LongType(), **more: Any) -> NestedField:  # noqa: B008
    return NestedField(field_id, name, kind, required=False, **more)


SCHEMA = Schema(column(1, "id"), column(2, "name", StringType()))


def numbered(start: int, count: int) -> list[Row]:
    return [{"id": i, "name": f"n{i}"} for i in range(start, start + count)]


def frame(spark: SparkSession, lake: TestLake, *columns: str) -> DataFrame:
    return read_dataframe(spark, lake.plan(), lake.facts, columns)


def decoded_rows(spark: SparkSession, lake: TestLake, where: str) -> int:
    """How many rows the Parquet reader decoded for a filter: fewer than the file has when row groups were skipped."""
    with temporary_options(spark, {"spark.sql.adaptive.enabled": "false"}):
        found = frame(spark, lake).where(where)
        found.collect()
        leaves = found._jdf.queryExecution().executedPlan().collectLeaves()  # type: ignore[operator]
    return int(leaves.apply(0).metrics().apply("numOutputRows").value())


@pytest.fixture
def lake(tmp_path: Path) -> TestLake:
    return TestLake(tmp_path, (SCHEMA,))


def test_a_plan_without_files_is_an_empty_dataframe_with_the_columns_asked_for(
    spark: SparkSession, lake: TestLake
) -> None:
    found = frame(spark, lake, "_file")
    assert found.dtypes == [("id", "bigint"), ("name", "string"), ("_file", "string")]
    assert found.count() == 0


def test_vectors_hide_rows_of_their_own_file_only(spark: SparkSession, lake: TestLake) -> None:
    lake.data(numbered(0, 70_000))
    lake.data(numbered(100_000, 10))
    lake.data(numbered(200_000, 66_000))
    gone = {0, 63, 64, 65_535, 65_536, 69_999}
    lake.vector(0, gone)
    lake.vector(2, range(65_536))
    kept = [*(i for i in range(70_000) if i not in gone), *range(100_000, 100_010), *range(265_536, 266_000)]
    assert sorted(frame(spark, lake).toArrow()["id"].to_pylist()) == kept


def test_files_of_one_size_are_told_apart_by_path(spark: SparkSession, lake: TestLake) -> None:
    """Odd characters in a path are spelled differently by Spark; a delete that misses its file revives rows."""
    for name in ("a b%2F#é/x.parquet", "k=1/{x}*[y].parquet", "plain.parquet"):
        lake.data(numbered(0, 3), name=name)
    sizes = {row["file_size_in_bytes"] for row in lake.files}
    lake.vector(0, [0])
    lake.vector(1, [1])
    assert len(sizes) == 1
    found = [(r["_file"].rsplit("/")[-1], r["id"]) for r in rows_of(spark, lake, columns=["_file"])]
    assert sorted(found) == [
        *(("plain.parquet", i) for i in range(3)),
        *(("x.parquet", i) for i in (1, 2)),
        *(("{x}*[y].parquet", i) for i in (0, 2)),
    ]


def test_a_file_that_is_not_the_one_in_the_manifest_stops_the_query(spark: SparkSession, lake: TestLake) -> None:
    for i in range(2):
        lake.data(numbered(0, 3 + i))
        lake.vector(i, [0])
    lake.files[1]["file_size_in_bytes"] += 1
    with pytest.raises(PySparkException, match="is not the one in the manifest"):
        frame(spark, lake).collect()


def test_a_file_whose_rows_are_all_deleted_is_not_read(spark: SparkSession, lake: TestLake) -> None:
    lake.data(numbered(0, 3))
    lake.vector(0, range(3))
    assert rows_of(spark, lake) == []
    assert frame(spark, lake).inputFiles() == []


@pytest.mark.parametrize("on_executors", [False, True])
def test_position_delete_files_apply_to_the_files_the_plan_attaches(
    spark: SparkSession, lake: TestLake, on_executors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions, "DRIVER_BYTES", 0 if on_executors else 1 << 20)
    for i in range(3):
        lake.data(numbered(i * 10, 4 + i))
    lake.position_deletes({0: [0, 1], 1: [0], 2: [3]}, files=[0, 2])  # written before file 1: names it, not attached
    lake.position_deletes({0: [1, 2]})
    kept = [*numbered(3, 1), *numbered(10, 5), *numbered(20, 3), *numbered(24, 2)]
    assert rows_of(spark, lake) == expected(*kept)


def test_position_deletes_match_whatever_way_the_path_is_spelled(spark: SparkSession, lake: TestLake) -> None:
    lake.data(numbered(0, 3))
    plain = lake.files[0]["file_path"]
    lake.files[0]["file_path"] = f"file://{plain}"
    lake.position_deletes({0: [1]})
    lake.files[0]["file_path"] = f"file:{plain}"
    assert rows_of(spark, lake) == expected(*numbered(0, 1), *numbered(2, 1))


def test_vectors_beyond_the_broadcast_budget_are_applied_by_the_readers(
    spark: SparkSession, lake: TestLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neve.run.spark.read.BROADCAST_BYTES", 8192)
    for i in range(3):
        lake.data(numbered(i * 10, 3 + i))
        lake.vector(i, [0])
    assert rows_of(spark, lake) == expected(*numbered(1, 2), *numbered(11, 3), *numbered(21, 4))
    assert "MapInArrow" in frame(spark, lake)._jdf.queryExecution().toString()  # type: ignore[operator]


def test_a_filter_skips_row_groups_also_in_files_with_vectors(spark: SparkSession, lake: TestLake) -> None:
    lake.data(numbered(0, 10_000))
    lake.vector(0, [5000])
    assert [r.id for r in frame(spark, lake).where("id between 4999 and 5001").collect()] == [4999, 5001]
    assert decoded_rows(spark, lake, "id between 4999 and 5001") <= 4096


def test_columns_follow_their_ids_through_rename_reorder_drop_and_promotion(
    spark: SparkSession, tmp_path: Path
) -> None:
    inner = StructType(column(11, "x", IntegerType()), column(12, "y", StringType()))
    old = Schema(
        column(1, "a", IntegerType()),
        column(2, "b", ice.FloatType()),
        column(3, "gone"),
        column(10, "s", inner),
        column(20, "l", ice.ListType(21, inner, element_required=False)),
        column(4, "d", ice.DecimalType(9, 2)),
    )
    new_inner = StructType(column(13, "z"), column(12, "why", StringType()), column(11, "x", LongType()))
    other = StructType(column(32, "y", StringType()), column(31, "x", LongType()))
    new = Schema(
        column(4, "d", ice.DecimalType(20, 2)),
        column(2, "bee", ice.DoubleType()),
        column(10, "s", new_inner),
        column(20, "l", ice.ListType(21, other, element_required=False)),
        column(1, "a", LongType()),
        column(5, "added", StringType()),
    )
    lake = TestLake(tmp_path, (new, old))
    lake.data([{"a": 1, "b": 1.5, "gone": 9, "s": {"x": 1, "y": "u"}, "l": [], "d": Decimal("1.25")}, {}], old)
    lake.data([{"a": 2, "bee": 2.5, "s": {"x": 3, "why": "v", "z": 4}, "d": Decimal("2.50"), "added": "w"}], new)
    nothing = dict.fromkeys(("d", "bee", "s", "l", "a", "added"))
    assert rows_of(spark, lake) == expected(
        nothing | {"a": 1, "bee": 1.5, "s": {"z": None, "why": "u", "x": 1}, "l": [], "d": Decimal("1.25")},
        nothing,
        nothing | {"a": 2, "bee": 2.5, "s": {"z": 4, "why": "v", "x": 3}, "d": Decimal("2.50"), "added": "w"},
    )


def test_a_name_that_moved_to_another_column_is_not_confused_by_filters(spark: SparkSession, tmp_path: Path) -> None:
    """Spark pushes filters by name: `a` of the file is not the table's `a`."""
    old = Schema(column(1, "a", IntegerType()), column(2, "b", StringType()), column(3, "c"))
    new = Schema(column(1, "b", IntegerType()), column(2, "a", StringType()), column(7, "C"))
    lake = TestLake(tmp_path, (new, old))
    lake.data([{"a": i, "b": f"t{i}", "c": i} for i in range(5)], old)
    found = frame(spark, lake)
    assert [(r.b, r.a) for r in found.where("a = 't3' and b = 3").collect()] == [(3, "t3")]
    assert found.where("C is null").count() == 5


def test_names_swapped_inside_a_struct_are_not_confused(spark: SparkSession, tmp_path: Path) -> None:
    def of(x: str, y: str) -> Schema:
        inner = StructType(column(11, x, IntegerType()), column(12, y, StringType()))
        return Schema(column(10, "s", inner), column(20, "m", ice.MapType(21, StringType(), 22, inner)))

    lake = TestLake(tmp_path, (of("y", "x"), of("x", "y")))
    lake.data([{"s": {"x": 1, "y": "u"}, "m": {"k": {"x": 2, "y": "v"}}}, {"s": None, "m": None}], of("x", "y"))
    assert rows_of(spark, lake) == expected(
        {"s": {"y": 1, "x": "u"}, "m": [("k", {"y": 2, "x": "v"})]}, {"s": None, "m": None}
    )
    assert frame(spark, lake).where("s.x = 'u' and s.y = 1").count() == 1


def test_a_column_keeps_its_name_and_row_group_skipping_unless_another_bore_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    older = Schema(column(1, "id"), column(9, "extra"))
    lake = TestLake(tmp_path, (SCHEMA, older))
    lake.data(numbered(0, 10_000))
    assert decoded_rows(spark, lake, "id = 7") <= 4096


def test_files_from_before_a_rename_still_have_their_row_groups_skipped(spark: SparkSession, tmp_path: Path) -> None:
    old = Schema(column(1, "key"), column(2, "name", StringType()), schema_id=0)
    new = Schema(*SCHEMA.fields, schema_id=1)
    lake = TestLake(tmp_path, (new, old), written_with={5: 0, 6: 1})
    lake.data([{"key": r["id"], "name": r["name"]} for r in numbered(0, 10_000)], old, snapshot_id=5)
    assert decoded_rows(spark, lake, "id = 7") <= 4096
    lake.data(numbered(0, 10), snapshot_id=6)
    assert frame(spark, lake).where("id = 7").count() == 2


def test_columns_whose_names_need_quoting_or_belong_to_spark_are_read(spark: SparkSession, tmp_path: Path) -> None:
    names = ["a.b", "c`d", "_metadata", "__row", "f g"]
    schema = Schema(*(column(i + 1, name) for i, name in enumerate(names)))
    lake = TestLake(tmp_path, (schema,))
    row = {name: i for i, name in enumerate(names)}
    lake.data([row, row])
    lake.vector(0, [1])
    assert rows_of(spark, lake) == [row]


def test_types_without_a_twin_in_spark_arrive_in_their_carriers(spark: SparkSession, tmp_path: Path) -> None:
    key, moment = uuid.UUID(int=7), dt.datetime(2020, 1, 1, 12, 30, 0, 123456)
    native = Schema(
        column(1, "u", ice.UUIDType()),
        column(2, "f", ice.FixedType(3)),
        column(3, "local", ice.TimestampType()),
        column(4, "utc", ice.TimestamptzType()),
        column(5, "nothing", ice.UnknownType()),
    )
    lake = TestLake(tmp_path, (native,))
    utc = moment.replace(tzinfo=dt.UTC)
    row = {"u": key.bytes, "f": b"abc", "local": moment, "utc": utc}
    lake.data([row, {}], Schema(*native.fields[:4]))
    values = {"u": str(key), "f": b"abc", "local": moment, "utc": utc, "nothing": None}
    with temporary_options(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        found = frame(spark, lake)
        assert "MapInArrow" not in found._jdf.queryExecution().toString()  # type: ignore[operator]
        table = found.toArrow()
    assert expected(*table.to_pylist()) == expected(values, dict.fromkeys(values))
    assert table.schema.field("nothing").type == pa.null()


def test_metadata_columns_tell_where_a_row_is(spark: SparkSession, lake: TestLake) -> None:
    lake.data(numbered(0, 2), sequence_number=4, first_row_id=100)
    lake.data(numbered(10, 3), sequence_number=7)
    lake.vector(0, [0])
    columns = ["_file", "_pos", "_spec_id", "_partition", "_data_sequence_number", "_row_id"]
    first, second = (row["file_path"] for row in lake.files)

    def row(i: int, file: str, pos: int, sequence: int, row_id: int | None) -> Row:
        meta = dict(zip(columns, (file, pos, 0, {}, sequence, row_id), strict=True))
        return {"id": i, "name": f"n{i}"} | meta

    rows = [row(1, first, 1, 4, 101), *(row(10 + i, second, i, 7, None) for i in range(3))]
    assert rows_of(spark, lake, columns=columns) == expected(*rows)


def test_row_lineage_comes_from_the_file_and_where_it_is_silent_from_the_manifest(
    spark: SparkSession, lake: TestLake
) -> None:
    carried = Schema(*SCHEMA.fields, column(2147483540, "_row_id"), column(2147483539, "_last_updated_sequence_number"))
    kept = {"id": 1, "name": "a", "_row_id": 5, "_last_updated_sequence_number": 2}
    lake.data([kept, {"id": 2, "name": "b"}], carried, sequence_number=6, first_row_id=50)
    lake.data([kept | {"id": 3}], carried, sequence_number=7)  # older than lineage: what it carries means nothing
    lineage = ["_row_id", "_last_updated_sequence_number"]
    found = [(r["id"], r["_row_id"], r["_last_updated_sequence_number"]) for r in rows_of(spark, lake, columns=lineage)]
    assert found == [(1, 5, 2), (2, 51, 6), (3, None, None)]


def test_a_scan_may_ask_for_no_column_of_the_table(spark: SparkSession, lake: TestLake) -> None:
    lake.data(numbered(0, 3))
    lake.vector(0, [1])
    assert rows_of(spark, lake, Schema(), columns=["_pos"]) == [{"_pos": 0}, {"_pos": 2}]
    assert read_dataframe(spark, lake.plan(Schema()), lake.facts).count() == 2


def test_an_unknown_metadata_column_is_refused_by_name(spark: SparkSession, lake: TestLake) -> None:
    with pytest.raises(UserError, match=r"Unknown metadata column '_files'\. Did you mean '_file'"):
        frame(spark, lake, "_files")


def test_reading_leaves_no_option_changed(spark: SparkSession, lake: TestLake) -> None:
    lake.data(numbered(0, 2))
    before = spark.conf.getAll
    frame(spark, lake).collect()
    assert spark.conf.getAll == before


def test_session_options_that_skip_bad_files_do_not_lose_rows(spark: SparkSession, lake: TestLake) -> None:
    lake.data(numbered(0, 2))
    lake.data(numbered(5, 3))
    Path(lake.files[1]["file_path"]).write_bytes(b"PAR1 not a Parquet file PAR1")
    skipping = {"spark.sql.files.ignoreCorruptFiles": "true", "spark.sql.files.ignoreMissingFiles": "true"}
    with temporary_options(spark, skipping):
        with pytest.raises(Py4JJavaError):
            frame(spark, lake).collect()
        found = frame(spark, lake)
        Path(lake.files[1]["file_path"]).unlink()
        with pytest.raises(Py4JJavaError):
            found.collect()
