"""The names of the metadata tables of a table: those of Iceberg, and `specs` and `tree`, which are our own."""

from __future__ import annotations

SNAPSHOT_TABLES = (
    *("files", "data_files", "delete_files", "entries", "manifests", "partitions", "position_deletes"),
    "tree",
)
"""Tables of one snapshot, by default the current one; the others are of the table as a whole."""

METADATA_TABLES = (
    *SNAPSHOT_TABLES,
    *("all_files", "all_data_files", "all_delete_files", "all_entries", "all_manifests"),
    *("snapshots", "history", "refs", "metadata_log_entries", "specs"),
)
