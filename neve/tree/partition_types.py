"""Infer the types of partition fields whose source column is in no schema.

A column may be dropped while files of an old spec are still partitioned by it, and the schemas that had it may be
cleaned up after that. The header of every manifest has the types of its partition tuples.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.types import IcebergType, PrimitiveType, UnknownType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from neve.errors import CorruptFile
from neve.io.avro import read_header
from neve.io.files import read_file
from neve.io.parallel import map_in_threads, reader_count
from neve.io.parquet_by_field_id import IdTable, is_parquet, open_id_table
from neve.model.partition import SourceAndTransform, Specs, source_and_transform
from neve.model.schema_rules import can_promote
from neve.tree.entries import MIXED_SPECS, Manifest


def manifest_reader_count(io: FileIO, manifests: Collection[Manifest]) -> int:
    """Return how many of some manifests to read at once."""
    return reader_count(io, (m.file for m in manifests), sum(m.length for m in manifests))


_ENTRY, _TUPLE = 2, 102  # field ids of the file in an entry, and of its partition
_NEWEST_VERSION = 4  # its promotion rules include those of all older versions


def infer_partition_types(io: FileIO, specs: Specs, manifests: Iterable[Manifest]) -> Specs:
    """Return the specs with the missing types, taken from these manifests; the same specs if none is missing.

    A manifest without a type that it uses is corrupt: its tuples would all look alike.
    """
    untyped = specs.untyped_fields
    sources = [m for m in manifests if m.spec_id in untyped or (m.spec_id == MIXED_SPECS and untyped)]
    threads = manifest_reader_count(io, sources)
    types_by_source = map_in_threads(lambda m: _partition_types_of_manifest(io, m, specs), sources, threads)
    learned: dict[SourceAndTransform, IcebergType] = {}
    for manifest, types in zip(sources, types_by_source, strict=True):
        for key, kind in types.items():
            current = learned.setdefault(key, kind)
            if can_promote(current, kind, _NEWEST_VERSION):
                learned[key] = kind
            elif not can_promote(kind, current, _NEWEST_VERSION):
                expected = f"partition values of type {current}, as in other manifests of the spec"
                raise CorruptFile(manifest.path, expected, str(kind))
    return specs.with_learned_types(learned)


def partition_types_in(table: IdTable, specs: Specs) -> dict[SourceAndTransform, IcebergType]:
    """Return the types in the union tuple of a version 4 file; a file without values of a field does not have it."""
    types = {}
    for field in (f for fields in specs.untyped_fields.values() for f in fields):
        for struct in ((_TUPLE,), (_ENTRY, _TUPLE)):
            if own := table.field((*struct, field.field_id)):
                one = pa.field("one", own.type, metadata={b"PARQUET:field_id": b"1"})
                types[source_and_transform(field)] = pyarrow_to_schema(pa.schema([one])).fields[0].field_type
    return types


def _partition_types_of_manifest(io: FileIO, manifest: Manifest, specs: Specs) -> dict[SourceAndTransform, IcebergType]:
    data = read_file(io, manifest.file)
    if is_parquet(data):
        return partition_types_in(open_id_table(data, manifest.file), specs)
    tuple_fields = _record_fields(read_header(data, manifest.file).schema, "data_file", "partition")
    spec_fields, ids = specs[manifest.spec_id].fields, [f.get("field-id") for f in tuple_fields]
    if tuple_fields and None not in ids and {f.field_id for f in spec_fields} & set(ids):
        by_id = {f["field-id"]: f for f in tuple_fields}
    else:  # early writers wrote no ids: their fields are matched by position
        by_id = {field.field_id: f for field, f in zip(spec_fields, tuple_fields, strict=False)}
    types = {f: _iceberg_type(by_id.get(f.field_id)) for f in specs.untyped_fields[manifest.spec_id]}
    if manifest.may_hold_live_files and None in types.values():
        field = next(f for f, kind in types.items() if kind is None)
        names = sorted(str(f.get("name")) for f in by_id.values())
        expected = f"the type of partition field {field.name!r} of spec {manifest.spec_id}, which is in no schema"
        raise CorruptFile(manifest.path, expected, f"tuples of the fields {names}")
    return {source_and_transform(f): kind for f, kind in types.items() if kind is not None}


def _record_fields(schema: Any, *path: str) -> list[Mapping[str, Any]]:
    """Return the fields of a nested record; none if the schema has something else there."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    valid: list[Mapping[str, Any]] = [f for f in fields if isinstance(f, dict)] if isinstance(fields, list) else []
    if not path:
        return valid
    inner = next((f.get("type") for f in valid if f.get("name") == path[0]), None)
    return _record_fields(inner, *path[1:])


def _iceberg_type(field: Mapping[str, Any] | None) -> IcebergType | None:
    """Return the type of one field: unknown if every value is null, None if it is not in the schema or invalid."""
    if field is None:
        return None
    if field.get("type") in ("null", ["null"]):
        return UnknownType()
    one = {"type": "record", "name": "one", "fields": [{**field, "field-id": 1}]}
    try:
        kind = AvroSchemaConversion().avro_to_iceberg(one).fields[0].field_type
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return kind if isinstance(kind, PrimitiveType) else None
