"""Encode an Arrow record batch as an Avro file.

The columns are lowered to a program and to one flat piece of memory, on which the kernel (`encode_kernel`) runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import neve.io.avro.encode_kernel as k
from neve.errors import UnsupportedFeature, UserError
from neve.io.avro.codecs import COMPRESSORS, Bytes
from neve.io.avro.container import write_container
from neve.io.avro.jit import Backend, backend_for
from neve.io.avro.schema import (
    DEFAULT_LIMITS,
    BadSchema,
    Node,
    Projection,
    Role,
    UnsupportedSchema,
    apply_projection,
    parse_schema,
)

Array = np.ndarray[Any, Any]
SLACK = 16  # bytes after the longest possible output
BLOCK_BYTES = 64_000
VARINT, LONG_VARINT = 5, 10  # maximum bytes of a 32-bit and a 64-bit number


def encode(
    batch: pa.RecordBatch | pa.Table,
    schema: dict[str, Any],
    metadata: Mapping[str, bytes],
    codec: str = "deflate",
    encoded_fields: frozenset[str] = frozenset(),
    block_bytes: int = BLOCK_BYTES,
    backend: Backend | None = None,
    sync: bytes | None = None,
) -> bytes:
    """Encode an Avro file with the given schema; columns are matched to fields by name, at every level.

    A column may be missing if its field is optional. It is cast if that loses nothing. The fields in `encoded_fields`
    are binary columns with the bytes that `decode` returned for the same type; these are copied unchanged. The marker
    between blocks is `sync`, or random.
    """
    if codec not in COMPRESSORS:
        raise UnsupportedFeature(f"Cannot write Avro with codec {codec!r}. Known: {', '.join(COMPRESSORS)}.")
    try:
        root = parse_schema(schema, DEFAULT_LIMITS)
    except (BadSchema, UnsupportedSchema) as e:
        raise UserError(f"Cannot write Avro: the schema is not supported ({e}).") from e
    if root.kind != "record" or root.is_optional:
        raise UserError(f"Cannot write Avro: the schema of a file is a record, not {root.kind}.")
    if isinstance(batch, pa.Table):
        batches = batch.combine_chunks().to_batches()
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], batch.schema)
    batch.validate()
    root = apply_projection(root, Projection(None, encoded_fields))
    program = EncodeProgram()
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    _emit_record(program, root, columns, batch.num_rows, None, 0)
    program.words.append(k.PUT_END)
    out, bounds = _run_kernel(program, batch.num_rows, backend or backend_for(program.most_bytes))
    return write_container(schema, metadata, codec, _split_into_blocks(out, bounds, block_bytes), sync)


def _run_kernel(program: EncodeProgram, records: int, backend: Backend) -> tuple[memoryview, Array]:
    """Run the kernel; return the encoded records in one buffer, and where each ends."""
    sizes = np.array([(each.nbytes + 7) // 8 * 8 for each in program.slots], np.int64)
    starts = np.cumsum(sizes) - sizes
    memory = np.empty(max(int(sizes.sum()), 8), np.uint8)  # all slots in one piece
    for start, values in zip(starts, program.slots, strict=True):
        memory[start : start + values.nbytes] = values.view(np.uint8)
    base = starts // np.array([each.itemsize for each in program.slots], np.int64)  # in units of its elements
    out = np.empty(program.most_bytes + SLACK, np.uint8)
    bounds = np.zeros(records, np.int64)
    stack = np.zeros(2 * program.list_depth + 2, np.int64)
    words = np.array(program.words, np.int32)
    arrays = (words, base, memory, memory.view(np.int32), memory.view(np.int64), stack, out, bounds)
    backend.encode(*(backend.array(each) for each in arrays))
    return out.data, bounds


def _split_into_blocks(out: memoryview, bounds: Array, block_bytes: int) -> Iterator[tuple[int, Bytes]]:
    """Cut the records into blocks of about `block_bytes`, at least one record each."""
    first = start = 0
    while first < len(bounds):
        last = max(first + 1, int(np.searchsorted(bounds, start + block_bytes, side="right")))
        end = int(bounds[last - 1])
        yield last - first, out[start:end]
        first, start = last, end


@dataclass(slots=True)
class EncodeProgram:
    """Words for the kernel, the memory of each slot, and the maximum size of the encoded records."""

    words: list[int] = field(default_factory=list)
    slots: list[Array] = field(default_factory=list)
    most_bytes: int = 0
    list_depth: int = 0

    def add_slot(self, values: Array) -> int:
        """Add a slot with these values and return its number."""
        self.slots.append(np.ascontiguousarray(values))
        return len(self.slots) - 1


def _emit_record(
    out: EncodeProgram, node: Node, columns: Mapping[str, pa.Array], rows: int, alive: Array | None, depth: int
) -> None:
    unknown = sorted(columns.keys() - {child.name for child in node.children})
    if unknown:
        record = f"record {node.path!r}" if node.path else "the record"
        raise UserError(f"Cannot write Avro: {record} has no field {unknown[0]!r}. Drop the column or add the field.")
    for child in node.children:
        array = columns.get(child.name)
        if array is None:
            if not child.node.is_optional and child.node.kind != "null":
                raise UserError(f"Cannot write Avro: the required field {child.node.path!r} has no column.")
            array = pa.nulls(rows, child.node.arrow_type)
        _emit_field(out, child.node, array, alive, depth)


def _emit_field(out: EncodeProgram, node: Node, array: pa.Array, alive: Array | None, depth: int) -> None:
    """Emit the value of each row. Rows that are not `alive` are inside a null and are not read."""
    if alive is not None and pa.types.is_dictionary(array.type):  # Arrow leaves indices without an entry inside a null
        numbers = pc.if_else(pa.array(alive != 0), array.indices, pa.scalar(None, array.type.index_type))
        array = pa.DictionaryArray.from_arrays(numbers, array.dictionary)
    array = _cast_to_node_type(node, array)
    valid = _booleans_as_bytes(array.is_valid()) if array.null_count else np.ones(len(array), np.uint8)
    if node.is_optional and node.role is Role.KEEP:
        at = len(out.words)
        out.words += [k.PUT_OPTION, out.add_slot(valid), 2 * (1 - node.null_branch), 2 * node.null_branch, 0]
        out.most_bytes += len(array)
        _emit_value(out, node, array, valid if alive is None else valid & alive, depth)
        out.words[at + 4] = len(out.words)
        return
    if node.kind != "null" and ((valid == 0) if alive is None else (valid < alive)).any():
        raise UserError(f"Cannot write Avro: the required field {node.path!r} has null values.")
    if node.role is Role.BYTES:
        _emit_payload(out, array)
    else:
        _emit_value(out, node, array, alive, depth)


def _cast_to_node_type(node: Node, array: pa.Array) -> pa.Array:
    """Cast the array to the type of the schema; fields of lists and structs are cast later, one by one."""
    is_same_kind = (
        node.kind == "enum"  # its symbols are looked up by name in any representation
        or (node.kind == "record" and pa.types.is_struct(array.type))
        or (node.kind in ("array", "map") and (pa.types.is_list(array.type) or pa.types.is_map(array.type)))
    )
    if array.type == node.arrow_type or (node.role is Role.KEEP and is_same_kind):
        return array
    try:
        return array.cast(node.arrow_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowIndexError) as e:
        problem = f"its column of {array.type} does not fit {node.arrow_type}"
        raise UserError(f"Cannot write Avro: field {node.path!r}: {problem} ({e}).") from e


def _emit_value(out: EncodeProgram, node: Node, array: pa.Array, alive: Array | None, depth: int) -> None:
    match node.kind:
        case "null":
            return
        case "record":
            columns = {array.type.field(i).name: array.field(i) for i in range(array.type.num_fields)}
            _emit_record(out, node, columns, len(array), alive, depth)
        case "array" | "map":
            _emit_list(out, node, array, alive, depth)
        case "bytes" | "string" if not pa.types.is_decimal(array.type):
            out.words += [k.PUT_LENGTH, len(out.slots)]  # the slot of the offsets, which `_emit_payload` adds first
            _emit_payload(out, array)
            out.most_bytes += VARINT * len(array)
        case _:
            _emit_leaf(out, node, array)


def _emit_leaf(out: EncodeProgram, node: Node, array: pa.Array) -> None:
    words: tuple[int, ...]
    match node.kind:
        case "int":
            words, width = (k.PUT_INT, out.add_slot(_buffer_values(array, np.int32))), VARINT
        case "long":
            words, width = (k.PUT_LONG, out.add_slot(_buffer_values(array, np.int64))), LONG_VARINT
        case "enum":
            texts = array.cast(pa.string())
            numbers = pc.index_in(texts, value_set=pa.array(node.symbols, pa.string()))
            if numbers.null_count != texts.null_count:
                raise UserError(f"Cannot write Avro: field {node.path!r} has values that are not among its symbols.")
            words, width = (k.PUT_INT, out.add_slot(np.asarray(numbers.fill_null(0)))), VARINT
        case "boolean":
            words, width = (k.PUT_FIXED, out.add_slot(_booleans_as_bytes(array)), 1), 1
        case "bytes":
            words, width = (k.PUT_DECIMAL, out.add_slot(_buffer_values(array, np.uint8, 16))), 17
        case "fixed" if pa.types.is_decimal(array.type):
            words, width = (k.PUT_DECIMAL_FIXED, out.add_slot(_decimal_bytes(node, array)), node.size), node.size
        case _:
            width = array.type.bit_width // 8
            words = (k.PUT_FIXED, out.add_slot(_buffer_values(array, np.uint8, width)), width)
    out.words += words
    out.most_bytes += width * len(array)


def _emit_list(out: EncodeProgram, node: Node, array: pa.Array, alive: Array | None, depth: int) -> None:
    offsets = _check_offsets(np.asarray(array.offsets), len(array))
    items = array.values.slice(offsets[0], offsets[-1] - offsets[0])
    offsets = offsets - offsets[0]
    at = len(out.words)
    out.words += [k.PUT_LIST, out.add_slot(offsets), 0]
    out.most_bytes += (VARINT + 1) * len(array)
    out.list_depth = max(out.list_depth, depth + 1)
    below = None if alive is None else np.repeat(alive, np.diff(offsets))
    if node.kind == "map":
        _emit_record(out, node, {"key": items.field(0), "value": items.field(1)}, len(items), below, depth + 1)
    else:
        _emit_field(out, node.children[0].node, items, below, depth + 1)
    out.words += [k.PUT_ITEM, at + 3]
    out.words[at + 2] = len(out.words)


def _emit_payload(out: EncodeProgram, array: pa.Array) -> None:
    buffers = array.buffers()
    offsets = np.frombuffer(buffers[1] or b"", np.int32)[array.offset : array.offset + len(array) + 1]
    offsets = _check_offsets(offsets, len(array))
    payload = np.frombuffer(buffers[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    out.words += [k.PUT_PAYLOAD, out.add_slot(offsets - offsets[0]), out.add_slot(payload)]
    out.most_bytes += len(payload)


def _check_offsets(offsets: Array, rows: int) -> Array:
    """Reject descending offsets, so that the memory of the columns bounds the output of the kernel."""
    if rows == 0:
        return np.zeros(1, np.int32)
    if offsets[0] < 0 or (np.diff(offsets) < 0).any():
        raise UserError("Cannot write Avro: a column has descending offsets. Validate the batch.")
    return offsets


def _buffer_values(array: pa.Array, dtype: Any, width: int = 1) -> Array:
    if len(array) == 0:
        return np.zeros(0, dtype)
    start, end = array.offset * width, (array.offset + len(array)) * width
    return np.frombuffer(array.buffers()[1], dtype)[start:end]


def _booleans_as_bytes(array: pa.Array) -> Array:
    """Return one byte per boolean; null becomes 0."""
    return np.asarray(array.fill_null(False).cast(pa.uint8()))


def _decimal_bytes(node: Node, array: pa.Array) -> Array:
    """Return 16 bytes per decimal, after checking that all but the lowest `node.size` bytes repeat the sign."""
    values = _buffer_values(array, np.uint8, 16)
    cells = values.reshape(-1, 16)
    if node.size < 16 and len(cells):
        sign = np.where(cells[:, node.size - 1] > 127, 255, 0)
        fits = (cells[:, node.size :] == sign[:, None]).all(axis=1) | ~np.asarray(array.is_valid())
        if not fits.all():
            raise UserError(f"Cannot write Avro: field {node.path!r} has decimals over {node.size} bytes.")
    return values
