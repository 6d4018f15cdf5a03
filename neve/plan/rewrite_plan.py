"""The plan of a compaction: its groups of files, why each file was chosen or not, and what could not be decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from neve.display.format import plural
from neve.display.html import ExplainMixin
from neve.model.partition import PartitionKey
from neve.plan.partition_filter import Diagnostics, FilterStats
from neve.plan.ranges import Mask
from neve.plan.rewrite_options import RewriteOptions
from neve.plan.scan import ScanPlan
from neve.tree.entries import EntryTable


class SpecMode(StrEnum):
    """The spec of new files."""

    CURRENT = "current"  # the default spec, or the one of `output-spec-id`
    KEEP = "keep"  # the spec of the files they replace
    UPGRADE = "upgrade"  # the target spec; only files of other specs are rewritten


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
        """True for a reason to rewrite the file."""
        return self >= Reason.TOO_SMALL


class GroupScans(Protocol):
    """The scans of all groups of a plan, by number."""

    def __getitem__(self, group: int) -> ScanPlan:
        """Return the files of a group, in order, and the deletes that apply to them."""


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files of one partition that are rewritten together.

    A plan may have a million groups, so a group holds counts, and builds the table of its files when it is asked for.
    """

    group_id: int
    partition: PartitionKey
    index_in_partition: int
    output_spec_id: int
    output_files: int  # expected
    split_size: int  # bytes one task reads
    file_count: int
    delete_file_count: int
    bytes: int  # of its files
    rows: int  # in its files, before deletes
    scans: GroupScans = field(repr=False, compare=False)
    number_in_scans: int = field(repr=False, compare=False)

    @property
    def scan(self) -> ScanPlan:
        """The files, in order, and the deletes that apply to them."""
        return self.scans[self.number_in_scans]

    @property
    def files(self) -> EntryTable:
        """The files of the group."""
        return self.scan.files


@dataclass(frozen=True)
class Unopened:
    """Data files of manifests that were not opened, because none of their partitions can match the filter."""

    manifests: int
    files: int | None  # None: the writer did not count them
    read: Callable[[], EntryTable]  # reads the files on demand


@dataclass(frozen=True)
class RewritePlan(ExplainMixin):
    """The groups that a compaction rewrites; building the plan changes nothing."""

    snapshot_id: int | None
    groups: tuple[FileGroup, ...]
    options: RewriteOptions
    spec_mode: SpecMode
    diagnostics: Diagnostics  # what the filter could not decide, and why
    considered: EntryTable = field(repr=False, compare=False)  # the files of all opened manifests
    reason_codes: NDArray[np.int8] = field(repr=False, compare=False)  # one per considered file
    unopened: Unopened | None = field(default=None, repr=False, compare=False)

    @property
    def files(self) -> int:
        """The number of files to rewrite."""
        return sum(g.file_count for g in self.groups)

    @property
    def bytes(self) -> int:
        """The number of bytes to rewrite."""
        return sum(g.bytes for g in self.groups)

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to do."""
        return not self.groups

    def chosen_files(self) -> EntryTable:
        """Return the files to rewrite."""
        return self.considered.filter(pa.array(is_chosen(self.reason_codes)))

    def reasons(self) -> pa.Table:
        """Return why each file of the table was chosen or not."""
        tables = [_reasons_table(self.considered, self.reason_codes)]
        if self.unopened is not None:
            files = self.unopened.read()
            tables.append(_reasons_table(files, np.full(len(files), Reason.NOT_MATCHING_PARTITION, np.int8)))
        return pa.concat_tables(tables)

    def explain(self) -> str:
        """Describe the plan."""
        return "\n".join(self._lines())

    def __str__(self) -> str:
        return self.explain()

    def _lines(self) -> Iterator[str]:
        if self.is_empty:
            yield "Nothing to rewrite"
        else:
            partitions, new_files = {g.partition for g in self.groups}, sum(g.output_files for g in self.groups)
            yield (
                f"Rewrite {plural(self.files, 'file')}, {plural(self.bytes, 'byte')}, in "
                f"{plural(len(self.groups), 'group')} of {plural(len(partitions), 'partition')} into about "
                f"{plural(new_files, 'file')}"
            )
        yield f"  on       snapshot {self.snapshot_id}"
        yield f"  target   {plural(self.options.target_file_size, 'byte')} a file"
        codes, counts = np.unique(self.reason_codes, return_counts=True)
        for code, count in zip(codes[::-1].tolist(), counts[::-1].tolist(), strict=True):
            reason = Reason(code)
            yield f"  {'takes' if reason.is_chosen else 'leaves':<8} {plural(count, 'file')}: {_REASON_TEXTS[reason]}"
        if self.unopened is not None:
            files = "the files" if self.unopened.files is None else plural(self.unopened.files, "file")
            yield f"  leaves   {files} of {plural(self.unopened.manifests, 'manifest')} that need not be opened"
        yield from (f"  unclear  {line}" for line in self.diagnostics.lines())


@dataclass(frozen=True)
class RewritePlanningResult(ExplainMixin):
    """A plan, and how often its filter kept files because it could not be evaluated for them."""

    plan: RewritePlan
    filter_stats: FilterStats
    has_filter: bool = False

    def explain(self) -> str:
        """Describe the plan and count what its filter, if any, could not decide."""
        if not self.has_filter:
            return self.plan.explain()
        s = self.filter_stats
        return (
            f"{self.plan.explain()}\n  filter   {plural(s.unevaluable_specs, 'spec')} cannot express it, "
            f"{plural(s.eval_errors, 'partition')} failed; {plural(s.fail_open_files, 'file')} of "
            f"{plural(s.fail_open_partitions, 'partition')} taken undecided"
        )


RewriteDataFilesPlan = RewritePlan
"""The plan, named after its verb."""

RewriteDataFilesPlanningResult = RewritePlanningResult
"""The result of planning, named after its verb."""

_REASON_TEXTS = {
    Reason.NOT_MATCHING_PARTITION: "the partition does not match the filter",
    Reason.NOT_MATCHING_STATISTICS: "the statistics do not match the filter",
    Reason.WELL_SIZED: "of a good size",
    Reason.IN_TARGET_SPEC: "under the target spec",
    Reason.GROUP_TOO_SMALL: "too few in the partition",
    Reason.OVER_MAX_FILES: "beyond max-files-to-rewrite",
    Reason.TOO_SMALL: "smaller than min-file-size-bytes",
    Reason.TOO_LARGE: "larger than max-file-size-bytes",
    Reason.DELETE_FILES: "delete-file-threshold delete files apply, or more",
    Reason.DELETED_ROWS: "delete-ratio-threshold of the rows are deleted, or more",
    Reason.OTHER_SPEC: "under another spec than the target",
    Reason.REWRITE_ALL: "rewrite-all",
}


def is_chosen(codes: NDArray[np.int8]) -> Mask:
    """Return which codes are reasons to rewrite a file."""
    return np.asarray(codes >= Reason.TOO_SMALL)


def _reasons_table(files: EntryTable, codes: NDArray[np.int8]) -> pa.Table:
    names = {int(r): r.name.lower().replace("_", "-") for r in Reason}
    name_by_code = pa.array([names.get(code) for code in range(max(names) + 1)])
    return pa.table(
        {
            "file_path": files["file_path"],
            "spec_id": files["spec_id"],
            "file_size_in_bytes": files["file_size_in_bytes"],
            "is_chosen": pa.array(is_chosen(codes)),
            "reason": name_by_code.take(pa.array(codes)),
        }
    )
