"""The sum that tells whether rows are the same: not by their order, by every value, however deep it lies."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from math import isnan
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from neve.run.row_checksum import Checksum, row_hashes

FLOATS = st.floats(width=64) | st.sampled_from([0.0, -0.0, float("nan"), float("inf")])
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float32(), st.floats(width=32) | st.sampled_from([0.0, -0.0])),
    "double": (pa.float64(), FLOATS),
    "decimal": (pa.decimal128(38, 4), st.decimals(-(10**20), 10**20, places=4)),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("us"), st.times()),
    "timestamp": (pa.timestamp("us"), st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 1, 1))),
    "timestamptz": (
        pa.timestamp("us", "UTC"),
        st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 1, 1), timezones=st.just(dt.UTC)),
    ),
    "timestamp_ns": (pa.timestamp("ns"), st.integers(-(2**62), 2**62)),
    "string": (pa.string(), st.text(max_size=6)),
    "large_string": (pa.large_string(), st.text(max_size=6)),
    "binary": (pa.binary(), st.binary(max_size=6)),
    "fixed": (pa.binary(4), st.binary(min_size=4, max_size=4)),
}
UUIDS = (pa.uuid(), st.uuids().map(lambda u: u.bytes))
LEAVES = ("long", "double", "string", "bool", "decimal")


def nested(kind: tuple[pa.DataType, st.SearchStrategy[Any]], how: str) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    inner, values = kind[0], st.none() | kind[1]
    match how:
        case "list":
            return pa.list_(inner), st.lists(values, max_size=4)
        case "struct":
            return pa.struct([("a", inner), ("b", pa.int32())]), st.fixed_dictionaries({"a": values, "b": SMALL})
        case "map":
            return pa.map_(pa.string(), inner), st.lists(st.tuples(st.text(max_size=3), values), max_size=3)
    return nested(nested(kind, "struct"), "list")


SMALL = st.none() | st.integers(0, 2)


@st.composite
def columns(draw: st.DrawFn, rows: int) -> pa.Array:
    """A column of any type, nested or not, with nulls."""
    kind = {**KINDS, "uuid": UUIDS}[draw(st.sampled_from([*sorted(KINDS), "uuid"]))]
    how = draw(st.sampled_from(["flat", "flat", "list", "struct", "map", "list of structs"]))
    if how != "flat":
        kind = nested(KINDS[draw(st.sampled_from(LEAVES))], how)
    return pa.array(draw(st.lists(st.none() | kind[1], min_size=rows, max_size=rows)), kind[0])


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(1, 6))
    made = [draw(columns(rows)) for _ in range(draw(st.integers(1, 3)))]
    return pa.record_batch(made, names=[f"c{n}" for n in range(len(made))])


def exact(value: Any) -> Any:
    """A value such that only what is stored alike is equal: all NaNs are one, and -0.0 is not 0.0."""
    match value:
        case float():
            return "NaN" if isnan(value) else struct.pack(">d", value)
        case dict():
            return tuple((k, exact(v)) for k, v in value.items())
        case list() | tuple():
            return tuple(exact(v) for v in value)
        case Decimal():
            return str(value)
    return value


def exact_rows(batch: pa.RecordBatch) -> list[Any]:
    return list(zip(*([exact(v) for v in column.to_pylist()] for column in batch.columns), strict=True))


@given(batches(), st.randoms())
def test_the_sum_does_not_depend_on_the_order_of_rows_or_on_how_they_are_cut(batch: pa.RecordBatch, random: Any):
    order = list(range(batch.num_rows))
    random.shuffle(order)
    cut = random.randint(0, batch.num_rows)
    shuffled = batch.take(pa.array(order, pa.int64()))
    assert Checksum.of_batches([shuffled.slice(0, cut), shuffled.slice(cut)]) == Checksum.of(batch)
    assert Checksum.of_batches([batch.slice(cut), batch.slice(0, cut)]) == Checksum.of(batch)


@given(batches())
def test_rows_have_the_same_number_exactly_when_they_are_the_same(batch: pa.RecordBatch):
    numbers, rows = row_hashes(batch).tolist(), exact_rows(batch)
    for i in range(batch.num_rows):
        for j in range(i):
            assert (numbers[i] == numbers[j]) == (rows[i] == rows[j]), (rows[i], rows[j])


@given(batches(), st.data())
def test_every_changed_value_changes_the_sum(batch: pa.RecordBatch, data: st.DataObject):
    at, row = data.draw(st.integers(0, batch.num_columns - 1)), data.draw(st.integers(0, batch.num_rows - 1))
    donor = data.draw(st.integers(0, batch.num_rows - 1))
    values = batch.column(at).to_pylist()
    values[row] = None if donor == row else values[donor]
    changed = batch.set_column(at, f"c{at}", pa.array(values, batch.column(at).type))
    assume(exact_rows(changed) != exact_rows(batch))
    assert Checksum.of(changed) != Checksum.of(batch)


DIFFERENT: dict[str, tuple[pa.DataType, Any, Any]] = {
    "null and nothing": (pa.string(), None, ""),
    "null and zero": (pa.int64(), None, 0),
    "null and false": (pa.bool_(), None, False),
    "both zeros": (pa.float64(), 0.0, -0.0),
    "both small zeros": (pa.float32(), 0.0, -0.0),
    "NaN and null": (pa.float64(), float("nan"), None),
    "no list and an empty one": (pa.list_(pa.int32()), None, []),
    "a list of null and an empty one": (pa.list_(pa.int32()), [None], []),
    "the order in a list": (pa.list_(pa.int32()), [1, 2], [2, 1]),
    "no struct and one of nulls": (pa.struct([("a", pa.int32())]), None, {"a": None}),
    "the field of a struct": (pa.struct([("a", pa.int32()), ("b", pa.int32())]), {"a": 1, "b": 2}, {"a": 2, "b": 1}),
    "the value of a map": (pa.map_(pa.string(), pa.int32()), [("k", 1)], [("k", None)]),
    "the key of a map": (pa.map_(pa.string(), pa.int32()), [("k", 1)], [("l", 1)]),
    "a trailing zero byte": (pa.binary(), b"a", b"a\0"),
    "the case of a letter": (pa.string(), "é", "É"),
    "one digit": (pa.decimal128(38, 2), Decimal("12345678901234567890.12"), Decimal("12345678901234567890.13")),
    "one nanosecond": (pa.timestamp("ns"), 1, 2),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_values_that_look_alike_are_told_apart(what: str):
    kind, one, other = DIFFERENT[what]
    first, second = (Checksum.of(pa.record_batch([pa.array([v], kind)], names=["v"])) for v in (one, other))
    assert first != second and first.rows == second.rows == 1


def test_all_nans_are_one():
    odd = struct.unpack(">d", bytes.fromhex("fff0000000000001"))[0]
    one, other = (pa.record_batch([pa.array([v], pa.float64())], names=["v"]) for v in (float("nan"), odd))
    assert Checksum.of(one) == Checksum.of(other)


def test_a_doubled_row_is_not_undone_by_a_missing_one():
    rows = pa.record_batch({"a": [1, 2, 3]})
    assert Checksum.of(rows) != Checksum.of(pa.record_batch({"a": [1, 1, 3]}))
    assert Checksum.of(rows) != Checksum.of(pa.record_batch({"a": [1, 2, 3, 3]}))
    assert Checksum.of_batches([]) == Checksum() == Checksum.of(rows.slice(0, 0))


def test_columns_do_not_change_places():
    one = pa.record_batch({"a": [1, 2], "b": [2, 1]})
    assert Checksum.of(one) != Checksum.of(pa.record_batch({"a": [2, 2], "b": [1, 1]}))
    assert Checksum.of(pa.record_batch({"a": [1], "b": [2]})) != Checksum.of(pa.record_batch({"a": [2], "b": [1]}))
