"""Write entries to Avro manifests, and manifests to a manifest list.

A manifest has files of one kind (data or deletes) and one partition spec; mixed entries are split. The order is fixed:
data before deletes, specs ascending, so two runs over the same files write the same manifests.

Entries of old manifests are copied to new ones: only the status, the snapshot id and the sequence numbers in front of
each file change. If the old manifests are encoded as the new one would be, the bytes of each file are copied verbatim.
This is many times cheaper than decoding them, and keeps fields that this engine does not know. Otherwise they are
decoded and encoded again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import NestedField, PrimitiveType

from neve.errors import TableError, UserError
from neve.io.avro import Projection, decode, encode
from neve.io.files import read_file, write_new_file
from neve.io.parquet_by_field_id import is_parquet
from neve.model.partition import Specs, value_arrow_type
from neve.model.pyiceberg_private import fields_by_id
from neve.model.values import combine_chunks
from neve.tree.checks import LIST_TYPES
from neve.tree.entries import DETAIL, Content, EntryTable, FieldSummary, Manifest, Status, count_by_status
from neve.tree.entry_schemas import V3, manifest_entry_schema, manifest_list_schema
from neve.tree.read import with_detail

UNASSIGNED = -1
"""A sequence number that the commit assigns when it writes the manifest list."""

_V1_BLOCK_SIZE = 64 << 20  # v1 requires the field; readers ignore it
_ENCODED_FIELDS = frozenset({"data_file"})
_ENCODED_PROJECTION = Projection(fields=frozenset({"data_file"}), encoded_fields=_ENCODED_FIELDS)
_ROW_ID_PROJECTION = Projection(fields=frozenset({"data_file.first_row_id"}))


@dataclass(frozen=True)
class ManifestContext:
    """What the manifests of one commit share: the table, the snapshot, and where they are written."""

    metadata: TableMetadata
    specs: Specs
    snapshot_id: int
    new_path: Callable[[], str]
    target_bytes: int = 8 << 20
    new_leaf_path: Callable[[], str] | None = None  # of leaves of tracked files; None: as of all manifests
    inline_files: int = 0  # the most new files of a commit that are put into the root itself; 0: none
    inline_rows: int = 0  # the most rows of files that the root may have before they move to a leaf
    hides_rows: bool = False  # the root hides removed rows of leaves; False: leaves are rewritten

    @property
    def format_version(self) -> int:
        """The version that defines the Avro manifests of the table; version 4 defines none of its own."""
        return min(int(self.metadata.format_version), V3)

    @cached_property
    def schemas(self) -> dict[int, dict[str, Any]]:
        """The Avro schema of a manifest of each spec."""
        return {s: manifest_entry_schema(self.format_version, self.specs.partition_type(s)) for s in self.specs.by_id}

    def header(self, spec_id: int, is_deletes: bool) -> dict[str, bytes]:
        """Return the key-value pairs in the header of a manifest."""
        # Readers get the partition types from the schema with the most source columns of the spec: the newest of them.
        sources = [f.source_id for f in self.specs[spec_id].fields]
        schema = max(self.specs.schemas, key=lambda s: sum(i in fields_by_id(s) for i in sources))
        fields = [f.model_dump(by_alias=True, mode="json") for f in self.specs[spec_id].fields]
        pairs = {
            "schema": schema.model_dump_json(),
            "schema-id": str(schema.schema_id),
            "partition-spec": json.dumps(fields),
            "partition-spec-id": str(spec_id),
            "format-version": str(self.format_version),
            **({"content": "deletes" if is_deletes else "data"} if self.format_version > 1 else {}),
        }
        return {key: value.encode() for key, value in pairs.items()}


@dataclass(frozen=True, slots=True)
class ManifestListHeader:
    """The header of the file that lists the manifests of a snapshot."""

    snapshot_id: int
    parent_snapshot_id: int | None
    sequence_number: int
    first_row_id: int | None = None


def write_manifests(io: FileIO, entries: EntryTable, context: ManifestContext) -> list[Manifest]:
    """Write entries to manifests, one or more per kind and spec, and return their rows for the manifest list."""
    if not len(entries):
        return []
    context.specs.refuse_unknown_specs(entries.spec_ids(), "the files to write")
    data, deletes = (Content.DATA,), (Content.POSITION_DELETES, Content.EQUALITY_DELETES)
    kinds = [files for contents in (data, deletes) if len(files := entries.of_content(*contents))]
    manifests: list[Manifest] = []
    for group in (group for files in kinds for _, group in files.by_spec()):
        encoded = encode_manifest(group, context)
        pieces = min(len(group), -(-len(encoded) // max(context.target_bytes, 1)))
        if pieces <= 1 or len(encoded) < context.target_bytes * 5 // 4:
            manifests.append(store_manifest(io, encoded, group, context))
            continue
        for rows in np.array_split(np.arange(len(group)), pieces):
            piece = group.take(rows)
            manifests.append(store_manifest(io, encode_manifest(piece, context), piece, context))
    return manifests


def store_manifest(io: FileIO, data: bytes, entries: EntryTable, context: ManifestContext) -> Manifest:
    """Store an encoded manifest and describe it as a row of a manifest list."""
    path, spec_id = context.new_path(), _only_spec(entries)
    write_new_file(io, path, data)
    live_numbers = entries["sequence_number"].filter(pa.array(entries.numpy("status") != Status.DELETED))
    oldest = pc.min(live_numbers).as_py()
    fields = zip(entries.specs.columns(spec_id), entries.specs.partition_type(spec_id).fields, strict=True)
    return Manifest(
        path=path,
        length=len(data),
        spec_id=spec_id,
        is_deletes=bool(entries["content"][0].as_py()),
        sequence_number=UNASSIGNED,
        min_sequence_number=UNASSIGNED if oldest is None else oldest,
        added_snapshot_id=context.snapshot_id,
        **count_by_status(entries.columns),
        partitions=tuple(_field_summary(entries[column], field) for column, field in fields),
    )


def encode_manifest(entries: EntryTable, context: ManifestContext) -> bytes:
    """Encode entries of one kind and one spec as a manifest."""
    spec_id, is_deletes = _only_spec(entries), bool(entries["content"][0].as_py())
    schema = context.schemas[spec_id]
    entries = entries.with_columns(snapshot_id=pc.fill_null(entries["snapshot_id"], context.snapshot_id))
    file_fields = next(f for f in schema["fields"] if f["name"] == "data_file")["type"]["fields"]
    arrays = [_file_column(field, entries, spec_id) for field in file_fields]
    files = pa.StructArray.from_arrays(arrays, names=[f["name"] for f in file_fields])
    return _encode_entries(entries, files, schema, context.header(spec_id, is_deletes))


def _encode_entries(
    entries: EntryTable,
    files: pa.Array,
    schema: dict[str, Any],
    header: dict[str, bytes],
    encoded_fields: frozenset[str] = frozenset(),
) -> bytes:
    outer = [f["name"] for f in schema["fields"] if f["name"] != "data_file"]
    columns = [combine_chunks(entries[name].cast(pa.int32()) if name == "status" else entries[name]) for name in outer]
    batch = pa.RecordBatch.from_arrays([*columns, files], names=[*outer, "data_file"])
    return encode(batch, schema, header, encoded_fields=encoded_fields)


def _only_spec(entries: EntryTable) -> int:
    ids = entries.spec_ids()
    if len(ids) != 1:
        raise TableError(f"A manifest holds files of one partition spec, but these are of specs {ids}.")
    return ids[0]


def _file_column(field: dict[str, Any], entries: EntryTable, spec_id: int) -> pa.Array:
    name, rows, specs = field["name"], len(entries), entries.specs
    if name == "partition":
        if not (names := [f["name"] for f in field["type"]["fields"]]):
            return pa.StructArray.from_buffers(pa.struct([]), rows, [None])
        columns = [
            # A dropped field has nulls, of the type that its spec has now.
            pa.nulls(rows, value_arrow_type(specs.result_type(part)))
            if isinstance(part.transform, VoidTransform)
            else combine_chunks(entries[column])
            for part, column in zip(specs[spec_id].fields, specs.columns(spec_id), strict=True)
        ]
        return pa.StructArray.from_arrays(columns, names=names)
    if name == "block_size_in_bytes":
        return pa.repeat(pa.scalar(_V1_BLOCK_SIZE, pa.int64()), rows)
    if name in DETAIL.names and not entries.has(name):
        return pa.nulls(rows, DETAIL.field(name).type)
    column = combine_chunks(entries[name])
    if name == "file_format":
        return column.cast(pa.string())
    return column.cast(pa.int32()) if name == "content" else column


def _field_summary(column: pa.ChunkedArray, field: NestedField) -> FieldSummary:
    contains_nan, *ends = value_range(column)
    lower, upper = (_single_value(end, field) for end in ends)
    return FieldSummary(column.null_count > 0, contains_nan or False, lower, upper)


def value_range(column: pa.ChunkedArray) -> tuple[bool | None, pa.Scalar, pa.Scalar]:
    """Return whether a column has NaNs, None if its type has none, and the lowest and highest of its other values."""
    values, contains_nan = column.drop_null(), None
    if pa.types.is_floating(column.type):
        is_nan = pc.is_nan(values)
        values, contains_nan = values.filter(pc.invert(is_nan)), bool(pc.any(is_nan).as_py())
    ends = pc.min_max(values)
    return contains_nan, ends["min"], ends["max"]


def _single_value(value: pa.Scalar, field: NestedField) -> bytes | None:
    if not value.is_valid:
        return None
    if pa.types.is_date32(value.type):
        value = value.cast(pa.int32())
    elif pa.types.is_temporal(value.type):
        value = value.cast(pa.int64())
    try:
        return to_bytes(cast(PrimitiveType, field.field_type), value.as_py())
    except ValueError as e:  # a truncated decimal may have one digit more than its column
        raise UserError(
            f"Partition value {value.as_py()} does not fit {field.name!r}, which is of type {field.field_type}. "
            "Change the value, or the partitioning."
        ) from e


def copy_entries(
    io: FileIO, entries: EntryTable, sources: Sequence[Manifest], context: ManifestContext
) -> list[Manifest]:
    """Write entries that were read from `sources` to a new manifest, with their present status and numbers.

    `entries["manifest"]` is the ordinal in `sources` and `entries["row"]` the position there. All entries are of one
    kind and one spec. Without entries no manifest is written.
    """
    if not len(entries):
        return []
    data = _copy_encoded_files(io, entries, sources, context)
    if data is None:
        entries = with_detail(io, entries, sources, DETAIL.names)
        data = encode_manifest(entries, context)
    return [store_manifest(io, data, entries, context)]


def _copy_encoded_files(
    io: FileIO, entries: EntryTable, sources: Sequence[Manifest], context: ManifestContext
) -> bytes | None:
    """Return the bytes of the new manifest, or None if the old ones are encoded in another way."""
    ordinals, row_numbers = entries.numpy("manifest"), entries.numpy("row")
    schemas: list[dict[str, Any]] = []
    pieces, order = [], []
    for ordinal in np.unique(ordinals):
        rows = np.flatnonzero(ordinals == ordinal)
        source = _read_encoded_files(io, sources[int(ordinal)], context, entries, rows)
        if source is None or (schemas and source[0] != schemas[0]):
            return None
        schemas.append(source[0])
        pieces.append(source[1].take(pa.array(row_numbers[rows])))
        order.append(rows)
    files = pa.concat_arrays(pieces).take(pa.array(np.argsort(np.concatenate(order))))
    header = context.header(sources[0].spec_id, sources[0].is_deletes)
    return _encode_entries(entries, files, schemas[0], header, _ENCODED_FIELDS)


def _read_encoded_files(
    io: FileIO, manifest: Manifest, context: ManifestContext, entries: EntryTable, rows: np.ndarray[Any, Any]
) -> tuple[dict[str, Any], pa.Array] | None:
    """Return the encoded files of a manifest and the schema they are encoded by; None if they cannot be copied."""
    data = read_file(io, manifest.path)
    if is_parquet(data):
        return None
    batch, header = decode(data, manifest.path, _ENCODED_PROJECTION)
    if header.metadata.get("format-version", b"1") != str(context.format_version).encode():
        return None
    if context.format_version >= 3 and not manifest.is_deletes:
        # Each entry must have its first row id in the file: an inherited one must be written out when copied.
        files = decode(data, manifest.path, _ROW_ID_PROJECTION)[0].column("data_file")
        if files.type.num_fields == 0:
            return None
        stated = files.field(0).take(pa.array(entries.numpy("row")[rows]))
        assigned = entries.take(rows)["first_row_id"].combine_chunks()
        if not pc.all(pc.or_(pc.is_null(assigned), pc.is_valid(stated))).as_py():
            return None
    old_names = [f["name"] for f in header.schema["fields"]]
    new_names = [f["name"] for f in context.schemas[manifest.spec_id]["fields"]]
    return (header.schema, batch.column("data_file")) if old_names == new_names else None


def write_manifest_list(
    io: FileIO, path: str, manifests: Sequence[Manifest], header: ManifestListHeader, format_version: int
) -> None:
    """Write the manifest list of a snapshot; manifests of this commit get the snapshot's sequence number."""
    schema, number, parent_id = manifest_list_schema(format_version), header.sequence_number, header.parent_snapshot_id
    pairs = {
        "snapshot-id": str(header.snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "format-version": str(format_version),
        **({"sequence-number": str(number)} if format_version > 1 else {}),
        **({"first-row-id": str(header.first_row_id)} if header.first_row_id is not None else {}),
    }
    numbered = list(manifests)
    for at, manifest in enumerate(manifests):
        if manifest.sequence_number == UNASSIGNED:
            oldest = number if manifest.min_sequence_number == UNASSIGNED else manifest.min_sequence_number
            numbered[at] = replace(manifest, sequence_number=number, min_sequence_number=oldest)
    columns: dict[str, pa.Array] = {}
    for name in (f["name"] for f in schema["fields"]):
        values = [getattr(m, _LIST_ATTRIBUTES.get(name, name.removesuffix("_count"))) for m in numbered]
        columns[name] = pa.array(values, _LIST_TYPES.get(name, pa.int64()))
    batch = pa.RecordBatch.from_pydict(columns)
    write_new_file(io, path, encode(batch, schema, {k: v.encode() for k, v in pairs.items()}))


SUMMARY_TYPES = (pa.bool_(), pa.bool_(), pa.binary(), pa.binary())
_SUMMARIES = pa.list_(pa.struct(list(zip(FieldSummary._fields, SUMMARY_TYPES, strict=True))))
_LIST_TYPES = LIST_TYPES | {"partitions": _SUMMARIES, "content": pa.bool_()}  # `is_deletes`, which is encoded as 0 or 1

_LIST_ATTRIBUTES = {  # the attributes of a manifest that the format names otherwise; counts end in `_count` there
    "manifest_path": "path",
    "manifest_length": "length",
    "partition_spec_id": "spec_id",
    "content": "is_deletes",
}
