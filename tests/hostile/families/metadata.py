"""Table metadata in any JSON form: wrong types, extreme numbers, cycles, depth, width, keys that select code."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.hostile.case import Case, seeded_random
from tests.hostile.honest_tables import CANARY, VERSIONS, DamagedLake

KEYS = (
    "format-version",
    "table-uuid",
    "location",
    "last-sequence-number",
    "last-updated-ms",
    "last-column-id",
    "schema",
    "schemas",
    "current-schema-id",
    "partition-spec",
    "partition-specs",
    "default-spec-id",
    "last-partition-id",
    "properties",
    "current-snapshot-id",
    "snapshots",
    "snapshot-log",
    "metadata-log",
    "sort-orders",
    "default-sort-order-id",
    "refs",
    "statistics",
    "partition-statistics",
    "next-row-id",
    "encryption-keys",
)
NASTY: dict[str, Any] = {
    "null": None,
    "minus one": -1,
    "2^63": 1 << 63,
    "a fraction": 0.5,
    "text": "x",
    "escapes": "\x1b[31m\x07\u202e\u0000",
    "a list": [],
    "an object": {},
    "true": True,
    "nested": [[[[{"a": [{}]}]]]],
    "long": "y" * 200_000,
}


def cases() -> Iterator[Case]:
    yield from _keys()
    yield from _nodes()
    yield from _special()


def _keys() -> Iterator[Case]:
    """Every key of the table with every type of value; the metadata defines the rows, so other rows are no fault."""
    for version in VERSIONS:
        for key in KEYS:
            for what, value in NASTY.items():
                yield _case(f"{key} is {what}", version, partial(_set, key, value))
            yield _case(f"no {key}", version, partial(_unset, key))


def _nodes(seeds: int = 60) -> Iterator[Case]:
    """Replace a random value anywhere in the metadata."""
    for version in VERSIONS:
        for seed in range(seeds):
            change = partial(_replace_random_value, f"{version} {seed}")
            yield _case(f"a value somewhere, {seed}", version, change, names=(A_PATH,))


def _case(name: str, version: int, change: Callable[[Any], Any], **fields: Any) -> Case:
    return Case(
        "metadata", name, version, lambda lake: lake.edit_metadata(change), detected_by="nobody", lies=True, **fields
    )


def _set(key: str, value: Any, parsed: dict) -> None:
    parsed[key] = value


def _unset(key: str, parsed: dict) -> None:
    parsed.pop(key, None)


def _replace_random_value(seed: str, parsed: dict) -> None:
    r = seeded_random(seed)
    candidates = list(_parents_and_keys(parsed))
    inside, at = candidates[r.randrange(len(candidates))]
    value = r.choice([*NASTY.values(), "delete", "double"])
    if value == "delete":
        del inside[at]
    elif value == "double" and isinstance(inside, list):
        inside.append(inside[at])
    else:
        inside[at] = value


def _parents_and_keys(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the container and the key or index of every value."""
    keys = node.keys() if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in list(keys):
        yield node, key
        yield from _parents_and_keys(node[key])


def _nested(kind: str, depth: int) -> Any:
    """Return a type nested `depth` times."""
    found: Any = "int"
    for i in range(depth):
        if kind == "list":
            found = {"type": "list", "element-id": 1000 + i, "element": found, "element-required": False}
        else:
            field = {"id": 1000 + i, "name": "a", "required": False, "type": found}
            found = {"type": "struct", "fields": [field]}
    return found


def _add_column(kind: Any) -> Callable[[dict], None]:
    def change(parsed: dict) -> None:
        column = {"id": 900, "name": "extra", "required": False, "type": kind}
        for schema in (parsed.get("schema"), *parsed.get("schemas", ())):
            if schema:
                schema["fields"].append(column)
        parsed["last-column-id"] = 100_000_000

    return change


def _many_columns(count: int) -> Callable[[dict], None]:
    def change(parsed: dict) -> None:
        more = [{"id": 1000 + i, "name": f"c{i}", "required": False, "type": "int"} for i in range(count)]
        for schema in (parsed.get("schema"), *parsed.get("schemas", ())):
            if schema:
                schema["fields"] += more
        parsed["last-column-id"] = 100_000_000

    return change


def _snapshots(change: Callable[[list[dict]], Any]) -> Callable[[dict], None]:
    return lambda parsed: change(parsed["snapshots"]) and None


def _parents(link: Callable[[list[dict], int], Any]) -> Callable[[dict], None]:
    def change(parsed: dict) -> None:
        found = parsed["snapshots"]
        for i, snapshot in enumerate(found):
            snapshot["parent-snapshot-id"] = link(found, i)

    return change


def _properties(**values: str) -> Callable[[dict], None]:
    by_property_name = {k.replace("__", ".").replace("_", "-"): v for k, v in values.items()}
    return lambda parsed: parsed.setdefault("properties", {}).update(by_property_name)


def _all_columns(name: str) -> Callable[[dict], None]:
    def change(parsed: dict) -> None:
        for schema in (parsed.get("schema"), *parsed.get("schemas", ())):
            if schema:
                schema["fields"][1]["name"] = name

    return change


SPECIAL: dict[str, Callable[[dict], Any]] = {
    "snapshots that are their own parents": _parents(lambda all_, i: all_[i]["snapshot-id"]),
    "parents in a ring": _parents(lambda all_, i: all_[(i + 1) % len(all_)]["snapshot-id"]),
    "parents nobody knows": _parents(lambda all_, i: 404),
    "parents that are text": _parents(lambda all_, i: "x"),
    "snapshots twice": lambda p: p["snapshots"].extend(p["snapshots"]),
    "a snapshot without a list": lambda p: (
        [s.pop(k, None) for s in p["snapshots"] for k in ("manifest-list", "root-manifest")] and None
    ),
    "two kinds of lists": lambda p: (
        [
            s.update({"manifest-list": "file:///x", "manifests": ["file:///y"], "root-manifest": "z"})
            for s in p["snapshots"]
        ]
        and None
    ),
    "the metadata as its own list": lambda p: [s.update({"manifest-list": _self(p)}) for s in p["snapshots"]] and None,
    "a list in a ring of manifests": lambda p: (
        [s.update({"manifests": [s.get("manifest-list", "x")]}) or s.pop("manifest-list", None) for s in p["snapshots"]]
        and None
    ),
    "snapshots of a schema nobody knows": lambda p: [s.update({"schema-id": 77}) for s in p["snapshots"]] and None,
    "sequence numbers that descend": lambda p: (
        [s.update({"sequence-number": 100 - i}) for i, s in enumerate(p["snapshots"])] and None
    ),
    "negative sequence numbers": lambda p: [s.update({"sequence-number": -7}) for s in p["snapshots"]] and None,
    "times in the far future": lambda p: [s.update({"timestamp-ms": 1 << 62}) for s in p["snapshots"]] and None,
    "summaries of numbers": lambda p: (
        [s.update({"summary": {"operation": 7, "total-records": 8}}) for s in p["snapshots"]] and None
    ),
    "summaries that lie": lambda p: (
        [
            s["summary"].update({k: "-99999999999999999999" for k in s["summary"] if k != "operation"})
            for s in p["snapshots"]
        ]
        and None
    ),
    "3,000 snapshots": lambda p: p["snapshots"].extend([{**p["snapshots"][0], "snapshot-id": i} for i in range(3_000)]),
    "100,000 refs": lambda p: p["refs"].update(
        {f"r{i}": {"snapshot-id": p["snapshots"][0]["snapshot-id"], "type": "tag"} for i in range(100_000)}
    ),
    "a ref of an unknown kind": lambda p: p["refs"].update(
        {"x": {"snapshot-id": p["snapshots"][0]["snapshot-id"], "type": "hook"}}
    ),
    "100,000 columns": _many_columns(100_000),
    "3,000 columns": _many_columns(3_000),
    "a list 60 deep": _add_column(_nested("list", 60)),
    "structs 60 deep": _add_column(_nested("struct", 60)),
    "structs 95 deep": _add_column(_nested("struct", 95)),
    "structs 400 deep": _add_column(_nested("struct", 400)),
    "a type nobody knows": _add_column("hyperlong"),
    "a decimal of 10^9 digits": _add_column("decimal(1000000000, 3)"),
    "a decimal that is negative": _add_column("decimal(-1, -3)"),
    "a fixed of 2^62 bytes": _add_column(f"fixed[{1 << 62}]"),
    "a fixed of no bytes": _add_column("fixed[0]"),
    "a geometry of odd words": _add_column("geometry(';DROP')"),
    "an id twice": _add_column(
        {"type": "struct", "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}]}
    ),
    "a name twice": lambda p: (
        [s["fields"].append({**s["fields"][1], "id": 55}) for s in (p.get("schema"), *p.get("schemas", ())) if s]
        and None
    ),
    "a column with a line in its name": _all_columns("re\ngion\r\x1b[2J"),
    "a column named with dots": _all_columns("a.b.c"),
    "a column without a name": _all_columns(""),
    "a column of a long name": _all_columns("n" * 1_000_000),
    "a spec of a column nobody has": lambda p: (
        [f.update({"source-id": 404}) for s in p["partition-specs"] for f in s["fields"]] and None
    ),
    "a transform nobody knows": lambda p: (
        [f.update({"transform": "hash"}) for s in p["partition-specs"] for f in s["fields"]] and None
    ),
    "a bucket of none": lambda p: (
        [f.update({"transform": "bucket[0]"}) for s in p["partition-specs"] for f in s["fields"]] and None
    ),
    "a bucket of 2^40": lambda p: (
        [f.update({"transform": f"bucket[{1 << 40}]"}) for s in p["partition-specs"] for f in s["fields"]] and None
    ),
    "a negative truncation": lambda p: (
        [f.update({"transform": "truncate[-5]"}) for s in p["partition-specs"] for f in s["fields"]] and None
    ),
    "partition fields of one id": lambda p: (
        [f.update({"field-id": 1000}) for s in p["partition-specs"] for f in s["fields"]] and None
    ),
    "10,000 specs": lambda p: p["partition-specs"].extend(
        [{**p["partition-specs"][0], "spec-id": 10 + i} for i in range(10_000)]
    ),
    "a spec of 10,000 fields": lambda p: p["partition-specs"][0]["fields"].extend(
        [{"source-id": 1, "field-id": 2000 + i, "transform": "identity", "name": f"p{i}"} for i in range(10_000)]
    ),
    "code for reading files": _properties(py_io_impl="tests.hostile.trap.Trap"),
    "another endpoint": _properties(
        s3__endpoint="http://127.0.0.1:9", s3__signer="S3V4RestSigner", s3__signer__uri="http://127.0.0.1:9"
    ),
    "secrets in properties": _properties(s3__secret_access_key=CANARY, token=CANARY, password=CANARY),
    "properties nobody can read": _properties(
        gc__enabled="perhaps", write__target_file_size_bytes="-1", commit__retry__num_retries="x"
    ),
    "properties of wild numbers": _properties(
        history__expire__max_snapshot_age_ms="9" * 40, history__expire__min_snapshots_to_keep="-5"
    ),
    "a name mapping that is no JSON": _properties(schema__name_mapping__default="{"),
    "a deep name mapping": _properties(
        schema__name_mapping__default='[{"names":["a"],"fields":' * 3000 + "[]" + "}]" * 3000
    ),
    "a name mapping in a ring": _properties(
        schema__name_mapping__default='[{"field-id":1,"names":["region","id"]},{"field-id":2,"names":["id"]}]'
    ),
    "a codec nobody knows": _properties(
        write__metadata__compression_codec="rar", write__parquet__compression_codec="rar"
    ),
}


UNUSED_TYPES = (
    "a fixed of 2^62 bytes",
    "a decimal of 10^9 digits",
    "a decimal that is negative",
    "a fixed of no bytes",
    "a geometry of odd words",
)
"""Types of columns that no file has: an audit of the files never creates them."""
A_PATH = "in a path of the table at"
"""Part of an error message about an unusable path."""
NAMES_IN_ERRORS = {
    "two kinds of lists": ("file:///x", "file:///y"),
    "a geometry of odd words": ("geometry(';DROP')",),
    "code for reading files": ("py-io-impl",),
    "properties nobody can read": ("'gc.enabled'",),
}
"""Names in errors about a value of the metadata instead of the metadata file."""


def _self(parsed: dict) -> str:
    return parsed["location"] + "/metadata/" + "none.avro"


TEXTS: dict[str, Callable[[bytes], bytes]] = {
    "100,000 lists": lambda data: b"[" * 100_000,
    "100,000 objects": lambda data: b'{"a":' * 100_000,
    "a key twice": lambda data: b'{"format-version":2,' + data[1:],
    "not a number": lambda data: data.replace(b'"last-updated-ms":', b'"last-updated-ms": NaN, "x":', 1),
    "infinity": lambda data: data.replace(b'"last-updated-ms":', b'"last-updated-ms": 1e999, "x":', 1),
    "a number of 5,000 digits": lambda data: data.replace(
        b'"last-updated-ms":', b'"x": ' + b"9" * 5000 + b', "last-updated-ms":', 1
    ),
    "half a letter": lambda data: data.replace(b'"location":', b'"x": "\xc3", "location":', 1),
    "half a pair": lambda data: data.replace(b'"location":', b'"x": "\\ud800", "location":', 1),
    "UTF-16": lambda data: data.decode().encode("utf-16"),
    "a mark in front": lambda data: b"\xef\xbb\xbf" + data,
    "more after the end": lambda data: data + data,
    "a comment": lambda data: b"/* x */" + data,
    "gzip": gzip.compress,
    "gzip cut": lambda data: gzip.compress(data)[:-9],
    "gzip twice": lambda data: gzip.compress(gzip.compress(data)),
    "gzip with more after it": lambda data: gzip.compress(data) + b"more",
    "gzip with another checksum": lambda data: gzip.compress(data)[:-8] + bytes(8),
}


def _special() -> Iterator[Case]:
    for version in VERSIONS:
        for what, change in SPECIAL.items():
            yield _case(
                what,
                version,
                change,
                names=("/db/t/", *NAMES_IN_ERRORS.get(what, ())),
                audited=what not in UNUSED_TYPES,
            )
        for what, make in TEXTS.items():
            yield Case("metadata", f"text: {what}", version, partial(_rewrite_text, make), detected_by="nobody")


def _rewrite_text(make: Callable[[bytes], bytes], lake: DamagedLake) -> None:
    path = lake.path("metadata")
    path.write_bytes(make(json.dumps(json.loads(path.read_bytes())).encode()))
