"""Arrow record batch in, Avro file out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from neve.errors import UnsupportedFeature, UserError
from neve.io.avro.codecs import COMPRESSORS, Bytes
from neve.io.avro.container import write_container
from neve.io.avro.encode_program import EncodeProgram, compile_encode_program
from neve.io.avro.jit import Backend, backend_for
from neve.io.avro.schema import (
    DEFAULT_LIMITS,
    BadSchema,
    Node,
    Projection,
    UnsupportedSchema,
    apply_projection,
    parse_schema,
)

SLACK = 16  # bytes after the longest possible output
BLOCK_BYTES = 64_000


def encode(
    batch: pa.RecordBatch | pa.Table,
    schema: dict[str, Any],
    metadata: Mapping[str, bytes],
    codec: str = "deflate",
    encoded_fields: frozenset[str] = frozenset(),
    block_bytes: int = BLOCK_BYTES,
    backend: Backend | None = None,
) -> bytes:
    """Write an Avro file with the given schema; columns are matched to fields by name, at every level.

    A column may be missing when its field is optional, and is cast when that loses nothing. The fields named by
    `encoded` come as binary columns of bytes that `decode` returned for the same type, and are copied as they are.
    """
    if codec not in COMPRESSORS:
        raise UnsupportedFeature(f"Cannot write Avro with codec {codec!r}. Known: {', '.join(COMPRESSORS)}.")
    lowered = compile_encode_program(_parse_root(schema, encoded_fields), _combine_into_batch(batch))
    out, bounds = _run_kernel(lowered, batch.num_rows, backend or backend_for(lowered.most_bytes))
    return write_container(schema, metadata, codec, _split_into_blocks(out, bounds, block_bytes))


def _parse_root(schema: dict[str, Any], encoded_fields: frozenset[str]) -> Node:
    try:
        root = parse_schema(schema, DEFAULT_LIMITS)
    except (BadSchema, UnsupportedSchema) as e:
        raise UserError(f"Cannot write Avro: the schema is not supported ({e}).") from e
    if root.kind != "record" or root.is_optional:
        raise UserError(f"Cannot write Avro: the schema of a file is a record, not {root.kind}.")
    return apply_projection(root, Projection(None, encoded_fields))


def _combine_into_batch(batch: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    if isinstance(batch, pa.Table):
        batches = batch.combine_chunks().to_batches()
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], batch.schema)
    batch.validate()
    return batch


def _run_kernel(program: EncodeProgram, records: int, backend: Backend) -> tuple[memoryview, Any]:
    """The records one after the other, and where each ends."""
    memory, base = program.arena()
    out = np.empty(program.most_bytes + SLACK, np.uint8)
    bounds = np.zeros(records, np.int64)
    stack = np.zeros(2 * program.list_depth + 2, np.int64)
    words = np.array(program.words, np.int32)
    arrays = (words, base, memory, memory.view(np.int32), memory.view(np.int64), stack, out, bounds)
    backend.encode(*(backend.array(each) for each in arrays))
    return out.data, bounds


def _split_into_blocks(out: memoryview, bounds: Any, block_bytes: int) -> Iterator[tuple[int, Bytes]]:
    """Cut the records into blocks of about `block_bytes`, at least one record each."""
    first = start = 0
    while first < len(bounds):
        last = max(first + 1, int(np.searchsorted(bounds, start + block_bytes, side="right")))
        end = int(bounds[last - 1])
        yield last - first, out[start:end]
        first, start = last, end
