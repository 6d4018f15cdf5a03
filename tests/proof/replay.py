"""Replay the snapshots of a table: the meaning of each statement that landed must give the rows of its snapshot.

Every statement writes its key and the snapshot it has read to the summary. At the serializable level it is applied to
the rows of the parent snapshot. At the snapshot level it is evaluated on the rows it has read, and the rows it removes
must still exist: the first to commit wins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from neve import Table
from neve.commit.isolation import Isolation
from neve.model.snapshots import Snapshot
from tests.proof.audit import require
from tests.proof.statements_without_spark import ID, READ, Rows, Statement, rows_of


def chain_of(table: Table, start: int | None) -> list[Snapshot]:
    """Return the snapshots after `start`, oldest first."""
    metadata = table.refresh().context.metadata
    found, at = list[Snapshot](), metadata.current_snapshot()
    while at is not None and at.snapshot_id != start:
        found.append(at)
        at = metadata.snapshot_by_id(at.parent_snapshot_id) if at.parent_snapshot_id is not None else None
    return found[::-1]


def replay(
    table: Table,
    start: int | None,
    rows: Rows,
    statements: Mapping[str, Statement],
    landed: Collection[str],
    rejected: Collection[str],
    level: Isolation = Isolation.SERIALIZABLE,
) -> int:
    """Check the history after `start`; return how many snapshots were compared."""
    chain = chain_of(table, start)
    keys = [_summary_value(s, ID) for s in chain]
    require(len(set(keys)) == len(keys), "landed twice", keys)
    require(set(landed) <= {*keys}, "acknowledged and not in the history", set(landed) - {*keys})
    require(not set(rejected) & {*keys}, "rejected and in the history", set(rejected) & {*keys})
    known = {start: rows}
    for snapshot, key in zip(chain, keys, strict=True):
        rows = _rows_after(
            statements[key],
            rows,
            known.get(int(_summary_value(snapshot, READ)) if _names_its_start(snapshot) else None),
            level,
        )
        found = rows_of(table, snapshot.snapshot_id)
        require(found == rows, f"after {key}: found, expected", found - rows, rows - found)
        known[snapshot.snapshot_id] = rows
    return len(chain)


def _rows_after(statement: Statement, rows: Rows, read: Rows | None, level: Isolation) -> Rows:
    if level is Isolation.SERIALIZABLE or not statement.uses_planned_rows:
        return statement.after(rows)
    require(read is not None, "has read an unknown snapshot", statement)
    gone, new = statement.difference(read or rows)
    require(statement.kind == "delete" or not gone - rows, "lost update", statement, gone - rows)
    return rows - gone + new


def _summary_value(snapshot: Snapshot, name: str) -> str:
    return snapshot.summary.additional_properties.get(name, "") if snapshot.summary else ""


def _names_its_start(snapshot: Snapshot) -> bool:
    return _summary_value(snapshot, READ) not in ("", "None")
