"""The conflict checks: each a sentence, a function of the window and the action, that returns a `Conflict` or nothing.

The letters are those of docs/decisions/0008-commit.md. `rules_of` puts them in the order in which an operation is
checked. The window starts at the snapshot the plan was made on. Checks of removed files (F), growth (L) and partial
matches (N) come with the draft, which opens the manifests anyway.

The check that delete files which go apply to nothing they should stay for, as the table is when they go.

Which files a check looks at: all, those a row filter concerns, or those of some partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.snapshots import Operation

from neve.commit import actions
from neve.commit.actions import Action, Overwrite, ReplacePartitions, RewriteFiles, RowDelta
from neve.commit.deletion_vectors import can_be_merged, concurrent_vectors
from neve.commit.file_selection import file_identities
from neve.commit.outcome import Check, Conflict, conflict_over
from neve.commit.partition_set import PartitionSet
from neve.commit.preconditions import (
    added_files_have_one_spec,
    added_files_match_the_filter,
    delete_kinds_fit,
    no_self_reference,
    referenced_data_files,
    rewrite_arguments_fit,
    specs_are_known,
    start_is_an_ancestor,
)
from neve.commit.window import CommitBase, CommitRefused, Window
from neve.plan.delete_index import match_deletes, referenced_paths
from neve.plan.file_filter import RowFilter
from neve.plan.metrics_filter import STATISTICS
from neve.plan.ranges import Mask
from neve.tree.entries import Content, EntryTable, Manifest, Status
from neve.tree.group_by_spec import deletion_vector_mask
from neve.tree.read import manifests_of, read_entries


def removed_deletes_are_covered(window: Window, action: RewriteFiles) -> Conflict | None:
    """No data file that a removed delete file applies to came since the table was read, but those that are covered.

    New files are newer than every delete; but a rewrite may add files that keep an old number, and a branch may be
    moved back to a snapshot in which older files are live. Only manifests that were not there then are opened.
    """
    deletes = action.removed_deletes.entries
    if action.covered_data_files is None or not deletes:
        return None
    by_equality = bool((deletes.numpy("content") == Content.EQUALITY_DELETES).any())
    base = window.base
    data = read_entries(
        base.io,
        _data_manifests_since_start(window),
        base.specs,
        detail=STATISTICS if by_equality else (),
        live_only=True,
    )
    known = pc.is_in(data["file_path"], value_set=pa.array(sorted(action.covered_data_files), pa.string()))
    data = data.filter(pc.invert(known))
    applying = deletes.take(np.unique(match_deletes(data, deletes)["delete"].to_numpy()))
    message = "Delete files to be removed apply to data files that were not there when the table was read."
    head = base.parent.snapshot_id if base.parent else None
    return conflict_over(Check.NOT_DANGLING, message, applying, snapshot_id=head)


def _data_manifests_since_start(window: Window) -> list[Manifest]:
    """The manifests of data files that are not those of the snapshot the plan was made on."""
    base = window.base
    start = None if window.start is None else base.metadata.snapshot_by_id(window.start)
    seen = {m.path for m in manifests_of(base.io, base.metadata, start)}
    return [m for m in base.manifests if not m.is_deletes and m.path not in seen]


@dataclass(frozen=True)
class Scope:
    """The files a check looks at: all, those that may match a filter, or those of some partitions."""

    row_filter: RowFilter | None = None
    partitions: PartitionSet | None = None

    def may_match_manifests(self, manifests: Sequence[Manifest]) -> Mask:
        """Which manifests may hold a file in scope."""
        if self.row_filter is not None:
            return self.row_filter.may_match_manifests(manifests)
        return (
            np.ones(len(manifests), bool) if self.partitions is None else self.partitions.may_match_manifests(manifests)
        )

    def may_match(self, files: EntryTable) -> Mask:
        """Which files are in scope."""
        if self.row_filter is not None:
            return self.row_filter.may_match(files)
        return np.ones(len(files), bool) if self.partitions is None else self.partitions.holds(files)


Rule: TypeAlias = Callable[[Window, Any], Conflict | None]

OPERATIONS_ADDING_DATA = frozenset({Operation.APPEND, Operation.OVERWRITE})
OPERATIONS_ADDING_DELETES = frozenset({Operation.OVERWRITE, Operation.DELETE})
OPERATIONS_REMOVING_DATA = frozenset({Operation.OVERWRITE, Operation.REPLACE, Operation.DELETE})
OPERATIONS_REPLACING_DATA = frozenset({Operation.OVERWRITE, Operation.REPLACE})
LIVE_STATUSES = (Status.ADDED, Status.EXISTING)


def check_conflicts(base: CommitBase, action: Action) -> None:
    """Refuse an action that does not fit the table as it is now."""
    window = Window(base, actions.start_snapshot_id_of(action))
    for rule in rules_of(action, has_parent=base.parent is not None):
        if conflict := rule(window, action):
            raise CommitRefused(conflict)


def rules_of(action: Action, has_parent: bool = True) -> tuple[Rule, ...]:
    """The checks an action asks for, in order; without a parent there is no history to look at."""
    match action:
        case RowDelta():
            return (*INPUT_RULES, *(_row_delta_rules(action) if has_parent else ()), no_self_reference)
        case Overwrite():
            return (*INPUT_RULES, *_overwrite_rules(action, has_parent))
        case ReplacePartitions():
            return (*INPUT_RULES, added_files_have_one_spec, *(_replace_partitions_rules(action) if has_parent else ()))
        case RewriteFiles():
            return (*INPUT_RULES, rewrite_arguments_fit, *(_REWRITE_RULES if has_parent else ()))
        case _:
            return INPUT_RULES


def _row_delta_rules(action: RowDelta) -> Iterable[Rule]:
    has_start = action.start_snapshot_id is not None
    points_at_files = bool(action.referenced_data_files) or (has_start and bool(referenced_data_files(action)))
    asked: list[tuple[bool, Rule]] = [
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
    return (rule for is_asked, rule in asked if is_asked)


def _overwrite_rules(action: Overwrite, has_parent: bool) -> Iterable[Rule]:
    by_filter = has_parent and action.no_conflicting_deletes and action.row_filter is not None
    by_name = has_parent and action.no_conflicting_deletes and bool(action.removed)
    in_reads = by_filter or (has_parent and action.no_conflicting_removals)
    asked: list[tuple[bool, Rule]] = [
        (action.added_match_filter, added_files_match_the_filter),
        (has_parent and action.no_conflicting_data, no_new_data),
        (in_reads, no_new_deletes),
        (in_reads, no_removed_data),
        (by_name, no_new_deletes_for_removed_files),
    ]
    return (rule for is_asked, rule in asked if is_asked)


def _replace_partitions_rules(action: ReplacePartitions) -> Iterable[Rule]:
    asked: list[tuple[bool, Rule]] = [
        (action.no_conflicting_data, no_new_data),
        (action.no_conflicting_deletes, no_removed_data),
        (action.no_conflicting_deletes, no_new_deletes),
    ]
    return (rule for is_asked, rule in asked if is_asked)


def no_new_data(window: Window, action: Overwrite | ReplacePartitions | RowDelta) -> Conflict | None:
    """A. No data file that may hold rows of the kind the command read was added meanwhile."""
    scope = _scope(window.base, action)
    new = window.entries(
        OPERATIONS_ADDING_DATA, is_deletes=False, statuses=[Status.ADDED], may_hold=scope.may_match_manifests
    )
    return conflict_over(
        Check.NEW_DATA, "Data files that may match were added since the table was read.", new, scope.may_match(new)
    )


def no_new_deletes(window: Window, action: Overwrite | ReplacePartitions | RowDelta) -> Conflict | None:
    """B. No delete file that may apply to rows of the kind the command read was added meanwhile."""
    scope = _scope(window.base, action, for_deletes=True)
    new = _new_deletes(window)
    mask = scope.may_match(new)
    if scope.partitions is not None:
        mask |= _is_global(new)  # of no partition, so of every partition
    return conflict_over(
        Check.NEW_DELETES, "Delete files that may match were added since the table was read.", new, mask
    )


def no_new_deletes_for_removed_files(window: Window, action: Overwrite | RowDelta) -> Conflict | None:
    """C. No removed data file gained deletes meanwhile: its copy would bring the deleted rows back.

    Whatever the command asked for: the copy holds the rows it did not match as well.
    """
    new = _new_deletes(window)
    return _conflict_over_gained_deletes(window, actions.removed_data(action), new, np.full(len(new), True))


def no_new_deletes_for_rewritten_files(window: Window, action: RewriteFiles) -> Conflict | None:
    """C. The same for compaction. Equality deletes still apply to copies that keep number and partition."""
    new = _new_deletes(window)
    if action.data_sequence_number is None or not len(new):
        return _conflict_over_gained_deletes(window, action.removed_data, new, np.full(len(new), True))
    is_equality = new.numpy("content") == Content.EQUALITY_DELETES
    scoped = is_equality & ~_is_global(new)
    moved = scoped if _rows_move(window, action) else np.zeros(len(new), bool)
    return _conflict_over_gained_deletes(
        window, action.removed_data, new, moved | ~is_equality
    ) or _conflict_over_moved_rows(action, new.filter(pa.array(moved)))


def _rows_move(window: Window, action: RewriteFiles) -> bool:
    """Whether rows may change their partition.

    A spec always puts a row into the same partition, so rows move only to another spec. Which file became which is not
    told: they stay when copies lie in partitions that were rewritten, and no spec was left.
    """
    if not action.added_data:
        return False
    before, after = _removed_entries(window.base, action.removed_data), action.added_data
    inside = PartitionSet.of(before, window.base.specs).holds(after)
    return not inside.all() or _spec_ids(before) != _spec_ids(after)


def _spec_ids(files: EntryTable) -> set[int | None]:
    return set(pc.unique(files["spec_id"]).to_pylist())


def _conflict_over_moved_rows(action: RewriteFiles, deletes: EntryTable) -> Conflict | None:
    """Deletes of the partitions that rows move to: they would apply to the copies, and did not to the originals."""
    if not action.added_data or not len(deletes):
        return None
    copies = action.added_data.with_columns(sequence_number=action.data_sequence_number)
    met = deletes.take(pc.unique(match_deletes(copies, deletes)["delete"]))
    message = "Rows would move to partitions that gained equality deletes since the table was read."
    return conflict_over(Check.NEW_DELETES_FOR_FILES, message, met)


def _conflict_over_gained_deletes(
    window: Window, removed: actions.RemovedFiles, deletes: EntryTable, is_relevant: Any
) -> Conflict | None:
    if not removed or not len(deletes):
        return None
    files = _removed_entries(window.base, removed)
    files = files.with_columns(sequence_number=window.start_sequence_number)
    pairs = match_deletes(files, deletes.filter(pa.array(is_relevant)))
    if not pairs.num_rows:
        return None
    return conflict_over(
        Check.NEW_DELETES_FOR_FILES,
        "Files to be replaced gained deletes since the table was read.",
        files.take(pc.unique(pairs["file"])),
        snapshot_id=deletes.filter(pa.array(is_relevant))["snapshot_id"][pairs["delete"][0].as_py()].as_py(),
    )


def no_removed_data(window: Window, action: Overwrite | ReplacePartitions | RowDelta) -> Conflict | None:
    """D. No data file that may hold rows of the kind the command read was removed meanwhile."""
    scope = _scope(window.base, action, for_deletes=True)
    gone = window.entries(
        OPERATIONS_REMOVING_DATA, is_deletes=False, statuses=[Status.DELETED], may_hold=scope.may_match_manifests
    )
    return conflict_over(
        Check.REMOVED_DATA,
        "Data files that may match were removed since the table was read.",
        gone,
        scope.may_match(gone),
    )


def referenced_files_still_exist(window: Window, action: RowDelta) -> Conflict | None:
    """E. Every data file that a new delete file points at is still live; a tombstone does not count as live."""
    operations = OPERATIONS_REMOVING_DATA if action.check_deleted_files else OPERATIONS_REPLACING_DATA
    gone = window.entries(operations, is_deletes=False, statuses=[Status.DELETED])
    mask = pc.is_in(
        gone["file_path"], value_set=pa.array(sorted(referenced_data_files(action)), pa.string())
    ).to_numpy()
    mask &= _scope(window.base, action).may_match(gone)
    message = "Data files that the new deletes point at were removed or rewritten since the table was read."
    return conflict_over(Check.REQUIRED_FILES, message, gone, mask)


def no_new_vectors(window: Window, action: RowDelta | RewriteFiles) -> Conflict | None:
    """G. No data file got a deletion vector meanwhile that this commit adds one for: a file has one vector."""
    new = concurrent_vectors(window, action)
    message = "Data files got deletion vectors from another commit since the table was read."
    mask = ~can_be_merged(window, action, new)
    return conflict_over(Check.NEW_VECTORS, message, new, mask, column="referenced_data_file")


def no_rewrites_of_removed_files(window: Window, action: RowDelta) -> Conflict | None:
    """E. No file that leaves was rewritten meanwhile: its rows live on in a copy. What was deleted may leave twice."""
    gone = window.entries(OPERATIONS_REPLACING_DATA, is_deletes=False, statuses=[Status.DELETED])
    mask = pc.is_in(
        gone["file_path"], value_set=pa.array(sorted(_removed_paths(window, action)), pa.string())
    ).to_numpy()
    message = "Data files whose rows are all deleted were rewritten since the table was read."
    return conflict_over(Check.REQUIRED_FILES, message, gone, mask)


def no_updates_of_the_same_files(window: Window, action: RowDelta) -> Conflict | None:
    """No commit updated rows of the same files: a row deleted here would live on in its updated copy."""
    leaving = _removed_entries(window.base, action.removed_data)
    touched = EntryTable.concat([leaving, *filter(None, [action.added_deletes])], window.base.specs)
    if not len(touched):
        return None
    new = _new_deletes(window, frozenset({Operation.OVERWRITE}))
    named = pa.array(sorted(referenced_data_files(action) | _removed_paths(window, action)), pa.string())
    references = referenced_paths(new)
    names_ours = pc.is_in(references, value_set=named).to_numpy(zero_copy_only=False)
    names_none = references.is_null().to_numpy(zero_copy_only=False)
    nearby = PartitionSet.of(touched, window.base.specs).holds(new)
    message = "Rows of the same data files were updated since the table was read."
    return conflict_over(Check.CONCURRENT_UPDATE, message, new, names_ours | (names_none & nearby) | _is_global(new))


def _removed_paths(window: Window, action: RowDelta) -> frozenset[str]:
    """The data files that a delta takes out."""
    return frozenset(_removed_entries(window.base, action.removed_data)["file_path"].to_pylist())


INPUT_RULES: tuple[Rule, ...] = (specs_are_known, delete_kinds_fit)
_REWRITE_RULES: tuple[Rule, ...] = (no_new_deletes_for_rewritten_files, no_new_vectors, removed_deletes_are_covered)


def _new_deletes(window: Window, operations: frozenset[Operation] = OPERATIONS_ADDING_DELETES) -> EntryTable:
    """The delete files committed since the start that can apply to what was there then."""
    if window.base.format_version == 1:
        return EntryTable.empty(window.base.specs)
    new = window.entries(operations, is_deletes=True, statuses=LIVE_STATUSES)
    return _newest_deletes(new.filter(pc.greater(new["sequence_number"], window.start_sequence_number)))


def _newest_deletes(deletes: EntryTable) -> EntryTable:
    """Each delete file once, and of the vectors a data file had one after the other the last."""
    if len(deletes) < 2:
        return deletes
    in_order = deletes.take(pc.sort_indices(deletes["sequence_number"], sort_keys=[("", "descending")]))
    key = pc.if_else(
        pa.array(deletion_vector_mask(in_order)), in_order["referenced_data_file"], file_identities(in_order)
    )
    codes = key.combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
    return in_order.take(np.sort(np.unique(codes, return_index=True)[1]))


def _is_global(deletes: EntryTable) -> Any:
    """Equality deletes of an unpartitioned spec: they apply to files of every partition."""
    unpartitioned = [s for s in deletes.specs.by_id if deletes.specs.is_unpartitioned(s)]
    is_equality = deletes.numpy("content") == Content.EQUALITY_DELETES
    return is_equality & np.isin(deletes.numpy("spec_id"), unpartitioned)


def _scope(base: CommitBase, action: Overwrite | ReplacePartitions | RowDelta, for_deletes: bool = False) -> Scope:
    """The files a check looks at: those of replaced partitions, or those that may match the filter of the command."""
    if isinstance(action, ReplacePartitions):
        return _partition_scope(base, action.added) if action.added else Scope()
    chosen = action.conflict_filter
    if chosen is None and isinstance(action, Overwrite) and (for_deletes or not action.removed):
        chosen = action.row_filter
    return Scope() if chosen is None else Scope(RowFilter(chosen, base.metadata, base.specs, action.case_sensitive))


def _partition_scope(base: CommitBase, added: EntryTable) -> Scope:
    if base.specs.is_unpartitioned(added.spec_ids()[0]):
        return Scope()
    return Scope(partitions=PartitionSet.of(added, base.specs))


def _removed_entries(base: CommitBase, removed: actions.RemovedFiles) -> EntryTable:
    """The removed files with their partitions; those known by path only are looked up in the table."""
    found = [removed.entries] if removed.entries else []
    if removed.paths:
        found.append(base.live_data_files(removed.paths))
    return EntryTable.concat(found, base.specs)
