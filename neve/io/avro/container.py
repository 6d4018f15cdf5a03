"""The Avro object container: a header, then blocks of records, each followed by the file's sync marker."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from neve.errors import CorruptFile, LimitExceeded, UnsupportedFeature
from neve.io.avro.codecs import COMPRESSORS, DECOMPRESSORS, Bytes, DamagedBlock, OutputTooLarge
from neve.io.avro.schema import DEFAULT_LIMITS, Limits

MAGIC = b"Obj\x01"
ENCRYPTED = b"AGS1"
SYNC_BYTES = 16
MAX_VARINT = 10
PADDING = 16  # zero bytes after the last block, so that the kernel can read a whole varint before it checks the end
_load_json_cached = lru_cache(maxsize=64)(json.loads)


@dataclass(frozen=True, slots=True)
class AvroHeader:
    """The header of an Avro file. Files with equal schemas share the schema value: do not change it."""

    schema: dict[str, Any]
    metadata: Mapping[str, bytes]
    codec: str
    sync: bytes


@dataclass(frozen=True, slots=True)
class Blocks:
    """The encoded records of a file: all blocks in one buffer, with the end and the record count of each block."""

    raw: bytearray
    ends: np.ndarray[Any, np.dtype[np.int64]]
    counts: np.ndarray[Any, np.dtype[np.int64]]


def read_header(data: bytes, path: str) -> AvroHeader:
    """Read the header of an Avro file with the bytes `data`, without its records."""
    return read_header_and_end(data, path, DEFAULT_LIMITS)[0]


def read_header_and_end(data: bytes, path: str, limits: Limits) -> tuple[AvroHeader, int]:
    """Read the header; return it and the position of the first block."""
    if data[:4] == ENCRYPTED:
        reason = "it is encrypted (AES GCM stream), and table encryption is not supported"
        raise UnsupportedFeature(f"Cannot read {path}: {reason}.")
    if data[:4] != MAGIC:
        start = f"the bytes {data[:4].hex()!r}" if data else "an empty file"
        raise CorruptFile(path, "an Avro file that begins with 'Obj' and 1", start)
    metadata, at = _read_metadata(data, path, limits)
    if at + SYNC_BYTES > len(data):
        end = f"the end of the file at byte {len(data)}"
        raise CorruptFile(path, "a sync marker of 16 bytes after the header", end)
    codec = metadata.get("avro.codec", b"null").decode("utf-8", "replace")
    if codec not in DECOMPRESSORS:
        raise UnsupportedFeature(f"Unsupported Avro codec {codec!r} in {path}. Known: {', '.join(DECOMPRESSORS)}.")
    if "avro.schema" not in metadata:
        raise CorruptFile(path, "an 'avro.schema' in the header", f"only {sorted(metadata)[:8]}")
    try:
        schema = _load_json_cached(metadata["avro.schema"])
    except (ValueError, RecursionError) as e:
        raise CorruptFile(path, "a JSON schema in the header", f"{type(e).__name__} while parsing it") from e
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise CorruptFile(path, "a record as the schema of the file", f"a schema of {type(schema).__name__}")
    return AvroHeader(schema, MappingProxyType(metadata), codec, data[at : at + SYNC_BYTES]), at + SYNC_BYTES


def _read_metadata(data: bytes, path: str, limits: Limits) -> tuple[dict[str, bytes], int]:
    metadata: dict[str, bytes] = {}
    count, at = _read_long(data, 4, path)
    while count != 0:
        if count < 0:  # the block's length in bytes follows; it is not needed
            count, (_, at) = -count, _read_long(data, at, path)
        if count > len(data) - at:
            raise CorruptFile(path, "a header with fewer entries than bytes", f"{count} entries at byte {at}")
        for _ in range(count):
            key, at = _read_bytes(data, at, path)
            metadata[key.decode("utf-8", "replace")], at = _read_bytes(data, at, path)
            if at > limits.max_header_bytes:
                hint = "Raise Limits.max_header_bytes if you trust the file."
                raise LimitExceeded(f"the header of {path}", limits.max_header_bytes, hint)
        count, at = _read_long(data, at, path)
    return metadata, at


def inflate_blocks(data: bytes, at: int, header: AvroHeader, path: str, limits: Limits) -> Blocks:
    """Decompress all blocks from byte `at` on, and check lengths, counts and sync markers."""
    budget = limits.inflated_budget(len(data))
    decompress = DECOMPRESSORS[header.codec]
    raw = bytearray()  # grown in place: joining a list of pieces takes a quarter longer
    ends: list[int] = []
    counts: list[int] = []
    for count, body, block_at in _stored_blocks(data, at, header.sync, path):
        try:
            piece = decompress(body, budget - len(raw))
        except OutputTooLarge:
            hint = "It may be a decompression bomb; raise Limits.max_inflated_bytes or max_inflate_ratio if it is not."
            raise LimitExceeded(f"the uncompressed size of {path}", budget, hint) from None
        except DamagedBlock as e:
            problem = f"bytes that do not decompress ({e})"
            raise CorruptFile(path, f"a {header.codec} block at byte {block_at}", problem) from e
        if count:
            raw += piece
            ends.append(len(raw))
            counts.append(count)
        elif len(piece):
            raise CorruptFile(path, f"no bytes in the block without records at byte {block_at}", f"{len(piece)} bytes")
    raw += bytes(PADDING)
    return Blocks(raw, np.array(ends, np.int64), np.array(counts, np.int64))


def _stored_blocks(data: bytes, at: int, sync: bytes, path: str) -> Iterator[tuple[int, Bytes, int]]:
    """Yield the record count, the stored bytes and the position of each block."""
    view, total = memoryview(data), len(data)
    while at < total:
        block_at = at
        count, at = _read_long(data, at, path)
        size, at = _read_long(data, at, path)
        end = at + size
        if count < 0 or size < 0 or end + SYNC_BYTES > total:
            problem = f"{count} records in {size} bytes, of {total - at} left"
            raise CorruptFile(path, f"a whole block at byte {block_at}", problem)
        if not data.startswith(sync, end):
            raise CorruptFile(path, f"the sync marker of the header at byte {end}", "other bytes")
        yield count, view[at:end], block_at
        at = end + SYNC_BYTES


def _read_long(data: bytes, start: int, path: str) -> tuple[int, int]:
    value, at = 0, start
    for byte in data[start : start + MAX_VARINT]:
        value |= (byte & 127) << 7 * (at - start)
        at += 1
        if byte < 128 and value < 1 << 64:
            return (value >> 1) ^ -(value & 1), at
    problem = "a longer one" if at - start == MAX_VARINT else "the end of the file"
    raise CorruptFile(path, f"a number of at most {MAX_VARINT} bytes at byte {start}", problem)


def _read_bytes(data: bytes, at: int, path: str) -> tuple[bytes, int]:
    size, at = _read_long(data, at, path)
    if not 0 <= size <= len(data) - at:
        raise CorruptFile(path, f"a length within the file at byte {at}", f"{size} with {len(data) - at} bytes left")
    return data[at : at + size], at + size


def write_container(
    schema: dict[str, Any],
    metadata: Mapping[str, bytes],
    codec: str,
    blocks: Iterable[tuple[int, Bytes]],
    sync: bytes | None = None,
) -> bytes:
    """Encode a file: a header, then blocks of (record count, encoded records), each compressed separately."""
    sync = os.urandom(SYNC_BYTES) if sync is None else sync
    schema_json = json.dumps(schema, separators=(",", ":")).encode()
    entries = {**metadata, "avro.schema": schema_json, "avro.codec": codec.encode()}
    parts: list[Bytes] = [MAGIC, _encode_varint(len(entries))]
    for key, value in entries.items():
        name = key.encode()
        parts += [_encode_varint(len(name)), name, _encode_varint(len(value)), value]
    parts += [b"\x00", sync]
    for count, records in blocks:
        body = COMPRESSORS[codec](records)
        parts += [_encode_varint(count), _encode_varint(len(body)), body, sync]
    return b"".join(parts)


def _encode_varint(value: int) -> bytes:
    """Encode a count or length, which is never negative, as an Avro long."""
    value, out = value << 1, bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
