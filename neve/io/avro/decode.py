"""Decode an Avro file into an Arrow record batch.

A schema and a projection are compiled into a program (`decode_program`). The kernel (`decode_kernel`) runs it and fills
`Scratch`: one zeroed arena with a column per slot, which grows with the lists of the file. `ArrowAssembler` copies each
column out of it into memory of its own and exact size.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

import neve.io.avro.decode_kernel as k
from neve.errors import CorruptFile, LimitExceeded, UnsupportedFeature
from neve.io.avro.container import AvroHeader, Blocks, inflate_blocks, read_header_and_end
from neve.io.avro.decode_program import Column, DecodeProgram, compile_decode_program
from neve.io.avro.jit import Backend, backend_for
from neve.io.avro.schema import (
    ALL_FIELDS,
    DEFAULT_LIMITS,
    BadSchema,
    Limits,
    Projection,
    UnsupportedSchema,
    apply_projection,
    parse_schema,
)

Array: TypeAlias = np.ndarray[Any, Any]
UNBOUNDED = 1 << 62
FIRST_ITEMS = 64  # initial capacity for the items of a list
MARGIN = 1.125  # extra capacity over the estimate from the part read so far

FAULTS: dict[int, tuple[str, str]] = {
    k.ENDS_EARLY: ("a value", "the end of the block"),
    k.BAD_VARINT: ("a number of at most 10 bytes", "a longer one"),
    k.BAD_INT: ("a number of 32 bits", "a larger one"),
    k.BAD_LENGTH: ("a length within the block", "a negative or larger one"),
    k.BAD_COUNT: ("a count of items that the block has room for", "a larger one"),
    k.BAD_BRANCH: ("branch 0 or 1 of a union", "another"),
    k.BAD_BOOLEAN: ("a boolean", "a byte that is neither 0 nor 1"),
    k.BAD_SYMBOL: ("the number of a symbol", "one the enum does not have"),
    k.BAD_DECIMAL: ("a decimal of at most 16 bytes", "a larger one"),
    k.LEFTOVER: ("the end of the block after its last record", "more bytes"),
}


def decode(
    data: bytes,
    path: str,
    projection: Projection = ALL_FIELDS,
    limits: Limits = DEFAULT_LIMITS,
    backend: Backend | None = None,
    rows: Array | None = None,
) -> tuple[pa.RecordBatch, AvroHeader]:
    """Decode the projected fields of an Avro file. Fields keep their Avro names, and their ids as metadata `field-id`.

    `rows` are the ascending numbers of the records to decode; skipping the others costs little. Errors name `path`:
    CorruptFile if the bytes are not valid, LimitExceeded if they need too much memory. By default, the amount of data
    decides the backend.
    """
    opened = open_avro(data, path, limits)
    return opened.decode(projection, backend, rows), opened.header


def open_avro(data: bytes, path: str, limits: Limits = DEFAULT_LIMITS) -> AvroFile:
    """Open an Avro file and inflate its blocks, to decode it one or more times."""
    header, at = read_header_and_end(data, path, limits)
    return AvroFile(path, header, inflate_blocks(data, at, header, path, limits), limits)


@dataclass(frozen=True, slots=True)
class AvroFile:
    """An inflated Avro file in memory. Inflating costs more than decoding a few fields."""

    path: str
    header: AvroHeader
    blocks: Blocks
    limits: Limits

    def decode(
        self, projection: Projection = ALL_FIELDS, backend: Backend | None = None, rows: Array | None = None
    ) -> pa.RecordBatch:
        """Decode the projected fields of all records, or of the records with the given numbers."""
        try:
            program = _compile_cached(self.header.metadata["avro.schema"], projection, self.limits)
        except BadSchema as e:
            raise CorruptFile(self.path, e.expected, e.found) from e
        except UnsupportedSchema as e:
            raise UnsupportedFeature(f"Cannot read {self.path}: its schema has {e}.") from e
        counts, least, most_empty = self.blocks.counts, program.least_bytes, self.limits.max_empty_items
        if least == 0 and counts.sum(dtype=float) > most_empty:
            hint = "They take no bytes; raise Limits.max_empty_items if they are intended."
            raise LimitExceeded(f"the number of empty records in {self.path}", most_empty, hint)
        too_short = np.flatnonzero(counts > np.diff(self.blocks.ends, prepend=0) // max(least, 1))
        if least and len(too_short):
            problem = f"{counts[too_short[0]]} in block {too_short[0]}"
            raise CorruptFile(self.path, "no more records than the bytes of the block allow", problem)
        records = int(counts.sum())
        count, record_flags = records, np.zeros(0, np.uint8)  # no flags: all records are decoded
        if rows is not None:
            if len(rows) and (rows[-1] >= records or rows[0] < 0 or (np.diff(rows) <= 0).any()):
                raise CorruptFile(self.path, f"ascending record numbers below {records}", f"record {rows[-1]}")
            count, record_flags = len(rows), np.zeros(records, np.uint8)
            record_flags[rows] = 1
        scratch = Scratch(program, count, self.path, self.limits.max_decoded_bytes)
        backend = backend or backend_for(len(self.blocks.raw))
        if count:
            self._run_kernel(program, scratch, backend, record_flags)
        root = ArrowAssembler(scratch, self.blocks.raw, self.path, backend).struct(program.root, count)
        return pa.RecordBatch.from_struct_array(root)

    def _run_kernel(self, program: DecodeProgram, scratch: Scratch, backend: Backend, record_flags: Array) -> None:
        """Run the kernel to the end of the file, and enlarge the scratch memory whenever it is full."""
        state = np.zeros(k.STATE_WORDS, np.int64)
        state[k.RECORDS_LEFT], state[k.EMPTY_ITEMS] = self.blocks.counts[0], self.limits.max_empty_items
        state[k.PC] = program.skip_at if len(record_flags) and not record_flags[0] else 0
        stack = np.zeros(2 * program.list_depth + 2, np.int64)
        raw = backend.bytes(self.blocks.raw)
        status = k.GROW
        while status == k.GROW:
            memory = (scratch.base, scratch.bytes, scratch.bytes.view(np.int32), scratch.bytes.view(np.int64))
            progress = (self.blocks.ends, self.blocks.counts, scratch.room, scratch.filled, stack, state, record_flags)
            arrays = (backend.array(each) for each in (program.words, *memory, *progress))
            status = backend.decode(raw, *arrays, program.skip_at)
            if status == k.GROW:
                scratch.grow(int(state[k.CONTEXT]), int(state[k.ROWS_NEEDED]), float(state[k.POSITION]) / len(raw))
        if status != k.DONE:
            block = int(state[k.IN_BLOCK])
            offset = state[k.POSITION] - (self.blocks.ends[block - 1] if block else 0)
            expected, problem = FAULTS[status]
            fields = [field for at, field in program.instruction_fields if at <= state[k.PC]]
            if fields and fields[-1]:
                expected = f"{expected} in field {fields[-1]!r}"
            position = f"record {state[k.RECORD]}, block {block}, byte {offset} uncompressed"
            raise CorruptFile(self.path, expected, f"{problem} ({position})")


@lru_cache(maxsize=128)
def _compile_cached(schema: bytes, projection: Projection, limits: Limits) -> DecodeProgram:
    """Compile a schema once for each projection: the manifests of a table share a few schemas."""
    return compile_decode_program(apply_projection(parse_schema(json.loads(schema), limits), projection))


class Scratch:
    """Columns under construction. `room` and `filled` count rows per context; context 0 has the records."""

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
        """Make room for `needed_rows` rows in a context, and for the expected items of all lists in the whole file.

        The expectation is extrapolated from `fraction_read`, the part of the file read so far.
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
        """Return the first rows of a slot as a view of the scratch memory: copy them to keep them."""
        start, width = int(self.starts[slot]), int(self.program.slot_width[slot])
        return self.bytes[start : start + count * width].view(dtype)


class ArrowAssembler:
    """Builds Arrow arrays from the scratch memory of one decoded file."""

    def __init__(self, scratch: Scratch, raw: bytearray, path: str, backend: Backend) -> None:
        self.scratch, self.path, self.backend = scratch, path, backend
        self.raw = backend.bytes(raw)

    def array(self, column: Column, rows: int) -> pa.Array:
        """Build a column with its children."""
        match column.node.kind:
            case _ if len(column.slots) == 2:  # starts and lengths of text, bytes or encoded bytes
                array = self._text(column, rows)
            case "null":
                array = pa.nulls(rows, column.type)
            case "record":
                array = self.struct(column, rows)
            case "array" | "map":
                array = self._list(column, rows)
            case "enum":
                indices = self._fixed_width(column, pa.int32(), rows)
                array = pa.DictionaryArray.from_arrays(indices, pa.array(column.node.symbols, pa.string()))
            case "boolean":
                buffers = [self._validity_buffer(column, rows), self._bits(column.slots[0], rows)]
                array = pa.Array.from_buffers(pa.bool_(), rows, buffers)
            case _:
                array = self._fixed_width(column, column.type, rows)
        return self._validate(column, array, f"a {column.type}") if pa.types.is_decimal(array.type) else array

    def struct(self, column: Column, rows: int) -> pa.Array:
        """Build a struct from a record; the file itself is a record."""
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


def _offsets_from_lengths(lengths: Array) -> Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
