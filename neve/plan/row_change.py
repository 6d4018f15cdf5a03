"""Plan which files a statement that changes rows touches, before any data is read.

The files of the table fall into three groups. Files without a possible match stay untouched. Files in which every row
matches, as their partition or statistics prove, are *whole* and need not be read. The other files are *read*; what
happens to each depends on its matching rows.

The module also finds the files that are rewritten in place, because their rows keep their partition and their order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import extract_field_ids
from pyiceberg.table.metadata import TableMetadata

from neve.display.format import plural
from neve.display.html import ExplainMixin
from neve.model.pyiceberg_private import fields_by_id
from neve.plan.file_filter import RowFilter
from neve.plan.ranges import Mask
from neve.plan.row_estimate import RowEstimate
from neve.plan.scan import ScanPlan
from neve.predicate import Predicate
from neve.predicate.normalize import normalize_and_bind
from neve.tree.entries import EntryTable

Mode = Literal["copy-on-write", "merge-on-read"]

MAX_ARROW_BYTES = 512 << 20  # of compared columns in files, that one process evaluates


@dataclass(frozen=True)
class Judge:
    """Who evaluates the condition of a statement for rows, and why."""

    engine: Literal["arrow", "spark"]
    reason: str = ""

    @classmethod
    def of(cls, predicate: Predicate, plan: ScanPlan) -> Judge:
        """Choose Arrow, in this process, if the condition compares columns with values and they are small enough."""
        if not predicate.is_exact:
            return cls("spark", "the condition is more than comparisons of columns with values")
        return cls.of_columns(extract_field_ids(normalize_and_bind(predicate.expression, plan.schema)), plan)

    @classmethod
    def of_columns(cls, compared: Collection[int], plan: ScanPlan) -> Judge:
        """Choose Arrow if the columns with these ids are small enough for one process."""
        if plan.has_many_equality_deletes:
            return cls("spark", "there are many equality deletes")
        leaves = len(fields_by_id(plan.schema))
        size = plan.stats.bytes * len(compared) // max(leaves, 1)
        columns = f"{len(compared)} of {plural(leaves, 'column')}, about {plural(size, 'byte')}"
        if size > MAX_ARROW_BYTES:
            return cls("spark", f"{columns}: much for one process")
        return cls("arrow", columns)


@dataclass(frozen=True)
class ChangePlan(ExplainMixin):
    """The files that a statement reads, drops, rewrites or adds deletes to, by spec."""

    statement: str  # in SQL
    mode: Mode
    isolation: str
    format_version: int
    default_spec_id: int
    read: ScanPlan  # some of the rows may match
    whole: ScanPlan  # every row matches
    keeps_whole: bool  # True: rows of whole files are changed and written again; False: the files are dropped unread
    row_filter: BooleanExpression  # the part of the condition that can be evaluated for files
    conflict_filter: BooleanExpression  # rows that a concurrent writer must not add
    reads_itself: bool = False  # a subquery reads the table that is changed
    notes: tuple[str, ...] = ()
    judge: Judge = Judge("spark")
    expected: RowEstimate | None = None  # of the rows that match, where statistics of the table allow it

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot that the plan is based on."""
        return self.read.snapshot_id

    @property
    def is_empty(self) -> bool:
        """True if no file can hold a matching row."""
        return not len(self.read.files) and not len(self.whole.files)

    @property
    def is_metadata_only(self) -> bool:
        """True if no data file has to be read."""
        return not len(self.read.files) and not self.keeps_whole

    def explain(self) -> str:
        """Describe the plan."""
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
        effect = "every row changes, the files are replaced" if self.keeps_whole else "dropped without being read"
        yield from self._describe_files(self.whole, "whole", effect)
        yield from self._describe_files(self.read, "read", self._effect_on_read_files())
        filter_stats = stats.filter
        if filter_stats.unevaluable_specs or filter_stats.fail_open_partitions:
            yield (
                f"  undecided  {plural(filter_stats.fail_open_files, 'file')} of "
                f"{plural(filter_stats.fail_open_partitions, 'partition')} not evaluated, so read"
            )
        if self.expected is not None:
            yield f"  expects    {self.expected}"
        if self.judge.reason and len(self.read.files):
            name = "Arrow, in this process" if self.judge.engine == "arrow" else "Spark"
            yield f"  judge      {name}: {self.judge.reason}"
        yield f"  new rows   under spec {self.default_spec_id}"
        yield f"  conflicts  {self._describe_conflicts()}"
        yield from (f"  note       {note}" for note in self.notes)

    def _describe_files(self, plan: ScanPlan, label: str, effect: str) -> Iterator[str]:
        if not len(plan.files):
            return
        yield (
            f"  {label:<10} {plural(len(plan.files), 'file')} with {plural(len(plan.deletes), 'delete file')}, up to "
            f"{plural(plan.stats.rows, 'row')}, {plural(plan.stats.bytes, 'byte')}: {effect}"
        )
        for spec_id, files in plan.files.by_spec():
            names = ", ".join(f"{f.name} ({f.transform})" for f in files.specs[spec_id].fields)
            rows = plural(int(files.numpy("record_count").sum()), "row")
            yield f"    spec {spec_id:<5} {plural(len(files), 'file')}{f' by {names}' if names else ''}, {rows}"

    def _effect_on_read_files(self) -> str:
        if self.mode == "copy-on-write":
            return "each that holds a match is rewritten"
        kind = "a deletion vector" if self.format_version >= 3 else "position deletes"
        return f"each that holds a match gets {kind} under its own spec"

    def _describe_conflicts(self) -> str:
        if self.is_metadata_only:
            return "none: files that match as a whole at the time of the commit are dropped too"
        if self.isolation == "serializable":
            new_rows = "any new rows" if self.conflict_filter is AlwaysTrue() else "new rows that may match"
            return f"with {new_rows}, and with changes of the same files"
        return "with changes of the same files"


def split_fully_matching(
    plan: ScanPlan, predicate: BooleanExpression, metadata: TableMetadata
) -> tuple[ScanPlan, ScanPlan]:
    """Split a plan: files in which some row may fail an exact predicate, and files in which every row matches."""
    covered = RowFilter(predicate, metadata, plan.files.specs).must_match(plan.files)
    return plan.only(~covered), plan.only(np.asarray(covered))


def stays_in_partition_and_order(
    files: EntryTable, metadata: TableMetadata, changed_field_ids: Collection[int]
) -> Mask:
    """Return the files whose rows keep their partition and order when columns with these field ids change.

    Every row is written under the default spec and in the sort order of the table. If a file has both already, and no
    column of them changes, it is rewritten in place.
    """
    spec, order = metadata.spec(), metadata.sort_order_by_id(metadata.default_sort_order_id)
    is_partitioned = not files.specs.is_unpartitioned(spec.spec_id)
    fields = [*(spec.fields if is_partitioned else ()), *(order.fields if order is not None else ())]
    stays = np.full(len(files), all(field.source_id not in changed_field_ids for field in fields))
    if is_partitioned:
        stays &= files.numpy("spec_id") == spec.spec_id
    if order is not None and order.fields:
        stays &= pc.fill_null(files["sort_order_id"], 0).to_numpy() == order.order_id
    return stays
