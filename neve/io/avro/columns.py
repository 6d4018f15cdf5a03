"""Turns filled scratch memory into Arrow arrays, copying each column into memory of its own and exact size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from neve.errors import CorruptFile
from neve.io.avro.backend import Backend
from neve.io.avro.nodes import Role
from neve.io.avro.program import Column
from neve.io.avro.scratch import Scratch

__all__ = ["Assembly"]


class Assembly:
    """One decoded file on its way to Arrow."""

    def __init__(self, scratch: Scratch, raw: bytes, path: str, backend: Backend) -> None:
        self.scratch, self.path, self.backend = scratch, path, backend
        self.raw = backend.bytes(raw)

    def array(self, column: Column, rows: int) -> pa.Array:
        node = column.node
        if node.role is Role.BYTES:
            return self._text(column, pa.binary(), rows)
        match node.kind:
            case "null":
                return pa.nulls(rows)
            case "record":
                return self.struct(column, rows)
            case "array" | "map":
                return self._list(column, rows)
            case "enum":
                codes = self._plain(column, pa.int32(), rows)
                return pa.DictionaryArray.from_arrays(codes, pa.array(node.symbols, pa.string()))
            case "bytes" | "string" if len(column.slots) == 2:
                return self._text(column, node.leaf_type, rows)
            case "boolean":
                return pa.Array.from_buffers(
                    pa.bool_(), rows, [self._valid(column, rows), self._bits(column.slots[0], rows)]
                )
            case _:
                return self._plain(column, node.leaf_type, rows)

    def struct(self, column: Column, rows: int) -> pa.Array:
        children = [self.array(child, rows) for child in column.children]
        return pa.Array.from_buffers(column.node.arrow_type, rows, [self._valid(column, rows)], children=children)

    def _list(self, column: Column, rows: int) -> pa.Array:
        items = int(self.scratch.filled[column.context])
        children = [self.array(child, items) for child in column.children]
        type_ = column.node.arrow_type
        if column.node.kind == "map":
            pairs = pa.struct([type_.key_field, type_.item_field])
            children = [pa.Array.from_buffers(pairs, items, [None], children=children)]
        offsets = self._offsets(self.scratch.rows(column.slots[0], np.int32, rows))
        return pa.Array.from_buffers(type_, rows, [self._valid(column, rows), pa.py_buffer(offsets)], children=children)

    def _text(self, column: Column, type_: pa.DataType, rows: int) -> pa.Array:
        starts = self.scratch.rows(column.slots[0], np.int32, rows)
        lengths = self.scratch.rows(column.slots[1], np.int32, rows)
        offsets = self._offsets(lengths)
        out = np.empty(int(offsets[-1]), np.uint8)
        view = self.backend.array
        self.backend.gather(self.raw, view(starts), view(lengths), view(out))
        buffers = [self._valid(column, rows), pa.py_buffer(offsets), pa.py_buffer(out)]
        array = pa.Array.from_buffers(type_, rows, buffers)
        return self._checked(column, array, "UTF-8 text") if pa.types.is_string(type_) else array

    def _plain(self, column: Column, type_: pa.DataType, rows: int) -> pa.Array:
        values = self.scratch.rows(column.slots[0], np.uint8, rows).copy()
        array = pa.Array.from_buffers(type_, rows, [self._valid(column, rows), pa.py_buffer(values)])
        return self._checked(column, array, f"a {type_}") if pa.types.is_decimal(type_) else array

    def _checked(self, column: Column, array: pa.Array, expected: str) -> pa.Array:
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as e:
            raise CorruptFile(self.path, f"{expected} in field {column.node.path!r}", "bytes that are not") from e
        return array

    def _offsets(self, lengths: Any) -> Any:
        offsets = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return offsets

    def _valid(self, column: Column, rows: int) -> pa.Buffer | None:
        if column.valid < 0 or self.scratch.rows(column.valid, np.uint8, rows).all():
            return None
        return self._bits(column.valid, rows)

    def _bits(self, slot: int, rows: int) -> pa.Buffer:
        return pa.py_buffer(np.packbits(self.scratch.rows(slot, np.uint8, rows), bitorder="little"))
