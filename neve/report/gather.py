"""Gather a report: read the tree of the current snapshot once, sum it up by columns, and plan a compaction."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField
from pyiceberg.transforms import IdentityTransform

from neve.ops.context import TableContext
from neve.plan.delete_index import match_deletes
from neve.plan.metrics_filter import STATISTICS
from neve.plan.partition_filter import PartitionFilter
from neve.plan.rewrite import plan_rewrite
from neve.plan.rewrite_options import RewriteOptions
from neve.plan.rewrite_plan import Reason, RewritePlanningResult, is_chosen
from neve.plan.scan import needs_statistics
from neve.predicate import Predicate, parse
from neve.report.columns import columns_of
from neve.report.counting import FileMeasures
from neve.report.files import deletes_of, sizes_of
from neve.report.filters import filter_matrix_of
from neve.report.history import history_of
from neve.report.maintenance import maintenance_of
from neve.report.partitions import spec_facts, worst_partitions
from neve.report.tree import tree_of
from neve.report.values import FilterFacts, Report
from neve.tree.entries import DETAIL, EntryTable, Manifest
from neve.tree.read import read_manifests_with_header

_MOST_PARTITIONS = 200


def gather_report(context: TableContext, where: str | BooleanExpression | None = None) -> Report:
    """Return the report of one state of a table; with a condition, compaction is planned for the matching files."""
    table = _ReportInput.of(context, where)
    metadata, measures = context.metadata, table.file_measures()
    first_seen = _first_seen_by_spec(context, measures)
    worst, partitions = worst_partitions(measures, _MOST_PARTITIONS)
    specs = spec_facts(measures, metadata.default_spec_id)
    specs_in_use = tuple(s.spec_id for s in specs if s.amounts.files or s.is_default)
    return Report(
        name=context.name,
        metadata=metadata,
        created_at_ms=time.time_ns() // 1_000_000,
        total=measures.total(),
        sizes=sizes_of(measures, table.compaction.plan.options),
        specs=specs,
        worst_partitions=worst,
        partitions=partitions,
        deletes=deletes_of(measures, table.deletes, table.pairs),
        history=history_of(metadata, first_seen),
        tree=tree_of(context, table.manifests, table.live_counts, table.root_bytes),
        maintenance=maintenance_of(context, table.compaction.plan, has_condition=where is not None),
        filter_matrix=filter_matrix_of(context.specs, specs_in_use, table.filter_facts()),
        columns=columns_of(metadata),
        sort_order=", ".join(_sort_field_text(field, metadata.schema()) for field in metadata.sort_order().fields),
    )


def _sort_field_text(field: SortField, schema: Schema) -> str:
    column = schema.find_column_name(field.source_id) or f"column {field.source_id}"
    term = column if isinstance(field.transform, IdentityTransform) else f"{field.transform}({column})"
    return f"{term} {field.direction} {field.null_order}"


@dataclass(frozen=True)
class _ReportInput:
    """What is read from a table: its files, its deletes, and the plan of a compaction."""

    manifests: tuple[Manifest, ...]
    live_counts: Mapping[str, int]  # live entries by path of the manifest
    root_bytes: int
    data: EntryTable
    deletes: EntryTable
    pairs: pa.Table  # which delete file applies to which data file
    filter: PartitionFilter
    condition: Predicate
    compaction: RewritePlanningResult

    @classmethod
    def of(cls, context: TableContext, where: str | BooleanExpression | None) -> _ReportInput:
        schema = context.metadata.schema()
        head, manifests, root_bytes = context.head(), tuple[Manifest, ...](), 0
        if head is not None:
            manifests, _, root_bytes = read_manifests_with_header(context.io, context.metadata, head)
        condition = parse(where, schema, time_zone=context.time_zone())
        filter_ = PartitionFilter.of(condition.expression, context.specs, schema)
        live = [m for m in manifests if m.may_hold_live_files]
        delete_manifests, data_manifests = ([m for m in live if m.is_deletes is kind] for kind in (True, False))
        deletes = context.live_entries(delete_manifests, DETAIL.names)
        data = context.live_entries(data_manifests, STATISTICS if needs_statistics(filter_, deletes) else ())
        live_counts = {**_live_entry_counts(data, data_manifests), **_live_entry_counts(deletes, delete_manifests)}
        compaction = plan_rewrite(
            data,
            deletes,
            context.metadata,
            RewriteOptions.of({}, context.properties.target_file_size),
            partitions=filter_,
            snapshot_id=context.metadata.current_snapshot_id,
            judged_in_part=None if condition.is_exact else condition.text,
        )
        pairs = match_deletes(data, deletes)
        return cls(manifests, live_counts, root_bytes, data, deletes, pairs, filter_, condition, compaction)

    def file_measures(self) -> FileMeasures:
        codes = self.compaction.plan.reason_codes
        return FileMeasures.of(
            self.data,
            self.deletes,
            self.pairs,
            min_file_size=self.compaction.plan.options.min_file_size,
            taken=is_chosen(codes),
            undecided=self.filter.judge(self.data).fail_open,
            outside=codes <= Reason.NOT_MATCHING_STATISTICS,
        )

    def filter_facts(self) -> FilterFacts | None:
        """Return what the condition selects and what it could not decide; None without a condition."""
        if self.filter.keeps_everything and self.condition.text is None:
            return None
        plan = self.compaction.plan
        matching = int((plan.reason_codes > Reason.NOT_MATCHING_STATISTICS).sum())
        text = self.condition.text or str(self.condition.expression)
        return FilterFacts(text, self.compaction.filter_stats, matching, tuple(plan.diagnostics.lines()))


def _live_entry_counts(entries: EntryTable, manifests: Sequence[Manifest]) -> dict[str, int]:
    counts = np.bincount(entries.numpy("manifest"), minlength=len(manifests)).tolist()
    return {m.path: count for m, count in zip(manifests, counts, strict=True)}


def _first_seen_by_spec(context: TableContext, measures: FileMeasures) -> Mapping[int, int]:
    """Return when the oldest live file of each spec was added, if its snapshot still exists."""
    spec_ids = measures.files.numpy("spec_id")
    rows = context.metadata.lazy_snapshots.rows
    times = {row["snapshot-id"]: int(row["timestamp-ms"]) for row in rows if "timestamp-ms" in row}
    first_seen: dict[int, int] = {}
    for spec_id in np.unique(spec_ids).tolist():
        snapshot_ids = pc.unique(measures.files["snapshot_id"].filter(pa.array(spec_ids == spec_id)))
        if added := [times[i] for i in snapshot_ids.to_pylist() if i in times]:
            first_seen[spec_id] = min(added)
    return first_seen
