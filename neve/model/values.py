"""Arrow columns of Iceberg's serialized single values, as stored in bounds and partition summaries.

`decode_values` turns a column of such bytes into a typed Arrow column, and `encode_values` does the reverse.
`decode_comparable` and `to_comparable` return int64, float64, decimal or binary values, which compare as Iceberg orders
the original values.

A column may have been promoted after its bounds were written: int to long, float to double, date to timestamp, a
decimal to more digits. The length of the bytes shows the old type. A value whose length fits no possible type becomes
null, which means an unknown bound.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from neve.model.partition import value_arrow_type

DAY_MICROS = 86_400_000_000
DECIMAL_BYTES = 16

MICROS_TYPES = ice.TimestampType | ice.TimestamptzType
NANOS_TYPES = ice.TimestampNanoType | ice.TimestamptzNanoType
INTEGRAL_TYPES = (
    ice.BooleanType | ice.IntegerType | ice.LongType | ice.DateType | ice.TimeType | MICROS_TYPES | NANOS_TYPES
)


def combine_chunks(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, without a copy if it has a single chunk."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def comparable_type(kind: ice.IcebergType) -> pa.DataType:
    """Return the Arrow type in which values of an Iceberg type compare; a type without order gets binary nulls."""
    if isinstance(kind, INTEGRAL_TYPES):
        return pa.int64()
    if isinstance(kind, ice.FloatType | ice.DoubleType):
        return pa.float64()
    if isinstance(kind, ice.DecimalType):
        return pa.decimal128(38, kind.scale)
    return pa.binary()


def decode_comparable(values: Any, kind: ice.IcebergType) -> pa.Array:
    """Decode serialized values to comparable ones; null for NaN and for bytes that are no value of the type."""
    values = storage_array(values)
    if isinstance(kind, ice.DecimalType):
        return _decode_decimals(values, kind)
    if isinstance(kind, ice.FloatType | ice.DoubleType):
        return _without_nan(_decode_fixed_widths(values, np.float64, _float_widths(kind)))
    if isinstance(kind, INTEGRAL_TYPES):
        return _decode_integers(values, kind)
    if isinstance(kind, ice.FixedType | ice.UUIDType):
        has_length = pc.equal(pc.binary_length(values), 16 if isinstance(kind, ice.UUIDType) else len(kind))
        return pc.if_else(has_length, values, pa.scalar(None, pa.binary()))
    return values if isinstance(kind, ice.StringType | ice.BinaryType) else pa.nulls(len(values), pa.binary())


def decode_values(values: Any, kind: ice.IcebergType) -> pa.Array:
    """Decode serialized values to a column of the type; null for bytes that cannot be a value of it."""
    comparable, target = decode_comparable(values, kind), value_arrow_type(kind)
    if isinstance(kind, ice.StringType):
        try:
            return comparable.cast(pa.string())
        except pa.ArrowInvalid:  # a bound that was truncated in the middle of a character, or is no text at all
            return pa.array([_decode_utf8(v) for v in comparable.to_pylist()], pa.string())
    return comparable.cast(pa.int32()).cast(target) if pa.types.is_date32(target) else comparable.cast(target)


def decode_values_exactly(values: Any, kind: ice.IcebergType) -> pa.Array:
    """Decode like `decode_values`, but keep NaN and the sign of zero: for values that are stored, not compared."""
    if not isinstance(kind, ice.FloatType | ice.DoubleType):
        return decode_values(values, kind)
    floats = _decode_fixed_widths(storage_array(values), np.float64, _float_widths(kind))
    return floats.cast(value_arrow_type(kind), safe=False)


def to_comparable(values: Any, kind: ice.IcebergType) -> pa.Array:
    """Convert a typed column to comparable values; NaN becomes null, because it has no order."""
    values = storage_array(values)
    target = comparable_type(kind)
    if values.null_count == len(values):  # of any type: a void field shares the column of the field it replaced
        return pa.nulls(len(values), target)
    if target == pa.float64():
        return _without_nan(values.cast(pa.float64()))
    if target == pa.int64():
        return _cast_to_int64(values)
    return values.cast(target)


@lru_cache(maxsize=1 << 13, typed=True)  # the same literals are compared with every batch of rows
def comparable_scalar(value: Any, kind: ice.IcebergType) -> pa.Scalar:
    """Convert the value of an expression literal to a scalar that compares with comparable columns."""
    return pa.scalar(_comparable_value(value, kind), comparable_type(kind))


@lru_cache(maxsize=1 << 6)
def comparable_array(values: frozenset[Any], kind: ice.IcebergType) -> pa.Array:
    """Convert the values of a set of expression literals to an array that compares with comparable columns."""
    return pa.array([_comparable_value(value, kind) for value in values], comparable_type(kind))


def _comparable_value(value: Any, kind: ice.IcebergType) -> Any:
    if isinstance(value, str):
        value = UUID(value).bytes if isinstance(kind, ice.UUIDType) else value.encode()
    elif isinstance(value, UUID):
        value = value.bytes
    elif isinstance(value, float):
        value += 0.0  # -0.0 equals 0.0
    elif isinstance(value, bool):
        value = int(value)
    return value


def encode_values(values: Any, kind: ice.IcebergType) -> pa.Array:
    """Serialize a typed column, one value at a time; nulls stay null."""
    values = storage_array(values)
    if isinstance(kind, ice.DecimalType):
        return _encode_decimals(values.cast(pa.decimal128(38, kind.scale)))
    if isinstance(kind, ice.FloatType | ice.DoubleType):
        return _encode_fixed_width(values, "<f4" if isinstance(kind, ice.FloatType) else "<f8")
    if isinstance(kind, INTEGRAL_TYPES):
        width = "u1" if isinstance(kind, ice.BooleanType) else "<i8"
        width = "<i4" if isinstance(kind, ice.IntegerType | ice.DateType) else width
        return _encode_fixed_width(_cast_to_int64(values), width)
    return values.cast(pa.binary())


def storage_array(values: Any) -> pa.Array:
    """Return a column as one array, of the stored values if it is of an extension type."""
    flat = combine_chunks(values)
    return flat.storage if isinstance(flat, pa.ExtensionArray) else flat


def _decode_integers(values: pa.Array, kind: ice.IcebergType) -> pa.Array:
    if isinstance(kind, MICROS_TYPES | NANOS_TYPES):
        day = DAY_MICROS * (1000 if isinstance(kind, NANOS_TYPES) else 1)
        return _decode_fixed_widths(values, np.int64, {8: "<i8", 4: "<i4"}, {4: day})  # four bytes: it was a date
    if isinstance(kind, ice.BooleanType):
        return pc.min_element_wise(_decode_fixed_widths(values, np.int64, {1: "u1"}), 1, skip_nulls=False)
    if isinstance(kind, ice.IntegerType | ice.DateType):
        return _decode_fixed_widths(values, np.int64, {4: "<i4"})
    widths = {8: "<i8", 4: "<i4"} if isinstance(kind, ice.LongType) else {8: "<i8"}
    return _decode_fixed_widths(values, np.int64, widths)


def _float_widths(kind: ice.IcebergType) -> dict[int, str]:
    return {4: "<f4"} if isinstance(kind, ice.FloatType) else {4: "<f4", 8: "<f8"}


def _decode_fixed_widths(
    values: pa.Array, result_dtype: Any, widths: dict[int, str], factors: dict[int, int] | None = None
) -> pa.Array:
    lengths = _lengths(values)
    decoded, valid = np.zeros(len(values), result_dtype), np.isin(lengths, list(widths))
    for width, dtype in widths.items():
        rows = lengths == width
        if rows.any():
            decoded[rows] = _concatenated_bytes(values.filter(pa.array(rows))).view(dtype)
            if factor := (factors or {}).get(width):
                # int64 nanoseconds end before the year 2263, dates do not
                valid[rows] = np.abs(decoded[rows]) <= np.iinfo(np.int64).max // factor
                decoded[rows] *= factor
    return pa.array(decoded, mask=~valid)


def _decode_decimals(values: pa.Array, kind: ice.DecimalType) -> pa.Array:
    lengths = _lengths(values)
    valid = (lengths >= 1) & (lengths <= DECIMAL_BYTES)
    little_endian = np.zeros((len(values), DECIMAL_BYTES), np.uint8)  # as Arrow stores decimals
    for width in np.unique(lengths[valid]):
        rows = lengths == width
        big_endian = _concatenated_bytes(values.filter(pa.array(rows))).reshape(-1, width)
        little_endian[rows] = np.where(big_endian[:, :1] >= 0x80, 0xFF, 0x00).astype(np.uint8)
        little_endian[rows, :width] = big_endian[:, ::-1]
    decimals = pa.Array.from_buffers(
        pa.decimal128(38, kind.scale),
        len(values),
        [_validity_bitmap(valid), pa.py_buffer(np.ascontiguousarray(little_endian).tobytes())],
    )
    if kind.precision >= 38:
        return decimals
    # A value with more digits than the type has cannot have been written for it.
    limit = pa.scalar(Decimal(1).scaleb(kind.precision - kind.scale), decimals.type)
    return pc.if_else(pc.less(pc.abs(decimals), limit), decimals, pa.scalar(None, decimals.type))


def _encode_decimals(values: pa.Array) -> pa.Array:
    """Encode each decimal as its shortest two's complement form, most significant byte first."""
    start = values.offset * DECIMAL_BYTES
    raw = np.frombuffer(values.buffers()[1] or b"", np.uint8)[start : start + len(values) * DECIMAL_BYTES]
    digits = raw.reshape(-1, DECIMAL_BYTES)[:, ::-1]
    sign = np.where(digits[:, :1] >= 0x80, 0xFF, 0x00)
    # a leading byte is redundant if it repeats the sign and the next byte has the same sign bit
    next_has_sign = (digits[:, 1:] >= 0x80) == (sign == 0xFF)
    redundant = np.logical_and.accumulate((digits[:, :-1] == sign) & next_has_sign, axis=1).sum(axis=1)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    lengths = np.where(valid, DECIMAL_BYTES - redundant, 0)
    keep = (np.arange(DECIMAL_BYTES) >= redundant[:, None]) & valid[:, None]
    return _binary_array(digits[keep], lengths, valid)


def _encode_fixed_width(values: pa.Array, width: str) -> pa.Array:
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    present = values.drop_null().to_numpy(zero_copy_only=False).astype(width)
    return _binary_array(present.view(np.uint8), np.where(valid, present.itemsize, 0), valid)


def _binary_array(data: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any], valid: np.ndarray[Any, Any]) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [_validity_bitmap(valid), pa.py_buffer(offsets.tobytes()), pa.py_buffer(data.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


def _validity_bitmap(valid: np.ndarray[Any, Any]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())


def _lengths(values: pa.Array) -> np.ndarray[Any, Any]:
    """Return the length of each value, -1 for null."""
    return np.asarray(pc.binary_length(values).fill_null(-1).to_numpy(zero_copy_only=False))


def _concatenated_bytes(values: pa.Array) -> np.ndarray[Any, Any]:
    """Return the bytes of values that have no nulls, one after the other."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    return np.frombuffer(values.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].copy()


def _without_nan(values: pa.Array) -> pa.Array:
    floats = pc.add(values, 0.0)  # -0.0 equals 0.0
    return pc.if_else(pc.is_nan(floats), pa.scalar(None, pa.float64()), floats)


def _cast_to_int64(values: pa.Array) -> pa.Array:
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8()).cast(pa.int64())
    return values.cast(pa.int64())


def _decode_utf8(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
