"""Which snapshots, branches and tags of a table are kept when old ones expire.

`main` is always kept; another branch or tag as long as its snapshot is not older than its own maximum age, or else the
table's. Along each branch that is kept, snapshots stay as long as fewer than the minimum were kept or they are younger
than the cut-off; a branch may have a minimum and an age of its own. Snapshots that no name leads to, such as staged
ones, stay while they are younger than the cut-off. A snapshot that was asked for by its id goes whatever its age.
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
    """What decides about the snapshots of a table, where a branch or tag says nothing else."""

    now_ms: int
    older_than_ms: int  # a snapshot of before this time may go
    retain_last: int  # so many snapshots of a branch stay whatever their age
    max_ref_age_ms: int
    snapshot_ids: frozenset[int] = frozenset()  # these go whatever their age


@dataclass(frozen=True, slots=True)
class Retention:
    """What goes and what stays, in the order of the table's metadata."""

    expired: tuple[int, ...]
    retained: tuple[int, ...]
    expired_refs: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.expired or self.expired_refs)


def decide_retention(metadata: TableMetadata, rules: RetentionRules) -> Retention:
    """Which snapshots of a table go by some rules; one that is asked for and still has a name is refused."""
    history = _History(metadata, rules)
    history.refuse_referenced_snapshots()
    ids = [row["snapshot-id"] for row in metadata.lazy_snapshots.rows]
    kept = history.retained_snapshot_ids() - rules.snapshot_ids
    return Retention(
        tuple(i for i in ids if i not in kept),
        tuple(i for i in ids if i in kept),
        tuple(name for name in metadata.refs if name not in history.retained_refs),
    )


@dataclass(frozen=True)
class _History:
    """The snapshots of a table by id, and the names that are kept."""

    metadata: TableMetadata
    rules: RetentionRules

    @cached_property
    def snapshots_by_id(self) -> Mapping[int, SnapshotRow]:
        return {row["snapshot-id"]: row for row in self.metadata.lazy_snapshots.rows}

    @cached_property
    def retained_refs(self) -> dict[str, SnapshotRef]:
        """The branches and tags that are kept."""
        return {name: ref for name, ref in self.metadata.refs.items() if self._is_retained(name, ref)}

    def _is_retained(self, name: str, ref: SnapshotRef) -> bool:
        snapshot = self.snapshots_by_id.get(ref.snapshot_id)
        if name == MAIN_BRANCH or snapshot is None:
            return name == MAIN_BRANCH
        age = self.rules.now_ms - snapshot["timestamp-ms"]
        return bool(age <= _value_or_default(ref.max_ref_age_ms, self.rules.max_ref_age_ms))

    def refuse_referenced_snapshots(self) -> None:
        """Refuse to expire a snapshot that a kept branch or tag points at."""
        for name, ref in self.retained_refs.items():
            if ref.snapshot_id in self.rules.snapshot_ids:
                kind = SnapshotRefType(ref.snapshot_ref_type).value
                raise UserError(
                    f"Cannot expire snapshot {ref.snapshot_id}: the {kind} {name!r} points at it. Move or drop the "
                    f"{kind} first."
                )

    def retained_snapshot_ids(self) -> set[int]:
        """The snapshots that age, number and names keep."""
        branches = [ref for ref in self.retained_refs.values() if ref.snapshot_ref_type == SnapshotRefType.BRANCH]
        pointed_at = {ref.snapshot_id for ref in self.retained_refs.values()}
        walked = {row["snapshot-id"] for ref in branches for row in self._ancestors(ref)}
        unnamed = self.snapshots_by_id.keys() - walked - pointed_at
        young = {i for i in unnamed if self.snapshots_by_id[i]["timestamp-ms"] >= self.rules.older_than_ms}
        return pointed_at.union(young, *(self._retained_on_branch(ref) for ref in branches))

    def _retained_on_branch(self, branch: SnapshotRef) -> set[int]:
        rules, age = self.rules, branch.max_snapshot_age_ms
        cut_off = rules.older_than_ms if age is None else rules.now_ms - age
        least = _value_or_default(branch.min_snapshots_to_keep, rules.retain_last)
        kept: set[int] = set()
        for row in self._ancestors(branch):
            if len(kept) >= least and row["timestamp-ms"] < cut_off:
                break
            kept.add(row["snapshot-id"])
        return kept

    def _ancestors(self, branch: SnapshotRef) -> Iterator[SnapshotRow]:
        """The snapshots of a branch, newest first, as far as they are still known."""
        row, seen = self.snapshots_by_id.get(branch.snapshot_id), set[int]()
        while row is not None and row["snapshot-id"] not in seen:
            yield row
            seen.add(row["snapshot-id"])
            parent = row.get("parent-snapshot-id")
            row = None if parent is None else self.snapshots_by_id.get(parent)


def _value_or_default(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value
