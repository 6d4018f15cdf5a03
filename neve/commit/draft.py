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
    NOTHING,
    Action,
    Append,
    DeleteFiles,
    Overwrite,
    Removed,
    ReplacePartitions,
    RewriteFiles,
    RewriteManifests,
    RowDelta,
)
from neve.commit.deletion_vectors import absorbing, collapsed, united
from neve.commit.file_selection import Selection, sources_of
from neve.commit.manifest_edits import Filtered, distinct, find, merge_manifests, replaced_manifests, rewrite
from neve.commit.outcome import Check, Conflict
from neve.commit.partition_set import PartitionSet
from neve.commit.window import Base, Refused
from neve.commit.written_files import Scratch
from neve.io.paths import canonical_all
from neve.model.partition import Specs
from neve.plan.file_filter import RowFilter
from neve.tree.entries import DETAIL, Content, EntryTable, Manifest, Status
from neve.tree.group_by_spec import FIRST_SPEC, vectors_in
from neve.tree.read import read_entries
from neve.tree.tree_writer import Edit


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


def draft(base: Base, action: Action, scratch: Scratch) -> Draft:
    """Apply an action to the table as it is now."""
    if isinstance(action, RewriteManifests):
        nothing = EntryTable.empty(base.specs)
        manifests, processed = replaced_manifests(base, action, scratch)
        manifests = base.shape.settled(base.io, manifests, scratch.context(base))
        return Draft(manifests, nothing, nothing, entries_processed=processed, drops_manifests=bool(action.removed))
    action = collapsed(base, absorbing(base, action), scratch)
    data, deletes = _found(base, action, scratch)
    removed = EntryTable.concat([data.removed, deletes.removed], base.specs)
    added = _added(base, action, scratch)
    if not len(added) and not len(removed):
        return Draft(base.manifests, added, removed)
    homes = _homes(base, added, action.homes if isinstance(action, RowDelta) else NOTHING, scratch)
    manifests = _manifests(base, action, added, (data, deletes), homes, scratch)
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
    is_counted = not len(data.removed) or pc.min(data.removed["record_count"]).as_py() >= 0  # old imports did not
    if is_counted and new > old:
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
        scratch.replaced |= scratch.collapsed_files
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


def _homes(base: Base, added: EntryTable, known: Removed, scratch: Scratch) -> Filtered:
    """The live data files that new vectors are to lie beside, where the tree keeps both in one row.

    `known` are files that a plan has read, and the manifests it found them in.
    """
    nothing = Filtered((), {}, EntryTable.empty(base.specs), 0)
    vectors = added.filter(pa.array(vectors_in(added))) if base.shape.joins_vectors else nothing.removed
    named = pc.unique(vectors["referenced_data_file"])
    new = pc.is_in(named, value_set=added.of_content(Content.DATA)["file_path"].combine_chunks())
    paths = frozenset(named.filter(pc.invert(new)).to_pylist())
    if not paths:
        return nothing
    wanted = Selection(
        base.specs,
        Removed(paths=paths),
        within=PartitionSet.of(vectors, base.specs),
        seen_in=_seen_in(paths, known),
        purpose="homes",
    )
    found = find(base, [m for m in base.manifests if not m.is_deletes], wanted, scratch)
    if missing := wanted.missing(found.removed):
        message = "Data files that new deletion vectors name are not in the table."
        raise Refused(Conflict(Check.REQUIRED_FILES, message, files=tuple(missing)))
    return found


def _seen_in(paths: frozenset[str], known: Removed) -> frozenset[str]:
    """The manifests in which a plan has found the files at some paths; none if it has not found them all."""
    if not known.entries:
        return frozenset()
    wanted = canonical_all(pa.array(sorted(paths), pa.string()))
    own = known.entries.filter(pc.is_in(canonical_all(known.entries["file_path"]), value_set=wanted))
    return sources_of(replace(known, entries=own)) if len(own) == len(paths) else frozenset()


def _edits(added: EntryTable, leaving: Iterable[Filtered], homes: Filtered, specs: Specs) -> dict[str, Edit]:
    """What becomes of the entries of each file of the tree."""
    files = {m.path: m.file for filtered in (*leaving, homes) for m in filtered.manifests}
    gone: dict[str, list[EntryTable]] = {}
    for filtered in leaving:
        for path in filtered.touched:
            gone.setdefault(files[path], []).append(filtered.findings[path].leaving)
    holders = {files[path]: homes.findings[path].leaving for path in homes.touched}
    left = EntryTable.concat([filtered.removed for filtered in leaving], specs)
    before = left.filter(pa.array(vectors_in(left)))
    return {
        file: _edit(EntryTable.concat(gone.get(file, []), specs), holders.get(file), added, before)
        for file in {*gone, *holders}
    }


def _edit(leaving: EntryTable, holders: EntryTable | None, added: EntryTable, before: EntryTable) -> Edit:
    if holders is None:
        return Edit(leaving)
    vectors = added.filter(pa.array(vectors_in(added)))
    named = canonical_all(vectors["referenced_data_file"])
    own = vectors.take(pc.index_in(canonical_all(holders["file_path"]), value_set=named))
    return Edit(leaving, holders, own, before)


def _manifests(
    base: Base, action: Action, added: EntryTable, leaving: tuple[Filtered, Filtered], homes: Filtered, scratch: Scratch
) -> tuple[Manifest, ...]:
    """The manifests of the next snapshot: new before old, data before deletes."""
    shape, context = base.shape, scratch.context(base)
    made = (scratch.united, scratch.collapsed)
    new = scratch.once(("added", *made), base, lambda: shape.write_added(base.io, added, context))
    if isinstance(action, Append) and action.fast:
        return shape.settled(base.io, (*new, *base.manifests), context)
    edits = _edits(added, leaving, homes, base.specs)
    found: list[Manifest] = []
    for is_deletes in (False, True):
        own = [m for m in base.manifests if m.is_deletes == is_deletes and not m.is_view]
        old = [m for m in rewrite(base, own, edits, scratch) if _is_needed(m, scratch)]
        found += merge_manifests(base, [*(m for m in new if m.is_deletes == is_deletes), *old], scratch)
    return shape.settled(base.io, found, context)


def _is_needed(manifest: Manifest, scratch: Scratch) -> bool:
    """Manifests of tombstones stay only in the snapshot that made them."""
    return manifest.may_hold_live_files or manifest.changed_by == scratch.snapshot_id
