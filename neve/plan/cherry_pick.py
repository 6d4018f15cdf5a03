"""Decide how the changes of another snapshot become part of the current state, by the rules of Iceberg.

If the current snapshot is the parent of the other one, `main` moves forward to it, whatever it changed. Otherwise an
append, or an overwrite that replaced the partitions of its rows, is applied again. Nothing is applied twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.table.snapshots import Operation, Snapshot

from neve.errors import UnknownName, UserError
from neve.model.metadata import TableMetadata
from neve.model.snapshots import (
    PUBLISHED_WAP_ID,
    SOURCE_SNAPSHOT_ID,
    STAGED_WAP_ID,
    snapshot_operation,
    summary_value,
)


@dataclass(frozen=True, slots=True)
class CherryPickPlan:
    """The snapshot whose changes are to become current, and whether `main` can move to it."""

    source: Snapshot
    current_snapshot_id: int | None
    fast_forwards: bool

    def explain(self) -> str:
        """Describe the plan in words."""
        source, now = self.source.snapshot_id, self.current_snapshot_id
        if self.fast_forwards:
            return f"Move main from snapshot {now} to its child, snapshot {source}"
        return f"Apply the {snapshot_operation(self.source).value} of snapshot {source} again, on snapshot {now}"


def plan_cherry_pick(table: str, history: Iterable[Snapshot], source: Snapshot) -> CherryPickPlan:
    """Plan the cherry-pick of a snapshot; `history` is the current snapshot and its ancestors, newest first."""
    history = tuple(history)
    head_id = history[0].snapshot_id if history else None
    fast_forwards, can_reapply = source.parent_snapshot_id == head_id, _can_be_reapplied(source)
    problem = why_already_applied(history, source) if can_reapply or not fast_forwards else None
    if problem is None and not can_reapply and not fast_forwards:
        problem = (
            f"its operation is {snapshot_operation(source).value!r}, and its parent {source.parent_snapshot_id} is not "
            f"the current snapshot {head_id}. Only an append or an overwrite of partitions can be applied to another "
            "state than the one it was made on; run the statement again instead"
        )
    if problem is not None:
        raise UserError(f"Cannot cherry-pick snapshot {source.snapshot_id} of table {table}: {problem}.")
    return CherryPickPlan(source, head_id, fast_forwards)


def _can_be_reapplied(source: Snapshot) -> bool:
    return snapshot_operation(source) is Operation.APPEND or replaces_partitions(source)


def replaces_partitions(source: Snapshot) -> bool:
    """Return whether a snapshot replaced the partitions that its rows fall into."""
    is_replaced = str(summary_value(source, "replace-partitions")).lower() == "true"
    return is_replaced and snapshot_operation(source) is Operation.OVERWRITE


def why_already_applied(history: Iterable[Snapshot], source: Snapshot) -> str | None:
    """Return how the changes of a snapshot have become part of a history already; None if they have not."""
    wap_id = summary_value(source, STAGED_WAP_ID)
    for snapshot in history:
        if snapshot.snapshot_id == source.snapshot_id:
            return "it is in the history of the current snapshot already"
        if summary_value(snapshot, SOURCE_SNAPSHOT_ID) == str(source.snapshot_id):
            return f"snapshot {snapshot.snapshot_id} has applied its changes already"
        if wap_id and wap_id in (summary_value(snapshot, STAGED_WAP_ID), summary_value(snapshot, PUBLISHED_WAP_ID)):
            return f"its WAP id {wap_id!r} was published already, by snapshot {snapshot.snapshot_id}"
    return None


def snapshot_staged_as(table: str, metadata: TableMetadata, wap_id: str) -> Snapshot:
    """Return the one snapshot that was staged under a WAP id."""
    ids = [(summary_value(s, STAGED_WAP_ID), s) for s in metadata.lazy_snapshots]
    staged = [snapshot for staged_id, snapshot in ids if staged_id == wap_id]
    if not staged:
        raise UnknownName("WAP id", wap_id, sorted({i for i, _ in ids if i}), f"the snapshots of table {table}")
    if len(staged) > 1:
        shown = ", ".join(str(s.snapshot_id) for s in staged)
        raise UserError(
            f"Cannot publish WAP id {wap_id!r} of table {table}: snapshots {shown} were staged under it. Cherry-pick "
            "one of them by its id."
        )
    return staged[0]
