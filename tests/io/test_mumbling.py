"""Bitmaps over the rows of a manifest: the bytes of the format, any set there and back, damaged bytes refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.errors import CorruptFile, UserError
from neve.io.mumbling import _read_chunk, decode_positions, encode_positions

MOST = 256 * 8192


@pytest.mark.parametrize(
    ("data", "values"),
    [
        ("02000618", [6, 7, 8]),
        ("3201060901e0", [6, 34, 8, 7]),
        ("800200040 7fffe".replace(" ", ""), [0, 0, 0, 0, 255, 0, 0, 254]),
    ],
)
def test_descriptors_are_packed_as_the_format_says(data, values):
    raw = bytes.fromhex(data)
    found, end = _read_chunk(raw, 0, len(values), "x")
    assert found.tolist() == values and end == len(raw)


@given(st.sets(st.integers(0, 3000)) | st.sets(st.integers(0, MOST - 1), max_size=5))
def test_any_set_of_positions_comes_back(positions):
    assert decode_positions(encode_positions(positions), "x").tolist() == sorted(positions)


def test_a_container_is_a_bitmap_from_32_positions_on():
    assert encode_positions(range(31))[9:] == bytes(range(31))
    assert encode_positions(range(32))[9:] == b"\xff" * 4 + b"\0" * 28, (
        "the first bit is the most significant of the first byte"
    )


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b[:-1],
        lambda b: b + b"\0",
        lambda b: b"\2" + b[1:],
        lambda b: b[:1] + b"\x07" + b[2:],
        lambda b: b[:4],
    ],
)
def test_damaged_bytes_are_refused_by_name(damage):
    with pytest.raises(CorruptFile, match="leaf-7"):
        decode_positions(damage(encode_positions([1, 5, 300])), "leaf-7")


def test_positions_beyond_the_format_are_refused():
    with pytest.raises(UserError, match="positions below"):
        encode_positions([MOST])


def test_random_bytes_never_give_positions_that_were_not_counted():
    for seed in range(300):
        data = b"\1" + np.random.default_rng(seed).bytes(40)
        try:
            found = decode_positions(data, "x")
        except CorruptFile:
            continue
        assert len(found) == int.from_bytes(data[1:4], "little")
