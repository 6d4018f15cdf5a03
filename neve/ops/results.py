"""What verbs return: counts of what they changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa

from neve.display.format import plural
from neve.display.html import SummaryMixin
from neve.errors import UserError
from neve.model.partition import PartitionKey
from neve.plan.partition_filter import FilterStats


@dataclass(frozen=True, slots=True)
class WriteResult(SummaryMixin):
    """What a write changed. Without a change, no snapshot is made.

    >>> WriteResult(1, rows_added=1204, files_added=2, files_removed=1).summary, WriteResult(None).summary
    ('1,204 rows added, 2 files added, 1 file removed', 'nothing to write')
    """

    snapshot_id: int | None
    rows_added: int = 0
    files_added: int = 0
    bytes_added: int = 0
    files_added_by_spec: Mapping[int, int] = field(default_factory=dict)
    files_removed: int = 0
    rows_removed: int = 0
    attempts: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """What happened, in a few words."""
        counts = [
            (self.rows_added, "row", "added"),
            (self.files_added, "file", "added"),
            (self.rows_removed, "row", "removed"),
            (self.files_removed, "file", "removed"),
        ]
        return _describe_counts(counts) or (
            "nothing to write" if self.snapshot_id is None else "nothing added or removed"
        )


@dataclass(frozen=True, slots=True)
class AddFilesResult(SummaryMixin):
    """What adding files changed; the files stay where they are.

    >>> AddFilesResult(1, rows_added=1204, files_added=2, partitions_changed=2).summary
    '1,204 rows added, 2 files added to 2 partitions'
    """

    snapshot_id: int | None
    rows_added: int = 0
    files_added: int = 0
    bytes_added: int = 0
    partitions_changed: int = 0
    attempts: int = 0
    reruns: int = 0  # how often the files were looked at again after a conflict with a concurrent writer
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """What happened, in a few words."""
        files, partitions = plural(self.files_added, "file"), plural(self.partitions_changed, "partition")
        return f"{plural(self.rows_added, 'row')} added, {files} added to {partitions}"

    @property
    def output_rows(self) -> pa.Table:
        """The row that Iceberg's procedure returns."""
        return one_row(
            added_files_count=pa.scalar(self.files_added, pa.int64()),
            changed_partition_count=pa.scalar(self.partitions_changed, pa.int64()),
        )


@dataclass(frozen=True, slots=True)
class ChangeResult(SummaryMixin):
    """What a statement changed. If no row matched, no snapshot is made."""

    snapshot_id: int | None
    mode: str = ""
    rows_updated: int = 0
    rows_deleted: int = 0
    rows_inserted: int = 0
    rows_copied: int = 0  # unchanged rows of files that were rewritten
    files_scanned: int = 0
    files_added: int = 0
    files_removed: int = 0
    delete_files_added: int = 0
    delete_files_removed: int = 0
    bytes_added: int = 0
    files_added_by_spec: Mapping[int, int] = field(default_factory=dict)
    bytes_added_by_spec: Mapping[int, int] = field(default_factory=dict)
    files_removed_by_spec: Mapping[int, int] = field(default_factory=dict)
    delete_files_added_by_spec: Mapping[int, int] = field(default_factory=dict)
    attempts: int = 0
    reruns: int = 0  # how often the statement ran again after a conflict with a concurrent writer
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """What happened, in a few words."""
        counts = [
            (self.rows_updated, "row", "updated"),
            (self.rows_deleted, "", "deleted"),
            (self.rows_inserted, "", "inserted"),
            (self.rows_copied, "", "copied"),
            (self.files_added, "file", "added"),
            (self.files_removed, "file", "removed"),
            (self.delete_files_added, "delete file", "added"),
        ]
        return _describe_counts(counts) or "nothing matched"


@dataclass(frozen=True, slots=True)
class UpdateResult(ChangeResult):
    """What an UPDATE changed."""


@dataclass(frozen=True, slots=True)
class DeleteResult(ChangeResult):
    """What a DELETE changed."""


@dataclass(frozen=True, slots=True)
class MergeResult(ChangeResult):
    """What a MERGE changed."""

    rows_by_clause: tuple[int, ...] = ()  # of each clause, in the order they were given
    pruned_by_source: bool = False  # the keys of the source ruled out files of the table


@dataclass(frozen=True, slots=True)
class GroupResult(SummaryMixin):
    """What happened to one group of a compaction."""

    group_id: int
    index_in_partition: int
    partition: PartitionKey
    files_rewritten: int
    files_added: int | None  # None: its rows are in files shared with other groups
    failure: str | None = None
    bytes_rewritten: int = 0
    rows_before: int = 0  # of the files, before deletes
    checksum: str | None = None  # of the live rows, equal before and after; only if it was requested


@dataclass(frozen=True, slots=True)
class RewriteResult(SummaryMixin):
    """What a compaction did."""

    snapshot_ids: tuple[int, ...] = ()
    groups: tuple[GroupResult, ...] = ()
    files_added: int = 0
    bytes_added: int = 0
    delete_files_removed: int = 0  # deletion vectors of the replaced files, and dangling deletes if that was requested
    failed_groups: tuple[GroupResult, ...] = ()
    failed_commits: int = 0
    races: int = 0  # how often groups were planned again after a conflict with a concurrent writer
    filter_stats: FilterStats = field(default_factory=FilterStats)
    seconds: float = 0.0

    @property
    def files_rewritten(self) -> int:
        """The number of replaced files."""
        return sum(g.files_rewritten for g in self.groups)

    @property
    def bytes_rewritten(self) -> int:
        """The number of replaced bytes."""
        return sum(g.bytes_rewritten for g in self.groups)

    @property
    def files_failed(self) -> int:
        """The number of files of failed groups; they stay as they were."""
        return sum(g.files_rewritten for g in self.failed_groups)

    @property
    def output_rows(self) -> pa.Table:
        """The row that Iceberg's procedure returns."""
        return one_row(
            rewritten_data_files_count=pa.scalar(self.files_rewritten, pa.int32()),
            added_data_files_count=pa.scalar(self.files_added, pa.int32()),
            rewritten_bytes_count=pa.scalar(self.bytes_rewritten, pa.int64()),
            failed_data_files_count=pa.scalar(self.files_failed, pa.int32()),
            removed_delete_files_count=pa.scalar(self.delete_files_removed, pa.int32()),
        )

    @property
    def summary(self) -> str:
        """What happened, in a few words."""
        if not self.groups and not self.failed_groups:
            return "nothing to rewrite"
        failed = f", {plural(len(self.failed_groups), 'group')} failed" if self.failed_groups else ""
        groups = plural(len(self.groups), "group")
        return f"{plural(self.files_rewritten, 'file')} rewritten to {self.files_added} in {groups}{failed}"


def one_row(**values: pa.Scalar) -> pa.Table:
    """Return a table with one row.

    >>> one_row(added_manifests_count=pa.scalar(2, pa.int32())).to_pylist()
    [{'added_manifests_count': 2}]
    """
    return pa.table({name: pa.array([value.as_py()], value.type) for name, value in values.items()})


def _describe_counts(counts: list[tuple[int, str, str]]) -> str:
    """Join the counts that are not zero; an empty noun means the same things as in the count before."""
    return ", ".join(f"{plural(count, noun) if noun else f'{count:,}'} {done}" for count, noun, done in counts if count)


def milliseconds(time: datetime | int, name: str) -> int:
    """Convert a point in time to milliseconds since 1970; `name` is its name in errors."""
    try:
        value = round(time.timestamp() * 1000) if isinstance(time, datetime) else time
    except (OverflowError, ValueError):
        raise UserError(f"Cannot use {name} {time}: its clock has no such time.") from None
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        return value
    if isinstance(value, int):
        raise UserError(f"Cannot use {name} {value}: give milliseconds since 1970.")
    raise UserError(f"Give {name} as a datetime or as milliseconds since 1970, not as {type(time).__name__}.")
