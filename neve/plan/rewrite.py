"""Plan which files a compaction rewrites, and in which groups.

Planning is pure, works on whole columns, and gives the same plan for the same table. The steps:

1. The partition filter is evaluated for each file under its own spec, then the statistics.
2. Delete files are matched with their data files and counted.
3. Files become candidates by size, by deletes, or by their spec.
4. Candidates are grouped by partition and packed; groups that are not worth rewriting are dropped.
5. The remaining groups are ordered, and their deletes are attached.

The filter selects files, never rows: all rows of a chosen file are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table.metadata import TableMetadata

from neve.plan import metrics_filter
from neve.plan.delete_index import match_deletes, referenced_paths
from neve.plan.packing import GroupSlices, Rows, pack_files, sort_by_partition_and_size
from neve.plan.partition_filter import PartitionFilter
from neve.plan.ranges import Mask
from neve.plan.rewrite_options import RewriteOptions
from neve.plan.rewrite_plan import (
    FileGroup,
    Reason,
    RewritePlan,
    RewritePlanningResult,
    SpecMode,
    Unopened,
    is_chosen,
)
from neve.plan.scan import ScanPlan, ScanStats, size_counts
from neve.tree.entries import Content, EntryTable


def plan_rewrite(
    data: EntryTable,
    deletes: EntryTable,
    metadata: TableMetadata,
    options: RewriteOptions,
    *,
    partitions: PartitionFilter,
    spec_mode: SpecMode = SpecMode.CURRENT,
    snapshot_id: int | None = None,
    unopened: Unopened | None = None,
    judged_in_part: str | None = None,
) -> RewritePlanningResult:
    """Plan a compaction over the tracked files of a snapshot.

    `judged_in_part` is the condition, if the filter evaluates only a part of it. The plan does not depend on the order
    of the given files.
    """
    deletes = deletes.live()
    by = [("file_path", "ascending"), ("content_offset", "ascending")]  # a Puffin file may hold several vectors
    deletes = deletes.take(pc.sort_indices(deletes.columns.select([name for name, _ in by]), sort_keys=by))
    planner = _RewritePlanner(data.live(), deletes, metadata, options, partitions, spec_mode, snapshot_id)
    return planner.plan(unopened, judged_in_part)


@dataclass(frozen=True)
class _RewritePlanner:
    data: EntryTable
    deletes: EntryTable
    metadata: TableMetadata
    options: RewriteOptions
    partitions: PartitionFilter
    spec_mode: SpecMode
    snapshot_id: int | None

    def plan(self, unopened: Unopened | None, judged_in_part: str | None) -> RewritePlanningResult:
        verdict = self.partitions.judge(self.data)
        codes = np.full(len(self.data), Reason.NOT_MATCHING_PARTITION, np.int8)
        rows = np.flatnonzero(verdict.keep)
        files = self.data if len(rows) == len(self.data) else self.data.take(rows)
        predicate = self.partitions.predicate
        if predicate is not AlwaysTrue():
            codes[rows] = Reason.NOT_MATCHING_STATISTICS
            matching = np.flatnonzero(metrics_filter.may_match(files, predicate))
            rows, files = rows[matching], files.take(matching)
        groups, codes[rows] = _Candidates.of(self, files).build_groups()
        candidates = (codes == Reason.GROUP_TOO_SMALL) | (codes == Reason.OVER_MAX_FILES) | is_chosen(codes)
        diagnostics = verdict.diagnostics(candidates, judged_in_part)
        plan = RewritePlan(
            self.snapshot_id, groups, self.options, self.spec_mode, diagnostics, self.data, codes, unopened
        )
        has_filter = predicate is not AlwaysTrue() or judged_in_part is not None
        return RewritePlanningResult(plan, verdict.stats_for(candidates), has_filter)

    @property
    def target_spec_id(self) -> int:
        """The spec of new files, unless they keep the spec of the files they replace."""
        spec_id = self.options.output_spec_id
        return self.metadata.default_spec_id if spec_id is None else spec_id


@dataclass(frozen=True)
class _Candidates:
    """Files that match the filter, and the reason to rewrite each."""

    planner: _RewritePlanner
    files: EntryTable
    pairs: pa.Table  # file, delete: which delete files apply, sorted by file
    reason_codes: NDArray[np.int8]
    exceeds_delete_threshold: Mask  # enough of the file is deleted, independent of other reasons

    @classmethod
    def of(cls, planner: _RewritePlanner, files: EntryTable) -> _Candidates:
        pairs = match_deletes(files, planner.deletes)
        o, size = planner.options, files.numpy("file_size_in_bytes")
        count, share = _delete_counts_and_shares(files, planner.deletes, pairs)
        by_count, by_share = count >= o.delete_file_threshold, share >= o.delete_ratio_threshold
        if planner.spec_mode is SpecMode.UPGRADE:
            has_other_spec = files.numpy("spec_id") != planner.target_spec_id
            codes = np.where(has_other_spec, Reason.OTHER_SPEC, Reason.IN_TARGET_SPEC)
        elif o.rewrite_all:
            codes = np.full(len(files), Reason.REWRITE_ALL)
        else:
            tests = {
                Reason.TOO_SMALL: size < o.min_file_size,
                Reason.TOO_LARGE: size > o.max_file_size,
                Reason.DELETE_FILES: by_count,
                Reason.DELETED_ROWS: by_share,
            }
            codes = np.select(list(tests.values()), [int(r) for r in tests], default=int(Reason.WELL_SIZED))
        return cls(planner, files, pairs, codes.astype(np.int8), by_count | by_share)

    def build_groups(self) -> tuple[tuple[FileGroup, ...], NDArray[np.int8]]:
        """Return the groups in the order they run, and the final reason for each file."""
        o = self.planner.options
        rows, partitions = sort_by_partition_and_size(self.files, np.flatnonzero(is_chosen(self.reason_codes)))
        sizes = self.files.numpy("file_size_in_bytes")[rows]
        packed = pack_files(sizes, partitions, o.max_group_size, o.max_group_files)
        worth = packed.select(self._is_worth_rewriting(packed, sizes, self.exceeds_delete_threshold[rows]))
        chosen = worth if o.max_files is None else worth.limit_files(o.max_files)
        codes = self.reason_codes.copy()
        codes[rows] = Reason.GROUP_TOO_SMALL
        codes[rows[worth.rows()]] = Reason.OVER_MAX_FILES
        codes[rows[chosen.rows()]] = self.reason_codes[rows[chosen.rows()]]
        kind, _, direction = o.job_order.partition("-")
        keys = {"bytes": chosen.sums(sizes), "files": chosen.file_counts}
        key = keys.get(kind, np.zeros(len(chosen), np.int64))  # equal groups keep their order
        order = np.argsort(key if direction == "asc" else -key, kind="stable")
        return tuple(self._file_groups(chosen, rows, order)), codes

    def _file_groups(self, chosen: GroupSlices, rows: Rows, order: Rows) -> Iterator[FileGroup]:
        """Yield the chosen groups, which are slices of `rows`, in an order."""
        o, scans = self.planner.options, _GroupScans.of(self, chosen, rows)
        sizes, row_counts = (
            chosen.sums(self.files.numpy(name)[rows]).tolist() for name in ("file_size_in_bytes", "record_count")
        )
        delete_counts, index = np.diff(scans.delete_starts).tolist(), chosen.index_in_partition.tolist()
        keeps_spec = self.planner.spec_mode is SpecMode.KEEP
        partitions = self.files.partition_keys(scans.file_rows[scans.file_starts[order]])
        for group_id, (at, partition) in enumerate(zip(order.tolist(), partitions, strict=True)):
            yield FileGroup(
                group_id,
                partition,
                index[at],
                partition.spec_id if keeps_spec else self.planner.target_spec_id,
                o.output_files(sizes[at]),
                o.split_size(sizes[at]),
                int(chosen.file_counts[at]),
                delete_counts[at],
                sizes[at],
                row_counts[at],
                scans,
                at,
            )

    def _is_worth_rewriting(self, groups: GroupSlices, sizes: Rows, is_deleted: Mask) -> Mask:
        o = self.planner.options
        if o.rewrite_all or self.planner.spec_mode is SpecMode.UPGRADE:
            return np.ones(len(groups), bool)
        size, count = groups.sums(sizes), groups.file_counts
        enough = (count >= o.min_input_files) | (size > o.target_file_size)
        has_deleted = groups.sums(is_deleted.astype(np.int64)) > 0
        return ((count >= 2) & enough) | (size > o.max_file_size) | has_deleted


@dataclass(frozen=True)
class _GroupScans:
    """Which files and deletes belong to each group, as slices of row numbers."""

    scan_of_all_files: ScanPlan  # without deletes attached
    file_rows: Rows  # of all groups, one after the other
    delete_rows: Rows
    attached: pa.Table  # by the numbers within a group
    file_starts: Rows  # where the files of each group start, and the end of the last group
    delete_starts: Rows
    pair_starts: Rows

    @classmethod
    def of(cls, candidates: _Candidates, groups: GroupSlices, rows: Rows) -> _GroupScans:
        """Build the scans of groups, which are slices of `rows`."""
        planner, chosen = candidates.planner, rows[groups.rows()]
        group = np.repeat(np.arange(len(groups)), groups.file_counts)
        starts = np.concatenate([[0], np.cumsum(groups.file_counts)])
        files_of_pairs, deletes_of_pairs = (candidates.pairs[name].to_numpy() for name in ("file", "delete"))
        first, end = np.searchsorted(files_of_pairs, chosen, "left"), np.searchsorted(files_of_pairs, chosen, "right")
        pairs = GroupSlices(first, end, chosen)
        file, delete = np.repeat(np.arange(len(chosen)), pairs.file_counts), deletes_of_pairs[pairs.rows()]
        of_pair, count = group[file], max(len(planner.deletes), 1)
        used, index = np.unique(of_pair * count + delete, return_inverse=True)  # a delete file once for each group
        delete_starts = np.searchsorted(used, np.arange(len(groups) + 1) * count)
        pair_starts = np.searchsorted(of_pair, np.arange(len(groups) + 1))
        attached = pa.table({"file": file - starts[of_pair], "delete": index - delete_starts[of_pair]})
        nothing, schema = attached.slice(0, 0), planner.metadata.schema()
        scan = ScanPlan(
            planner.snapshot_id, schema, candidates.files, planner.deletes, nothing, AlwaysTrue(), ScanStats()
        )
        return cls(scan, chosen, used % count, attached, starts, delete_starts, pair_starts)

    def __getitem__(self, group: int) -> ScanPlan:
        files = self.scan_of_all_files.files.take(_slice_of_group(self.file_rows, self.file_starts, group))
        deletes = self.scan_of_all_files.deletes.take(_slice_of_group(self.delete_rows, self.delete_starts, group))
        start, end = self.pair_starts[group : group + 2].tolist()
        stats = ScanStats(files_considered=len(files), **size_counts(files, deletes))
        attached = self.attached.slice(start, end - start)
        return replace(self.scan_of_all_files, files=files, deletes=deletes, attached=attached, stats=stats)


def _slice_of_group(rows: Rows, starts: Rows, group: int) -> Rows:
    return rows[starts[group] : starts[group + 1]]


def _delete_counts_and_shares(
    files: EntryTable, deletes: EntryTable, pairs: pa.Table
) -> tuple[Rows, NDArray[np.float64]]:
    """Return how many delete files apply to each file, and the share of its rows that they delete.

    Only position deletes that name one data file count for the share: only their row counts belong to that file.
    """
    file, delete = pairs["file"].to_numpy(), pairs["delete"].to_numpy()
    count = np.bincount(file, minlength=len(files))
    if not len(file):
        return count, np.zeros(len(files))
    names_one_file = referenced_paths(deletes).is_valid().to_numpy(zero_copy_only=False)
    names_one_file &= deletes.numpy("content") == Content.POSITION_DELETES
    weights = np.where(names_one_file, deletes.numpy("record_count"), 0)[delete]
    deleted, rows = np.bincount(file, weights=weights, minlength=len(files)), files.numpy("record_count")
    return count, np.divide(deleted, rows, out=np.zeros(len(files)), where=rows > 0)
