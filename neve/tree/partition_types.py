"""The types of partition fields that no schema knows any more, learned from the manifests that hold their values.

A column may be dropped while files of an old spec still lie in its partitions, and the schemas that knew it may be
cleaned up after that. Every manifest says in its header what its partition tuples are made of.

How many manifests are read at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.partitioning import PartitionField
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
    """How many of some manifests are worth reading at once."""
    return reader_count(io, (m.file for m in manifests), sum(m.length for m in manifests))


_ENTRY, _TUPLE = 2, 102  # field ids of the file in an entry, and of its partition
_NEWEST_VERSION = 4  # a value that was promoted was promoted under the rules of its time


def infer_partition_types(io: FileIO, specs: Specs, manifests: Iterable[Manifest]) -> Specs:
    """The specs with the types that these manifests tell; the same when every type is known.

    A manifest that does not tell a type it uses is corrupt: its tuples would all look alike.
    """
    telling = [
        m for m in manifests if m.spec_id in specs.untyped_fields or (m.spec_id == MIXED_SPECS and specs.untyped_fields)
    ]
    learned: dict[SourceAndTransform, IcebergType] = {}
    threads = manifest_reader_count(io, telling)
    for manifest, told in zip(
        telling, map_in_threads(lambda m: _partition_types_of_manifest(io, m, specs), telling, threads), strict=True
    ):
        for key, kind in told.items():
            learned[key] = _wider_type(learned.get(key, kind), kind, manifest)
    return specs.with_learned_types(learned)


def partition_types_in(table: IdTable, specs: Specs) -> dict[SourceAndTransform, IcebergType]:
    """The types that the union tuple of a version 4 file tells; a file without values of a field leaves it out."""
    found = {}
    for field in (f for fields in specs.untyped_fields.values() for f in fields):
        for struct in ((_TUPLE,), (_ENTRY, _TUPLE)):
            if own := table.field((*struct, field.field_id)):
                one = pa.field("one", own.type, metadata={b"PARQUET:field_id": b"1"})
                found[source_and_transform(field)] = pyarrow_to_schema(pa.schema([one])).fields[0].field_type
    return found


def _partition_types_of_manifest(io: FileIO, manifest: Manifest, specs: Specs) -> dict[SourceAndTransform, IcebergType]:
    data = read_file(io, manifest.file)
    if is_parquet(data):
        return partition_types_in(open_id_table(data, manifest.file), specs)
    header = read_header(data, manifest.file)
    told = _fields_by_id(_record_fields(header.schema, "data_file", "partition"), specs[manifest.spec_id].fields)
    found = {f: _iceberg_type(told.get(f.field_id)) for f in specs.untyped_fields[manifest.spec_id]}
    if manifest.may_hold_live_files and None in found.values():
        field = next(f for f, kind in found.items() if kind is None)
        names = sorted(str(f.get("name")) for f in told.values())
        expected = f"the type of partition field {field.name!r} of spec {manifest.spec_id}, which no schema knows"
        raise CorruptFile(manifest.path, expected, f"tuples of the fields {names}")
    return {source_and_transform(f): kind for f, kind in found.items() if kind is not None}


def _record_fields(schema: Any, *path: str) -> list[Mapping[str, Any]]:
    """The fields of a record inside a record; none where the schema has something else."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    known: list[Mapping[str, Any]] = [f for f in fields if isinstance(f, dict)] if isinstance(fields, list) else []
    if not path:
        return known
    inner = next((f.get("type") for f in known if f.get("name") == path[0]), None)
    return _record_fields(inner, *path[1:])


def _fields_by_id(
    tuple_fields: list[Mapping[str, Any]], spec_fields: Iterable[PartitionField]
) -> dict[int, Mapping[str, Any]]:
    """The fields of a tuple by id; those from before field ids by position."""
    ids = [f.get("field-id") for f in tuple_fields]
    if tuple_fields and None not in ids and {f.field_id for f in spec_fields} & set(ids):
        return {f["field-id"]: f for f in tuple_fields}
    return {field.field_id: f for field, f in zip(spec_fields, tuple_fields, strict=False)}


def _iceberg_type(field: Mapping[str, Any] | None) -> IcebergType | None:
    """The type of one field; unknown where every value is null, None where it cannot be told."""
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


def _wider_type(current: IcebergType, kind: IcebergType, manifest: Manifest) -> IcebergType:
    """Of two types one column had at different times, the later."""
    if can_promote(current, kind, _NEWEST_VERSION):
        return kind
    if can_promote(kind, current, _NEWEST_VERSION):
        return current
    raise CorruptFile(
        manifest.path, f"partition values of type {current}, as in other manifests of the spec", str(kind)
    )
