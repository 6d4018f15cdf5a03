"""Which files a compaction rewrites, in which groups: pure, by columns, and the same for the same table.

The steps of a plan: files are judged by the partition filter under their own spec, then by statistics; delete files
find their data files, and are counted; files become candidates by size, by deletes, or by their spec; candidates are
grouped by partition, packed, groups not worth it are dropped, the rest is ordered, and deletes are attached.

The filter chooses files, never rows: all rows of a chosen file are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table.metadata import TableMetadata

from neve.model.partition import PartitionKey
from neve.plan.delete_index import attach, referenced_paths
from neve.plan.packing import Packed, in_fixed_order, packed
from neve.plan.partition_filter import FilterStats, PartitionFilter, Verdict
from neve.plan.ranges import Mask
from neve.plan.rewrite_options import RewriteOptions
from neve.plan.scan import ScanPlan, ScanStats, filter_metrics
from neve.tree.entries import Content, EntryTable

__all__ = ["FileGroup", "Reason", "RewritePlan", "RewritePlanningResult", "SpecMode", "plan_rewrite"]


class SpecMode(StrEnum):
    """Under which spec new files are written."""

    CURRENT = "current"  # the default spec, or the one of `output-spec-id`
    KEEP = "keep"  # that of the files they replace
    UPGRADE = "upgrade"  # the target; only files that are not under it yet are taken


class Reason(IntEnum):
    """Why a file was chosen or not."""

    NOT_MATCHING_PARTITION = 0
    NOT_MATCHING_STATISTICS = 1
    WELL_SIZED = 2
    IN_TARGET_SPEC = 3
    GROUP_TOO_SMALL = 4
    OVER_MAX_FILES = 5
    TOO_SMALL = 10
    TOO_LARGE = 11
    DELETE_FILES = 12
    DELETED_ROWS = 13
    OTHER_SPEC = 14
    REWRITE_ALL = 15

    @property
    def is_chosen(self) -> bool:
        """Whether it is a reason to rewrite the file."""
        return self >= Reason.TOO_SMALL


@dataclass(frozen=True)
class FileGroup:
    """Files of one partition that are rewritten together."""

    group_id: int
    partition: PartitionKey
    index_in_partition: int
    scan: ScanPlan  # the files, in order, and the deletes that apply to them
    output_spec_id: int
    output_files: int  # expected
    split_size: int  # bytes one task reads

    @property
    def files(self) -> EntryTable:
        """The files of the group."""
        return self.scan.files

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return self.scan.stats.bytes

    @property
    def rows(self) -> int:
        """The rows of its files, before deletes."""
        return self.scan.stats.rows


@dataclass(frozen=True)
class RewritePlan:
    """The groups a compaction rewrites; a value: making it touches nothing."""

    snapshot_id: int | None
    groups: tuple[FileGroup, ...]
    options: RewriteOptions
    spec_mode: SpecMode
    considered: EntryTable = field(repr=False)  # the files whose manifests were opened
    reason_codes: NDArray[np.int8] = field(repr=False)  # of each of them
    unopened: Callable[[], EntryTable] | None = field(default=None, repr=False)  # files of manifests that were pruned

    @property
    def files(self) -> int:
        """How many files are rewritten."""
        return sum(len(g.files) for g in self.groups)

    @property
    def bytes(self) -> int:
        """How many bytes are rewritten."""
        return sum(g.bytes for g in self.groups)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.groups

    def reasons(self) -> pa.Table:
        """For every file of the table why it was chosen or not."""
        parts = [_reasons(self.considered, self.reason_codes)]
        if self.unopened is not None:
            rest = self.unopened()
            parts.append(_reasons(rest, np.full(len(rest), Reason.NOT_MATCHING_PARTITION, np.int8)))
        return pa.concat_tables(parts)

    def explain(self) -> str:
        """The plan in words."""
        return "\n".join(self._lines())

    def __str__(self) -> str:
        return self.explain()

    def _lines(self) -> Iterator[str]:
        partitions = {g.partition for g in self.groups}
        yield (
            f"Rewrite {self.files} files, {self.bytes} bytes, in {len(self.groups)} groups of {len(partitions)} "
            f"partitions into about {sum(g.output_files for g in self.groups)} files"
        )
        yield f"  on       snapshot {self.snapshot_id}"
        yield f"  target   {self.options.target_file_size} bytes a file"
        for reason, count in self._counts():
            yield f"  {'takes' if reason.is_chosen else 'leaves':<8} {count} files: {_WORDS[reason]}"

    def _counts(self) -> Iterator[tuple[Reason, int]]:
        found, counts = np.unique(self.reason_codes, return_counts=True)
        for code, count in zip(found[::-1], counts[::-1], strict=True):
            yield Reason(int(code)), int(count)


@dataclass(frozen=True)
class RewritePlanningResult:
    """A plan, and how often its filter had to keep files it could not judge."""

    plan: RewritePlan
    filter_stats: FilterStats


_WORDS = {
    Reason.NOT_MATCHING_PARTITION: "their partition does not match the filter",
    Reason.NOT_MATCHING_STATISTICS: "their statistics do not match the filter",
    Reason.WELL_SIZED: "they are of a good size",
    Reason.IN_TARGET_SPEC: "they are under the target spec",
    Reason.GROUP_TOO_SMALL: "too few of them in their partition",
    Reason.OVER_MAX_FILES: "beyond max-files-to-rewrite",
    Reason.TOO_SMALL: "smaller than min-file-size-bytes",
    Reason.TOO_LARGE: "larger than max-file-size-bytes",
    Reason.DELETE_FILES: "delete-file-threshold delete files apply, or more",
    Reason.DELETED_ROWS: "delete-ratio-threshold of their rows are deleted, or more",
    Reason.OTHER_SPEC: "they are under another spec than the target",
    Reason.REWRITE_ALL: "rewrite-all",
}


def plan_rewrite(
    data: EntryTable,
    deletes: EntryTable,
    metadata: TableMetadata,
    options: RewriteOptions,
    *,
    partitions: PartitionFilter,
    spec_mode: SpecMode = SpecMode.CURRENT,
    snapshot_id: int | None = None,
    unopened: Callable[[], EntryTable] | None = None,
) -> RewritePlanningResult:
    """The plan of a compaction over the tracked files of a snapshot."""
    return _Planning(data, deletes, metadata, options, partitions, spec_mode, snapshot_id, unopened).result()


@dataclass(frozen=True)
class _Planning:
    data: EntryTable
    deletes: EntryTable
    metadata: TableMetadata
    options: RewriteOptions
    partitions: PartitionFilter
    spec_mode: SpecMode
    snapshot_id: int | None
    unopened: Callable[[], EntryTable] | None

    def result(self) -> RewritePlanningResult:
        verdict = self.partitions.judge(self.data)
        codes = np.full(len(self.data), Reason.NOT_MATCHING_PARTITION, np.int8)
        matching = self._matching(verdict, codes)
        files = self.data.take(matching)
        pairs = attach(files, self.deletes)
        codes[matching] = self._candidates(files, pairs)
        candidate = _is_chosen(codes[matching])
        stats = verdict.counting(_mask(len(self.data), matching[candidate]))
        groups, left_out = self._groups(files, pairs, np.flatnonzero(candidate), codes[matching])
        codes[matching[left_out[0]]] = Reason.GROUP_TOO_SMALL
        codes[matching[left_out[1]]] = Reason.OVER_MAX_FILES
        plan = RewritePlan(self.snapshot_id, groups, self.options, self.spec_mode, self.data, codes, self.unopened)
        return RewritePlanningResult(plan, stats)

    def _matching(self, verdict: Verdict, codes: NDArray[np.int8]) -> NDArray[np.int64]:
        """The rows of files that may match by partition and by statistics."""
        rows = np.flatnonzero(verdict.keep)
        if self.partitions.predicate is AlwaysTrue():
            return rows
        numbered = EntryTable(self.data.take(rows).columns.append_column("place", pa.array(rows)), self.data.specs)
        kept = filter_metrics(numbered, self.partitions)["place"].to_numpy()
        codes[np.setdiff1d(rows, kept, assume_unique=True)] = Reason.NOT_MATCHING_STATISTICS
        return np.asarray(kept, np.int64)

    def _candidates(self, files: EntryTable, pairs: pa.Table) -> NDArray[np.int8]:
        """Of each file the first reason to take it, or the reason to leave it."""
        o, size = self.options, files.numpy("file_size_in_bytes")
        if self.spec_mode is SpecMode.UPGRADE:
            elsewhere = files.numpy("spec_id") != self._target_spec
            return np.where(elsewhere, Reason.OTHER_SPEC, Reason.IN_TARGET_SPEC).astype(np.int8)
        if o.rewrite_all:
            return np.full(len(files), Reason.REWRITE_ALL, np.int8)
        count, share = self._deleted(files, pairs)
        tests = [
            size < o.min_file_size,
            size > o.max_file_size,
            count >= o.delete_file_threshold,
            share >= o.delete_ratio_threshold,
        ]
        reasons = [Reason.TOO_SMALL, Reason.TOO_LARGE, Reason.DELETE_FILES, Reason.DELETED_ROWS]
        return np.select(tests, [int(r) for r in reasons], default=int(Reason.WELL_SIZED)).astype(np.int8)

    def _deleted(self, files: EntryTable, pairs: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Of each file how many delete files apply, and which share of its rows those that are about it alone take."""
        file, delete = pairs["file"].to_numpy(), pairs["delete"].to_numpy()
        count = np.bincount(file, minlength=len(files))
        if not len(file):
            return count, np.zeros(len(files))
        alone = referenced_paths(self.deletes).is_valid().to_numpy(zero_copy_only=False)
        alone &= self.deletes.numpy("content") == Content.POSITION_DELETES
        rows = np.where(alone, self.deletes.numpy("record_count"), 0)
        dead = np.bincount(file, weights=rows[delete], minlength=len(files))
        live = files.numpy("record_count")
        share = np.divide(np.minimum(dead, live), live, out=np.zeros(len(files)), where=live > 0)
        return count, share

    def _groups(
        self, files: EntryTable, pairs: pa.Table, candidates: NDArray[np.int64], codes: NDArray[np.int8]
    ) -> tuple[tuple[FileGroup, ...], tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """The groups in the order they run, and the candidates that are in none: too few, and beyond the cap."""
        order, partitions = in_fixed_order(files.take(candidates))
        rows = candidates[order]
        sizes = files.numpy("file_size_in_bytes")[rows]
        all_groups = packed(sizes, partitions, self.options.max_group_size, self.options.max_group_files)
        worth = self._is_worth_it(all_groups, sizes, codes[rows])
        kept, cut = _capped(all_groups.only(worth), self.options.max_files)
        too_small = _rows_of(all_groups.only(~worth), rows)
        beyond = np.setdiff1d(_rows_of(all_groups.only(worth), rows), _rows_of(kept, rows))
        chosen = kept.only(_job_order(kept, sizes, self.options.job_order))
        scans = _Scans(files, self.deletes, pairs, self.metadata, self.snapshot_id)
        groups = tuple(
            self._group(n, int(chosen.index[n]), scans.of(rows[chosen.starts[n] : chosen.ends[n]]))
            for n in range(len(chosen))
        )
        del cut
        return groups, (too_small, beyond)

    def _group(self, group_id: int, index: int, scan: ScanPlan) -> FileGroup:
        size = scan.stats.bytes
        spec_id = scan.files["spec_id"][0].as_py() if self.spec_mode is SpecMode.KEEP else self._target_spec
        return FileGroup(
            group_id,
            scan.files.partition_key(0),
            index,
            scan,
            spec_id,
            self.options.output_files(size),
            self.options.split_size(size),
        )

    def _is_worth_it(self, groups: Packed, sizes: NDArray[np.int64], codes: NDArray[np.int8]) -> Mask:
        o = self.options
        if o.rewrite_all or self.spec_mode is SpecMode.UPGRADE:
            return np.ones(len(groups), bool)
        size, count = groups.sums(sizes), groups.counts
        by_deletes = groups.sums(np.isin(codes, (Reason.DELETE_FILES, Reason.DELETED_ROWS)).astype(np.int64)) > 0
        several = count >= 2
        return (
            (several & (count >= o.min_input_files))
            | (several & (size > o.target_file_size))
            | (size > o.max_file_size)
            | by_deletes
        )

    @property
    def _target_spec(self) -> int:
        wanted = self.options.output_spec_id
        return self.metadata.default_spec_id if wanted is None else wanted


@dataclass(frozen=True)
class _Scans:
    """Scan plans of some of the files, with the deletes that apply to them."""

    files: EntryTable
    deletes: EntryTable
    pairs: pa.Table  # sorted by file
    metadata: TableMetadata
    snapshot_id: int | None

    def of(self, rows: NDArray[np.int64]) -> ScanPlan:
        """The plan that reads some files, in the order given."""
        file, delete = self.pairs["file"].to_numpy(), self.pairs["delete"].to_numpy()
        starts, ends = np.searchsorted(file, rows, "left"), np.searchsorted(file, rows, "right")
        counts = ends - starts
        places = np.repeat(np.arange(len(rows)), counts)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        found = delete[np.repeat(starts, counts) + within]
        used, renumbered = np.unique(found, return_inverse=True)
        files, deletes = self.files.take(rows), self.deletes.take(used)
        stats = ScanStats(
            files_considered=len(files),
            files=len(files),
            rows=int(pc.sum(files["record_count"]).as_py() or 0),
            bytes=int(pc.sum(files["file_size_in_bytes"]).as_py() or 0),
            delete_files=len(deletes),
        )
        attached = pa.table({"file": pa.array(places, pa.int64()), "delete": pa.array(renumbered, pa.int64())})
        schema = self.metadata.schema()
        return ScanPlan(self.snapshot_id, schema, files, deletes, attached, AlwaysTrue(), stats)


def _capped(groups: Packed, most: int | None) -> tuple[Packed, bool]:
    """The first groups that together hold at most so many files, the last one cut to fit."""
    if most is None or int(groups.counts.sum()) <= most:
        return groups, False
    before = np.cumsum(groups.counts) - groups.counts
    kept = groups.only(before < most)
    room = most - int(before[len(kept) - 1])
    ends = kept.ends.copy()
    ends[-1] = min(int(ends[-1]), int(kept.starts[-1]) + room)
    return Packed(kept.starts, ends, kept.partition, kept.index), True


def _job_order(groups: Packed, sizes: NDArray[np.int64], order: str) -> NDArray[np.int64]:
    """The order in which groups run; equal ones stay as they are."""
    keys = {"bytes": groups.sums(sizes), "files": groups.counts}
    what, _, direction = order.partition("-")
    if what not in keys:
        return np.arange(len(groups))
    key = keys[what]
    return np.argsort(key if direction == "asc" else -key, kind="stable")


def _rows_of(groups: Packed, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    parts = [rows[s:e] for s, e in zip(groups.starts.tolist(), groups.ends.tolist(), strict=True)]
    return np.concatenate(parts) if parts else rows[:0]


def _is_chosen(codes: NDArray[np.int8]) -> Mask:
    return np.asarray(codes >= Reason.TOO_SMALL)


def _mask(length: int, rows: NDArray[np.int64]) -> Mask:
    mask = np.zeros(length, bool)
    mask[rows] = True
    return mask


def _reasons(files: EntryTable, codes: NDArray[np.int8]) -> pa.Table:
    names = pa.array([r.name.lower().replace("_", "-") for r in Reason])
    place = {int(r): n for n, r in enumerate(Reason)}
    at = np.array([place.get(code, 0) for code in range(int(max(Reason)) + 1)], np.int32)
    return pa.table(
        {
            "file_path": files["file_path"],
            "spec_id": files["spec_id"],
            "file_size_in_bytes": files["file_size_in_bytes"],
            "is_chosen": pa.array(_is_chosen(codes)),
            "reason": names.take(pa.array(at[codes])),
        }
    )
