"""Delta tables with deletion vectors, mapped columns and encoded paths, from files and a log written by hand."""

from __future__ import annotations

import json
import struct
import zlib
from base64 import b85decode, b85encode
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from pyroaring import BitMap64

FEATURES = ["deletionVectors", "columnMapping", "timestampNtz"]
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_RFC = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


@dataclass
class PlainDelta:
    """A Delta table that is written by hand: files by pyarrow, and a log of JSON."""

    folder: Path
    fields: list[dict[str, Any]]
    partition_by: tuple[str, ...] = ()
    configuration: dict[str, str] = field(default_factory=dict)
    version: int = 0

    def create(self) -> PlainDelta:
        (self.folder / "_delta_log").mkdir(parents=True)
        self.commit(
            {"protocol": {
                "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": FEATURES, "writerFeatures": FEATURES,
            }},
            self.metadata(),
        )  # fmt: skip
        return self

    def metadata(self) -> dict[str, Any]:
        schema = json.dumps({"type": "struct", "fields": self.fields})
        return {"metaData": {
            "id": str(uuid4()), "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
            "partitionColumns": [*self.partition_by], "configuration": self.configuration, "createdTime": 0,
        }}  # fmt: skip

    def commit(self, *actions: dict[str, Any]) -> None:
        lines = "".join(json.dumps(action) + "\n" for action in actions)
        (self.folder / "_delta_log" / f"{self.version:020}.json").write_text(lines)
        self.version += 1

    def add(
        self, name: str, rows: pa.Table, deleted: Iterable[int] = (), *, int96: bool = False, **partition: str | None
    ) -> dict[str, Any]:
        """Write a file, and return the action that adds it without some rows; `int96`: with times as Spark has them."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path, use_deprecated_int96_timestamps=int96)
        action: dict[str, Any] = {
            "path": quote(name), "partitionValues": partition, "size": path.stat().st_size, "modificationTime": 0,
            "dataChange": True, "stats": json.dumps({"numRecords": rows.num_rows}),
        }  # fmt: skip
        if positions := sorted(deleted):
            action["deletionVector"] = self._vector(positions, in_log=len(positions) < 3)
        return {"add": action}

    def _vector(self, positions: list[int], *, in_log: bool) -> dict[str, Any]:
        bitmap = struct.pack("<I", 1681511377) + BitMap64(positions).serialize()
        if in_log:
            padded = bitmap + b"\0" * (-len(bitmap) % 4)
            text = b85encode(padded).decode().translate(str.maketrans(_RFC, _Z85))
            return {
                "storageType": "i",
                "pathOrInlineDv": text,
                "sizeInBytes": len(bitmap),
                "cardinality": len(positions),
            }
        name = uuid4()
        blob = struct.pack(">I", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))
        (self.folder / f"deletion_vector_{name}.bin").write_bytes(b"\x01" + blob)
        text = b85encode(name.bytes).decode().translate(str.maketrans(_RFC, _Z85))
        assert UUID(bytes=b85decode(text.translate(str.maketrans(_Z85, _RFC)))) == name
        return {
            "storageType": "u", "pathOrInlineDv": text, "offset": 1, "sizeInBytes": len(bitmap),
            "cardinality": len(positions),
        }  # fmt: skip


def column(name: str, kind: Any, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": metadata.pop("nullable", True), "metadata": metadata}


def mapped(name: str, stored: str, number: int, kind: Any, **metadata: Any) -> dict[str, Any]:
    """A column under column mapping: its name, its name in files, and its number."""
    return column(
        name, kind, **{"delta.columnMapping.physicalName": stored, "delta.columnMapping.id": number}, **metadata
    )


def rows_by_delta(folder: Path | str, version: int | None = None) -> Counter[str]:
    """The rows that delta-rs reads."""
    found = QueryBuilder().register("t", DeltaTable(str(folder), version=version)).execute("SELECT * FROM t")
    return Counter(map(repr, pa.table(found).to_pylist()))
