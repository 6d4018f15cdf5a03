"""The actions that a commit applies to a table: one frozen value per Iceberg operation.

An action holds the files to add and remove, the snapshot that the caller planned on (`start_snapshot_id`), and the
checks it requires. It is independent of the state of the table: the same action is applied again at every attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table.snapshots import Operation, Snapshot

from neve.model.partition import Specs
from neve.model.snapshots import snapshot_operation
from neve.tree.entries import EntryTable, Manifest

Files: TypeAlias = EntryTable | None


@dataclass(frozen=True, slots=True)
class RemovedFiles:
    """Files to remove from the table: entries that a plan has read, or paths.

    `manifests` are the paths of the manifests that the ordinals of the entries refer to. If all of them are still in
    the table, only these are opened; otherwise the manifests that may hold the partitions of the entries.
    """

    entries: Files = None
    paths: frozenset[str] = frozenset()
    manifests: tuple[str, ...] = ()

    @classmethod
    def of(cls, *paths: str) -> RemovedFiles:
        """Build the value from paths."""
        return cls(paths=frozenset(paths))

    def __bool__(self) -> bool:
        return bool(self.paths) or bool(self.entries)


NO_FILES = RemovedFiles()


@dataclass(frozen=True, slots=True)
class Append:
    """Add data files. A fast append keeps the manifests of the table unchanged; other appends may merge them.

    `manifests` are manifests that another writer prepared. Their files are added; they must list new files only.
    """

    files: Files = None
    fast: bool = False
    manifests: tuple[Manifest, ...] = ()


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Replace files: the named ones, and every file in which all rows match `row_filter`."""

    added: Files = None
    removed: RemovedFiles = NO_FILES
    removed_deletes: RemovedFiles = NO_FILES
    row_filter: BooleanExpression | None = None
    conflict_filter: BooleanExpression | None = None
    start_snapshot_id: int | None = None
    no_conflicting_data: bool = False
    no_conflicting_deletes: bool = False
    no_conflicting_removals: bool = False  # no rows or files that may match were deleted
    added_match_filter: bool = False
    case_sensitive: bool = True


@dataclass(frozen=True, slots=True)
class ReplacePartitions:
    """Replace the partitions (spec and tuple) of the added files; those of an unpartitioned spec replace the table."""

    added: Files = None
    start_snapshot_id: int | None = None
    no_conflicting_data: bool = False
    no_conflicting_deletes: bool = False
    append_only: bool = False


@dataclass(frozen=True, slots=True)
class DeleteFiles:
    """Drop whole data files, by name or because every row matches; selects files at the time of the commit."""

    removed: RemovedFiles = NO_FILES
    row_filter: BooleanExpression | None = None
    must_exist: bool = False
    case_sensitive: bool = True


@dataclass(frozen=True, slots=True)
class RowDelta:
    """Change rows: add and remove data files and delete files together.

    `referenced_data_files` are data files that the new position deletes point at, in addition to those that the delete
    files name themselves. `vector_targets` are the same files as a plan has read them: a tree that stores vectors
    beside their files need not search for them. With `merge_vectors`, a delta that only deletes does not conflict with
    concurrent deltas of the same kind: the vectors of each data file are merged.
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
    no_conflicting_removals: bool = False  # no rows or files that may match were deleted
    merge_vectors: bool = False
    must_exist: bool = False
    case_sensitive: bool = True


@dataclass(frozen=True, slots=True)
class RewriteFiles:
    """Replace files by others that hold the same rows (compaction).

    With `data_sequence_number`, the sequence number of the planned snapshot, equality deletes that are committed
    concurrently still apply. With `covered_data_files`, the removed delete files must apply to no other live data file
    at the time of the commit.
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
    """Replace manifests by others that list the same live files.

    `groups` are the live entries of the removed manifests with all detail columns, one group per new manifest.
    `added` are manifests that the caller wrote; they must hold existing entries only.
    """

    removed: frozenset[str]
    groups: tuple[EntryTable, ...] = ()
    added: tuple[Manifest, ...] = ()


@dataclass(frozen=True, slots=True)
class CherryPick:
    """Apply the changes of another snapshot again: an append, or an overwrite of partitions.

    `added` and `removed` are the data files that the source added and removed.
    """

    source: Snapshot
    added: Files = None
    removed: RemovedFiles = NO_FILES

    @property
    def start_snapshot_id(self) -> int | None:
        """The snapshot that the source was made on."""
        return self.source.parent_snapshot_id


Action: TypeAlias = (
    Append | Overwrite | ReplacePartitions | DeleteFiles | RowDelta | RewriteFiles | RewriteManifests | CherryPick
)


def added_data(action: Action) -> Files:
    """Return the data files that an action adds."""
    match action:
        case Append():
            return action.files
        case Overwrite() | ReplacePartitions() | CherryPick():
            return action.added
        case RowDelta() | RewriteFiles():
            return action.added_data
        case DeleteFiles() | RewriteManifests():
            return None


def added_deletes(action: Action) -> Files:
    """Return the delete files that an action adds."""
    return action.added_deletes if isinstance(action, RowDelta | RewriteFiles) else None


def added_files(action: Action) -> Iterator[EntryTable]:
    """Yield all files that an action adds, data before deletes."""
    for files in (added_data(action), added_deletes(action)):
        if files:
            yield files


def removed_data(action: Action) -> RemovedFiles:
    """Return the data files that an action removes by name."""
    match action:
        case Overwrite() | DeleteFiles() | CherryPick():
            return action.removed
        case RowDelta() | RewriteFiles():
            return action.removed_data
        case Append() | ReplacePartitions() | RewriteManifests():
            return NO_FILES


def removed_deletes(action: Action) -> RemovedFiles:
    """Return the delete files that an action removes by name."""
    return action.removed_deletes if isinstance(action, Overwrite | RowDelta | RewriteFiles) else NO_FILES


def start_snapshot_id_of(action: Action) -> int | None:
    """Return the snapshot that the caller planned on, if the action states it."""
    return None if isinstance(action, Append | DeleteFiles | RewriteManifests) else action.start_snapshot_id


def operation_of(action: Action) -> Operation:
    """Return the Iceberg name of the operation; later commits use it to decide which snapshots to check."""
    operation = Operation.APPEND
    match action:
        case DeleteFiles():
            operation = Operation.DELETE
        case RewriteFiles() | RewriteManifests():
            operation = Operation.REPLACE
        case CherryPick():
            operation = snapshot_operation(action.source)
        case ReplacePartitions():
            operation = Operation.OVERWRITE
        case Overwrite() if action.removed or action.removed_deletes or action.row_filter is not None:
            operation = Operation.OVERWRITE if action.added else Operation.DELETE
        case RowDelta() if action.added_deletes:
            operation = Operation.OVERWRITE if action.added_data else Operation.DELETE
        case RowDelta() if action.removed_data or action.removed_deletes:
            operation = Operation.OVERWRITE
    return operation


def with_specs(action: Action, specs: Specs) -> Action:
    """Adapt an action to a table whose specs or types may have changed since its files were read and written."""
    return replace(action, **{f.name: _value_with_specs(getattr(action, f.name), specs) for f in fields(action)})


def _value_with_specs(value: Any, specs: Specs) -> Any:
    if isinstance(value, EntryTable):
        return value.with_specs(specs)
    if isinstance(value, RemovedFiles) and value.entries is not None:
        return replace(value, entries=value.entries.with_specs(specs))
    return tuple(_value_with_specs(part, specs) for part in value) if isinstance(value, tuple) else value


def paths_of(tables: Iterable[Files]) -> frozenset[str]:
    """Return the paths of files."""
    return frozenset(path for table in tables if table for path in table["file_path"].to_pylist())
