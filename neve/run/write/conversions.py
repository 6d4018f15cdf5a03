"""Values from one type to another, none of them changed.

A value is stored only when it arrives whole: whole numbers may change width, numbers may change kind when the value
stays the same, dates may become timestamps at midnight and back, text may become a UUID. Doubles may be rounded to
floats, which are approximate by nature.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

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

from neve.errors import UserError

TypeCheck = Callable[[pa.DataType], bool]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    return any(test(kind) for test in tests)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_local_timestamp(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is None)


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


_ACCEPTED_TYPES: Mapping[type[IcebergType], tuple[TypeCheck, ...]] = {
    BooleanType: (pa.types.is_boolean,),
    IntegerType: (_is_number,),
    LongType: (_is_number,),
    FloatType: (_is_number,),
    DoubleType: (_is_number,),
    DecimalType: (_is_number,),
    StringType: (_is_text, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date),
    BinaryType: (_is_bytes,),
    FixedType: (_is_bytes,),
    UUIDType: (_is_bytes, _is_text),
    DateType: (pa.types.is_date, _is_local_timestamp),
    TimeType: (pa.types.is_time,),
    TimestampType: (_is_local_timestamp, pa.types.is_date),
    TimestampNanoType: (_is_local_timestamp, pa.types.is_date),
    TimestamptzType: (_is_instant,),
    TimestamptzNanoType: (_is_instant,),
}


def is_convertible(source: pa.DataType, target: IcebergType) -> bool:
    """Whether values of an Arrow type can become values of a primitive type; only null becomes unknown."""
    return any(test(source) for test in _ACCEPTED_TYPES.get(type(target), ()))


def unwrap_type(kind: pa.DataType) -> pa.DataType:
    """The type without its wrapping: dictionaries and extensions hold plain values."""
    if isinstance(kind, pa.BaseExtensionType):
        return unwrap_type(kind.storage_type)
    return unwrap_type(kind.value_type) if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind) else kind


def unwrap_values(values: pa.Array) -> pa.Array:
    """The values without their wrapping."""
    if isinstance(values, pa.ExtensionArray):
        return unwrap_values(values.storage)
    if pa.types.is_dictionary(values.type):
        return unwrap_values(values.dictionary_decode())
    return unwrap_values(pc.run_end_decode(values)) if pa.types.is_run_end_encoded(values.type) else values


def convert_values(values: pa.Array, target: IcebergType, kind: pa.DataType, where: str) -> pa.Array:
    """The values of a column as a primitive type, which is `kind` in Arrow. One that would change is an error."""
    if values.type == kind:
        return values
    try:
        return _convert_exactly(values, target, kind)
    except (pa.ArrowException, ValueError) as e:
        raise UserError(
            f"Cannot store every value of column {where!r} as {target}: one is out of range or would be rounded or cut "
            f"({values.type} given). Cast it first."
        ) from e


def _convert_exactly(values: pa.Array, target: IcebergType, kind: pa.DataType) -> pa.Array:
    match target:
        case UUIDType():
            return pa.ExtensionArray.from_storage(kind, _uuid_bytes(values))
        case FixedType():
            return values.cast(pa.binary()).cast(kind)
        case DecimalType() if pa.types.is_integer(values.type):
            return values.cast(pa.decimal128(20, 0)).cast(kind)
        case FloatType() if not pa.types.is_integer(values.type):
            return _round_to_float(values.cast(pa.float64()), kind)
        case DecimalType() | DateType() if not pa.types.is_decimal(values.type):
            return _unchanged(values, values.cast(kind))
    return values.cast(kind)


def _round_to_float(values: pa.Array, kind: pa.DataType) -> pa.Array:
    found = values.cast(kind)
    if pc.any(pc.xor(pc.is_inf(values), pc.is_inf(found))).as_py():
        raise ValueError("out of range")
    return found


def _unchanged(values: pa.Array, found: pa.Array) -> pa.Array:
    """What was found, if it leads back to the values: not every cast of Arrow looks at what it cuts off."""
    if pc.any(pc.not_equal(found.cast(values.type), values)).as_py():
        raise ValueError("values would change")
    return found


def _uuid_bytes(values: pa.Array) -> pa.Array:
    if not _is_text(values.type):
        return values.cast(pa.binary()).cast(pa.binary(16))
    present = values.drop_null()
    digits = pc.replace_substring(present, "-", "")
    if pc.any(pc.not_equal(pc.binary_length(digits), 32)).as_py():
        raise ValueError("not a UUID")
    raw = bytes.fromhex("".join(digits.to_pylist()))
    packed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(present), [None, pa.py_buffer(raw)])
    counted = pc.cumulative_sum(values.is_valid().cast(pa.int64()))
    return packed.take(pc.if_else(values.is_valid(), pc.subtract(counted, 1), None))
