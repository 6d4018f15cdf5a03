"""Plan a scan: the files it reads, the delete files that apply to them, and the columns it returns.

Planning is pure. The caller, who reads the files, combines the steps so that nothing is read without need:

1. `prune_manifests` excludes manifests by their partition summaries; these are never opened.
2. `filter_partitions` excludes files by their partition, without any statistics.
3. `filter_metrics` reads and evaluates the statistics of the remaining files only.
4. `attach_deletes` matches delete files with data files.

`plan_scan` does all steps from 2 on.

The columns are those of the table, nested ones included, and the metadata columns that every table has without storing
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import extract_field_ids
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from neve.display.format import plural
from neve.display.html import ExplainMixin
from neve.errors import UnknownName
from neve.plan import metrics_filter
from neve.plan.delete_index import match_deletes
from neve.plan.partition_filter import FilterStats, PartitionFilter, Verdict
from neve.plan.ranges import Mask
from neve.predicate.normalize import normalize_expression
from neve.tree.entries import Content, EntryTable, FilteredEntries, Manifest

METADATA_COLUMNS = ("_file", "_pos", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number")
MAX_EQUALITY_DELETE_BYTES = 32 << 20  # of delete files that are applied in one process


def project_schema(
    schema: Schema, columns: Sequence[str] | None, *, case_sensitive: bool = True
) -> tuple[Schema, tuple[str, ...]]:
    """Return the requested columns in the requested order, and the metadata columns among them."""
    if columns is None:
        return schema, ()
    is_metadata = {name: _is_metadata_column(name, schema, case_sensitive) for name in columns}
    ids = [_field_id(schema, name, case_sensitive) for name in columns if not is_metadata[name]]
    projected = schema.select(*(n for i in ids if (n := schema.find_column_name(i)) is not None))
    order = {root: index for index, root in reversed(list(enumerate(_root_field_id(schema, i) for i in ids)))}
    fields = sorted(projected.fields, key=lambda f: order[f.field_id])
    return Schema(*fields, schema_id=schema.schema_id), tuple(name for name in is_metadata if is_metadata[name])


def top_level_column(schema: Schema, name: str, *, case_sensitive: bool = True) -> str:
    """Return the column of the result that a requested name is, or is nested in."""
    if _is_metadata_column(name, schema, case_sensitive):
        return name
    root = schema.find_column_name(_root_field_id(schema, _field_id(schema, name, case_sensitive)))
    return root or name


def _is_metadata_column(name: str, schema: Schema, case_sensitive: bool) -> bool:
    names = schema.column_names if case_sensitive else [n.lower() for n in schema.column_names]
    return name in METADATA_COLUMNS and (name if case_sensitive else name.lower()) not in names


def _field_id(schema: Schema, name: str, case_sensitive: bool) -> int:
    try:
        return schema.find_field(name, case_sensitive).field_id
    except ValueError:
        raise UnknownName("column", name, [*schema.column_names, *METADATA_COLUMNS]) from None


def _root_field_id(schema: Schema, field_id: int) -> int:
    """Return the id of the top-level column that contains a field; names of columns may hold dots."""
    name = schema.find_column_name(field_id) or ""
    roots = {f.name: f.field_id for f in schema.fields}
    return next(roots[name[:end]] for end in range(len(name), 0, -1) if name[:end] in roots)


@dataclass(frozen=True)
class FileFilter:
    """A predicate that filters files while manifests are read: by partition, then by statistics."""

    partitions: PartitionFilter

    @cached_property
    def columns(self) -> frozenset[int]:
        """The ids of the columns that the predicate compares."""
        return frozenset(extract_field_ids(self.partitions.predicate))

    def by_partition(self, entries: EntryTable) -> Mask:
        """Return which files are in partitions that may hold a matching row."""
        return self.partitions.may_keep(entries)

    def by_statistics(self, entries: EntryTable) -> Mask:
        """Return which files may hold a matching row; undecided files stay, so that they are counted."""
        keep = metrics_filter.may_match(entries, self.partitions.predicate)
        excluded = np.flatnonzero(~keep)
        if len(excluded):
            keep[excluded] = self.partitions.is_undecided(entries, excluded)
        return keep


@dataclass(frozen=True, slots=True)
class ScanStats:
    """How many manifests and files a scan considers, excludes and reads."""

    manifests: int = 0
    manifests_pruned: int = 0
    files_considered: int = 0
    pruned_by_partition: int = 0
    pruned_by_statistics: int = 0
    files: int = 0
    rows: int = 0  # of the files, before deletes
    bytes: int = 0
    delete_files_considered: int = 0
    delete_files: int = 0
    filter: FilterStats = field(default_factory=FilterStats)


def size_counts(files: EntryTable, deletes: EntryTable) -> dict[str, Any]:
    """Return the counts of `ScanStats` that follow from the files to read and their delete files."""
    rows, size = (int(pc.sum(files[name]).as_py() or 0) for name in ("record_count", "file_size_in_bytes"))
    return {"files": len(files), "rows": rows, "bytes": size, "delete_files": len(deletes)}


@dataclass(frozen=True)
class ScanPlan(ExplainMixin):
    """The files to read, the delete files that apply to them, and the columns and rows to return."""

    snapshot_id: int | None
    schema: Schema  # the columns to return, with the table's field ids
    files: EntryTable  # live data files
    deletes: EntryTable  # delete files that apply to at least one of them
    attached: pa.Table  # file, delete: row numbers in `files` and `deletes`, sorted by file
    predicate: BooleanExpression  # in normal form; rows of the files may still fail it
    stats: ScanStats
    metadata_columns: tuple[str, ...] = ()  # of METADATA_COLUMNS, returned after the others
    manifests: tuple[str, ...] = ()  # manifests of the data files; their column `manifest` is an index into it
    delete_manifests: tuple[str, ...] = ()

    @property
    def has_many_equality_deletes(self) -> bool:
        """True if its equality deletes are large, and better joined by Spark than held by one process."""
        is_equality = self.deletes.numpy("content") == Content.EQUALITY_DELETES
        return bool(self.deletes.numpy("file_size_in_bytes")[is_equality].sum() > MAX_EQUALITY_DELETE_BYTES)

    def only(self, chosen: Mask) -> ScanPlan:
        """Return the part of the plan that reads the chosen files."""
        files = self.files.filter(pa.array(chosen))
        new_row = np.cumsum(chosen) - 1
        file, delete = (self.attached[name].to_numpy() for name in ("file", "delete"))
        stays = chosen[file]
        used, renumbered = np.unique(delete[stays], return_inverse=True)
        attached = pa.table({"file": new_row[file[stays]], "delete": pa.array(renumbered, pa.int64())})
        deletes = self.deletes.take(used)
        stats = replace(self.stats, **size_counts(files, deletes))
        return replace(self, files=files, deletes=deletes, attached=attached, stats=stats)

    def explain(self, where: str | None = None) -> str:
        """Describe what is read and what is excluded; `where` is the condition as the user wrote it."""
        return "\n".join(self._lines(where or str(self.predicate)))

    def _lines(self, where: str) -> Iterable[str]:
        s = self.stats
        yield f"Scan of snapshot {self.snapshot_id}: {', '.join((*self.schema.column_names, *self.metadata_columns))}"
        yield f"  where      {where}"
        if s.manifests:
            yield f"  manifests  {s.manifests - s.manifests_pruned} of {s.manifests}, {s.manifests_pruned} pruned"
        yield (
            f"  files      {s.files} of {s.files_considered}, {s.pruned_by_partition} pruned by partition, "
            f"{s.pruned_by_statistics} by statistics"
        )
        yield f"  size       {plural(s.rows, 'row')}, {plural(s.bytes, 'byte')}"
        attached = plural(self.attached.num_rows, "time")
        yield f"  deletes    {s.delete_files} of {s.delete_files_considered}, attached {attached}"
        if s.filter.unevaluable_specs or s.filter.fail_open_partitions:
            partitions = plural(s.filter.fail_open_partitions, "partition")
            yield f"  undecided  {plural(s.filter.fail_open_files, 'file')} of {partitions}, kept"
        for spec_id, files in self.files.by_spec():
            names = ", ".join(f"{f.name} ({f.transform})" for f in self.files.specs[spec_id].fields)
            yield f"  spec {spec_id:<5} {plural(len(files), 'file')}{f' by {names}' if names else ''}"


def plan_scan(
    data: EntryTable,
    deletes: EntryTable,
    metadata: TableMetadata,
    *,
    predicate: BooleanExpression | None = None,
    columns: Sequence[str] | None = None,
    snapshot_id: int | None = None,
    case_sensitive: bool = True,
    schema: Schema | None = None,
) -> ScanPlan:
    """Plan a scan over the tracked files of a snapshot.

    `schema` is the schema of the snapshot if it is not the newest of the table. Statistics exclude data files too, if
    the files were read with statistics.
    """
    schema = metadata.schema() if schema is None else schema
    projected, metadata_columns = project_schema(schema, columns, case_sensitive=case_sensitive)
    predicate = AlwaysTrue() if predicate is None else predicate
    expression = normalize_expression(predicate, schema, case_sensitive=case_sensitive)
    partitions = PartitionFilter.of(expression, data.specs, schema)
    files, verdict = filter_partitions(data.live(), partitions)
    live_deletes, _ = filter_partitions(deletes.live(), partitions)
    considered, in_partitions = len(verdict.keep), len(files)
    files = filter_metrics(files, partitions)
    applied, attached = attach_deletes(files, live_deletes)
    stats = ScanStats(
        files_considered=considered,
        pruned_by_partition=considered - in_partitions,
        pruned_by_statistics=in_partitions - len(files),
        delete_files_considered=len(deletes),
        filter=verdict.stats,
        **size_counts(files, applied),
    )
    return ScanPlan(snapshot_id, projected, files, applied, attached, expression, stats, metadata_columns)


def prune_manifests(manifests: Sequence[Manifest], partitions: PartitionFilter) -> tuple[Manifest, ...]:
    """Return the manifests that may list a live file of a matching partition, for data files and delete files.

    A delete file applies to files of its own partition, or it has an unpartitioned spec, which is never pruned.
    """
    may_match = partitions.may_match_each(manifests)
    return tuple(m for m, keep in zip(manifests, may_match, strict=True) if keep and m.may_hold_live_files)


def filter_partitions(entries: EntryTable, partitions: PartitionFilter) -> tuple[EntryTable, Verdict]:
    """Return the files of partitions that may hold a matching row, and the verdict on all files."""
    verdict = partitions.judge(entries)
    return (entries if verdict.keep.all() else entries.filter(pa.array(verdict.keep))), verdict


def filter_metrics(files: EntryTable, partitions: PartitionFilter) -> EntryTable:
    """Return the data files whose statistics allow a matching row; statistics that were not read exclude nothing."""
    if partitions.predicate is AlwaysTrue():
        return files
    keep = metrics_filter.may_match(files, partitions.predicate)
    return files if keep.all() else files.filter(pa.array(keep))


def attach_deletes(files: EntryTable, deletes: EntryTable) -> tuple[EntryTable, pa.Table]:
    """Return the delete files that apply to at least one file, and the pairs of row numbers."""
    pairs = match_deletes(files, deletes)
    used, renumbered = np.unique(pairs["delete"].to_numpy(), return_inverse=True)
    return deletes.take(used), pairs.set_column(1, "delete", pa.array(renumbered, pa.int64()))


def needs_statistics(partitions: PartitionFilter, deletes: EntryTable) -> bool:
    """Return whether statistics of data files can exclude a file, or an equality delete file for a file."""
    has_equality_deletes = bool((deletes.numpy("content") == Content.EQUALITY_DELETES).any())
    return has_equality_deletes or partitions.predicate is not AlwaysTrue()


def with_manifests(plan: ScanPlan, all_manifests: Sequence[Manifest], opened_manifests: Sequence[Manifest]) -> ScanPlan:
    """Return the plan with the manifests of its files, and the number of manifests that were never opened."""
    total, opened = (sum(not m.is_view for m in manifests) for manifests in (all_manifests, opened_manifests))
    stats = replace(plan.stats, manifests=total, manifests_pruned=total - opened)
    data, deletes = (tuple(m.path for m in opened_manifests if m.is_deletes == kind) for kind in (False, True))
    return replace(plan, stats=stats, manifests=data, delete_manifests=deletes)


def with_filter_counts(plan: ScanPlan, filtered: FilteredEntries) -> ScanPlan:
    """Return the plan with the counts of files that were excluded while manifests were read."""
    stats = replace(
        plan.stats,
        files_considered=filtered.live_count,
        pruned_by_partition=filtered.live_count - filtered.in_partitions,
        pruned_by_statistics=filtered.in_partitions - len(plan.files),
    )
    return replace(plan, stats=stats)
