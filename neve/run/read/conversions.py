"""Convert values of a file to values of a column: promotions, units, encodings of older writers.

A conversion exists only where the format allows the change of type, or where older writers encoded the same value
differently: timestamps without a zone flag, strings without a UTF-8 mark, unsigned integers, decimals of another width.
Otherwise there is no conversion (None). Arrow raises `ArrowInvalid` for values that do not fit; the caller adds the
file's name.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as at
from pyiceberg import types as ice

from neve.run.read.types import ArrowFlavor, UnscaledNanos, arrow_type

Converter = Callable[[pa.Array], pa.Array]

_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # per second


@lru_cache(4096)  # most files of a table have the same types
def conversion(file_type: pa.DataType, iceberg_type: ice.IcebergType, flavor: ArrowFlavor) -> Converter | None:
    """Return the converter from an Arrow type to an Iceberg type, or None when there is none."""
    exact, flavored = arrow_type(iceberg_type), arrow_type(iceberg_type, flavor)
    if at.is_null(file_type) or at.is_null(exact):
        return lambda array: pa.nulls(len(array), flavored)
    if isinstance(file_type, pa.BaseExtensionType):
        return _chain(lambda a: a.storage, conversion(file_type.storage_type, iceberg_type, flavor))
    if at.is_dictionary(file_type):
        convert = conversion(file_type.value_type, iceberg_type, flavor)
        return None if convert is None else lambda array: _convert_dictionary(array, convert)
    if isinstance(iceberg_type, ice.StringType):
        # Spark accepts bytes that are not UTF-8; users of Arrow fail on them, so there a cast checks them.
        as_text = (lambda array: array.view(pa.string())) if flavor is ArrowFlavor.SPARK else _cast_to(pa.string())
        return _chain(_cast_to(pa.binary()), as_text) if _is_bytes(file_type) else None
    to_exact = _conversion_to_exact(file_type, exact, iceberg_type)
    return _chain(to_exact, _conversion_to_flavor(exact, flavored, iceberg_type))


def _chain(first: Converter | None, second: Converter | None) -> Converter | None:
    if first is None or second is None:
        return None
    return lambda array: second(first(array))


def _convert_dictionary(array: pa.Array, convert: Converter) -> pa.Array:
    """Convert each value of a dictionary once. Rows that were read by their pages come without one."""
    if not at.is_dictionary(array.type):
        return convert(array)
    # Arrow does not check the numbers that it reads; `from_arrays` does.
    return pa.DictionaryArray.from_arrays(array.indices, convert(array.dictionary)).dictionary_decode()


def _identity(array: pa.Array) -> pa.Array:
    return array


def _cast_to(kind: pa.DataType) -> Converter:
    return lambda array: array.cast(kind)


def _conversion_to_exact(file_type: pa.DataType, exact: pa.DataType, iceberg_type: ice.IcebergType) -> Converter | None:
    if file_type == exact:
        return _identity
    if at.is_timestamp(exact):
        if at.is_timestamp(file_type):  # the stored number counts from 1970 in UTC, whatever zone the writer recorded
            return lambda array: _convert_unit(array, file_type.unit, exact.unit).view(exact)
        is_without_zone = isinstance(iceberg_type, ice.TimestampType | ice.TimestampNanoType)
        return _cast_to(exact) if at.is_date(file_type) and is_without_zone else None
    if isinstance(iceberg_type, ice.TimeType) and at.is_time(file_type):
        return lambda array: _convert_unit(array, file_type.unit, "us").view(exact)
    return _cast_to(exact) if _is_castable(file_type, exact, iceberg_type) else None


def _is_castable(file_type: pa.DataType, exact: pa.DataType, iceberg_type: ice.IcebergType) -> bool:
    match iceberg_type:
        case ice.IntegerType() | ice.LongType():
            # Stored 64-bit integers never become an int column: the format allows only widening.
            return at.is_integer(file_type) and (file_type.bit_width <= 32 or exact.bit_width == 64)
        case ice.FloatType() | ice.DoubleType():
            return at.is_floating(file_type) and file_type.bit_width <= exact.bit_width
        case ice.DecimalType():
            return at.is_decimal(file_type) and file_type.scale == exact.scale
        case ice.DateType():
            return at.is_date(file_type)
        case ice.FixedType() | ice.UUIDType():
            return at.is_binary(file_type) or at.is_large_binary(file_type) or at.is_binary_view(file_type)
        case _:
            return at.is_binary(exact) and _is_bytes(file_type)


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (at.is_string, at.is_large_string, at.is_string_view, at.is_binary, at.is_large_binary, at.is_binary_view)
    return any(test(kind) for test in tests) or at.is_fixed_size_binary(kind)


def _convert_unit(array: pa.Array, from_unit: str, to_unit: str) -> pa.Array:
    """Return the numbers of a temporal array in another unit; finer units are rounded down, also before 1970."""
    numbers = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()).cast(pa.int64())
    before, after = _UNITS[from_unit], _UNITS[to_unit]
    if after >= before:
        return numbers if after == before else pc.multiply_checked(numbers, after // before)
    values = np.floor_divide(numbers.fill_null(0).to_numpy(zero_copy_only=False), before // after)
    null_mask = numbers.is_null().to_numpy(zero_copy_only=False) if numbers.null_count else None
    return pa.array(values, pa.int64(), mask=null_mask)


def _conversion_to_flavor(exact: pa.DataType, flavored: pa.DataType, iceberg_type: ice.IcebergType) -> Converter:
    if exact == flavored:
        return _identity
    if isinstance(iceberg_type, ice.UUIDType):
        return _uuid_text
    if isinstance(iceberg_type, UnscaledNanos):
        return lambda array: array.view(flavored)
    if isinstance(iceberg_type, ice.TimestampNanoType | ice.TimestamptzNanoType):
        return lambda array: _convert_unit(array, "ns", "us").view(flavored)
    return _cast_to(flavored)


def _uuid_text(array: pa.Array) -> pa.Array:
    """Return UUIDs in their usual text form. Vectorized: a Python loop over values would be slow."""
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
