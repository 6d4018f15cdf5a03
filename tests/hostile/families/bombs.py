"""Small files that expand to much: compressed zeros, large stated sizes, huge numbers of rows."""

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
from tests.hostile.containers import Container, block, drop_stated_lengths, nullable, update_stated_values, varint
from tests.hostile.honest_tables import DamagedLake

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
    """Compress zeros as copies of sixty-four zeros: about three bytes each."""
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
        # Equality deletes use memory for the comparison with a data file, so an error may name that file.
        fields = {"memory": 2 << 30, "separate_processes": True, "lies": role == "equality"}
        for what in PARQUETS:
            yield _case(f"{role}: {what}", version, partial(_parquet, role, what), **fields)
    for codec in ("zstd", "lz4"):
        yield _case(f"puffin: a footer of {codec} that inflates", 3, partial(_puffin, codec))


def _case(name: str, version: int, change: Callable[[DamagedLake], Any], **fields: Any) -> Case:
    return Case("bomb", name, version, change, detected_by="nobody", audited=False, **fields)


def _avro(role: str, codec: bytes, lake: DamagedLake) -> None:
    make, size = CODECS[codec]
    _replace_file(role, lake, lambda c: c.file(block(make(size), 1_000_000), codec=codec))


def _many_blocks(role: str, lake: DamagedLake) -> None:
    piece = block(_deflated(48 << 20), 1000)
    _replace_file(role, lake, lambda c: c.file(*[piece] * 40, codec=b"deflate"))


def _empty_blocks(role: str, lake: DamagedLake) -> None:
    _replace_file(role, lake, lambda c: c.file(*[block(b"", 0)] * 1_000_000))


def _empty_records(role: str, lake: DamagedLake) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "null", "field-id": 1}]}
    _replace_file(role, lake, lambda c: c.with_schema(schema).file(block(b"", 1 << 40)))


def _empty_items(role: str, lake: DamagedLake) -> None:
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "a", "type": {"type": "array", "items": "null"}, "field-id": 1}],
    }
    body = varint(1 << 30) + b"\0"
    _replace_file(role, lake, lambda c: c.with_schema(schema).file(block(body, 1)))


def _replace_file(role: str, lake: DamagedLake, make: Callable[[Container], bytes]) -> None:
    drop_stated_lengths(lake)
    path = lake.path(role)
    path.write_bytes(make(Container.of(path)))
    if role == "avro":
        update_stated_values(lake, role)


TEXTS: dict[str, Callable[[], Iterator[bytes]]] = {
    "blanks": lambda: (b" " * (1 << 20) for _ in range(2000)),
    "lists": lambda: iter([b'{"format-version":2,"x":[', *[b"[]," * (1 << 18)] * 200, b"[]]}"]),
    "objects": lambda: iter([b'{"format-version":2,"x":[', *[b'{"a":1},' * (1 << 16)] * 300, b"{}]}"]),
    "one long text": lambda: iter([b'{"format-version":2,"x":"', *[b"y" * (1 << 20)] * 400, b'"}']),
}


def _gzipped(what: str, lake: DamagedLake) -> None:
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=6) as stream:
        for piece in TEXTS[what]():
            stream.write(piece)
    lake.path("metadata").write_bytes(out.getvalue())


def _one_column_table(schema: pa.Schema, column: int, values: pa.Array) -> pa.Table:
    """Return a table with these values in one column and nulls in all others."""
    count = len(values)
    arrays = [values.cast(f.type) if i == column else pa.nulls(count, f.type) for i, f in enumerate(schema)]
    return pa.table(arrays, schema=schema)


def _long_texts(schema: pa.Schema, out: Any) -> int:
    """Write a string of four megabytes that every row references in a dictionary."""
    column = next(i for i, f in enumerate(schema) if pa.types.is_string(f.type) or pa.types.is_binary(f.type))
    count = 400
    values = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array(["z" * (4 << 20)]))
    with pq.ParquetWriter(out, schema, compression="zstd", dictionary_pagesize_limit=64 << 20) as writer:
        writer.write_table(_one_column_table(schema, column, values))
    return count


def _many_rows(schema: pa.Schema, out: Any) -> int:
    """Write a hundred million rows in a few kilobytes."""
    part = _one_column_table(schema, -1, pa.nulls(5_000_000))
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for _ in range(20):
            writer.write_table(part, row_group_size=5_000_000)
    return 100_000_000


def _big_page(schema: pa.Schema, out: Any) -> int:
    """Write one value of half a gigabyte of zeros."""
    column = next(i for i, f in enumerate(schema) if pa.types.is_string(f.type) or pa.types.is_binary(f.type))
    values = pa.array([b"\0" * (512 << 20)], pa.binary())
    with pq.ParquetWriter(out, schema, compression="zstd", use_dictionary=False, write_statistics=False) as writer:
        writer.write_table(_one_column_table(schema, column, values))
    return 1


PARQUETS = {"a long text many times": _long_texts, "a hundred million rows": _many_rows, "one huge value": _big_page}


def _parquet(role: str, what: str, lake: DamagedLake) -> None:
    path = lake.path(role)
    drop_stated_lengths(lake)
    schema = pa.schema([nullable(f) for f in pq.read_schema(path)])
    count = PARQUETS[what](schema, str(path)) if _has_text(schema) or "rows" in what else 0
    if lake.version < 4:
        update_stated_values(lake, role, **({"record_count": count} if count else {}))


def _has_text(schema: pa.Schema) -> bool:
    return any(pa.types.is_string(f.type) or pa.types.is_binary(f.type) for f in schema)


def _puffin(codec: str, lake: DamagedLake) -> None:
    """Write a compressed footer, which a scan does not need."""
    payload = pa.compress(zeros(256 << 20), codec="lz4" if codec == "lz4" else "zstd", asbytes=True)
    data = lake.path("vector").read_bytes()
    length = int.from_bytes(data[-12:-8], "little")
    head = data[: -16 - length] + b"PFA1" + payload
    lake.path("vector").write_bytes(head + struct.pack("<i4s4s", len(payload), b"\1\0\0\0", b"PFA1"))
