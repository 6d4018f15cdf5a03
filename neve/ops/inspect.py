"""Show the files, manifests, partitions, specs, snapshots and references of a table as Arrow tables.

All of them are read from metadata; no data file is opened. Partitions are a struct of all fields of all specs beside
`spec_id`, so files of different specs fit into one table.

>>> for row in t.inspect.partitions().select(["spec_id", "partition", "file_count"]).to_pylist():
...     print(row)
{'spec_id': 0, 'partition': {'region': 'eu'}, 'file_count': 1}
{'spec_id': 0, 'partition': {'region': 'us'}, 'file_count': 1}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import PartitionField

from neve.io.untrusted import translate_parse_errors
from neve.model.partition import Specs, partition_text
from neve.model.snapshots import tree_root_location
from neve.ops.context import TableContext
from neve.tree.entries import DETAIL, MIXED_SPECS, Content, EntryTable, Manifest
from neve.tree.read import has_parquet_root, manifests_of, read_entries

View = TypeVar("View", bound=Callable[..., pa.Table])

_FILE_COLUMNS = (
    "content",
    "file_path",
    "file_format",
    "spec_id",
    "partition",
    "record_count",
    "file_size_in_bytes",
    *DETAIL.names,
    "equality_ids",
    "sort_order_id",
    "first_row_id",
    "referenced_data_file",
    "content_offset",
    "content_size_in_bytes",
)
_ENTRY_COLUMNS = ("status", "snapshot_id", "sequence_number", "file_sequence_number")


def _with_untrusted_metadata(view: View) -> View:
    """Report whatever goes wrong in a view of untrusted metadata as an error about the table's metadata."""

    @wraps(view)
    def view_or_table_error(self: Inspect, *args: Any, **kwargs: Any) -> pa.Table:
        with translate_parse_errors(self.context.iceberg.metadata_location, "a table whose metadata can be shown"):
            return view(self, *args, **kwargs)

    return cast(View, view_or_table_error)


@dataclass(frozen=True)
class Inspect:
    """The metadata tables of one state of a table."""

    context: TableContext

    @_with_untrusted_metadata
    def files(self, snapshot_id: int | None = None) -> pa.Table:
        """Return the live files, data and deletes, with their statistics."""
        return _select(self._entries(snapshot_id).live(), _FILE_COLUMNS)

    @_with_untrusted_metadata
    def entries(self, snapshot_id: int | None = None) -> pa.Table:
        """Return every manifest entry, tombstones included, with inherited values filled in."""
        return _select(self._entries(snapshot_id), (*_ENTRY_COLUMNS, *_FILE_COLUMNS))

    @_with_untrusted_metadata
    def manifests(self, snapshot_id: int | None = None) -> pa.Table:
        """Return the manifests of a snapshot, each with the range of every partition field of its spec."""
        rows = [
            {
                "content": int(m.is_deletes),
                "path": m.path,
                "length": m.length,
                "partition_spec_id": m.spec_id,
                "sequence_number": m.sequence_number,
                "min_sequence_number": m.min_sequence_number,
                "added_snapshot_id": m.added_snapshot_id,
                "added_files_count": m.added_files,
                "existing_files_count": m.existing_files,
                "deleted_files_count": m.deleted_files,
                "added_rows_count": m.added_rows,
                "existing_rows_count": m.existing_rows,
                "deleted_rows_count": m.deleted_rows,
                "first_row_id": m.first_row_id,
                "partition_summaries": _partition_summary_rows(m, self.context.specs),
            }
            for m in self._manifests(snapshot_id)
        ]
        return pa.Table.from_pylist(rows, _MANIFESTS)

    @_with_untrusted_metadata
    def partitions(self, snapshot_id: int | None = None) -> pa.Table:
        """Return the files, rows and bytes of data in each partition, and its delete files, by spec."""
        live = self._entries(snapshot_id, detail=()).live()
        codes, keys = live.partition_codes()
        in_order = ["spec_id", *(u.column for u in live.specs.union if not pa.types.is_null(u.arrow_type))]
        order = pc.sort_indices(keys.columns, [(name, "ascending") for name in in_order])
        content, rows, sizes = (live.numpy(name) for name in ("content", "record_count", "file_size_in_bytes"))

        def total(kind: Content, weights: np.ndarray[Any, Any] | None = None) -> pa.Array:
            is_kind = content == kind
            of_kind = None if weights is None else weights[is_kind]
            return pa.array(np.bincount(codes[is_kind], weights=of_kind, minlength=len(keys)).astype(np.int64))

        columns = {
            "partition": partition_struct(keys),
            "spec_id": keys["spec_id"],
            "record_count": total(Content.DATA, rows),
            "file_count": total(Content.DATA),
            "total_data_file_size_in_bytes": total(Content.DATA, sizes),
            "position_delete_record_count": total(Content.POSITION_DELETES, rows),
            "position_delete_file_count": total(Content.POSITION_DELETES),
            "equality_delete_record_count": total(Content.EQUALITY_DELETES, rows),
            "equality_delete_file_count": total(Content.EQUALITY_DELETES),
        }
        return pa.table(columns).take(order)

    @_with_untrusted_metadata
    def specs(self) -> pa.Table:
        """Return the fields of every partition spec of the table, with their types and sources."""
        specs, default = self.context.specs, self.context.metadata.default_spec_id
        rows = [
            {
                "spec_id": spec_id,
                "is_default": spec_id == default,
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

    @_with_untrusted_metadata
    def snapshots(self) -> pa.Table:
        """Return all snapshots in the metadata."""
        rows = [
            {
                "committed_at": s.timestamp_ms,
                "snapshot_id": s.snapshot_id,
                "parent_id": s.parent_snapshot_id,
                "sequence_number": s.sequence_number,
                "operation": s.summary.operation.value if s.summary else None,
                "manifest_list": tree_root_location(s),
                "summary": [(k, str(v)) for k, v in s.summary.additional_properties.items()] if s.summary else [],
            }
            for s in self.context.metadata.lazy_snapshots
        ]
        return pa.Table.from_pylist(rows, _SNAPSHOTS)

    @_with_untrusted_metadata
    def history(self) -> pa.Table:
        """Return when each snapshot became current, and whether it is an ancestor of the current one."""
        metadata = self.context.metadata
        ancestors = {s.snapshot_id for s in self.context.ancestors(metadata.current_snapshot())}
        rows = [
            {
                "made_current_at": e.timestamp_ms,
                "snapshot_id": e.snapshot_id,
                "is_current_ancestor": e.snapshot_id in ancestors,
            }
            for e in metadata.snapshot_log
        ]
        return pa.Table.from_pylist(rows, _HISTORY)

    @_with_untrusted_metadata
    def refs(self) -> pa.Table:
        """Return branches and tags."""
        rows = [
            {
                "name": name,
                "type": ref.snapshot_ref_type.value,
                "snapshot_id": ref.snapshot_id,
                "max_ref_age_ms": ref.max_ref_age_ms,
                "max_snapshot_age_ms": ref.max_snapshot_age_ms,
                "min_snapshots_to_keep": ref.min_snapshots_to_keep,
            }
            for name, ref in sorted(self.context.metadata.refs.items())
        ]
        return pa.Table.from_pylist(rows, _REFS)

    @_with_untrusted_metadata
    def tree(self, snapshot_id: int | None = None) -> pa.Table:
        """Return the metadata tree from the snapshot down to its manifests, one row per node.

        Counts are of live files and their rows; null if only the entries themselves have them.
        """
        snapshot = self.context.snapshot(snapshot_id)
        manifests = [m for m in self._manifests(snapshot_id) if not m.is_view]  # the vectors of a leaf are in the leaf
        root = {
            "depth": 0,
            "kind": "root" if snapshot is not None and has_parquet_root(snapshot) else "manifest list",
            "path": None if snapshot is None else tree_root_location(snapshot),
            "files": _sum_if_known([_live_files(m) for m in manifests]),
            "rows": _sum_if_known([_live_rows(m) for m in manifests if not m.is_deletes]),
        }
        leaves = [
            {
                "depth": 1,
                "kind": m.kind,
                "path": m.path,
                "spec_id": m.spec_id,
                "bytes": m.length,
                "files": _live_files(m),
                "rows": _live_rows(m),
                "sequence_number": m.sequence_number,
            }
            for m in manifests
        ]
        return pa.Table.from_pylist([root, *leaves] if snapshot else [], _TREE)

    def _manifests(self, snapshot_id: int | None) -> tuple[Manifest, ...]:
        return manifests_of(self.context.io, self.context.metadata, self.context.snapshot(snapshot_id))

    def _entries(self, snapshot_id: int | None, detail: tuple[str, ...] = tuple(DETAIL.names)) -> EntryTable:
        return read_entries(self.context.io, self._manifests(snapshot_id), self.context.specs, detail=detail)


def _select(entries: EntryTable, names: tuple[str, ...]) -> pa.Table:
    columns = [partition_struct(entries) if name == "partition" else entries[name] for name in names]
    return pa.Table.from_arrays(columns, names=list(names))


def partition_struct(entries: EntryTable) -> pa.Array:
    """Return the union tuple as a struct; fields are named as in the newest spec, absent ones are null."""
    union = entries.specs.union
    if not union:
        return pa.nulls(len(entries))
    uses = Counter(u.field.name for u in union)
    names = [u.field.name if uses[u.field.name] == 1 else f"{u.field.name}_{u.column[1:]}" for u in union]
    return pa.StructArray.from_arrays([entries[u.column].combine_chunks() for u in union], names=names)


def _live_files(manifest: Manifest) -> int | None:
    files = _sum_if_known([manifest.added_files, manifest.existing_files])
    return None if files is None else files - manifest.hidden_files


def _live_rows(manifest: Manifest) -> int | None:
    return None if manifest.hidden_files else _sum_if_known([manifest.added_rows, manifest.existing_rows])


def _sum_if_known(numbers: list[int | None]) -> int | None:
    known = [n for n in numbers if n is not None]
    return sum(known) if len(known) == len(numbers) else None


def _partition_summary_rows(manifest: Manifest, specs: Specs) -> list[dict[str, Any]]:
    if manifest.spec_id == MIXED_SPECS:
        return []

    def bound_text(bound: bytes | None, field: PartitionField) -> str | None:
        kind: Any = specs.result_type(field)
        return None if bound is None else partition_text(field.transform, kind, from_bytes(kind, bound))

    return [
        {
            "field": field.name,
            "contains_null": summary.contains_null,
            "contains_nan": summary.contains_nan,
            "lower_bound": bound_text(summary.lower_bound, field),
            "upper_bound": bound_text(summary.upper_bound, field),
        }
        for summary, field in zip(manifest.partitions or (), specs[manifest.spec_id].fields, strict=False)
    ]


def _schema(fields: str, **nested: pa.DataType) -> pa.Schema:
    """Return a schema from the names and types of its columns; `nested` has the types that are not in Arrow's list."""
    own_types = {"time": pa.timestamp("ms", "UTC"), **nested}
    pairs = (field.split() for field in fields.split(", "))
    return pa.schema([(name, own_types.get(kind) or pa.type_for_alias(kind)) for name, kind in pairs])


_SPEC_FIELD = _schema("field_id int32, name string, transform string, source_id int32, source string, type string")
_SPECS = _schema("spec_id int32, is_default bool, fields list", list=pa.list_(pa.struct(_SPEC_FIELD)))
_SNAPSHOTS = _schema(
    "committed_at time, snapshot_id int64, parent_id int64, sequence_number int64, operation string, "
    "manifest_list string, summary map",
    map=pa.map_(pa.string(), pa.string()),
)
_HISTORY = _schema("made_current_at time, snapshot_id int64, is_current_ancestor bool")
_REFS = _schema(
    "name string, type string, snapshot_id int64, max_ref_age_ms int64, max_snapshot_age_ms int64, "
    "min_snapshots_to_keep int32"
)
_TREE = _schema(
    "depth int8, kind string, path string, spec_id int32, bytes int64, files int64, rows int64, sequence_number int64"
)
_SUMMARY = _schema("field string, contains_null bool, contains_nan bool, lower_bound string, upper_bound string")
_MANIFESTS = _schema(
    "content int8, path string, length int64, partition_spec_id int32, sequence_number int64, "
    "min_sequence_number int64, added_snapshot_id int64, added_files_count int32, existing_files_count int32, "
    "deleted_files_count int32, added_rows_count int64, existing_rows_count int64, deleted_rows_count int64, "
    "first_row_id int64, partition_summaries list",
    list=pa.list_(pa.struct(_SUMMARY)),
)
