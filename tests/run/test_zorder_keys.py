"""Keys in z-order: of one column they sort as its values do, of several each column counts from its first bit on."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from math import copysign, isnan
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.run.zorder import z_keys
from tests.run.test_row_checksum import KINDS


def keys(*columns: pa.Array, text_bytes: int = 8, most: int = 1 << 31) -> list[bytes]:
    return z_keys(columns, text_bytes, most).to_pylist()


def in_order(kind: str, value: Any) -> Any:
    """What values of a type are compared by; null comes first, NaN last, -0.0 before 0.0."""
    if value is None:
        return (0,)
    if kind in ("string", "large_string"):
        return (1, value.encode()[:8])
    if kind in ("binary", "fixed"):
        return (1, value[:8])
    if isinstance(value, float):
        return (2,) if isnan(value) else (1, value, copysign(1, value))
    return (1, value)


@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_one_column_sort_as_its_values(kind: str):
    arrow, values = KINDS[kind]

    @given(st.lists(st.none() | values, min_size=2, max_size=12))
    def holds(some: list[Any]) -> None:
        ordered = sorted(some, key=lambda v: in_order(kind, v))
        found = keys(pa.array(ordered, arrow))
        assert found == sorted(found), ordered

    holds()


TOLD_APART = {
    "bool": [False, True],
    "int": [-(2**31), -1, 0, 1, 2**31 - 1],
    "long": [1 - 2**63, -1, 0, 1, 2**63 - 1],
    "float": [float("-inf"), -1.5, 0.0, 1e-30, 1.5, float("inf"), float("nan")],
    "double": [float("-inf"), -1e300, -1.5, 0.0, 1e-300, 1.5, float("inf"), float("nan")],
    "date": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(9999, 1, 1)],
    "time": [dt.time(0), dt.time(0, 0, 0, 1), dt.time(23, 59)],
    "timestamp": [dt.datetime(1900, 1, 1), dt.datetime(1970, 1, 1), dt.datetime(1970, 1, 1, 0, 0, 0, 1)],
    "timestamp_ns": [-1, 0, 1],
    "string": ["", "a", "aa", "b", "é"],
    "binary": [b"\x01", b"\x7f", b"\x80", b"\xff"],
    "fixed": [b"\0\0\0\1", b"\0\0\1\0", b"\xff\0\0\0"],
}


@pytest.mark.parametrize("kind", TOLD_APART)
def test_keys_tell_values_apart(kind: str):
    found = keys(pa.array(TOLD_APART[kind], KINDS[kind][0]))
    assert all(a < b for a, b in pairwise(found)), found


@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), min_size=1, max_size=40))
def test_bits_take_turns(points: list[tuple[int, int]]):
    """Against the definition: the bits of both numbers, one of each in turn."""
    xs, ys = zip(*points, strict=True)
    found = keys(pa.array(xs, pa.int64()), pa.array(ys, pa.int64()))
    plain = [sum((x >> b & 1) << 2 * b + 1 | (y >> b & 1) << 2 * b for b in range(4)) for x, y in points]
    assert np.argsort(found, kind="stable").tolist() == np.argsort(plain, kind="stable").tolist()
    assert {len(k) for k in found} == {16}


def test_a_column_that_has_no_more_bits_is_passed_over():
    flags, names = pa.array([True, False, True]), pa.array(["a", "z", "z"])
    first, second, third = keys(flags, names)
    assert second < first < third and len(first) == 9


def test_keys_are_cut_to_the_size_asked_for():
    numbers, names = pa.array([1, 2**62]), pa.array(["abcdefgh-x", "abcdefgh-y"])
    assert [len(k) for k in keys(numbers, names, most=5)] == [5, 5]
    assert len(set(keys(names))) == 1, "eight bytes of a text count"
    assert len(set(keys(names, text_bytes=16))) == 2


def test_slices_and_chunks_are_columns_too():
    whole = pa.array([5, 1, None, 7, -3])
    texts = pa.array(["e", None, "ab", "", "zzzzzzzzzzz"])
    assert keys(whole.slice(1, 3), texts.slice(1, 3)) == keys(whole, texts)[1:4]
    assert keys(pa.chunked_array([whole.slice(0, 2), whole.slice(2)])) == keys(whole)


def test_no_rows_have_no_keys():
    assert keys(pa.array([], pa.int64()), pa.array([], pa.string())) == []
