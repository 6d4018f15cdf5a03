"""Random schemas and values: what fastavro writes is read, what is written fastavro reads, whole or in part."""

from __future__ import annotations

import datetime
import decimal
import io
import random
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.io.avro import Projection, decode, encode
from neve.io.avro.jit import PYTHON_BACKEND
from tests.support.avro_by_hand import container, spell

INT, LONG = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
MICROS = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1), timezones=st.just(datetime.UTC))
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": INT,
    "long": LONG,
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=80),
    "string": st.text(max_size=40),
}
LOGICAL: list[tuple[dict[str, Any], st.SearchStrategy[Any]]] = [
    ({"type": "int", "logicalType": "date"}, st.dates(datetime.date(1800, 1, 1), datetime.date(2300, 1, 1))),
    ({"type": "long", "logicalType": "time-micros"}, st.times()),
    ({"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True}, MICROS),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 4},
        st.decimals(1 - 10**34, 10**34 - 1, places=4),
    ),
    ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, st.decimals(-999, 999, places=2)),
]


class Drawn:
    """Names for the types of one schema, which Avro wants to differ."""

    def __init__(self, draw: Any, logical: bool) -> None:
        self.draw, self.logical, self.names = draw, logical, 0

    def name(self) -> str:
        self.names += 1
        return f"n{self.names}"

    def schema(self, depth: int) -> Any:
        kinds = [*PLAIN, "fixed", "enum", *(["logical"] if self.logical else [])]
        kind = self.draw(st.sampled_from([*kinds, *(["record", "array", "map"] * 3 if depth else [])]))
        plain = self.bare(kind, depth)
        if kind != "null" and self.draw(st.booleans()):
            return self.draw(st.sampled_from([["null", plain], [plain, "null"]]))
        return plain

    def bare(self, kind: str, depth: int) -> Any:  # noqa: PLR0911 - a case for each type
        match kind:
            case "record":
                return self.record(depth - 1, 0)
            case "array":
                return {"type": "array", "items": self.schema(depth - 1)}
            case "map":
                return {"type": "map", "values": self.schema(depth - 1)}
            case "fixed":
                return {"type": "fixed", "name": self.name(), "size": self.draw(st.integers(1, 20))}
            case "enum":
                return {"type": "enum", "name": self.name(), "symbols": ["A", "B", "C"]}
            case "logical":
                wide = {
                    "type": "fixed",
                    "size": 20,
                    "logicalType": "decimal",
                    "precision": 20,
                    "scale": 3,
                    "name": self.name(),
                }
                return self.draw(st.sampled_from([*(schema for schema, _ in LOGICAL), wide]))
            case _:
                return kind

    def record(self, depth: int, fewest: int = 1) -> dict[str, Any]:
        count = self.draw(st.integers(fewest, 4))
        fields = [{"name": f"f{i}", "type": self.schema(depth)} for i in range(count)]
        return {"type": "record", "name": self.name(), "fields": fields}


def values(schema: Any) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - a case for each type
    if isinstance(schema, list):
        return st.none() | values(next(s for s in schema if s != "null"))
    if isinstance(schema, str):
        return PLAIN[schema]
    for logical, strategy in LOGICAL:
        if schema == logical:
            return strategy
    match schema["type"]:
        case "record":
            return st.fixed_dictionaries({f["name"]: values(f["type"]) for f in schema["fields"]})
        case "array":
            return st.lists(values(schema["items"]), max_size=5)
        case "map":
            return st.dictionaries(st.text(max_size=5), values(schema["values"]), max_size=3)
        case "fixed" if "logicalType" in schema:
            return st.decimals(-(10**17) + 1, 10**17 - 1, places=3)
        case "fixed":
            return st.binary(min_size=schema["size"], max_size=schema["size"])
        case _:
            return st.sampled_from(schema["symbols"])


@st.composite
def files(draw: Any, logical: bool = True) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    schema = Drawn(draw, logical).record(3)
    return schema, draw(st.lists(values(schema), max_size=12))


def by_fastavro(schema: Any, rows: list[Any], codec: str = "null", sync_interval: int = 16_000) -> bytes:
    out = io.BytesIO()
    with decimal.localcontext(decimal.Context(prec=60)):
        fastavro.writer(out, fastavro.parse_schema(schema), rows, codec=codec, sync_interval=sync_interval)
    return out.getvalue()


def read_by_fastavro(data: bytes) -> list[Any]:
    with decimal.localcontext(decimal.Context(prec=60)):
        return list(fastavro.reader(io.BytesIO(data)))


def rows_of(batch: pa.RecordBatch) -> list[Any]:
    return batch.to_pylist(maps_as_pydicts="strict")


@settings(max_examples=60, deadline=None)
@given(files(), st.sampled_from(["null", "deflate", "bzip2"]), st.sampled_from([1, 16_000]))
def test_reads_what_fastavro_writes(file: Any, codec: str, sync_interval: int) -> None:
    schema, rows = file
    data = by_fastavro(schema, rows, codec, sync_interval)
    batch, header = decode(data, "f")
    batch.validate(full=True)
    assert rows_of(batch) == read_by_fastavro(data)
    assert (header.codec, batch.num_rows) == (codec, len(rows))


@settings(max_examples=60, deadline=None)
@given(files(), st.sampled_from(["null", "deflate"]), st.sampled_from([1, 200, 64_000]), st.integers(0, 3))
def test_fastavro_reads_what_is_written(file: Any, codec: str, block_bytes: int, skipped: int) -> None:
    schema, rows = file
    types = decode(by_fastavro(schema, []), "f")[0].schema
    batch = pa.RecordBatch.from_pylist(rows, types) if rows else types.empty_table()
    sliced = batch.slice(skipped)  # arrays that do not begin at the beginning of their buffers
    written = encode(sliced, schema, {"k": b"v"}, codec, block_bytes=block_bytes)
    assert read_by_fastavro(written) == read_by_fastavro(by_fastavro(schema, rows[skipped:]))
    again, header = decode(written, "f")
    assert again.schema.equals(types, check_metadata=True)
    assert header.metadata["k"] == b"v"


@settings(max_examples=60, deadline=None)
@given(files(logical=False), st.integers(0, 10**6))
def test_list_blocks_may_be_cut_anywhere_and_carry_their_size(file: Any, seed: int) -> None:
    schema, rows = file
    dice = random.Random(seed)
    data = container(schema, *((1, spell(schema, row, dice)) for row in rows))
    assert rows_of(decode(data, "f")[0]) == read_by_fastavro(data)


@settings(max_examples=60, deadline=None)
@given(files(logical=False), st.data())
def test_a_projection_gives_the_chosen_fields_and_no_other(file: Any, data: Any) -> None:
    schema, rows = file
    chosen = frozenset(data.draw(st.sets(st.sampled_from(sorted(paths(schema))), max_size=4)))
    dice = random.Random(data.draw(st.integers(0, 100)))
    stored = container(schema, *((1, spell(schema, row, dice)) for row in rows))
    batch, _ = decode(stored, "f", Projection(chosen))
    full = rows_of(decode(stored, "f")[0])
    assert batch.num_rows == len(rows)
    assert rows_of(batch) == [pruned(schema, row, "", chosen) for row in full]


@settings(max_examples=40, deadline=None)
@given(files(logical=False), st.data())
def test_encoded_fields_are_carried_over_verbatim(file: Any, data: Any) -> None:
    schema, rows = file
    chosen = frozenset(data.draw(st.sets(st.sampled_from(sorted(record_fields(schema))), max_size=3)))
    dice = random.Random(data.draw(st.integers(0, 100)))
    stored = container(schema, *((1, spell(schema, row, dice)) for row in rows))
    batch, header = decode(stored, "f", Projection(None, chosen))
    again = encode(batch, header.schema, {}, "null", chosen)
    assert read_by_fastavro(again) == read_by_fastavro(stored)
    for path in chosen & set(schema_names(schema)):
        assert batch.schema.field(path).type == pa.binary()


@settings(max_examples=40, deadline=None)
@given(files())
def test_plain_python_does_the_same_as_compiled_code(file: Any) -> None:
    schema, rows = file
    data = by_fastavro(schema, rows)
    batch, _ = decode(data, "f")
    assert decode(data, "f", backend=PYTHON_BACKEND)[0].equals(batch, check_metadata=True)
    written = encode(batch, schema, {}, "null", block_bytes=100, backend=PYTHON_BACKEND)
    assert without_sync(written) == without_sync(encode(batch, schema, {}, "null", block_bytes=100))


def without_sync(data: bytes) -> bytes:
    return data.replace(data[-16:], b"") if len(data) > 16 else data


def schema_names(schema: Any) -> list[str]:
    return [f["name"] for f in schema["fields"]]


def paths(schema: Any, above: str = "") -> set[str]:
    """Every path a projection may name."""
    if isinstance(schema, list):
        return set().union(*(paths(s, above) for s in schema))
    match schema:
        case {"type": "record", "fields": fields}:
            below = {f"{above}.{f['name']}" if above else f["name"]: f["type"] for f in fields}
            return set(below).union(*(paths(type_, path) for path, type_ in below.items()))
        case {"type": "array", "items": items}:
            return paths(items, above)
        case _:
            return set()


def record_fields(schema: Any) -> set[str]:
    """The paths among them that have no other of them above, so that both can be encoded at once."""
    return set(schema_names(schema)) | {p for p in paths(schema) if p.count(".") == 1}


def pruned(schema: Any, value: Any, path: str, chosen: frozenset[str]) -> Any:
    """A value with only the chosen paths left in it."""
    if isinstance(schema, list):
        return None if value is None else pruned(next(s for s in schema if s != "null"), value, path, chosen)
    if path and path in chosen:
        return value
    match schema:
        case {"type": "record", "fields": fields}:
            below = {f["name"]: (f"{path}.{f['name']}" if path else f["name"], f["type"]) for f in fields}
            kept = {n: t for n, t in below.items() if any(c == t[0] or c in paths(t[1], t[0]) for c in chosen)}
            return {n: value[n] if p in chosen else pruned(t, value[n], p, chosen) for n, (p, t) in kept.items()}
        case {"type": "array", "items": items}:
            return [pruned(items, item, path, chosen) for item in value]
        case _:
            return value
