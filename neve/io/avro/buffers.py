"""Turns filled scratch memory into Arrow arrays, copying each column into memory of its own and exact size.

Scratch memory of the decoder: one zeroed arena cut into a column per slot, that grows with the lists of the file.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from neve.errors import CorruptFile, LimitExceeded
from neve.io.avro.decode_program import Column, DecodeProgram
from neve.io.avro.jit import Backend

Array = np.ndarray[Any, Any]
UNBOUNDED = 1 << 62
FIRST_ITEMS = 64  # room for the items of a list before anything is known about it
MARGIN = 1.125  # of items over what the part read so far lets expect


class Scratch:
    """Columns under construction. `room` and `filled` count rows by context; context 0 holds the records."""

    def __init__(self, program: DecodeProgram, records: int, path: str, budget: int) -> None:
        self.program, self.path, self.budget = program, path, budget
        self.room = np.full(program.contexts, UNBOUNDED, np.int64)
        self.room[program.slot_context] = FIRST_ITEMS  # a context without slots needs no memory
        self.room[0] = records
        self.filled = np.zeros(program.contexts, np.int64)
        self.filled[0] = records
        self._allocate()

    def _allocate(self) -> None:
        program = self.program
        sizes = (self.room[program.slot_context] * program.slot_width + 7) // 8 * 8
        total = int(sizes.sum())
        if total > self.budget:
            hint = "Decode fewer fields, or raise Limits.max_decoded_bytes."
            raise LimitExceeded(f"the decoded size of {self.path}", self.budget, hint)
        self.starts = np.cumsum(sizes) - sizes
        self.base = self.starts // program.slot_unit
        self.bytes = np.zeros(max(total, 8), np.uint8)

    def grow(self, context: int, needed_rows: int, fraction_read: float) -> None:
        """Make room for `wanted` rows in a context, and for what every list will hold if the file goes on as it began.

        `share` is the part of the file read so far.
        """
        expected = (self.filled / max(fraction_read, 1e-9) * MARGIN).astype(np.int64) + FIRST_ITEMS
        lists = self.room < UNBOUNDED
        lists[0] = False
        old_bytes, old_starts = self.bytes, self.starts
        old_rows = self.room[self.program.slot_context]
        self.room[lists] = np.maximum(self.room, expected)[lists]
        self.room[context] = max(self.room[context], needed_rows + needed_rows // 2)
        self._allocate()
        for slot, rows in enumerate(old_rows):
            size = int(rows * self.program.slot_width[slot])
            old, new = int(old_starts[slot]), int(self.starts[slot])
            self.bytes[new : new + size] = old_bytes[old : old + size]

    def rows(self, slot: int, dtype: Any, count: int) -> Array:
        """The first rows of a slot, still inside the scratch: copy what is to live longer."""
        start, width = int(self.starts[slot]), int(self.program.slot_width[slot])
        return self.bytes[start : start + count * width].view(dtype)


class ArrowAssembler:
    """One decoded file on its way to Arrow."""

    def __init__(self, scratch: Scratch, raw: bytearray, path: str, backend: Backend) -> None:
        self.scratch, self.path, self.backend = scratch, path, backend
        self.raw = backend.bytes(raw)

    def array(self, column: Column, rows: int) -> pa.Array:
        """A column and everything below it."""
        if len(column.slots) == 2:  # starts and lengths of text, bytes or encoded bytes
            return self._text(column, rows)
        special = {
            "null": self._null,
            "record": self.struct,
            "array": self._list,
            "map": self._list,
            "enum": self._enum,
            "boolean": self._boolean,
        }
        return special.get(column.node.kind, self._plain)(column, rows)

    def struct(self, column: Column, rows: int) -> pa.Array:
        """A record as a struct; the file itself is one."""
        children = [self.array(child, rows) for child in column.children]
        return pa.Array.from_buffers(column.type, rows, [self._validity_buffer(column, rows)], children=children)

    def _list(self, column: Column, rows: int) -> pa.Array:
        items = int(self.scratch.filled[column.context])
        children = [self.array(child, items) for child in column.children]
        if column.node.kind == "map":
            pairs = pa.struct([column.type.key_field, column.type.item_field])
            children = [pa.Array.from_buffers(pairs, items, [None], children=children)]
        offsets = _offsets_from_lengths(self.scratch.rows(column.slots[0], np.int32, rows))
        buffers = [self._validity_buffer(column, rows), pa.py_buffer(offsets)]
        return pa.Array.from_buffers(column.type, rows, buffers, children=children)

    def _text(self, column: Column, rows: int) -> pa.Array:
        starts = self.scratch.rows(column.slots[0], np.int32, rows)
        lengths = self.scratch.rows(column.slots[1], np.int32, rows)
        offsets = _offsets_from_lengths(lengths)
        out = np.empty(int(offsets[-1]), np.uint8)
        view = self.backend.array
        self.backend.gather(self.raw, view(starts), view(lengths), view(out))
        buffers = [self._validity_buffer(column, rows), pa.py_buffer(offsets), pa.py_buffer(out)]
        array = pa.Array.from_buffers(column.type, rows, buffers)
        return self._validate(column, array, "UTF-8 text") if pa.types.is_string(column.type) else array

    def _plain(self, column: Column, rows: int) -> pa.Array:
        array = self._fixed_width(column, column.type, rows)
        return self._validate(column, array, f"a {column.type}") if pa.types.is_decimal(column.type) else array

    def _enum(self, column: Column, rows: int) -> pa.Array:
        numbers = self._fixed_width(column, pa.int32(), rows)
        return pa.DictionaryArray.from_arrays(numbers, pa.array(column.node.symbols, pa.string()))

    def _boolean(self, column: Column, rows: int) -> pa.Array:
        return pa.Array.from_buffers(
            pa.bool_(), rows, [self._validity_buffer(column, rows), self._bits(column.slots[0], rows)]
        )

    def _null(self, column: Column, rows: int) -> pa.Array:
        return pa.nulls(rows, column.type)

    def _fixed_width(self, column: Column, type_: pa.DataType, rows: int) -> pa.Array:
        values = self.scratch.rows(column.slots[0], np.uint8, rows).copy()
        return pa.Array.from_buffers(type_, rows, [self._validity_buffer(column, rows), pa.py_buffer(values)])

    def _validate(self, column: Column, array: pa.Array, expected: str) -> pa.Array:
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as e:
            raise CorruptFile(self.path, f"{expected} in field {column.node.path!r}", "bytes that are not") from e
        return array

    def _validity_buffer(self, column: Column, rows: int) -> pa.Buffer | None:
        if column.valid < 0 or self.scratch.rows(column.valid, np.uint8, rows).all():
            return None
        return self._bits(column.valid, rows)

    def _bits(self, slot: int, rows: int) -> pa.Buffer:
        return pa.py_buffer(np.packbits(self.scratch.rows(slot, np.uint8, rows), bitorder="little"))


def _offsets_from_lengths(lengths: Any) -> Any:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
