"""Which files a scan reads, and which delete files apply to them.

Planning is pure; whoever has the files composes its steps, so that only what is needed is read:

1. `prune_manifests`: manifests whose partition summaries rule them out are never opened;
2. `filter_partitions`: files are judged by their partition, without any statistics;
3. `filter_metrics`: only of the survivors are statistics read, and judged;
4. `attach_deletes`: delete files find their data files.

`plan_scan` takes all steps from 2 on.

Which columns a scan returns: the table's own, nested ones too, and those every table has without storing them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

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


def project_schema(
    schema: Schema, columns: Sequence[str] | None, *, case_sensitive: bool = True
) -> tuple[Schema, tuple[str, ...]]:
    """The columns wanted, in the order asked for, and the metadata columns among them."""
    if columns is None:
        return schema, ()
    own = [name for name in columns if not _is_metadata_column(name, schema, case_sensitive)]
    extra = tuple(dict.fromkeys(name for name in columns if _is_metadata_column(name, schema, case_sensitive)))
    ids = [_field_id(schema, name, case_sensitive) for name in own]
    chosen = schema.select(*(n for i in ids if (n := schema.find_column_name(i)) is not None))
    order = {root: place for place, root in reversed(list(enumerate(_root_field_id(schema, i) for i in ids)))}
    fields = sorted(chosen.fields, key=lambda f: order[f.field_id])
    return Schema(*fields, schema_id=schema.schema_id), extra


def top_level_column(schema: Schema, name: str, *, case_sensitive: bool = True) -> str:
    """The column of a result that a name asked for is, or is part of."""
    if _is_metadata_column(name, schema, case_sensitive):
        return name
    root = schema.find_column_name(_root_field_id(schema, _field_id(schema, name, case_sensitive)))
    return root or name


def _is_metadata_column(name: str, schema: Schema, case_sensitive: bool) -> bool:
    return name in METADATA_COLUMNS and not _has(schema, name, case_sensitive)


def _has(schema: Schema, name: str, case_sensitive: bool) -> bool:
    names = schema.column_names if case_sensitive else [n.lower() for n in schema.column_names]
    return (name if case_sensitive else name.lower()) in names


def _field_id(schema: Schema, name: str, case_sensitive: bool) -> int:
    try:
        return schema.find_field(name, case_sensitive).field_id
    except ValueError:
        raise UnknownName("column", name, [*schema.column_names, *METADATA_COLUMNS]) from None


def _root_field_id(schema: Schema, field_id: int) -> int:
    """The id of the top-level column a field is part of."""
    name = schema.find_column_name(field_id) or ""
    tops = {f.name: f.field_id for f in schema.fields}
    return next(tops[name[:end]] for end in range(len(name), 0, -1) if name[:end] in tops)


@dataclass(frozen=True, slots=True)
class FileFilter:
    """A predicate that sifts files while they are read: by partition, then by statistics."""

    partitions: PartitionFilter
    columns: frozenset[int]

    @classmethod
    def of(cls, partitions: PartitionFilter) -> FileFilter:
        """The sieve of a partition filter and of the predicate it was made from."""
        return cls(partitions, compared_columns(partitions.predicate))

    def by_partition(self, entries: EntryTable) -> Mask:
        """The files of partitions that may hold a matching row."""
        return self.partitions.may_keep(entries)

    def by_statistics(self, entries: EntryTable) -> Mask:
        """The files that may hold a matching row; those whose partition could not be judged stay to be counted."""
        keep = metrics_filter.may_match(entries, self.partitions.predicate)
        goes = np.flatnonzero(~keep)
        if len(goes):
            keep[goes] = self.partitions.is_undecided(entries, goes)
        return keep


@dataclass(frozen=True, slots=True)
class ScanStats:
    """What a scan looked at, what it could leave out and what remains."""

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


@dataclass(frozen=True)
class ScanPlan(ExplainMixin):
    """The files to read, the delete files that apply to them, and the columns and rows wanted."""

    snapshot_id: int | None
    schema: Schema  # the columns to return, with the table's field ids
    files: EntryTable  # live data files
    deletes: EntryTable  # delete files that apply to one of them at least
    attached: pa.Table  # file, delete: row numbers of the two, sorted by file
    predicate: BooleanExpression  # in normal form; rows may still fail it
    stats: ScanStats
    metadata_columns: tuple[str, ...] = ()  # of METADATA_COLUMNS, returned after the others
    manifests: tuple[str, ...] = ()  # those the data files were found in: what their `manifest` counts
    delete_manifests: tuple[str, ...] = ()

    def only(self, chosen: Mask) -> ScanPlan:
        """The part of the plan that reads the chosen files."""
        files = self.files.filter(pa.array(chosen))
        places = np.cumsum(chosen) - 1
        file, delete = (self.attached[name].to_numpy() for name in ("file", "delete"))
        kept = chosen[file]
        used, renumbered = np.unique(delete[kept], return_inverse=True)
        attached = pa.table({"file": places[file[kept]], "delete": pa.array(renumbered, pa.int64())})
        deletes = self.deletes.take(used)
        stats = replace(
            self.stats,
            files=len(files),
            rows=int(pc.sum(files["record_count"]).as_py() or 0),
            bytes=int(pc.sum(files["file_size_in_bytes"]).as_py() or 0),
            delete_files=len(deletes),
        )
        return replace(self, files=files, deletes=deletes, attached=attached, stats=stats)

    def explain(self, where: str | None = None) -> str:
        """What will be read and what was left out, for people; `where` is the condition as it was written."""
        return "\n".join((*self._summary_lines(where or str(self.predicate)), *self._spec_lines()))

    def _summary_lines(self, where: str) -> Iterable[str]:
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

    def _spec_lines(self) -> Iterable[str]:
        specs = self.files.specs
        for spec_id, files in self.files.by_spec():
            names = ", ".join(f"{f.name} ({f.transform})" for f in specs[spec_id].fields)
            yield (
                f"  spec {spec_id:<5} {plural(len(files), 'file')} by {names}"
                if names
                else f"  spec {spec_id:<5} {plural(len(files), 'file')}"
            )


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
    strict: bool = False,
) -> ScanPlan:
    """The plan of a scan over the tracked files of a snapshot.

    `schema` is the schema of the snapshot when it is not the table's newest. Data files that were read with statistics
    are judged by them too.
    """
    schema = metadata.schema() if schema is None else schema
    wanted, extra = project_schema(schema, columns, case_sensitive=case_sensitive)
    expression = (
        AlwaysTrue() if predicate is None else normalize_expression(predicate, schema, case_sensitive=case_sensitive)
    )
    partitions = PartitionFilter.of(expression, data.specs, schema)
    partitions = partitions.strict() if strict else partitions
    files, verdict = filter_partitions(data.live(), partitions)
    found, _ = filter_partitions(deletes.live(), partitions)
    survivors = len(files)
    files = filter_metrics(files, partitions)
    applied, attached = attach_deletes(files, found)
    stats = _scan_stats(verdict, survivors, files, len(deletes), applied)
    return ScanPlan(snapshot_id, wanted, files, applied, attached, expression, stats, extra)


def prune_manifests(manifests: Sequence[Manifest], partitions: PartitionFilter) -> tuple[Manifest, ...]:
    """The manifests that may list a live file of a matching partition, of data and of deletes alike.

    A delete file applies to files of its own partition, or it is of an unpartitioned spec, which is never pruned.
    """
    may = partitions.may_match_each(manifests)
    return tuple(m for m, kept in zip(manifests, may, strict=True) if kept and m.may_hold_live_files)


def filter_partitions(entries: EntryTable, partitions: PartitionFilter) -> tuple[EntryTable, Verdict]:
    """The files of partitions that may hold a matching row."""
    verdict = partitions.judge(entries)
    return (entries if verdict.keep.all() else entries.filter(pa.array(verdict.keep))), verdict


def filter_metrics(files: EntryTable, partitions: PartitionFilter) -> EntryTable:
    """The data files whose statistics do not rule out a matching row; what was not read rules out nothing."""
    if partitions.predicate is AlwaysTrue():
        return files
    keep = metrics_filter.may_match(files, partitions.predicate)
    return files if keep.all() else files.filter(pa.array(keep))


def attach_deletes(files: EntryTable, deletes: EntryTable) -> tuple[EntryTable, pa.Table]:
    """The delete files that apply to some of the files, and the pairs of row numbers."""
    pairs = match_deletes(files, deletes)
    used, renumbered = np.unique(pairs["delete"].to_numpy(), return_inverse=True)
    return deletes.take(used), pairs.set_column(1, "delete", pa.array(renumbered, pa.int64()))


def needs_statistics(partitions: PartitionFilter, deletes: EntryTable) -> bool:
    """Whether the statistics of data files can rule out a file, or a delete file for a file."""
    by_value = bool((deletes.numpy("content") == Content.EQUALITY_DELETES).any())
    return by_value or partitions.predicate is not AlwaysTrue()


def compared_columns(predicate: BooleanExpression) -> frozenset[int]:
    """The ids of the columns a bound predicate compares."""
    return frozenset(extract_field_ids(predicate))


def _scan_stats(verdict: Verdict, survivors: int, files: EntryTable, deletes: int, applied: EntryTable) -> ScanStats:
    considered = len(verdict.keep)
    return ScanStats(
        files_considered=considered,
        pruned_by_partition=considered - survivors,
        pruned_by_statistics=survivors - len(files),
        files=len(files),
        rows=int(pc.sum(files["record_count"]).as_py() or 0),
        bytes=int(pc.sum(files["file_size_in_bytes"]).as_py() or 0),
        delete_files_considered=deletes,
        delete_files=len(applied),
        filter=verdict.stats,
    )


def with_manifests(plan: ScanPlan, all_manifests: Sequence[Manifest], opened_manifests: Sequence[Manifest]) -> ScanPlan:
    """The same plan with the manifests its files were found in, and the count of those that were never opened."""
    total, opened = (sum(not m.is_view for m in some) for some in (all_manifests, opened_manifests))
    stats = replace(plan.stats, manifests=total, manifests_pruned=total - opened)
    data, deletes = (tuple(m.path for m in opened_manifests if m.is_deletes == side) for side in (False, True))
    return replace(plan, stats=stats, manifests=data, delete_manifests=deletes)


def with_filter_counts(plan: ScanPlan, filtered: FilteredEntries) -> ScanPlan:
    """The same plan with the counts of files that were left out while they were read."""
    stats = replace(
        plan.stats,
        files_considered=filtered.live_count,
        pruned_by_partition=filtered.live_count - filtered.in_partitions,
        pruned_by_statistics=filtered.in_partitions - len(plan.files),
    )
    return replace(plan, stats=stats)
