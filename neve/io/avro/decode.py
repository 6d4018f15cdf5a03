"""Avro file in, Arrow record batch out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

import neve.io.avro.decode_kernel as k
from neve.errors import CorruptFile, LimitExceeded, UnsupportedFeature
from neve.io.avro.buffers import ArrowAssembler, Scratch
from neve.io.avro.container import AvroHeader, Blocks, inflate_blocks, read_header_and_end
from neve.io.avro.decode_program import DecodeProgram, compile_decode_program
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

RowNumbers: TypeAlias = np.ndarray[Any, Any]

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
    rows: RowNumbers | None = None,
) -> tuple[pa.RecordBatch, AvroHeader]:
    """Decode the projected fields of an Avro file. Fields keep their Avro names, and their ids as metadata `field-id`.

    `rows` are the numbers of the records wanted, ascending; the others are stepped over, which costs little.

    `path` is for error messages: CorruptFile when the bytes are not what they claim, LimitExceeded when they ask for
    too much. `backend` is chosen when not given.
    """
    opened = open_avro(data, path, limits)
    return opened.decode(projection, backend, rows), opened.header


def open_avro(data: bytes, path: str, limits: Limits = DEFAULT_LIMITS) -> AvroFile:
    """An Avro file with its blocks inflated, to be decoded more than once."""
    header, at = read_header_and_end(data, path, limits)
    return AvroFile(path, header, inflate_blocks(data, at, header, path, limits), limits)


@dataclass(frozen=True, slots=True)
class AvroFile:
    """An Avro file in memory; inflating it costs more than decoding a few of its fields."""

    path: str
    header: AvroHeader
    blocks: Blocks
    limits: Limits

    def decode(
        self, projection: Projection = ALL_FIELDS, backend: Backend | None = None, rows: RowNumbers | None = None
    ) -> pa.RecordBatch:
        """The projected fields of all records, or of those with the numbers given."""
        program = _program(self.header, self.path, projection, self.limits)
        records = _record_count(program, self.blocks, self.path, self.limits)
        wanted = _record_flags(rows, records, self.path)
        kept = records if rows is None else len(rows)
        scratch = Scratch(program, kept, self.path, self.limits.max_decoded_bytes)
        backend = backend or backend_for(len(self.blocks.raw))
        if kept:
            _run_kernel(program, self.blocks, scratch, self.path, self.limits, backend, wanted)
        root = ArrowAssembler(scratch, self.blocks.raw, self.path, backend).struct(program.root, kept)
        return pa.RecordBatch.from_struct_array(root)


def _record_flags(rows: RowNumbers | None, records: int, path: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A flag for each record; none when all are wanted."""
    if rows is None:
        return np.zeros(0, np.uint8)
    if len(rows) and (rows[-1] >= records or rows[0] < 0 or (np.diff(rows) <= 0).any()):
        raise CorruptFile(path, f"ascending record numbers below {records}", f"record {rows[-1]}")
    wanted = np.zeros(records, np.uint8)
    wanted[rows] = 1
    return wanted


def _program(header: AvroHeader, path: str, projection: Projection, limits: Limits) -> DecodeProgram:
    try:
        return _compile_cached(header.metadata["avro.schema"], projection, limits)
    except BadSchema as e:
        raise CorruptFile(path, e.expected, e.found) from e
    except UnsupportedSchema as e:
        raise UnsupportedFeature(f"Cannot read {path}: its schema has {e}.") from e


@lru_cache(maxsize=128)
def _compile_cached(schema: bytes, projection: Projection, limits: Limits) -> DecodeProgram:
    """Manifests of one table share a few schemas: each is compiled once for a projection."""
    return compile_decode_program(apply_projection(parse_schema(json.loads(schema), limits), projection))


def _record_count(program: DecodeProgram, blocks: Blocks, path: str, limits: Limits) -> int:
    """The records of all blocks, once every block has proved to have enough bytes for its own."""
    least = program.least_bytes
    if least == 0:
        if blocks.counts.sum(dtype=float) > limits.max_empty_items:
            hint = "They take no bytes; raise Limits.max_empty_items if they are meant."
            raise LimitExceeded(f"the number of empty records in {path}", limits.max_empty_items, hint)
        return int(blocks.counts.sum())
    room = np.diff(blocks.ends, prepend=0) // least
    short = np.flatnonzero(blocks.counts > room)
    if len(short):
        found = f"{blocks.counts[short[0]]} in block {short[0]}"
        raise CorruptFile(path, "no more records than the bytes of the block allow", found)
    return int(blocks.counts.sum())


def _run_kernel(
    program: DecodeProgram,
    blocks: Blocks,
    scratch: Scratch,
    path: str,
    limits: Limits,
    backend: Backend,
    record_flags: np.ndarray[Any, np.dtype[np.uint8]],
) -> None:
    """Run the kernel to the end of the file, with more scratch memory whenever it asks for it."""
    state = np.zeros(k.STATE_WORDS, np.int64)
    state[k.RECORDS_LEFT], state[k.EMPTY_ITEMS] = blocks.counts[0], limits.max_empty_items
    state[k.PC] = program.skip_at if len(record_flags) and not record_flags[0] else 0
    stack = np.zeros(2 * program.list_depth + 2, np.int64)
    raw = backend.bytes(blocks.raw)
    status = k.GROW
    while status == k.GROW:
        memory = (scratch.base, scratch.bytes, scratch.bytes.view(np.int32), scratch.bytes.view(np.int64))
        rest = (blocks.ends, blocks.counts, scratch.room, scratch.filled, stack, state, record_flags)
        arrays = (backend.array(each) for each in (program.words, *memory, *rest))
        status = backend.decode(raw, *arrays, program.skip_at)
        if status == k.GROW:
            scratch.grow(int(state[k.CONTEXT]), int(state[k.ROWS_NEEDED]), float(state[k.POSITION]) / len(blocks.raw))
    if status != k.DONE:
        raise _fault(program, blocks, path, status, [int(each) for each in state])


def _fault(program: DecodeProgram, blocks: Blocks, path: str, status: int, state: list[int]) -> CorruptFile:
    block = state[k.IN_BLOCK]
    offset = state[k.POSITION] - (int(blocks.ends[block - 1]) if block else 0)
    what, found = FAULTS[status]
    field = program.field_at(state[k.PC])
    expected = f"{what} in field {field!r}" if field else what
    return CorruptFile(path, expected, f"{found} (record {state[k.RECORD]}, block {block}, byte {offset} uncompressed)")
