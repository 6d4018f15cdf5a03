"""Bounds that are made wider to take fewer bytes."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.tree.v4.statistics import widen_bounds

LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1)),
    "long": (pa.int64(), LONGS),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("us"), st.times()),
    "timestamp": (pa.timestamp("us"), st.datetimes()),
    "timestamptz": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "float": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "string": (pa.string(), st.text()),
    "binary": (pa.binary(), st.binary()),
    "boolean": (pa.bool_(), st.booleans()),
}


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_a_range_is_never_narrower(kind: str, data: st.DataObject):
    arrow, values = KINDS[kind]
    ends = data.draw(st.tuples(values, values).filter(lambda pair: pair[0] <= pair[1]))
    lower, upper = (pa.scalar(value, arrow) for value in ends)
    low, high = widen_bounds(lower, upper)
    assert (low.type, high.type) == (arrow, arrow)
    assert low.as_py() <= lower.as_py() and upper.as_py() <= high.as_py()


@given(LONGS, LONGS)
def test_numbers_grow_by_a_16th_at_most(one: int, other: int):
    low, high = sorted((one, other))
    wide = [end.as_py() for end in widen_bounds(pa.scalar(low, pa.int64()), pa.scalar(high, pa.int64()))]
    assert low - wide[0] <= (high - low) / 16 and wide[1] - high <= (high - low) / 16


@pytest.mark.parametrize(
    ("kind", "lower", "upper", "expected"),
    [
        (pa.int64(), 1, 9, (1, 9)),
        (pa.int64(), 1_000_003, 1_999_999, (983_040, 2_031_616)),
        (pa.int64(), 7, 7, (7, 7)),
        (pa.float64(), 0.123456, 0.9, (0.09375, 0.90625)),
        (pa.float64(), float("-inf"), 1.5, (float("-inf"), 1.5)),
        (pa.string(), "customer-0000041", "customer-0999999", ("customer-00000", "customer-0999:")),
        (pa.string(), "a", "b", ("a", "b")),
        (pa.string(), "ab\uffff\uffff\uffff\uffffx", "ac\uffff\uffff\uffff\uffffx", ("ab\uffff\uffff\uffff", None)),
        (pa.date32(), date(2024, 1, 1), date(2024, 1, 31), (date(2024, 1, 1), date(2024, 1, 31))),
        (pa.date32(), date(1, 1, 1), date(9999, 12, 31), (date(1, 1, 1), date(9999, 12, 31))),
        (pa.time64("us"), time(0, 0, 1), time(23, 59, 59, 999999), (time(0), time(23, 59, 59, 999999))),
    ],
)
def test_what_becomes_of_a_range(kind: pa.DataType, lower: Any, upper: Any, expected: tuple[Any, Any]):
    """A bound that cannot be made shorter stays as it is."""
    low, high = widen_bounds(pa.scalar(lower, kind), pa.scalar(upper, kind))
    assert (low.as_py(), high.as_py()) == (expected[0], upper if expected[1] is None else expected[1])


def test_times_of_day_and_of_years_are_round():
    day = datetime(2024, 3, 1), datetime(2024, 3, 1, 23, 59, 59, 999_999)
    low, high = (end.as_py() for end in widen_bounds(*(pa.scalar(d, pa.timestamp("us")) for d in day)))
    assert low <= day[0] and day[1] <= high
    assert (high - low) - (day[1] - day[0]) <= (day[1] - day[0]) / 8
