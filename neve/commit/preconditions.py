"""What a request must be by itself, whatever others did: known specs, delete files of a kind that fits, arguments.

The first of them run for every action; a table may have been upgraded since the files were written.
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
    """H. A delta does not remove a data file and delete rows from it as well."""
    removed = action.removed_data.paths | actions.paths_of([action.removed_data.entries])
    if both := removed & referenced_data_files(action):
        message = "Cannot remove data files and delete rows from them in one commit."
        return Conflict(Check.SELF_REFERENCE, message, files=tuple(sorted(both)))
    return None


def start_is_an_ancestor(window: Window, action: RowDelta) -> Conflict | None:
    """I. The snapshot the plan was made on is part of the history of the branch."""
    oldest = None
    for oldest in window.base.ancestors():  # the head first: it is most often the one
        if oldest.snapshot_id == action.start_snapshot_id:
            return None
    if oldest is not None and oldest.parent_snapshot_id is not None:
        return window.broken_history(oldest)  # expiry cut the history short, so nobody can tell
    branch = window.base.branch
    message = (
        f"Snapshot {action.start_snapshot_id}, which the change was planned on, is not in the history of {branch!r}."
    )
    return Conflict(Check.ANCESTRY, message, action.start_snapshot_id)


def delete_kinds_fit(window: Window, action: Action) -> Conflict | None:
    """J. Delete files are of the kind the format version knows; the table may have been upgraded meanwhile."""
    deletes = actions.added_deletes(action)
    if not deletes:
        return None
    wrong, message = unsupported_deletes(window.base.metadata, deletes)
    return conflict_over(Check.DELETE_KIND, message, deletes, wrong)


def specs_are_known(window: Window, action: Action) -> Conflict | None:
    """K. Every added file names a partition spec that the table has."""
    for files in actions.added_files(action):
        try:
            validate_added_data_files(window.base.metadata, files)
        except UnknownName as e:
            unknown = ~np.isin(pc.fill_null(files["spec_id"], 0).to_numpy(), list(window.base.specs.by_id))
            return conflict_over(Check.UNKNOWN_SPEC, str(e), files, unknown)
    return None


def added_files_match_the_filter(window: Window, action: Overwrite) -> Conflict | None:
    """M. Every row of the added files lies inside the filter whose rows they replace."""
    if action.row_filter is None:
        return Conflict(Check.ARGUMENTS, "Cannot check added files against the overwrite filter: there is none.")
    if not action.added:
        return None
    outside = ~RowFilter(action.row_filter, window.base.metadata, window.base.specs, action.case_sensitive).must_match(
        action.added
    )
    message = f"Added files may hold rows outside the overwrite filter {action.row_filter}."
    return conflict_over(Check.OUTSIDE_FILTER, message, action.added, outside)


def added_files_have_one_spec(window: Window, action: ReplacePartitions) -> Conflict | None:
    """Partitions are replaced under one spec: those of another spec could not be told to hold the same rows."""
    found = action.added.spec_ids() if action.added else []
    if len(found) == 1:
        return None
    message = (
        "Cannot replace partitions without new files."
        if not found
        else f"Cannot replace partitions of specs {found} at once."
    )
    return Conflict(Check.ARGUMENTS, message, spec_ids=tuple(found))


def rewrite_arguments_fit(window: Window, action: RewriteFiles) -> Conflict | None:
    """A rewrite removes something, and adds only what replaces files of the same kind."""
    wrong = [
        (not action.removed_data and not action.removed_deletes, "Cannot rewrite files without removing any."),
        (
            bool(action.added_data) and not action.removed_data,
            "Cannot add data files without removing the ones they replace.",
        ),
        (
            bool(action.added_deletes) and not action.removed_deletes,
            "Cannot add delete files without removing the ones they replace.",
        ),
    ]
    return next((Conflict(Check.ARGUMENTS, message) for is_wrong, message in wrong if is_wrong), None)


def referenced_data_files(action: RowDelta) -> frozenset[str]:
    """The data files that the new deletes of a delta point at."""
    named = referenced_paths(action.added_deletes).to_pylist() if action.added_deletes else []
    return action.referenced_data_files | frozenset(name for name in named if name is not None)
