"""Avro files with wrong counts, lengths, sync markers, codecs and schemas."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.hostile.case import Case
from tests.hostile.containers import SYNC, Container, block, drop_stated_lengths, text, update_stated_values, varint
from tests.hostile.honest_tables import DamagedLake

ROLES = {1: ("list", "manifest"), 2: ("list", "manifest", "delete manifest", "avro"), 3: ("list", "manifest")}
HUGE = (1 << 62, 1 << 40, 1 << 31, 1 << 20)

Make = Callable[[Container], bytes]


def avro_file(c: Container, **header: Any) -> bytes:
    return c.file(block(c.encoded, len(c.records)), **header)


def _lying_counts() -> Iterator[tuple[str, Make]]:
    for count in (*HUGE, -1, -(1 << 62), 0):
        yield f"{count} records in a block", lambda c, n=count: c.file(block(c.encoded, n))
    yield "a record too many", lambda c: c.file(block(c.encoded, len(c.records) + 1))
    yield "a record too few", lambda c: c.file(block(c.encoded, len(c.records) - 1))
    for size in (*HUGE, -1, -(1 << 62)):
        yield f"a block of {size} bytes", lambda c, n=size: c.file(block(c.encoded, len(c.records), n))
    for count in (*HUGE, -1, -(1 << 62)):
        entry = varint(count) + (varint(1 << 40) if count < 0 else b"")
        yield f"{count} entries in the header", lambda c, e=entry: c.header()[:4] + e + c.header()[5:] + SYNC
    for length in (*HUGE, -1):
        yield f"a key of {length} bytes", lambda c, n=length: b"Obj\x01" + varint(2) + varint(n) + c.header()[6:]
        yield f"a value of {length} bytes", lambda c, n=length: b"Obj\x01\x02" + text(b"k") + varint(n) + c.header()[6:]
    yield "an endless number", lambda c: c.header() + b"\xff" * 4000
    yield "an endless number in the header", lambda c: b"Obj\x01" + b"\x80" * 4000
    yield "a number of eleven bytes", lambda c: c.header() + b"\x80" * 10 + b"\x01" + block(c.encoded, 1)[1:]
    yield "a header without an end", lambda c: b"Obj\x01" + (varint(1) + text(b"k") + text(b"v")) * 100_000


def _lying_records() -> Iterator[tuple[str, Make]]:
    for at in (0, 1, 2, 3, 5, 8):
        for what, number in (("a huge number", 1 << 62), ("a negative one", -5), ("an endless one", None)):
            piece = b"\xff" * 12 if number is None else varint(number)
            yield f"{what} at byte {at} of the records", lambda c, i=at, p=piece: _with_patched_records(c, i, p)
    yield "records of ones", lambda c: c.file(block(b"\xff" * 500, len(c.records)))
    yield "records of zeros", lambda c: c.file(block(bytes(500), len(c.records)))
    yield "no bytes for the records", lambda c: c.file(block(b"", len(c.records)))
    yield "another marker", lambda c: c.file(block(c.encoded, len(c.records), sync=bytes(16)))
    yield "half a marker", lambda c: c.file(block(c.encoded, len(c.records)))[:-8]
    yield "bytes after the last block", lambda c: avro_file(c) + b"more"
    yield "a block of no records with bytes", lambda c: c.file(block(c.encoded, len(c.records)), block(b"x" * 20, 0))
    yield "the records twice", lambda c: c.file(*[block(c.encoded, len(c.records))] * 2)


def _with_patched_records(c: Container, at: int, piece: bytes) -> bytes:
    body = c.encoded
    return c.file(block(body[:at] + piece + body[at + len(piece) :], len(c.records)))


def _codecs() -> Iterator[tuple[str, Make]]:
    for codec in (b"deflate", b"snappy", b"zstandard", b"bzip2", b"xz", b"lzma", b"", b"\xff\xfe", b"../../x"):
        yield f"plain bytes said to be {codec!r}", lambda c, k=codec: avro_file(c, codec=k)
    yield "snappy of a huge size", lambda c: c.file(block(b"\xff\xff\xff\xff\x0f" + bytes(40), 1), codec=b"snappy")
    yield "snappy of an endless size", lambda c: c.file(block(b"\xff" * 40, 1), codec=b"snappy")


def _schemas() -> Iterator[tuple[str, Make]]:
    for schema_text in (b"", b"{}", b"[]", b"null", b'"string"', b"{", b"\xff", b'{"type":"record"}', b"[" * 100_000):
        yield f"the schema {schema_text[:20]!r}", lambda c, t=schema_text: avro_file(c, schema=t)
    deep = b'{"type":"record","name":"r","fields":[{"name":"a","type":' + b'{"type":"array","items":' * 5000
    yield "a schema of 5,000 lists", lambda c: avro_file(c, schema=deep + b'"int"' + b"}" * 5000 + b"}]}")
    for depth in (60, 100, 400):
        yield f"a schema {depth} deep", lambda c, n=depth: avro_file(c, schema=_nested_schema(c, n))
    yield "a schema of 200,000 fields", lambda c: avro_file(c, schema=_wide_schema(c, 200_000))
    yield (
        "a schema that holds itself",
        lambda c: avro_file(c, schema=_schema_with_field(c, {"type": ["null", c.schema["name"]]})),
    )
    yield "a schema doubled thirty times", lambda c: avro_file(c, schema=_doubling_schema(c, 30))
    yield (
        "a name twice",
        lambda c: avro_file(c, schema=json.dumps({**c.schema, "fields": c.schema["fields"] * 2}).encode()),
    )
    yield "no fields", lambda c: avro_file(c, schema=json.dumps({**c.schema, "fields": []}).encode())
    yield "no ids", lambda c: avro_file(c, schema=_schema_with_edited_fields(c, lambda f: f.pop("field-id", None)))
    for value in (-1, 1 << 70, "x", None, 1.5, [], {}, True):
        yield (
            f"ids that are {value!r}",
            lambda c, v=value: avro_file(c, schema=_schema_with_edited_fields(c, lambda f: f.update({"field-id": v}))),
        )
    for kind in (
        "string",
        "bytes",
        "double",
        "boolean",
        "null",
        {"type": "map", "values": "long"},
        ["null", "long", "int"],
    ):
        yield (
            f"every field a {kind}",
            lambda c, k=kind: avro_file(c, schema=_schema_with_edited_fields(c, lambda f: f.update(type=k))),
        )
    for size in (1 << 40, -1, 0, "x"):
        odd = {"type": "fixed", "name": "f", "size": size}
        yield (
            f"a fixed of {size}",
            lambda c, k=odd: avro_file(c, schema=_schema_with_edited_fields(c, lambda f: f.update(type=k))),
        )
    yield (
        "fields in reverse",
        lambda c: avro_file(c, schema=json.dumps({**c.schema, "fields": c.schema["fields"][::-1]}).encode()),
    )


def _schema_with_edited_fields(c: Container, change: Callable[[dict], Any]) -> bytes:
    schema = copy.deepcopy(c.schema)
    for f in schema["fields"]:
        change(f)
    return json.dumps(schema).encode()


def _schema_with_field(c: Container, kind: dict) -> bytes:
    return json.dumps({**c.schema, "fields": [*c.schema["fields"], {"name": "extra", **kind}]}).encode()


def _nested_schema(c: Container, depth: int) -> bytes:
    return _schema_with_field(c, {"type": json.loads('{"type":"array","items":' * depth + '"int"' + "}" * depth)})


def _wide_schema(c: Container, count: int) -> bytes:
    return json.dumps({**c.schema, "fields": [{"name": f"f{i}", "type": "null"} for i in range(count)]}).encode()


def _doubling_schema(c: Container, times: int) -> bytes:
    """Each type contains the previous one twice: small as text, huge when expanded."""
    kind: Any = "int"
    fields = []
    for i in range(times):
        both = [{"name": "a", "type": kind}, {"name": "b", "type": kind}]
        fields.append({"name": f"x{i}", "type": {"type": "record", "name": f"t{i}", "fields": both}})
        kind = f"t{i}"
    return json.dumps({**c.schema, "fields": [*c.schema["fields"], *fields]}).encode()


MAKES: dict[str, Make] = dict([*_lying_counts(), *_lying_records(), *_codecs(), *_schemas()])


def cases() -> Iterator[Case]:
    """Replace the file by one with wrong values; a file that happens to be valid may give other values."""
    for version, roles in ROLES.items():
        for role in roles:
            for what in MAKES:
                change, audited = partial(_damage, role, what), role != "avro"
                lie = {"lies": True, "names": ("/db/t/", "Rejected path")} if audited else {}
                yield Case("avro", f"{role}: {what}", version, change, detected_by="nobody", audited=audited, **lie)


def _damage(role: str, what: str, lake: DamagedLake) -> None:
    path = lake.path(role)
    drop_stated_lengths(lake)
    path.write_bytes(MAKES[what](Container.of(path)))
    if role == "avro":
        update_stated_values(lake, role)
