"""From the manifests of the head and an action to the manifests of the next snapshot.

First everything is looked up and checked, then manifests are written: a commit that fails its checks leaves nothing
behind. What is written is kept in the scratch, so a second attempt writes only what the other writer's change made
necessary.
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
    """The manifests of the next snapshot, and the files that come and go with it."""

    manifests: tuple[Manifest, ...]
    added: EntryTable
    removed: EntryTable
    duplicates: int = 0
    entries_processed: int = 0
    drops_manifests: bool = False  # which may hold no entry worth processing

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes, so that no snapshot is due."""
        return not (len(self.added) or len(self.removed) or self.entries_processed or self.drops_manifests)


def draft_manifests(base: CommitBase, action: Action, written_files: WrittenFiles) -> Draft:
    """Apply an action to the table as it is now."""
    if isinstance(action, RewriteManifests):
        nothing = EntryTable.empty(base.specs)
        manifests, processed = replace_manifests(base, action, written_files)
        manifests = base.tree_writer.manifests_to_list(base.io, manifests, written_files.manifest_context(base))
        return Draft(manifests, nothing, nothing, entries_processed=processed, drops_manifests=bool(action.removed))
    action = convert_position_deletes(base, merge_concurrent_vectors(base, action), written_files)
    data, deletes = _find_leaving_files(base, action, written_files)
    removed = EntryTable.concat([data.removed, deletes.removed], base.specs)
    added = _added_entries(base, action, written_files)
    if not len(added) and not len(removed):
        return Draft(base.manifests, added, removed)
    homes = _find_vector_targets(
        base, added, action.vector_targets if isinstance(action, RowDelta) else NO_FILES, written_files
    )
    manifests = _next_manifests(base, action, added, (data, deletes), homes, written_files)
    return Draft(manifests, added, removed, data.duplicates + deletes.duplicates)


def _find_leaving_files(
    base: CommitBase, action: Action, written_files: WrittenFiles
) -> tuple[SelectedFiles, SelectedFiles]:
    """Where the files that leave are, data and deletes, after every check that looks at them."""
    data = find_selected_files(
        base, [m for m in base.manifests if not m.is_deletes], data_selection(base, action), written_files
    )
    _refuse_missing(action, data, actions.removed_data(action), base)
    _refuse_existing(action, data)
    _refuse_growth(action, data)
    deletes = find_selected_files(
        base, [m for m in base.manifests if m.is_deletes], delete_selection(base, action, data), written_files
    )
    _refuse_missing(action, deletes, actions.removed_deletes(action), base)
    return data, deletes


def data_selection(base: CommitBase, action: Action) -> FileSelection:
    """The data files that leave."""
    named = actions.removed_data(action)
    if isinstance(action, Overwrite | DeleteFiles) and action.row_filter is not None:
        row_filter = RowFilter(action.row_filter, base.metadata, base.specs, action.case_sensitive)
        return FileSelection(base.specs, named, row_filter=row_filter)
    if isinstance(action, ReplacePartitions) and action.added:
        return _replaced(base, action.added)
    return FileSelection(base.specs, named)


def _replaced(base: CommitBase, added: EntryTable) -> FileSelection:
    if base.specs.is_unpartitioned(added.spec_ids()[0]):
        return FileSelection(base.specs, selects_all=True)
    return FileSelection(base.specs, partitions=PartitionSet.of(added, base.specs))


def delete_selection(base: CommitBase, action: Action, data: SelectedFiles) -> FileSelection:
    """The delete files that leave: the named ones, those of dropped partitions, and those nothing needs any more."""
    named = actions.removed_deletes(action)
    removes = bool(len(data.removed)) or bool(named)
    return replace(
        data_selection(base, action),
        named_files=named,
        older_than=data.oldest_remaining_sequence_number(_floor(base, action)) if removes else 0,
        removed_data_files=frozenset(data.removed["file_path"].to_pylist()),
        removed_from_partitions=PartitionSet.of(data.removed, base.specs),
    )


def _floor(base: CommitBase, action: Action) -> int:
    """The lowest number a file of this commit can have: compaction may add files older than anything that stays."""
    explicit = action.data_sequence_number if isinstance(action, RewriteFiles) and action.added_data else None
    return base.next_sequence_number if explicit is None else min(explicit, base.next_sequence_number)


def _refuse_missing(action: Action, filtered: SelectedFiles, named: actions.RemovedFiles, base: CommitBase) -> None:
    if not named or not _must_exist(action):
        return
    if missing := FileSelection(base.specs, named).missing_files(filtered.removed):
        raise CommitRefused(
            Conflict(
                Check.MISSING_FILES,
                "Files to be removed are no longer in the table: another commit removed or replaced them.",
                base.parent.snapshot_id if base.parent else None,
                tuple(missing),
            )
        )


def _must_exist(action: Action) -> bool:
    match action:
        case RewriteFiles():
            return True
        case RowDelta() | DeleteFiles():
            return action.must_exist
        case Overwrite():
            return action.no_conflicting_data or action.no_conflicting_deletes
        case Append() | ReplacePartitions() | RewriteManifests():
            return False


def _refuse_existing(action: Action, data: SelectedFiles) -> None:
    if isinstance(action, ReplacePartitions) and action.append_only and len(data.removed):
        message = "Cannot append to partitions that already hold files: the commit was to fill empty partitions only."
        files = tuple(sorted(data.removed["file_path"].to_pylist()))
        raise CommitRefused(Conflict(Check.NEW_DATA, message, files=files, spec_ids=tuple(data.removed.spec_ids())))


def _refuse_growth(action: Action, data: SelectedFiles) -> None:
    if not isinstance(action, RewriteFiles) or not action.added_data:
        return
    new, old = (int(pc.sum(files["record_count"]).as_py() or 0) for files in (action.added_data, data.removed))
    is_counted = not len(data.removed) or pc.min(data.removed["record_count"]).as_py() >= 0  # old imports did not
    if is_counted and new > old:
        raise CommitRefused(
            Conflict(Check.ROW_GROWTH, f"Cannot replace {old} rows by {new}: a rewrite never adds rows.")
        )


def _added_entries(base: CommitBase, action: Action, written_files: WrittenFiles) -> EntryTable:
    """The files the action brings, as ADDED entries under the specs the table has now."""
    number = action.data_sequence_number if isinstance(action, RewriteFiles) else None
    fresh = []
    if data := actions.added_data(action):
        fresh.append(_as_added_entries(base, data, written_files, number))
    if deletes := actions.added_deletes(action):
        # A rewritten delete file keeps the number of what it replaces, or it would delete from newer files.
        stated = deletes["sequence_number"] if isinstance(action, RewriteFiles) else None
        fresh.append(
            _as_added_entries(base, merge_vectors_per_file(base, deletes, written_files), written_files, stated)
        )
        written_files.superseded_files |= written_files.converted_delete_files
    if isinstance(action, Append) and action.manifests:
        fresh.append(
            _as_added_entries(base, _entries_of_prepared_manifests(base, action.manifests), written_files, None)
        )
    return distinct_files(EntryTable.concat(fresh, base.specs))


def _as_added_entries(
    base: CommitBase, files: EntryTable, written_files: WrittenFiles, sequence_number: Any
) -> EntryTable:
    columns = {name: files[name] for name in files.columns.schema.names}
    columns |= {"manifest": -1, "row": -1, "status": int(Status.ADDED), "snapshot_id": written_files.snapshot_id}
    columns |= {"sequence_number": sequence_number, "file_sequence_number": None, "first_row_id": None}
    columns["spec_id"] = pc.fill_null(files["spec_id"], FIRST_SPEC)
    return EntryTable.from_columns(columns, base.specs, len(files), [n for n in DETAIL.names if n in columns])


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
    """The live data files that new vectors are to lie beside, where the tree keeps both in one row.

    `known` are files that a plan has read, and the manifests it found them in.
    """
    nothing = SelectedFiles((), {}, EntryTable.empty(base.specs), 0)
    vectors = added.filter(pa.array(deletion_vector_mask(added))) if base.tree_writer.joins_vectors else nothing.removed
    named = pc.unique(vectors["referenced_data_file"])
    new = pc.is_in(named, value_set=added.of_content(Content.DATA)["file_path"].combine_chunks())
    paths = frozenset(named.filter(pc.invert(new)).to_pylist())
    if not paths:
        return nothing
    wanted = FileSelection(
        base.specs,
        RemovedFiles(paths=paths),
        named_partitions=PartitionSet.of(vectors, base.specs),
        named_manifests=_manifests_of_planned_targets(paths, planned_targets),
        purpose="homes",
    )
    found = find_selected_files(base, [m for m in base.manifests if not m.is_deletes], wanted, written_files)
    if missing := wanted.missing_files(found.removed):
        message = "Data files that new deletion vectors name are not in the table."
        raise CommitRefused(Conflict(Check.REQUIRED_FILES, message, files=tuple(missing)))
    return found


def _manifests_of_planned_targets(paths: frozenset[str], planned_targets: RemovedFiles) -> frozenset[str]:
    """The manifests in which a plan has found the files at some paths; none if it has not found them all."""
    if not planned_targets.entries:
        return frozenset()
    wanted = canonical_path_all(pa.array(sorted(paths), pa.string()))
    own = planned_targets.entries.filter(
        pc.is_in(canonical_path_all(planned_targets.entries["file_path"]), value_set=wanted)
    )
    return source_manifests(replace(planned_targets, entries=own)) if len(own) == len(paths) else frozenset()


def _edits_by_file(
    added: EntryTable, leaving: Iterable[SelectedFiles], vector_targets: SelectedFiles, specs: Specs
) -> dict[str, ManifestEdit]:
    """What becomes of the entries of each file of the tree."""
    files = {m.path: m.file for filtered in (*leaving, vector_targets) for m in filtered.manifests}
    gone: dict[str, list[EntryTable]] = {}
    for filtered in leaving:
        for path in filtered.manifests_to_rewrite:
            gone.setdefault(files[path], []).append(filtered.matches_by_manifest[path].leaving_files)
    holders = {
        files[path]: vector_targets.matches_by_manifest[path].leaving_files
        for path in vector_targets.manifests_to_rewrite
    }
    left = EntryTable.concat([filtered.removed for filtered in leaving], specs)
    before = left.filter(pa.array(deletion_vector_mask(left)))
    return {
        file: _build_edit(EntryTable.concat(gone.get(file, []), specs), holders.get(file), added, before)
        for file in {*gone, *holders}
    }


def _build_edit(
    leaving: EntryTable, vector_targets: EntryTable | None, added: EntryTable, before: EntryTable
) -> ManifestEdit:
    if vector_targets is None:
        return ManifestEdit(leaving)
    vectors = added.filter(pa.array(deletion_vector_mask(added)))
    named = canonical_path_all(vectors["referenced_data_file"])
    own = vectors.take(pc.index_in(canonical_path_all(vector_targets["file_path"]), value_set=named))
    return ManifestEdit(leaving, vector_targets, own, before)


def _next_manifests(
    base: CommitBase,
    action: Action,
    added: EntryTable,
    leaving: tuple[SelectedFiles, SelectedFiles],
    vector_targets: SelectedFiles,
    written_files: WrittenFiles,
) -> tuple[Manifest, ...]:
    """The manifests of the next snapshot: new before old, data before deletes."""
    shape, context = base.tree_writer, written_files.manifest_context(base)
    made = (written_files.merged_vectors_key, written_files.converted_deletes_key)
    new = written_files.write_manifests_once(("added", *made), base, lambda: shape.write_added(base.io, added, context))
    if isinstance(action, Append) and action.fast:
        return shape.manifests_to_list(base.io, (*new, *base.manifests), context)
    edits = _edits_by_file(added, leaving, vector_targets, base.specs)
    found: list[Manifest] = []
    for is_deletes in (False, True):
        own = [m for m in base.manifests if m.is_deletes == is_deletes and not m.is_view]
        old = [m for m in apply_edits(base, own, edits, written_files) if _is_needed(m, written_files)]
        found += merge_manifests(base, [*(m for m in new if m.is_deletes == is_deletes), *old], written_files)
    return shape.manifests_to_list(base.io, found, context)


def _is_needed(manifest: Manifest, written_files: WrittenFiles) -> bool:
    """Manifests of tombstones stay only in the snapshot that made them."""
    return manifest.may_hold_live_files or manifest.changed_by == written_files.snapshot_id
