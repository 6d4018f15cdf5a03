"""Replace the files of a table that lie inside a condition by new rows.

A file is replaced when every row of it matches, by its partition in its own spec or by its statistics. A file that
matches in part is refused: dropping it would lose rows.

Isolation: none unless asked for; the condition then meets what is there when the commit lands. `snapshot` refuses
deletes and removals that came meanwhile inside the condition, `serializable` new rows too.
Writes: data files under the current default spec; tombstones under the spec of each file removed.

>>> t.overwrite([{"id": 9, "region": "eu"}], where="region = 'eu'").files_added
1
>>> sorted(t.to_arrow()["id"].to_pylist())
[2, 9]

Replace whole partitions by new rows (dynamic overwrite).

The partitions are those the rows fall into under the current default spec, each the pair of spec and tuple. Files of
older specs stay, also those that hold rows of the same values: after a change of the partitioning, old and new rows of
one day stand side by side. `overwrite` with a condition replaces rows whatever spec their files have. Under an
unpartitioned spec the whole table is replaced.

Isolation: none unless asked for; `snapshot` refuses deletes and removals that came meanwhile in a replaced partition,
`serializable` new files too.
Writes: data files under the current default spec; tombstones for the files replaced.

>>> replaced = t.overwrite_partitions([{"id": 9, "region": "eu"}])
>>> sorted(t.to_arrow()["id"].to_pylist())
[2, 9]
"""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.expressions import AlwaysTrue, BooleanExpression

from neve.commit.actions import Overwrite, ReplacePartitions
from neve.errors import UnknownName, UserError
from neve.ops.context import TableContext
from neve.ops.write.append import WriteRows
from neve.predicate import parse

ISOLATION_LEVELS = ("serializable", "snapshot")


@dataclass(frozen=True)
class OverwriteRows(WriteRows):
    """An overwrite of every file inside a condition, or of all files."""

    where: str | BooleanExpression | None = None
    isolation: str | None = None

    title = "overwrite"

    def _action(self, context: TableContext) -> Overwrite:
        return overwrite_of(context, self.where, self.isolation, self.target_branch)


@dataclass(frozen=True)
class OverwritePartitions(WriteRows):
    """An overwrite of every partition that the rows fall into; no rows replace nothing."""

    isolation: str | None = None

    title = "partition overwrite"

    def _action(self, context: TableContext) -> ReplacePartitions:
        return partition_overwrite_of(context, self.isolation, self.target_branch)


def overwrite_of(
    context: TableContext, where: str | BooleanExpression | None, isolation: str | None, branch: str
) -> Overwrite:
    """The action that replaces every file inside `where`, or all of them; the files to add are still to come."""
    condition = _exact_filter(context, where)
    serializable = is_serializable(isolation)
    head = context.head(branch)
    return Overwrite(
        row_filter=condition,
        start_snapshot_id=head.snapshot_id if head and isolation else None,
        no_conflicting_data=serializable,
        no_conflicting_deletes=isolation is not None,
        added_match_filter=where is not None,
    )


def _exact_filter(context: TableContext, where: str | BooleanExpression | None) -> BooleanExpression:
    if where is None:
        return AlwaysTrue()
    found = parse(where, context.metadata.schema(), time_zone=context.time_zone())
    if not found.is_exact:
        raise UserError(
            f"Cannot overwrite where {where}: only comparisons of columns with values can be decided for whole files. "
            "Use columns, literals, AND, OR, NOT, IN, BETWEEN, IS NULL and LIKE 'prefix%'."
        )
    return found.expression


def is_serializable(isolation: str | None) -> bool:
    """Whether an isolation level asks for the strictest checks; an unknown level is refused."""
    if isolation is not None and isolation not in ISOLATION_LEVELS:
        raise UnknownName("isolation level", isolation, ISOLATION_LEVELS)
    return isolation == "serializable"


def partition_overwrite_of(context: TableContext, isolation: str | None, branch: str) -> ReplacePartitions:
    """The action that replaces the partitions of the files added; the files are still to come."""
    serializable = is_serializable(isolation)
    head = context.head(branch)
    return ReplacePartitions(
        start_snapshot_id=head.snapshot_id if head and isolation else None,
        no_conflicting_data=serializable,
        no_conflicting_deletes=isolation is not None,
    )
