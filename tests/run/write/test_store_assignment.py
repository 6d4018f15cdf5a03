"""What may be stored in a column, and how."""

from __future__ import annotations

import io
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
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
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from neve.errors import UnknownName, UserError
from neve.run.write.file_schema import arrow_file_schema
from neve.run.write.store_assignment import _offsets, assign_rows, check_assignable

BERLIN = pa.timestamp("us", "Europe/Berlin")


def stored(rows: pa.Table, schema: Schema) -> list[dict[str, Any]]:
    check_assignable(rows.schema, schema)
    (batch,) = rows.combine_chunks().to_batches()
    return list(assign_rows(batch, schema, arrow_file_schema(schema)).to_pylist())


def stored_as(kind: IcebergType, values: pa.Array) -> list[Any]:
    return [r["v"] for r in stored(pa.table({"v": values}), Schema(NestedField(1, "v", kind)))]


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (LongType(), pa.array([1, None], pa.int8()), [1, None]),
        (IntegerType(), pa.array([2**31 - 1], pa.int64()), [2**31 - 1]),
        (LongType(), pa.array([7], pa.uint64()), [7]),
        (LongType(), pa.array([3.0, None]), [3, None]),
        (IntegerType(), pa.array([Decimal("5.00")]), [5]),
        (DoubleType(), pa.array([2**53]), [float(2**53)]),
        (DoubleType(), pa.array([0.5, math.inf], pa.float32()), [0.5, math.inf]),
        (FloatType(), pa.array([0.1, -math.inf, None]), [pytest.approx(0.1), -math.inf, None]),
        (DecimalType(5, 2), pa.array([12, None], pa.int64()), [Decimal("12.00"), None]),
        (DecimalType(5, 2), pa.array([Decimal("1.5")]), [Decimal("1.50")]),
        (DecimalType(5, 2), pa.array([Decimal("1.5000")]), [Decimal("1.50")]),
        (DecimalType(5, 2), pa.array([0.1, None]), [Decimal("0.10"), None]),
        (StringType(), pa.array([1, None]), ["1", None]),
        (StringType(), pa.array([True]), ["true"]),
        (StringType(), pa.array([date(2026, 1, 2)]), ["2026-01-02"]),
        (StringType(), pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        (StringType(), pa.array(["a"], pa.large_string()), ["a"]),
        (StringType(), pa.array(["a"], pa.string_view()), ["a"]),
        (BinaryType(), pa.array([b"ab"], pa.binary(2)), [b"ab"]),
        (FixedType(2), pa.array([b"ab", None]), [b"ab", None]),
        (UUIDType(), pa.array([str(UUID(int=5)), None, str(UUID(int=2**127))]), [UUID(int=5), None, UUID(int=2**127)]),
        (UUIDType(), pa.array([UUID(int=5).bytes, None]), [UUID(int=5), None]),
        (UUIDType(), pa.array([None], pa.string()), [None]),
        (UUIDType(), pa.array([None, str(UUID(int=5))], pa.large_string()).slice(1), [UUID(int=5)]),
        (UUIDType(), pa.array([str(UUID(int=5)), None], pa.string_view()), [UUID(int=5), None]),
        (DateType(), pa.array([datetime(2026, 1, 2), None], pa.timestamp("ns")), [date(2026, 1, 2), None]),
        (TimeType(), pa.array([time(1, 2, 3)], pa.time32("s")), [time(1, 2, 3)]),
        (TimestampType(), pa.array([date(2026, 1, 2)]), [datetime(2026, 1, 2)]),
        (TimestampType(), pa.array([datetime(1950, 1, 2)], pa.timestamp("ms")), [datetime(1950, 1, 2)]),
        (TimestamptzType(), pa.array([0], BERLIN), [datetime(1970, 1, 1, tzinfo=UTC)]),
        (BooleanType(), pa.nulls(2), [None, None]),
    ],
)
def test_a_value_that_arrives_whole_is_stored(kind: IcebergType, values: pa.Array, expected: list[Any]):
    assert stored_as(kind, values) == expected


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (IntegerType(), pa.array([2**31])),
        (LongType(), pa.array([2**63], pa.uint64())),
        (LongType(), pa.array([1.5])),
        (LongType(), pa.array([math.nan])),
        (IntegerType(), pa.array([Decimal("5.5")])),
        (DoubleType(), pa.array([2**53 + 1])),
        (FloatType(), pa.array([2**24 + 1])),
        (FloatType(), pa.array([1e39])),
        (DecimalType(5, 2), pa.array([1000])),
        (DecimalType(5, 2), pa.array([Decimal("1.555")])),
        (DecimalType(5, 2), pa.array([0.123])),
        (DecimalType(5, 2), pa.array([math.nan])),
        (FixedType(2), pa.array([b"abc"])),
        (UUIDType(), pa.array(["not a uuid"])),
        (UUIDType(), pa.array(["g" * 32])),
        (UUIDType(), pa.array(["0" * 30 + " \n"])),
        (UUIDType(), pa.array(["é" * 16])),
        (UUIDType(), pa.array([b"short"])),
        (DateType(), pa.array([datetime(2026, 1, 2, 3)])),
        (TimestampType(), pa.array([1], pa.timestamp("ns"))),
        (TimestampNanoType(), pa.array([2**62], pa.timestamp("us"))),
        (TimeType(), pa.array([1], pa.time64("ns"))),
    ],
)
def test_a_value_that_would_change_is_refused(kind: IcebergType, values: pa.Array):
    with pytest.raises(UserError, match="column 'v'"):
        stored_as(kind, values)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (LongType(), pa.array(["1"])),
        (BooleanType(), pa.array([1])),
        (StringType(), pa.array([1.5])),
        (StringType(), pa.array([b"x"])),
        (BinaryType(), pa.array(["x"])),
        (DateType(), pa.array(["2026-01-01"])),
        (TimestampType(), pa.array([0], BERLIN)),
        (TimestamptzType(), pa.array([0], pa.timestamp("us"))),
        (LongType(), pa.array([[1]])),
        (ListType(2, LongType(), False), pa.array([1])),
        (StructType(NestedField(2, "x", LongType())), pa.array([1])),
        (UnknownType(), pa.array([1])),
    ],
)
def test_a_type_that_does_not_fit_is_refused_before_any_value_is_seen(kind: IcebergType, values: pa.Array):
    with pytest.raises(UserError, match="'v'"):
        check_assignable(pa.schema([("v", values.type)]), Schema(NestedField(1, "v", kind)))


def test_columns_are_matched_by_name_and_by_case_only_when_nothing_else_matches():
    schema = Schema(NestedField(1, "a", LongType()), NestedField(2, "Bee", LongType()))
    assert stored(pa.table({"bee": [2], "a": [1]}), schema) == [{"a": 1, "Bee": 2}]
    twins = Schema(NestedField(1, "x", LongType()), NestedField(2, "X", LongType()))
    assert stored(pa.table({"X": [2], "x": [1]}), twins) == [{"x": 1, "X": 2}]


def test_unknown_columns_are_named():
    schema = Schema(NestedField(1, "region", LongType()))
    with pytest.raises(UnknownName, match=r"'regoin'.*'region'"):
        stored(pa.table({"regoin": [1]}), schema)
    with pytest.raises(UserError, match="'x', 'y'"):
        stored(pa.table({"x": [1], "region": [1], "y": [1]}), schema)


def test_a_column_given_twice_is_refused():
    schema = Schema(NestedField(1, "a", LongType()))
    with pytest.raises(UserError, match="Duplicate column 'a'"):
        check_assignable(pa.schema([("a", pa.int64()), ("a", pa.int64())]), schema)


def test_what_rows_leave_out_takes_the_write_default_or_null():
    schema = Schema(
        NestedField(1, "a", LongType()),
        NestedField(2, "day", DateType(), write_default=1),
        NestedField(3, "key", UUIDType(), required=True, write_default=UUID(int=9)),
        NestedField(4, "none", StringType()),
        NestedField(5, "price", DecimalType(5, 2), write_default=Decimal("1.50")),
        NestedField(6, "at", TimestamptzType(), write_default=1_000_000),
    )
    assert stored(pa.table({"a": [1]}), schema) == [
        {
            "a": 1,
            "day": date(1970, 1, 2),
            "key": UUID(int=9),
            "none": None,
            "price": Decimal("1.50"),
            "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        }
    ]


def test_a_null_that_is_given_is_not_replaced_by_the_default():
    schema = Schema(NestedField(1, "a", LongType(), write_default=5))
    assert stored(pa.table({"a": pa.array([None, 1], pa.int64())}), schema) == [{"a": None}, {"a": 1}]


def test_a_missing_required_column_is_refused():
    schema = Schema(NestedField(1, "a", LongType(), required=True), NestedField(2, "b", LongType()))
    with pytest.raises(UserError, match="Missing column 'a'"):
        check_assignable(pa.schema([("b", pa.int64())]), schema)


NESTED = Schema(
    NestedField(1, "s", StructType(NestedField(2, "x", LongType(), required=True), NestedField(3, "y", StringType()))),
    NestedField(4, "l", ListType(5, IntegerType(), element_required=True)),
    NestedField(6, "m", MapType(7, StringType(), 8, LongType(), value_required=True)),
)


def nested(**columns: Any) -> pa.Table:
    kinds = {
        "s": pa.struct([("Y", pa.string()), ("x", pa.int32())]),
        "l": pa.large_list(pa.int64()),
        "m": pa.map_(pa.string(), pa.int32()),
    }
    return pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()})


def test_nested_values_are_matched_by_name_and_converted():
    rows = nested(s=[{"x": 1, "Y": "a"}, None], l=[[1, 2], None], m=[[("k", 1)], None])
    assert stored(rows, NESTED) == [
        {"s": {"x": 1, "y": "a"}, "l": [1, 2], "m": [("k", 1)]},
        {"s": None, "l": None, "m": None},
    ]


def test_a_slice_of_nested_rows_keeps_its_own_values():
    rows = nested(s=[None, {"x": 1}, {"x": 2}], l=[[9], [1, 2], []], m=[[("z", 9)], [("k", 1)], []]).slice(1)
    batch = rows.to_batches()[0]
    assert assign_rows(batch, NESTED, arrow_file_schema(NESTED)).to_pylist() == [
        {"s": {"x": 1, "y": None}, "l": [1, 2], "m": [("k", 1)]},
        {"s": {"x": 2, "y": None}, "l": [], "m": []},
    ]


@pytest.mark.parametrize(
    ("rows", "where"),
    [
        (nested(s=[{"x": None}]), "s.x"),
        (nested(l=[[1, None]]), "l.element"),
        (nested(m=[[("k", None)]]), "m.value"),
    ],
)
def test_a_null_in_a_required_part_names_it(rows: pa.Table, where: str):
    with pytest.raises(UserError, match=f"Null in required column '{where}'"):
        stored(rows, NESTED)


def test_a_null_struct_hides_its_required_fields():
    assert stored(nested(s=[None]), NESTED)[0]["s"] is None


DEEP = Schema(
    NestedField(
        1,
        "s",
        StructType(
            NestedField(2, "a", LongType(), required=True),
            NestedField(3, "b", StringType(), required=True),
            NestedField(4, "u", UUIDType(), required=True),
            NestedField(5, "l", ListType(6, LongType(), True), required=True),
            NestedField(7, "m", MapType(8, StringType(), 9, LongType(), True), required=True),
            NestedField(10, "t", StructType(NestedField(11, "d", DecimalType(9, 2), required=True)), required=True),
            NestedField(12, "f", BooleanType(), required=True),
        ),
    )
)


@pytest.mark.parametrize("given", ["nothing", "nulls", "null structs"])
def test_a_null_struct_of_required_fields_can_be_written_and_read(given: str):
    kinds = arrow_file_schema(DEEP)
    loose = pa.struct([f.with_nullable(True).with_metadata(None) for f in kinds.field("s").type if f.name != "u"])
    columns = {
        "nothing": pa.table({"s": pa.nulls(2)}),
        "nulls": pa.table({"s": pa.array([None, None], pa.struct([*loose, pa.field("u", pa.string())]))}),
        "null structs": pa.table(
            {
                "s": pa.StructArray.from_arrays(
                    [pa.nulls(2, f.type) for f in [*loose, pa.field("u", pa.string())]],
                    fields=[*loose, pa.field("u", pa.string())],
                    mask=pa.array([True, True]),
                )
            }
        ),
    }
    batch = assign_rows(columns[given].to_batches()[0], DEEP, kinds)
    file = io.BytesIO()
    pq.write_table(pa.Table.from_batches([batch]), file)
    assert pq.read_table(file)["s"].to_pylist() == [None, None]


def test_an_unknown_field_inside_a_struct_is_named_with_its_path():
    rows = pa.table({"s": pa.array([{"x": 1, "zz": 2}])})
    with pytest.raises(UnknownName, match=r"'s\.zz'"):
        check_assignable(rows.schema, NESTED)


def test_an_unknown_column_takes_nulls_and_is_not_in_the_file():
    schema = Schema(NestedField(1, "a", LongType()), NestedField(2, "u", UnknownType()))
    assert stored(pa.table({"a": [1], "u": pa.nulls(1)}), schema) == [{"a": 1}]


@pytest.mark.parametrize(("kind", "large"), [(StringType(), pa.large_string()), (BinaryType(), pa.large_binary())])
def test_a_slice_that_begins_after_two_gigabytes_is_stored(kind: IcebergType, large: pa.DataType):
    text = np.zeros(2**31 + 10, np.uint8)  # memory that nobody touches costs nothing
    offsets = np.array([0, 2**31, 2**31 + 5, 2**31 + 10])
    values = pa.Array.from_buffers(large, 3, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    schema = Schema(NestedField(1, "v", kind))
    batch = pa.RecordBatch.from_arrays([values.slice(1)], ["v"])
    (first, second) = assign_rows(batch, schema, arrow_file_schema(schema))["v"].to_pylist()
    assert first == second == (b"\0" * 5 if large == pa.large_binary() else "\0" * 5)


def test_more_elements_than_arrow_counts_are_refused():
    lengths = pa.array([2**30, 2**30, 1])
    with pytest.raises(UserError, match="lists of 3 rows together: they have 2147483649 elements"):
        _offsets(lengths)
    assert _offsets(pa.array([2**30, 2**30 - 1])).to_pylist() == [0, 2**30, 2**31 - 1]


def test_errors_show_no_values():
    with pytest.raises(UserError) as e:
        stored_as(IntegerType(), pa.array([123456789012]))
    assert "123456789012" not in str(e.value)
