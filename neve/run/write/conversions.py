"""Convert values to a column's type without changing them.

A value is stored only if nothing of it gets lost: integers may change width, numbers may change type if the value
stays the same, dates may become timestamps at midnight and back, text may become a UUID. Doubles may be rounded to
floats, which are approximate anyway.
"""

from __future__ import annotations

from binascii import unhexlify
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from neve.errors import UserError

_MAX_NUMBER_BYTES, _MAX_TEXT_BYTES = 16, (1 << 31) - 1

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


_ACCEPTED_TYPES: Mapping[type[ice.IcebergType], tuple[TypeCheck, ...]] = {
    ice.BooleanType: (pa.types.is_boolean,),
    ice.IntegerType: (_is_number,),
    ice.LongType: (_is_number,),
    ice.FloatType: (_is_number,),
    ice.DoubleType: (_is_number,),
    ice.DecimalType: (_is_number,),
    ice.StringType: (_is_text, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date),
    ice.BinaryType: (_is_bytes,),
    ice.FixedType: (_is_bytes,),
    ice.GeometryType: (_is_bytes,),
    ice.GeographyType: (_is_bytes,),
    ice.UUIDType: (_is_bytes, _is_text),
    ice.DateType: (pa.types.is_date, _is_local_timestamp),
    ice.TimeType: (pa.types.is_time,),
    ice.TimestampType: (_is_local_timestamp, pa.types.is_date),
    ice.TimestampNanoType: (_is_local_timestamp, pa.types.is_date),
    ice.TimestamptzType: (_is_instant,),
    ice.TimestamptzNanoType: (_is_instant,),
}


def is_convertible(source: pa.DataType, target: ice.IcebergType) -> bool:
    """Check whether values of an Arrow type can become values of a primitive type; only null becomes unknown."""
    return any(test(source) for test in _ACCEPTED_TYPES.get(type(target), ()))


def unwrap_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the plain values in dictionaries, run-end encodings and extension types."""
    if isinstance(kind, pa.BaseExtensionType):
        return unwrap_type(kind.storage_type)
    return unwrap_type(kind.value_type) if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind) else kind


def is_encoded(kind: pa.DataType) -> bool:
    """Check whether a type has dictionaries, run-end encodings or views, also inside. `nbytes` is not their size."""
    if isinstance(kind, pa.BaseExtensionType):
        return is_encoded(kind.storage_type)
    is_wrapped = pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind) or _is_view(kind)
    return is_wrapped or any(is_encoded(kind.field(i).type) for i in range(kind.num_fields))


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def decoded_bytes(values: pa.Array) -> int:
    """Return about how many bytes values have once they are decoded."""
    if isinstance(values, pa.ExtensionArray):
        return decoded_bytes(values.storage)
    kind = values.type
    if not is_encoded(kind):
        return int(values.nbytes)
    if pa.types.is_run_end_encoded(kind):
        return len(values) * int(pc.max(_value_bytes(values.values)).as_py() or 0)
    if _is_view(kind):
        sizes = _value_bytes(values)
    elif pa.types.is_dictionary(kind):
        sizes = _value_bytes(values.dictionary).take(values.indices)
    else:
        lists = map_pairs(values) if pa.types.is_map(kind) else values
        return sum(map(decoded_bytes, lists.flatten() if pa.types.is_struct(kind) else [lists.flatten()]))
    return int(pc.sum(sizes).as_py() or 0)


def _value_bytes(values: pa.Array) -> pa.Array:
    """Return the size of each value, or a limit of it."""
    if _is_view(values.type):
        lengths = np.frombuffer(values.buffers()[1] or b"", np.int32)[::4]  # a view has 16 bytes; the length is first
        own_lengths = lengths[values.offset : values.offset + len(values)]
        return pa.array(own_lengths, mask=values.is_null().to_numpy(zero_copy_only=False))
    if _is_text(values.type) or _is_bytes(values.type):
        return pc.binary_length(values)
    return pa.repeat(values.nbytes if pa.types.is_nested(values.type) else _MAX_NUMBER_BYTES, len(values))


def map_pairs(values: pa.MapArray) -> pa.ListArray:
    """Return maps as lists of structs."""
    fields = [values.type.key_field, values.type.item_field]
    kind = pa.list_(pa.field("entries", pa.struct(fields), nullable=False))
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:  # Arrow casts no null structs with required fields
        pairs = pa.StructArray.from_arrays([values.keys, values.items], fields=fields)
        return pa.Array.from_buffers(kind, len(values), values.buffers()[:2], -1, values.offset, [pairs])


def unwrap_values(values: pa.Array) -> pa.Array:
    """Return the plain values of dictionaries, run-end encodings and extension arrays."""
    if isinstance(values, pa.ExtensionArray):
        return unwrap_values(values.storage)
    if pa.types.is_dictionary(values.type):
        return unwrap_values(values.dictionary_decode())
    return unwrap_values(pc.run_end_decode(values)) if pa.types.is_run_end_encoded(values.type) else values


def convert_values(values: pa.Array, target: ice.IcebergType, kind: pa.DataType, where: str) -> pa.Array:
    """Return the values of a column as a primitive type, which is `kind` in Arrow; raise if a value would change."""
    if values.type == kind:
        return values
    if values.get_total_buffer_size() > _MAX_TEXT_BYTES:  # Arrow casts text by where it ends in memory, so it is copied
        values = values.take(pa.array(np.arange(len(values))))
    try:
        return _convert_exactly(values, target, kind)
    except (pa.ArrowException, ValueError) as e:
        raise UserError(
            f"Cannot store every value of column {where!r} as {target}: one is out of range or would be rounded or cut "
            f"({values.type} given). Cast it first."
        ) from e


def _convert_exactly(values: pa.Array, target: ice.IcebergType, kind: pa.DataType) -> pa.Array:
    match target:
        case ice.UUIDType():
            return pa.ExtensionArray.from_storage(kind, _uuid_bytes(values))
        case ice.FixedType():
            return values.cast(pa.binary()).cast(kind)
        case ice.DecimalType() if pa.types.is_integer(values.type):
            return values.cast(pa.decimal128(20, 0)).cast(kind)
        case ice.FloatType() if not pa.types.is_integer(values.type):
            doubles = values.cast(pa.float64())
            floats = doubles.cast(kind)
            if pc.any(pc.xor(pc.is_inf(doubles), pc.is_inf(floats))).as_py():
                raise ValueError("out of range")
            return floats
        case ice.DecimalType() | ice.DateType() if not pa.types.is_decimal(values.type):
            converted = values.cast(kind)
            # Not every cast of Arrow checks what it cuts off, so the result is cast back and compared.
            if pc.any(pc.not_equal(converted.cast(values.type), values)).as_py():
                raise ValueError("values would change")
            return converted
    return values.cast(kind)


def _uuid_bytes(values: pa.Array) -> pa.Array:
    if not _is_text(values.type):
        return values.cast(pa.binary()).cast(pa.binary(16))
    digits = pc.replace_substring(values.cast(pa.string()).drop_null(), "-", "")
    if pc.any(pc.not_equal(pc.binary_length(digits), 32)).as_py():
        raise ValueError("not a UUID")
    raw = unhexlify(pc.binary_join(pa.ListArray.from_arrays([0, len(digits)], digits), "")[0].as_py())
    packed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(digits), [None, pa.py_buffer(raw)])
    counts = pc.cumulative_sum(values.is_valid().cast(pa.int64()))
    return packed.take(pc.if_else(values.is_valid(), pc.subtract(counts, 1), None))
