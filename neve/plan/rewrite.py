"""Which files a compaction rewrites, in which groups: pure, by columns, and the same for the same table.

The steps of a plan: files are judged by the partition filter under their own spec, then by statistics; delete files
find their data files, and are counted; files become candidates by size, by deletes, or by their spec; candidates are
grouped by partition, packed, groups not worth it are dropped, the rest is ordered, and deletes are attached.

The filter chooses files, never rows: all rows of a chosen file are kept.
"""

from __future__ import annotations

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
from neve.plan.scan import ScanPlan, ScanStats
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
    """The plan of a compaction over the tracked files of a snapshot.

    `judged_in_part` is the condition, when the filter says less than it. The plan does not depend on the order in which
    the files are given.
    """
    planning = _RewritePlanner(
        data.live(), _in_fixed_order(deletes.live()), metadata, options, partitions, spec_mode, snapshot_id
    )
    return planning.plan(unopened, judged_in_part)


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
        codes[rows], groups = self._plan_matching_files(self.data.take(rows))
        candidates = (codes == Reason.GROUP_TOO_SMALL) | (codes == Reason.OVER_MAX_FILES) | is_chosen(codes)
        diagnostics = verdict.diagnostics(candidates, judged_in_part)
        plan = RewritePlan(
            self.snapshot_id, groups, self.options, self.spec_mode, diagnostics, self.data, codes, unopened
        )
        has_filter = self.partitions.predicate is not AlwaysTrue() or judged_in_part is not None
        return RewritePlanningResult(plan, verdict.stats_for(candidates), has_filter)

    def _plan_matching_files(self, files: EntryTable) -> tuple[NDArray[np.int8], tuple[FileGroup, ...]]:
        """The reason for each file of a partition that matches, and the groups of those that are chosen."""
        codes = np.full(len(files), Reason.NOT_MATCHING_STATISTICS, np.int8)
        rows = np.flatnonzero(self._may_match(files))
        candidates = _Candidates.of(self, files.take(rows))
        groups, codes[rows] = candidates.build_groups()
        return codes, groups

    def _may_match(self, files: EntryTable) -> Mask:
        """The files whose statistics do not rule out a matching row."""
        if self.partitions.predicate is AlwaysTrue():
            return np.ones(len(files), bool)
        return metrics_filter.may_match(files, self.partitions.predicate)

    @property
    def target_spec_id(self) -> int:
        """The spec new files are written under, unless they keep that of the files they replace."""
        wanted = self.options.output_spec_id
        return self.metadata.default_spec_id if wanted is None else wanted


@dataclass(frozen=True)
class _Candidates:
    """Files that match the filter, and what speaks for rewriting each."""

    planner: _RewritePlanner
    files: EntryTable
    pairs: pa.Table  # file, delete: which delete files apply, sorted by file
    reason_codes: NDArray[np.int8]
    exceeds_delete_threshold: Mask  # enough of the file is deleted, whatever else speaks for it

    @classmethod
    def of(cls, planner: _RewritePlanner, files: EntryTable) -> _Candidates:
        pairs = match_deletes(files, planner.deletes)
        o, size = planner.options, files.numpy("file_size_in_bytes")
        count, share = _delete_counts_and_shares(files, planner.deletes, pairs)
        by_count, by_share = count >= o.delete_file_threshold, share >= o.delete_ratio_threshold
        if planner.spec_mode is SpecMode.UPGRADE:
            elsewhere = files.numpy("spec_id") != planner.target_spec_id
            codes = np.where(elsewhere, Reason.OTHER_SPEC, Reason.IN_TARGET_SPEC)
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
        """The groups in the order they run, and the reason for each file in the end."""
        o = self.planner.options
        rows, partitions = sort_by_partition_and_size(self.files, np.flatnonzero(is_chosen(self.reason_codes)))
        sizes = self.files.numpy("file_size_in_bytes")[rows]
        every = pack_files(sizes, partitions, o.max_group_size, o.max_group_files)
        worth = every.select(self._is_worth_rewriting(every, sizes, self.exceeds_delete_threshold[rows]))
        kept = worth if o.max_files is None else worth.limit_files(o.max_files)
        codes = self.reason_codes.copy()
        codes[rows] = Reason.GROUP_TOO_SMALL
        codes[rows[worth.rows()]] = Reason.OVER_MAX_FILES
        codes[rows[kept.rows()]] = self.reason_codes[rows[kept.rows()]]
        return self._groups(kept, rows, _job_order(kept, sizes, o.job_order)), codes

    def scan(self, rows: Rows, deletes: Rows, attached: pa.Table) -> ScanPlan:
        """A scan of some of the files and some of the delete files."""
        schema, found = self.planner.metadata.schema(), self.planner.deletes.take(deletes)
        files = self.files.take(rows)
        return ScanPlan(self.planner.snapshot_id, schema, files, found, attached, AlwaysTrue(), ScanStats())

    def _is_worth_rewriting(self, groups: GroupSlices, sizes: Rows, is_deleted: Mask) -> Mask:
        o = self.planner.options
        if o.rewrite_all or self.planner.spec_mode is SpecMode.UPGRADE:
            return np.ones(len(groups), bool)
        size, count = groups.sums(sizes), groups.file_counts
        enough = (count >= o.min_input_files) | (size > o.target_file_size)
        has_deleted = groups.sums(is_deleted.astype(np.int64)) > 0
        return ((count >= 2) & enough) | (size > o.max_file_size) | has_deleted

    def _groups(self, groups: GroupSlices, rows: Rows, order: Rows) -> tuple[FileGroup, ...]:
        scans, index = _GroupScans.of(self, groups, rows), groups.index_in_partition
        return tuple(self._build_group(n, int(index[at]), scans[at]) for n, at in enumerate(order.tolist()))

    def _build_group(self, group_id: int, index: int, scan: ScanPlan) -> FileGroup:
        options, partition = self.planner.options, scan.files.partition_key(0)
        keeps_spec = self.planner.spec_mode is SpecMode.KEEP
        return FileGroup(
            group_id,
            partition,
            index,
            scan,
            partition.spec_id if keeps_spec else self.planner.target_spec_id,
            options.output_files(scan.stats.bytes),
            options.split_size(scan.stats.bytes),
        )


@dataclass(frozen=True)
class _GroupScans:
    """The files of every group and the deletes that apply, put in order once; a group is a stretch of each."""

    scan_of_all_groups: ScanPlan
    file_starts: Rows  # where the files of each group start, and one beyond the last
    delete_starts: Rows
    pair_starts: Rows

    @classmethod
    def of(cls, candidates: _Candidates, groups: GroupSlices, rows: Rows) -> _GroupScans:
        """The scans of groups, which are stretches of the rows."""
        chosen = rows[groups.rows()]
        group, starts = np.repeat(np.arange(len(groups)), groups.file_counts), _starts(groups.file_counts)
        file, delete = _pairs_of(chosen, candidates.pairs)
        of_pair, count = group[file], max(len(candidates.planner.deletes), 1)
        used, place = np.unique(of_pair * count + delete, return_inverse=True)  # a delete file once for each group
        deletes = np.searchsorted(used, np.arange(len(groups) + 1) * count)
        pairs = np.searchsorted(of_pair, np.arange(len(groups) + 1))
        attached = {"file": file - starts[of_pair], "delete": place - deletes[of_pair]}
        whole = candidates.scan(chosen, used % count, pa.table(attached))
        return cls(whole, starts, deletes, pairs)

    def __getitem__(self, group: int) -> ScanPlan:
        files = _slice_of_group(self.scan_of_all_groups.files, self.file_starts, group)
        deletes = _slice_of_group(self.scan_of_all_groups.deletes, self.delete_starts, group)
        start, end = self.pair_starts[group : group + 2].tolist()
        stats = ScanStats(
            files_considered=len(files),
            files=len(files),
            rows=int(pc.sum(files["record_count"]).as_py() or 0),
            bytes=int(pc.sum(files["file_size_in_bytes"]).as_py() or 0),
            delete_files=len(deletes),
        )
        attached = self.scan_of_all_groups.attached.slice(start, end - start)
        return replace(self.scan_of_all_groups, files=files, deletes=deletes, attached=attached, stats=stats)


def _slice_of_group(entries: EntryTable, starts: Rows, group: int) -> EntryTable:
    start, end = starts[group : group + 2].tolist()
    return EntryTable(entries.columns.slice(start, end - start), entries.specs)


def _starts(counts: Rows) -> Rows:
    return np.concatenate([[0], np.cumsum(counts)])


def _pairs_of(files: Rows, pairs: pa.Table) -> tuple[Rows, Rows]:
    """The pairs of some files, which are numbered anew in the order given."""
    file, delete = pairs["file"].to_numpy(), pairs["delete"].to_numpy()
    found = GroupSlices(np.searchsorted(file, files, "left"), np.searchsorted(file, files, "right"), files)
    return np.repeat(np.arange(len(files)), found.file_counts), delete[found.rows()]


def _delete_counts_and_shares(
    files: EntryTable, deletes: EntryTable, pairs: pa.Table
) -> tuple[Rows, NDArray[np.float64]]:
    """Of each file how many delete files apply, and which share of its rows those that are about it alone take."""
    file, delete = pairs["file"].to_numpy(), pairs["delete"].to_numpy()
    count = np.bincount(file, minlength=len(files))
    if not len(file):
        return count, np.zeros(len(files))
    is_alone = referenced_paths(deletes).is_valid().to_numpy(zero_copy_only=False)
    is_alone &= deletes.numpy("content") == Content.POSITION_DELETES
    dead = np.bincount(file, weights=np.where(is_alone, deletes.numpy("record_count"), 0)[delete], minlength=len(files))
    rows = files.numpy("record_count")
    return count, np.divide(dead, rows, out=np.zeros(len(files)), where=rows > 0)


def _in_fixed_order(deletes: EntryTable) -> EntryTable:
    """Delete files by path; vectors of one Puffin file by where they are in it."""
    by = [("file_path", "ascending"), ("content_offset", "ascending")]
    return deletes.take(pc.sort_indices(deletes.columns.select([name for name, _ in by]), sort_keys=by))


def _job_order(groups: GroupSlices, sizes: NDArray[np.int64], order: str) -> NDArray[np.int64]:
    """The order in which groups run; equal ones stay as they are."""
    keys = {"bytes": groups.sums(sizes), "files": groups.file_counts}
    what, _, direction = order.partition("-")
    if what not in keys:
        return np.arange(len(groups))
    key = keys[what]
    return np.argsort(key if direction == "asc" else -key, kind="stable")
