"""A second reader of version 4 trees, row by row in plain Python: what the columnar one is held against.

It shares no code with the package: rows are dictionaries by field id, written `147.0` for the field 0 inside the struct
147.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]

STATUS, SNAPSHOT, NUMBER, FILE_NUMBER, CHANGED, ROW_ID = "147.0", "147.1", "147.3", "147.4", "147.5", "147.142"
CONTENT, VERSION, LOCATION, RECORDS, SPEC = "134", "157", "100", "103", "141"
VECTOR = ("148.155", "148.144", "148.145", "148.156")
LIVE = (0, 1, 4)


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def rows_of(path: str) -> list[Row]:
    """The rows of a Parquet manifest by field id, nulls left out."""
    table = pq.read_table(local(path))
    schema = pq.read_schema(local(path))
    return [_flat(row, schema, "") for row in table.to_pylist()]


def footer_of(path: str) -> dict[str, str]:
    found = pq.read_metadata(local(path)).metadata or {}
    return {k.decode(): v.decode() for k, v in found.items()}


def _flat(value: dict[str, Any], fields: Any, prefix: str) -> Row:
    found: Row = {}
    for field in fields:
        own = f"{prefix}{field.metadata[b'PARQUET:field_id'].decode()}"
        inner = value.get(field.name)
        if inner is None:
            continue
        if pa.types.is_struct(field.type):
            found |= _flat(inner, field.type, f"{own}.") or {own: {}}
        else:
            found[own] = inner
    return found


@dataclass(frozen=True)
class Tracked:
    """A live file of a tree, with everything inherited."""

    location: str
    content: int
    spec_id: int | None
    partition: tuple[tuple[str, Any], ...]
    number: int
    file_number: int
    snapshot_id: int
    first_row_id: int | None
    vector: tuple[Any, ...] | None


def live_files(root: str, table: str) -> list[Tracked]:
    """The live files of the tree below a root: Parquet leaves are read here, older ones are left out."""
    found: list[Tracked] = []
    for row in rows_of(root):
        if row[STATUS] not in LIVE:
            continue
        if row[CONTENT] in (0, 2):
            found.append(_tracked(row, row, None, table))
        elif row[VERSION] == 4:
            found += _of_leaf(row, table)
    return found


def _of_leaf(above: Row, table: str) -> Iterator[Tracked]:
    counter = above.get(ROW_ID)
    hidden = _bits(above.get("150.522"))
    for at, row in enumerate(rows_of(_absolute(above[LOCATION], table))):
        if row[STATUS] not in LIVE:
            continue
        row_id = row.get(ROW_ID)
        if row_id is None and counter is not None and row[CONTENT] == 0:
            row_id, counter = counter, counter + row[RECORDS]
        if at not in hidden:
            yield _tracked(row, above, row_id, table)


def _tracked(row: Row, above: Row, row_id: int | None, table: str) -> Tracked:
    is_new = row[STATUS] == 1
    tuples = {k.split(".")[1]: v for k, v in row.items() if k.startswith("102.")}
    return Tracked(
        location=_absolute(row[LOCATION], table),
        content=row[CONTENT],
        spec_id=row.get(SPEC),
        partition=tuple(sorted(tuples.items())),
        number=row.get(NUMBER, above[NUMBER] if is_new else None),
        file_number=row.get(FILE_NUMBER, above[FILE_NUMBER] if is_new else None),
        snapshot_id=row.get(SNAPSHOT, above[SNAPSHOT]),
        first_row_id=row.get(ROW_ID, row_id),
        vector=tuple(_absolute(row[k], table) if k == VECTOR[0] else row[k] for k in VECTOR)
        if VECTOR[0] in row
        else None,
    )


def _absolute(path: str, table: str) -> str:
    return path if ":" in path.split("/", maxsplit=1)[0] else f"{table}/{path}"


def _bits(data: bytes | None) -> set[int]:
    """The positions of a manifest vector whose descriptors need no exceptions, which is all that is written here."""
    if data is None:
        return set()
    count, at, sizes = int.from_bytes(data[4:6], "little"), 6, []
    while len(sizes) < count:
        width, exceptions, least = data[at : at + 3]
        assert exceptions == 0
        length = min(256, count - len(sizes))
        packed = data[at + 3 : at + 3 + -(-length * width // 8)]
        bits = "".join(f"{b:08b}" for b in packed)
        sizes += [least + int(bits[i * width : (i + 1) * width] or "0", 2) for i in range(length)]
        at += 3 + len(packed)
    found: set[int] = set()
    for number, size in enumerate(sizes):
        if size < 32:
            found |= {256 * number + b for b in data[at : at + size]}
            at += size
        else:
            found |= {256 * number + i for i in range(256) if data[at + i // 8] >> (7 - i % 8) & 1}
            at += 32
    return found


def shown(rows: list[Row], names: dict[Any, str]) -> list[str]:
    """Rows as text, one a line, with names for values that differ from run to run."""
    return [json.dumps({k: _named(v, names) for k, v in row.items()}, default=_plain) for row in rows]


def _named(value: Any, names: dict[Any, str]) -> Any:
    if isinstance(value, str):
        for long, short in names.items():
            if isinstance(long, str):
                value = value.replace(long, short)
        return value
    return names.get(value, value) if isinstance(value, int) and value > 1 << 40 else value


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else str(value)
