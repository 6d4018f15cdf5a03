"""Build the manifests of the next snapshot from the manifests of the head and an action.

Everything is looked up and checked before manifests are written, so a commit that fails its checks leaves nothing
behind. Written manifests are remembered in `WrittenFiles`: a second attempt writes only what the change of the other
writer made necessary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from neve.commit import actions
from neve.commit.actions import (
    NO_FILES,
    Action,
    Append,
    CherryPick,
    DeleteFiles,
    Overwrite,
    RemovedFiles,
    ReplacePartitions,
    RewriteFiles,
    RewriteManifests,
    RowDelta,
)
from neve.commit.deletion_vectors import convert_position_deletes, merge_concurrent_vectors, merge_vectors_per_file
from neve.commit.file_selection import FileSelection, source_manifests
from neve.commit.manifest_edits import (
    SelectedFiles,
    apply_edits,
    distinct_files,
    find_selected_files,
    merge_manifests,
    replace_manifests,
)
from neve.commit.outcome import Check, Conflict
from neve.commit.partition_set import PartitionSet
from neve.commit.window import CommitBase, CommitRefused
from neve.commit.written_files import WrittenFiles
from neve.io.paths import canonical_path_all
from neve.model.partition import Specs
from neve.plan.file_filter import RowFilter
from neve.tree.entries import DETAIL, Content, EntryTable, Manifest, Status
from neve.tree.group_by_spec import FIRST_SPEC, deletion_vector_mask
from neve.tree.read import read_entries
from neve.tree.tree_writer import ManifestEdit


@dataclass(frozen=True, slots=True)
class Draft:
    """The manifests of the next snapshot, and the files that it adds and removes."""

    manifests: tuple[Manifest, ...]
    added: EntryTable
    removed: EntryTable
    duplicates: int = 0
    entries_processed: int = 0
    drops_manifests: bool = False  # true for dropped manifests without live entries too

    @property
    def is_empty(self) -> bool:
        """True if nothing changes, so that no snapshot is needed."""
        return not (len(self.added) or len(self.removed) or self.entries_processed or self.drops_manifests)


def draft_manifests(base: CommitBase, action: Action, written_files: WrittenFiles) -> Draft:
    """Apply an action to the table as it is now."""
    if isinstance(action, RewriteManifests):
        no_files = EntryTable.empty(base.specs)
        manifests, processed = replace_manifests(base, action, written_files)
        manifests = base.tree_writer.manifests_to_list(base.io, manifests, written_files.manifest_context(base))
        return Draft(manifests, no_files, no_files, entries_processed=processed, drops_manifests=bool(action.removed))
    action = convert_position_deletes(base, merge_concurrent_vectors(base, action), written_files)
    data, deletes = _find_removed_files(base, action, written_files)
    removed = EntryTable.concat([data.removed, deletes.removed], base.specs)
    added = _added_entries(base, action, written_files)
    if not len(added) and not len(removed):
        return Draft(base.manifests, added, removed)
    planned_targets = action.vector_targets if isinstance(action, RowDelta) else NO_FILES
    vector_targets = _find_vector_targets(base, added, planned_targets, written_files)
    manifests = _next_manifests(base, action, added, (data, deletes), vector_targets, written_files)
    return Draft(manifests, added, removed, data.duplicates + deletes.duplicates)


def _find_removed_files(
    base: CommitBase, action: Action, written_files: WrittenFiles
) -> tuple[SelectedFiles, SelectedFiles]:
    """Find the data files and delete files to remove, and run the checks that need them."""
    data = find_selected_files(base, data_selection(base, action), written_files, is_deletes=False)
    _refuse_missing(action, data, actions.removed_data(action), base)
    if isinstance(action, ReplacePartitions) and action.append_only and len(data.removed):
        message = "Cannot append to partitions that already hold files: the commit may fill empty partitions only."
        files = tuple(sorted(data.removed["file_path"].to_pylist()))
        raise CommitRefused(Conflict(Check.NEW_DATA, message, files=files, spec_ids=tuple(data.removed.spec_ids())))
    if isinstance(action, RewriteFiles) and action.added_data:
        new, old = (int(pc.sum(files["record_count"]).as_py() or 0) for files in (action.added_data, data.removed))
        # old imports did not count rows
        is_counted = not len(data.removed) or pc.min(data.removed["record_count"]).as_py() >= 0
        if is_counted and new > old:
            message = f"Cannot replace {old} rows by {new}: a rewrite never adds rows."
            raise CommitRefused(Conflict(Check.ROW_GROWTH, message))
    deletes = find_selected_files(base, delete_selection(base, action, data), written_files, is_deletes=True)
    _refuse_missing(action, deletes, actions.removed_deletes(action), base)
    return data, deletes


def data_selection(base: CommitBase, action: Action) -> FileSelection:
    """Return the selection of the data files to remove."""
    named = actions.removed_data(action)
    if isinstance(action, Overwrite | DeleteFiles) and action.row_filter is not None:
        row_filter = RowFilter(action.row_filter, base.metadata, base.specs, action.case_sensitive)
        return FileSelection(base.specs, named, row_filter=row_filter)
    if isinstance(action, ReplacePartitions) and action.added:
        if base.specs.is_unpartitioned(action.added.spec_ids()[0]):
            return FileSelection(base.specs, selects_all=True)
        return FileSelection(base.specs, partitions=PartitionSet.of(action.added, base.specs))
    return FileSelection(base.specs, named)


def delete_selection(base: CommitBase, action: Action, data: SelectedFiles) -> FileSelection:
    """Return the selection of the delete files to remove: named, in dropped partitions, or no longer needed."""
    named = actions.removed_deletes(action)
    lowest = base.next_sequence_number
    if isinstance(action, RewriteFiles) and action.added_data and action.data_sequence_number is not None:
        lowest = min(lowest, action.data_sequence_number)  # compaction may add files older than all that stay
    return replace(
        data_selection(base, action),
        named_files=named,
        older_than=data.oldest_remaining_sequence_number(lowest) if len(data.removed) or named else 0,
        removed_data_files=frozenset(data.removed["file_path"].to_pylist()),
        removed_from_partitions=PartitionSet.of(data.removed, base.specs),
    )


def _refuse_missing(action: Action, selected: SelectedFiles, named: actions.RemovedFiles, base: CommitBase) -> None:
    if not named or not _must_exist(action):
        return
    if missing := FileSelection(base.specs, named).missing_files(selected.removed):
        message = "Files to be removed are no longer in the table: another commit removed or replaced them."
        head = base.parent.snapshot_id if base.parent else None
        raise CommitRefused(Conflict(Check.MISSING_FILES, message, head, tuple(missing)))


def _must_exist(action: Action) -> bool:
    match action:
        case RewriteFiles() | CherryPick():
            return True
        case RowDelta() | DeleteFiles():
            return action.must_exist
        case Overwrite():
            return action.no_conflicting_data or action.no_conflicting_deletes
        case Append() | ReplacePartitions() | RewriteManifests():
            return False


def _added_entries(base: CommitBase, action: Action, written_files: WrittenFiles) -> EntryTable:
    """Return the files that the action adds, as ADDED entries under the current specs of the table."""
    tables: list[tuple[EntryTable, Any]] = []  # with the sequence number
    if data := actions.added_data(action):
        tables.append((data, action.data_sequence_number if isinstance(action, RewriteFiles) else None))
    if deletes := actions.added_deletes(action):
        # A rewritten delete file keeps the sequence number of what it replaces; a higher one would delete newer rows.
        merged = merge_vectors_per_file(base, deletes, written_files)
        tables.append((merged, deletes["sequence_number"] if isinstance(action, RewriteFiles) else None))
        written_files.superseded_files |= written_files.converted_delete_files
    if isinstance(action, Append) and action.manifests:
        tables.append((_entries_of_prepared_manifests(base, action.manifests), None))
    entries = []
    for files, number in tables:
        new = files.with_columns(manifest=-1, row=-1, status=int(Status.ADDED), snapshot_id=written_files.snapshot_id)
        new = new.with_columns(sequence_number=number, file_sequence_number=None, first_row_id=None)
        entries.append(new.with_columns(spec_id=pc.fill_null(files["spec_id"], FIRST_SPEC)))
    return distinct_files(EntryTable.concat(entries, base.specs))


def _entries_of_prepared_manifests(base: CommitBase, manifests: Sequence[Manifest]) -> EntryTable:
    if deletes := tuple(m.path for m in manifests if m.is_deletes):
        message = "Cannot append manifests of delete files: an append adds data files only."
        raise CommitRefused(Conflict(Check.ARGUMENTS, message, files=deletes))
    entries = read_entries(base.io, manifests, base.specs, detail=DETAIL.names)
    if not pc.all(pc.equal(entries["status"], int(Status.ADDED))).as_py():
        message = "Cannot append manifests with existing or deleted entries: an append adds new files only."
        raise CommitRefused(Conflict(Check.ARGUMENTS, message, files=tuple(m.path for m in manifests)))
    return entries


def _find_vector_targets(
    base: CommitBase, added: EntryTable, planned_targets: RemovedFiles, written_files: WrittenFiles
) -> SelectedFiles:
    """Find the live data files of new vectors, for a tree that stores both in one row; a plan may have read them."""
    no_targets = SelectedFiles((), {}, EntryTable.empty(base.specs), 0)
    if not base.tree_writer.joins_vectors:
        return no_targets
    vectors = added.filter(pa.array(deletion_vector_mask(added)))
    named = pc.unique(vectors["referenced_data_file"])
    is_new = pc.is_in(named, value_set=added.of_content(Content.DATA)["file_path"].combine_chunks())
    paths = frozenset(named.filter(pc.invert(is_new)).to_pylist())
    if not paths:
        return no_targets
    selection = FileSelection(
        base.specs,
        RemovedFiles(paths=paths),
        named_partitions=PartitionSet.of(vectors, base.specs),
        named_manifests=_manifests_of_planned_targets(paths, planned_targets),
        purpose="vector targets",
    )
    targets = find_selected_files(base, selection, written_files, is_deletes=False)
    if missing := selection.missing_files(targets.removed):
        message = "Data files that new deletion vectors name are not in the table."
        raise CommitRefused(Conflict(Check.REQUIRED_FILES, message, files=tuple(missing)))
    return targets


def _manifests_of_planned_targets(paths: frozenset[str], planned_targets: RemovedFiles) -> frozenset[str]:
    """Return the manifests in which a plan found the files at these paths; none if it did not find them all."""
    entries = planned_targets.entries
    if not entries:
        return frozenset()
    canonical_paths = canonical_path_all(pa.array(sorted(paths), pa.string()))
    targets = entries.filter(pc.is_in(canonical_path_all(entries["file_path"]), value_set=canonical_paths))
    return source_manifests(replace(planned_targets, entries=targets)) if len(targets) == len(paths) else frozenset()


def _edits_by_file(
    added: EntryTable, selections: Iterable[SelectedFiles], vector_targets: SelectedFiles, specs: Specs
) -> dict[str, ManifestEdit]:
    """Return what happens to the entries of each file of the tree."""
    file_of = {m.path: m.file for selected in (*selections, vector_targets) for m in selected.manifests}
    removed_by_file: dict[str, list[EntryTable]] = {}
    for selected in selections:
        for path in selected.manifests_to_rewrite:
            removed_by_file.setdefault(file_of[path], []).append(selected.matches_by_manifest[path].leaving_files)
    targets_by_file = {
        file_of[path]: vector_targets.matches_by_manifest[path].leaving_files
        for path in vector_targets.manifests_to_rewrite
    }
    removed = EntryTable.concat([selected.removed for selected in selections], specs)
    removed_vectors, vectors = (files.filter(pa.array(deletion_vector_mask(files))) for files in (removed, added))
    named = canonical_path_all(vectors["referenced_data_file"])
    edits = {file: ManifestEdit(EntryTable.concat(tables, specs)) for file, tables in removed_by_file.items()}
    for file, targets in targets_by_file.items():
        leaving = edits[file].removed_entries if file in edits else EntryTable.empty(specs)
        own = vectors.take(pc.index_in(canonical_path_all(targets["file_path"]), value_set=named))
        edits[file] = ManifestEdit(leaving, targets, own, removed_vectors)
    return edits


def _next_manifests(
    base: CommitBase,
    action: Action,
    added: EntryTable,
    selections: tuple[SelectedFiles, SelectedFiles],
    vector_targets: SelectedFiles,
    written_files: WrittenFiles,
) -> tuple[Manifest, ...]:
    """Write the manifests of the next snapshot; new ones come before old ones, data before deletes."""
    writer, context = base.tree_writer, written_files.manifest_context(base)
    key = ("added", written_files.merged_vectors_key, written_files.converted_deletes_key)
    new = written_files.write_manifests_once(key, base, lambda: writer.write_added(base.io, added, context))
    if isinstance(action, Append) and action.fast:
        return writer.manifests_to_list(base.io, (*new, *base.manifests), context)
    edits = _edits_by_file(added, selections, vector_targets, base.specs)
    manifests: list[Manifest] = []
    for is_deletes in (False, True):
        own = [m for m in base.manifests if m.is_deletes == is_deletes and not m.is_view]
        edited = apply_edits(base, own, edits, written_files)
        # a manifest without live files stays only in the snapshot that wrote it
        old = [m for m in edited if m.may_hold_live_files or m.changed_by == written_files.snapshot_id]
        manifests += merge_manifests(base, [*(m for m in new if m.is_deletes == is_deletes), *old], written_files)
    return writer.manifests_to_list(base.io, manifests, context)
