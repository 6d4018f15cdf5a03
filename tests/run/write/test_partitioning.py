"""Partition values and rows by partition; PyIceberg's scalar transforms are the oracle."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, TruncateTransform, parse_transform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from neve.errors import UnsupportedFeature, UserError
from neve.model.partition import Specs
from neve.run.read.types import arrow_type
from neve.run.write.data_files import write_arrow_table
from neve.run.write.partitioning import Partitioner, apply_transform
from tests.support.far_times import DAY, HOUR, since_1970

MICROS = st.integers(-62135596800000000, 253402300799999999) | st.integers(-2 * DAY, 2 * DAY)
NANOS = st.integers(-(2**63) + 1000, 2**63 - 1) | st.integers(-2000, 2000)

VALUES: dict[str, tuple[IcebergType, st.SearchStrategy[Any]]] = {
    "int": (IntegerType(), st.integers(-(2**31) + 100, 2**31 - 1)),
    "long": (LongType(), st.integers(-(2**63) + 100, 2**63 - 1)),
    "decimal": (DecimalType(9, 2), st.decimals(-9999999, 9999999, places=2)),
    "wide decimal": (DecimalType(38, 10), st.decimals(-(10**20), 10**20, places=10)),
    "string": (StringType(), st.text(max_size=12)),
    "binary": (BinaryType(), st.binary(max_size=12)),
    "fixed": (FixedType(5), st.binary(min_size=5, max_size=5)),
    "uuid": (UUIDType(), st.uuids()),
    "date": (DateType(), st.integers(-719162, 2932896)),
    "time": (TimeType(), st.integers(0, DAY - 1)),
    "timestamp": (TimestampType(), MICROS),
    "timestamptz": (TimestamptzType(), MICROS),
    "timestamp_ns": (TimestampNanoType(), NANOS),
    "timestamptz_ns": (TimestamptzNanoType(), NANOS),
}
TRANSFORMS = [parse_transform(t) for t in ("bucket[7]", "truncate[3]", "year", "month", "day", "hour", "identity")]
PAIRS = [
    pytest.param(kind, values, transform, id=f"{name}-{transform}")
    for name, (kind, values) in VALUES.items()
    for transform in TRANSFORMS
    if transform.can_transform(kind)
]


def column(values: list[Any], kind: IcebergType) -> pa.Array:
    if isinstance(kind, UUIDType):
        return pa.array([v and v.bytes for v in values], pa.binary(16)).cast(pa.uuid())
    return pa.array(values, arrow_type(kind))


def plain(values: pa.Array) -> list[Any]:
    if values.type == pa.binary(16):
        return [v and UUID(bytes=v) for v in values.to_pylist()]
    wide = pa.int32() if pa.types.is_date32(values.type) else pa.int64()
    return list((values.cast(wide) if pa.types.is_temporal(values.type) else values).to_pylist())


@pytest.mark.parametrize(("kind", "values", "transform"), PAIRS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_values_are_those_of_the_scalar_transform(
    kind: IcebergType, values: st.SearchStrategy[Any], transform: Any, data: st.DataObject
):
    given_values = data.draw(st.lists(values | st.none(), min_size=1, max_size=20))
    if isinstance(kind, DecimalType):  # the oracle rounds to the precision of Python's context
        given_values = [
            v and v.quantize(Decimal(1).scaleb(-kind.scale), context=Context(prec=60)) for v in given_values
        ]
        if isinstance(transform, TruncateTransform):
            given_values = [v if v is None or abs(v) < 10**15 else Decimal(0) for v in given_values]
    expected = [None if v is None else transform.transform(kind)(v) for v in given_values]
    assert plain(apply_transform(transform, kind, column(given_values, kind))) == expected


WHOLE_RANGES: dict[str, tuple[IcebergType, int, int, int]] = {
    "date": (DateType(), DAY, -(2**31), 2**31 - 1),
    "timestamp": (TimestampType(), 1, -(2**63), 2**63 - 1),
    "timestamptz": (TimestamptzType(), 1, -(2**63), 2**63 - 1),
}


@pytest.mark.parametrize(("kind", "micros", "first", "last"), WHOLE_RANGES.values(), ids=WHOLE_RANGES)
@pytest.mark.parametrize("unit", ["year", "month", "day", "hour"])
@given(data=st.data())
def test_times_of_the_whole_range_have_their_partition(
    kind: IcebergType, micros: int, first: int, last: int, unit: str, data: st.DataObject
):
    """2**63 - 1 microseconds stand for infinity in many systems."""
    transform = parse_transform(unit)
    if not transform.can_transform(kind):
        return
    if unit == "hour":  # those that an int holds
        first, last = -(2**31) * HOUR, 2**31 * HOUR - 1
    times = st.integers(first, last) | st.sampled_from([first, first + 1, -1, 0, last - 1, last])
    values = data.draw(st.lists(times | st.none(), min_size=1, max_size=20))
    expected = [None if v is None else since_1970(unit, v * micros) for v in values]
    assert plain(apply_transform(transform, kind, column(values, kind))) == expected


@pytest.mark.parametrize("micros", [2**31 * HOUR, -(2**31) * HOUR - 1, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("use", ["partition", "sort order"])
def test_hours_that_do_not_fit_are_refused(aim: Any, micros: int, use: str):
    rows = pa.table({"at": pa.array([0, None, micros], pa.int64()).cast(pa.timestamp("us", "UTC"))})
    order = SortOrder(SortField(3, parse_transform("hour"), SortDirection.ASC, NullOrder.NULLS_FIRST), order_id=1)
    target = aim(SCHEMA, [(3, "hour")]) if use == "partition" else aim(SCHEMA, sort_order=order)
    with pytest.raises(UserError, match="hour of column 'at': a timestamp is more than 2147483647 hours from 1970"):
        write_arrow_table(rows, target)


def test_decimals_may_lie_at_any_address():
    values = [Decimal("1.23"), Decimal("-4.56")]
    raw = bytes(8) + b"".join(int(v.scaleb(2)).to_bytes(16, "little", signed=True) for v in values)
    memory = pa.allocate_buffer(len(raw) + 16)
    pa.FixedSizeBufferWriter(memory).write(raw)
    odd = pa.Array.from_buffers(pa.decimal128(9, 2), 2, [None, memory.slice(8, 32)])
    bucket = BucketTransform(100)
    expected = [bucket.transform(DecimalType(9, 2))(v) for v in values]
    assert apply_transform(bucket, DecimalType(9, 2), odd).to_pylist() == expected


def test_buckets_of_nanoseconds_are_those_of_microseconds_before_1970_too():
    nanos, micros = [-1, -1000, -1001, 1_512_151_975_038_194_123], [-1, -1, -2, 1_512_151_975_038_194]
    bucket = BucketTransform(1000)
    found = apply_transform(bucket, TimestampNanoType(), pa.array(nanos, pa.timestamp("ns")))
    assert found.to_pylist() == [bucket.transform(TimestampType())(v) for v in micros]


SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "at", TimestamptzType()),
    NestedField(4, "inner", StructType(NestedField(5, "region", StringType()))),
    NestedField(6, "score", DoubleType()),
)


def partitioner(*fields: tuple[int, str], schema: Schema = SCHEMA) -> Partitioner:
    made = [PartitionField(s, 1000 + at, parse_transform(t), f"f{at}") for at, (s, t) in enumerate(fields)]
    return Partitioner(schema, Specs({0: PartitionSpec(*made, spec_id=0)}, 0, (schema,)), 0)


def batch(**columns: list[Any]) -> pa.RecordBatch:
    kinds = {f.name: arrow_type(f.field_type) for f in SCHEMA.fields}
    return pa.RecordBatch.from_arrays([pa.array(v, kinds[n]) for n, v in columns.items()], names=list(columns))


def test_every_row_is_in_the_piece_of_its_partition():
    rows = batch(id=list(range(100)), name=[None if i % 7 == 0 else "abc"[i % 3] for i in range(100)])
    pieces = list(partitioner((2, "identity"), (1, "truncate[10]")).split_by_partition(rows))
    seen = {}
    for piece in pieces:
        assert piece.key not in seen
        seen[piece.key] = piece.rows["id"].to_pylist()
        for i in seen[piece.key]:
            assert piece.key == (None if i % 7 == 0 else "abc"[i % 3], i - i % 10)
    assert sorted(i for ids in seen.values() for i in ids) == list(range(100))
    assert all(ids == sorted(ids) for ids in seen.values()), "rows keep their order"


def test_the_tuple_of_a_piece_is_typed_as_the_union_column():
    rows = batch(at=[datetime(1969, 12, 31, 23, tzinfo=UTC)] * 2)
    (piece,) = partitioner((3, "day")).split_by_partition(rows)
    assert piece.key == (-1,)
    assert piece.tuple_row.to_pylist() == [{"p1000": date(1969, 12, 31)}]


def test_rows_that_lie_together_are_not_copied():
    rows = batch(name=["a"] * 10 + ["b"] * 10)
    first, second = partitioner((2, "identity")).split_by_partition(rows)
    address = rows["name"].buffers()[1].address
    assert first.rows["name"].buffers()[1].address == address == second.rows["name"].buffers()[1].address


def test_a_struct_that_is_null_has_a_null_partition():
    rows = batch(inner=[{"region": "eu"}, None, {"region": None}])
    keys = {p.key: p.rows.num_rows for p in partitioner((5, "identity")).split_by_partition(rows)}
    assert keys == {("eu",): 1, (None,): 2}


def test_nan_is_one_partition_and_the_zeros_are_two():
    rows = batch(score=[math.nan, 0.0, -0.0, math.nan, None])
    keys = {p.key: p.rows.num_rows for p in partitioner((6, "identity")).split_by_partition(rows)}
    assert keys == {("nan",): 2, ("0.0",): 1, ("-0.0",): 1, (None,): 1}


def test_a_spec_of_void_fields_does_not_separate_rows():
    one = partitioner((1, "void"), (2, "void"))
    (piece,) = one.split_by_partition(batch(id=[1, 2], name=["a", "b"]))
    assert (piece.key, one.path(piece.key)) == ((), "")


def test_a_void_field_beside_others_is_null():
    rows = batch(id=[1, 2], name=["a", "b"])
    pieces = list(partitioner((1, "void"), (2, "identity")).split_by_partition(rows))
    assert [p.key for p in pieces] == [(None, "a"), (None, "b")]
    assert pieces[0].tuple_row.to_pylist() == [{"p1000": None, "p1001": "a"}]


def test_timestamps_far_outside_the_calendar_of_python_are_partitioned():
    far = pa.array([2**60], pa.int64()).cast(pa.timestamp("us", "UTC"))
    rows = pa.RecordBatch.from_arrays([far], names=["at"])
    (piece,) = partitioner((3, "day")).split_by_partition(rows)
    assert piece.key == ((2**60) // DAY,)
    assert partitioner((3, "day")).path(piece.key) == "f0=38504-08-17"


def test_a_spec_on_a_dropped_column_is_refused():
    older = Schema(*SCHEMA.fields, NestedField(9, "gone", StringType()))
    spec = PartitionSpec(PartitionField(9, 1000, parse_transform("identity"), "gone"), spec_id=0)
    with pytest.raises(UserError, match="'gone'"):
        Partitioner(SCHEMA, Specs({0: spec}, 0, (SCHEMA, older)), 0).check()


def test_an_unknown_transform_is_refused():
    with pytest.raises(UnsupportedFeature, match="spec 0"):
        partitioner((1, "zigzag")).check()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (DecimalType(9, 2), [Decimal("1.25"), Decimal("-1.25"), None]),
        (UUIDType(), [UUID(int=1), UUID(int=2), None]),
        (FixedType(3), [b"abc", b"abd", None]),
        (BinaryType(), [b"", b"\xff", None]),
        (TimeType(), [0, 1, None]),
        (TimestampNanoType(), [-1, 1, None]),
    ],
)
def test_rows_of_every_type_are_told_apart(kind: IcebergType, values: list[Any]):
    schema = Schema(NestedField(1, "v", kind))
    rows = pa.RecordBatch.from_arrays([column([*values, *values], kind)], names=["v"])
    pieces = list(partitioner((1, "identity"), schema=schema).split_by_partition(rows))
    assert {p.key: p.rows.num_rows for p in pieces} == {(v,): 2 for v in values}


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 3)), min_size=1, max_size=60))
def test_pieces_agree_with_a_dictionary(values: list[tuple[str | None, int]]):
    rows = batch(name=[n for n, _ in values], id=[i for _, i in values])
    expected: dict[Any, list[int]] = {}
    for name, i in values:
        expected.setdefault((name, i), []).append(i)
    pieces = {
        p.key: p.rows["id"].to_pylist() for p in partitioner((2, "identity"), (1, "identity")).split_by_partition(rows)
    }
    assert pieces == expected


def test_days_and_hours_before_1970_round_towards_the_past():
    at = datetime(1970, 1, 1, tzinfo=UTC) - timedelta(microseconds=1)
    assert [p.key for p in partitioner((3, "hour"), (3, "day")).split_by_partition(batch(at=[at]))] == [(-1, -1)]
