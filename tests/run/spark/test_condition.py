"""PyIceberg expressions as conditions on rows in Spark: each keeps the rows it keeps elsewhere."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyspark.sql import SparkSession

import neve

KEY = uuid.UUID("12345678-1234-5678-1234-567812345678")
DDL = (
    "id bigint, n int, f double, m decimal(8, 2), s string, b boolean, d date, ts timestamp, ntz timestamp_ntz, "
    "u uuid, x struct<y: int>, raw binary"
)
FULL = {
    "id": 1,
    "n": 5,
    "f": 1.5,
    "m": Decimal("2.50"),
    "s": "apple",
    "b": True,
    "d": date(2026, 1, 2),
    "ts": datetime(2026, 1, 2, 3, tzinfo=UTC),
    "ntz": datetime(2026, 1, 2, 3),
    "u": KEY.bytes,
    "x": {"y": 7},
    "raw": b"ab",
}
OTHER = FULL | {"id": 2, "n": 9, "f": float("nan"), "m": Decimal("9"), "s": "pear", "b": False, "d": date(2027, 1, 1)}

CONDITIONS = [
    EqualTo("id", 1),
    NotEqualTo("n", 5),
    LessThan("n", 9),
    LessThanOrEqual("f", 1.5),
    GreaterThan("f", 1.0),
    IsNaN("f"),
    EqualTo("m", Decimal("2.50")),
    StartsWith("s", "app"),
    NotStartsWith("s", "app"),
    EqualTo("b", False),
    GreaterThanOrEqual("d", "2026-06-01"),
    EqualTo("ts", "2026-01-02T03:00:00+00:00"),
    EqualTo("ntz", "2026-01-02T03:00:00"),
    EqualTo("u", str(KEY)),
    EqualTo("raw", b"ab"),
    EqualTo("x.y", 7),
    In("s", ["apple", "plum"]),
    NotIn("id", [1, 7]),
    IsNull("s"),
    Not(And(EqualTo("id", 1), Or(EqualTo("s", "apple"), IsNull("n")))),
]


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> neve.Table:
    made = neve.connect(tmp_path_factory.mktemp("conditions"), spark=spark).create_table("db.t", DDL)
    made.append([FULL, OTHER, {"id": 3}])
    return made


@pytest.mark.parametrize("where", CONDITIONS, ids=str)
def test_a_condition_keeps_the_same_rows_on_spark_and_here(table: neve.Table, where: BooleanExpression):
    def ids(found: pa.Table) -> list[int]:
        return sorted(found["id"].to_pylist())

    scan = table.scan(where, columns=["id"])
    assert ids(scan.to_arrow("spark")) == ids(scan.to_arrow("arrow"))
