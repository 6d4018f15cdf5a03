"""Mumbling bitmaps: the rows of a manifest that are not live, stored in the row that lists the manifest.

A bitmap starts with a header of six bytes: version, number of positions (3 bytes) and number of containers (2 bytes),
little-endian. Then follow one packed descriptor per container, and the containers. A container covers 256 positions:
fewer than 32 are stored one by one, more as a bitmap of 32 bytes whose first bit is the most significant of the first
byte.

Descriptors are packed in chunks of 256: the least value, the differences from it in a fixed number of bits, and
exceptions for the few values that need more bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from neve.errors import CorruptFile, UserError

_VERSION = 1
_HEADER = 6
_GROUP_SIZE = 256  # positions in a container, and descriptors in a chunk
_DENSE = 32  # least number of positions for a bitmap container; also its size in bytes and its descriptor
_MAX_CONTAINERS = 8192
_MAX_POSITIONS = _GROUP_SIZE * _MAX_CONTAINERS

Ints = np.ndarray[Any, np.dtype[np.int64]]


def encode_positions(positions: Iterable[int]) -> bytes:
    """Encode a set of positions."""
    values = np.unique(np.fromiter(positions, np.int64))
    if len(values) and (values[0] < 0 or values[-1] >= _MAX_POSITIONS):
        raise UserError(f"A manifest vector holds positions below {_MAX_POSITIONS}, not {values[0]} to {values[-1]}.")
    count = int(values[-1]) // _GROUP_SIZE + 1 if len(values) else 0
    parts = [bytes([_VERSION]) + len(values).to_bytes(3, "little") + count.to_bytes(2, "little")]
    descriptors = np.minimum(np.bincount(values // _GROUP_SIZE, minlength=count), _DENSE)
    for at in range(0, count, _GROUP_SIZE):
        chunk = descriptors[at : at + _GROUP_SIZE]
        least = int(chunk.min())
        width = int(chunk.max() - least).bit_length()
        bits = (chunk[:, None] - least) >> np.arange(width - 1, -1, -1) & 1
        # The zero is the number of exceptions.
        parts.append(bytes([width, 0, least]) + np.packbits(bits.astype(np.uint8).ravel()).tobytes())
    for number in range(count):
        offsets = values[values // _GROUP_SIZE == number] % _GROUP_SIZE
        container = offsets.astype(np.uint8)
        if len(offsets) >= _DENSE:
            is_present = np.zeros(_GROUP_SIZE, np.uint8)
            is_present[offsets] = 1
            container = np.packbits(is_present)
        parts.append(container.tobytes())
    return b"".join(parts)


def decode_positions(data: bytes, path: str) -> Ints:
    """Decode the positions of a bitmap, ascending; errors name its file, `path`."""
    if len(data) < _HEADER or data[0] != _VERSION:
        raise CorruptFile(path, "a manifest vector of version 1", f"{len(data)} bytes that begin {data[:1].hex()!r}")
    cardinality, count = int.from_bytes(data[1:4], "little"), int.from_bytes(data[4:6], "little")
    if count > _MAX_CONTAINERS:
        raise CorruptFile(path, f"a manifest vector of at most {_MAX_CONTAINERS} containers", str(count))
    chunks, at = [np.zeros(0, np.int64)], _HEADER
    for start in range(0, count, _GROUP_SIZE):
        chunk, at = _read_chunk(data, at, min(count - start, _GROUP_SIZE), path)
        chunks.append(chunk)
    groups = [np.zeros(0, np.int64)]
    for number, descriptor in enumerate(np.concatenate(chunks).tolist()):
        is_dense = descriptor >> 5 == 1
        if not is_dense and descriptor >= _DENSE:
            raise CorruptFile(path, "a container of a known kind in a manifest vector", f"descriptor {descriptor}")
        size = _DENSE if is_dense else descriptor
        container = np.frombuffer(_checked_slice(data, at, size, path), np.uint8)
        offsets = (np.flatnonzero(np.unpackbits(container)) if is_dense else container).astype(np.int64)
        if (is_dense and len(offsets) < _DENSE) or (np.diff(offsets) <= 0).any():
            raise CorruptFile(
                path, "ascending positions in a manifest vector", f"container {container.tobytes().hex()}"
            )
        groups.append(offsets + number * _GROUP_SIZE)
        at += size
    positions = np.concatenate(groups)
    if at != len(data) or len(positions) != cardinality:
        expected = f"a manifest vector of {cardinality} positions and {len(data)} bytes"
        raise CorruptFile(path, expected, f"{len(positions)} positions in {at} bytes")
    return positions


def _read_chunk(data: bytes, at: int, length: int, path: str) -> tuple[Ints, int]:
    widths, exceptions, least = _checked_slice(data, at, 3, path)
    low, high = widths & 0xF, widths >> 4
    values, at = _read_numbers(data, at + 3, length, low, path)
    indices = np.frombuffer(_checked_slice(data, at, exceptions, path), np.uint8)
    highs, at = _read_numbers(data, at + exceptions, exceptions, high, path)
    if len(indices) and int(indices.max()) >= length:
        raise CorruptFile(path, f"exceptions among {length} descriptors of a manifest vector", str(int(indices.max())))
    values[indices] |= highs << low
    return values + least, at


def _read_numbers(data: bytes, at: int, count: int, width: int, path: str) -> tuple[Ints, int]:
    size = -(-count * width // 8)
    bits = np.unpackbits(np.frombuffer(_checked_slice(data, at, size, path), np.uint8))[: count * width]
    weights = 1 << np.arange(width - 1, -1, -1, dtype=np.int64)
    return bits.reshape(count, width).astype(np.int64) @ weights, at + size


def _checked_slice(data: bytes, at: int, size: int, path: str) -> bytes:
    if at + size > len(data):
        raise CorruptFile(path, f"a manifest vector of at least {at + size} bytes", f"{len(data)}")
    return data[at : at + size]
