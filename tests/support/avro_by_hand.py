"""Avro written in the plainest Python, for files that no library writes: odd blocks, wrong lengths, other codecs."""

from __future__ import annotations

import bz2
import json
import lzma
import random
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

SYNC = bytes(range(16))

COMPRESS = {
    "null": bytes,
    "deflate": lambda data: zlib.compress(data, 6)[2:-4],
    "snappy": lambda data: pa.compress(data, "snappy", asbytes=True) + struct.pack(">I", zlib.crc32(data)),
    "zstandard": lambda data: pa.compress(data, "zstd", asbytes=True),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}


def varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*out, rest])


def text(value: bytes) -> bytes:
    return varint(len(value)) + value


def record(**fields: Any) -> dict[str, Any]:
    """The schema of a record, from names to types."""
    return {"type": "record", "name": "r", "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def container(
    schema: object,
    *blocks: tuple[int, bytes],
    codec: str = "null",
    metadata: Mapping[str, bytes] = {},
    sync: bytes = SYNC,
) -> bytes:
    """A file of (record count, encoded records) blocks; `sync` is what follows the blocks."""
    entries = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode(), **metadata}
    head = varint(len(entries)) + b"".join(text(k.encode()) + text(v) for k, v in entries.items()) + b"\0"
    stored = [(count, COMPRESS.get(codec, bytes)(body)) for count, body in blocks]
    return b"Obj\x01" + head + SYNC + b"".join(varint(c) + text(body) + sync for c, body in stored)


def spell(schema: Any, value: Any, dice: random.Random) -> bytes:  # noqa: PLR0911 - a case for each type
    """A value without logical types; lists in blocks as the dice fall, with and without their size in bytes."""
    if isinstance(schema, list):
        branch = schema.index("null") if value is None else 1 - schema.index("null")
        return varint(branch) + (b"" if value is None else spell(schema[branch], value, dice))
    kind = schema["type"] if isinstance(schema, dict) else schema
    match kind:
        case "null":
            return b""
        case "boolean":
            return bytes([value])
        case "int" | "long":
            return varint(value)
        case "float" | "double":
            return struct.pack("<f" if kind == "float" else "<d", value)
        case "bytes" | "string":
            return text(value.encode() if kind == "string" else value)
        case "fixed":
            return bytes(value)
        case "enum":
            return varint(schema["symbols"].index(value))
        case "record":
            return b"".join(spell(f["type"], value[f["name"]], dice) for f in schema["fields"])
        case "array":
            return _blocks([spell(schema["items"], item, dice) for item in value], dice)
        case "map":
            return _blocks([text(k.encode()) + spell(schema["values"], v, dice) for k, v in value.items()], dice)
    raise AssertionError(kind)


def _blocks(items: list[bytes], dice: random.Random) -> bytes:
    out = b""
    while items:
        count = dice.randint(1, len(items))
        body = b"".join(items[:count])
        out += varint(-count) + varint(len(body)) + body if dice.random() < 0.5 else varint(count) + body
        items = items[count:]
    return out + b"\0"
