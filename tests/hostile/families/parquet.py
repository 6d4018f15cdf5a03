"""Parquet files with wrong footers and pages: data files, delete files, and the manifests of version 4."""

from __future__ import annotations

import base64
import pickle
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.hostile.case import Case
from tests.hostile.containers import drop_stated_lengths, update_stated_values
from tests.hostile.honest_tables import DamagedLake
from tests.support.parquet_footers import CONTRADICTIONS, LIST, STRUCT, Fields, Reader, of_chunk, spelled

ROLES = {2: ("data", "positions", "equality"), 3: ("data",), 4: ("list", "manifest")}
VERSION, SCHEMA, ROWS, GROUPS, PAIRS = 1, 2, 3, 4, 5
ELEMENT_TYPE, ELEMENT_REPETITION, ELEMENT_NAME, ELEMENT_CHILDREN, ELEMENT_ID = 1, 3, 4, 5, 9
CODEC, VALUES, UNCOMPRESSED, COMPRESSED, DATA_OFFSET, INDEX_OFFSET, DICTIONARY_OFFSET = 4, 5, 6, 7, 9, 10, 11
I32, I64, BINARY = 5, 6, 8
NUMBERS = (-1, 0, 1, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63))

Change = Callable[[Fields], Any]


def elements(footer: Fields) -> list[Fields]:
    """Return the flat list of schema elements, the root first."""
    return footer[SCHEMA][1][1]


def groups(footer: Fields) -> list[Fields]:
    return footer[GROUPS][1][1]


def _numbers() -> Iterator[tuple[str, Change]]:
    for n in NUMBERS:
        yield f"{n} rows", lambda f, n=n: f.update({ROWS: (I64, n)})
        yield f"{n} rows in a group", lambda f, n=n: groups(f)[0].update({3: (I64, n)})
        yield f"a group of {n} bytes", lambda f, n=n: groups(f)[0].update({2: (I64, n)})
        for name, field in {"values": VALUES, "bytes": UNCOMPRESSED, "stored bytes": COMPRESSED}.items():
            yield f"a chunk of {n} {name}", lambda f, n=n, k=field: of_chunk(0)(f).update({k: (I64, n)})
        for name, field in {"data": DATA_OFFSET, "index": INDEX_OFFSET, "dictionary": DICTIONARY_OFFSET}.items():
            yield f"{name} pages at {n}", lambda f, n=n, k=field: of_chunk(0)(f).update({k: (I64, n)})
    for n in (-1, 0, 3, 77, 1 << 30):
        yield f"codec {n}", lambda f, n=n: of_chunk(0)(f).update({CODEC: (I32, n)})
        yield f"version {n}", lambda f, n=n: f.update({VERSION: (I32, n)})


def _schemas() -> Iterator[tuple[str, Change]]:
    for n in (-1, 0, 1, 2, 1000, (1 << 31) - 1):
        yield f"{n} children of the root", lambda f, n=n: elements(f)[0].update({ELEMENT_CHILDREN: (I32, n)})
        yield f"{n} children of a column", lambda f, n=n: elements(f)[1].update({ELEMENT_CHILDREN: (I32, n)})
        yield f"a column repeated {n}", lambda f, n=n: elements(f)[1].update({ELEMENT_REPETITION: (I32, n)})
        yield f"a column of id {n}", lambda f, n=n: elements(f)[1].update({ELEMENT_ID: (I32, n)})
    for kind in (*range(8), 99):
        yield f"a column of type {kind}", lambda f, k=kind: elements(f)[1].update({ELEMENT_TYPE: (I32, k)})
    for name in (b"", b"\xff\xfe", b"a.b", b"x" * 100_000, b"\x1b[2J", b"a\0b"):
        yield f"a column named {name[:9]!r}", lambda f, n=name: elements(f)[1].update({ELEMENT_NAME: (BINARY, n)})
    yield "no schema", lambda f: elements(f).clear()
    yield "the root alone", lambda f: elements(f).__setitem__(slice(1, None), [])
    yield "no row groups", lambda f: groups(f).clear()
    yield "the groups two thousand times", lambda f: groups(f).extend(groups(f) * 1_999)
    yield "one id for all", lambda f: [e.update({ELEMENT_ID: (I32, 1)}) for e in elements(f)[1:]]
    yield "no ids", lambda f: [e.pop(ELEMENT_ID, None) for e in elements(f)]
    yield "a schema 20,000 deep", lambda f: _deepen(f, 20_000)
    yield "a schema 300 deep", lambda f: _deepen(f, 300)
    yield "a schema of 100,000 columns", lambda f: _widen(f, 100_000)


def _deepen(footer: Fields, depth: int) -> None:
    nested = {ELEMENT_REPETITION: (I32, 1), ELEMENT_NAME: (BINARY, b"g"), ELEMENT_CHILDREN: (I32, 1)}
    found = elements(footer)
    found[1:] = [dict(nested) for _ in range(depth)] + found[1:]


def _widen(footer: Fields, count: int) -> None:
    found = elements(footer)
    found += [
        {ELEMENT_TYPE: (I32, 2), ELEMENT_REPETITION: (I32, 1), ELEMENT_NAME: (BINARY, b"w%d" % i)} for i in range(count)
    ]
    found[0][ELEMENT_CHILDREN] = (I32, found[0][ELEMENT_CHILDREN][1] + count)


CHANGES: dict[str, Change] = {**CONTRADICTIONS, **dict(_numbers()), **dict(_schemas())}
del CHANGES["nothing"]
NEEDS_STATISTICS = {"a short minimum", "an empty minimum", "a short maximum", "an empty flag"}  # version 4 writes none
NEEDS_OTHER_COLUMNS = {  # changes of columns that the file does not have
    "data": {"an empty flag"},
    "positions": {"an empty flag", "a short maximum", "a type that does not exist"},
    "equality": {"an empty flag", "a short maximum", "a type that does not exist", "text that is whole numbers"},
}


def _tails() -> Iterator[tuple[str, Callable[[bytes], bytes]]]:
    for length in (0, 1, 3, 1 << 20, (1 << 31) - 1, (1 << 32) - 1):
        yield f"a footer of {length} bytes", lambda data, n=length: data[:-8] + struct.pack("<I4s", n, b"PAR1")
    yield "a footer as long as the file", lambda data: data[:-8] + struct.pack("<I4s", len(data) - 8, b"PAR1")
    yield "a footer of the whole file and more", lambda data: data[:-8] + struct.pack("<I4s", len(data) - 7, b"PAR1")
    yield "an encrypted footer", lambda data: data[:-4] + b"PARE"
    yield "no magic at the end", lambda data: data[:-4] + b"XXXX"
    yield "pages of zeros", lambda data: data[:4] + bytes(_footer_at(data) - 4) + data[_footer_at(data) :]
    yield "pages of ones", lambda data: data[:4] + b"\xff" * (_footer_at(data) - 4) + data[_footer_at(data) :]
    yield "no pages", lambda data: data[:4] + data[_footer_at(data) :]
    for depth in (30, 5000):
        nested = b"\x1c" * depth + b"\0" * (depth + 1)
        yield (
            f"a footer of {depth} structures",
            lambda data, n=nested: data[:4] + n + struct.pack("<I4s", len(n), b"PAR1"),
        )
    lists = b"\x19" + b"\xf9\x01" * 5000
    yield "a footer of lists in lists", lambda data: data[:4] + lists + struct.pack("<I4s", len(lists), b"PAR1")


def _footer_at(data: bytes) -> int:
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


TAILS = dict(_tails())


class Trap:
    """Writes a marker file outside the lake when it is unpickled."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (Path.write_text, (Path(self.mark), "unpickled"))


def _set_pickled_schema(footer: Fields, lake: DamagedLake) -> None:
    """Add an Arrow schema to the footer whose extension type is a pickle, as old versions of PyArrow wrote it."""
    import pyarrow as pa

    payload = pickle.dumps(Trap(str(lake.outside / "mark")))
    names = (b"arrow.py_extension_type", b"arrow.json", b"tests.hostile")
    fields = [
        pa.field(
            e[ELEMENT_NAME][1].decode(),
            pa.binary(),
            metadata={b"ARROW:extension:name": names[i % 3], b"ARROW:extension:metadata": payload},
        )
        for i, e in enumerate(elements(footer)[1:])
    ]
    schema = base64.b64encode(pa.schema(fields).serialize().to_pybytes())
    pair = {1: (BINARY, b"ARROW:schema"), 2: (BINARY, schema)}
    footer[PAIRS] = (LIST, (STRUCT, [pair]))


def cases() -> Iterator[Case]:
    """A contradiction must be rejected; an unused number may be wrong."""
    for version, roles in ROLES.items():
        for role in roles:
            for what in (c for c in CHANGES if c not in NEEDS_OTHER_COLUMNS.get(role, NEEDS_STATISTICS)):
                yield _case(version, role, f"{role}: {what}", partial(_change_footer, role, what))
            for what in TAILS:
                yield _case(version, role, f"{role}: {what}", partial(_change_tail, role, what))
            yield _case(version, role, f"{role}: a pickled type", partial(_add_pickled_type, role))


def _case(version: int, role: str, name: str, change: Callable[[DamagedLake], None]) -> Case:
    return Case("parquet", name, version, change, detected_by="nobody", audited=version == 4)


def _change_footer(role: str, what: str, lake: DamagedLake) -> None:
    _rewrite_footer(role, lake, CHANGES[what])


def _add_pickled_type(role: str, lake: DamagedLake) -> None:
    _rewrite_footer(role, lake, lambda footer: _set_pickled_schema(footer, lake))


def _rewrite_footer(role: str, lake: DamagedLake, change: Change) -> None:
    raw = lake.path(role).read_bytes()
    at = _footer_at(raw)
    footer = Reader(raw[at:-8]).structure()
    change(footer)
    encoded = spelled(STRUCT, footer)
    _replace_file(role, lake, raw[:at] + encoded + struct.pack("<I4s", len(encoded), b"PAR1"))


def _change_tail(role: str, what: str, lake: DamagedLake) -> None:
    _replace_file(role, lake, TAILS[what](lake.path(role).read_bytes()))


def _replace_file(role: str, lake: DamagedLake, data: bytes) -> None:
    drop_stated_lengths(lake)
    lake.path(role).write_bytes(data)
    if lake.version < 4:
        update_stated_values(lake, role)
