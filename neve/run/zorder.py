"""Combine the values of several columns to one z-order key: their bits alternate, most significant bits first.

Rows that are close in all columns are then close in the key. Each column becomes bytes that sort as its values do: one
for booleans, eight for numbers and times, the first few for text. Nulls come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from neve.model.values import combine_chunks

Bytes = NDArray[np.uint8]
_SIGN = np.uint64(1 << 63)


def z_keys(columns: Sequence[Any], text_bytes: int, max_key_bytes: int) -> pa.Array:
    """Return the keys of rows, from the first `text_bytes` of each text, and truncated to `max_key_bytes`.

    >>> keys = z_keys([pa.array([0, 0, 1, 1]), pa.array([0, 1, 0, 1])], 8, 16).to_pylist()
    >>> keys == sorted(keys)
    True
    """
    parts = [_sortable_bytes(combine_chunks(column), text_bytes) for column in columns]
    bits = np.concatenate([np.unpackbits(part, axis=1) for part in parts], axis=1)
    sizes = [part.shape[1] * 8 for part in parts]
    starts = np.cumsum([0, *sizes[:-1]])
    # The bits in alternating order; a column without further bits is skipped.
    bit_order = [
        start + bit for bit in range(max(sizes)) for start, size in zip(starts, sizes, strict=True) if bit < size
    ]
    keys = np.packbits(bits[:, np.array(bit_order)], axis=1)[:, :max_key_bytes]
    joined = pa.py_buffer(np.ascontiguousarray(keys).tobytes())
    return pa.Array.from_buffers(pa.binary(keys.shape[1]), len(keys), [None, joined]).cast(pa.binary())


def _sortable_bytes(values: Any, text_bytes: int) -> Bytes:
    kind = values.type
    if pa.types.is_boolean(kind):
        flags = values.fill_null(False).to_numpy(zero_copy_only=False)
        return np.where(flags, 0x81, 0).astype(np.uint8).reshape(-1, 1)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = values.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False).copy()
        numbers[np.isnan(numbers)] = np.nan
        bits = numbers.view(np.uint64)
        return _big_endian_bytes(np.where(bits & _SIGN, ~bits, bits | _SIGN), values)
    if any(is_kind(kind) for is_kind in _TEXT_TYPE_CHECKS):
        # The first bytes, padded with zeros.
        data = values if pa.types.is_large_binary(kind) else values.cast(pa.binary()).cast(pa.large_binary())
        first = pc.binary_slice(data.fill_null(b""), 0, text_bytes)
        lengths = pc.binary_length(first).to_numpy()
        _, offsets, data_buffer = first.buffers()
        starts = np.frombuffer(offsets, np.int64)[first.offset : first.offset + len(first) + 1]
        padded = np.zeros((len(first), text_bytes), np.uint8)
        text = np.frombuffer(data_buffer or b"", np.uint8)[starts[0] : starts[-1]]
        padded[np.arange(text_bytes) < lengths[:, None]] = text
        return padded
    integers = values.cast(pa.int64()) if kind.bit_width == 64 else values.cast(pa.int32()).cast(pa.int64())
    bits = integers.fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64) ^ _SIGN
    return _big_endian_bytes(bits, values)


_TEXT_TYPE_CHECKS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)


def _big_endian_bytes(bits: NDArray[np.uint64], values: Any) -> Bytes:
    is_valid = values.is_valid().to_numpy(zero_copy_only=False)
    return np.where(is_valid, bits, np.uint64(0)).astype(">u8").view(np.uint8).reshape(-1, 8)
