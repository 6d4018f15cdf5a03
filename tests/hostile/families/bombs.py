"""Small files that ask for much: compressed nothing, claims of size, rows without end."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.hostile.case import Case
from tests.hostile.containers import Container, any_length, block, nullable, restate, varint
from tests.hostile.honest_tables import Place

GIB = 1 << 30


@lru_cache(maxsize=2)
def zeros(size: int) -> bytes:
    return bytes(size)


def _deflated(size: int) -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    return b"".join(stream.compress(zeros(1 << 20)) for _ in range(size >> 20)) + stream.flush()


def _zstd(size: int) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as out:
        for _ in range(size >> 20):
            out.write(zeros(1 << 20))
    return sink.getvalue().to_pybytes()


def _bzip2(size: int) -> bytes:
    stream = bz2.BZ2Compressor()
    return b"".join(stream.compress(zeros(1 << 20)) for _ in range(size >> 20)) + stream.flush()


def _xz(size: int) -> bytes:
    stream = lzma.LZMACompressor(preset=0)
    return b"".join(stream.compress(zeros(1 << 20)) for _ in range(size >> 20)) + stream.flush()


def _snappy(size: int) -> bytes:
    """Copies of sixty-four zeros: about three bytes for each."""
    head, rest = bytearray(), size
    while rest > 127:
        head.append(rest & 127 | 128)
        rest >>= 7
    head.append(rest)
    copies = (size - 64) // 64
    body = bytes(head) + b"\xf0\x3f" + bytes(64) + b"\xfe\x40\x00" * copies
    return body + struct.pack(">I", 0)


CODECS: dict[bytes, tuple[Callable[[int], bytes], int]] = {
    b"deflate": (_deflated, GIB),
    b"zstandard": (_zstd, 2 * GIB),
    b"bzip2": (_bzip2, 256 << 20),
    b"xz": (_xz, 512 << 20),
    b"snappy": (_snappy, 256 << 20),
}


def cases() -> Iterator[Case]:
    for version, roles in {
        1: ("list", "manifest"),
        2: ("list", "manifest", "delete manifest", "avro"),
        3: ("list",),
    }.items():
        for role in roles:
            for codec in CODECS:
                yield _case(f"{role}: {codec.decode()} that inflates", version, partial(_avro, role, codec))
            yield _case(f"{role}: many blocks that inflate", version, partial(_many_blocks, role))
            yield _case(f"{role}: a million empty blocks", version, partial(_empty_blocks, role))
            yield _case(f"{role}: a million empty records", version, partial(_empty_records, role))
            yield _case(f"{role}: lists of a billion nothings", version, partial(_empty_items, role))
    for version in (1, 2, 3, 4):
        for what in TEXTS:
            yield _case(f"metadata: {what}", version, partial(_gzipped, what))
    for version, role in ((2, "data"), (2, "positions"), (2, "equality"), (4, "manifest"), (4, "list")):
        # What equality deletes take memory for is the comparison with a data file: an error may name that.
        said = {"memory": 2 << 30, "apart": True, "lies": role == "equality"}
        for what in PARQUETS:
            yield _case(f"{role}: {what}", version, partial(_parquet, role, what), **said)
    for codec in ("zstd", "lz4"):
        yield _case(f"puffin: a footer of {codec} that inflates", 3, partial(_puffin, codec))


def _case(name: str, version: int, change: Callable[[Place], Any], **said: Any) -> Case:
    return Case("bomb", name, version, change, told_by="nobody", audited=False, **said)


def _avro(role: str, codec: bytes, place: Place) -> None:
    make, size = CODECS[codec]
    _put(role, place, lambda c: c.whole(block(make(size), 1_000_000), codec=codec))


def _many_blocks(role: str, place: Place) -> None:
    piece = block(_deflated(48 << 20), 1000)
    _put(role, place, lambda c: c.whole(*[piece] * 40, codec=b"deflate"))


def _empty_blocks(role: str, place: Place) -> None:
    _put(role, place, lambda c: c.whole(*[block(b"", 0)] * 1_000_000))


def _empty_records(role: str, place: Place) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "null", "field-id": 1}]}
    _put(role, place, lambda c: c.with_schema(schema).whole(block(b"", 1 << 40)))


def _empty_items(role: str, place: Place) -> None:
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "a", "type": {"type": "array", "items": "null"}, "field-id": 1}],
    }
    body = varint(1 << 30) + b"\0"
    _put(role, place, lambda c: c.with_schema(schema).whole(block(body, 1)))


def _put(role: str, place: Place, make: Callable[[Container], bytes]) -> None:
    any_length(place)
    path = place.path(role)
    path.write_bytes(make(Container.of(path)))
    if role == "avro":
        restate(place, role)


TEXTS: dict[str, Callable[[], Iterator[bytes]]] = {
    "blanks": lambda: (b" " * (1 << 20) for _ in range(2000)),
    "lists": lambda: iter([b'{"format-version":2,"x":[', *[b"[]," * (1 << 18)] * 200, b"[]]}"]),
    "objects": lambda: iter([b'{"format-version":2,"x":[', *[b'{"a":1},' * (1 << 16)] * 300, b"{}]}"]),
    "one long text": lambda: iter([b'{"format-version":2,"x":"', *[b"y" * (1 << 20)] * 400, b'"}']),
}


def _gzipped(what: str, place: Place) -> None:
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=6) as stream:
        for piece in TEXTS[what]():
            stream.write(piece)
    place.path("metadata").write_bytes(out.getvalue())


def _as_table(schema: pa.Schema, column: int, values: pa.Array) -> pa.Table:
    """A table of a schema in which one column has these values, and every other one nothing."""
    count = len(values)
    arrays = [values.cast(f.type) if i == column else pa.nulls(count, f.type) for i, f in enumerate(schema)]
    return pa.table(arrays, schema=schema)


def _long_texts(schema: pa.Schema, out: Any) -> int:
    """One text of four megabytes that every row repeats by its number in a dictionary."""
    column = next(i for i, f in enumerate(schema) if pa.types.is_string(f.type) or pa.types.is_binary(f.type))
    count = 400
    values = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array(["z" * (4 << 20)]))
    with pq.ParquetWriter(out, schema, compression="zstd", dictionary_pagesize_limit=64 << 20) as writer:
        writer.write_table(_as_table(schema, column, values))
    return count


def _many_rows(schema: pa.Schema, out: Any) -> int:
    """A hundred million rows in a few kilobytes."""
    part = _as_table(schema, -1, pa.nulls(5_000_000))
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for _ in range(20):
            writer.write_table(part, row_group_size=5_000_000)
    return 100_000_000


def _big_page(schema: pa.Schema, out: Any) -> int:
    """One value of half a gigabyte of zeros."""
    column = next(i for i, f in enumerate(schema) if pa.types.is_string(f.type) or pa.types.is_binary(f.type))
    values = pa.array([b"\0" * (512 << 20)], pa.binary())
    with pq.ParquetWriter(out, schema, compression="zstd", use_dictionary=False, write_statistics=False) as writer:
        writer.write_table(_as_table(schema, column, values))
    return 1


PARQUETS = {"a long text many times": _long_texts, "a hundred million rows": _many_rows, "one huge value": _big_page}


def _parquet(role: str, what: str, place: Place) -> None:
    path = place.path(role)
    any_length(place)
    schema = pa.schema([nullable(f) for f in pq.read_schema(path)])
    count = PARQUETS[what](schema, str(path)) if _has_text(schema) or "rows" in what else 0
    if place.version < 4:
        restate(place, role, **({"record_count": count} if count else {}))


def _has_text(schema: pa.Schema) -> bool:
    return any(pa.types.is_string(f.type) or pa.types.is_binary(f.type) for f in schema)


def _puffin(codec: str, place: Place) -> None:
    """A compressed footer; a scan does without it."""
    payload = pa.compress(zeros(256 << 20), codec="lz4" if codec == "lz4" else "zstd", asbytes=True)
    data = place.path("vector").read_bytes()
    length = int.from_bytes(data[-12:-8], "little")
    head = data[: -16 - length] + b"PFA1" + payload
    place.path("vector").write_bytes(head + struct.pack("<i4s4s", len(payload), b"\1\0\0\0", b"PFA1"))
