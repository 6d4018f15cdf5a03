"""Thrift's compact protocol, as far as Parquet uses it: numbered fields with their types.

Structures are decoded into dictionaries by field number, so that unknown fields can be skipped. The number `SPAN`,
which no field has, tells where the structure is, to copy it as it is stored. Whatever is not valid Thrift raises
DamagedThrift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

_MAX_DEPTH = 24
_MAX_VARINT_BYTES = 10  # length limit of a 64-bit number

# Thrift's compact types
_TRUE, _FALSE, _BYTE, _I16, I32, I64, _DOUBLE, BINARY, LIST, _SET, _MAP, STRUCT = range(1, 13)

SPAN = 0
_SHORT_COUNT = 15  # from this number of elements on, the count of a list follows its type


class DamagedThrift(Exception):
    """The bytes are not valid Thrift, or end too early."""


def decode_struct(data: bytes, at: int = 0) -> dict[int, Any]:
    """Decode the structure at a position; return its fields by number, and its span."""
    try:
        return _read_struct(data, at, 0)[0]
    except IndexError:
        raise DamagedThrift("its end") from None


def encode_struct(fields: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Encode a structure from the number, type and encoded value of each field, in the order of the numbers."""
    parts, last = [], 0
    for number, kind, value in fields:
        parts += [bytes([(number - last) << 4 | kind]), value]
        last = number
    return b"".join([*parts, b"\0"])


def encode_list(kind: int, elements: list[bytes]) -> bytes:
    """Encode a list of encoded values of one type."""
    count = len(elements)
    head = bytes([count << 4 | kind]) if count < _SHORT_COUNT else bytes([_SHORT_COUNT << 4 | kind])
    return head + (b"" if count < _SHORT_COUNT else _encode_varint(count)) + b"".join(elements)


def encode_integer(value: int) -> bytes:
    """Encode an integer of 16, 32 or 64 bits."""
    return _encode_varint(value << 1 ^ value >> 63)


def encode_bytes(value: bytes) -> bytes:
    """Encode bytes or text."""
    return _encode_varint(len(value)) + value


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def _read_struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Read the fields of a structure by their numbers; return them and the end of the structure.

    Frequent types are decoded inline, because a footer has some forty fields for every column chunk.
    """
    if depth > _MAX_DEPTH:
        raise DamagedThrift(f"structures more than {_MAX_DEPTH} deep")
    fields: dict[int, Any] = {}
    number, start = 0, at
    while True:
        head = data[at]
        at += 1
        if not head:
            fields[SPAN] = (start, at)
            return fields, at
        if head >> 4:
            number += head >> 4
        else:
            number, at = _read_zigzag(data, at)
        kind = head & 15
        if _I16 <= kind <= I64:
            byte = data[at]
            if byte < 128:
                fields[number] = (byte >> 1) ^ -(byte & 1)
                at += 1
            else:
                fields[number], at = _read_zigzag(data, at)
        elif kind <= _FALSE and kind:
            fields[number] = kind == _TRUE
        else:
            fields[number], at = _read_element(data, at, kind, depth + 1)


def _read_element(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind == BINARY:
        length, at = _read_varint(data, at)
        return _read_bytes(data, at, length)
    if (nested := _NESTED_READERS.get(kind)) is not None:
        return nested(data, at, depth)
    if _I16 <= kind <= I64:
        return _read_zigzag(data, at)
    if kind == _DOUBLE:
        return _read_bytes(data, at, 8)
    if kind in (_TRUE, _FALSE, _BYTE):  # as elements of a list
        return data[at], at + 1
    raise DamagedThrift(f"the Thrift type {kind} at byte {at}")


def _read_list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    head = data[at]
    count, at = (head >> 4, at + 1) if head >> 4 < _SHORT_COUNT else _read_varint(data, at + 1)
    _check_count(data, at, count, depth)
    elements = []
    for _ in range(count):
        element, at = _read_element(data, at, head & 15, depth + 1)
        elements.append(element)
    return elements, at


def _skip_map(data: bytes, at: int, depth: int) -> tuple[None, int]:
    """Skip a map; no field of interest is a map."""
    count, at = _read_varint(data, at)
    _check_count(data, at, count, depth)
    if count:
        kinds = data[at]
        at += 1
        for _ in range(count):
            _, at = _read_element(data, at, kinds >> 4, depth + 1)
            _, at = _read_element(data, at, kinds & 15, depth + 1)
    return None, at


def _check_count(data: bytes, at: int, count: int, depth: int) -> None:
    if depth > _MAX_DEPTH or count > len(data) - at:  # every element takes at least a byte
        raise DamagedThrift(f"{count} elements at byte {at}, {depth} deep")


def _read_zigzag(data: bytes, at: int) -> tuple[int, int]:
    raw, at = _read_varint(data, at)
    return (raw >> 1) ^ -(raw & 1), at


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for step in range(_MAX_VARINT_BYTES):
        byte = data[at]
        at += 1
        value |= (byte & 127) << (7 * step)
        if byte < 128:
            return value, at
    raise DamagedThrift(f"a number of more than 64 bits at byte {at}")


def _read_bytes(data: bytes, at: int, length: int) -> tuple[bytes, int]:
    if length > len(data) - at:
        raise DamagedThrift(f"{length} bytes at byte {at}")
    return data[at : at + length], at + length


_NESTED_READERS: dict[int, Callable[[bytes, int, int], tuple[Any, int]]] = {
    STRUCT: _read_struct,
    LIST: _read_list,
    _SET: _read_list,
    _MAP: _skip_map,
}
