"""Copy entries from old manifests to a new one.

Only the status, the snapshot id and the sequence numbers in front of each file change. If the old manifests are encoded
as the new one would be, the bytes of each file are copied verbatim. This is many times cheaper than decoding them, and
keeps fields that this engine does not know. Otherwise they are decoded and encoded again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from neve.io.avro import Projection, decode, encode
from neve.io.files import read_file
from neve.io.parquet_by_field_id import is_parquet
from neve.tree.entries import DETAIL, EntryTable, Manifest
from neve.tree.read import with_detail
from neve.tree.write import ManifestContext, encode_manifest, store_manifest

_ENCODED_FIELDS = frozenset({"data_file"})
_ENCODED_PROJECTION = Projection(fields=frozenset({"data_file"}), encoded_fields=_ENCODED_FIELDS)
_ROW_ID_PROJECTION = Projection(fields=frozenset({"data_file.first_row_id"}))


@dataclass(frozen=True, slots=True)
class _EncodedFiles:
    """The encoded files of a manifest, and the schema they are encoded by."""

    schema: dict[str, Any]
    files: pa.Array


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
    pieces: list[_EncodedFiles] = []
    for ordinal, rows in _rows_by_manifest(entries):
        source = _read_encoded_files(io, sources[ordinal], context, entries, rows)
        if source is None or (pieces and source.schema != pieces[0].schema):
            return None
        pieces.append(replace(source, files=source.files.take(pa.array(entries.numpy("row")[rows]))))
    if not pieces:
        return None
    order = np.concatenate([rows for _, rows in _rows_by_manifest(entries)])
    files = pa.concat_arrays([p.files for p in pieces]).take(pa.array(np.argsort(order)))
    schema = pieces[0].schema
    outer = [f["name"] for f in schema["fields"] if f["name"] != "data_file"]
    columns = [entries[name].cast(pa.int32()) if name == "status" else entries[name] for name in outer]
    batch = pa.Table.from_arrays([*columns, pa.chunked_array([files])], names=[*outer, "data_file"])
    spec_id, is_deletes = sources[0].spec_id, sources[0].is_deletes
    return encode(batch, schema, context.header(spec_id, is_deletes), context.codec, encoded_fields=_ENCODED_FIELDS)


def _rows_by_manifest(entries: EntryTable) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    ordinals = entries.numpy("manifest")
    for ordinal in np.unique(ordinals):
        yield int(ordinal), np.flatnonzero(ordinals == ordinal)


def _read_encoded_files(
    io: FileIO, manifest: Manifest, context: ManifestContext, entries: EntryTable, rows: np.ndarray[Any, Any]
) -> _EncodedFiles | None:
    data = read_file(io, manifest.path)
    if is_parquet(data):
        return None
    batch, header = decode(data, manifest.path, _ENCODED_PROJECTION)
    if header.metadata.get("format-version", b"1") != str(context.format_version).encode():
        return None
    has_row_ids = context.format_version >= 3 and not manifest.is_deletes
    if has_row_ids and not _has_explicit_row_ids(data, manifest, entries, rows):
        return None
    old_names = [f["name"] for f in header.schema["fields"]]
    new_names = [f["name"] for f in context.schemas[manifest.spec_id]["fields"]]
    return _EncodedFiles(header.schema, batch.column("data_file")) if old_names == new_names else None


def _has_explicit_row_ids(data: bytes, manifest: Manifest, entries: EntryTable, rows: np.ndarray[Any, Any]) -> bool:
    """Check whether each entry has its first row id in the file; an inherited one must be written out when copied."""
    batch, _ = decode(data, manifest.path, _ROW_ID_PROJECTION)
    if batch.column("data_file").type.num_fields == 0:
        return False
    stated = batch.column("data_file").field(0).take(pa.array(entries.numpy("row")[rows]))
    assigned = entries.take(rows)["first_row_id"].combine_chunks()
    return bool(pc.all(pc.or_(pc.is_null(assigned), pc.is_valid(stated))).as_py())
