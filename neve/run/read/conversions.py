"""From the values a file holds to the values a column has: promotions, units, encodings of the past.

A conversion exists only where the format allows the change of type, or where old writers spelled the same value in
another way: timestamps without a zone flag, strings without a UTF-8 mark, unsigned integers, decimals of another width.
Anything else is no conversion (None). Values that do not fit make Arrow raise `ArrowInvalid`; the caller knows the file
and names it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types as at
from pyiceberg.types import (
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
    TimeType,
    UUIDType,
)

from neve.run.read.types import ArrowFlavor, arrow_type

Converter = Callable[[pa.Array], pa.Array]

_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def conversion(file_type: pa.DataType, iceberg_type: IcebergType, flavor: ArrowFlavor) -> Converter | None:
    """How values of an Arrow type become values of an Iceberg type, or None when they cannot."""
    exact = arrow_type(iceberg_type)
    if at.is_null(file_type) or at.is_null(exact):
        return _nulls(arrow_type(iceberg_type, flavor))
    if isinstance(file_type, pa.BaseExtensionType):
        return _chain(lambda a: a.storage, conversion(file_type.storage_type, iceberg_type, flavor))
    if at.is_dictionary(file_type):
        return _chain(lambda a: a.dictionary_decode(), conversion(file_type.value_type, iceberg_type, flavor))
    if isinstance(iceberg_type, StringType):
        return _text(flavor) if _is_bytes(file_type) else None
    return _chain(
        _conversion_to_exact(file_type, exact, iceberg_type),
        _conversion_to_flavor(exact, arrow_type(iceberg_type, flavor), iceberg_type),
    )


def _chain(first: Converter | None, second: Converter | None) -> Converter | None:
    if first is None or second is None:
        return None
    return lambda array: second(first(array))


def _nulls(kind: pa.DataType) -> Converter:
    return lambda array: pa.nulls(len(array), kind)


def _identity(array: pa.Array) -> pa.Array:
    return array


def _cast_to(kind: pa.DataType) -> Converter:
    return lambda array: array.cast(kind)


def _conversion_to_exact(found: pa.DataType, exact: pa.DataType, wanted: IcebergType) -> Converter | None:
    if found == exact:
        return _identity
    if at.is_timestamp(exact):
        return _timestamp_conversion(found, exact, wanted)
    if isinstance(wanted, TimeType) and at.is_time(found):
        return lambda array: _convert_unit(array, found.unit, "us").view(exact)
    return _cast_to(exact) if _is_castable(found, exact, wanted) else None


def _is_castable(found: pa.DataType, exact: pa.DataType, wanted: IcebergType) -> bool:
    match wanted:
        case IntegerType() | LongType():
            # 64 stored bits never become an int column: only the widening is a legal change of type.
            return at.is_integer(found) and (found.bit_width <= 32 or exact.bit_width == 64)
        case FloatType() | DoubleType():
            return at.is_floating(found) and found.bit_width <= exact.bit_width
        case DecimalType():
            return at.is_decimal(found) and found.scale == exact.scale
        case DateType():
            return at.is_date(found)
        case FixedType() | UUIDType():
            return at.is_binary(found) or at.is_large_binary(found) or at.is_binary_view(found)
        case _:
            return at.is_binary(exact) and _is_bytes(found)


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (at.is_string, at.is_large_string, at.is_string_view, at.is_binary, at.is_large_binary, at.is_binary_view)
    return any(test(kind) for test in tests) or at.is_fixed_size_binary(kind)


def _text(flavor: ArrowFlavor) -> Converter:
    """Strings, whether the file marks them as such or not. Spark takes bytes that are no UTF-8; Arrow's users choke."""
    if flavor is ArrowFlavor.SPARK:
        return lambda array: array.cast(pa.binary()).view(pa.string())
    return lambda array: array.cast(pa.binary()).cast(pa.string())


def _timestamp_conversion(found: pa.DataType, exact: pa.DataType, wanted: IcebergType) -> Converter | None:
    if at.is_timestamp(found):  # the stored number counts from 1970 in UTC, whatever zone the writer noted beside it
        return lambda array: _convert_unit(array, found.unit, exact.unit).view(exact)
    if at.is_date(found) and isinstance(wanted, TimestampType | TimestampNanoType):
        return lambda array: array.cast(exact)
    return None


def _convert_unit(array: pa.Array, unit: str, wanted: str) -> pa.Array:
    """The numbers of a temporal array in another unit; finer units are rounded down, also before 1970."""
    numbers = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()).cast(pa.int64())
    have, want = _UNITS[unit], _UNITS[wanted]
    if want >= have:
        return numbers if want == have else pc.multiply_checked(numbers, want // have)
    return _floor_divided(numbers, have // want)


def _floor_divided(numbers: pa.Array, divisor: int) -> pa.Array:
    values = np.floor_divide(numbers.fill_null(0).to_numpy(zero_copy_only=False), divisor)
    return pa.array(values, pa.int64(), mask=_null_mask(numbers))


def _null_mask(array: pa.Array) -> NDArray[np.bool_] | None:
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None


def _conversion_to_flavor(exact: pa.DataType, kind: pa.DataType, wanted: IcebergType) -> Converter:
    if exact == kind:
        return _identity
    if isinstance(wanted, UUIDType):
        return _uuid_text
    if isinstance(wanted, TimestampNanoType | TimestamptzNanoType):
        return lambda array: _convert_unit(array, "ns", "us").view(kind)
    return _cast_to(kind)


def _uuid_text(array: pa.Array) -> pa.Array:
    """UUIDs in their usual text form, by columns: hexadecimal digits, then the dashes."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    raw = array.cast(pa.binary()).fill_null(bytes(16))
    data = np.frombuffer(b"" if len(raw) == 0 else raw.buffers()[2], np.uint8)
    start = np.frombuffer(raw.buffers()[1], np.int32)[raw.offset] if len(raw) else 0
    values = data[start : start + 16 * len(raw)].reshape(len(raw), 16)
    text = np.full((len(raw), 36), ord("-"), np.uint8)
    text[:, _HEX_POSITIONS[0::2]] = digits[values >> 4]
    text[:, _HEX_POSITIONS[1::2]] = digits[values & 15]
    offsets = pa.py_buffer(np.arange(len(raw) + 1, dtype=np.int32) * 36)
    plain = pa.StringArray.from_buffers(len(raw), offsets, pa.py_buffer(text))
    return pc.if_else(array.is_valid(), plain, pa.scalar(None, pa.string())) if array.null_count else plain


_HEX_POSITIONS = np.array([i for i, letter in enumerate(str(uuid.UUID(int=0))) if letter != "-"])
