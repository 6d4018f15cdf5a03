"""Avro files spelled by hand, so that every number in them can lie, and what manifests and lists state about files."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tests.hostile.honest_tables import Place
from tests.support.evolved_tables import edit_avro

SYNC = bytes(range(16))


@dataclass(frozen=True)
class Container:
    """An Avro file in parts."""

    schema: Any
    records: list[dict[str, Any]]
    metadata: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path) -> Container:
        with path.open("rb") as stream:
            reader = fastavro.reader(stream)
            rows = list(reader)
            kept = {k: v.encode() for k, v in reader.metadata.items() if not k.startswith("avro.")}
            return cls(json.loads(reader.metadata["avro.schema"]), rows, kept)

    def with_schema(self, schema: Any) -> Container:
        return replace(self, schema=schema)

    @property
    def encoded(self) -> bytes:
        """All records one after the other."""
        out = io.BytesIO()
        schema = fastavro.parse_schema(self.schema)
        for row in self.records:
            fastavro.schemaless_writer(out, schema, row)
        return out.getvalue()

    def header(self, codec: bytes | None = b"null", schema: bytes | None = None, **extra: bytes) -> bytes:
        own = {"avro.schema": json.dumps(self.schema).encode() if schema is None else schema}
        own |= {} if codec is None else {"avro.codec": codec}
        entries = {**self.metadata, **own, **extra}
        parts = [text(k.encode()) + text(v) for k, v in entries.items()]
        return b"Obj\x01" + varint(len(entries)) + b"".join(parts) + b"\0" + SYNC

    def whole(self, *blocks: bytes, **header: Any) -> bytes:
        return self.header(**header) + b"".join(blocks)


def block(body: bytes, count: int, size: int | None = None, sync: bytes = SYNC) -> bytes:
    return varint(count) + varint(len(body) if size is None else size) + body + sync


def varint(value: int) -> bytes:
    """A number as Avro spells it, of any size."""
    rest, out = (value << 1) ^ (value >> 63) if -(1 << 63) <= value < 1 << 63 else value << 1, bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*out, rest])


def text(data: bytes) -> bytes:
    return varint(len(data)) + data


# --- what metadata states about files -----------------------------------------------------------------------------


def avro_files(place: Place) -> Iterable[tuple[Path, bool]]:
    """The Avro files of the metadata that can still be read, and whether each is a list."""
    for path in sorted((place.folder / "db/t/metadata").glob("*.avro")):
        with path.open("rb") as stream:
            try:
                names = {f["name"] for f in fastavro.reader(stream).writer_schema["fields"]}
            except Exception:
                continue
        yield path, "manifest_path" in names


def any_length(place: Place) -> None:
    """Let lists and roots state lengths that every file has, so that damage is met inside the files."""
    for path, is_list in avro_files(place):
        if is_list:
            edit_avro(str(path), lambda row: row.update(manifest_length=1))
    if place.version == 4:
        edit_rows(place.path("list"), lambda rows: [row.update(file_size_in_bytes=1) for row in rows])


def restate(place: Place, role: str, **values: Any) -> None:
    """Let the manifests state the size of a file as it is, and other values about it."""
    path = place.path(role)
    stated = {"file_size_in_bytes": path.stat().st_size, **values}
    edit_entries(place, path.name, lambda file: file.update(stated))


def edit_entries(place: Place, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change what the manifests say about the files of a name; their lengths are no longer stated."""

    def changed(row: dict[str, Any]) -> None:
        if row["data_file"]["file_path"].endswith(name):
            change(row["data_file"])

    for path, is_list in avro_files(place):
        if not is_list:
            edit_avro(str(path), changed)
    any_length(place)


def edit_rows(path: Path, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Write a Parquet manifest again with its rows changed."""
    table = pq.ParquetFile(path).read(use_threads=False)
    rows = table.to_pylist()
    change(rows)
    schema = pa.schema([nullable(f) for f in table.schema], table.schema.metadata)
    pq.write_table(pa.Table.from_pylist(rows, schema), path, store_schema=False)


def nullable(field: pa.Field) -> pa.Field:
    kind = pa.struct([nullable(f) for f in field.type]) if pa.types.is_struct(field.type) else field.type
    return pa.field(field.name, kind, True, field.metadata)
