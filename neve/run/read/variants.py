"""Variants as Arrow holds them: a struct of their binary value and of its metadata, which lists the names of fields.

A writer may shred variants: it stores fields that most values have in columns of their own. Here such values are put
together again, since the files of one table are shredded in different ways, and readers of Arrow expect whole values.
Numbers and times are encoded a column at a time; objects, whose bytes depend on the fields of each row, one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as at

from neve.run.read.types import VARIANT

Values = list[bytes | None]  # encoded variants; None where there is none

# The encoding: the two lowest bits of the first byte are the kind of a value, the others depend on it.
_SHORT_TEXT, _OBJECT, _LIST = 1, 2, 3  # 0: a primitive value
_NULL, _TRUE, _FALSE, _TEXT, _BYTES = b"\x00", b"\x04", b"\x08", b"\x40", b"\x3c"
_MAX_SHORT_TEXT, _MAX_SMALL_COUNT = 63, 255
_DECIMALS = ((9, 8, 4), (18, 9, 8), (38, 10, 16))  # digits up to which a kind of decimal is used, its number, its bytes
_FIXED_WIDTH = {
    pa.int8(): 3,
    pa.int16(): 4,
    pa.int32(): 5,
    pa.int64(): 6,
    pa.float64(): 7,
    pa.date32(): 11,
    pa.float32(): 14,
    pa.time64("us"): 17,
    pa.binary(16): 20,
}
_TIMES = {("us", True): 12, ("us", False): 13, ("ns", True): 18, ("ns", False): 19}  # by unit, and whether in UTC


def is_variant_group(kind: pa.DataType) -> bool:
    """Check whether a type of a file can be a variant, shredded or not."""
    names = {field.name for field in kind} if at.is_struct(kind) else set()
    return "metadata" in names and bool(names & {"value", "typed_value"})


def is_whole_variant(kind: pa.DataType) -> bool:
    """Check whether a type is that of variants that are not shredded."""
    is_struct = at.is_struct(kind) and sorted(field.name for field in kind) == ["metadata", "value"]
    return is_struct and all(at.is_binary(field.type) or at.is_large_binary(field.type) for field in kind)


def children_by_name(values: pa.StructArray) -> dict[str, pa.Array]:
    """Return the columns of a struct, which are null where the struct is null."""
    return dict(zip((field.name for field in values.type), values.flatten(), strict=True))


def read_variants(group: pa.StructArray) -> pa.StructArray:
    """Return the whole variants of a column of a file."""
    columns = children_by_name(group)
    metadata = columns["metadata"].cast(pa.binary())
    if "typed_value" in columns:
        whole = _put_together(columns, metadata.fill_null(b"").to_pylist())
        values = pa.array([_NULL if value is None else value for value in whole], pa.binary())
    else:
        values = columns["value"].cast(pa.binary()).fill_null(_NULL)
    return pa.StructArray.from_arrays([values, metadata.fill_null(b"")], fields=list(VARIANT), mask=group.is_null())


def _put_together(columns: Mapping[str, pa.Array], metadata: Sequence[bytes]) -> Values:
    """Return the encoded values of a group that has a column of values, of values of one type, or both."""
    untyped: Values = columns["value"].cast(pa.binary()).to_pylist() if "value" in columns else [None] * len(metadata)
    if "typed_value" not in columns:
        return untyped
    typed = _plain(columns["typed_value"])
    if at.is_struct(typed.type):
        return _merge_objects(typed, untyped, metadata)
    encoded = _encode_lists(typed, metadata) if at.is_list(typed.type) else encode_column(typed)
    if any(one is not None and other is not None for one, other in zip(encoded, untyped, strict=True)):
        raise pa.ArrowInvalid("a value is stored twice: as it is, and by its type")
    return [other if one is None else one for one, other in zip(encoded, untyped, strict=True)]


def _merge_objects(typed: pa.StructArray, untyped: Values, metadata: Sequence[bytes]) -> Values:
    """Return objects whose fields are in columns of their own, and in part in an object beside them."""
    columns = {name: _put_together(_children(column), metadata) for name, column in children_by_name(typed).items()}
    is_object, merged = typed.is_valid().to_pylist(), list(untyped)
    for row, rest in enumerate(untyped):
        if is_object[row]:
            numbers = _field_numbers(metadata[row])
            fields = {} if rest is None else _fields_of_object(rest, metadata[row])
            fields |= {name: value for name, values in columns.items() if (value := values[row]) is not None}
            merged[row] = _encode_object(fields, numbers)
    return merged


def _encode_lists(typed: pa.ListArray, metadata: Sequence[bytes]) -> Values:
    elements, parents = pc.list_flatten(typed), pc.list_parent_indices(typed).to_pylist()
    values = _put_together(_children(elements), [metadata[parent] for parent in parents])
    ends = np.cumsum(pc.fill_null(pc.list_value_length(typed), 0).to_numpy(zero_copy_only=False)).tolist()
    lists = ([_NULL if value is None else value for value in values[a:b]] for a, b in pairwise([0, *ends]))
    is_valid = typed.is_valid().to_pylist()
    return [_encode_list(each) if valid else None for each, valid in zip(lists, is_valid, strict=True)]


def _plain(values: pa.Array) -> pa.Array:
    """Return values without the dictionaries, views and long offsets that a note in the file may ask Arrow for."""
    kind = values.type
    if at.is_dictionary(kind):
        return _plain(values.dictionary_decode())
    if at.is_list_view(kind) or at.is_large_list_view(kind) or at.is_large_list(kind):
        return values.cast(pa.list_(kind.value_field))
    if at.is_large_string(kind) or at.is_string_view(kind):
        return values.cast(pa.string())
    return values.cast(pa.binary()) if at.is_large_binary(kind) or at.is_binary_view(kind) else values


def _children(group: pa.StructArray) -> dict[str, pa.Array]:
    if not at.is_struct(group.type):
        raise pa.ArrowInvalid("a part of a shredded variant is no group")
    return children_by_name(group)


# -- values of one type ------------------------------------------------------------------------------------------------


def encode_column(values: pa.Array) -> Values:
    """Encode values of a primitive type as variants."""
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return encode_column(values.storage)
    if at.is_boolean(kind):
        return [None if value is None else _TRUE if value else _FALSE for value in values.to_pylist()]
    if at.is_string(kind):
        return [None if value is None else _encode_text(value) for value in values.cast(pa.binary()).to_pylist()]
    if at.is_binary(kind):
        return [None if value is None else _BYTES + _sized(value) for value in values.to_pylist()]
    if at.is_decimal128(kind):
        number, width = next((number, width) for digits, number, width in _DECIMALS if kind.precision <= digits)
        return _encode_fixed_width(values, bytes([number << 2, kind.scale]), width)
    number = _TIMES.get((kind.unit, kind.tz is not None), 0) if at.is_timestamp(kind) else _FIXED_WIDTH.get(kind, 0)
    if not number:
        raise pa.ArrowInvalid(f"variants have no values of type {kind}")
    return _encode_fixed_width(values, bytes([number << 2]), kind.bit_width // 8)


def _encode_fixed_width(values: pa.Array, head: bytes, width: int) -> Values:
    if not len(values):
        return []
    stored, size = values.type.bit_width // 8, len(head) + width
    raw = np.frombuffer(values.buffers()[1], np.uint8, len(values) * stored, values.offset * stored)
    encoded = np.empty((len(values), size), np.uint8)
    encoded[:, : len(head)], encoded[:, len(head) :] = list(head), raw.reshape(-1, stored)[:, :width]
    data, is_valid = encoded.tobytes(), values.is_valid().to_pylist()
    return [data[row * size : (row + 1) * size] if valid else None for row, valid in enumerate(is_valid)]


def _encode_text(text: bytes) -> bytes:
    is_short = len(text) <= _MAX_SHORT_TEXT
    return bytes([len(text) << 2 | _SHORT_TEXT]) + text if is_short else _TEXT + _sized(text)


def _sized(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


# -- objects and lists -------------------------------------------------------------------------------------------------


def _encode_object(fields: Mapping[str, bytes], numbers: Mapping[str, int]) -> bytes:
    try:
        ordered = sorted((name.encode(), numbers[name], value) for name, value in fields.items())
    except KeyError as error:
        raise pa.ArrowInvalid(f"the metadata of a variant lacks the field {error}") from None
    ids, values = [number for _, number, _ in ordered], [value for _, _, value in ordered]
    id_width, offset_width = _width(max(ids, default=0)), _width(sum(map(len, values)))
    is_large = len(ids) > _MAX_SMALL_COUNT
    head = _OBJECT | (offset_width - 1) << 2 | (id_width - 1) << 4 | is_large << 6
    numbers_part = b"".join(number.to_bytes(id_width, "little") for number in ids)
    return bytes([head]) + _count(len(ids), is_large) + numbers_part + _with_offsets(values, offset_width)


def _encode_list(values: Sequence[bytes]) -> bytes:
    offset_width, is_large = _width(sum(map(len, values))), len(values) > _MAX_SMALL_COUNT
    head = _LIST | (offset_width - 1) << 2 | is_large << 4
    return bytes([head]) + _count(len(values), is_large) + _with_offsets(values, offset_width)


def _with_offsets(values: Sequence[bytes], width: int) -> bytes:
    ends = np.cumsum([0, *map(len, values)]).tolist()
    return b"".join([*(end.to_bytes(width, "little") for end in ends), *values])


def _count(count: int, is_large: bool) -> bytes:
    return count.to_bytes(4 if is_large else 1, "little")


def _width(largest: int) -> int:
    return max((largest.bit_length() + 7) // 8, 1)


def _fields_of_object(value: bytes, metadata: bytes) -> dict[str, bytes]:
    """Return the encoded fields of an object by their names."""
    head = value[0] if value else _NULL[0]
    if head & 3 != _OBJECT:
        raise pa.ArrowInvalid("a value that is no object has fields in columns of their own")
    offset_width, id_width = (head >> 2 & 3) + 1, (head >> 4 & 3) + 1
    start = 1 + (4 if head >> 6 & 1 else 1)
    count = int.from_bytes(value[1:start], "little")
    if start + count * id_width + (count + 1) * offset_width > len(value):
        raise pa.ArrowInvalid("an object ends too early")
    ids = list(_numbers(value, start, id_width, count))
    offsets = list(_numbers(value, start + count * id_width, offset_width, count + 1))
    data = start + count * id_width + (count + 1) * offset_width
    ends = dict(pairwise(sorted(offsets)))  # fields need not be stored in the order of their names
    names = _field_names(metadata)
    if len(value) < data + max(offsets, default=0) or max(ids, default=-1) >= len(names):
        raise pa.ArrowInvalid("an object ends too early, or has fields that its metadata lacks")
    return {names[i]: value[data + at : data + ends.get(at, at)] for i, at in zip(ids, offsets, strict=False)}


@lru_cache(1024)  # most rows have the fields of others
def _field_numbers(metadata: bytes) -> dict[str, int]:
    """Return the numbers of the names in the metadata of a variant."""
    return {name: number for number, name in enumerate(_field_names(metadata))}


@lru_cache(1024)
def _field_names(metadata: bytes) -> tuple[str, ...]:
    """Return the names in the metadata of a variant, which may have one twice."""
    width = (metadata[0] >> 6 & 3) + 1 if metadata else 1
    count = int.from_bytes(metadata[1 : 1 + width], "little")
    data = 1 + width * (count + 2)
    offsets = list(_numbers(metadata, 1 + width, width, count + 1)) if data <= len(metadata) else [len(metadata)]
    if len(metadata) < data + max(offsets):
        raise pa.ArrowInvalid("the metadata of a variant ends too early")
    try:
        return tuple(metadata[data + a : data + b].decode() for a, b in pairwise(offsets))
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(f"a name of a field of a variant is no text: {error}") from None


def _numbers(data: bytes, at_byte: int, width: int, count: int) -> Iterator[int]:
    return (int.from_bytes(data[at_byte + n * width : at_byte + (n + 1) * width], "little") for n in range(count))
