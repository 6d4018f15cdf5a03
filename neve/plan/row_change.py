"""What a statement that changes rows will do to which files, before anything is read.

The files of the table fall in three: those no row of which can match are left alone; those every row of which matches,
as their partition or their statistics prove, are *whole* and need no look; the others are *read*, and what becomes of
each is known when its matching rows are.

Which files keep their place when they are rewritten: their rows stay in the partition and in the order they have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table.metadata import TableMetadata

from neve.display.format import plural
from neve.display.html import ExplainMixin
from neve.plan.file_filter import RowFilter
from neve.plan.ranges import Mask
from neve.plan.scan import ScanPlan
from neve.tree.entries import EntryTable

Mode = Literal["copy-on-write", "merge-on-read"]


@dataclass(frozen=True)
class ChangePlan(ExplainMixin):
    """Which files of which spec a statement reads, drops, rewrites or gives deletes."""

    statement: str  # as it reads in SQL
    mode: Mode
    isolation: str
    format_version: int
    default_spec_id: int
    read: ScanPlan  # some of the rows may match
    whole: ScanPlan  # every row matches
    keeps_whole: bool  # the rows of whole files are changed and written again; else the files are dropped unread
    row_filter: BooleanExpression  # what rows of interest fulfil, as far as files can be judged by it
    conflict_filter: BooleanExpression  # what another writer must not have added meanwhile
    reads_itself: bool = False  # a subquery reads the table that is changed
    notes: tuple[str, ...] = ()

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot the plan was made on."""
        return self.read.snapshot_id

    @property
    def is_empty(self) -> bool:
        """Whether no file can hold a matching row."""
        return not len(self.read.files) and not len(self.whole.files)

    @property
    def is_metadata_only(self) -> bool:
        """Whether no data file has to be read."""
        return not len(self.read.files) and not self.keeps_whole

    def explain(self) -> str:
        """The plan in words."""
        return "\n".join(self._lines())

    def __str__(self) -> str:
        return self.explain()

    def _lines(self) -> Iterator[str]:
        stats = self.read.stats
        yield self.statement
        yield f"  on         snapshot {self.snapshot_id}, {self.mode}, isolation {self.isolation}"
        untouched = stats.files_considered - len(self.read.files) - len(self.whole.files)
        yield (
            f"  untouched  {untouched} of {plural(stats.files_considered, 'file')}: "
            f"{stats.pruned_by_partition} by partition, {stats.pruned_by_statistics} by statistics"
        )
        yield from self._describe_files(self.whole, "whole", self._fate_of_whole())
        yield from self._describe_files(self.read, "read", self._effect_on_read_files())
        filter_stats = stats.filter
        if filter_stats.unevaluable_specs or filter_stats.fail_open_partitions:
            yield (
                f"  undecided  {plural(filter_stats.fail_open_files, 'file')} of "
                f"{plural(filter_stats.fail_open_partitions, 'partition')} not judged, so read"
            )
        yield f"  new rows   under spec {self.default_spec_id}"
        yield f"  conflicts  {self._describe_conflicts()}"
        yield from (f"  note       {note}" for note in self.notes)

    def _describe_files(self, plan: ScanPlan, word: str, fate: str) -> Iterator[str]:
        if not len(plan.files):
            return
        yield (
            f"  {word:<10} {plural(len(plan.files), 'file')} with {plural(len(plan.deletes), 'delete file')}, up to "
            f"{plural(plan.stats.rows, 'row')}, {plural(plan.stats.bytes, 'byte')}: {fate}"
        )
        for spec_id, files in plan.files.by_spec():
            yield f"    spec {spec_id:<5} {_described(files, spec_id)}"

    def _fate_of_whole(self) -> str:
        return "every row changes, the files are replaced" if self.keeps_whole else "dropped without being read"

    def _effect_on_read_files(self) -> str:
        if self.mode == "copy-on-write":
            return "each that holds a match is rewritten"
        kind = "a deletion vector" if self.format_version >= 3 else "position deletes"
        return f"each that holds a match gets {kind} under its own spec"

    def _describe_conflicts(self) -> str:
        if self.is_metadata_only:
            return "none: what matches as a whole when it commits goes too"
        if self.isolation == "serializable":
            read = "any new rows" if self.conflict_filter is AlwaysTrue() else "new rows that may match"
            return f"with {read}, and with changes of the same files"
        return "with changes of the same files"


def split_fully_matching(
    plan: ScanPlan, predicate: BooleanExpression, metadata: TableMetadata
) -> tuple[ScanPlan, ScanPlan]:
    """A plan in two: the files in which a row may fail an exact predicate, and those in which none does."""
    covered = RowFilter(predicate, metadata, plan.files.specs).must_match(plan.files)
    return plan.only(~covered), plan.only(np.asarray(covered))


def _described(files: EntryTable, spec_id: int) -> str:
    names = ", ".join(f"{f.name} ({f.transform})" for f in files.specs[spec_id].fields)
    rows = plural(int(files.numpy("record_count").sum()), "row")
    return f"{plural(len(files), 'file')} by {names}, {rows}" if names else f"{plural(len(files), 'file')}, {rows}"


def stays_in_partition_and_order(
    files: EntryTable, metadata: TableMetadata, changed_field_ids: Collection[int]
) -> Mask:
    """The files whose rows need not be brought together anew when columns with these field ids change.

    Every row is written under the default spec and in the table's sort order. A file that is there already, in columns
    that do not change, is patched where it is.
    """
    return _stays_in_partition(files, metadata, changed_field_ids) & _stays_in_order(files, metadata, changed_field_ids)


def _stays_in_partition(files: EntryTable, metadata: TableMetadata, changed_field_ids: Collection[int]) -> Mask:
    spec = metadata.spec()
    if files.specs.is_unpartitioned(spec.spec_id):
        return np.ones(len(files), bool)
    if any(field.source_id in changed_field_ids for field in spec.fields):
        return np.zeros(len(files), bool)
    return np.asarray(files.numpy("spec_id") == spec.spec_id)


def _stays_in_order(files: EntryTable, metadata: TableMetadata, changed_field_ids: Collection[int]) -> Mask:
    order = metadata.sort_order_by_id(metadata.default_sort_order_id)
    if order is None or not order.fields:
        return np.ones(len(files), bool)
    if any(field.source_id in changed_field_ids for field in order.fields):
        return np.zeros(len(files), bool)
    return np.asarray(pc.fill_null(files["sort_order_id"], 0).to_numpy() == order.order_id)
