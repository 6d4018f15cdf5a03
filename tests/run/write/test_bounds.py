"""Bounds: cut ones still hold."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.types import BinaryType, DecimalType, FixedType, LongType, StringType, UUIDType

from neve.run.write.metrics import lower_bound, upper_binary, upper_bound, upper_text

LENGTHS = st.integers(1, 5)
SURROGATES = {"min_codepoint": 0xD000, "max_codepoint": 0x10FFFF, "exclude_categories": ("Cs",)}
TEXTS = (
    st.text(max_size=8) | st.text(st.characters(**SURROGATES), max_size=8) | st.text("\U0010ffff\ud7ffa", max_size=8)
)


@given(TEXTS, LENGTHS, st.text(max_size=3))
def test_a_cut_upper_bound_of_text_is_above_every_text_that_begins_so(text: str, length: int, tail: str):
    bound = upper_text(text, length)
    if bound is None:
        assert set(text[:length]) == {"\U0010ffff"}
        return
    assert len(bound) <= length
    assert bound.encode() >= text.encode(), "bytes in UTF-8 order are characters in code point order"
    if len(text) > length:
        assert bound > text[:length] + tail


@given(st.binary(max_size=8) | st.binary(max_size=8).map(lambda b: b"\xff" * len(b)), LENGTHS, st.binary(max_size=3))
def test_a_cut_upper_bound_of_bytes_is_above_all_bytes_that_begin_so(data: bytes, length: int, tail: bytes):
    bound = upper_binary(data, length)
    if bound is None:
        assert set(data[:length]) == {0xFF}
        return
    assert len(bound) <= length
    assert bound >= data
    if len(data) > length:
        assert bound > data[:length] + tail


@given(TEXTS, LENGTHS)
def test_a_cut_lower_bound_is_a_prefix(text: str, length: int):
    assert lower_bound(text.encode(), StringType(), length) == text[:length].encode()


def test_an_uncut_bound_is_the_value():
    assert upper_bound(b"x" * 100, StringType(), None) == b"x" * 100
    assert upper_bound(b"abc", StringType(), 3) == b"abc"


def test_raising_a_character_steps_over_the_surrogates():
    assert upper_text("\ud7ffz", 1) == "\ue000"


def test_text_is_cut_by_characters_and_bytes_by_bytes():
    assert lower_bound("éé".encode(), StringType(), 1) == "é".encode()
    assert lower_bound("éé".encode(), BinaryType(), 1) == "é".encode()[:1]
    assert lower_bound(b"abcd", FixedType(4), 2) == b"ab"


def test_a_uuid_is_never_cut():
    assert upper_bound(b"\xff" * 16, UUIDType(), 4) == b"\xff" * 16


@given(st.decimals(-(10**18), 10**18, places=3))
def test_decimals_are_serialised_as_the_format_says(value: Decimal):
    unscaled = int(value.scaleb(3))
    assert lower_bound(unscaled, DecimalType(38, 3), 16) == to_bytes(DecimalType(38, 3), value)


@pytest.mark.parametrize("unscaled", [0, 127, 128, -128, -129, 10**37, -(10**37)])
def test_decimals_come_back_from_their_bytes(unscaled: int):
    kind = DecimalType(38, 0)
    assert from_bytes(kind, upper_bound(unscaled, kind, None) or b"") == Decimal(unscaled)


def test_whole_numbers_have_the_width_of_their_type():
    assert lower_bound(-1, LongType(), 16) == b"\xff" * 8
