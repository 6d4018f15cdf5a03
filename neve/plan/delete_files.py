"""Plan which delete files to rewrite, and which to remove because they apply to no live data file.

Position delete files are grouped by partition and packed like data files. If the table uses deletion vectors, every
position delete file is replaced, because vectors are the fastest deletes to read. Equality deletes are replaced only
on request. Positions in data files that no longer exist are dropped on the way.

A delete file is dangling when a scan would read it for no data file. This test is better than comparing with the lowest
sequence number of the partition: it finds deletes of a removed file while older files stay, and it keeps equality
deletes of an unpartitioned spec, which apply to files of every other spec.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema

from neve.display.format import plural
from neve.display.html import ExplainMixin
from neve.plan.delete_index import match_deletes, referenced_paths
from neve.plan.packing import Rows, pack_files, sort_by_partition_and_size
from neve.plan.partition_filter import PartitionFilter
from neve.plan.ranges import Mask
from neve.plan.rewrite_options import RewriteOptions
from neve.plan.scan import ScanPlan, ScanStats
from neve.tree.entries import Content, EntryTable


@dataclass(frozen=True)
class DeletesPlan(ExplainMixin):
    """The delete files to replace, and the data files they apply to; building the plan changes nothing."""

    snapshot_id: int | None
    scan: ScanPlan  # the data files, with every delete file that applies to them
    replaced: EntryTable  # position deletes first
    groups: tuple[Rows, ...]  # rows of `replaced` that are rewritten together
    considered: int  # number of delete files in the table

    @property
    def equality_deletes(self) -> EntryTable:
        """The equality deletes among the replaced files."""
        return self.replaced.of_content(Content.EQUALITY_DELETES)

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to do."""
        return not len(self.replaced)

    @property
    def bytes(self) -> int:
        """The total size of the replaced files."""
        return int(pc.sum(self.replaced["file_size_in_bytes"]).as_py() or 0)

    def explain(self) -> str:
        """Describe the plan."""
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
    """Choose which live delete files of a snapshot to replace, and the data files they apply to.

    With `one_delete_file_per_data_file`, every data file gets its own delete file. A delete file that is already the
    only one of its data file then stays, unless everything is rewritten.
    """
    attached = match_deletes(data, deletes)
    keep = partitions.judge(deletes).keep
    content = deletes.numpy("content")
    formats = deletes["file_format"]
    is_vector = np.asarray(pc.equal(formats, "PUFFIN").to_numpy(), bool) if len(deletes) else np.zeros(0, bool)
    by_position = keep & (content == Content.POSITION_DELETES) & ~is_vector
    if one_delete_file_per_data_file and not options.rewrite_all:
        by_position &= ~_is_only_delete_of_file(deletes, attached)
    if writes_vectors:
        groups = [np.flatnonzero(by_position)] if by_position.any() else []
    else:
        groups = _groups_worth_rewriting(deletes, by_position, options)
    by_equality = np.flatnonzero(keep & (content == Content.EQUALITY_DELETES) & include_equality_deletes)
    chosen = np.concatenate([*groups, by_equality]).astype(np.int64)
    ends = np.cumsum([len(group) for group in groups])
    rows_of_groups = tuple(np.arange(end - len(group), end) for group, end in zip(groups, ends, strict=True))
    has_chosen_delete = np.zeros(len(data), bool)
    has_chosen_delete[attached["file"].to_numpy()[np.isin(attached["delete"].to_numpy(), chosen)]] = True
    scan_of_all = ScanPlan(snapshot_id, schema, data, deletes, attached, AlwaysTrue(), ScanStats())
    scan = scan_of_all.only(has_chosen_delete)
    return DeletesPlan(snapshot_id, scan, deletes.take(chosen), rows_of_groups, len(deletes))


def _is_only_delete_of_file(deletes: EntryTable, attached: pa.Table) -> Mask:
    """Return which delete files name a live data file to which no other position deletes apply."""
    file, delete = attached["file"].to_numpy(), attached["delete"].to_numpy()
    positions = deletes.numpy("content")[delete] == Content.POSITION_DELETES
    file, delete = file[positions], delete[positions]
    shared = np.bincount(file)[file] > 1
    is_only_one = np.zeros(len(deletes), bool)
    is_only_one[delete[~shared]] = True
    return is_only_one & np.asarray(referenced_paths(deletes).is_valid().to_numpy(zero_copy_only=False), bool)


def _groups_worth_rewriting(deletes: EntryTable, candidates: Mask, options: RewriteOptions) -> list[Rows]:
    """Group the delete files of each partition in the same way as a compaction groups data files."""
    size = deletes.numpy("file_size_in_bytes")
    badly_sized = (size < options.min_file_size) | (size > options.max_file_size) | options.rewrite_all
    rows, partition = sort_by_partition_and_size(deletes, np.flatnonzero(candidates & badly_sized))
    if not len(rows):
        return []
    groups = pack_files(size[rows], partition, options.max_group_size, options.max_group_files)
    if not options.rewrite_all:
        total, count = groups.sums(size[rows]), groups.file_counts
        enough = (count >= 2) & ((count >= options.min_input_files) | (total > options.target_file_size))
        groups = groups.select(np.asarray(enough | (total > options.max_file_size)))
    if options.max_files is not None:
        groups = groups.limit_files(options.max_files)
    return [rows[start:end] for start, end in zip(groups.starts, groups.ends, strict=True)]


@dataclass(frozen=True)
class DanglingPlan(ExplainMixin):
    """The delete files of a snapshot that apply to nothing."""

    snapshot_id: int | None
    deletes: EntryTable  # the dangling ones
    delete_files: int = 0  # number of delete files in the snapshot

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the dangling delete files; vectors may share one."""
        return tuple(dict.fromkeys(self.deletes["file_path"].to_pylist()))

    def explain(self) -> str:
        """Describe the plan, with every path."""
        if not len(self.deletes):
            return f"nothing to remove: {plural(self.delete_files, 'delete file')}, all of live data files"
        kinds = {Content.POSITION_DELETES: "position", Content.EQUALITY_DELETES: "equality"}
        rows = zip(*(self.deletes[n].to_pylist() for n in ("content", "spec_id", "file_path")), strict=True)
        lines = [f"  {kinds[Content(content)]} deletes of spec {spec}: {path}" for content, spec, path in rows]
        return "\n".join([f"remove {len(self.deletes)} of {plural(self.delete_files, 'delete file')}", *lines])


def dangling_deletes(data: EntryTable, deletes: EntryTable) -> EntryTable:
    """Return the delete files that apply to none of the data files.

    Both tables hold live files only. `deletes` must have been read with the bounds of their path columns.
    """
    applies = np.zeros(len(deletes), bool)
    applies[match_deletes(data, deletes)["delete"].to_numpy()] = True
    return deletes.filter(pa.array(~applies))
