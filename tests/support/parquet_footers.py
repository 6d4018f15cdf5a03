"""Parquet files whose footers contradict themselves, made by changing one field of the Thrift structure.

Run as a program it reads the files of a folder in every way this package does, and says how each ended: a footer that
makes Arrow end the process ends that process, not the tests.
"""

from __future__ import annotations

import io
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import And, GreaterThan, GreaterThanOrEqual, visitors
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, DoubleType, LongType, NestedField, StringType

from neve.errors import NeveError
from neve.run.read.file_reader import FileTask, ReadTarget, read_tasks

Fields = dict[int, tuple[int, Any]]  # of a structure: the type and the value by number
INTEGERS, BINARY, LIST, STRUCT = (4, 5, 6), 8, 9, 12
ROW_GROUPS, CHUNKS, METADATA, CRYPTO, TYPE, STATISTICS, MAX, MIN = 4, 1, 3, 8, 1, 12, 5, 6

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "text", StringType(), required=False),
    NestedField(3, "real", DoubleType(), required=False),
    NestedField(4, "flag", BooleanType(), required=False),
)


class Reader:
    """Reads the compact protocol, as far as footers written here need it."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        value, shift = 0, 0
        while (byte := self.byte()) > 127:
            value |= (byte & 127) << shift
            shift += 7
        return value | byte << shift

    def number(self) -> int:
        raw = self.varint()
        return (raw >> 1) ^ -(raw & 1)

    def structure(self) -> Fields:
        found: Fields = {}
        number = 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.number()
            found[number] = (head & 15, None if head & 15 < 3 else self.value(head & 15))
        return found

    def value(self, kind: int) -> Any:
        if kind in INTEGERS:
            return self.number()
        if kind == BINARY:
            length = self.varint()
            self.at += length
            return self.data[self.at - length : self.at]
        if kind == LIST:
            head = self.byte()
            count = self.varint() if head >> 4 == 15 else head >> 4
            return head & 15, [self.value(head & 15) for _ in range(count)]
        assert kind == STRUCT, kind
        return self.structure()


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def spelled(kind: int, value: Any) -> bytes:
    if kind < 3:
        return b""
    if kind in INTEGERS:
        return varint(((value << 1) ^ (value >> 63)) & (1 << 64) - 1)
    if kind == BINARY:
        return varint(len(value)) + value
    if kind == LIST:
        return bytes([240 | value[0]]) + varint(len(value[1])) + b"".join(spelled(value[0], v) for v in value[1])
    heads = [bytes([k]) + spelled(4, number) + spelled(k, v) for number, (k, v) in sorted(value.items())]
    return b"".join(heads) + b"\0"


def chunks(footer: Fields) -> list[Fields]:
    """The column chunks of the first row group."""
    return footer[ROW_GROUPS][1][1][0][CHUNKS][1][1]


def of_chunk(column: int) -> Callable[[Fields], Fields]:
    return lambda footer: chunks(footer)[column][METADATA][1]


def stated(column: int, field: int, value: bytes) -> Callable[[Fields], Any]:
    return lambda footer: of_chunk(column)(footer)[STATISTICS][1].update({field: (BINARY, value)})


def typed(column: int, kind: int) -> Callable[[Fields], Any]:
    return lambda footer: of_chunk(column)(footer).update({TYPE: (5, kind)})


with_column_key = {2: (STRUCT, {1: (LIST, (BINARY, [b"id"]))})}

CONTRADICTIONS: dict[str, Callable[[Fields], Any]] = {
    "a chunk without metadata": lambda footer: chunks(footer)[0].pop(METADATA),
    "a chunk too few": lambda footer: chunks(footer).pop(),
    "a chunk too many": lambda footer: chunks(footer).append(chunks(footer)[0]),
    "no chunks": lambda footer: chunks(footer).clear(),
    "whole numbers that are text": typed(0, 6),
    "text that is whole numbers": typed(1, 2),
    "a type that does not exist": typed(2, 77),
    "a short minimum": stated(0, MIN, b"\1"),
    "an empty minimum": stated(0, MIN, b""),
    "a short maximum": stated(2, MAX, b"\1"),
    "an empty flag": stated(3, MIN, b""),
    "a column with a key of its own": lambda footer: chunks(footer)[0].update({CRYPTO: (STRUCT, with_column_key)}),
    "negative sizes": lambda footer: of_chunk(0)(footer).update({6: (6, -5), 7: (6, -5)}),
    "negative rows": lambda footer: footer[ROW_GROUPS][1][1][0].update({3: (6, -3)}),
    "a negative size of the row group": lambda footer: footer[ROW_GROUPS][1][1][0].update({2: (6, -3)}),
    "nothing": lambda footer: None,
}


def contradicting(change: Callable[[Fields], Any]) -> bytes:
    """A file whose footer was changed."""
    stream = io.BytesIO()
    fields = [
        pa.field(f.name, t, True, {"PARQUET:field_id": str(f.field_id)})
        for f, t in zip(SCHEMA.fields, (pa.int64(), pa.string(), pa.float64(), pa.bool_()), strict=True)
    ]
    rows = [[1, 2, 3, 4], ["a", "b", "c", "d"], [1.0, 2.0, 3.0, 4.0], [True, False, True, False]]
    pq.write_table(pa.table(rows, schema=pa.schema(fields)), stream, row_group_size=2)
    raw = stream.getvalue()
    length = int.from_bytes(raw[-8:-4], "little")
    footer = Reader(raw[-8 - length : -8]).structure()
    change(footer)
    changed = spelled(STRUCT, footer)
    return raw[: -8 - length] + changed + struct.pack("<I4s", len(changed), b"PAR1")


def ending(path: Path) -> str:
    """How reading a file ends, all of it and in parts, with and without a condition on every column."""
    every = And(
        GreaterThanOrEqual("id", 2),
        GreaterThan("text", "a"),
        GreaterThan("real", 0.5),
        GreaterThanOrEqual("flag", False),
    )
    told = set()
    for predicate in (None, visitors.bind(SCHEMA, every, True)):
        for part in ((0, 1), (1, 2)):
            task = FileTask(str(path), "PARQUET", part=part)
            try:
                rows = [
                    r
                    for b in read_tasks(load_file_io({}), [task], ReadTarget(SCHEMA, predicate=predicate))
                    for r in b.to_pylist()
                ]
                told.add(f"{len(rows)} rows")
            except NeveError as e:
                told.add(type(e).__name__ if str(path) in str(e) else f"unnamed: {e}")
    return ", ".join(sorted(told))


if __name__ == "__main__":
    for file in sorted(Path(sys.argv[1]).iterdir()):
        sys.stdout.write(f"{file.stem}: {ending(file)}\n")
        sys.stdout.flush()
