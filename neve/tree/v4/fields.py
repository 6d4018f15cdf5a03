"""The fields of a tracked-file row, by id.

In memory a row is flat: one column per field, named as below, also for fields of structs. Partition values are the
columns of the union tuple (`p1000`), statistics are `s<field id>.<metric>`, and the ranges of the partition fields of a
leaf are `r<partition column>.<end>`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from neve.io.parquet_by_field_id import IdPath

FORMAT_VERSION = 4
LEGACY_VERSION = 0
"""The format version in the row of a leaf that an older version defines."""

TRACKING, PARTITION, STATISTICS, VECTOR, MANIFEST_INFO = 147, 102, 146, 148, 150
RANGES = 1_000_000_000
"""Not part of the format: the ranges of the partition fields over a leaf, and how many of its rows have a vector.

Readers ignore unknown ids. Fields are `RANGES + 10 * partition field id + end`.
"""
COLUMN_FILE_FIELD_IDS = frozenset({161, 162, 164, 165, 166})
"""Fields of a column file; the format has not settled the id of the list they are in."""


@dataclass(frozen=True, slots=True)
class TrackedField:
    """A field of a row: its column in memory, its ids and name in a file, and its type."""

    column: str
    ids: IdPath
    name: str
    type: pa.DataType
    required: bool = False


def _list_type(element_id: int, kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind, False, {b"PARQUET:field_id": str(element_id).encode()}))


_INT, _LONG, _TEXT, _BYTES = pa.int32(), pa.int64(), pa.string(), pa.binary()

FIXED_FIELDS: tuple[TrackedField, ...] = (
    TrackedField("status", (TRACKING, 0), "status", _INT, True),
    TrackedField("snapshot_id", (TRACKING, 1), "snapshot_id", _LONG),
    TrackedField("sequence_number", (TRACKING, 3), "sequence_number", _LONG),
    TrackedField("file_sequence_number", (TRACKING, 4), "file_sequence_number", _LONG),
    TrackedField("dv_snapshot_id", (TRACKING, 5), "dv_snapshot_id", _LONG),
    TrackedField("first_row_id", (TRACKING, 142), "first_row_id", _LONG),
    TrackedField("deleted_positions", (TRACKING, 6), "deleted_positions", _BYTES),
    TrackedField("replaced_positions", (TRACKING, 7), "replaced_positions", _BYTES),
    TrackedField("content_type", (134,), "content_type", _INT, True),
    TrackedField("format_version", (157,), "format_version", _INT, True),
    TrackedField("location", (100,), "location", _TEXT, True),
    TrackedField("file_format", (101,), "file_format", _TEXT, True),
    TrackedField("record_count", (103,), "record_count", _LONG, True),
    TrackedField("file_size_in_bytes", (104,), "file_size_in_bytes", _LONG, True),
    TrackedField("spec_id", (141,), "spec_id", _INT),
    TrackedField("sort_order_id", (140,), "sort_order_id", _INT),
    TrackedField("vector_location", (VECTOR, 155), "location", _TEXT, True),
    TrackedField("vector_offset", (VECTOR, 144), "offset", _LONG, True),
    TrackedField("vector_size", (VECTOR, 145), "size_in_bytes", _LONG, True),
    TrackedField("vector_cardinality", (VECTOR, 156), "cardinality", _LONG, True),
    TrackedField("vector_key", (VECTOR, 149), "key_metadata", _BYTES),
    TrackedField("added_files", (MANIFEST_INFO, 504), "added_files_count", _INT, True),
    TrackedField("existing_files", (MANIFEST_INFO, 505), "existing_files_count", _INT, True),
    TrackedField("deleted_files", (MANIFEST_INFO, 506), "deleted_files_count", _INT, True),
    TrackedField("replaced_files", (MANIFEST_INFO, 520), "replaced_files_count", _INT, True),
    TrackedField("added_rows", (MANIFEST_INFO, 512), "added_rows_count", _LONG, True),
    TrackedField("existing_rows", (MANIFEST_INFO, 513), "existing_rows_count", _LONG, True),
    TrackedField("deleted_rows", (MANIFEST_INFO, 514), "deleted_rows_count", _LONG, True),
    TrackedField("replaced_rows", (MANIFEST_INFO, 521), "replaced_rows_count", _LONG, True),
    TrackedField("min_sequence_number", (MANIFEST_INFO, 516), "min_sequence_number", _LONG, True),
    TrackedField("hidden", (MANIFEST_INFO, 522), "dv", _BYTES),
    TrackedField("hidden_count", (MANIFEST_INFO, 523), "dv_cardinality", _LONG),
    TrackedField("vectors", (RANGES, RANGES + 1), "vectors", _LONG),
    TrackedField("key_metadata", (131,), "key_metadata", _BYTES),
    TrackedField("split_offsets", (132,), "split_offsets", _list_type(133, _LONG)),
    TrackedField("equality_ids", (135,), "equality_ids", _list_type(136, _INT)),
)

STRUCT_NAMES = {
    TRACKING: "tracking",
    PARTITION: "partition",
    STATISTICS: "content_stats",
    VECTOR: "deletion_vector",
    MANIFEST_INFO: "manifest_info",
    RANGES: "partition_ranges",
}

ONLY_IN_ROOT = frozenset(
    f.column
    for f in FIXED_FIELDS
    if f.ids[0] in (MANIFEST_INFO, RANGES) or f.column in ("deleted_positions", "replaced_positions")
)
"""Columns that only rows of manifests have; leaves do not store them."""


def is_tracked_schema(ids: object) -> bool:
    """Check whether the ids of the top-level columns are those of tracked-file rows, not of older entries."""
    return isinstance(ids, set | frozenset) and {134, TRACKING} <= ids
