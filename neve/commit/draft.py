"""From the manifests of the head and an action to the manifests of the next snapshot.

First everything is looked up and checked, then manifests are written: a commit that fails its checks leaves nothing
behind. What is written is kept in the scratch, so a second attempt writes only what the other writer's change made
necessary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.compute as pc

from neve.commit import actions
from neve.commit.actions import (
    Action,
    Append,
    DeleteFiles,
    Overwrite,
    ReplacePartitions,
    RewriteFiles,
    RewriteManifests,
    RowDelta,
)
from neve.commit.filtering import Filtered, distinct, find, rewrite
from neve.commit.manifests import replaced_manifests
from neve.commit.merging import merge_manifests
from neve.commit.outcome import Check, Conflict
from neve.commit.partitions import PartitionSet
from neve.commit.rebase import absorbing
from neve.commit.scratch import Scratch
from neve.commit.selection import Selection
from neve.commit.vectors import united
from neve.commit.window import Base, Refused
from neve.plan.row_filter import RowFilter
from neve.tree.entries import DETAIL, EntryTable, Manifest, Status
from neve.tree.grouping import FIRST_SPEC
from neve.tree.read import read_entries
from neve.tree.write import write_manifests

__all__ = ["Draft", "draft"]


@dataclass(frozen=True, slots=True)
class Draft:
    """The manifests of the next snapshot, and the files that come and go with it."""

    manifests: tuple[Manifest, ...]
    added: EntryTable
    removed: EntryTable
    duplicates: int = 0
    entries_processed: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes, so that no snapshot is due."""
        return not (len(self.added) or len(self.removed) or self.entries_processed)


def draft(base: Base, action: Action, scratch: Scratch) -> Draft:
    """Apply an action to the table as it is now."""
    if isinstance(action, RewriteManifests):
        nothing = EntryTable.empty(base.specs)
        manifests, processed = replaced_manifests(base, action, scratch)
        return Draft(manifests, nothing, nothing, entries_processed=processed)
    action = absorbing(base, action)
    data, deletes = _found(base, action, scratch)
    removed = EntryTable.concat([data.removed, deletes.removed], base.specs)
    added = _added(base, action, scratch)
    if not len(added) and not len(removed):
        return Draft(base.manifests, added, removed)
    manifests = _manifests(base, action, added, data, deletes, scratch)
    return Draft(manifests, added, removed, data.duplicates + deletes.duplicates)


def _found(base: Base, action: Action, scratch: Scratch) -> tuple[Filtered, Filtered]:
    """Where the files that leave are, data and deletes, after every check that looks at them."""
    data = find(base, [m for m in base.manifests if not m.is_deletes], data_selection(base, action), scratch)
    _refuse_missing(action, data, actions.removed_data(action), base)
    _refuse_existing(action, data)
    _refuse_growth(action, data)
    deletes = find(base, [m for m in base.manifests if m.is_deletes], delete_selection(base, action, data), scratch)
    _refuse_missing(action, deletes, actions.removed_deletes(action), base)
    return data, deletes


def data_selection(base: Base, action: Action) -> Selection:
    """The data files that leave."""
    named = actions.removed_data(action)
    if isinstance(action, Overwrite | DeleteFiles) and action.row_filter is not None:
        row_filter = RowFilter(action.row_filter, base.metadata, base.specs, action.case_sensitive)
        return Selection(base.specs, named, row_filter=row_filter)
    if isinstance(action, ReplacePartitions) and action.added:
        return _replaced(base, action.added)
    return Selection(base.specs, named)


def _replaced(base: Base, added: EntryTable) -> Selection:
    if base.specs.is_unpartitioned(added.spec_ids()[0]):
        return Selection(base.specs, everything=True)
    return Selection(base.specs, partitions=PartitionSet.of(added, base.specs))


def delete_selection(base: Base, action: Action, data: Filtered) -> Selection:
    """The delete files that leave: the named ones, those of dropped partitions, and those nothing needs any more."""
    named = actions.removed_deletes(action)
    removes = bool(len(data.removed)) or bool(named)
    return replace(
        data_selection(base, action),
        named=named,
        older_than=data.oldest_number(_floor(base, action)) if removes else 0,
        gone=frozenset(data.removed["file_path"].to_pylist()),
        gone_from=PartitionSet.of(data.removed, base.specs),
    )


def _floor(base: Base, action: Action) -> int:
    """The lowest number a file of this commit can have: compaction may add files older than anything that stays."""
    explicit = action.data_sequence_number if isinstance(action, RewriteFiles) and action.added_data else None
    return base.next_sequence_number if explicit is None else min(explicit, base.next_sequence_number)


def _refuse_missing(action: Action, filtered: Filtered, named: actions.Removed, base: Base) -> None:
    if not named or not _must_exist(action):
        return
    if missing := Selection(base.specs, named).missing(filtered.removed):
        raise Refused(
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


def _refuse_existing(action: Action, data: Filtered) -> None:
    if isinstance(action, ReplacePartitions) and action.append_only and len(data.removed):
        message = "Cannot append to partitions that already hold files: the commit was to fill empty partitions only."
        files = tuple(sorted(data.removed["file_path"].to_pylist()))
        raise Refused(Conflict(Check.NEW_DATA, message, files=files, spec_ids=tuple(data.removed.spec_ids())))


def _refuse_growth(action: Action, data: Filtered) -> None:
    if not isinstance(action, RewriteFiles) or not action.added_data:
        return
    new, old = (int(pc.sum(files["record_count"]).as_py() or 0) for files in (action.added_data, data.removed))
    if new > old:
        raise Refused(Conflict(Check.ROW_GROWTH, f"Cannot replace {old} rows by {new}: a rewrite never adds rows."))


def _added(base: Base, action: Action, scratch: Scratch) -> EntryTable:
    """The files the action brings, as ADDED entries under the specs the table has now."""
    number = action.data_sequence_number if isinstance(action, RewriteFiles) else None
    fresh = []
    if data := actions.added_data(action):
        fresh.append(_fresh(base, data, scratch, number))
    if deletes := actions.added_deletes(action):
        # A rewritten delete file keeps the number of what it replaces, or it would delete from newer files.
        stated = deletes["sequence_number"] if isinstance(action, RewriteFiles) else None
        fresh.append(_fresh(base, united(base, deletes, scratch), scratch, stated))
    if isinstance(action, Append) and action.manifests:
        fresh.append(_fresh(base, _prepared_files(base, action.manifests), scratch, None))
    return distinct(EntryTable.concat(fresh, base.specs))


def _fresh(base: Base, files: EntryTable, scratch: Scratch, sequence_number: Any) -> EntryTable:
    columns = {name: files[name] for name in files.columns.schema.names}
    columns |= {"manifest": -1, "row": -1, "status": int(Status.ADDED), "snapshot_id": scratch.snapshot_id}
    columns |= {"sequence_number": sequence_number, "file_sequence_number": None, "first_row_id": None}
    columns["spec_id"] = pc.fill_null(files["spec_id"], FIRST_SPEC)
    return EntryTable.from_columns(columns, base.specs, len(files), [n for n in DETAIL.names if n in columns])


def _prepared_files(base: Base, manifests: Sequence[Manifest]) -> EntryTable:
    if deletes := tuple(m.path for m in manifests if m.is_deletes):
        message = "Cannot append manifests of delete files: an append adds data files only."
        raise Refused(Conflict(Check.ARGUMENTS, message, files=deletes))
    entries = read_entries(base.io, manifests, base.specs, detail=DETAIL.names)
    if not pc.all(pc.equal(entries["status"], int(Status.ADDED))).as_py():
        message = "Cannot append manifests with existing or deleted entries: an append adds new files only."
        raise Refused(Conflict(Check.ARGUMENTS, message, files=tuple(m.path for m in manifests)))
    return entries


def _manifests(
    base: Base, action: Action, added: EntryTable, data: Filtered, deletes: Filtered, scratch: Scratch
) -> tuple[Manifest, ...]:
    """The manifests of the next snapshot: new before old, data before deletes."""
    new = scratch.once(("added", scratch.united), base, lambda: write_manifests(base.io, added, scratch.context(base)))
    if isinstance(action, Append) and action.fast:
        return (*new, *base.manifests)
    found: list[Manifest] = []
    for filtered, is_deletes in ((data, False), (deletes, True)):
        old = [m for m in rewrite(base, filtered, scratch) if _is_needed(m, scratch)]
        found += merge_manifests(base, [*(m for m in new if m.is_deletes == is_deletes), *old], scratch)
    return tuple(found)


def _is_needed(manifest: Manifest, scratch: Scratch) -> bool:
    """Manifests of tombstones stay only in the snapshot that made them."""
    return manifest.may_hold_live_files or manifest.added_snapshot_id == scratch.snapshot_id
