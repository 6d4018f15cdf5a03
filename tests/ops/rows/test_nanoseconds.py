"""Times of nanoseconds compare exactly, whoever evaluates the condition; plain Python numbers are the oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo, GreaterThan, In, LessThanOrEqual
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType, TimestampNanoType, TimestamptzNanoType
from pyspark.sql import functions as F  # noqa: N812

import neve
from neve.errors import UnsupportedFeature
from neve.predicate.normalize import NanosLiteral

NANOS = [None, -1001, -1000, -999, -1, 0, 1, 2, 999, 1000, 1001]
KINDS = {"timestamp_ns": TimestampNanoType(), "timestamptz_ns": TimestamptzNanoType()}
# `{}` is a time of so many nanoseconds; the oracle has the number there.
CONDITIONS: dict[str, Callable[[int], bool]] = {
    "at = {0}": lambda n: n == 0,
    "at <> {0}": lambda n: n != 0,
    "at < {0}": lambda n: n < 0,
    "at <= {0}": lambda n: n <= 0,
    "at > {0}": lambda n: n > 0,
    "{0} <= at": lambda n: n >= 0,
    "NOT (at = {0} OR at > {1000})": lambda n: n != 0 and n <= 1000,
    "at BETWEEN {-1000} AND {0}": lambda n: -1000 <= n <= 0,
    "at NOT IN ({0}, {1000})": lambda n: n not in (0, 1000),
    "NOT (at <=> {0}) AND at IS NOT NULL": lambda n: n != 0,
    "at = {1}": lambda n: n == 1,
    "at > {-1}": lambda n: n > -1,
    "s.at <= {0}": lambda n: n <= 0,
}
# Arrow evaluates the first, Spark the second.
JUDGES = {"arrow": "{}", "spark": "({}) AND upper(tag) = 'A'"}


def moment(nanos: int, kind: str) -> str:
    day, second = ("1970-01-01", nanos) if nanos >= 0 else ("1969-12-31", nanos + 86_400_000_000_000)
    clock = f"{second // 10**9 // 3600:02}:{second // 10**9 // 60 % 60:02}:{second // 10**9 % 60:02}"
    digits = f"{second % 10**9:09}" if nanos % 1000 else f"{second % 10**9 // 1000:06}"
    return (
        f"TIMESTAMP_NTZ '{day} {clock}.{digits}'" if kind == "timestamp_ns" else f"TIMESTAMP '{day} {clock}.{digits}Z'"
    )


def written(condition: str, kind: str) -> str:
    for nanos in (-1000, -1, 0, 1, 1000):
        condition = condition.replace(f"{{{nanos}}}", moment(nanos, kind))
    return condition


def timed_table(lake: neve.Lake, kind: str) -> neve.Table:
    time = KINDS[kind]
    inner = StructType(NestedField(11, "at", time, required=False))
    fields = [("id", LongType()), ("at", time), ("since", time), ("tag", StringType()), ("s", inner)]
    schema = Schema(*(NestedField(n + 1, name, each, required=False) for n, (name, each) in enumerate(fields)))
    table = lake.create_table(f"db.{kind}", schema, format_version=3)
    at = pa.array(NANOS, pa.int64()).cast(pa.timestamp("ns", "UTC" if kind == "timestamptz_ns" else None))
    since = pa.array([0] * len(NANOS), pa.int64()).cast(at.type)
    ids, tags = pa.array(range(len(NANOS)), pa.int64()), pa.array(["a"] * len(NANOS))
    struct = pa.StructArray.from_arrays([at], ["at"])
    table.append(pa.table({"id": ids, "at": at, "since": since, "tag": tags, "s": struct}))
    return table.refresh()


def found(rows: pa.Table) -> list[int | None]:
    return sorted((NANOS[i] for i in rows["id"].to_pylist()), key=lambda n: (n is None, n))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("judge", JUDGES)
def test_a_scan_finds_exactly_the_rows(spark_lake: neve.Lake, kind: str, judge: str):
    table = timed_table(spark_lake, kind)
    for condition, holds in CONDITIONS.items():
        where = JUDGES[judge].format(written(condition, kind))
        expected = [n for n in NANOS if n is not None and holds(n)]
        assert found(table.scan(where).to_spark().toArrow()) == expected, where
        assert table.scan(where).count() == len(expected), where


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("condition", ["at = {0}", "at > {0}", "at = {1}"])
def test_statements_change_exactly_the_rows(spark_lake: neve.Lake, kind: str, judge: str, condition: str):
    table = timed_table(spark_lake, kind)
    where, holds = JUDGES[judge].format(written(condition, kind)), CONDITIONS[condition]
    expected = [n for n in NANOS if n is not None and holds(n)]
    table.update().set("tag", "'b'").where(where).mode("copy-on-write").execute()
    assert found(table.refresh().scan("tag = 'b'").to_arrow()) == expected
    where = where.replace("'A'", "'B'")
    assert table.delete().where(where).mode("merge-on-read").execute().rows_deleted == len(expected)
    assert found(table.refresh().to_arrow()) == [n for n in [*NANOS[1:], None] if n not in expected]


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_nanoseconds_compare_with_each_other(spark_lake: neve.Lake, kind: str):
    table = timed_table(spark_lake, kind)
    assert found(table.scan("at > since").to_spark().toArrow()) == [1, 2, 999, 1000, 1001]
    assert table.delete().where("t.at <= t.since").alias("t").execute().rows_deleted == 5


@pytest.mark.parametrize("kind", KINDS)
def test_merge_matches_exactly(spark_lake: neve.Lake, kind: str):
    table = timed_table(spark_lake, kind)
    source = f"SELECT {moment(0, kind)} AS at UNION ALL SELECT {moment(1000, kind)}"
    merge = table.merge(source, "t.at = s.at").when_matched_delete(f"t.at > {moment(0, kind)}")
    assert merge.when_matched_update({"tag": "'b'"}).mode("copy-on-write").execute().rows_by_clause == (1, 1)
    assert found(table.refresh().scan("tag = 'b'").to_arrow()) == [0]
    assert 1000 not in found(table.to_arrow())


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (EqualTo("at", NanosLiteral(1)), [1]),
        (GreaterThan("at", NanosLiteral(0)), [1, 2, 999, 1000, 1001]),
        (LessThanOrEqual("s.at", NanosLiteral(-1000)), [-1001, -1000]),
        (In("at", {NanosLiteral(0), NanosLiteral(999)}), [0, 999]),
    ],
)
def test_expressions_compare_exactly(spark_lake: neve.Lake, where: Any, expected: list[int]):
    table = timed_table(spark_lake, "timestamp_ns")
    assert found(table.scan(where).to_spark().toArrow()) == expected
    assert found(table.scan(where).to_arrow()) == expected
    assert table.delete().where(where).execute().rows_deleted == len(expected)


def test_what_spark_would_round_is_refused(spark_lake: neve.Lake):
    table = timed_table(spark_lake, "timestamp_ns")
    with pytest.raises(UnsupportedFeature, match=r"'at' of type timestamp_ns.*SQL text"):
        table.delete().where(F.col("at") == F.lit("1970-01-01").cast("timestamp_ntz")).execute()
    with pytest.raises(UnsupportedFeature, match=r"Cannot compare at with a subquery on Spark"):
        table.delete().where("at IN (SELECT since FROM db.timestamp_ns)").execute()
    for rounded in ("(SELECT max(at) FROM db.timestamp_ns)", "since + INTERVAL 1 DAY", "coalesce(since, at)"):
        with pytest.raises(UnsupportedFeature, match=r"Cannot compare at with .* on Spark"):
            table.delete().where(f"at > {rounded}").execute()
    with pytest.raises(UnsupportedFeature, match=r"Cannot compare at with s.at on Spark"):
        table.merge("SELECT at FROM db.timestamp_ns", "t.at = s.at").when_matched_delete().execute()
    assert table.refresh().scan().count() == len(NANOS)
