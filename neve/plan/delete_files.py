"""Which delete files are replaced by fewer, or by vectors; and the data files that is about.

Position delete files are grouped by partition and packed as data files are. Where the table keeps vectors every one of
them is replaced, since a vector is what readers are quickest with. Equality deletes are replaced when that is asked
for. Positions of files that are gone vanish on the way.

Delete files that apply to no live data file.

A delete file is dangling when a scan would read it for no data file. That is a better question than where the lowest
sequence number of its partition lies: it finds deletes of a file that is gone while older files stay, and it keeps
equality deletes of an unpartitioned spec, which apply to files of every other spec.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema

from neve.display.format import plural
from neve.display.html import ExplainMixin
from neve.plan.delete_index import match_deletes, referenced_paths
from neve.plan.packing import GroupSlices, Rows, pack_files, sort_by_partition_and_size
from neve.plan.partition_filter import PartitionFilter
from neve.plan.ranges import Mask
from neve.plan.rewrite_options import RewriteOptions
from neve.plan.scan import ScanPlan, ScanStats
from neve.tree.entries import Content, EntryTable


@dataclass(frozen=True)
class DeletesPlan(ExplainMixin):
    """The delete files that are replaced, and the data files they apply to; a value: making it touches nothing."""

    snapshot_id: int | None
    scan: ScanPlan  # the data files, with every delete file that applies to them
    replaced: EntryTable  # the delete files that go, position deletes first
    groups: tuple[Rows, ...]  # rows of `replaced` that become one lot of new files each
    considered: int  # how many delete files the table has

    @property
    def equality_deletes(self) -> EntryTable:
        """The equality deletes among those replaced."""
        return self.replaced.of_content(Content.EQUALITY_DELETES)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not len(self.replaced)

    @property
    def bytes(self) -> int:
        """The size of the files that go."""
        return int(pc.sum(self.replaced["file_size_in_bytes"]).as_py() or 0)

    def explain(self) -> str:
        """The plan in words."""
        if self.is_empty:
            return f"nothing to rewrite: {plural(self.considered, 'delete file')}, none worth it"
        by_equality = len(self.equality_deletes)
        lines = [
            f"Rewrite {len(self.replaced)} of {plural(self.considered, 'delete file')}, {plural(self.bytes, 'byte')}",
            f"  on       snapshot {self.snapshot_id}",
            f"  takes    {plural(len(self.replaced) - by_equality, 'position delete file')} in "
            f"{plural(len(self.groups), 'group')}",
        ]
        lines += [f"  takes    {by_equality} equality delete files"] if by_equality else []
        return "\n".join([*lines, f"  about    {plural(len(self.scan.files), 'data file')}"])

    def __str__(self) -> str:
        return self.explain()


def plan_delete_rewrite(
    data: EntryTable,
    deletes: EntryTable,
    schema: Schema,
    options: RewriteOptions,
    partitions: PartitionFilter,
    *,
    writes_vectors: bool,
    one_delete_file_per_data_file: bool,
    include_equality_deletes: bool,
    snapshot_id: int | None,
) -> DeletesPlan:
    """Which of the live delete files of a snapshot are replaced, and for which data files.

    With `one_for_each`, every data file gets a delete file of its own, as it has where only one names it.
    """
    attached = match_deletes(data, deletes)
    keep = partitions.judge(deletes).keep
    content, is_vector = deletes.numpy("content"), _is(deletes, "file_format", "PUFFIN")
    by_position = keep & (content == Content.POSITION_DELETES) & ~is_vector
    if one_delete_file_per_data_file and not options.rewrite_all:
        by_position &= ~_is_only_delete_of_file(deletes, attached)
    groups = _all_at_once(by_position) if writes_vectors else _groups_worth_rewriting(deletes, by_position, options)
    by_equality = (
        np.flatnonzero(keep & (content == Content.EQUALITY_DELETES)) if include_equality_deletes else np.array([], int)
    )
    chosen = np.concatenate([*groups, by_equality]).astype(np.int64)
    whole = ScanPlan(snapshot_id, schema, data, deletes, attached, AlwaysTrue(), ScanStats())
    scan = whole.only(_touched(data, attached, chosen))
    return DeletesPlan(snapshot_id, scan, deletes.take(chosen), tuple(_renumbered(groups)), len(deletes))


def _is_only_delete_of_file(deletes: EntryTable, attached: pa.Table) -> Mask:
    """Whether a delete file names a live data file that no other positions are about."""
    file, delete = attached["file"].to_numpy(), attached["delete"].to_numpy()
    positions = deletes.numpy("content")[delete] == Content.POSITION_DELETES
    file, delete = file[positions], delete[positions]
    shared = np.bincount(file)[file] > 1
    alone = np.zeros(len(deletes), bool)
    alone[delete[~shared]] = True
    return alone & np.asarray(referenced_paths(deletes).is_valid().to_numpy(zero_copy_only=False), bool)


def _all_at_once(chosen: Mask) -> list[Rows]:
    rows = np.flatnonzero(chosen)
    return [rows] if len(rows) else []


def _groups_worth_rewriting(deletes: EntryTable, candidates: Mask, options: RewriteOptions) -> list[Rows]:
    """Groups of delete files of one partition, as compaction makes them of data files."""
    size = deletes.numpy("file_size_in_bytes")
    badly_sized = (size < options.min_file_size) | (size > options.max_file_size) | options.rewrite_all
    rows, partition = sort_by_partition_and_size(deletes, np.flatnonzero(candidates & badly_sized))
    if not len(rows):
        return []
    made = pack_files(size[rows], partition, options.max_group_size, options.max_group_files)
    kept = made if options.rewrite_all else made.select(_is_worth_it(made, size[rows], options))
    kept = kept if options.max_files is None else kept.limit_files(options.max_files)
    return [rows[start:end] for start, end in zip(kept.starts, kept.ends, strict=True)]


def _is_worth_it(groups: GroupSlices, sizes: NDArray[np.int64], options: RewriteOptions) -> Mask:
    total, several = groups.sums(sizes), groups.file_counts >= 2
    enough = several & ((groups.file_counts >= options.min_input_files) | (total > options.target_file_size))
    return np.asarray(enough | (total > options.max_file_size))


def _touched(data: EntryTable, attached: pa.Table, chosen: Rows) -> Mask:
    """The data files that chosen deletes apply to."""
    mask = np.zeros(len(data), bool)
    mask[attached["file"].to_numpy()[np.isin(attached["delete"].to_numpy(), chosen)]] = True
    return mask


def _renumbered(groups: Sequence[Rows]) -> list[Rows]:
    ends = np.cumsum([len(g) for g in groups])
    return [np.arange(end - len(group), end) for group, end in zip(groups, ends, strict=True)]


def _is(entries: EntryTable, column: str, value: str) -> Mask:
    return np.asarray(pc.equal(entries[column], value).to_numpy(), bool) if len(entries) else np.zeros(0, bool)


@dataclass(frozen=True)
class DanglingPlan(ExplainMixin):
    """The delete files of a snapshot that apply to nothing."""

    snapshot_id: int | None
    deletes: EntryTable  # the dangling ones
    delete_files: int = 0  # how many delete files there are

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the dangling delete files; vectors may share one."""
        return tuple(dict.fromkeys(self.deletes["file_path"].to_pylist()))

    def explain(self) -> str:
        """The plan in words, with every path."""
        if not len(self.deletes):
            return f"nothing to remove: {plural(self.delete_files, 'delete file')}, all of live data files"
        rows = zip(*(self.deletes[n].to_pylist() for n in ("content", "spec_id", "file_path")), strict=True)
        lines = [f"  {_KINDS[Content(content)]} deletes of spec {spec}: {path}" for content, spec, path in rows]
        return "\n".join([f"remove {len(self.deletes)} of {plural(self.delete_files, 'delete file')}", *lines])


_KINDS = {Content.POSITION_DELETES: "position", Content.EQUALITY_DELETES: "equality"}


def dangling_deletes(data: EntryTable, deletes: EntryTable) -> EntryTable:
    """The delete files that apply to none of the data files; both are live, deletes with the bounds of their paths."""
    applies = np.zeros(len(deletes), bool)
    applies[match_deletes(data, deletes)["delete"].to_numpy()] = True
    return deletes.filter(pa.array(~applies))
