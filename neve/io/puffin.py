"""Puffin files: binary blobs with a footer that describes them.

A Puffin file can hold many deletion vectors. A vector is read by the offset and length that the metadata gives, without
the footer. The footer is used for statistics, and to check that it agrees with the metadata.

File: magic, blobs, footer. Footer: magic, JSON payload, its length (4 bytes, little-endian), 4 bytes of flags, magic.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO

from neve.errors import CorruptFile, LimitExceeded, UserError
from neve.io import files
from neve.io.deletion_vectors import PositionSet, decode_vector

MAGIC = b"PFA1"
VECTOR_TYPE = "deletion-vector-v1"
ROW_POSITION_ID = 2147483645  # the reserved column `_pos`
VECTOR_ROW_SCHEMA = pa.schema(
    [
        ("referenced_data_file", pa.string()),
        ("content_offset", pa.int64()),
        ("content_size_in_bytes", pa.int64()),
        ("record_count", pa.int64()),
    ]
)
_REFERENCE = "referenced-data-file"  # the property of a vector that names its data file
_FOOTER_LIMIT = 64 << 20
_BLOB_LIMIT = 1 << 30
_TRAILER = struct.Struct("<i4s4s")  # payload length, flags, magic
_FIRST_READ = 16 << 10  # read from the end of a file first; contains most footers
_PIECE = 1 << 20
_CODECS = ("lz4", "zstd")


@dataclass(frozen=True, slots=True)
class Blob:
    """The description of one blob in the footer. The writer fills in offset and length."""

    type: str
    fields: tuple[int, ...]
    snapshot_id: int
    sequence_number: int
    offset: int = 0
    length: int = 0
    compression_codec: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PuffinFile:
    """The footer of a Puffin file."""

    path: str
    blobs: tuple[Blob, ...]
    properties: Mapping[str, str]

    def read(self, io: FileIO, blob: Blob, limit: int = _BLOB_LIMIT) -> bytes:
        """Read and decompress the payload of one blob; nothing else of the file is read."""
        data = files.read_range(io, self.path, blob.offset, blob.length, limit)
        return data if blob.compression_codec is None else _decompress(data, blob.compression_codec, self.path, limit)


def read_footer(io: FileIO, path: str) -> PuffinFile:
    """Read the footer of a Puffin file and check that every blob is between the first magic and the footer."""
    size = files.file_size(io, path)
    if size < 2 * len(MAGIC) + _TRAILER.size:
        raise CorruptFile(path, "a Puffin file", f"{size} bytes")
    tail_at = max(0, size - _FIRST_READ)
    head, tail = files.read_many_ranges(io, path, [(0, len(MAGIC)), (tail_at, size - tail_at)])
    length, flags, end_magic = _TRAILER.unpack(tail[-_TRAILER.size :])
    _check_magic(path, head, 0)
    _check_magic(path, end_magic, size - len(MAGIC))
    footer_at = size - _TRAILER.size - length - len(MAGIC)
    if length < 0 or footer_at < len(MAGIC):
        raise CorruptFile(path, f"a footer payload within {size} bytes", f"a length of {length}")
    if footer_at < tail_at:
        tail_at, tail = footer_at, files.read_range(io, path, footer_at, size - footer_at, _FOOTER_LIMIT)
    _check_magic(path, tail[footer_at - tail_at :][: len(MAGIC)], footer_at)
    payload = tail[footer_at - tail_at + len(MAGIC) : -_TRAILER.size]
    if flags == b"\x01\x00\x00\x00":
        payload = _decompress(payload, "lz4", path, _FOOTER_LIMIT)
    elif flags != bytes(4):
        raise CorruptFile(path, "Puffin flags 00000000 or 01000000", flags.hex())
    return _parse_footer(payload, path, footer_at)


def read_vectors(io: FileIO, path: str, vector_ranges: Sequence[tuple[int, int, int]]) -> list[PositionSet]:
    """Read the vectors at the given (offset, length, cardinality) of a Puffin file, which is opened once."""
    blobs = files.read_many_ranges(io, path, [(offset, length) for offset, length, _ in vector_ranges])
    return [
        decode_vector(blob, path, cardinality, offset)
        for blob, (offset, _, cardinality) in zip(blobs, vector_ranges, strict=True)
    ]


def encode_puffin(blobs: Iterable[tuple[Blob, bytes]], properties: Mapping[str, str] | None = None) -> bytes:
    """Encode a Puffin file with these blobs, in this order and without compressing them."""
    heads, payloads, offset = [], [MAGIC], len(MAGIC)
    for blob, payload in blobs:
        heads.append(_blob_head(blob, offset, len(payload)))
        payloads.append(payload)
        offset += len(payload)
    return b"".join([*payloads, *_footer_parts(heads, properties or {})])


def footer_size(data: bytes) -> int:
    """Return the size of the footer of an encoded file, from its magic to the end."""
    return len(MAGIC) + int(_TRAILER.unpack(data[-_TRAILER.size :])[0]) + _TRAILER.size


def _blob_head(blob: Blob, offset: int, length: int) -> dict[str, Any]:
    optional = {"compression-codec": blob.compression_codec, "properties": dict(blob.properties)}
    head = {
        "type": blob.type,
        "fields": blob.fields,
        "snapshot-id": blob.snapshot_id,
        "sequence-number": blob.sequence_number,
        "offset": offset,
        "length": length,
    }
    return head | {key: value for key, value in optional.items() if value}


def _footer_parts(heads: Sequence[dict[str, Any]], properties: Mapping[str, str]) -> list[bytes]:
    footer: dict[str, Any] = {"blobs": list(heads)}
    if properties:
        footer["properties"] = dict(properties)
    text = json.dumps(footer, separators=(",", ":"), ensure_ascii=False).encode()
    return [MAGIC, text, _TRAILER.pack(len(text), bytes(4), MAGIC)]


def pack_vectors(
    vectors: Iterable[tuple[str, PositionSet]], properties: Mapping[str, str] | None = None
) -> tuple[bytes, pa.Table]:
    """Encode the vectors of many data files as one Puffin file, and return a row of `VECTOR_ROW_SCHEMA` for each."""
    names, blobs, cardinalities = [], [], []
    for name, vector in vectors:
        if not vector.cardinality:
            raise UserError(f"Nothing is deleted from {name}. Write no deletion vector for it.")
        about = {_REFERENCE: name, "cardinality": str(vector.cardinality)}
        # -1: the blob inherits snapshot id and sequence number, like a new manifest entry.
        blobs.append((Blob(VECTOR_TYPE, (ROW_POSITION_ID,), -1, -1, properties=about), vector.encode()))
        names.append(name)
        cardinalities.append(vector.cardinality)
    if len(set(names)) < len(names):
        raise UserError("A data file has one deletion vector. Unite the positions of a file before writing them.")
    lengths = [len(payload) for _, payload in blobs]
    offsets = list(accumulate(lengths, initial=len(MAGIC)))[:-1]
    rows = pa.table([names, offsets, lengths, cardinalities], schema=VECTOR_ROW_SCHEMA)
    return encode_puffin(blobs, properties), rows


def replace_referenced_files(io: FileIO, path: str, rename: Callable[[str], str]) -> bytes:
    """Return a file of vectors whose footer names their data files otherwise; the blobs stay where they are."""
    footer, data = read_footer(io, path), files.read_file(io, path)
    heads = []
    for blob in footer.blobs:
        properties = dict(blob.properties)
        if _REFERENCE in properties:
            properties[_REFERENCE] = rename(properties[_REFERENCE])
        heads.append(_blob_head(replace(blob, properties=properties), blob.offset, blob.length))
    return b"".join([data[: -footer_size(data)], *_footer_parts(heads, footer.properties)])


def _check_magic(path: str, found: bytes, at: int) -> None:
    if found != MAGIC:
        raise CorruptFile(path, f"the Puffin magic {MAGIC.hex()}", f"{found.hex()} at byte {at}")


def _decompress(data: bytes, codec: str, path: str, limit: int) -> bytes:
    """Decompress one frame piece by piece, so that a decompression bomb is noticed before it fills the memory."""
    if codec not in _CODECS:
        raise CorruptFile(path, f"a Puffin compression codec ({', '.join(_CODECS)})", repr(codec))
    pieces, size = [], 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
            while piece := stream.read(_PIECE):
                pieces.append(piece)
                size += len(piece)
                if size > limit:
                    hint = "Raise the limit if you trust the file."
                    raise LimitExceeded(f"A decompressed blob of {path}", limit, hint)
    except (OSError, pa.ArrowInvalid) as e:
        raise CorruptFile(path, f"{codec} data", str(e)) from e
    return b"".join(pieces)


def _parse_footer(payload: bytes, path: str, footer_at: int) -> PuffinFile:
    blobs = []
    try:
        footer = json.loads(payload)
        for raw in _value_of_type(footer, "blobs", list):
            ids, codec = _value_of_type(raw, "fields", list), raw.get("compression-codec")
            if not all(type(i) is int for i in ids):
                raise ValueError("field ids that are not integers")
            blob = Blob(
                type=_value_of_type(raw, "type", str),
                fields=tuple(ids),
                snapshot_id=_value_of_type(raw, "snapshot-id", int),
                sequence_number=_value_of_type(raw, "sequence-number", int),
                offset=_value_of_type(raw, "offset", int),
                length=_value_of_type(raw, "length", int),
                compression_codec=None if codec is None else _value_of_type(raw, "compression-codec", str),
                properties=_parse_properties(raw),
            )
            blobs.append(blob)
        properties = _parse_properties(footer)
    except (ValueError, RecursionError) as e:
        raise CorruptFile(path, "a Puffin footer", f"{e} at byte {footer_at + len(MAGIC)}") from e
    for blob in blobs:
        if blob.offset < len(MAGIC) or blob.length < 0 or blob.offset + blob.length > footer_at:
            blob_range = f"{blob.length} bytes from byte {blob.offset} on"
            raise CorruptFile(path, f"blobs between bytes {len(MAGIC)} and {footer_at}", blob_range)
    return PuffinFile(path, tuple(blobs), properties)


def _parse_properties(raw: dict[str, Any]) -> dict[str, str]:
    properties: dict[str, str] = {} if raw.get("properties") is None else _value_of_type(raw, "properties", dict)
    if not all(isinstance(value, str) for value in properties.values()):
        raise ValueError("properties that are not text")
    return properties


def _value_of_type(raw: Any, key: str, kind: type) -> Any:
    value = raw.get(key) if isinstance(raw, dict) else None
    if type(value) is not kind:
        raise ValueError(f"no {kind.__name__} {key!r}")
    return value
