"""Iceberg single values as columns: bounds and partition summaries are stored as bytes, one value at a time.

`decode` turns a column of such bytes into a typed Arrow column and `encode` does the reverse. `comparable` and
`ordered` give the same values in one of four kinds that compare the way Iceberg orders them: int64, float64, decimal or
binary.

A column may have been promoted since its bounds were written: int to long, float to double, date to timestamp, a
decimal to more digits. The length of the bytes tells. A value whose length fits no type it could have had is null: a
bound that is not known.

Columns of Arrow, in however many pieces they come.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from neve.model.partition import value_arrow_type


def combine_chunks(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece; nothing is copied where it is in one already."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


DAY_MICROS = 86_400_000_000
DECIMAL_BYTES = 16

MICROS_TYPES = TimestampType | TimestamptzType
NANOS_TYPES = TimestampNanoType | TimestamptzNanoType
INTEGRAL_TYPES = BooleanType | IntegerType | LongType | DateType | TimeType | MICROS_TYPES | NANOS_TYPES


def comparable_type(kind: IcebergType) -> pa.DataType:
    """The Arrow type in which values of an Iceberg type compare; a type without an order gets bytes, never known."""
    if isinstance(kind, INTEGRAL_TYPES):
        return pa.int64()
    if isinstance(kind, FloatType | DoubleType):
        return pa.float64()
    if isinstance(kind, DecimalType):
        return pa.decimal128(38, kind.scale)
    return pa.binary()


def decode_comparable(values: Any, kind: IcebergType) -> pa.Array:
    """Serialised single values as values that compare; null where the bytes are no value of the type, or NaN."""
    values = _storage_array(values)
    if isinstance(kind, DecimalType):
        return _decode_decimals(values, kind)
    if isinstance(kind, FloatType | DoubleType):
        return _decode_floats(values, kind)
    if isinstance(kind, INTEGRAL_TYPES):
        return _decode_integers(values, kind)
    if isinstance(kind, FixedType | UUIDType):
        return _only_of_length(values, 16 if isinstance(kind, UUIDType) else len(kind))
    return values if isinstance(kind, StringType | BinaryType) else pa.nulls(len(values), pa.binary())


def decode_values(values: Any, kind: IcebergType) -> pa.Array:
    """Serialised single values as a column of the type; null where the bytes cannot be a value of it."""
    found = decode_comparable(values, kind)
    if isinstance(kind, StringType):
        return _decode_strings(found)
    return _cast_from_comparable(found, value_arrow_type(kind))


def decode_values_exactly(values: Any, kind: IcebergType) -> pa.Array:
    """`decode` that keeps NaN and the sign of zero, for values that are stored again rather than compared."""
    if not isinstance(kind, FloatType | DoubleType):
        return decode_values(values, kind)
    return _decode_fixed_widths(_storage_array(values), np.float64, _float_widths(kind)).cast(
        value_arrow_type(kind), safe=False
    )


def to_comparable(values: Any, kind: IcebergType) -> pa.Array:
    """A typed column as values that compare; NaN becomes null, because it has no place in the order.

    A void partition field has the type of its source, and lies in the column of the field it was: nulls of any type.
    """
    values = _storage_array(values)
    target = comparable_type(kind)
    if values.null_count == len(values):
        return pa.nulls(len(values), target)
    if target == pa.float64():
        return _without_nan(values.cast(pa.float64()))
    if target == pa.int64():
        return _cast_to_int64(values)
    return values.cast(target)


def comparable_scalar(value: Any, kind: IcebergType) -> pa.Scalar:
    """The value of an expression literal as a scalar that compares with `comparable` and `ordered` columns."""
    if isinstance(value, str):
        value = UUID(value).bytes if isinstance(kind, UUIDType) else value.encode()
    elif isinstance(value, UUID):
        value = value.bytes
    elif isinstance(value, float):
        value += 0.0  # -0.0 equals 0.0
    elif isinstance(value, bool):
        value = int(value)
    return pa.scalar(value, comparable_type(kind))


def encode_values(values: Any, kind: IcebergType) -> pa.Array:
    """A typed column as serialised single values, null where the value is null."""
    values = _storage_array(values)
    if isinstance(kind, DecimalType):
        return _encode_decimals(values.cast(pa.decimal128(38, kind.scale)))
    if isinstance(kind, FloatType | DoubleType):
        return _encode_fixed_width(values, "<f4" if isinstance(kind, FloatType) else "<f8")
    if isinstance(kind, INTEGRAL_TYPES):
        return _encode_fixed_width(_cast_to_int64(values), _integer_width(kind))
    return values.cast(pa.binary())


def _storage_array(values: Any) -> pa.Array:
    flat = combine_chunks(values)
    return flat.storage if isinstance(flat, pa.ExtensionArray) else flat


def _integer_width(kind: IcebergType) -> str:
    if isinstance(kind, BooleanType):
        return "u1"
    return "<i4" if isinstance(kind, IntegerType | DateType) else "<i8"


def _decode_integers(values: pa.Array, kind: IcebergType) -> pa.Array:
    if isinstance(kind, MICROS_TYPES | NANOS_TYPES):
        day = DAY_MICROS * (1000 if isinstance(kind, NANOS_TYPES) else 1)
        return _decode_fixed_widths(values, np.int64, {8: "<i8", 4: "<i4"}, {4: day})  # four bytes: it was a date
    if isinstance(kind, BooleanType):
        return pc.min_element_wise(_decode_fixed_widths(values, np.int64, {1: "u1"}), 1, skip_nulls=False)
    if isinstance(kind, IntegerType | DateType):
        return _decode_fixed_widths(values, np.int64, {4: "<i4"})
    return _decode_fixed_widths(values, np.int64, {8: "<i8", 4: "<i4"} if isinstance(kind, LongType) else {8: "<i8"})


def _decode_floats(values: pa.Array, kind: IcebergType) -> pa.Array:
    return _without_nan(_decode_fixed_widths(values, np.float64, _float_widths(kind)))


def _float_widths(kind: IcebergType) -> dict[int, str]:
    return {4: "<f4"} if isinstance(kind, FloatType) else {4: "<f4", 8: "<f8"}


def _decode_fixed_widths(
    values: pa.Array, result_dtype: Any, widths: dict[int, str], factors: dict[int, int] | None = None
) -> pa.Array:
    lengths = _lengths(values)
    found, known = np.zeros(len(values), result_dtype), np.isin(lengths, list(widths))
    for width, dtype in widths.items():
        rows = lengths == width
        if rows.any():
            found[rows] = _concatenated_bytes(values.filter(pa.array(rows))).view(dtype)
            if factor := (factors or {}).get(width):
                known[rows] = (
                    np.abs(found[rows]) <= np.iinfo(np.int64).max // factor
                )  # the year 9999 has no nanoseconds
                found[rows] *= factor
    return pa.array(found, mask=~known)


def _decode_decimals(values: pa.Array, kind: DecimalType) -> pa.Array:
    lengths = _lengths(values)
    known = (lengths >= 1) & (lengths <= DECIMAL_BYTES)
    found = np.zeros((len(values), DECIMAL_BYTES), np.uint8)
    for width in np.unique(lengths[known]):
        rows = lengths == width
        digits = _concatenated_bytes(values.filter(pa.array(rows))).reshape(-1, width)
        found[rows] = np.where(digits[:, :1] >= 0x80, 0xFF, 0x00).astype(np.uint8)
        found[rows, :width] = digits[:, ::-1]  # Arrow keeps the least significant byte first
    return _null_beyond_precision(_decimal_array(found, known, kind.scale), kind)


def _null_beyond_precision(values: pa.Array, kind: DecimalType) -> pa.Array:
    """Only the values the type has room for; more digits cannot have been written for it."""
    if kind.precision >= 38:
        return values
    limit = pa.scalar(Decimal(1).scaleb(kind.precision - kind.scale), values.type)
    return pc.if_else(pc.less(pc.abs(values), limit), values, pa.scalar(None, values.type))


def _decimal_array(little_endian: np.ndarray[Any, Any], known: np.ndarray[Any, Any], scale: int) -> pa.Array:
    validity = pa.py_buffer(np.packbits(known, bitorder="little").tobytes())
    data = pa.py_buffer(np.ascontiguousarray(little_endian).tobytes())
    return pa.Array.from_buffers(pa.decimal128(38, scale), len(known), [validity, data])


def _encode_decimals(values: pa.Array) -> pa.Array:
    """The shortest two's complement form of each decimal, most significant byte first."""
    start = values.offset * DECIMAL_BYTES
    raw = np.frombuffer(values.buffers()[1] or b"", np.uint8)[start : start + len(values) * DECIMAL_BYTES]
    digits = raw.reshape(-1, DECIMAL_BYTES)[:, ::-1]
    sign = np.where(digits[:, :1] >= 0x80, 0xFF, 0x00)
    # a leading byte may go when it repeats the sign and the next byte still shows the sign
    shown = (digits[:, 1:] >= 0x80) == (sign == 0xFF)
    spare = np.logical_and.accumulate((digits[:, :-1] == sign) & shown, axis=1).sum(axis=1)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    lengths = np.where(valid, DECIMAL_BYTES - spare, 0)
    keep = (np.arange(DECIMAL_BYTES) >= spare[:, None]) & valid[:, None]
    return _binary_array(digits[keep], lengths, valid)


def _encode_fixed_width(values: pa.Array, width: str) -> pa.Array:
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    present = values.drop_null().to_numpy(zero_copy_only=False).astype(width)
    return _binary_array(present.view(np.uint8), np.where(valid, present.itemsize, 0), valid)


def _binary_array(data: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any], valid: np.ndarray[Any, Any]) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    validity = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(
        pa.binary(), len(lengths), [validity, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data.tobytes())]
    )


def _lengths(values: pa.Array) -> np.ndarray[Any, Any]:
    """The length of each value, -1 for null."""
    return np.asarray(pc.binary_length(values).fill_null(-1).to_numpy(zero_copy_only=False))


def _concatenated_bytes(values: pa.Array) -> np.ndarray[Any, Any]:
    """The bytes of values without nulls, one after the other."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    return np.frombuffer(values.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].copy()


def _only_of_length(values: pa.Array, length: int) -> pa.Array:
    right = pc.equal(pc.binary_length(values), length)
    return pc.if_else(right, values, pa.scalar(None, pa.binary()))


def _without_nan(values: pa.Array) -> pa.Array:
    floats = pc.add(values, 0.0)  # -0.0 equals 0.0
    return pc.if_else(pc.is_nan(floats), pa.scalar(None, pa.float64()), floats)


def _cast_to_int64(values: pa.Array) -> pa.Array:
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8()).cast(pa.int64())
    return values.cast(pa.int64())


def _cast_from_comparable(values: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_date32(target):
        return values.cast(pa.int32()).cast(target)
    return values.cast(target)


def _decode_strings(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:  # a bound cut in the middle of a character, or no text at all
        return pa.array([_decode_utf8(v) for v in values.to_pylist()], pa.string())


def _decode_utf8(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
