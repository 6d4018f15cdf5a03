"""Who finds the rows of a statement and who carries them changes nothing in the result, and `explain` tells it."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, TimestampNanoType
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import neve
from neve.plan import row_change
from neve.run.spark.session import temporary_options
from neve.table import Table
from tests.support.tables import ids_of, sorted_rows, unchanged

NOON = datetime(2026, 3, 8, 12)
SKIPPED = datetime(2026, 3, 8, 2, 30)  # clocks in New York went from two to three


@pytest.fixture
def table(spark_lake: neve.Lake) -> Table:
    made = spark_lake.create_table("db.t", "id bigint, at timestamp_ntz, name string", format_version=3)
    made.append([{"id": n, "at": NOON, "name": "abc"[n % 3]} for n in range(10)])
    made.evolve_partitions(add=["name"])
    made.append([{"id": n, "at": NOON, "name": "abc"[n % 3]} for n in range(10, 20)])
    return made.refresh()


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_local_time_is_stored_as_it_is_in_any_time_zone(table: Table, spark: SparkSession, mode: str):
    with temporary_options(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        new = f"TIMESTAMP_NTZ '{SKIPPED}'"
        table.update().set("at", new).set("name", "concat(name, 'x')").where("id IN (3, 12)").mode(mode).execute()
    expected = [
        {"id": n, "at": SKIPPED if n in (3, 12) else NOON, "name": "abc"[n % 3] + ("x" if n in (3, 12) else "")}
        for n in range(20)
    ]
    assert sorted_rows(table.refresh()) == expected


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_subquery_in_set_may_refer_to_columns_that_nothing_else_names(table: Table, spark_lake: neve.Lake, mode: str):
    names = spark_lake.create_table("db.names", "old string, new string")
    names.append([{"old": letter, "new": letter * 3} for letter in "abc"])
    value = "(SELECT max(n.new) FROM db.names n WHERE n.old = t.name)"
    table.update().set("name", value).where("id = 4").mode(mode).execute()
    assert [row["name"] for row in sorted_rows(table.refresh(), "id IN (3, 4)")] == ["a", "bbb"]


def judge_line(statement: Any) -> str:
    [line] = [line for line in statement.explain().splitlines() if line.startswith("  judge")]
    return str(line)


def test_the_plan_tells_who_judges_and_why(table: Table, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(row_change, "MAX_ARROW_BYTES", 1 << 30)
    update = table.update().where("id = 3")
    assert "Arrow, in this process: 1 of 3 columns" in judge_line(update.set("name", "'x'"))
    assert "1 of 3 columns" in judge_line(table.delete().where("name IS NULL OR name = 'b'"))
    assert "Spark: an expression of SET is a Column" in judge_line(update.set("name", F.lit("x")))
    assert "has a subquery" in judge_line(update.set("name", "(SELECT max(name) FROM db.t)"))
    assert "metadata column" in judge_line(update.set("name", "_file"))
    assert "Spark: the condition is more than" in judge_line(table.delete().where("id % 7 = 3"))
    assert "Spark: every row of some files" in judge_line(table.update().set("id", "1").where("name < 'b' OR id = 4"))
    monkeypatch.setattr(row_change, "MAX_ARROW_BYTES", 1)
    assert "much for one process" in judge_line(table.delete().where("id = 3"))


KEYS = [UUID(int=n << 100 | n) for n in range(9)]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_rows_are_found_by_their_uuid(spark_lake: neve.Lake, mode: str):
    keyed = spark_lake.create_table("db.keyed", "id bigint, key uuid", format_version=3)
    keyed.append([{"id": n, "key": key.bytes} for n, key in enumerate(KEYS)])
    keyed.update().set("id", "100").where(f"key = '{KEYS[3]}'").mode(mode).execute()
    keyed.delete().where(f"key IN ('{KEYS[5]}', '{KEYS[6]}')").mode(mode).execute()
    keyed.delete().where(f"key <> '{KEYS[8]}' AND id < 2").mode(mode).execute()
    assert ids_of(keyed.refresh()) == [2, 4, 7, 8, 100]


@pytest.mark.usefixtures("engine")
def test_rows_are_found_by_times_of_nanoseconds(spark_lake: neve.Lake):
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "at", TimestampNanoType()))
    timed = spark_lake.create_table("db.timed", schema, format_version=3)
    nanos = [n * 500 for n in range(-4, 5)]
    at = pa.array(nanos, pa.int64()).cast(pa.timestamp("ns"))
    timed.append(pa.table({"id": pa.array(range(9), pa.int64()), "at": at}))
    timed.delete().where("at < TIMESTAMP_NTZ '1969-12-31 23:59:59.999999'").execute()
    assert ids_of(timed.refresh()) == [2, 3, 4, 5, 6, 7, 8]
    timed.delete().where("at >= TIMESTAMP_NTZ '1970-01-01 00:00:00.000002'").execute()
    assert ids_of(timed.refresh()) == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    "where",
    [
        "1 = 1 OR id = DATE '2026-01-01'",
        "NOT (1 = 0 AND id = DATE '2026-01-01')",
        "id > -1E400",
        "id < 1e39F",
        "id < 1234567890123456789012345678901234567890",
        "id <> 1234567890.1234567890123456789012345678901",
        "NOT (id <=> CAST(NULL AS DATE))",
        "id NOT IN (X'', 300D)",
        "NOT isnan(at)",
        "NOT isnan(name)",
    ],
)
def test_what_is_an_error_in_spark_changes_no_row(table: Table, where: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(row_change, "MAX_ARROW_BYTES", 1 << 30)
    with unchanged(table), pytest.raises(neve.UserError):
        table.delete().where(where).execute()


def test_raw_text_is_read_by_spark_if_it_keeps_backslashes(table: Table, spark: SparkSession):
    with temporary_options(spark, {"spark.sql.parser.escapedStringLiterals": "true"}):
        assert "Spark: the condition" in judge_line(table.delete().where("name IN (r'b') OR id = 3"))


CHANGES = [
    {"id": 3, "op": "U", "name": "new"},
    {"id": 12, "op": "D", "name": None},
    {"id": 40, "op": "I", "name": "b"},
    {"id": 5, "op": "K", "name": "kept"},  # matches, and no clause applies: it is not inserted either
    {"id": None, "op": "I", "name": "c"},
]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("is_frame", [False, True])
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_stream_of_changes_is_merged(table: Table, spark: SparkSession, mode: str, is_frame: bool):
    source: Any = spark.createDataFrame(CHANGES, "id bigint, op string, name string") if is_frame else CHANGES
    ids = {row["id"]: row["_row_id"] for row in table.scan(columns=["id", "_row_id"]).to_arrow().to_pylist()}
    merge = table.merge(source, "t.id = s.id").when_matched_delete("s.op = 'D'")
    merge = merge.when_matched_update({"name": "concat(t.name, s.name)"}, "s.op = 'U' AND t.at IS NOT NULL")
    merge = merge.when_not_matched_insert({"id": "s.id", "name": "s.name"}, "s.op = 'I'")
    result = merge.mode(mode).execute()
    assert (result.rows_updated, result.rows_deleted, result.rows_inserted) == (1, 1, 2)
    kept = [{"id": n, "at": NOON, "name": "anew" if n == 3 else "abc"[n % 3]} for n in range(20) if n != 12]
    new = [{"id": 40, "at": None, "name": "b"}, {"id": None, "at": None, "name": "c"}]
    found = table.refresh().scan(columns=["id", "at", "name", "_row_id"]).to_arrow().to_pylist()
    assert sorted_by_id({k: v for k, v in row.items() if k != "_row_id"} for row in found) == sorted_by_id(kept + new)
    assert {row["id"]: row["_row_id"] for row in found if row["id"] in ids} == {n: ids[n] for n in ids if n != 12}


def sorted_by_id(rows: Any) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["id"] is None, row["id"]))


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_all_columns_of_a_match_are_replaced(table: Table, mode: str):
    source = [{"id": 3, "at": SKIPPED, "name": "z"}, {"id": 99, "at": NOON, "name": "z"}]
    table.merge(source, "t.id = s.id").when_matched_update_all().mode(mode).execute()
    expected = [{"id": n, "at": NOON, "name": "abc"[n % 3]} for n in range(20) if n != 3]
    assert sorted_rows(table.refresh()) == sorted([*expected, source[0]], key=lambda row: row["id"])


def test_a_merge_tells_who_judges_and_why(table: Table, spark: SparkSession, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(row_change, "MAX_ARROW_BYTES", 1 << 30)

    def judge_line(merge: Any) -> str:
        return next(line for line in merge.explain().splitlines() if line.startswith("  judge"))

    by_key = table.merge(CHANGES, "t.id = s.id")
    assert "Arrow" in judge_line(by_key.when_matched_delete())
    assert "no key of a small source" in judge_line(table.merge(CHANGES, "t.id < s.id").when_matched_delete())
    assert "metadata column" in judge_line(by_key.when_matched_delete("t._pos > 2"))
    assert "is a Column" in judge_line(by_key.when_matched_update({"name": F.lit("x")}))
    monkeypatch.setattr(row_change, "MAX_ARROW_BYTES", -1)
    assert "much for one process" in judge_line(by_key.when_matched_delete())
