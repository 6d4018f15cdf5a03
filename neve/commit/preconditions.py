"""Checks of the request itself, independent of other writers: specs, kinds of delete files, arguments.

`specs_are_known` and `delete_kinds_fit` run for every action, because the table may have been upgraded since the files
were written.
"""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from neve.commit import actions
from neve.commit.actions import Action, Overwrite, ReplacePartitions, RewriteFiles, RowDelta
from neve.commit.outcome import Check, Conflict, conflict_over
from neve.commit.window import Window
from neve.errors import UnknownName
from neve.plan.delete_index import referenced_paths
from neve.plan.file_filter import RowFilter
from neve.tree.checks import unsupported_deletes
from neve.tree.group_by_spec import validate_added_data_files


def no_self_reference(window: Window, action: RowDelta) -> Conflict | None:
    """H. A delta does not both remove a data file and delete rows from it."""
    removed = action.removed_data.paths | actions.paths_of([action.removed_data.entries])
    if both := removed & referenced_data_files(action):
        message = "Cannot remove data files and delete rows from them in one commit."
        return Conflict(Check.SELF_REFERENCE, message, files=tuple(sorted(both)))
    return None


def start_is_an_ancestor(window: Window, action: RowDelta) -> Conflict | None:
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
