"""Single values as columns, judged by PyIceberg's own conversion of one value at a time."""

from __future__ import annotations

import math
import struct
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes, to_bytes
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
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from neve.model.partition import value_arrow_type
from neve.model.values import comparable_scalar, decode_comparable, decode_values, encode_values, to_comparable

LONGS = st.integers(-(2**63), 2**63 - 1)
DATETIMES = st.datetimes(datetime(1600, 1, 1), datetime(2260, 1, 1))

VALUES: dict[IcebergType, st.SearchStrategy[Any]] = {
    BooleanType(): st.booleans(),
    IntegerType(): st.integers(-(2**31), 2**31 - 1),
    LongType(): LONGS,
    FloatType(): st.floats(width=32, allow_nan=False),
    DoubleType(): st.floats(allow_nan=False),
    DateType(): st.dates(date(1600, 1, 1), date(2260, 1, 1)),
    TimeType(): st.times(),
    TimestampType(): DATETIMES,
    TimestamptzType(): DATETIMES.map(lambda d: d.replace(tzinfo=UTC)),
    StringType(): st.text(),
    UUIDType(): st.uuids().map(lambda u: u.bytes),
    FixedType(5): st.binary(min_size=5, max_size=5),
    BinaryType(): st.binary(),
    DecimalType(9, 2): st.decimals(-9999999, 9999999, places=2),
    DecimalType(38, 10): st.decimals(-(10**27), 10**27, places=10),
}


@st.composite
def typed_columns(draw: st.DrawFn) -> tuple[IcebergType, list[Any]]:
    kind = draw(st.sampled_from(list(VALUES)))
    return kind, draw(st.lists(st.none() | VALUES[kind], max_size=12))


@given(typed_columns())
@settings(max_examples=150, deadline=None)
def test_encoding_a_column_equals_encoding_each_value(column: tuple[IcebergType, list[Any]]) -> None:
    kind, values = column
    expected = [None if v is None else to_bytes(kind, v) for v in values]
    assert encode_values(pa.array(values, value_arrow_type(kind)), kind).to_pylist() == expected


@given(typed_columns(), st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_decoding_a_column_gives_the_values_back(column: tuple[IcebergType, list[Any]], skipped: int) -> None:
    kind, values = column
    stored = pa.array([None if v is None else to_bytes(kind, v) for v in values], pa.binary())
    found = decode_values(stored.slice(skipped), kind)
    assert found.type == value_arrow_type(kind)
    assert found.to_pylist() == pa.array(values[skipped:], value_arrow_type(kind)).to_pylist()


@given(typed_columns())
@settings(max_examples=100, deadline=None)
def test_bytes_and_values_compare_alike(column: tuple[IcebergType, list[Any]]) -> None:
    kind, values = column
    stored = pa.array([None if v is None else to_bytes(kind, v) for v in values], pa.binary())
    assert decode_comparable(stored, kind).equals(to_comparable(pa.array(values, value_arrow_type(kind)), kind))


@given(typed_columns())
@settings(max_examples=100, deadline=None)
def test_the_order_of_columns_is_the_order_of_the_values(column: tuple[IcebergType, list[Any]]) -> None:
    kind, values = column
    present = [v for v in values if v is not None]
    found = to_comparable(pa.array(present, value_arrow_type(kind)), kind)
    by_column = [present[i] for i in pa.compute.sort_indices(found).to_pylist()]
    key = (lambda v: v.encode()) if isinstance(kind, StringType) else (lambda v: v)
    assert [key(v) for v in by_column] == sorted(key(v) for v in present)


def test_a_date_that_has_no_nanoseconds_is_no_bound() -> None:
    last, first = (to_bytes(DateType(), day) for day in (date(9999, 12, 31), date(1, 1, 1)))
    assert decode_comparable(pa.array([last, first]), TimestampNanoType()).to_pylist() == [None, None]
    assert decode_comparable(pa.array([last]), TimestampType()).to_pylist() == [253402214400000000]


def test_a_promoted_column_reads_the_bytes_of_its_old_type() -> None:
    assert decode_values(pa.array([struct.pack("<i", -7), struct.pack("<q", 2**40)]), LongType()).to_pylist() == [
        -7,
        2**40,
    ]
    assert decode_values(pa.array([struct.pack("<f", 0.5), struct.pack("<d", 0.1)]), DoubleType()).to_pylist() == [
        0.5,
        0.1,
    ]
    day = to_bytes(DateType(), date(1969, 12, 31))
    assert decode_values(pa.array([day]), TimestampType()).to_pylist() == [datetime(1969, 12, 31)]
    assert decode_comparable(pa.array([day]), TimestampNanoType()).to_pylist() == [-86_400 * 10**9]
    narrow = to_bytes(DecimalType(4, 2), Decimal("-12.34"))
    assert decode_values(pa.array([narrow]), DecimalType(20, 2)).to_pylist() == [Decimal("-12.34")]


@pytest.mark.parametrize("kind", [k for k in VALUES if not isinstance(k, StringType | BinaryType)], ids=str)
def test_bytes_of_an_impossible_length_are_not_known(kind: IcebergType) -> None:
    wrong = [b"", b"x" * 17, None] if isinstance(kind, DecimalType) else [b"", b"123", b"x" * 17, None]
    assert decode_comparable(pa.array(wrong), kind).null_count == len(wrong)


def test_a_decimal_too_long_for_its_type_is_not_known() -> None:
    stored = pa.array([to_bytes(DecimalType(9, 2), Decimal("1234567.89"))])
    assert decode_comparable(stored, DecimalType(8, 2)).to_pylist() == [None]


def test_nan_and_text_that_is_none_are_not_known() -> None:
    assert decode_comparable(pa.array([struct.pack("<d", math.nan)]), DoubleType()).to_pylist() == [None]
    assert decode_values(pa.array([b"ok", b"\xff\xfe"]), StringType()).to_pylist() == ["ok", None]


def test_negative_zero_equals_zero() -> None:
    assert struct.pack("<d", decode_comparable(pa.array([struct.pack("<d", -0.0)]), DoubleType())[0].as_py()) == bytes(
        8
    )


def test_literals_compare_with_columns() -> None:
    one = uuid.UUID(int=1)
    assert comparable_scalar(one, UUIDType()).as_py() == comparable_scalar(str(one), UUIDType()).as_py() == one.bytes
    assert comparable_scalar(Decimal("1.50"), DecimalType(9, 2)).type == pa.decimal128(38, 2)
    assert comparable_scalar(True, BooleanType()).as_py() == 1


def test_decoding_agrees_with_the_reference_on_random_bytes() -> None:
    stored = [bytes([i, 255 - i, i // 2, 7]) for i in range(256)]
    expected = [from_bytes(IntegerType(), b) for b in stored]
    assert decode_values(pa.array(stored), IntegerType()).to_pylist() == expected


def test_time_of_day_keeps_its_microseconds() -> None:
    assert decode_values(encode_values(pa.array([time(23, 59, 59, 999999)]), TimeType()), TimeType()).to_pylist() == [
        time(23, 59, 59, 999999)
    ]
