"""Columns of variants in data files: Parquet's type for them, which Arrow cannot write.

Arrow writes the group of a value and its metadata, but not that they are a variant. That is said in the schema, which
is in the footer, the last part of a file. So the last bytes of such a file wait in memory until the schema is complete.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Any

from pyiceberg.schema import Schema, index_by_id

from neve.io.thrift import SPAN, STRUCT, decode_struct, encode_integer
from neve.model.v3_types import VariantType

_SCHEMA, _FIELD_ID, _LOGICAL_TYPE, _VARIANT = 2, 9, 10, 16  # Parquet's fields by number
_SPECIFICATION = b"\x13\x01\x00"  # version 1 of variants
_TAIL = struct.Struct("<I4s")


def variant_ids(schema: Schema) -> frozenset[int]:
    """Return the ids of the columns that hold variants, at any depth."""
    return frozenset(i for i, field in index_by_id(schema).items() if isinstance(field.field_type, VariantType))


class VariantStream:
    """The output of a Parquet writer whose last bytes are completed before they are written."""

    closed = False  # Arrow asks

    def __init__(self, stream: Any, ids: Collection[int]) -> None:
        self._stream, self._ids = stream, ids
        self._last: list[bytes] | None = None

    def write(self, data: Any) -> int:
        """Write bytes, or keep them if they are the last."""
        if self._last is None:
            return int(self._stream.write(data))
        self._last.append(bytes(data))
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes so far."""
        return int(self._stream.tell()) + sum(map(len, self._last or ()))

    def flush(self) -> None:
        """Do nothing: files are synced when they are complete."""

    def close_writer(self, writer: Any) -> None:
        """Close the Parquet writer of this output, and complete the footer."""
        self._last = []
        writer.close()
        end, self._last = b"".join(self._last), None
        self._stream.write(_mark_variants(end, self._ids))

    def close(self) -> None:
        """Close the output."""
        self._stream.close()


def _mark_variants(end: bytes, ids: Collection[int]) -> bytes:
    """Return the end of a Parquet file, with the groups of these ids marked as variants in its schema."""
    length, magic = _TAIL.unpack(end[-_TAIL.size :])
    before, footer = end[: -_TAIL.size - length], end[-_TAIL.size - length : -_TAIL.size]
    # After the field id, the last field that Arrow writes for a group.
    mark = (
        bytes([(_LOGICAL_TYPE - _FIELD_ID) << 4 | STRUCT, STRUCT]) + encode_integer(_VARIANT) + _SPECIFICATION + b"\0"
    )
    parts, start = [], 0
    for element in decode_struct(footer)[_SCHEMA]:
        if element.get(_FIELD_ID) in ids:
            stop = element[SPAN][1] - 1
            parts += [footer[start:stop], mark]
            start = stop
    marked = b"".join([*parts, footer[start:]])
    return before + marked + _TAIL.pack(len(marked), magic)
