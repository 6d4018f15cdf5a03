"""Create, move and drop branches and tags, and roll a table back: names that point at snapshots.

Isolation: a reference moves only if it still points where it was read.
Writes: table metadata only.

>>> added = t.create_branch("audit").append([{"id": 4, "region": "eu"}], branch="audit")
>>> t.scan(ref="audit").count(), t.scan().count()
(4, 3)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotRefUpdate, SetSnapshotRefUpdate, TableUpdate

from neve.errors import CommitConflict, UnknownName, UserError
from neve.ops.context import TableContext
from neve.ops.metadata.evolve import RequirementsAndUpdates, commit_updates


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a branch or tag, and the snapshots of a branch, are kept; None leaves it to the table's properties."""

    max_ref_age_ms: int | None = None
    max_snapshot_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None and (type(value) is not int or value < 1):
                raise UserError(f"{f.name} must be a whole number above 0, not {value!r}.")

    def or_of(self, ref: SnapshotRef | None) -> Retention:
        """Return this retention, completed by that of an existing reference."""
        if ref is None:
            return self
        chosen = {f.name: getattr(self, f.name) for f in fields(self)}
        return Retention(**{name: getattr(ref, name) if mine is None else mine for name, mine in chosen.items()})


UNCHANGED = Retention()


def create_ref(
    context: TableContext,
    name: str,
    snapshot_id: int | None,
    kind: str,
    retention: Retention = UNCHANGED,
    replace: bool = False,
) -> None:
    """Create a branch or tag at a snapshot; `replace` moves one that exists, which keeps its retention."""
    if not isinstance(name, str) or not name.strip():
        raise UserError(f"A {kind} needs a name, not {name!r}.")
    if kind == "tag" and (retention.max_snapshot_age_ms or retention.min_snapshots_to_keep):
        raise UserError(f"Tag {name!r} is one snapshot: only max_ref_age_ms says how long it is kept.")
    if existing := context.metadata.refs.get(name):
        other = existing.snapshot_ref_type.value
        if not replace:
            raise UserError(f"Table {context.name} already has a {other} {name!r}. Drop it first.")
        if other != kind:
            raise UserError(f"Cannot replace {name!r} of table {context.name} by a {kind}: it is a {other}.")
    snapshot = context.snapshot(snapshot_id)
    if snapshot is None:
        raise UserError(f"Cannot create the {kind} {name!r}: table {context.name} has no snapshot yet.")
    point_ref(context, name, snapshot.snapshot_id, SnapshotRefType(kind), retention)


def drop_ref(context: TableContext, name: str, kind: str) -> None:
    """Drop a branch or tag; `main` cannot be dropped."""
    if name == "main":
        raise UserError("The branch 'main' is the table itself and cannot be dropped.")
    names = [n for n, ref in context.metadata.refs.items() if ref.snapshot_ref_type.value == kind]
    if name not in names:
        raise UnknownName(kind, name, names, f"table {context.name}")
    _commit_ref_change(context, name, RemoveSnapshotRefUpdate(ref_name=name))


def rollback_to_snapshot(context: TableContext, snapshot_id: int) -> None:
    """Make an ancestor of the current snapshot current again."""
    current = context.metadata.current_snapshot()
    context.snapshot(snapshot_id)  # an unknown snapshot is an error of its own
    if current is None or all(s.snapshot_id != snapshot_id for s in context.ancestors(current)):
        raise UserError(
            f"Cannot roll table {context.name} back to snapshot {snapshot_id}: it is no ancestor of the current one."
        )
    point_ref(context, "main", snapshot_id)


def set_current_snapshot(context: TableContext, snapshot_id: int | None = None, ref: str | None = None) -> None:
    """Make any snapshot of the table current, by its id or by a branch or tag."""
    if (snapshot_id is None) == (ref is None):
        raise UserError("Name the snapshot to make current by either snapshot_id or ref.")
    snapshot = context.snapshot(snapshot_id, ref)
    if snapshot is None:
        raise UserError(f"Table {context.name} has no snapshot yet to make current.")
    point_ref(context, "main", snapshot.snapshot_id)


def fast_forward(context: TableContext, branch: str, to: str) -> None:
    """Move a branch to the head of another one that has all its snapshots; a missing branch is created."""
    snapshot = context.snapshot_of_ref(to)
    if snapshot is None:
        raise UserError(f"Table {context.name} has no snapshot yet to fast-forward {branch!r} to.")
    old = None if branch not in context.metadata.refs else context.head(branch)
    if old is not None and all(s.snapshot_id != old.snapshot_id for s in context.ancestors(snapshot)):
        raise UserError(
            f"Cannot fast-forward {branch!r} of table {context.name}: it has snapshots that {to!r} does not have."
        )
    point_ref(context, branch, snapshot.snapshot_id)


def point_ref(
    context: TableContext,
    name: str,
    snapshot_id: int,
    kind: SnapshotRefType = SnapshotRefType.BRANCH,
    retention: Retention = UNCHANGED,
) -> None:
    """Create or change a reference, unless it is as it should be already."""
    old = context.metadata.refs.get(name)
    merged = retention.or_of(old)
    if old is not None and old.snapshot_id == snapshot_id and merged == UNCHANGED.or_of(old):
        return
    update = SetSnapshotRefUpdate(ref_name=name, type=kind, snapshot_id=snapshot_id, **asdict(merged))
    _commit_ref_change(context, name, update)


def _commit_ref_change(context: TableContext, name: str, update: TableUpdate) -> None:
    """Change a reference if it has not moved; concurrent commits to other references do not matter."""
    old = context.metadata.refs.get(name)
    expected_snapshot_id = None if old is None else old.snapshot_id

    def change(state: TableContext) -> RequirementsAndUpdates:
        ref = state.metadata.refs.get(name)
        if (None if ref is None else ref.snapshot_id) != expected_snapshot_id:
            raise CommitConflict(
                f"Reference {name!r} of table {state.name} was moved by a concurrent writer. Check where it points."
            )
        return (AssertRefSnapshotId(ref=name, snapshot_id=expected_snapshot_id),), (update,)

    commit_updates(context, change, f"change of reference {name!r}")
