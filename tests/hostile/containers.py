"""Hand-written Avro files, in which every number can be wrong, and edits of what manifests and lists state."""

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

from tests.hostile.honest_tables import DamagedLake
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
            extra = {k: v.encode() for k, v in reader.metadata.items() if not k.startswith("avro.")}
            return cls(json.loads(reader.metadata["avro.schema"]), rows, extra)

    def with_schema(self, schema: Any) -> Container:
        return replace(self, schema=schema)

    @property
    def encoded(self) -> bytes:
        """All records, concatenated."""
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

    def file(self, *blocks: bytes, **header: Any) -> bytes:
        return self.header(**header) + b"".join(blocks)


def block(body: bytes, count: int, size: int | None = None, sync: bytes = SYNC) -> bytes:
    return varint(count) + varint(len(body) if size is None else size) + body + sync


def varint(value: int) -> bytes:
    """Encode a number of any size as an Avro varint."""
    rest, out = (value << 1) ^ (value >> 63) if -(1 << 63) <= value < 1 << 63 else value << 1, bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*out, rest])


def text(data: bytes) -> bytes:
    return varint(len(data)) + data


# --- what metadata states about files -----------------------------------------------------------------------------


def avro_files(lake: DamagedLake) -> Iterable[tuple[Path, bool]]:
    """Yield the readable Avro metadata files, and whether each is a manifest list."""
    for path in sorted((lake.folder / "db/t/metadata").glob("*.avro")):
        with path.open("rb") as stream:
            try:
                names = {f["name"] for f in fastavro.reader(stream).writer_schema["fields"]}
            except Exception:
                continue
        yield path, "manifest_path" in names


def drop_stated_lengths(lake: DamagedLake) -> None:
    """State a length of 1 in lists and roots, so that readers detect the damage inside the files and not by length."""
    for path, is_list in avro_files(lake):
        if is_list:
            edit_avro(str(path), lambda row: row.update(manifest_length=1))
    if lake.version == 4:
        edit_rows(lake.path("list"), lambda rows: [row.update(file_size_in_bytes=1) for row in rows])


def update_stated_values(lake: DamagedLake, role: str, **values: Any) -> None:
    """Set the actual size of a file in the manifests, and other values about it."""
    path = lake.path(role)
    stated = {"file_size_in_bytes": path.stat().st_size, **values}
    edit_entries(lake, path.name, lambda file: file.update(stated))


def edit_entries(lake: DamagedLake, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest entries of the files with a name; lists then state no valid manifest lengths."""

    def changed(row: dict[str, Any]) -> None:
        if row["data_file"]["file_path"].endswith(name):
            change(row["data_file"])

    for path, is_list in avro_files(lake):
        if not is_list:
            edit_avro(str(path), changed)
    drop_stated_lengths(lake)


def edit_rows(path: Path, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Rewrite a Parquet manifest with changed rows."""
    table = pq.ParquetFile(path).read(use_threads=False)
    rows = table.to_pylist()
    change(rows)
    schema = pa.schema([nullable(f) for f in table.schema], table.schema.metadata)
    pq.write_table(pa.Table.from_pylist(rows, schema), path, store_schema=False)


def nullable(field: pa.Field) -> pa.Field:
    kind = pa.struct([nullable(f) for f in field.type]) if pa.types.is_struct(field.type) else field.type
    return pa.field(field.name, kind, True, field.metadata)
