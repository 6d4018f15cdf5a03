"""Write the files of a metadata tree again with other paths, and with nothing else changed.

Every file keeps its schema, its order of entries and all values, also inherited ones that are null in the file: in Avro
files only the columns with paths and sizes are decoded, and the bytes of the others are copied. The same file and the
same change always give the same bytes.

Rewritten files change their lengths, which entries and lists state. So the order is: delete files, manifests, lists or
roots, metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import UnsupportedFeature
from neve.io.avro import Projection, decode, encode, read_header
from neve.io.avro.codecs import COMPRESSORS
from neve.io.parquet_by_field_id import IdPath, is_parquet, open_id_table, replace_columns
from neve.io.paths import PrefixChange, canonical_path_all, resolve_path, resolve_path_all
from neve.io.untrusted import translate_parse_errors
from neve.model.metadata import TableMetadata, metadata_from_json, serialise_metadata
from neve.model.values import combine_chunks
from neve.tree.entries import Manifest
from neve.tree.v4.fields import is_tracked_schema

PATH_COLUMN_ID = 2147483546
"""The column of a position delete file that names data files."""

_FILE, _LOCATION, _SIZE, _LOWER, _UPPER, _REFERENCE = 2, 100, 104, 125, 128, 143
_VECTOR_LOCATION: IdPath = (148, 155)
_PATH_PROPERTIES = (
    *("write.data.path", "write.metadata.path"),
    *("write.object-storage.path", "write.folder-storage.path"),
)


@dataclass(frozen=True, slots=True)
class RewrittenFile:
    """A delete file, manifest or list that was written again: its old path, and what entries say about it."""

    path: str
    size: int
    path_range: tuple[str, str] | None = None  # the first and last data file that a position delete file names


@dataclass(frozen=True)
class Relocation:
    """A change of paths, and the files below that were already written again with it."""

    change: PrefixChange
    location: str  # of the table, below which version 4 has relative paths
    table_uuid: str | None = None  # the id of the new table; None: that of the old one
    files: pa.Table = field(default_factory=lambda: _files_table([]), repr=False)

    def with_files(self, files: Iterable[RewrittenFile]) -> Relocation:
        """Return the relocation with files that were written again."""
        return replace(self, files=_files_table(list(files)))

    def stated(self, name: str, paths: Any) -> pa.Array:
        """Return a value of the rewritten file at each path; null if the file at a path was not rewritten."""
        rows = pc.index_in(canonical_path_all(paths), value_set=combine_chunks(self.files["path"]))
        return combine_chunks(self.files[name]).take(rows)

    # -- files of the tree --------------------------------------------------------------------------------------------

    def manifest(self, data: bytes, manifest: Manifest) -> bytes:
        """Return a manifest with the new paths of its files; the same bytes if no path of it changes."""
        with translate_parse_errors(manifest.file, "a manifest"):
            if manifest.is_tracked or is_parquet(data):
                return self._id_table(data, manifest.file)
            return self._avro_manifest(data, manifest)

    def list_or_root(self, data: bytes, path: str) -> bytes:
        """Return a manifest list or a root with the new paths; the same bytes if no path of it changes."""
        with translate_parse_errors(path, "a manifest list"):
            if is_parquet(data) or "manifest_path" not in _field_names(read_header(data, path).schema):
                return self._id_table(data, path)
            columns = {"manifest_path", "manifest_length"}
            names = _field_names(read_header(data, path).schema)
            batch, header = decode(data, path, Projection(None, frozenset(names) - columns))
            paths = batch.column("manifest_path")
            new = {
                "manifest_path": self.change.apply_all(paths),
                "manifest_length": pc.coalesce(self.stated("size", paths), batch.column("manifest_length")),
            }
            return _encode_like(header, _with_columns(batch, new), frozenset(names) - columns)

    def metadata(self, metadata: TableMetadata, path: str) -> bytes:
        """Return the bytes of a metadata file with the new location and paths; `path` is where it was."""
        document = json.loads(metadata.model_dump_json())
        document["location"] = self.change.apply(document["location"])
        for row in document.get("snapshots") or ():
            self._change_values(row, "manifest-list", "root-manifest")
            if row.get("manifests"):
                row["manifests"] = [self.change.apply(each) for each in row["manifests"]]
        for row in document.get("metadata-log") or ():
            self._change_values(row, "metadata-file")
        for name in ("statistics", "partition-statistics"):
            for row in document.get(name) or ():
                self._change_values(row, "statistics-path")
        self._change_values(document.get("properties") or {}, *_PATH_PROPERTIES)
        if self.table_uuid is not None:
            document["table-uuid"] = self.table_uuid
        return serialise_metadata(metadata_from_json(document, path), path)

    def _change_values(self, row: dict[str, Any], *keys: str) -> None:
        row.update({key: self.change.apply(row[key]) for key in keys if row.get(key)})

    # -- manifests of versions 1 to 3 ---------------------------------------------------------------------------------

    def _avro_manifest(self, data: bytes, manifest: Manifest) -> bytes:
        schema = read_header(data, manifest.file).schema
        file_names = _field_names(next(f for f in schema["fields"] if f["name"] == "data_file")["type"])
        changed = {"file_path", "referenced_data_file"}
        changed |= {"file_size_in_bytes", "lower_bounds", "upper_bounds"} if manifest.is_deletes else set()
        encoded = frozenset(_field_names(schema)) - {"data_file"}
        encoded |= {f"data_file.{name}" for name in file_names if name not in changed}
        batch, header = decode(data, manifest.file, Projection(None, encoded))
        files = batch.column("data_file")
        columns = {f.name: files.field(i) for i, f in enumerate(files.type)}
        columns |= self._new_columns({name: columns[name] for name in changed if name in columns})
        new_files = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
        return _encode_like(header, _with_columns(batch, {"data_file": new_files}), encoded)

    def _new_columns(self, columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
        """Return the columns of entries with new paths, and with the sizes and path bounds of rewritten files."""
        paths = columns["file_path"]
        new: dict[str, pa.Array] = {
            name: self.change.apply_all(columns[name])
            for name in ("file_path", "referenced_data_file")
            if name in columns
        }
        if "file_size_in_bytes" in columns:
            sizes = columns["file_size_in_bytes"]
            new["file_size_in_bytes"] = pc.coalesce(self.stated("size", paths), sizes)
        for name, end in (("lower_bounds", "first"), ("upper_bounds", "last")):
            if name in columns:
                new[name] = _with_path_bounds(columns[name], self.stated(end, paths), self.change)
        return new

    # -- leaves and roots of version 4, and manifests in Parquet ------------------------------------------------------

    def _id_table(self, data: bytes, path: str) -> bytes:
        """Return a file whose columns have ids with new paths; relative paths and the file itself may stay."""
        table = open_id_table(data, path)
        parent: IdPath = () if is_tracked_schema(set(table.child_ids(()))) else (_FILE,)
        names = {
            (*parent, _LOCATION): "file_path",
            (*parent, _SIZE): "file_size_in_bytes",
            (*parent, _REFERENCE): "referenced_data_file",
        }
        if parent:
            names |= {(*parent, _LOWER): "lower_bounds", (*parent, _UPPER): "upper_bounds"}
        old = {p: _as_text(column) for p, column in table.read([*names, _VECTOR_LOCATION]).items()}
        columns = {names[p]: column for p, column in old.items() if p in names}
        if not parent:  # paths that are relative in the file
            columns["file_path"] = resolve_path_all(self.location, columns["file_path"])
        by_name = self._new_columns(columns)
        by_name["file_path"] = self.change.apply_all(old[*parent, _LOCATION])
        new = {p: by_name[names[p]] for p in old if p in names}
        if _VECTOR_LOCATION in old:
            new[_VECTOR_LOCATION] = self.change.apply_all(old[_VECTOR_LOCATION])
        changed = {p: column for p, column in new.items() if not column.equals(old[p])}
        if not changed:
            return data
        if not is_parquet(data):
            raise UnsupportedFeature(f"Cannot change paths in {path}: it is a version 4 manifest in Avro.")
        return replace_columns(data, path, changed)


def _files_table(files: Sequence[RewrittenFile]) -> pa.Table:
    ranges = [f.path_range or (None, None) for f in files]
    return pa.table(
        {
            "path": canonical_path_all(pa.array([f.path for f in files], pa.string())),
            "size": pa.array([f.size for f in files], pa.int64()),
            "first": pa.array([first for first, _ in ranges], pa.string()),
            "last": pa.array([last for _, last in ranges], pa.string()),
        }
    )


def _as_text(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _field_names(record: Any) -> list[str]:
    return [part["name"] for part in record["fields"]]


def _with_columns(batch: pa.RecordBatch, new: dict[str, pa.Array]) -> pa.RecordBatch:
    arrays = [new.get(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _encode_like(header: Any, batch: pa.RecordBatch, encoded: frozenset[str]) -> bytes:
    codec = header.codec if header.codec in COMPRESSORS else "deflate"
    return encode(batch, header.schema, header.metadata, codec, encoded, sync=header.sync)


def _with_path_bounds(bounds: pa.Array, exact: pa.Array, change: PrefixChange) -> pa.Array:
    """Return bounds with those of the path column replaced: by exact ones where known, else by their new paths.

    A bound may be cut off, but it is still below the old folder, or else unknown files have it.
    """
    offsets = np.asarray(bounds.offsets)
    start, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    if pa.types.is_map(bounds.type):
        keys, values = bounds.keys.slice(start, count), bounds.items.slice(start, count)
    else:
        keys, values = (bounds.values.field(n).slice(start, count) for n in ("key", "value"))
    is_path = pc.equal(keys, PATH_COLUMN_ID)
    if not pc.any(is_path).as_py():
        return bounds
    rows = np.repeat(np.arange(len(bounds)), np.diff(offsets))[np.asarray(is_path)]
    moved = change.apply_all(values.filter(is_path).cast(pa.string()))
    new_values = pc.replace_with_mask(values, is_path, pc.coalesce(exact.take(pa.array(rows)), moved).cast(pa.binary()))
    shifted = pa.array(offsets - start, pa.int32())
    is_null = bounds.is_null() if bounds.null_count else None
    if pa.types.is_map(bounds.type):
        return pa.MapArray.from_arrays(shifted, keys, new_values, bounds.type, mask=is_null)
    items = pa.StructArray.from_arrays([keys, new_values], fields=list(bounds.type.value_type))
    return pa.ListArray.from_arrays(shifted, items, bounds.type, mask=is_null)


def may_have_relative_paths(metadata: TableMetadata) -> bool:
    """Return whether paths in a tree may be relative to the location of the table."""
    return metadata.format_version >= 4


def full_root_paths(metadata: TableMetadata, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths of manifest lists or roots in full; those of version 4 may be relative to the table."""
    return tuple(resolve_path(metadata.location, p) if may_have_relative_paths(metadata) else p for p in paths)
