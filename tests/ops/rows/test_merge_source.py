"""Sources of a MERGE: read once, empty, with far times as keys, and in types that only an append used to take."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pandas as pd
import pyarrow as pa
import pytest
from pyiceberg.types import IntegerType
from pyspark.sql import SparkSession
from pyspark.storagelevel import StorageLevel

import neve
from neve import Table
from neve.errors import UnsupportedFeature, UserError
from neve.run.spark.writing_job import LocalLimits, is_persisted
from tests.support.tables import sorted_rows
from tests.support.two_writers import Interruption

KEYS = "t.id = s.id"
FAR_DAY = 5_000_000  # in the year 15659
LAST_SECOND = 253_402_300_799_000_000  # 9999-12-31 23:59:59 in UTC, which is next year in Tokyo


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A session whose options are its own."""
    return spark.newSession()


def numbers(lake: neve.Lake) -> Table:
    table = lake.create_table("db.t", "id bigint, n int", format_version=3)
    table.append([{"id": i, "n": 0} for i in (1, 2, 3)])
    return table.refresh()


def reader(**columns: Any) -> pa.RecordBatchReader:
    return pa.table(columns).to_reader()


# --- sources that are not the same twice ---


@pytest.mark.parametrize("size", [0, 32 << 20], ids=["large", "small"])
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_source_that_is_not_deterministic_is_computed_once(
    spark_lake: neve.Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, size: int, mode: str
):
    limits = LocalLimits(rewritten=0, carried=0, source=size)
    monkeypatch.setattr(LocalLimits, "of", lambda spark: limits)
    table = numbers(spark_lake)
    source = spark.range(1, 41).selectExpr("id", "cast(1 + rand() * 1e6 AS int) AS n", "uuid() AS unused")
    merge = table.merge(source, on=KEYS).mode(mode).when_matched_update({"n": "s.n"})
    merge = merge.when_not_matched_insert({"id": "s.id", "n": "s.n"}, condition="s.n % 2 = 0")
    assert "the source is not deterministic, so it is computed only once" in merge.explain()
    result = merge.execute()
    rows = sorted_rows(table.refresh())
    assert result.rows_updated == 3 and len(rows) == 3 + result.rows_inserted
    assert all(row["n"] > 0 for row in rows) and all(row["n"] % 2 == 0 for row in rows if row["id"] > 3)
    with pytest.raises(UserError, match=r"MERGE ON: .*rand"):
        table.merge(source, on=f"{KEYS} AND rand() < 2").when_matched_delete().execute()


# --- sources that can be read once ---


def test_a_reader_is_read_once(spark_lake: neve.Lake):
    table = numbers(spark_lake)
    merge = table.merge(reader(id=[1, 2], n=[5, 6]), KEYS)
    merge = merge.when_matched_update_all().when_not_matched_by_source_delete()
    assert merge.explain() == merge.explain()
    assert merge.execute().rows_updated == 2
    assert sorted_rows(table.refresh()) == [{"id": 1, "n": 5}, {"id": 2, "n": 6}]


def test_a_reader_lasts_for_a_rerun(lake_dir: Path, spark_lake: neve.Lake, spark: SparkSession):
    other = numbers(spark_lake)
    meanwhile = Interruption([lambda: other.refresh().update().set("n", "7").where("id = 1").execute()])
    table = neve.connect(lake_dir, spark=spark, environment=meanwhile.environment).table("db.t")
    merge = table.merge(reader(id=[1], n=[5]), KEYS).when_matched_update({"n": "t.n + s.n"})
    result = merge.execute()
    assert (result.reruns, result.rows_updated) == (1, 1)
    assert sorted_rows(table.refresh())[0] == {"id": 1, "n": 12}


# --- sources without rows ---


@pytest.mark.parametrize("source", [[], (), pd.DataFrame()], ids=["list", "tuple", "pandas"])
def test_a_source_of_nothing_has_the_columns_of_the_table(spark_lake: neve.Lake, source: Any):
    columns = "id bigint, u uuid, st struct<a: int>, l array<string>, m map<string, int>, x decimal(5, 2)"
    table = spark_lake.create_table("db.t", columns, format_version=3)
    table.append([{"id": 1}])
    before = table.refresh().context.metadata.current_snapshot_id
    result = table.merge(source, KEYS).when_matched_update_all().when_not_matched_insert_all().execute()
    assert result.summary == "nothing matched"
    assert table.refresh().context.metadata.current_snapshot_id == before


# --- times beyond Python's ---


def far(kind: pa.DataType, numbers: list[int]) -> pa.Table:
    stored = pa.array(numbers, pa.int32() if kind == pa.date32() else pa.int64())
    return pa.table({"at": stored.cast(kind), "n": pa.array([1] * len(numbers), pa.int32())})


AGES_AGO = -80_000_000_000_000_000  # microseconds, to before the year 1
LOCAL, INSTANT = pa.timestamp("us"), pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("ddl", "partition", "kind", "numbers"),
    [
        ("date", (), pa.date32(), [FAR_DAY, -1_000_000, 0]),
        ("date", ["month(at)"], pa.date32(), [FAR_DAY, -1_000_000, 0]),
        ("timestamp_ntz", (), LOCAL, [FAR_DAY * 86_400_000_000, AGES_AGO, 0]),
        ("timestamptz", (), INSTANT, [LAST_SECOND, AGES_AGO, 0]),
        ("timestamptz", ["year(at)"], INSTANT, [FAR_DAY * 86_400_000_000, AGES_AGO, 0]),
    ],
)
def test_far_times_are_keys(
    tmp_path: Path, session: SparkSession, ddl: str, partition: Any, kind: pa.DataType, numbers: list[int]
):
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    table = neve.connect(tmp_path, spark=session).create_table("db.t", f"at {ddl}, n int", partition)
    table.append(far(kind, numbers))
    merge = table.refresh().merge(far(kind, numbers), "t.at = s.at").when_matched_update({"n": "s.n + 1"})
    assert "MERGE" in merge.explain()
    assert merge.execute().rows_updated == len(numbers)
    assert set(table.refresh().scan().to_arrow(engine="arrow")["n"].to_pylist()) == {2}


def test_times_still_rule_out_files(spark_lake: neve.Lake):
    table = spark_lake.create_table("db.t", "at timestamptz, n int", format_version=2)
    for second in (0, 1_000_000, 2_000_000):
        table.append(far(pa.timestamp("us", "UTC"), [second]))
    merge = table.refresh().merge(far(pa.timestamp("us", "UTC"), [1_000_000]), "t.at = s.at")
    assert merge.when_matched_delete().execute().pruned_by_source


# --- fields that a struct leaves out ---


def structs(lake: neve.Lake, **options: Any) -> Table:
    table = lake.create_table("db.t", "id bigint, st struct<a: int>", format_version=3)
    table.append([{"id": 1, "st": {"a": 1}}])
    with table.refresh().evolve_schema() as change:
        change.add_column(("st", "b"), IntegerType(), default_value=5, **options)
    return table.refresh()


@pytest.mark.parametrize("required", [False, True])
def test_a_field_left_out_has_its_default(spark_lake: neve.Lake, required: bool):
    table = structs(spark_lake, required=required)
    source = [{"id": 1, "st": {"a": 2}}, {"id": 9, "st": {"a": 1}}]
    table.merge(source, KEYS).when_matched_update_all().when_not_matched_insert_all().execute()
    assert sorted_rows(table.refresh()) == [{"id": 1, "st": {"a": 2, "b": 5}}, {"id": 9, "st": {"a": 1, "b": 5}}]
    table.refresh().update().set("st", "named_struct('a', 3)").where("id = 9").execute()
    assert sorted_rows(table.refresh())[1] == {"id": 9, "st": {"a": 3, "b": 5}}


# --- types that Spark has not ---

U1, U2 = UUID(int=1), UUID(int=0xABCDEF << 100)


def upserted(table: Table, source: Any, on: str = KEYS) -> Any:
    return table.refresh().merge(source, on).when_matched_update_all().when_not_matched_insert_all().execute()


ODD: tuple[tuple[str, pa.DataType, list[Any]], ...] = (
    ("uuid", pa.binary(16), [U1.bytes, None]),
    ("uuid", pa.binary(), [U1.bytes, U2.bytes]),
    ("uuid", pa.uuid(), [U1.bytes, U2.bytes]),
    ("int", pa.uint8(), [1, 255]),
    ("bigint", pa.uint32(), [1, (1 << 32) - 1]),
    ("bigint", pa.uint64(), [1, (1 << 63) - 1]),
    ("decimal(20, 0)", pa.uint64(), [1, (1 << 64) - 1]),
    ("float", pa.float16(), [1.5, None]),
    ("string", pa.string_view(), ["a", "ä"]),
    ("string", pa.dictionary(pa.int8(), pa.string()), ["a", "a"]),
    ("binary", pa.binary_view(), [b"a", b""]),
    ("date", pa.date64(), [date(2024, 5, 1), None]),
    ("decimal(9, 2)", pa.decimal256(9, 2), [Decimal("1.25"), None]),
    ("array<bigint>", pa.list_(pa.uint32()), [[1, None], None]),
    ("array<int>", pa.list_(pa.uint16(), 2), [[1, None], None]),
    ("struct<u: uuid>", pa.struct([("u", pa.binary(16))]), [{"u": U1.bytes}, None]),
    ("array<struct<u: uuid>>", pa.list_(pa.struct([("u", pa.binary(16))])), [[{"u": U1.bytes}], None]),
    ("map<string, bigint>", pa.map_(pa.string_view(), pa.uint16()), [[("a", 1)], []]),
)


def test_arrow_types_that_spark_has_not_are_merged_as_they_are_appended(spark_lake: neve.Lake):
    ddl = ", ".join(["id bigint", *(f"v{at} {kind}" for at, (kind, _, _) in enumerate(ODD))])
    merged, appended = (spark_lake.create_table(name, ddl, format_version=3) for name in ("db.t", "db.u"))
    odd = {f"v{at}": pa.array(values, kind) for at, (_, kind, values) in enumerate(ODD)}
    source = pa.table({"id": pa.array([1, 2], pa.int64()), **odd})
    appended.append(source)
    merged.append(source.slice(0, 1))
    result = upserted(merged, pa.concat_tables([source.slice(0, 1), source.slice(1)]))
    assert (result.rows_updated, result.rows_inserted) == (1, 1)
    assert sorted_rows(merged.refresh()) == sorted_rows(appended.refresh())


def test_a_table_takes_back_its_own_uuids(spark_lake: neve.Lake):
    table = spark_lake.create_table("db.t", "id uuid, n int", format_version=3)
    table.append(pa.table({"id": pa.array([U1.bytes, U2.bytes], pa.binary(16)), "n": pa.array([0, 0], pa.int32())}))
    source = table.refresh().to_arrow()
    result = upserted(table, source)
    assert (result.rows_updated, result.rows_inserted) == (2, 0)


def test_bytes_that_are_no_uuid_are_refused(spark_lake: neve.Lake, spark: SparkSession):
    table = spark_lake.create_table("db.t", "id bigint, v uuid", format_version=3)
    upserted(table, spark.createDataFrame([(1, U1.bytes)], "id bigint, v binary"))
    assert sorted_rows(table.refresh()) == [{"id": 1, "v": U1.bytes}]
    with pytest.raises(UserError, match="does not fit column v of type uuid"):
        upserted(table, spark.createDataFrame([(1, b"short")], "id bigint, v binary"))
    with pytest.raises(UserError, match=r"column 'v' of type binary"):
        upserted(table, pa.table({"id": [1], "v": [b"short"]}))


def test_a_type_without_a_place_in_spark_is_refused_in_words(spark_lake: neve.Lake):
    source = pa.table({"id": [1], "n": pa.array([None], pa.month_day_nano_interval())})
    with pytest.raises(UserError, match=r"Cannot hand column 'n' of type month_day_nano_interval to Spark.*Cast it"):
        upserted(numbers(spark_lake), source)


# --- names in another case ---


@pytest.fixture
def exact(tmp_path: Path, session: SparkSession) -> Table:
    """A table whose columns differ in case only, in a session that tells them apart."""
    session.conf.set("spark.sql.caseSensitive", "true")
    columns = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("A", pa.int64())])
    table = neve.connect(tmp_path, spark=session).create_table("db.t", columns, format_version=2)
    table.append([{"id": 1, "a": 1, "A": 2}])
    return table.refresh()


def test_all_columns_are_taken_by_their_own_names(exact: Table):
    with pytest.raises(UserError, match=r"the source has no column 'A'"):
        exact.merge([{"id": 1, "a": 5}], KEYS).when_matched_update_all().execute()
    exact.merge([{"id": 1, "a": 5, "A": 6}], KEYS).when_matched_update_all().execute()
    assert sorted_rows(exact.refresh()) == [{"id": 1, "a": 5, "A": 6}]


def test_a_key_is_the_column_of_that_name(exact: Table):
    source = [{"a": 9, "A": 2}]
    assert exact.merge(source, "t.A = s.A").when_matched_delete().execute().rows_deleted == 1


def test_a_column_in_another_case_is_not_taken_when_the_session_tells_them_apart(exact: Table):
    merge = exact.merge([{"ID": 1, "a": 5, "A": 6}], "t.id = s.ID").when_matched_update_all()
    for each in (merge, merge.with_schema_evolution()):
        with pytest.raises(UserError, match=r"the source has no column 'id'"):
            each.execute()


def test_a_column_in_another_case_is_taken_otherwise(spark_lake: neve.Lake):
    assert numbers(spark_lake).merge([{"ID": 1, "N": 5}], KEYS).when_matched_update_all().execute().rows_updated == 1


# --- frames the caller keeps ---


def test_a_frame_is_kept_while_spark_holds_all_of_it(session: SparkSession):
    frame = session.range(3).selectExpr("id", "id * 7 AS kept_here").cache()
    assert is_persisted(frame)
    frame.unpersist()
    assert not is_persisted(frame.persist(StorageLevel.MEMORY_ONLY))  # what does not fit is computed again
    frame.unpersist()
    frame.cache()
    session.catalog.clearCache()
    assert frame.is_cached
    assert not is_persisted(frame)


# --- more than a source says ---


def test_a_field_of_a_new_row_is_assigned_alone(spark_lake: neve.Lake):
    """There was no struct before: its other fields have their defaults, whatever the size of the source."""
    table = spark_lake.create_table("db.t", "id bigint, st struct<a: int, b: int>", format_version=3)
    with table.evolve_schema() as change:
        change.add_column(("st", "c"), IntegerType(), default_value=5)
    table.merge([{"id": 9}], KEYS).when_not_matched_insert({"id": "id", "st.a": "1"}).execute()
    assert sorted_rows(table.refresh()) == [{"id": 9, "st": {"a": 1, "b": None, "c": 5}}]


def test_nanoseconds_of_a_source_are_not_cut(spark_lake: neve.Lake):
    table = spark_lake.create_table(
        "db.t", pa.schema([("id", pa.int64()), ("at", pa.timestamp("ns"))]), format_version=3
    )
    fine, plain = (pa.table({"id": [1], "at": pa.array([n], pa.timestamp("ns"))}) for n in (1_005, 1_000))
    merge = table.merge(fine, KEYS).when_not_matched_insert_all()
    with pytest.raises(UnsupportedFeature, match=r"'at' has nanoseconds.*append or overwrite"):
        merge.execute()
    assert table.merge(plain, KEYS).when_not_matched_insert_all().execute().rows_inserted == 1


@pytest.mark.parametrize("source", ["SELECT/*+ BROADCAST(x) */ 1L AS id, 7 AS n", "/* a */ VALUES (1L, 7) AS s(id, n)"])
def test_a_query_begins_with_a_word(spark_lake: neve.Lake, source: str):
    table = numbers(spark_lake)
    assert table.merge(source, KEYS).when_matched_update({"n": "s.n"}).execute().rows_updated == 1


def test_null_structs_with_required_fields(spark_lake: neve.Lake):
    """Spark's own conversions between rows and Arrow fail on them."""
    table = spark_lake.create_table(
        "db.t", "id bigint, s struct<x: int>, m map<string, struct<x: int>>", format_version=3
    )
    table.append([{"id": 1, "s": {"x": 1}}, {"id": 2, "s": None}])
    source = "SELECT * FROM VALUES (1L, named_struct('x', 7)), (2L, named_struct('x', 8)), (3L, NULL) AS v(id, s)"
    clauses = "WHEN MATCHED AND v.id = 1 THEN UPDATE SET s = NULL WHEN MATCHED THEN UPDATE SET s = v.s"
    insert = "WHEN NOT MATCHED THEN INSERT (id, s) VALUES (id, s)"
    spark_lake.sql(f"MERGE INTO db.t USING ({source}) v ON t.id = v.id {clauses} {insert}")
    spark_lake.sql("UPDATE db.t SET m = map('a', named_struct('x', 1), 'b', NULL) WHERE id = 3")
    assert sorted_rows(table.refresh()) == [
        {"id": 1, "s": None, "m": None},
        {"id": 2, "s": {"x": 8}, "m": None},
        {"id": 3, "s": None, "m": [("a", {"x": 1}), ("b", None)]},
    ]


def test_a_null_in_a_required_field_is_an_error(spark_lake: neve.Lake):
    parts = "s struct<x: int NOT NULL>, m map<string, struct<x: int NOT NULL>>"
    table = spark_lake.create_table("db.t", f"id bigint, {parts}", format_version=3)
    fields = pa.struct([pa.field("x", pa.int32())])
    for name, value, kind in (("s", {"x": None}, fields), ("m", [("a", {"x": None})], pa.map_(pa.string(), fields))):
        with pytest.raises(UserError, match="Null in required"):
            upserted(table, pa.table({"id": [1], "s": pa.nulls(1), "m": pa.nulls(1)} | {name: pa.array([value], kind)}))


def test_required_texts_of_null_structs(spark_lake: neve.Lake):
    table = spark_lake.create_table("db.t", "id bigint, s struct<x: string NOT NULL>", format_version=3)
    kind = pa.struct([pa.field("x", pa.large_string(), nullable=False)])
    texts = pa.array(["", "b"], pa.large_string())
    values = pa.StructArray.from_arrays([texts], fields=list(kind), mask=pa.array([True, False]))
    upserted(table, pa.table({"id": [1, 2], "s": values}))
    assert sorted_rows(table.refresh()) == [{"id": 1, "s": None}, {"id": 2, "s": {"x": "b"}}]
