"""Tables of manifests: `manifests`, `all_manifests` and `tree`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import PartitionField
from pyiceberg.table.snapshots import Snapshot

from neve.model.partition import Specs, partition_text
from neve.model.snapshots import tree_root_location
from neve.ops.inspect.history import schema_of
from neve.tree.entries import MIXED_SPECS, Manifest
from neve.tree.read import has_parquet_root

_STATUSES = ("added", "existing", "deleted")
_SUMMARY = schema_of("contains_null bool, contains_nan bool, lower_bound string, upper_bound string")
_MANIFESTS = schema_of(
    "content int32, path string, length int64, partition_spec_id int32, added_snapshot_id int64, "
    "added_data_files_count int32, existing_data_files_count int32, deleted_data_files_count int32, "
    "added_delete_files_count int32, existing_delete_files_count int32, deleted_delete_files_count int32, "
    "partition_summaries summaries, key_metadata binary, sequence_number int64, min_sequence_number int64, "
    "added_rows_count int64, existing_rows_count int64, deleted_rows_count int64, first_row_id int64",
    summaries=pa.list_(pa.struct(_SUMMARY)),
)
_TREE = schema_of(
    "depth int8, kind string, path string, spec_id int32, bytes int64, files int64, rows int64, sequence_number int64"
)


def manifests_table(manifests: Iterable[Manifest], specs: Specs) -> pa.Table:
    """Return the manifests of a snapshot, each with the range of every partition field of its spec."""
    return _facts_of(manifests, specs).drop_columns(["key_metadata"])


def all_manifests_table(manifests_by_snapshot: Iterable[tuple[Snapshot, Sequence[Manifest]]], specs: Specs) -> pa.Table:
    """Return the manifests of every snapshot; the facts of a manifest that snapshots share are formatted once."""
    numbers: dict[Manifest, int] = {}
    snapshot_ids, counts, rows = [], [], []
    for snapshot, manifests in manifests_by_snapshot:
        rows += [numbers.setdefault(manifest, len(numbers)) for manifest in manifests]
        snapshot_ids.append(snapshot.snapshot_id)
        counts.append(len(manifests))
    references = pa.array(np.repeat(np.array(snapshot_ids, np.int64), counts))
    table = _facts_of(numbers, specs).take(pa.array(rows, pa.int64()))
    return table.add_column(_MANIFESTS.get_field_index("key_metadata"), "reference_snapshot_id", references)


def _facts_of(manifests: Iterable[Manifest], specs: Specs) -> pa.Table:
    rows = [
        {
            "content": int(m.is_deletes),
            "path": m.path,
            "length": m.length,
            "partition_spec_id": m.spec_id,
            "added_snapshot_id": m.added_snapshot_id,
            **{f"{s}_data_files_count": 0 if m.is_deletes else getattr(m, f"{s}_files") for s in _STATUSES},
            **{f"{s}_delete_files_count": getattr(m, f"{s}_files") if m.is_deletes else 0 for s in _STATUSES},
            "partition_summaries": _summaries(m, specs),
            "key_metadata": m.key_metadata,
            "sequence_number": m.sequence_number,
            "min_sequence_number": m.min_sequence_number,
            **{f"{s}_rows_count": getattr(m, f"{s}_rows") for s in _STATUSES},
            "first_row_id": m.first_row_id,
        }
        for m in manifests
    ]
    return pa.Table.from_pylist(rows, _MANIFESTS)


def _summaries(manifest: Manifest, specs: Specs) -> list[dict[str, Any]] | None:
    if manifest.spec_id == MIXED_SPECS or manifest.partitions is None:
        return None

    def bound_text(bound: bytes | None, field: PartitionField) -> str:
        kind: Any = specs.result_type(field)
        return "null" if bound is None else partition_text(field.transform, kind, from_bytes(kind, bound))

    return [
        {
            "contains_null": summary.contains_null,
            "contains_nan": summary.contains_nan,
            "lower_bound": bound_text(summary.lower_bound, field),
            "upper_bound": bound_text(summary.upper_bound, field),
        }
        for summary, field in zip(manifest.partitions, specs[manifest.spec_id].fields, strict=False)
    ]


def tree_table(snapshot: Snapshot | None, manifests: Iterable[Manifest]) -> pa.Table:
    """Return the metadata tree of a snapshot down to its manifests, one row per node."""
    if snapshot is None:
        return _TREE.empty_table()
    nodes = [m for m in manifests if not m.is_view]  # the vectors of a leaf are in the leaf
    root = {
        "depth": 0,
        "kind": "root" if has_parquet_root(snapshot) else "manifest list",
        "path": tree_root_location(snapshot),
        "files": _sum_if_known([_live_files(m) for m in nodes]),
        "rows": _sum_if_known([_live_rows(m) for m in nodes if not m.is_deletes]),
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
        for m in nodes
    ]
    return pa.Table.from_pylist([root, *leaves], _TREE)


def _live_files(manifest: Manifest) -> int | None:
    files = _sum_if_known([manifest.added_files, manifest.existing_files])
    return None if files is None else files - manifest.hidden_files


def _live_rows(manifest: Manifest) -> int | None:
    return None if manifest.hidden_files else _sum_if_known([manifest.added_rows, manifest.existing_rows])


def _sum_if_known(numbers: list[int | None]) -> int | None:
    known = [n for n in numbers if n is not None]
    return sum(known) if len(known) == len(numbers) else None
