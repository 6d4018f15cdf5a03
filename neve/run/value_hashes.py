"""The hashes of values that theta sketches are made of: MurmurHash3 (x64, 128 bits) of Iceberg's bytes of a value.

The bytes are those of Iceberg's single-value serialization: numbers, dates and times little-endian, decimals and UUIDs
big-endian, text in UTF-8. As in DataSketches, values without any bytes have no hash, and nulls have none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types as at

from neve.errors import UnsupportedFeature
from neve.io.jit import compile_kernel
from neve.io.theta import SEED, Hashes

_DECIMAL_BYTES = 16

# Numbers in kernels are unsigned and of 64 bits each: with a signed one, numba would compute with floats.
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_A1, _A2 = np.uint64(0x52DCE729), np.uint64(0x38495AB5)
_F1, _F2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_0, _1, _5, _8, _27, _31, _33, _37 = (np.uint64(n) for n in (0, 1, 5, 8, 27, 31, 33, 37))


def hash_values(column: pa.Array) -> Hashes:
    """Return the hashes of the values of a column, of 63 bits each, without those of nulls and of empty values.

    >>> hash_values(pa.array(["iceberg", None, ""])).tolist()
    [229193707404058905]
    """
    values = column.storage if isinstance(column.type, pa.BaseExtensionType) else column  # UUIDs
    data, offsets = _bytes_of(values.drop_null())
    return np.asarray(_kernels()[0](data, offsets), np.uint64)[np.diff(offsets) > 0]


def _bytes_of(values: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of all values, and where each begins and ends."""
    kind = values.type
    if at.is_string(kind) or at.is_binary(kind) or at.is_large_string(kind) or at.is_large_binary(kind):
        large = values.cast(pa.large_binary())
        _, offsets, data = large.buffers()
        bounds = np.frombuffer(offsets, np.int64)[large.offset : large.offset + len(large) + 1]
        return np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8), bounds
    if at.is_decimal128(kind):
        return _kernels()[1](_fixed_width_bytes(values, _DECIMAL_BYTES))
    if at.is_boolean(kind):
        values = values.cast(pa.uint8())
    elif not (at.is_primitive(kind) or at.is_fixed_size_binary(kind)):
        raise UnsupportedFeature(f"Cannot hash values of type {kind}.")
    width = values.type.byte_width
    return _fixed_width_bytes(values, width), np.arange(0, (len(values) + 1) * width, width, dtype=np.int64)


def _fixed_width_bytes(values: pa.Array, width: int) -> NDArray[np.uint8]:
    data = values.buffers()[1]
    if data is None or not width:
        return np.empty(0, np.uint8)
    return np.frombuffer(data, np.uint8)[values.offset * width : (values.offset + len(values)) * width]


@cache
def _kernels() -> tuple[Callable[..., Any], Callable[..., Any]]:
    return compile_kernel(_hash_ranges), compile_kernel(_shorten_decimals)


def _hash_ranges(data: Any, offsets: Any) -> Any:
    """Return the first half of the hash of each range of bytes, without its lowest bit."""
    hashes = np.empty(len(offsets) - 1, np.uint64)
    for n in range(len(hashes)):
        start, end = offsets[n], offsets[n + 1]
        h1 = h2 = np.uint64(SEED)
        at = start
        last = False
        while not last:
            last = end - at < 16
            k1 = k2 = _0
            for i in range(min(np.int64(8), end - at)):
                k1 |= np.uint64(data[at + i]) << (_8 * np.uint64(i))
            for i in range(min(np.int64(8), end - at - 8)):
                k2 |= np.uint64(data[at + 8 + i]) << (_8 * np.uint64(i))
            k1 *= _C1
            k1 = ((k1 << _31) | (k1 >> _33)) * _C2
            k2 *= _C2
            k2 = ((k2 << _33) | (k2 >> _31)) * _C1
            h1 ^= k1
            if last:
                h2 ^= k2
            else:
                h1 = (((h1 << _27) | (h1 >> _37)) + h2) * _5 + _A1
                h2 ^= k2
                h2 = (((h2 << _31) | (h2 >> _33)) + h1) * _5 + _A2
            at += 16
        length = np.uint64(end - start)
        h1 ^= length
        h2 ^= length
        h1 += h2
        h2 += h1
        h1 = (h1 ^ (h1 >> _33)) * _F1
        h1 = (h1 ^ (h1 >> _33)) * _F2
        h2 = (h2 ^ (h2 >> _33)) * _F1
        h2 = (h2 ^ (h2 >> _33)) * _F2
        hashes[n] = ((h1 ^ (h1 >> _33)) + (h2 ^ (h2 >> _33))) >> _1
    return hashes


def _shorten_decimals(data: Any) -> Any:
    """Return the fewest bytes that hold each number of 16 bytes, highest byte first, and where each begins and ends."""
    count = len(data) // 16
    out, offsets = np.empty(len(data), np.uint8), np.zeros(count + 1, np.int64)
    size = 0
    for n in range(count):
        top = 15
        sign = np.uint8(0) if data[n * 16 + 15] < 128 else np.uint8(255)
        while top > 0 and data[n * 16 + top] == sign and (data[n * 16 + top - 1] < 128) == (sign == 0):
            top -= 1
        for i in range(top, -1, -1):
            out[size] = data[n * 16 + i]
            size += 1
        offsets[n + 1] = size
    return out[:size], offsets
