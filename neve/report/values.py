"""The values of a report: gathered once, rendered by pure functions.

No list here grows with the number of files, which are summed up by columns. Lists of partitions, manifests and
snapshots are cut to what a person can look at; the total number is kept next to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neve.model.metadata import TableMetadata
from neve.ops.maintenance.maintain import Proposal
from neve.plan.partition_filter import FilterStats
from neve.tree.entries import Manifest


@dataclass(frozen=True, slots=True)
class FileTotals:
    """The totals of some data files: of a partition, several partitions, a spec, or the table."""

    files: int = 0
    bytes: int = 0
    rows: int = 0
    small_files: int = 0  # below the size at which a compaction rewrites a file
    delete_files: int = 0  # that apply, counted once for each data file
    deleted_rows: int = 0  # known to be deleted and still in the files; those of equality deletes are not known
    has_equality_deletes: bool = False
    taken: int = 0  # files that a compaction would rewrite
    undecided: int = 0  # files in partitions for which the filter could not be evaluated
    outside: int = 0  # files that do not match the filter

    @property
    def mean_size(self) -> float:
        """The mean size of a file."""
        return self.bytes / self.files if self.files else 0.0

    @property
    def deleted_share(self) -> float:
        """The share of rows that are known to be deleted and still in the files."""
        return min(self.deleted_rows / self.rows, 1.0) if self.rows else 0.0


@dataclass(frozen=True, slots=True)
class MapCell:
    """One square of the map: a partition, or neighbours in the order of their values."""

    first: str
    last: str
    partitions: int
    amounts: FileTotals


@dataclass(frozen=True, slots=True)
class SpecFacts:
    """A partition spec, and the files under it."""

    spec_id: int
    is_default: bool
    description: str  # its fields, in words
    partitions: int
    amounts: FileTotals
    cells: tuple[MapCell, ...]
    unknown_transforms: tuple[str, ...] = ()  # fields with a transform that this engine does not support


@dataclass(frozen=True, slots=True)
class SizeBin:
    """Data files of about one size: from `floor` to below the next power of two."""

    floor: int
    files: int
    taken: int
    bytes: int


@dataclass(frozen=True, slots=True)
class FileSizes:
    """The sizes of data files, and the sizes that they should have."""

    bins: tuple[SizeBin, ...]
    median: int
    smallest: int
    largest: int
    target: int
    min_size: int  # a compaction rewrites smaller files
    max_size: int  # and larger ones


@dataclass(frozen=True, slots=True)
class DeleteKind:
    """Delete files of one kind."""

    name: str
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class FileRow:
    """One data file with many deletes."""

    path: str
    spec_id: int
    bytes: int
    rows: int
    delete_files: int
    deleted_share: float


@dataclass(frozen=True, slots=True)
class DeleteFacts:
    """The delete files of a table and how they are distributed over its data files."""

    kinds: tuple[DeleteKind, ...]
    bins: tuple[tuple[str, int], ...]  # a number of delete files, and of the data files they apply to
    worst_files: tuple[FileRow, ...]
    touched_files: int  # data files that a delete file applies to
    dangling_files: int  # delete files that apply to no data file

    @property
    def files(self) -> int:
        """The number of delete files and vectors."""
        return sum(kind.files for kind in self.kinds)


@dataclass(frozen=True, slots=True)
class Commit:
    """One snapshot."""

    snapshot_id: int
    at_ms: int
    operation: str
    schema_id: int | None
    is_ancestor: bool  # of the current snapshot, or the current one
    added_files: int | None
    removed_files: int | None
    added_rows: int | None
    total_files: int | None


@dataclass(frozen=True, slots=True)
class Period:
    """A period of time: its commits by operation, and the number of files at its end."""

    start_ms: int
    commits: Mapping[str, int]
    total_files: int | None


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """A change of the schema or the partitioning, or a new branch or tag, and when it was first seen."""

    kind: str  # schema, spec, branch or tag
    at_ms: int | None
    what: str


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or a tag."""

    name: str
    kind: str
    snapshot_id: int
    at_ms: int | None


@dataclass(frozen=True, slots=True)
class TableHistory:
    """The history of the table that its metadata still has."""

    snapshots: int
    commits: tuple[Commit, ...]  # the newest, newest first
    periods: tuple[Period, ...]
    changes: tuple[HistoryEvent, ...]
    refs: tuple[Ref, ...]
    first_ms: int | None
    last_ms: int | None


@dataclass(frozen=True, slots=True)
class ManifestGroup:
    """Manifests of one kind and spec, as one branch of the tree."""

    kind: str  # data, deletes, or vectors that are stored in the manifests of their data files
    spec_id: int  # MIXED_SPECS: several
    manifests: int
    bytes: int
    files: int
    is_inline: bool = False  # its entries are stored in the root


@dataclass(frozen=True, slots=True)
class MetadataTree:
    """The metadata tree: the metadata file, the root below it, and its manifests."""

    metadata_bytes: int
    root_kind: str  # manifest list, or root of version 4
    root_bytes: int
    nodes: tuple[ManifestGroup, ...]
    largest_manifests: tuple[tuple[Manifest, int], ...]  # each with the number of its live entries
    manifests: int


@dataclass(frozen=True, slots=True)
class MaintenanceOutlook:
    """The steps of `maintain()`, and the effect of a compaction."""

    steps: tuple[Proposal, ...]
    files_to_rewrite: int
    bytes_to_rewrite: int
    output_files: int
    reasons: tuple[tuple[str, bool, int], ...]  # why files are rewritten or left alone, and how many
    failure: str = ""  # why the steps could not be planned


@dataclass(frozen=True, slots=True)
class FilterFacts:
    """The effect of a condition on a compaction: for which partitions it could not be evaluated, and why."""

    where: str
    stats: FilterStats
    matching_files: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FilterMatrix:
    """The columns that let a filter skip files, under each spec."""

    columns: tuple[str, ...]
    spec_ids: tuple[int, ...]
    cells: tuple[tuple[str, ...], ...]  # by column and spec: the transform, "" without a field, "?" if unknown
    filter_facts: FilterFacts | None = None


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """A current or dropped column."""

    field_id: int
    name: str
    type: str
    is_required: bool
    is_live: bool
    default: str
    doc: str
    history: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """The report of one state of a table."""

    name: str
    metadata: TableMetadata
    created_at_ms: int
    total: FileTotals
    sizes: FileSizes
    specs: tuple[SpecFacts, ...]
    worst_partitions: tuple[tuple[int, MapCell], ...]
    partitions: int
    deletes: DeleteFacts
    history: TableHistory
    tree: MetadataTree
    maintenance: MaintenanceOutlook
    filter_matrix: FilterMatrix
    columns: tuple[ColumnFacts, ...]
    sort_order: str

    @property
    def specs_in_use(self) -> tuple[SpecFacts, ...]:
        """The specs that have live files."""
        return tuple(s for s in self.specs if s.amounts.files)

    @property
    def files_after(self) -> int:
        """The number of data files after a compaction."""
        return self.total.files - self.maintenance.files_to_rewrite + self.maintenance.output_files
