"""Manifests and manifest lists that other engines wrote, read as PyIceberg and fastavro read them."""

from __future__ import annotations

import datetime
import io
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import MANIFEST_ENTRY_SCHEMAS, MANIFEST_LIST_FILE_SCHEMAS
from pyiceberg.types import ListType, MapType, StructType

from neve.errors import UnsupportedFeature
from neve.io.avro import ALL_FIELDS, Projection, decode, encode

FIXTURES = Path(__file__).resolve().parents[4] / "shared" / "fixtures"
FEWEST = 50  # files that must be found where there are fixtures at all

pytestmark = pytest.mark.skipif(not FIXTURES.is_dir(), reason=f"no fixtures at {FIXTURES}")


@cache
def metadata_files() -> tuple[tuple[Path, bytes], ...]:
    found = [
        (p, p.read_bytes()) for p in sorted(FIXTURES.rglob("metadata/*.avro")) + sorted(FIXTURES.glob("rust_*/*.avro"))
    ]
    return tuple((path, data) for path, data in found if data[:4] != b"AGS1")


def is_manifest(batch: pa.RecordBatch) -> bool:
    return "data_file" in batch.schema.names


def naive(value: Any) -> Any:
    """Without time zones: fastavro takes every timestamp for UTC, Iceberg tells them apart."""
    match value:
        case dict():
            return {k: naive(v) for k, v in value.items()}
        case list():
            return [naive(v) for v in value]
        case datetime.datetime():
            return value.replace(tzinfo=None)
        case _:
            return value


def test_golden_files_are_there() -> None:
    kinds = [is_manifest(decode(data, str(path))[0]) for path, data in metadata_files()]
    assert kinds.count(True) >= FEWEST // 2
    assert kinds.count(False) >= FEWEST // 2


def test_golden_files_hold_what_fastavro_finds() -> None:
    for path, data in metadata_files():
        batch, header = decode(data, str(path))
        batch.validate(full=True)
        reader = fastavro.reader(io.BytesIO(data))
        assert naive(batch.to_pylist()) == naive(list(reader)), path
        assert header.codec == reader.codec


def test_golden_files_hold_what_pyiceberg_finds_by_field_id() -> None:
    for path, data in metadata_files():
        batch, _ = decode(data, str(path))
        schema = MANIFEST_ENTRY_SCHEMAS[3] if is_manifest(batch) else MANIFEST_LIST_FILE_SCHEMAS[3]
        with AvroFile[Any](PyArrowFileIO().new_input(str(path)), schema) as reader:
            theirs = [by_id(schema.as_struct(), each) for each in reader]
        ours = [ours_by_id(pa.struct(batch.schema), row) for row in batch.to_pylist()]
        assert [shared(m, y) for m, y in zip(ours, theirs, strict=True)] == [
            shared(y, m) for m, y in zip(ours, theirs, strict=True)
        ], path


def by_id(type_: Any, value: Any) -> Any:
    if value is None:
        return None
    match type_:
        case StructType():
            pairs = zip(type_.fields, (value[i] for i in range(len(type_.fields))), strict=True)
            return {f.field_id: by_id(f.field_type, v) for f, v in pairs}
        case MapType():
            return sorted(value.items())
        case ListType():
            return [by_id(type_.element_type, item) for item in value]
        case _:
            return value


def ours_by_id(type_: pa.DataType, value: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {int(f.metadata[b"field-id"]): ours_by_id(f.type, value[f.name]) for f in type_ if f.name != "partition"}
    if pa.types.is_list(type_) and pa.types.is_struct(type_.value_type) and type_.value_type.names == ["key", "value"]:
        return sorted((item["key"], item["value"]) for item in value)
    if pa.types.is_list(type_):
        return [ours_by_id(type_.value_type, item) for item in value]
    return value


def shared(one: Any, other: Any) -> Any:
    """The first value with only those ids that the other has too: versions differ in their fields."""
    match one, other:
        case dict(), dict():
            return {k: shared(v, other[k]) for k, v in one.items() if k in other}
        case list(), list() if len(one) == len(other):
            return [shared(a, b) for a, b in zip(one, other, strict=True)]
        case _:
            return one


def test_golden_files_survive_being_written_again() -> None:
    for path, data in metadata_files():
        batch, header = decode(data, str(path))
        own = {k: v for k, v in header.metadata.items() if not k.startswith("avro.")}
        written = encode(batch, header.schema, own)
        again, header_again = decode(written, str(path))
        assert again.equals(batch, check_metadata=True), path
        assert header_again.schema == header.schema
        assert dict(header_again.metadata).items() >= own.items()
        assert list(fastavro.reader(io.BytesIO(written))) == list(fastavro.reader(io.BytesIO(data))), path


def test_entries_are_carried_over_with_their_data_file_untouched() -> None:
    raw = frozenset({"data_file"})
    for path, data in metadata_files():
        batch, header = decode(data, str(path), Projection(None, raw))
        if not is_manifest(batch):
            continue
        existing = batch.set_column(0, batch.schema.field("status"), pa.array([0] * len(batch), pa.int32()))
        written = encode(existing, header.schema, {}, "deflate", raw)
        before, after = list(fastavro.reader(io.BytesIO(data))), list(fastavro.reader(io.BytesIO(written)))
        assert after == [{**entry, "status": 0} for entry in before]


def test_a_planning_projection_gives_the_same_columns_as_reading_everything() -> None:
    wanted = frozenset({"status", "data_file.file_path", "data_file.partition", "data_file.record_count"})
    for path, data in metadata_files():
        full, _ = decode(data, str(path), ALL_FIELDS)
        if not is_manifest(full):
            continue
        some, _ = decode(data, str(path), Projection(wanted))
        assert some.schema.names == ["status", "data_file"]
        files, chosen = full.column("data_file"), some.column("data_file")
        assert set(chosen.type.names) == {"file_path", "partition", "record_count"}
        assert all(chosen.field(name).equals(files.field(name)) for name in chosen.type.names)


def test_an_encrypted_list_is_refused_as_such() -> None:
    for path in FIXTURES.glob("rust_manifest_lists/*encrypted*.avro"):
        with pytest.raises(UnsupportedFeature, match="encrypted"):
            decode(path.read_bytes(), str(path))
