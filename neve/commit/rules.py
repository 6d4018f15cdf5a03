"""The conflict checks of a commit: each is a function of the window and the action that returns a `Conflict` or None.

The letters are those of docs/decisions/0008-commit.md. `rules_of` returns the rules of an operation in the order in
which they are checked. The window starts at the snapshot that was planned on. The checks of removed files (F), growth
(L) and partial matches (N) are in `draft`, which opens the manifests anyway. The last ones here check the request
itself, independent of other writers. `specs_are_known` and `delete_kinds_fit` run for every action, because the table
may have been upgraded since the files were written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.snapshots import Operation

from neve.commit import actions
from neve.commit.actions import Action, CherryPick, Overwrite, RemovedFiles, ReplacePartitions, RewriteFiles, RowDelta
from neve.commit.deletion_vectors import can_be_merged, concurrent_vectors
from neve.commit.file_selection import file_identities
from neve.commit.outcome import Check, Conflict, conflict_over
from neve.commit.partition_set import PartitionSet
from neve.commit.window import CommitBase, CommitRefused, Window
from neve.errors import UnknownName
from neve.plan.cherry_pick import replaces_partitions, why_already_applied
from neve.plan.delete_index import match_deletes, referenced_paths
from neve.plan.file_filter import RowFilter
from neve.plan.metrics_filter import STATISTICS
from neve.plan.ranges import Mask
from neve.tree.checks import unsupported_deletes
from neve.tree.entries import Content, EntryTable, Status, value_codes
from neve.tree.group_by_spec import deletion_vector_mask, validate_added_data_files
from neve.tree.read import manifests_of, read_entries


def removed_deletes_are_covered(window: Window, action: RewriteFiles) -> Conflict | None:
    """No removed delete file applies to a data file that appeared since the table was read, except the covered ones.

    New files are newer than every delete file. But a rewrite may add files with an old sequence number, and a branch
    may be moved back to a snapshot with older live files. Only data manifests that the planned snapshot does not list
    are opened.
    """
    deletes = action.removed_deletes.entries
    if action.covered_data_files is None or not deletes:
        return None
    base = window.base
    start = None if window.start is None else base.metadata.snapshot_by_id(window.start)
    old = {m.path for m in manifests_of(base.io, base.metadata, start)}
    manifests = [m for m in base.manifests if not m.is_deletes and m.path not in old]
    detail = STATISTICS if Content.EQUALITY_DELETES in deletes.numpy("content") else ()
    data = read_entries(base.io, manifests, base.specs, detail=detail, live_only=True)
    covered = pc.is_in(data["file_path"], value_set=pa.array(sorted(action.covered_data_files), pa.string()))
    data = data.filter(pc.invert(covered))
    applying = deletes.take(np.unique(match_deletes(data, deletes)["delete"].to_numpy()))
    message = "Delete files to be removed apply to data files that were not there when the table was read."
    head = base.parent.snapshot_id if base.parent else None
    return conflict_over(Check.NOT_DANGLING, message, applying, snapshot_id=head)


Rule: TypeAlias = Callable[[Window, Any], Conflict | None]
Scope: TypeAlias = RowFilter | PartitionSet | None
"""The files that a check considers: those that may match a filter, those of some partitions, or all."""

OPERATIONS_ADDING_DATA = frozenset({Operation.APPEND, Operation.OVERWRITE})
OPERATIONS_ADDING_DELETES = frozenset({Operation.OVERWRITE, Operation.DELETE})
OPERATIONS_REMOVING_DATA = frozenset({Operation.OVERWRITE, Operation.REPLACE, Operation.DELETE})
OPERATIONS_REPLACING_DATA = frozenset({Operation.OVERWRITE, Operation.REPLACE})
LIVE_STATUSES = (Status.ADDED, Status.EXISTING)


def check_conflicts(base: CommitBase, action: Action) -> None:
    """Raise `CommitRefused` if an action conflicts with the current state of the table."""
    window = Window(base, actions.start_snapshot_id_of(action))
    for rule in rules_of(action, has_parent=base.parent is not None):
        if conflict := rule(window, action):
            raise CommitRefused(conflict)


def rules_of(action: Action, has_parent: bool = True) -> tuple[Rule, ...]:
    """Return the checks of an action, in order; without a parent snapshot there is no history to check."""
    rules: list[tuple[bool, Rule]] = []  # with whether the action requires them
    match action:
        case RowDelta():
            rules = [*(_row_delta_rules(action) if has_parent else ()), (True, no_self_reference)]
        case Overwrite():
            by_filter = has_parent and action.no_conflicting_deletes and action.row_filter is not None
            by_reads = by_filter or (has_parent and action.no_conflicting_removals)
            by_name = has_parent and action.no_conflicting_deletes and bool(action.removed)
            rules = [
                (action.added_match_filter, added_files_match_the_filter),
                (has_parent and action.no_conflicting_data, no_new_data),
                (by_reads, no_new_deletes),
                (by_reads, no_removed_data),
                (by_name, no_new_deletes_for_removed_files),
            ]
        case ReplacePartitions():
            rules = [
                (True, added_files_have_one_spec),
                (has_parent and action.no_conflicting_data, no_new_data),
                (has_parent and action.no_conflicting_deletes, no_removed_data),
                (has_parent and action.no_conflicting_deletes, no_new_deletes),
            ]
        case RewriteFiles():
            rules = [(True, rewrite_arguments_fit), *((has_parent, rule) for rule in _REWRITE_RULES)]
        case CherryPick():
            replaces, has_start = (
                has_parent and replaces_partitions(action.source),
                action.start_snapshot_id is not None,
            )
            rules = [
                (True, source_is_kept),
                (has_parent, changes_are_applied_once),
                (replaces and has_start, start_is_an_ancestor),
                (replaces, no_new_files_in_replaced_partitions),
            ]
    return (*INPUT_RULES, *(rule for is_required, rule in rules if is_required))


def _row_delta_rules(action: RowDelta) -> list[tuple[bool, Rule]]:
    has_start = action.start_snapshot_id is not None
    points_at_files = bool(action.referenced_data_files) or (has_start and bool(referenced_data_files(action)))
    return [
        (has_start, start_is_an_ancestor),
        (points_at_files, referenced_files_still_exist),
        (action.no_conflicting_data, no_new_data),
        (action.no_conflicting_deletes, no_new_deletes_for_removed_files),
        (action.no_conflicting_deletes, no_new_deletes),
        (action.no_conflicting_removals, no_removed_data),
        (action.no_conflicting_removals and not action.no_conflicting_deletes, no_new_deletes),
        (action.no_conflicting_updates and bool(action.removed_data), no_rewrites_of_removed_files),
        (action.no_conflicting_updates, no_updates_of_the_same_files),
        (bool(action.added_deletes), no_new_vectors),
    ]


def no_new_data(window: Window, action: Overwrite | ReplacePartitions | RowDelta) -> Conflict | None:
    """A. No data file was added that may hold rows that the command would have read."""
    scope = _scope(window.base, action)
    may_hold = None if scope is None else scope.may_match_manifests
    new = window.entries(OPERATIONS_ADDING_DATA, is_deletes=False, statuses=[Status.ADDED], may_hold=may_hold)
    message = "Data files that may match were added since the table was read."
    return conflict_over(Check.NEW_DATA, message, new, _is_in_scope(new, scope))


def no_new_deletes(window: Window, action: Overwrite | ReplacePartitions | RowDelta) -> Conflict | None:
    """B. No delete file was added that may apply to rows that the command read."""
    scope = _scope(window.base, action, for_deletes=True)
    new = _new_deletes(window)
    mask = _is_in_scope(new, scope)
    if isinstance(scope, PartitionSet):
        mask |= _is_global(new)
    message = "Delete files that may match were added since the table was read."
    return conflict_over(Check.NEW_DELETES, message, new, mask)


def no_new_deletes_for_removed_files(window: Window, action: Overwrite | RowDelta) -> Conflict | None:
    """C. No removed data file got new deletes: its copy would bring the deleted rows back.

    The filter of the command does not matter, because the copy also holds the rows that it did not match.
    """
    return _conflict_over_gained_deletes(window, actions.removed_data(action), _new_deletes(window))


def no_new_deletes_for_rewritten_files(window: Window, action: RewriteFiles) -> Conflict | None:
    """C. The same for compaction. Equality deletes still apply to copies that keep sequence number and partition."""
    new, number = _new_deletes(window), action.data_sequence_number
    if number is None or not len(new):
        return _conflict_over_gained_deletes(window, action.removed_data, new)
    is_equality = new.numpy("content") == Content.EQUALITY_DELETES
    # equality deletes of a partition miss rows that move to another partition
    is_missed = is_equality & ~_is_global(new) & _rows_may_move(window, action)
    relevant = new.filter(pa.array(is_missed | ~is_equality))
    gained = _conflict_over_gained_deletes(window, action.removed_data, relevant)
    if gained or not action.added_data or not is_missed.any():
        return gained
    # deletes of the partitions that rows move to would apply to the copies, but not to the originals
    copies, deletes = action.added_data.with_columns(sequence_number=number), new.filter(pa.array(is_missed))
    applying = deletes.take(pc.unique(match_deletes(copies, deletes)["delete"]))
    message = "Rows would move to partitions that gained equality deletes since the table was read."
    return conflict_over(Check.NEW_DELETES_FOR_FILES, message, applying)


def _rows_may_move(window: Window, action: RewriteFiles) -> bool:
    """Return whether rows may change their partition.

    A spec always puts a row into the same partition, so rows move only to another spec. Which file became which is
    unknown. Rows stay if all copies are in partitions that were rewritten, and both sides have the same specs.
    """
    if not action.added_data:
        return False
    before, after = _removed_entries(window.base, action.removed_data), action.added_data
    if not PartitionSet.of(before, window.base.specs).holds(after).all():
        return True
    old_specs, new_specs = (set(pc.unique(files["spec_id"]).to_pylist()) for files in (before, after))
    return old_specs != new_specs


def _conflict_over_gained_deletes(window: Window, removed: RemovedFiles, deletes: EntryTable) -> Conflict | None:
    if not removed or not len(deletes):
        return None
    files = _removed_entries(window.base, removed).with_columns(sequence_number=window.start_sequence_number)
    pairs = match_deletes(files, deletes)
    if not pairs.num_rows:
        return None
    return conflict_over(
        Check.NEW_DELETES_FOR_FILES,
        "Files to be replaced gained deletes since the table was read.",
        files.take(pc.unique(pairs["file"])),
        snapshot_id=deletes["snapshot_id"][pairs["delete"][0].as_py()].as_py(),
    )


def no_removed_data(window: Window, action: Overwrite | ReplacePartitions | RowDelta) -> Conflict | None:
    """D. No data file was removed that may hold rows that the command read."""
    scope = _scope(window.base, action, for_deletes=True)
    may_hold = None if scope is None else scope.may_match_manifests
    removed = window.entries(OPERATIONS_REMOVING_DATA, is_deletes=False, statuses=[Status.DELETED], may_hold=may_hold)
    message = "Data files that may match were removed since the table was read."
    return conflict_over(Check.REMOVED_DATA, message, removed, _is_in_scope(removed, scope))


def referenced_files_still_exist(window: Window, action: RowDelta) -> Conflict | None:
    """E. Every data file that a new delete file points at is still live; a DELETED entry does not count as live."""
    operations = OPERATIONS_REMOVING_DATA if action.check_deleted_files else OPERATIONS_REPLACING_DATA
    removed = window.entries(operations, is_deletes=False, statuses=[Status.DELETED])
    mask = _has_path(removed, referenced_data_files(action)) & _is_in_scope(removed, _scope(window.base, action))
    message = "Data files that the new deletes point at were removed or rewritten since the table was read."
    return conflict_over(Check.REQUIRED_FILES, message, removed, mask)


def no_new_vectors(window: Window, action: RowDelta | RewriteFiles) -> Conflict | None:
    """G. No data file to which this commit adds a deletion vector got another one: a file has one vector."""
    new = concurrent_vectors(window, action)
    message = "Data files got deletion vectors from another commit since the table was read."
    mask = ~can_be_merged(window, action, new)
    return conflict_over(Check.NEW_VECTORS, message, new, mask, column="referenced_data_file")


def no_rewrites_of_removed_files(window: Window, action: RowDelta) -> Conflict | None:
    """E. No removed file was rewritten: its rows would live on in the copy. A deleted file may be removed twice."""
    replaced = window.entries(OPERATIONS_REPLACING_DATA, is_deletes=False, statuses=[Status.DELETED])
    message = "Data files whose rows are all deleted were rewritten since the table was read."
    mask = _has_path(replaced, actions.paths_of([_removed_entries(window.base, action.removed_data)]))
    return conflict_over(Check.REQUIRED_FILES, message, replaced, mask)


def no_updates_of_the_same_files(window: Window, action: RowDelta) -> Conflict | None:
    """No commit updated rows of the same files: a row deleted here would live on in its updated copy."""
    removed = _removed_entries(window.base, action.removed_data)
    changed = EntryTable.concat([removed, action.added_deletes], window.base.specs)
    if not len(changed):
        return None
    new = _new_deletes(window, frozenset({Operation.OVERWRITE}))
    named = pa.array(sorted(referenced_data_files(action) | actions.paths_of([removed])), pa.string())
    references = referenced_paths(new)
    names_ours = pc.is_in(references, value_set=named).to_numpy(zero_copy_only=False)
    names_none = references.is_null().to_numpy(zero_copy_only=False)
    in_partition = PartitionSet.of(changed, window.base.specs).holds(new)
    mask = names_ours | (names_none & in_partition) | _is_global(new)
    message = "Rows of the same data files were updated since the table was read."
    return conflict_over(Check.CONCURRENT_UPDATE, message, new, mask)


def _has_path(files: EntryTable, paths: Iterable[str]) -> Mask:
    return np.asarray(pc.is_in(files["file_path"], value_set=pa.array(sorted(paths), pa.string())).to_numpy(), bool)


def _new_deletes(window: Window, operations: frozenset[Operation] = OPERATIONS_ADDING_DELETES) -> EntryTable:
    """Return the delete files committed since the start that can apply to files of that time.

    Each delete file is returned once; if a data file got several vectors one after the other, only the last.
    """
    if window.base.format_version == 1:
        return EntryTable.empty(window.base.specs)
    new = window.entries(operations, is_deletes=True, statuses=LIVE_STATUSES)
    new = new.filter(pc.greater(new["sequence_number"], window.start_sequence_number))
    if len(new) < 2:
        return new
    new = new.take(pc.sort_indices(new["sequence_number"], sort_keys=[("", "descending")]))
    key = pc.if_else(pa.array(deletion_vector_mask(new)), new["referenced_data_file"], file_identities(new))
    return new.take(np.sort(np.unique(value_codes(key)[0], return_index=True)[1]))


def _is_global(deletes: EntryTable) -> Any:
    """Return the equality deletes of an unpartitioned spec, which apply to files of every partition."""
    unpartitioned = [s for s in deletes.specs.by_id if deletes.specs.is_unpartitioned(s)]
    is_equality = deletes.numpy("content") == Content.EQUALITY_DELETES
    return is_equality & np.isin(deletes.numpy("spec_id"), unpartitioned)


def _scope(
    base: CommitBase, action: Overwrite | ReplacePartitions | RowDelta | CherryPick, for_deletes: bool = False
) -> Scope:
    """Return the files that a check considers: in replaced partitions, or matching the filter of the command."""
    if isinstance(action, ReplacePartitions | CherryPick):
        if not action.added or any(base.specs.is_unpartitioned(spec_id) for spec_id in action.added.spec_ids()):
            return None
        return PartitionSet.of(action.added, base.specs)
    row_filter = action.conflict_filter
    if row_filter is None and isinstance(action, Overwrite) and (for_deletes or not action.removed):
        row_filter = action.row_filter
    return None if row_filter is None else RowFilter(row_filter, base.metadata, base.specs, action.case_sensitive)


def _is_in_scope(files: EntryTable, scope: Scope) -> Mask:
    if scope is None:
        return np.ones(len(files), bool)
    return scope.holds(files) if isinstance(scope, PartitionSet) else scope.may_match(files)


def _removed_entries(base: CommitBase, removed: RemovedFiles) -> EntryTable:
    """Return the removed files with their partitions; files known by path only are looked up in the table."""
    by_path = base.live_data_files(removed.paths) if removed.paths else None
    return EntryTable.concat([removed.entries, by_path], base.specs)


def no_self_reference(window: Window, action: RowDelta) -> Conflict | None:
    """H. A delta does not both remove a data file and delete rows from it."""
    removed = action.removed_data.paths | actions.paths_of([action.removed_data.entries])
    if both := removed & referenced_data_files(action):
        message = "Cannot remove data files and delete rows from them in one commit."
        return Conflict(Check.SELF_REFERENCE, message, files=tuple(sorted(both)))
    return None


def start_is_an_ancestor(window: Window, action: RowDelta | CherryPick) -> Conflict | None:
    """I. The snapshot that was planned on is in the history of the branch."""
    oldest = None
    for oldest in window.base.ancestors():  # newest first: most often it is the head
        if oldest.snapshot_id == action.start_snapshot_id:
            return None
    if oldest is not None and oldest.parent_snapshot_id is not None:
        return window.broken_history(oldest)  # older snapshots were expired, so the answer is unknown
    branch = window.base.branch
    message = (
        f"Snapshot {action.start_snapshot_id}, which the change was planned on, is not in the history of {branch!r}."
    )
    return Conflict(Check.ANCESTRY, message, action.start_snapshot_id)


def source_is_kept(window: Window, action: CherryPick) -> Conflict | None:
    """The cherry-picked snapshot has not expired: an expiry may be deleting its files."""
    source_id = action.source.snapshot_id
    if window.base.metadata.snapshot_by_id(source_id) is not None:
        return None
    return Conflict(Check.REQUIRED_FILES, f"Snapshot {source_id} has expired since it was read.", source_id)


def changes_are_applied_once(window: Window, action: CherryPick) -> Conflict | None:
    """The history has neither the cherry-picked snapshot, nor one that applied its changes."""
    reason = why_already_applied(window.base.ancestors(), action.source)
    message = f"Cannot cherry-pick snapshot {action.source.snapshot_id}: {reason}."
    return None if reason is None else Conflict(Check.REPEATED, message, action.source.snapshot_id)


def no_new_files_in_replaced_partitions(window: Window, action: CherryPick) -> Conflict | None:
    """A. No data file was added to a replaced partition: its rows were not there to be replaced."""
    scope = _scope(window.base, action)
    may_hold = None if scope is None else scope.may_match_manifests
    new = window.entries(frozenset(Operation), is_deletes=False, statuses=[Status.ADDED], may_hold=may_hold)
    message = f"Partitions that snapshot {action.source.snapshot_id} replaced got other data files since it was made."
    return conflict_over(Check.NEW_DATA, message, new, _is_in_scope(new, scope))


def delete_kinds_fit(window: Window, action: Action) -> Conflict | None:
    """J. The format version of the table supports the kinds of the delete files; it may have been upgraded."""
    deletes = actions.added_deletes(action)
    if not deletes:
        return None
    wrong, message = unsupported_deletes(window.base.metadata, deletes)
    return conflict_over(Check.DELETE_KIND, message, deletes, wrong)


def specs_are_known(window: Window, action: Action) -> Conflict | None:
    """K. Every added file has a partition spec of the table."""
    for files in actions.added_files(action):
        try:
            validate_added_data_files(window.base.metadata, files)
        except UnknownName as e:
            unknown = ~np.isin(pc.fill_null(files["spec_id"], 0).to_numpy(), list(window.base.specs.by_id))
            return conflict_over(Check.UNKNOWN_SPEC, str(e), files, unknown)
    return None


def added_files_match_the_filter(window: Window, action: Overwrite) -> Conflict | None:
    """M. Every row of the added files matches the filter of the rows that they replace."""
    if action.row_filter is None:
        return Conflict(Check.ARGUMENTS, "Cannot check added files against the overwrite filter: there is none.")
    if not action.added:
        return None
    row_filter = RowFilter(action.row_filter, window.base.metadata, window.base.specs, action.case_sensitive)
    message = f"Added files may hold rows outside the overwrite filter {action.row_filter}."
    return conflict_over(Check.OUTSIDE_FILTER, message, action.added, ~row_filter.must_match(action.added))


def added_files_have_one_spec(window: Window, action: ReplacePartitions) -> Conflict | None:
    """Partitions are replaced under one spec; partitions of different specs may share rows."""
    spec_ids = action.added.spec_ids() if action.added else []
    if len(spec_ids) == 1:
        return None
    message = f"Cannot replace partitions of specs {spec_ids} at once."
    if not spec_ids:
        message = "Cannot replace partitions without new files."
    return Conflict(Check.ARGUMENTS, message, spec_ids=tuple(spec_ids))


def rewrite_arguments_fit(window: Window, action: RewriteFiles) -> Conflict | None:
    """A rewrite removes files, and adds only files that replace others of the same kind."""
    if not action.removed_data and not action.removed_deletes:
        return Conflict(Check.ARGUMENTS, "Cannot rewrite files without removing any.")
    if action.added_data and not action.removed_data:
        return Conflict(Check.ARGUMENTS, "Cannot add data files without removing the ones they replace.")
    if action.added_deletes and not action.removed_deletes:
        return Conflict(Check.ARGUMENTS, "Cannot add delete files without removing the ones they replace.")
    return None


def referenced_data_files(action: RowDelta) -> frozenset[str]:
    """Return the data files that the new deletes of a delta point at."""
    named = referenced_paths(action.added_deletes).to_pylist() if action.added_deletes else []
    return action.referenced_data_files | frozenset(name for name in named if name is not None)


INPUT_RULES: tuple[Rule, ...] = (specs_are_known, delete_kinds_fit)
_REWRITE_RULES: tuple[Rule, ...] = (no_new_deletes_for_rewritten_files, no_new_vectors, removed_deletes_are_covered)
