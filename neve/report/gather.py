"""Gather a report: the tree of the current snapshot is read once, counted by columns, and judged by the planner."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField
from pyiceberg.transforms import IdentityTransform

from neve._version import __version__
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
from neve.report.tree import read_manifests, tree_of
from neve.report.values import FilterFacts, Report
from neve.tree.entries import DETAIL, EntryTable, Manifest
from neve.tree.read import read_entries

_MOST_PARTITIONS = 200


def gather_report(context: TableContext, where: str | BooleanExpression | None = None) -> Report:
    """The report of one state of a table; with a condition, compaction is planned for what it chooses."""
    look = _ReportInput.of(context, where)
    metadata, counted = context.metadata, look.file_measures()
    first_seen = _first_seen_by_spec(context, counted)
    worst, partitions = worst_partitions(counted, _MOST_PARTITIONS)
    specs = spec_facts(counted, metadata.default_spec_id, first_seen)
    used = tuple(s.spec_id for s in specs if s.amounts.files or s.is_default)
    return Report(
        name=context.name,
        format_version=metadata.format_version,
        location=metadata.location,
        created_at_ms=time.time_ns() // 1_000_000,
        snapshot_id=metadata.current_snapshot_id,
        neve_version=__version__,
        total=counted.total(),
        sizes=sizes_of(counted, look.compaction.plan.options),
        specs=specs,
        worst_partitions=worst,
        partitions=partitions,
        deletes=deletes_of(counted, look.deletes, look.pairs),
        history=history_of(metadata, first_seen),
        tree=tree_of(context, look.manifests, look.live_counts, look.root_bytes),
        maintenance=maintenance_of(context, look.compaction.plan),
        filter_matrix=filter_matrix_of(context.specs, used, look.filter_facts()),
        columns=columns_of(metadata),
        schemas=len(metadata.schemas),
        sort_order=", ".join(_sorting(field, metadata.schema()) for field in metadata.sort_order().fields),
        properties=dict(metadata.properties),
    )


def _sorting(field: SortField, schema: Schema) -> str:
    column = schema.find_column_name(field.source_id) or f"column {field.source_id}"
    term = column if isinstance(field.transform, IdentityTransform) else f"{field.transform}({column})"
    return f"{term} {field.direction} {field.null_order}"


@dataclass(frozen=True)
class _ReportInput:
    """One look at a table: its files, its deletes, and what a compaction would do with them."""

    manifests: tuple[Manifest, ...]
    live_counts: Mapping[str, int]  # how many live entries each of them has
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
        manifests, root_bytes = read_manifests(context, context.head())
        condition = parse(where, schema, time_zone=context.time_zone())
        filter_ = PartitionFilter.of(condition.expression, context.specs, schema)
        live = [m for m in manifests if m.may_hold_live_files]
        of_deletes, of_data = ([m for m in live if m.is_deletes is kind] for kind in (True, False))
        deletes = _read_live_entries(context, of_deletes, DETAIL.names)
        data = _read_live_entries(context, of_data, STATISTICS if needs_statistics(filter_, deletes) else ())
        held = {**_live_entry_counts(data, of_data), **_live_entry_counts(deletes, of_deletes)}
        planned = plan_rewrite(
            data,
            deletes,
            context.metadata,
            RewriteOptions.of({}, context.properties.target_file_size),
            partitions=filter_,
            snapshot_id=context.metadata.current_snapshot_id,
            judged_in_part=None if condition.is_exact else condition.text,
        )
        return cls(
            manifests, held, root_bytes, data, deletes, match_deletes(data, deletes), filter_, condition, planned
        )

    def file_measures(self) -> FileMeasures:
        """The data files, ready to be summed up."""
        codes = self.compaction.plan.reason_codes
        return FileMeasures.of(
            self.data,
            self.deletes,
            self.pairs,
            least=self.compaction.plan.options.min_file_size,
            taken=is_chosen(codes),
            undecided=self.filter.judge(self.data).fail_open,
            outside=codes <= Reason.NOT_MATCHING_STATISTICS,
        )

    def filter_facts(self) -> FilterFacts | None:
        """What the condition could not decide; None without one."""
        if self.filter.keeps_everything and self.condition.text is None:
            return None
        plan = self.compaction.plan
        matching = int((plan.reason_codes > Reason.NOT_MATCHING_STATISTICS).sum())
        text = self.condition.text or str(self.condition.expression)
        return FilterFacts(text, self.compaction.filter_stats, matching, tuple(plan.diagnostics.lines()))


def _read_live_entries(context: TableContext, manifests: Sequence[Manifest], detail: Iterable[str]) -> EntryTable:
    return read_entries(context.io, manifests, context.specs, detail=tuple(detail), live_only=True)


def _live_entry_counts(entries: EntryTable, manifests: Sequence[Manifest]) -> dict[str, int]:
    counts = np.bincount(entries.numpy("manifest"), minlength=len(manifests)).tolist()
    return {m.path: count for m, count in zip(manifests, counts, strict=True)}


def _first_seen_by_spec(context: TableContext, measures: FileMeasures) -> Mapping[int, int]:
    """When the oldest live file of each spec came, as far as its snapshot is still known."""
    spec_ids = measures.files.numpy("spec_id")
    rows = context.metadata.lazy_snapshots.rows
    times = {row["snapshot-id"]: int(row["timestamp-ms"]) for row in rows if "timestamp-ms" in row}
    found: dict[int, int] = {}
    for spec_id in np.unique(spec_ids).tolist():
        known = [times[i] for i in measures.adding_snapshots(spec_ids == spec_id) if i in times]
        if known:
            found[spec_id] = min(known)
    return found
