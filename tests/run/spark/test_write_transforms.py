"""Transforms as Spark expressions; PyIceberg's scalar transforms are the oracle, in a session far from UTC."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.transforms import Transform, parse_transform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from pyspark.sql import SparkSession

from neve.run.spark.distribution import quoted_field_path, transform_column
from neve.run.spark.input_rows import as_dataframe
from neve.run.spark.session import temporary_options
from tests.support.far_times import DAY, HOUR, since_1970

EPOCH = datetime(1970, 1, 1)
ROWS = 300
SOURCE = random.Random(42)

SCHEMA = Schema(
    NestedField(1, "i", IntegerType()),
    NestedField(2, "l", LongType()),
    NestedField(3, "dec", DecimalType(9, 2)),
    NestedField(4, "wide", DecimalType(27, 4)),
    NestedField(5, "s", StringType()),
    NestedField(6, "b", BinaryType()),
    NestedField(7, "f8", FixedType(8)),
    NestedField(8, "f5", FixedType(5)),
    NestedField(9, "u", UUIDType()),
    NestedField(10, "d", DateType()),
    NestedField(11, "ts", TimestampType()),
    NestedField(12, "tz", TimestamptzType()),
    NestedField(13, "ns", TimestampNanoType()),
    NestedField(14, "in`ner.x", StructType(NestedField(15, "y", LongType()))),
)
TRANSFORMS = [
    parse_transform(t) for t in ("identity", "bucket[13]", "truncate[3]", "year", "month", "day", "hour", "void")
]


def micros() -> int:
    return SOURCE.choice([SOURCE.randrange(-3 * DAY, 3 * DAY), SOURCE.randrange(-70000 * DAY, 70000 * DAY)])


def text() -> str:
    return "".join(SOURCE.choice("ab é日😀\U0010ffff") for _ in range(SOURCE.randrange(9)))


def number(bits: int) -> int:
    return SOURCE.choice([SOURCE.randrange(-20, 20), SOURCE.randrange(-(2 ** (bits - 1)) + 9, 2 ** (bits - 1))])


def row() -> dict[str, Any]:
    ts, tz, ns = micros(), micros(), micros()
    full = {
        "i": number(32),
        "l": number(64),
        "dec": Decimal(number(28)).scaleb(-2),
        "wide": Decimal(number(64)).scaleb(-4),
        "s": text(),
        "b": SOURCE.randbytes(SOURCE.randrange(9)),
        "f8": SOURCE.randbytes(8),
        "f5": SOURCE.randbytes(5),
        "u": str(UUID(int=SOURCE.getrandbits(128))),
        "d": date(1970, 1, 1) + timedelta(days=SOURCE.randrange(-70000, 70000)),
        "ts": EPOCH + timedelta(microseconds=ts),
        "tz": EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=tz),
        "ns": EPOCH + timedelta(microseconds=ns),
        "in`ner.x": {"y": number(64)},
    }
    return {name: None if SOURCE.random() < 0.1 else value for name, value in full.items()}


def expected(transform: Transform[Any, Any], field: NestedField, value: Any) -> Any:
    """The oracle, given values as it wants them: counts for dates and times."""
    if value is None:
        return None
    match field.field_type:
        case DateType():
            value = (value - date(1970, 1, 1)).days
        case TimestampType() | TimestamptzType():
            value = (value.replace(tzinfo=None) - EPOCH) // timedelta(microseconds=1)
        case TimestampNanoType():
            value = (value - EPOCH) // timedelta(microseconds=1) * 1000
        case UUIDType():
            value = UUID(value)
    return transform.transform(field.field_type)(value)


def test_every_transform_of_every_type_agrees_with_the_oracle(spark: SparkSession):
    rows = [row() for _ in range(ROWS)]
    inner = pa.struct([("y", pa.int64())])
    kinds = {
        "dec": pa.decimal128(9, 2),
        "wide": pa.decimal128(27, 4),
        "in`ner.x": inner,
        "tz": pa.timestamp("us", "UTC"),
    }
    table = pa.table({n: pa.array([r[n] for r in rows], kinds.get(n)) for n in rows[0]})
    fields = [SCHEMA.find_field(f.field_id) for f in SCHEMA.fields if not isinstance(f.field_type, StructType)]
    pairs = [(f, t) for f in [*fields, SCHEMA.find_field(15)] for t in TRANSFORMS if t.can_transform(f.field_type)]
    columns = [
        transform_column(t, f, quoted_field_path(SCHEMA, f.field_id), is_text=True).alias(str(at))
        for at, (f, t) in enumerate(pairs)
    ]
    with temporary_options(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        found = as_dataframe(spark, table, SCHEMA).select(*columns).toArrow()
    for at, (field, transform) in enumerate(pairs):
        values = [r["in`ner.x"] and r["in`ner.x"]["y"] if field.name == "y" else r[field.name] for r in rows]
        if str(transform) == "identity":
            continue
        assert found[str(at)].to_pylist() == [expected(transform, field, v) for v in values], (field.name, transform)


def test_times_far_from_1970_agree_with_plain_integers(spark: SparkSession):
    """Hours that do not fit are null: the writer reports them."""
    times = [2**63 - 1, 2**62, 2**31 * HOUR, 2**31 * HOUR - 1, -(2**62), -(2**63) + DAY, -(2**31) * HOUR]
    frame = spark.createDataFrame([(m,) for m in times], "m bigint").selectExpr(
        "timestamp_micros(m) AS tz", "CAST(timestamp_micros(m) AS timestamp_ntz) AS ts"
    )
    fields, units = {f.name: f for f in SCHEMA.fields}, ("year", "month", "day", "hour")
    columns = [
        transform_column(parse_transform(unit), fields[name], name).alias(f"{name} {unit}")
        for name in ("tz", "ts")
        for unit in units
    ]
    with temporary_options(spark, {"spark.sql.session.timeZone": "UTC"}):
        found = frame.select(*columns).toArrow()
    for unit in units:
        counts = [since_1970(unit, m) for m in times]
        expected = [n if -(2**31) <= n < 2**31 else None for n in counts]
        assert found[f"tz {unit}"].to_pylist() == expected == found[f"ts {unit}"].to_pylist(), unit


def test_a_source_of_another_type_is_transformed_as_what_it_becomes(spark: SparkSession):
    df = spark.sql("select 7.0D as l, 34L as i, date'1969-12-31' as ts, timestamp_ntz'1969-12-31 00:00:00' as d")
    fields = {f.name: f for f in SCHEMA.fields}
    columns = [
        transform_column(parse_transform(t), fields[n], n).alias(f"{n}_{t[:3]}")
        for n, t in [
            ("l", "truncate[5]"),
            ("i", "bucket[16]"),
            ("ts", "hour"),
            ("ts", "bucket[16]"),
            ("d", "bucket[16]"),
        ]
    ]
    bucket = parse_transform("bucket[16]").transform
    assert df.select(*columns).collect()[0].asDict() == {
        "l_tru": 5,
        "i_buc": bucket(LongType())(34),
        "ts_hou": -24,
        "ts_buc": bucket(TimestampType())(-DAY),
        "d_buc": bucket(DateType())(-1),
    }
