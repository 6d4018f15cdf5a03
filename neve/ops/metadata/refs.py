"""Branches, tags and rollback: names that point at snapshots.

Isolation: a reference moves only if it still points where it was read.
Writes: table metadata only.

>>> added = t.create_branch("audit").append([{"id": 4, "region": "eu"}], branch="audit")
>>> t.scan(ref="audit").count(), t.scan().count()
(4, 3)
"""

from __future__ import annotations

from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotRefUpdate, SetSnapshotRefUpdate, TableUpdate

from neve.errors import CommitConflict, UnknownName, UserError
from neve.ops.context import TableContext
from neve.ops.metadata.evolve import RequirementsAndUpdates, commit_updates


def create_branch(context: TableContext, name: str, snapshot_id: int | None = None) -> None:
    """Start a branch at a snapshot."""
    _create_ref(context, name, snapshot_id, SnapshotRefType.BRANCH)


def create_tag(context: TableContext, name: str, snapshot_id: int | None = None) -> None:
    """Name a snapshot."""
    _create_ref(context, name, snapshot_id, SnapshotRefType.TAG)


def _create_ref(context: TableContext, name: str, snapshot_id: int | None, kind: SnapshotRefType) -> None:
    if not isinstance(name, str) or not name.strip():
        raise UserError(f"A {kind.value} needs a name, and {name!r} is none.")
    if name in context.metadata.refs:
        raise UserError(f"Table {context.name} already has a {_ref_kind(context, name)} {name!r}. Drop it first.")
    snapshot = context.snapshot(snapshot_id)
    if snapshot is None:
        raise UserError(f"Table {context.name} has no snapshot yet to make the {kind.value} {name!r} of.")
    _point_ref(context, name, snapshot.snapshot_id, kind, expected_snapshot_id=None)


def drop_ref(context: TableContext, name: str, kind: str) -> None:
    """Remove a branch or tag; `main` stays."""
    if name == "main":
        raise UserError("The branch 'main' is the table itself and cannot be dropped.")
    known = [n for n in context.metadata.refs if _ref_kind(context, n) == kind]
    if name not in known:
        raise UnknownName(kind, name, known, f"table {context.name}")
    _commit_ref_change(context, name, context.metadata.refs[name].snapshot_id, RemoveSnapshotRefUpdate(ref_name=name))


def rollback_to_snapshot(context: TableContext, snapshot_id: int) -> None:
    """Make an ancestor of the current snapshot current again."""
    current = context.metadata.current_snapshot()
    wanted = context.snapshot(snapshot_id)
    if wanted is None or current is None or not _has_ancestor(context, current, snapshot_id):
        raise UserError(
            f"Cannot roll table {context.name} back to snapshot {snapshot_id}: it is no ancestor of the current one."
        )
    if current.snapshot_id != snapshot_id:
        _point_ref(context, "main", snapshot_id, SnapshotRefType.BRANCH, expected_snapshot_id=current.snapshot_id)


def set_current_snapshot(context: TableContext, snapshot_id: int | None = None, ref: str | None = None) -> None:
    """Make any snapshot of the table current, by its id or by a branch or tag."""
    if (snapshot_id is None) == (ref is None):
        raise UserError("Name the snapshot to make current by one of snapshot_id and ref.")
    wanted = context.snapshot(snapshot_id, ref)
    if wanted is None:
        raise UserError(f"Table {context.name} has no snapshot yet to make current.")
    current = context.metadata.current_snapshot()
    before = None if current is None else current.snapshot_id
    if before != wanted.snapshot_id:
        _point_ref(context, "main", wanted.snapshot_id, SnapshotRefType.BRANCH, expected_snapshot_id=before)


def fast_forward(context: TableContext, branch: str, to: str) -> None:
    """Move a branch to the head of another that has all its snapshots; a branch that is not there yet is made."""
    wanted = context.snapshot_of_ref(to)
    if wanted is None:
        raise UserError(f"Table {context.name} has no snapshot yet to fast-forward {branch!r} to.")
    old = None if branch not in context.metadata.refs else context.head(branch)
    if old is not None and not _has_ancestor(context, wanted, old.snapshot_id):
        raise UserError(f"Cannot fast-forward {branch!r} of table {context.name}: it has snapshots {to!r} has not.")
    if old is None or old.snapshot_id != wanted.snapshot_id:
        before = None if old is None else old.snapshot_id
        _point_ref(context, branch, wanted.snapshot_id, SnapshotRefType.BRANCH, expected_snapshot_id=before)


def _has_ancestor(context: TableContext, snapshot: Snapshot, ancestor_id: int) -> bool:
    """Whether a snapshot is another, or came after it."""
    at: Snapshot | None = snapshot
    while at is not None and at.snapshot_id != ancestor_id:
        parent = at.parent_snapshot_id
        at = context.metadata.snapshot_by_id(parent) if parent is not None else None
    return at is not None


def _point_ref(
    context: TableContext, name: str, snapshot_id: int, kind: SnapshotRefType, expected_snapshot_id: int | None
) -> None:
    old = context.metadata.refs.get(name)
    update = SetSnapshotRefUpdate(
        ref_name=name,
        type=kind,
        snapshot_id=snapshot_id,
        max_ref_age_ms=old.max_ref_age_ms if old else None,
        max_snapshot_age_ms=old.max_snapshot_age_ms if old else None,
        min_snapshots_to_keep=old.min_snapshots_to_keep if old else None,
    )
    _commit_ref_change(context, name, expected_snapshot_id, update)


def _commit_ref_change(context: TableContext, name: str, expected_snapshot_id: int | None, update: TableUpdate) -> None:
    """Change a reference that is where it was; who only appended to another is not in the way."""

    def change(state: TableContext) -> RequirementsAndUpdates:
        now = state.metadata.refs.get(name)
        if (None if now is None else now.snapshot_id) != expected_snapshot_id:
            raise CommitConflict(f"Reference {name!r} of table {state.name} was moved meanwhile. Look where it is now.")
        return (AssertRefSnapshotId(ref=name, snapshot_id=expected_snapshot_id),), (update,)

    commit_updates(context, change, f"change of reference {name!r}")


def _ref_kind(context: TableContext, name: str) -> str:
    return context.metadata.refs[name].snapshot_ref_type.value
