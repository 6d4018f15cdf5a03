"""Replace whole partitions by new rows (dynamic overwrite).

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

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from neve.commit.actions import Append, ReplacePartitions
from neve.ops.context import TableContext
from neve.ops.overwrite import is_serializable
from neve.ops.publish import write_and_publish
from neve.ops.results import WriteResult
from neve.tree.entries import EntryTable

__all__ = ["overwrite_partitions", "replacement_of"]


def overwrite_partitions(
    context: TableContext,
    rows: Any,
    isolation: str | None,
    branch: str,
    snapshot_properties: Mapping[str, str],
) -> WriteResult:
    """Replace every partition that the rows fall into; no rows replace nothing."""
    replacing = replacement_of(context, isolation, branch)

    def action(files: EntryTable) -> ReplacePartitions | Append:
        return replace(replacing, added=files) if len(files) else Append(files)

    return write_and_publish(
        context, rows, action, doing="partition overwrite", branch=branch, snapshot_properties=snapshot_properties
    )


def replacement_of(context: TableContext, isolation: str | None, branch: str) -> ReplacePartitions:
    """The action that replaces the partitions of the files added; the files are still to come."""
    serializable = is_serializable(isolation)
    head = context.head(branch)
    return ReplacePartitions(
        start_snapshot_id=head.snapshot_id if head and isolation else None,
        no_conflicting_data=serializable,
        no_conflicting_deletes=isolation is not None,
    )
