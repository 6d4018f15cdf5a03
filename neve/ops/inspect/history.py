"""Tables of what the table metadata itself holds: snapshots, their history, references, earlier metadata, specs."""

from __future__ import annotations

from collections.abc import Container

import pyarrow as pa

from neve.model.metadata import TableMetadata
from neve.model.partition import Specs
from neve.model.snapshots import tree_root_location


def schema_of(fields: str, **nested: pa.DataType) -> pa.Schema:
    """Return a schema from the names and types of its columns; `nested` has the types that are not in Arrow's list."""
    own_types = {"time": pa.timestamp("us", "UTC"), **nested}
    pairs = (field.split() for field in fields.split(", "))
    return pa.schema([(name, own_types.get(kind) or pa.type_for_alias(kind)) for name, kind in pairs])


_SPEC_FIELD = schema_of("field_id int32, name string, transform string, source_id int32, source string, type string")
_SPECS = schema_of("spec_id int32, is_default bool, fields list", list=pa.list_(pa.struct(_SPEC_FIELD)))
_SNAPSHOTS = schema_of(
    "committed_at time, snapshot_id int64, parent_id int64, operation string, manifest_list string, summary map, "
    "sequence_number int64",
    map=pa.map_(pa.string(), pa.string()),
)
_HISTORY = schema_of("made_current_at time, snapshot_id int64, parent_id int64, is_current_ancestor bool")
_REFS = schema_of(
    "name string, type string, snapshot_id int64, max_reference_age_in_ms int64, min_snapshots_to_keep int32, "
    "max_snapshot_age_in_ms int64"
)
_METADATA_LOG = schema_of(
    "timestamp time, file string, latest_snapshot_id int64, latest_schema_id int32, latest_sequence_number int64"
)


def snapshots_table(metadata: TableMetadata) -> pa.Table:
    """Return all snapshots in the metadata."""
    rows = [
        {
            "committed_at": _microseconds(s.timestamp_ms),
            "snapshot_id": s.snapshot_id,
            "parent_id": s.parent_snapshot_id,
            "operation": s.summary.operation.value if s.summary else None,
            "manifest_list": tree_root_location(s),
            "summary": [(k, str(v)) for k, v in s.summary.additional_properties.items()] if s.summary else None,
            "sequence_number": s.sequence_number,
        }
        for s in metadata.lazy_snapshots
    ]
    return pa.Table.from_pylist(rows, _SNAPSHOTS)


def history_table(metadata: TableMetadata, current_ancestors: Container[int]) -> pa.Table:
    """Return when each snapshot became current; the parent of an expired one is unknown."""
    rows = [
        {
            "made_current_at": _microseconds(entry.timestamp_ms),
            "snapshot_id": entry.snapshot_id,
            "parent_id": None if (s := metadata.snapshot_by_id(entry.snapshot_id)) is None else s.parent_snapshot_id,
            "is_current_ancestor": entry.snapshot_id in current_ancestors,
        }
        for entry in metadata.snapshot_log
    ]
    return pa.Table.from_pylist(rows, _HISTORY)


def refs_table(metadata: TableMetadata) -> pa.Table:
    """Return branches and tags, sorted by name."""
    rows = [
        {
            "name": name,
            "type": ref.snapshot_ref_type.value.upper(),
            "snapshot_id": ref.snapshot_id,
            "max_reference_age_in_ms": ref.max_ref_age_ms,
            "min_snapshots_to_keep": ref.min_snapshots_to_keep,
            "max_snapshot_age_in_ms": ref.max_snapshot_age_ms,
        }
        for name, ref in sorted(metadata.refs.items())
    ]
    return pa.Table.from_pylist(rows, _REFS)


def metadata_log_table(metadata: TableMetadata, metadata_location: str) -> pa.Table:
    """Return the metadata files of the table, the current one last, each with the snapshot that was current then."""
    files = [(entry.timestamp_ms, entry.metadata_file) for entry in metadata.metadata_log]
    rows = []
    for time, file in [*files, (metadata.last_updated_ms, metadata_location)]:
        logged = (e.snapshot_id for e in reversed(metadata.snapshot_log) if e.timestamp_ms <= time)
        snapshot_id = next(logged, None)
        snapshot = None if snapshot_id is None else metadata.snapshot_by_id(snapshot_id)
        rows.append(
            {
                "timestamp": _microseconds(time),
                "file": file,
                "latest_snapshot_id": snapshot_id,
                "latest_schema_id": None if snapshot is None else snapshot.schema_id,
                "latest_sequence_number": None if snapshot is None else snapshot.sequence_number or 0,
            }
        )
    return pa.Table.from_pylist(rows, _METADATA_LOG)


def specs_table(specs: Specs) -> pa.Table:
    """Return the fields of every partition spec of the table, with their types and sources."""
    rows = [
        {
            "spec_id": spec_id,
            "is_default": spec_id == specs.default_id,
            "fields": [
                {
                    "field_id": f.field_id,
                    "name": f.name,
                    "transform": str(f.transform),
                    "source_id": f.source_id,
                    "source": schema.find_column_name(f.source_id) if (schema := specs.schema_of(f)) else None,
                    "type": str(specs.result_type(f)),
                }
                for f in spec.fields
            ],
        }
        for spec_id, spec in sorted(specs.by_id.items())
    ]
    return pa.Table.from_pylist(rows, _SPECS)


def _microseconds(milliseconds: int) -> int:
    return milliseconds * 1000
