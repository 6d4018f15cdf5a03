"""Lower and upper bounds of a column in a data file, cut to a length without ever becoming wrong.

A bound that is cut still holds: a prefix is never above the value, and a prefix whose last character is raised is
above every value that begins with it. Where no such prefix exists there is no bound.

>>> upper_text("abc", 2), upper_text("ab", 2), upper_text("\\U0010ffff\\U0010ffff", 1)
('ac', 'ab', None)
"""

from __future__ import annotations

from pyiceberg.conversions import to_bytes
from pyiceberg.types import BinaryType, DecimalType, FixedType, PrimitiveType, StringType

__all__ = ["lower_bound", "upper_binary", "upper_bound", "upper_text"]

Raw = bool | int | float | bytes
"""A value as Parquet stores it: strings as UTF-8, decimals unscaled, dates and times as counts."""

_LAST, _BEFORE_SURROGATES, _AFTER_SURROGATES = 0x10FFFF, 0xD7FF, 0xE000


def lower_bound(raw: Raw, kind: PrimitiveType, length: int | None) -> bytes | None:
    """The serialised lower bound of a column whose least value is given; cut to a length, or whole."""
    if isinstance(kind, StringType) and isinstance(raw, bytes):
        return raw.decode()[:length].encode()
    if isinstance(kind, BinaryType | FixedType) and isinstance(raw, bytes):
        return raw[:length]
    return _serialised(raw, kind)


def upper_bound(raw: Raw, kind: PrimitiveType, length: int | None) -> bytes | None:
    """The serialised upper bound of a column whose greatest value is given; None when the cut value has none."""
    if isinstance(kind, StringType) and isinstance(raw, bytes):
        text = upper_text(raw.decode(), length)
        return None if text is None else text.encode()
    if isinstance(kind, BinaryType | FixedType) and isinstance(raw, bytes):
        return upper_binary(raw, length)
    return _serialised(raw, kind)


def upper_text(text: str, length: int | None) -> str | None:
    """The least text of at most `length` characters that is not below any text beginning like this one."""
    if length is None or len(text) <= length:
        return text
    kept = text[:length].rstrip(chr(_LAST))
    if not kept:
        return None
    last = ord(kept[-1])
    return kept[:-1] + chr(_AFTER_SURROGATES if last == _BEFORE_SURROGATES else last + 1)


def upper_binary(data: bytes, length: int | None) -> bytes | None:
    """The same for bytes."""
    if length is None or len(data) <= length:
        return data
    kept = data[:length].rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _serialised(raw: Raw, kind: PrimitiveType) -> bytes:
    if isinstance(kind, DecimalType):
        return _twos_complement(int(raw))
    return to_bytes(kind, raw)


def _twos_complement(number: int) -> bytes:
    """A whole number in the fewest big-endian bytes, as the format stores decimals."""
    magnitude = number if number >= 0 else ~number
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)
