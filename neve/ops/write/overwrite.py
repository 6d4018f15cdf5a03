"""Replace files of a table by new rows: those inside a condition, or whole partitions (dynamic overwrite).

With a condition, a file is replaced when every row of it matches, by its partition in its own spec or by its
statistics. A file that matches only in part is an error: dropping it would lose rows.

A partition overwrite replaces the partitions that the rows fall into under the current default spec. A partition is the
pair of spec and tuple, so files of older specs stay, even if they hold rows with the same values: after a change of the
partitioning, old and new rows of one day are side by side. Overwrite with a condition to replace rows in files of any
spec. Under an unpartitioned spec the whole table is replaced.

Isolation: none by default; what matches when the commit lands is replaced. With `snapshot`, concurrent deletes and
removals inside the condition or in a replaced partition are conflicts, with `serializable` new rows or files too.
Writes: data files under the current default spec; tombstones under the spec of each removed file.

>>> t.overwrite([{"id": 9, "region": "eu"}], where="region = 'eu'").files_added
1
>>> sorted(t.to_arrow()["id"].to_pylist())
[2, 9]
>>> replaced = t.overwrite_partitions([{"id": 8, "region": "eu"}])
>>> sorted(t.to_arrow()["id"].to_pylist())
[2, 8]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table.snapshots import Snapshot

from neve.commit.actions import Overwrite, ReplacePartitions
from neve.errors import UnknownName, UserError
from neve.ops.context import TableContext
from neve.ops.write.append import WriteRows
from neve.predicate import parse

ISOLATION_LEVELS = ("serializable", "snapshot")


@dataclass(frozen=True)
class OverwriteRows(WriteRows):
    """An overwrite of all files inside a condition; without one, of all files."""

    where: str | BooleanExpression | None = None
    isolation: str | None = None

    title = "overwrite"

    def _action(self, context: TableContext, head: Snapshot | None) -> Overwrite:
        return overwrite_of(context, head, self.where, self.isolation)


@dataclass(frozen=True)
class OverwritePartitions(WriteRows):
    """An overwrite of all partitions that the rows fall into; without rows, nothing is replaced."""

    isolation: str | None = None

    title = "partition overwrite"

    def _action(self, context: TableContext, head: Snapshot | None) -> ReplacePartitions:
        return partition_overwrite_of(head, self.isolation)


def overwrite_of(
    context: TableContext, head: Snapshot | None, where: str | BooleanExpression | None, isolation: str | None
) -> Overwrite:
    """Return the action, still without its new files, that replaces all files inside `where`, or all files.

    `head` is the newest snapshot of the branch that is written to.
    """
    condition: BooleanExpression = AlwaysTrue()
    if where is not None:
        predicate = parse(where, context.metadata.schema(), time_zone=context.time_zone())
        if not predicate.is_exact:
            raise UserError(
                f"Cannot overwrite where {where}: only comparisons of columns with values can be decided for whole "
                "files. Use columns, literals, AND, OR, NOT, IN, BETWEEN, IS NULL and LIKE 'prefix%'."
            )
        condition = predicate.expression
    checks = _conflict_checks(head, isolation)
    return Overwrite(row_filter=condition, added_match_filter=where is not None, **checks)


def partition_overwrite_of(head: Snapshot | None, isolation: str | None) -> ReplacePartitions:
    """Return the action, still without its new files, that replaces the partitions of these files."""
    return ReplacePartitions(**_conflict_checks(head, isolation))


def _conflict_checks(head: Snapshot | None, isolation: str | None) -> dict[str, Any]:
    serializable = is_serializable(isolation)
    return {
        "start_snapshot_id": head.snapshot_id if head and isolation else None,
        "no_conflicting_data": serializable,
        "no_conflicting_deletes": isolation is not None,
    }


def is_serializable(isolation: str | None) -> bool:
    """Return whether an isolation level asks for the strictest checks; reject an unknown level."""
    if isolation is not None and isolation not in ISOLATION_LEVELS:
        raise UnknownName("isolation level", isolation, ISOLATION_LEVELS)
    return isolation == "serializable"
