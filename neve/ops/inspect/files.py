"""Tables of files and of manifest entries: `files`, `entries` and those derived from them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema

from neve.ops.inspect.partitions import partition_array
from neve.ops.inspect.readable_metrics import readable_metrics
from neve.run.read.types import ArrowFlavor
from neve.tree.entries import BOUNDS, COUNTS, EntryTable

_COUNTS_MAP, _BOUNDS_MAP = (
    pa.map_(kind.value_type.field("key"), kind.value_type.field("value")) for kind in (COUNTS, BOUNDS)
)
_FILE_COLUMNS: dict[str, pa.DataType | None] = {  # None: the type depends on the table
    "content": pa.int32(),
    "file_path": pa.string(),
    "file_format": pa.string(),
    "spec_id": pa.int32(),
    "partition": None,
    "record_count": pa.int64(),
    "file_size_in_bytes": pa.int64(),
    "column_sizes": _COUNTS_MAP,
    "value_counts": _COUNTS_MAP,
    "null_value_counts": _COUNTS_MAP,
    "nan_value_counts": _COUNTS_MAP,
    "lower_bounds": _BOUNDS_MAP,
    "upper_bounds": _BOUNDS_MAP,
    "key_metadata": pa.binary(),
    "split_offsets": pa.list_(pa.int64()),
    "equality_ids": pa.list_(pa.int32()),
    "sort_order_id": pa.int32(),
    "first_row_id": pa.int64(),
    "referenced_data_file": pa.string(),
    "content_offset": pa.int64(),
    "content_size_in_bytes": pa.int64(),
}
_ENTRY_COLUMNS = {
    "status": pa.int32(),
    "snapshot_id": pa.int64(),
    "sequence_number": pa.int64(),
    "file_sequence_number": pa.int64(),
}


def files_table(files: EntryTable, schema: Schema, flavor: ArrowFlavor) -> pa.Table:
    """Return files with their statistics, also in readable form for the columns of a schema."""
    return _plain_files(files, flavor).append_column("readable_metrics", readable_metrics(files, schema, flavor))


def entries_table(entries: EntryTable, schema: Schema, flavor: ArrowFlavor) -> pa.Table:
    """Return manifest entries; `data_file` has the columns of a file."""
    columns: dict[str, Any] = {name: entries[name].cast(kind) for name, kind in _ENTRY_COLUMNS.items()}
    columns["data_file"] = _plain_files(entries, flavor).to_struct_array()
    columns["readable_metrics"] = readable_metrics(entries, schema, flavor)
    return pa.table(columns)


def _plain_files(files: EntryTable, flavor: ArrowFlavor) -> pa.Table:
    columns: dict[str, Any] = {}
    for name, kind in _FILE_COLUMNS.items():
        if kind is None:
            columns |= {name: partition_array(files, flavor)} if files.specs.union else {}
        elif pa.types.is_map(kind):
            columns[name] = pa.chunked_array([_as_map(chunk, kind) for chunk in files[name].chunks], kind)
        else:
            columns[name] = files[name].cast(kind)
    return pa.table(columns)


def _as_map(pairs: pa.ListArray, kind: pa.MapType) -> pa.MapArray:
    """Return lists of pairs as maps, which have the same memory layout."""
    validity_and_offsets = pairs.buffers()[:2]
    return pa.Array.from_buffers(kind, len(pairs), validity_and_offsets, pairs.null_count, pairs.offset, [pairs.values])
