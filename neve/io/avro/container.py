"""The Avro object container: a header, then blocks of records, each followed by the sync marker of the file."""

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
PADDING = 16  # zero bytes after the last block, so that the kernel may read a whole varint before it checks where it is


@dataclass(frozen=True, slots=True)
class AvroHeader:
    """What the front of an Avro file says. The schema is shared between equal files: read it, do not change it."""

    schema: dict[str, Any]
    metadata: Mapping[str, bytes]
    codec: str
    sync: bytes


@dataclass(frozen=True, slots=True)
class Blocks:
    """The encoded records of a file: all blocks in one piece of memory, where each ends, how many records it has."""

    raw: bytearray
    ends: np.ndarray[Any, np.dtype[np.int64]]
    counts: np.ndarray[Any, np.dtype[np.int64]]


def read_header(data: bytes, path: str) -> AvroHeader:
    """Read the header of an Avro file whose bytes are `data`; the records are left alone."""
    return read_header_and_end(data, path, DEFAULT_LIMITS)[0]


def read_header_and_end(data: bytes, path: str, limits: Limits) -> tuple[AvroHeader, int]:
    """Read the header, and say where the first block begins."""
    if data[:4] == ENCRYPTED:
        raise UnsupportedFeature(
            f"Cannot read {path}: it is encrypted (AES GCM stream), and table encryption is not supported."
        )
    if data[:4] != MAGIC:
        raise CorruptFile(path, "an Avro file that begins with 'Obj' and 1", _quoted(data[:4]))
    metadata, at = _metadata(data, path, limits)
    if at + SYNC_BYTES > len(data):
        raise CorruptFile(
            path, "a sync marker of 16 bytes after the header", f"the end of the file at byte {len(data)}"
        )
    codec = metadata.get("avro.codec", b"null").decode("utf-8", "replace")
    if codec not in DECOMPRESSORS:
        raise UnsupportedFeature(f"Unsupported Avro codec {codec!r} in {path}. Known: {', '.join(DECOMPRESSORS)}.")
    schema = _parse_header_schema(metadata, path)
    return AvroHeader(schema, MappingProxyType(metadata), codec, data[at : at + SYNC_BYTES]), at + SYNC_BYTES


def _metadata(data: bytes, path: str, limits: Limits) -> tuple[dict[str, bytes], int]:
    found: dict[str, bytes] = {}
    count, at = _read_long(data, 4, path)
    while count != 0:
        if count < 0:  # the block's length in bytes follows; each entry is read all the same
            count, (_, at) = -count, _read_long(data, at, path)
        if count > len(data) - at:
            raise CorruptFile(path, "a header with fewer entries than bytes", f"{count} entries at byte {at}")
        for _ in range(count):
            key, at = _read_bytes(data, at, path)
            found[key.decode("utf-8", "replace")], at = _read_bytes(data, at, path)
            if at > limits.max_header_bytes:
                hint = "Raise Limits.max_header_bytes if the file is what it should be."
                raise LimitExceeded(f"the header of {path}", limits.max_header_bytes, hint)
        count, at = _read_long(data, at, path)
    return found, at


def _parse_header_schema(metadata: Mapping[str, bytes], path: str) -> dict[str, Any]:
    if "avro.schema" not in metadata:
        raise CorruptFile(path, "an 'avro.schema' in the header", f"only {sorted(metadata)[:8]}")
    try:
        schema = _load_json_cached(metadata["avro.schema"])
    except (ValueError, RecursionError) as e:
        raise CorruptFile(path, "a JSON schema in the header", f"{type(e).__name__} while parsing it") from e
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise CorruptFile(path, "a record as the schema of the file", f"a schema of {type(schema).__name__}")
    return schema


@lru_cache(maxsize=64)
def _load_json_cached(text: bytes) -> Any:
    return json.loads(text)


def inflate_blocks(data: bytes, at: int, header: AvroHeader, path: str, limits: Limits) -> Blocks:
    """Decompress every block after byte `at`, and check lengths, counts and sync markers on the way."""
    budget = limits.inflated_budget(len(data))
    decompress = DECOMPRESSORS[header.codec]
    raw = bytearray()  # grown in place: a list of pieces to join later costs a quarter more
    ends: list[int] = []
    counts: list[int] = []
    for count, body, where in _stored_blocks(data, at, header.sync, path):
        try:
            piece = decompress(body, budget - len(raw))
        except OutputTooLarge:
            hint = "It may be a decompression bomb; raise Limits.max_inflated_bytes or max_inflate_ratio if it is not."
            raise LimitExceeded(f"the uncompressed size of {path}", budget, hint) from None
        except DamagedBlock as e:
            raise CorruptFile(
                path, f"a {header.codec} block at byte {where}", f"bytes that do not decompress ({e})"
            ) from e
        if count:
            raw += piece
            ends.append(len(raw))
            counts.append(count)
        elif len(piece):
            raise CorruptFile(path, f"no bytes in the block without records at byte {where}", f"{len(piece)} bytes")
    raw += bytes(PADDING)
    return Blocks(raw, np.array(ends, np.int64), np.array(counts, np.int64))


def _stored_blocks(data: bytes, at: int, sync: bytes, path: str) -> Iterator[tuple[int, Bytes, int]]:
    """The record count, the stored bytes and the position of each block."""
    view, total = memoryview(data), len(data)
    while at < total:
        where = at
        count, at = _read_long(data, at, path)
        size, at = _read_long(data, at, path)
        end = at + size
        if count < 0 or size < 0 or end + SYNC_BYTES > total:
            found = f"{count} records in {size} bytes, of {total - at} left"
            raise CorruptFile(path, f"a whole block at byte {where}", found)
        if not data.startswith(sync, end):
            raise CorruptFile(path, f"the sync marker of the header at byte {end}", "other bytes")
        yield count, view[at:end], where
        at = end + SYNC_BYTES


def _read_long(data: bytes, start: int, path: str) -> tuple[int, int]:
    value, at = 0, start
    for byte in data[start : start + MAX_VARINT]:
        value |= (byte & 127) << 7 * (at - start)
        at += 1
        if byte < 128 and value < 1 << 64:
            return (value >> 1) ^ -(value & 1), at
    found = "a longer one" if at - start == MAX_VARINT else "the end of the file"
    raise CorruptFile(path, f"a number of at most {MAX_VARINT} bytes at byte {start}", found)


def _read_bytes(data: bytes, at: int, path: str) -> tuple[bytes, int]:
    size, at = _read_long(data, at, path)
    if not 0 <= size <= len(data) - at:
        raise CorruptFile(path, f"a length within the file at byte {at}", f"{size} with {len(data) - at} bytes left")
    return data[at : at + size], at + size


def _quoted(data: bytes) -> str:
    return f"the bytes {data.hex()!r}" if data else "an empty file"


def write_container(
    schema: dict[str, Any], metadata: Mapping[str, bytes], codec: str, blocks: Iterable[tuple[int, Bytes]]
) -> bytes:
    """Put a header in front of blocks of (record count, encoded records), each compressed on its own."""
    compress = COMPRESSORS[codec]
    sync = os.urandom(SYNC_BYTES)
    own = {"avro.schema": json.dumps(schema, separators=(",", ":")).encode(), "avro.codec": codec.encode()}
    entries = {**metadata, **own}
    parts: list[Bytes] = [MAGIC, _encode_varint(len(entries))]
    for key, value in entries.items():
        name = key.encode()
        parts += [_encode_varint(len(name)), name, _encode_varint(len(value)), value]
    parts += [b"\x00", sync]
    for count, records in blocks:
        body = compress(records)
        parts += [_encode_varint(count), _encode_varint(len(body)), body, sync]
    return b"".join(parts)


def _encode_varint(value: int) -> bytes:
    """A count or length, never negative, as Avro writes it."""
    rest, out = value << 1, bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)
