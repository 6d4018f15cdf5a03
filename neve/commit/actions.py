"""What a commit can do to a table: one frozen value per Iceberg operation.

An action says which files come and go, what the caller had read (`start_snapshot_id`, the snapshot its plan was made
on) and which checks it asks for. It knows nothing about the table it meets; the same action is applied anew at every
attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table.snapshots import Operation

from neve.model.partition import Specs
from neve.tree.entries import EntryTable, Manifest

Files: TypeAlias = EntryTable | None


@dataclass(frozen=True, slots=True)
class RemovedFiles:
    """Files to take out of the table: entries that a plan has read, or paths.

    With `manifests` (the path of each manifest the ordinals of the entries count) only those manifests are opened
    while they are still in the table; otherwise the ones that may hold the partitions of the entries.
    """

    entries: Files = None
    paths: frozenset[str] = frozenset()
    manifests: tuple[str, ...] = ()

    @classmethod
    def of(cls, *paths: str) -> RemovedFiles:
        """The files at some paths."""
        return cls(paths=frozenset(paths))

    def __bool__(self) -> bool:
        return bool(self.paths) or bool(self.entries)


NO_FILES = RemovedFiles()


@dataclass(frozen=True, slots=True)
class Append:
    """Add data files. A fast append leaves the manifests of the table as they are; others may merge them.

    `manifests` adds the files of manifests that another writer prepared; they may hold new files only.
    """

    files: Files = None
    fast: bool = False
    manifests: tuple[Manifest, ...] = ()


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Replace files: the ones named, and every file that lies entirely inside `row_filter`."""

    added: Files = None
    removed: RemovedFiles = NO_FILES
    removed_deletes: RemovedFiles = NO_FILES
    row_filter: BooleanExpression | None = None
    conflict_filter: BooleanExpression | None = None
    start_snapshot_id: int | None = None
    no_conflicting_data: bool = False
    no_conflicting_deletes: bool = False
    no_conflicting_removals: bool = False  # nothing that may match was deleted or removed
    added_match_filter: bool = False
    case_sensitive: bool = True


@dataclass(frozen=True, slots=True)
class ReplacePartitions:
    """Replace the partitions of the added files, each the pair of spec and tuple.

    Files of an unpartitioned spec replace the whole table.
    """

    added: Files = None
    start_snapshot_id: int | None = None
    no_conflicting_data: bool = False
    no_conflicting_deletes: bool = False
    append_only: bool = False


@dataclass(frozen=True, slots=True)
class DeleteFiles:
    """Drop whole data files, by name or because every row of them matches; acts on what is there when it commits."""

    removed: RemovedFiles = NO_FILES
    row_filter: BooleanExpression | None = None
    must_exist: bool = False
    case_sensitive: bool = True


@dataclass(frozen=True, slots=True)
class RowDelta:
    """Change rows: data files and delete files come and go together.

    `referenced` are the data files the new position deletes point at, beyond those the delete files name themselves.
    `homes` are the same as a plan has read them: a tree that keeps vectors beside their files need not look for them.
    With `merge_vectors` a delta that only deletes gets along with others of the kind: vectors of one file are united.
    """

    added_data: Files = None
    added_deletes: Files = None
    removed_data: RemovedFiles = NO_FILES
    removed_deletes: RemovedFiles = NO_FILES
    referenced_data_files: frozenset[str] = frozenset()
    vector_targets: RemovedFiles = NO_FILES
    conflict_filter: BooleanExpression | None = None
    start_snapshot_id: int | None = None
    check_deleted_files: bool = False
    no_conflicting_data: bool = False
    no_conflicting_deletes: bool = False
    no_conflicting_updates: bool = False
    no_conflicting_removals: bool = False  # nothing that may match was deleted or removed
    merge_vectors: bool = False
    must_exist: bool = False
    case_sensitive: bool = True


@dataclass(frozen=True, slots=True)
class RewriteFiles:
    """Replace files by others that hold the same rows (compaction).

    With `data_sequence_number`, that of the snapshot the plan was made on, equality deletes committed meanwhile still
    apply. With `covers` the removed delete files must apply to no live data file but these when the commit lands.
    """

    removed_data: RemovedFiles = NO_FILES
    added_data: Files = None
    removed_deletes: RemovedFiles = NO_FILES
    added_deletes: Files = None
    data_sequence_number: int | None = None
    start_snapshot_id: int | None = None
    covered_data_files: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class RewriteManifests:
    """Replace manifests by others that hold the same live files.

    `groups` are the live entries of the removed manifests with all their detail columns, one group to a new manifest;
    `added` are manifests written elsewhere, which may hold existing entries only.
    """

    removed: frozenset[str]
    groups: tuple[EntryTable, ...] = ()
    added: tuple[Manifest, ...] = ()


Action: TypeAlias = Append | Overwrite | ReplacePartitions | DeleteFiles | RowDelta | RewriteFiles | RewriteManifests


def added_data(action: Action) -> Files:
    """The data files an action brings."""
    match action:
        case Append():
            return action.files
        case Overwrite() | ReplacePartitions():
            return action.added
        case RowDelta() | RewriteFiles():
            return action.added_data
        case DeleteFiles() | RewriteManifests():
            return None


def added_deletes(action: Action) -> Files:
    """The delete files an action brings."""
    return action.added_deletes if isinstance(action, RowDelta | RewriteFiles) else None


def added_files(action: Action) -> Iterator[EntryTable]:
    """Everything an action brings, data before deletes."""
    for files in (added_data(action), added_deletes(action)):
        if files:
            yield files


def removed_data(action: Action) -> RemovedFiles:
    """The data files an action takes out by name."""
    match action:
        case Overwrite() | DeleteFiles():
            return action.removed
        case RowDelta() | RewriteFiles():
            return action.removed_data
        case Append() | ReplacePartitions() | RewriteManifests():
            return NO_FILES


def removed_deletes(action: Action) -> RemovedFiles:
    """The delete files an action takes out by name."""
    return action.removed_deletes if isinstance(action, Overwrite | RowDelta | RewriteFiles) else NO_FILES


def start_snapshot_id_of(action: Action) -> int | None:
    """The snapshot the caller had read, when it told."""
    return None if isinstance(action, Append | DeleteFiles | RewriteManifests) else action.start_snapshot_id


def operation_of(action: Action) -> Operation:
    """The name Iceberg gives the operation; later commits decide by it what to look at."""
    match action:
        case Append():
            return Operation.APPEND
        case DeleteFiles():
            return Operation.DELETE
        case RewriteFiles() | RewriteManifests():
            return Operation.REPLACE
        case ReplacePartitions():
            return Operation.OVERWRITE
        case Overwrite():
            return _operation_of_overwrite(action)
        case RowDelta():
            return _operation_of_delta(action)


def _operation_of_overwrite(action: Overwrite) -> Operation:
    removes = bool(action.removed or action.removed_deletes) or action.row_filter is not None
    if action.added and removes:
        return Operation.OVERWRITE
    return Operation.DELETE if removes else Operation.APPEND


def _operation_of_delta(action: RowDelta) -> Operation:
    if action.added_deletes:
        return Operation.OVERWRITE if action.added_data else Operation.DELETE
    removes = bool(action.removed_data or action.removed_deletes)
    return Operation.OVERWRITE if removes else Operation.APPEND


def with_specs(action: Action, specs: Specs) -> Action:
    """The same action on a table whose specs or types may have changed since its files were read and written."""
    changes: dict[str, Any] = {f.name: _value_with_specs(getattr(action, f.name), specs) for f in fields(action)}
    return replace(action, **changes)


def _value_with_specs(value: Any, specs: Specs) -> Any:
    if isinstance(value, EntryTable):
        return value.with_specs(specs)
    if isinstance(value, RemovedFiles) and value.entries is not None:
        return replace(value, entries=value.entries.with_specs(specs))
    return tuple(_value_with_specs(part, specs) for part in value) if isinstance(value, tuple) else value


def paths_of(tables: Iterable[Files]) -> frozenset[str]:
    """The paths of some files."""
    return frozenset(path for table in tables if table for path in table["file_path"].to_pylist())
