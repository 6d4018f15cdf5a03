"""The chain of snapshots replayed: each statement that landed, by its meaning, must give the rows its snapshot has.

Every statement leaves its key and the snapshot it had read in the summary. At the serializable level each is applied to
the rows of the snapshot before it. At the snapshot level it is decided on what it had read, and the rows it takes away
must still be there: the first to commit wins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from neve import Table
from neve.commit.isolation import Isolation
from neve.model.snapshots import Snapshot
from tests.proof.audit import require
from tests.proof.statements_without_spark import ID, READ, Rows, Statement, rows_of


def chain_of(table: Table, start: int | None) -> list[Snapshot]:
    """The snapshots after a start, oldest first."""
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
    refused: Collection[str],
    level: Isolation = Isolation.SERIALIZABLE,
) -> int:
    """Check a history from a start on; how many snapshots were compared."""
    chain = chain_of(table, start)
    keys = [_said(s, ID) for s in chain]
    require(len(set(keys)) == len(keys), "landed twice", keys)
    require(set(landed) <= {*keys}, "acknowledged and not in the history", set(landed) - {*keys})
    require(not set(refused) & {*keys}, "refused and in the history", set(refused) & {*keys})
    known = {start: rows}
    for snapshot, key in zip(chain, keys, strict=True):
        rows = _after(statements[key], rows, known.get(int(_said(snapshot, READ)) if _read(snapshot) else None), level)
        found = rows_of(table, snapshot.snapshot_id)
        require(found == rows, f"after {key}: found, expected", found - rows, rows - found)
        known[snapshot.snapshot_id] = rows
    return len(chain)


def _after(statement: Statement, rows: Rows, read: Rows | None, level: Isolation) -> Rows:
    if level is Isolation.SERIALIZABLE or not statement.reads_ahead:
        return statement.after(rows)
    require(read is not None, "read a snapshot nobody knows", statement)
    gone, new = statement.difference(read or rows)
    require(statement.kind == "delete" or not gone - rows, "lost update", statement, gone - rows)
    return rows - gone + new


def _said(snapshot: Snapshot, name: str) -> str:
    return snapshot.summary.additional_properties.get(name, "") if snapshot.summary else ""


def _read(snapshot: Snapshot) -> bool:
    return _said(snapshot, READ) not in ("", "None")
