"""Pairs of concurrent operations, and the table that they run on.

The table has files of two specs, and a deleted row in one of them. Every operation is a `Statement` with a meaning in
plain Python, or one that does not change the rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.event import listen

from neve import Lake, Table
from neve.commit.isolation import Isolation
from neve.commit.outcome import Committed, Outcome, Rejected, Unknown, require_committed
from neve.errors import CommitConflict, CommitError, UserError
from tests.proof import turn_taking as phases
from tests.proof.audit import files_on_disk, lake_in, reachable_files
from tests.proof.audit import require as demand
from tests.proof.replay import replay
from tests.proof.statements_without_spark import (
    COLUMNS,
    ID,
    NO_WAIT,
    Rows,
    Statement,
    StatementWriter,
    open_table,
    rows_of,
    table_without_spark,
    where,
)

EU, US = where(("region", "=", "eu")), where(("region", "=", "us"))
ROWS = ((0, "eu", 0, "a"), (2, "eu", 2, "b"), (4, "eu", 4, "c"), (1, "us", 1, "d"), (3, "us", 3, "e"))
LATER = ((10, "eu", 10, "f"), (12, "eu", 12, "g"), (11, "us", 11, "h"))
DELETED_ROW = where(("id", "=", 0))
TWO, FOUR, THREE = where(("id", "=", 2)), where(("id", "=", 4)), where(("id", "=", 3))
COPY_ON_WRITE = "copy-on-write"

APPEND_EU = Statement("append", rows=((20, "eu", 0, "new"),))
APPEND_US = Statement("append", rows=((21, "us", 0, "new"),))
DELETE_TWO, DELETE_FOUR = Statement("delete", TWO), Statement("delete", FOUR)
UPDATE_TWO, UPDATE_FOUR = Statement("update", TWO, add=100), Statement("update", FOUR, add=1000)
UPDATE_EU, UPDATE_US = Statement("update", EU, add=10000), Statement("update", US, add=20000)
MERGE_NEW = Statement("merge", rows=((2, "eu", 7, "merged"), (30, "eu", 7, "merged")))
COMPACT, COMPACT_EU, COMPACT_US = Statement("compact"), Statement("compact", EU), Statement("compact", US)
REPLACE_EU = Statement("overwrite", EU, rows=((40, "eu", 0, "over"),))
DROP_US = Statement("drop", US)
# Each deletes a row only if the table has more than 6 rows. The table has 7, so both deletes together break the rule.
DELETE_TWO_IF_MORE, DELETE_THREE_IF_MORE = (Statement("delete", w, add=6, reads_all=True) for w in (TWO, THREE))
MANIFESTS, EXPIRE, EVOLVE = Statement("manifests"), Statement("expire"), Statement("evolve")


@dataclass(frozen=True)
class Pair:
    """Two operations, the format version of the table, and whether both commit in every order."""

    one: Statement
    other: Statement
    version: int = 3
    is_compatible: bool = False


PAIRS = {
    "append, append": Pair(APPEND_EU, APPEND_US, 4, is_compatible=True),
    "append, delete": Pair(APPEND_EU, Statement("delete", EU), 2),
    "append, update elsewhere": Pair(APPEND_EU, UPDATE_US, 3, is_compatible=True),
    "append, compaction": Pair(APPEND_EU, COMPACT_EU, 4, is_compatible=True),
    "delete, delete of another row": Pair(DELETE_TWO, DELETE_FOUR, 3, is_compatible=True),
    "delete, update of the row": Pair(DELETE_TWO, UPDATE_TWO, 2),
    "update, update of the row": Pair(UPDATE_TWO, replace(UPDATE_TWO, add=7), 4),
    "update, update of another row": Pair(UPDATE_TWO, UPDATE_FOUR, 3),
    "update copied, delete": Pair(replace(UPDATE_TWO, mode=COPY_ON_WRITE), DELETE_FOUR, 2),
    "update copied, update copied": Pair(
        replace(UPDATE_TWO, mode=COPY_ON_WRITE), replace(UPDATE_FOUR, mode=COPY_ON_WRITE), 4
    ),
    "update, compaction": Pair(UPDATE_EU, COMPACT_EU, 3),
    "delete, compaction of all": Pair(DELETE_TWO, COMPACT, 2),
    "merge, merge of the same keys": Pair(
        MERGE_NEW, replace(MERGE_NEW, rows=((2, "us", 9, "x"), (30, "us", 9, "x"))), 3
    ),
    "merge, append of a key": Pair(MERGE_NEW, Statement("append", rows=((30, "eu", 1, "theirs"),)), 4),
    "overwrite, append": Pair(REPLACE_EU, APPEND_EU, 2),
    "overwrite, delete": Pair(REPLACE_EU, DELETE_TWO, 3),
    "compaction, compaction elsewhere": Pair(COMPACT_EU, COMPACT_US, 4, is_compatible=True),
    "compaction, compaction of all": Pair(COMPACT_EU, COMPACT, 2),
    "drop of files, update": Pair(DROP_US, UPDATE_US, 3),
    "leave, leave": Pair(DELETE_TWO_IF_MORE, DELETE_THREE_IF_MORE, 4),
    "manifests, delete": Pair(MANIFESTS, DELETE_TWO, 2, is_compatible=True),
    "expiry, update": Pair(EXPIRE, UPDATE_TWO, 3),
    "evolution, update copied": Pair(EVOLVE, replace(UPDATE_EU, mode=COPY_ON_WRITE), 4),
    "compaction, update copied": Pair(COMPACT_EU, replace(UPDATE_EU, mode=COPY_ON_WRITE), 2),
    "compaction, manifests": Pair(COMPACT_EU, MANIFESTS, 3, is_compatible=True),
    "compaction, evolution": Pair(COMPACT_EU, EVOLVE, 4, is_compatible=True),
    "compaction, append and delete elsewhere": Pair(COMPACT_EU, Statement("delete", THREE), 2, is_compatible=True),
}


@dataclass
class PairTable:
    """A table on which pairs run; it is restored before each run."""

    folder: Path
    version: int
    head: int = field(init=False)
    rows: Rows = field(init=False)

    def __post_init__(self) -> None:
        self.lakes = {
            name: with_pooled_connections(lake_in(self.folder, phases.Gated)) for name in ("A", "B", "checker")
        }
        create_pair_table(self.lakes["checker"], self.version)
        table = self.table("checker")
        self.metadata_location = table.context.iceberg.metadata_location
        head = table.context.head()
        assert head is not None
        self.head, self.rows, self.files = head.snapshot_id, rows_of(table), files_on_disk(self.folder)
        self.past = {s.snapshot_id for s in table.context.metadata.snapshots}
        self.before = reachable_files(table)
        folder = self.folder.with_name(f"copies-{self.folder.name}")
        folder.mkdir()
        self.copies = {path: folder / str(number) for number, path in enumerate(self.files)}
        for path, copy in self.copies.items():
            os.link(path, copy)

    def table(self, name: str) -> Table:
        catalog = self.lakes[name].catalog
        return table_without_spark(catalog, catalog.load_table(("db", "t")), replace(NO_WAIT, observe=phases.observe))

    def restore(self) -> None:
        """Restore the table: reset its row in the catalog, delete new files, and bring expired files back."""
        with self.lakes["checker"].catalog.engine.begin() as connection:  # type: ignore[attr-defined]
            connection.exec_driver_sql("UPDATE iceberg_tables SET metadata_location = ?", (self.metadata_location,))
        stored = files_on_disk(self.folder)
        for path in stored - self.files:
            os.unlink(path)
        for path in self.files - stored:
            os.link(self.copies[path], path)

    def work(self, name: str, statement: Statement, level: Isolation) -> Callable[[], Outcome | None]:
        table = self.table(name)
        match statement.kind:
            case "manifests":
                return lambda: table.rewrite_manifests().snapshot_property(ID, name).execute() and None
            case "expire":
                return lambda: table.expire_snapshots().older_than(2**60).retain_last(1).execute() and None
            case "evolve":
                return lambda: table.evolve_partitions(add=["truncate(2, note)"]) and None
        hand = StatementWriter(table, level)

        def run() -> Outcome | None:
            return hand.land(hand.prepare(statement), name)

        return run

    def run_order(self, pair: Pair, order: str, level: Isolation) -> tuple[int, int]:
        """Run one order and check the result; return how many operations landed and how many were rejected."""
        self.restore()
        works = {name: self.work(name, s, level) for name, s in (("A", pair.one), ("B", pair.other))}
        operations = phases.run_in_turns(order, works)
        landed, rejected = self._landed_and_rejected(operations)
        demand(bool(landed) or not rejected, "both rejected", operations)
        one_by_one = order in ("AAAAABBBBB", "BBBBBAAAAA")
        demand(
            not rejected or not (pair.is_compatible or one_by_one),
            "rejected without a conflict",
            _conflicts(operations),
        )
        self._check(pair, landed, rejected, level)
        return len(landed), len(rejected)

    def _landed_and_rejected(self, operations: dict[str, phases.SteppedOperation]) -> tuple[set[str], set[str]]:
        landed, rejected = set[str](), set[str]()
        for name, operation in operations.items():
            if operation.error is not None and not isinstance(operation.error, CommitError | UserError):
                raise operation.error
            demand(not isinstance(operation.result, Unknown), "unknown", name)
            if isinstance(operation.result, Rejected) or operation.error is not None:
                rejected.add(name)
            elif isinstance(operation.result, Committed):
                landed.add(name)
        return landed, rejected

    def _check(self, pair: Pair, landed: set[str], rejected: set[str], level: Isolation) -> None:
        table = self.table("checker")
        replay(table, self.head, self.rows, {"A": pair.one, "B": pair.other}, landed, rejected, level)
        demand((found := table.verify(data=False)).is_sound, "not sound", found)  # the rows were compared above
        known, stored = reachable_files(table, except_snapshots=self.past), files_on_disk(self.folder)
        demand(not (left := stored - self.files - known), "left behind", left)
        has_past = {s.snapshot_id for s in table.context.metadata.snapshots} >= self.past  # else some were expired
        demand(not (missing := (known | (self.before if has_past else set())) - stored), "missing", missing)


def create_pair_table(lake: Lake, version: int) -> None:
    """Create the table that pairs run on."""
    lake.create_table("db.t", COLUMNS, ["region"], format_version=version)
    hand = StatementWriter(open_table(lake))
    for statement in (Statement("append", rows=ROWS), Statement("delete", DELETED_ROW)):
        require_committed(hand.do(statement))  # type: ignore[arg-type]
    hand.table.evolve_partitions(add=["bucket(2, id)"])
    for rows in (LATER[:2], LATER[2:]):
        require_committed(hand.do(Statement("append", rows=rows)))  # type: ignore[arg-type]


def with_pooled_connections(lake: Lake) -> Lake:
    """Return the lake with a connection pool."""
    catalog: Any = lake.catalog
    catalog.engine = create_engine(catalog.engine.url, connect_args={"timeout": 60})
    listen(catalog.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
    return lake


def _conflicts(operations: dict[str, phases.SteppedOperation]) -> list[Any]:
    conflicts = (CommitConflict,)
    return [
        p.error if isinstance(p.error, conflicts) else getattr(p.result, "conflicts", p.result)
        for p in operations.values()
    ]
