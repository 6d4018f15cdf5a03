"""The hashes of values are MurmurHash3 of the bytes that Iceberg's single-value serialization gives them."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from typing import Any

import mmh3
import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from neve.errors import UnsupportedFeature
from neve.io.theta import SEED
from neve.run.value_hashes import hash_values

RANDOM = random.Random(7)
ROWS: list[tuple[IcebergType, pa.DataType, list[Any]]] = [
    (IntegerType(), pa.int32(), [0, 1, -1, 2**31 - 1, -(2**31)]),
    (LongType(), pa.int64(), [0, 1, -1, 2**63 - 1, -(2**63)]),
    (FloatType(), pa.float32(), [0.0, -1.5, float("inf")]),
    (DoubleType(), pa.float64(), [0.0, -1.5, 1e300]),
    (DateType(), pa.date32(), [date(1969, 12, 31), date(2026, 1, 1)]),
    (TimeType(), pa.time64("us"), [time(0), time(23, 59, 59, 999999)]),
    (TimestampType(), pa.timestamp("us"), [datetime(1969, 12, 31), datetime(2026, 1, 1, 1, 2, 3, 4)]),
    (TimestamptzType(), pa.timestamp("us", "UTC"), [datetime(2026, 1, 1, tzinfo=UTC)]),
    (StringType(), pa.string(), ["a", "é", "x" * 15, "x" * 16, "x" * 17, "y" * 33, "\0"]),
    (StringType(), pa.large_string(), ["a", "z" * 100]),
    (BinaryType(), pa.binary(), [RANDOM.randbytes(n) for n in range(1, 50)]),
    (FixedType(3), pa.binary(3), [b"abc", b"\0\0\0"]),
    (UUIDType(), pa.uuid(), [uuid.UUID(int=7), uuid.UUID(int=2**128 - 1)]),
]


def peer_hash(data: bytes) -> int:
    return mmh3.hash64(data, SEED, x64arch=True, signed=False)[0] >> 1


@pytest.mark.parametrize(("kind", "arrow", "values"), ROWS, ids=lambda v: str(v) if isinstance(v, pa.DataType) else "")
def test_values_of_every_type(kind: IcebergType, arrow: pa.DataType, values: list[Any]):
    column = pa.array([None, *values, None], arrow)
    expected = [peer_hash(to_bytes(kind, v)) for v in values]
    assert hash_values(column).tolist() == expected
    assert hash_values(column.slice(2)).tolist() == expected[1:], "a slice has its own values"


def test_booleans_are_one_byte():
    column = pa.array([True, None, False] * 9)
    expected = [peer_hash(to_bytes(BooleanType(), v)) for v in (False, True, False)]
    assert hash_values(column.slice(2, 4)).tolist() == expected


def test_decimals_have_the_fewest_bytes():
    edges = [s * (256**n // d + e) for n in range(1, 16) for d in (1, 2) for e in (-1, 0, 1) for s in (1, -1)]
    values = [Decimal(n).scaleb(-2, Context(prec=38)) for n in [0, *edges] if abs(n) < 10**37]
    found = hash_values(pa.array(values, pa.decimal128(38, 2)))
    assert found.tolist() == [peer_hash(to_bytes(DecimalType(38, 2), v)) for v in values]


def test_empty_values_have_no_hash():
    assert hash_values(pa.array(["", None, "a"])).tolist() == [peer_hash(b"a")]
    for empty in (pa.array([], pa.string()), pa.array([None], pa.int64()), pa.array([None], pa.decimal128(5, 2))):
        assert hash_values(empty).tolist() == []


def test_lists_are_refused():
    with pytest.raises(UnsupportedFeature, match="list<item: int64>"):
        hash_values(pa.array([[1]]))
