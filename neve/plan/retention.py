"""Decide which snapshots, branches and tags stay when old snapshots expire.

`main` always stays. Another branch or tag stays until its snapshot exceeds the maximum age of the ref, or of the table
if the ref has none. On each branch that stays, the newest snapshots stay up to the minimum count, and further ones
while they are younger than the cut-off; a branch may have its own minimum and age. Snapshots that are reachable from no
ref, such as staged ones, stay while they are younger than the cut-off. A snapshot that is requested by id expires at
any age.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType

from neve.errors import UserError
from neve.model.metadata import TableMetadata
from neve.model.snapshots import SnapshotRow


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """The rules of a table, which settings of a branch or tag override."""

    now_ms: int
    older_than_ms: int  # only snapshots from before this time may expire
    retain_last: int  # number of snapshots per branch that stay at any age
    max_ref_age_ms: int
    snapshot_ids: frozenset[int] = frozenset()  # these expire at any age


@dataclass(frozen=True, slots=True)
class Retention:
    """What expires and what stays, in the order of the table metadata."""

    expired: tuple[int, ...]
    retained: tuple[int, ...]
    expired_refs: tuple[str, ...]


def decide_retention(metadata: TableMetadata, rules: RetentionRules) -> Retention:
    """Apply the rules to a table; reject a requested snapshot that a retained branch or tag points at."""
    history = _History(metadata, rules)
    history.refuse_referenced_snapshots()
    ids = [row["snapshot-id"] for row in metadata.lazy_snapshots.rows]
    retained = history.retained_snapshot_ids() - rules.snapshot_ids
    return Retention(
        tuple(i for i in ids if i not in retained),
        tuple(i for i in ids if i in retained),
        tuple(name for name in metadata.refs if name not in history.retained_refs),
    )


@dataclass(frozen=True)
class _History:
    metadata: TableMetadata
    rules: RetentionRules

    @cached_property
    def snapshots_by_id(self) -> Mapping[int, SnapshotRow]:
        return {row["snapshot-id"]: row for row in self.metadata.lazy_snapshots.rows}

    @cached_property
    def retained_refs(self) -> dict[str, SnapshotRef]:
        return {name: ref for name, ref in self.metadata.refs.items() if self._is_retained(name, ref)}

    def _is_retained(self, name: str, ref: SnapshotRef) -> bool:
        snapshot = self.snapshots_by_id.get(ref.snapshot_id)
        if name == MAIN_BRANCH or snapshot is None:
            return name == MAIN_BRANCH
        age = self.rules.now_ms - snapshot["timestamp-ms"]
        return bool(age <= (self.rules.max_ref_age_ms if ref.max_ref_age_ms is None else ref.max_ref_age_ms))

    def refuse_referenced_snapshots(self) -> None:
        for name, ref in self.retained_refs.items():
            if ref.snapshot_id in self.rules.snapshot_ids:
                kind = SnapshotRefType(ref.snapshot_ref_type).value
                raise UserError(
                    f"Cannot expire snapshot {ref.snapshot_id}: the {kind} {name!r} points at it. Move or drop the "
                    f"{kind} first."
                )

    def retained_snapshot_ids(self) -> set[int]:
        branches = [ref for ref in self.retained_refs.values() if ref.snapshot_ref_type == SnapshotRefType.BRANCH]
        pointed_at = {ref.snapshot_id for ref in self.retained_refs.values()}
        on_branches = {row["snapshot-id"] for ref in branches for row in self._ancestors(ref)}
        unreferenced = self.snapshots_by_id.keys() - on_branches - pointed_at
        young = {i for i in unreferenced if self.snapshots_by_id[i]["timestamp-ms"] >= self.rules.older_than_ms}
        return pointed_at.union(young, *(self._retained_on_branch(ref) for ref in branches))

    def _retained_on_branch(self, branch: SnapshotRef) -> set[int]:
        rules, age, minimum = self.rules, branch.max_snapshot_age_ms, branch.min_snapshots_to_keep
        cut_off = rules.older_than_ms if age is None else rules.now_ms - age
        minimum = rules.retain_last if minimum is None else minimum
        retained: set[int] = set()
        for row in self._ancestors(branch):
            if len(retained) >= minimum and row["timestamp-ms"] < cut_off:
                break
            retained.add(row["snapshot-id"])
        return retained

    def _ancestors(self, branch: SnapshotRef) -> Iterator[SnapshotRow]:
        """Yield the snapshots of a branch, newest first, as far as the metadata still contains them."""
        row, seen = self.snapshots_by_id.get(branch.snapshot_id), set[int]()
        while row is not None and row["snapshot-id"] not in seen:
            yield row
            seen.add(row["snapshot-id"])
            parent = row.get("parent-snapshot-id")
            row = None if parent is None else self.snapshots_by_id.get(parent)
