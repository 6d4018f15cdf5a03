"""The partition of each file as a struct, and the table `partitions`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import StructType

from neve.model.metadata import TableMetadata
from neve.run.read.conversions import conversion
from neve.run.read.metadata_columns import partition_column
from neve.run.read.types import ArrowFlavor, arrow_type
from neve.tree.entries import Content, EntryTable
from neve.tree.group_by_spec import deletion_vector_mask

VECTOR_COUNT = "vector_count"
_Ints = np.ndarray[Any, Any]


def partition_array(files: EntryTable, flavor: ArrowFlavor) -> pa.StructArray:
    """Return the union tuple as a struct, as the metadata column `_partition` has it; absent fields are null."""
    kind = partition_column(files.specs).field_type
    fields = kind.fields if isinstance(kind, StructType) else ()
    arrays = []
    for union, field in zip(files.specs.union, fields, strict=True):
        values = files[union.column].combine_chunks()
        convert = conversion(values.type, field.field_type, flavor)
        arrays.append(values if convert is None else convert(values))
    return pa.StructArray.from_arrays(arrays, fields=list(arrow_type(kind, flavor)))


def partitions_table(live: EntryTable, metadata: TableMetadata, flavor: ArrowFlavor) -> pa.Table:
    """Return the live data files of each partition, its deletes and its last change, sorted by spec and tuple."""
    return count_by_partition(live, metadata, flavor).drop_columns([VECTOR_COUNT])


def count_by_partition(live: EntryTable, metadata: TableMetadata, flavor: ArrowFlavor) -> pa.Table:
    """Return the table `partitions`, and how many of the position deletes of a partition are deletion vectors."""
    codes, keys = live.partition_codes()
    content, sizes = live.numpy("content"), live.numpy("file_size_in_bytes")
    rows = live["record_count"].fill_null(0).to_numpy()  # old imports of Avro files did not count

    def sum_of(kind: Content, weights: _Ints) -> pa.Array:
        is_kind = content == kind
        # In whole numbers: `bincount` adds weights as floats.
        sums = np.zeros(len(keys), np.int64)
        np.add.at(sums, codes[is_kind], weights[is_kind])
        return pa.array(sums)

    def count_of(kind: Content) -> pa.Array:
        return pa.array(np.bincount(codes[content == kind], minlength=len(keys)), pa.int32())

    own: dict[str, Any] = {}
    if live.specs.union:
        own = {"partition": partition_array(keys, flavor), "spec_id": keys["spec_id"]}
    is_vector = deletion_vector_mask(live)
    counts = {
        "record_count": sum_of(Content.DATA, rows),
        "file_count": count_of(Content.DATA),
        "total_data_file_size_in_bytes": sum_of(Content.DATA, sizes),
        "position_delete_record_count": sum_of(Content.POSITION_DELETES, rows),
        "position_delete_file_count": count_of(Content.POSITION_DELETES),
        "equality_delete_record_count": sum_of(Content.EQUALITY_DELETES, rows),
        "equality_delete_file_count": count_of(Content.EQUALITY_DELETES),
        VECTOR_COUNT: pa.array(np.bincount(codes[is_vector], minlength=len(keys)), pa.int32()),
    }
    return pa.table({**own, **counts, **_last_changes(live, codes, len(keys), metadata)}).take(_order(keys))


def _order(keys: EntryTable) -> pa.Array:
    typed = [u.column for u in keys.specs.union if not pa.types.is_null(u.arrow_type)]
    return pc.sort_indices(keys.columns, [(name, "ascending") for name in ("spec_id", *typed)])


def _last_changes(live: EntryTable, codes: _Ints, count: int, metadata: TableMetadata) -> dict[str, pa.Array]:
    """Return the newest snapshot that added a file to each partition; null if all of them have expired."""
    snapshots = metadata.lazy_snapshots.rows
    ids = pa.array([row["snapshot-id"] for row in snapshots], pa.int64())
    times = np.array([row["timestamp-ms"] for row in snapshots], np.int64)
    numbers = pc.index_in(live["snapshot_id"], value_set=ids).fill_null(-1).to_numpy()
    is_known = numbers >= 0
    codes, numbers = codes[is_known], numbers[is_known]
    order = np.lexsort((numbers, times[numbers], codes))
    last_rows = order[np.flatnonzero(np.diff(codes[order], append=-1))]
    newest = np.full(count, -1, np.int64)
    newest[codes[last_rows]] = numbers[last_rows]
    chosen = pa.array(newest, mask=newest < 0)
    return {
        "last_updated_at": pa.array(times, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")).take(chosen),
        "last_updated_snapshot_id": ids.take(chosen),
    }
