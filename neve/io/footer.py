"""What the footer of a Parquet file says about its column chunks, decoded by hand.

Arrow's view of a column chunk ends the process when the footer contradicts itself: its exception cannot reach Python.
Who looks at footers that are not trusted looks here. The footer is a Thrift structure in the compact protocol: numbered
fields, each with its type, so that unknown ones are passed over.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neve.errors import CorruptFile, LimitExceeded

__all__ = ["ChunkStatistics", "parse_statistics", "read_statistics"]

_MAGIC = b"PAR1"
_TAIL = struct.Struct("<I4s")
_LIMIT = 64 << 20
_DEPTH = 16
_VARINT = 10  # bytes of a 64-bit number at most

# Thrift's compact types
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)

# Parquet's fields by number
_ROW_GROUPS, _CHUNKS, _CHUNK_METADATA, _TYPE, _STATISTICS = 4, 1, 3, 1, 12
_OLD_MAX, _OLD_MIN, _NULLS, _MAX, _MIN, _MAX_IS_EXACT, _MIN_IS_EXACT = 1, 2, 3, 5, 6, 7, 8

_FIXED_WIDTH = {0: "<?", 1: "<i", 2: "<q", 4: "<f", 5: "<d"}  # by physical type: boolean, int32, int64, float, double
_BYTES = (6, 7)  # byte array, fixed-length byte array

Raw = bool | int | float | bytes


@dataclass(frozen=True, slots=True)
class ChunkStatistics:
    """One column in one row group; None is what the footer does not say, or says of a cut value."""

    minimum: Raw | None = None
    maximum: Raw | None = None
    nulls: int | None = None


def read_statistics(stream: Any, size: int, path: str) -> list[list[ChunkStatistics]]:
    """The statistics of each column of each row group of an open file of `size` bytes."""
    tail = _read(stream, size - _TAIL.size, _TAIL.size, path)
    length, magic = _TAIL.unpack(tail)
    if magic != _MAGIC or length + _TAIL.size > size:
        raise CorruptFile(path, f"a Parquet footer within {size} bytes", f"a length of {length} before {magic!r}")
    if length > _LIMIT:
        raise LimitExceeded(f"the footer of {path}", _LIMIT, "Rewrite the file with fewer row groups.")
    return parse_statistics(_read(stream, size - _TAIL.size - length, length, path), path)


def parse_statistics(footer: bytes, path: str) -> list[list[ChunkStatistics]]:
    """The same from the bytes of a footer."""
    metadata = _Thrift(footer, path).structure(0)
    groups = _listed(metadata, _ROW_GROUPS)
    return [[_statistics(chunk) for chunk in _listed(group, _CHUNKS)] for group in groups]


def _statistics(chunk: dict[int, Any]) -> ChunkStatistics:
    metadata = _structured(chunk, _CHUNK_METADATA)
    found, kind = _structured(metadata, _STATISTICS), metadata.get(_TYPE)
    low = found.get(_MIN) if found.get(_MIN_IS_EXACT, True) else None
    high = found.get(_MAX) if found.get(_MAX_IS_EXACT, True) else None
    if _MIN not in found and _MAX not in found and kind not in _BYTES:  # the old pair has no order for bytes
        low, high = found.get(_OLD_MIN), found.get(_OLD_MAX)
    nulls = found.get(_NULLS)
    return ChunkStatistics(_value(low, kind), _value(high, kind), nulls if type(nulls) is int else None)


def _value(raw: Any, kind: Any) -> Raw | None:
    if not isinstance(raw, bytes):
        return None
    if kind in _BYTES:
        return raw
    layout = _FIXED_WIDTH.get(kind)
    if layout is None or struct.calcsize(layout) != len(raw):
        return None
    value: Raw = struct.unpack(layout, raw)[0]
    return value


def _listed(found: dict[int, Any], number: int) -> list[dict[int, Any]]:
    values = found.get(number)
    return [v for v in values if isinstance(v, dict)] if isinstance(values, list) else []


def _structured(found: dict[int, Any], number: int) -> dict[int, Any]:
    value = found.get(number)
    return value if isinstance(value, dict) else {}


def _read(stream: Any, at: int, length: int, path: str) -> bytes:
    if at < 0:
        raise CorruptFile(path, f"{length} bytes of a Parquet footer", "a shorter file")
    stream.seek(at, os.SEEK_SET)
    data = bytes(stream.read(length))
    if len(data) != length:
        raise CorruptFile(path, f"{length} bytes of a Parquet footer", f"{len(data)}")
    return data


class _Thrift:
    """A reader of the compact protocol that never looks behind the end of its bytes."""

    __slots__ = ("_at", "_data", "_path")

    def __init__(self, data: bytes, path: str) -> None:
        self._data, self._path, self._at = data, path, 0

    def structure(self, depth: int) -> dict[int, Any]:
        """The fields of a structure by their numbers."""
        if depth > _DEPTH:
            raise self._corrupt(f"structures at most {_DEPTH} deep")
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._number()
            kind = head & 15
            found[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        decode = _DECODE.get(kind)
        if decode is None:
            raise self._corrupt(f"a Thrift type, not {kind},")
        return decode(self, depth + 1)

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._varint()
        self._check(count, depth)
        return [self._value(head & 15, depth) for _ in range(count)]

    def _map(self, depth: int) -> None:
        """Pass over a map; no field of interest is one."""
        count = self._varint()
        self._check(count, depth)
        kinds = self._byte() if count else 0
        for _ in range(count):
            self._value(kinds >> 4, depth)
            self._value(kinds & 15, depth)

    def _check(self, count: int, depth: int) -> None:
        if depth > _DEPTH or count > len(self._data) - self._at:  # every element takes a byte at least
            raise self._corrupt(f"fewer than {count} elements")

    def _number(self) -> int:
        raw = self._varint()
        return (raw >> 1) ^ -(raw & 1)

    def _varint(self) -> int:
        value = 0
        for step in range(_VARINT):
            byte = self._byte()
            value |= (byte & 127) << (7 * step)
            if byte < 128:
                return value
        raise self._corrupt("a number of at most 64 bits")

    def _byte(self) -> int:
        if self._at >= len(self._data):
            raise self._corrupt("more bytes")
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, length: int) -> bytes:
        if length > len(self._data) - self._at:
            raise self._corrupt(f"{length} more bytes")
        self._at += length
        return self._data[self._at - length : self._at]

    def _corrupt(self, expected: str) -> CorruptFile:
        return CorruptFile(self._path, f"{expected} in the Parquet footer", f"byte {self._at} of {len(self._data)}")


_Decode = Callable[[_Thrift, int], Any]
_DECODE: dict[int, _Decode] = {
    **dict.fromkeys((_I16, _I32, _I64), lambda thrift, depth: thrift._number()),
    **dict.fromkeys((_TRUE, _FALSE, _BYTE), lambda thrift, depth: thrift._byte()),  # as elements of a list
    **dict.fromkeys((_LIST, _SET), _Thrift._list),
    _DOUBLE: lambda thrift, depth: thrift._bytes(8),
    _BINARY: lambda thrift, depth: thrift._bytes(thrift._varint()),
    _MAP: _Thrift._map,
    _STRUCT: _Thrift.structure,
}
