"""The schemas of manifests and manifest lists, format versions 1 to 3.

One table of fields serves all versions: each field names the versions that have it and those that require it. Some
writers of version 4 tables write such entries to Parquet, with the same field ids: `ParquetEntries` gives them their
Avro names back, so that the reader of Avro manifests can read them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from neve.io.avro import ALL_FIELDS, Projection
from neve.io.parquet_by_field_id import IdTable

V1, V2, V3 = 1, 2, 3
ALL_VERSIONS, SINCE_V2, ONLY_V3 = (V1, V2, V3), (V2, V3), (V3,)
_FILE, _PARTITION = 2, 102  # field ids of the file in an entry, and of its partition


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a manifest or manifest list: the versions that have it, and those that require a value."""

    id: int
    name: str
    type: Any
    versions: tuple[int, ...] = ALL_VERSIONS
    required: tuple[int, ...] = ()

    def in_version(self, version: int) -> dict[str, Any]:
        """Return the field as in the Avro schema of one format version."""
        if version in self.required:
            return {"name": self.name, "field-id": self.id, "type": self.type}
        return {"name": self.name, "field-id": self.id, "type": ["null", self.type], "default": None}


def _map_type(key_id: int, value_id: int, value: str) -> dict[str, Any]:
    pair = [{"name": "key", "type": "int", "field-id": key_id}, {"name": "value", "type": value, "field-id": value_id}]
    items = {"type": "record", "name": f"k{key_id}_v{value_id}", "fields": pair}
    return {"type": "array", "items": items, "logicalType": "map"}


def _list_type(element_id: int, element: Any) -> dict[str, Any]:
    return {"type": "array", "element-id": element_id, "items": element}


def _file_fields(partition: dict[str, Any]) -> tuple[AvroField, ...]:
    return (
        AvroField(134, "content", "int", SINCE_V2, SINCE_V2),
        AvroField(100, "file_path", "string", ALL_VERSIONS, ALL_VERSIONS),
        AvroField(101, "file_format", "string", ALL_VERSIONS, ALL_VERSIONS),
        AvroField(102, "partition", partition, ALL_VERSIONS, ALL_VERSIONS),
        AvroField(103, "record_count", "long", ALL_VERSIONS, ALL_VERSIONS),
        AvroField(104, "file_size_in_bytes", "long", ALL_VERSIONS, ALL_VERSIONS),
        AvroField(105, "block_size_in_bytes", "long", (V1,), (V1,)),
        AvroField(108, "column_sizes", _map_type(117, 118, "long")),
        AvroField(109, "value_counts", _map_type(119, 120, "long")),
        AvroField(110, "null_value_counts", _map_type(121, 122, "long")),
        AvroField(137, "nan_value_counts", _map_type(138, 139, "long")),
        AvroField(125, "lower_bounds", _map_type(126, 127, "bytes")),
        AvroField(128, "upper_bounds", _map_type(129, 130, "bytes")),
        AvroField(131, "key_metadata", "bytes"),
        AvroField(132, "split_offsets", _list_type(133, "long")),
        AvroField(135, "equality_ids", _list_type(136, "int"), SINCE_V2),
        AvroField(140, "sort_order_id", "int"),
        AvroField(142, "first_row_id", "long", ONLY_V3),
        AvroField(143, "referenced_data_file", "string", SINCE_V2),
        AvroField(144, "content_offset", "long", ONLY_V3),
        AvroField(145, "content_size_in_bytes", "long", ONLY_V3),
    )


def _entry_fields(data_file: dict[str, Any]) -> tuple[AvroField, ...]:
    return (
        AvroField(0, "status", "int", ALL_VERSIONS, ALL_VERSIONS),
        AvroField(1, "snapshot_id", "long", ALL_VERSIONS, (V1,)),
        AvroField(3, "sequence_number", "long", SINCE_V2),
        AvroField(4, "file_sequence_number", "long", SINCE_V2),
        AvroField(2, "data_file", data_file, ALL_VERSIONS, ALL_VERSIONS),
    )


_SUMMARY_RECORD = {
    "type": "record",
    "name": "r508",
    "fields": [
        f.in_version(V1)
        for f in (
            AvroField(509, "contains_null", "boolean", ALL_VERSIONS, ALL_VERSIONS),
            AvroField(518, "contains_nan", "boolean"),
            AvroField(510, "lower_bound", "bytes"),
            AvroField(511, "upper_bound", "bytes"),
        )
    ],
}

_LIST_FIELDS = (
    AvroField(500, "manifest_path", "string", ALL_VERSIONS, ALL_VERSIONS),
    AvroField(501, "manifest_length", "long", ALL_VERSIONS, ALL_VERSIONS),
    AvroField(502, "partition_spec_id", "int", ALL_VERSIONS, ALL_VERSIONS),
    AvroField(517, "content", "int", SINCE_V2, SINCE_V2),
    AvroField(515, "sequence_number", "long", SINCE_V2, SINCE_V2),
    AvroField(516, "min_sequence_number", "long", SINCE_V2, SINCE_V2),
    AvroField(503, "added_snapshot_id", "long", ALL_VERSIONS, ALL_VERSIONS),
    AvroField(504, "added_files_count", "int", ALL_VERSIONS, SINCE_V2),
    AvroField(505, "existing_files_count", "int", ALL_VERSIONS, SINCE_V2),
    AvroField(506, "deleted_files_count", "int", ALL_VERSIONS, SINCE_V2),
    AvroField(512, "added_rows_count", "long", ALL_VERSIONS, SINCE_V2),
    AvroField(513, "existing_rows_count", "long", ALL_VERSIONS, SINCE_V2),
    AvroField(514, "deleted_rows_count", "long", ALL_VERSIONS, SINCE_V2),
    AvroField(507, "partitions", _list_type(508, _SUMMARY_RECORD)),
    AvroField(519, "key_metadata", "bytes"),
    AvroField(520, "first_row_id", "long", ONLY_V3),
)


def _record_type(name: str, fields: Iterable[AvroField], version: int) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [f.in_version(version) for f in fields if version in f.versions]}


def manifest_entry_schema(version: int, partition: StructType) -> dict[str, Any]:
    """Return the Avro schema of a manifest whose files have partitions of the given type."""
    tuple_record: Any = AvroSchemaConversion().iceberg_to_avro(Schema(*partition.fields), schema_name="r102")
    for field in tuple_record["fields"]:
        # The source column is in no schema, so its type is unknown. Avro rejects a union with null twice.
        if field["type"] == ["null", "null"]:
            field["type"] = "null"
    data_file = _record_type("r2", _file_fields(tuple_record), version)
    return _record_type("manifest_entry", _entry_fields(data_file), version)


def manifest_list_schema(version: int) -> dict[str, Any]:
    """Return the Avro schema of a manifest list."""
    return _record_type("manifest_file", _LIST_FIELDS, version)


@dataclass(frozen=True, slots=True)
class ParquetEntries:
    """A Parquet manifest with the interface of an Avro file."""

    table: IdTable

    def decode(self, projection: Projection = ALL_FIELDS, backend: Any = None, rows: Any = None) -> pa.RecordBatch:
        """Return the projected fields of all entries, or of the given rows, by their Avro names."""
        entry_names = {f.id: f.name for f in _entry_fields({}) if f.id != _FILE}
        outer = {i: name for i, name in entry_names.items() if _is_projected(projection, name)}
        file_names = {f.id: f.name for f in _file_fields({})}
        inner = {i: name for i, name in file_names.items() if _is_projected(projection, f"data_file.{name}")}
        by_path = self.table.read([*((i,) for i in outer), *((_FILE, i) for i in inner)], rows)
        columns = {name: by_path[(i,)] for i, name in outer.items() if (i,) in by_path}
        files = {name: _as_avro(by_path[_FILE, i], i) for i, name in inner.items() if (_FILE, i) in by_path}
        if files:
            columns["data_file"] = pa.StructArray.from_arrays(list(files.values()), names=list(files))
        elif self.table.has((_FILE,)):
            columns["data_file"] = pa.StructArray.from_buffers(pa.struct([]), self.table.rows, [None])
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _is_projected(projection: Projection, name: str) -> bool:
    return projection.fields is None or not projection.fields.isdisjoint({name, name.split(".", maxsplit=1)[0]})


def _as_avro(values: pa.Array, field_id: int) -> pa.Array:
    """Return a column as the Avro decoder would: maps as lists of pairs, field ids of tuples under the Avro key."""
    if pa.types.is_map(values.type):
        pairs = pa.StructArray.from_arrays([values.keys, values.items], names=["key", "value"])
        return pa.ListArray.from_arrays(values.offsets, pairs, mask=values.is_null() if values.null_count else None)
    if field_id == _PARTITION and pa.types.is_struct(values.type):
        ids = [(f.metadata or {}).get(b"PARQUET:field_id") for f in values.type]
        fields = [f.with_metadata({b"field-id": i}) if i else f for f, i in zip(values.type, ids, strict=True)]
        return pa.StructArray.from_arrays([values.field(i) for i in range(len(fields))], fields=fields)
    return values
