"""Pairs of operations that meet on one table, and the table they meet on.

The table has files of two specs, and a deleted row in one of them. Every operation is a `Statement` with a meaning, or
one that leaves the rows as they are.
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
from tests.proof.audit import lake_in, on_disk, reachable
from tests.proof.audit import require as demand
from tests.proof.replay import replay
from tests.proof.statements_without_spark import (
    COLUMNS,
    ID,
    NO_WAIT,
    Hand,
    Rows,
    Statement,
    in_hand,
    opened,
    rows_of,
    where,
)

EU, US = where(("region", "=", "eu")), where(("region", "=", "us"))
ROWS = ((0, "eu", 0, "a"), (2, "eu", 2, "b"), (4, "eu", 4, "c"), (1, "us", 1, "d"), (3, "us", 3, "e"))
LATER = ((10, "eu", 10, "f"), (12, "eu", 12, "g"), (11, "us", 11, "h"))
GONE = where(("id", "=", 0))
TWO, FOUR, THREE = where(("id", "=", 2)), where(("id", "=", 4)), where(("id", "=", 3))
COPIED = "copy-on-write"

APPEND_EU = Statement("append", rows=((20, "eu", 0, "new"),))
APPEND_US = Statement("append", rows=((21, "us", 0, "new"),))
DELETE_TWO, DELETE_FOUR = Statement("delete", TWO), Statement("delete", FOUR)
UPDATE_TWO, UPDATE_FOUR = Statement("update", TWO, add=100), Statement("update", FOUR, add=1000)
UPDATE_EU, UPDATE_US = Statement("update", EU, add=10000), Statement("update", US, add=20000)
MERGE_NEW = Statement("merge", rows=((2, "eu", 7, "merged"), (30, "eu", 7, "merged")))
COMPACT, COMPACT_EU, COMPACT_US = Statement("compact"), Statement("compact", EU), Statement("compact", US)
REPLACE_EU = Statement("overwrite", EU, rows=((40, "eu", 0, "over"),))
DROP_US = Statement("drop", US)
# Each leaves only if somebody else stays: 7 rows are there, and both would see that more than 6 are.
LEAVE_TWO, LEAVE_THREE = (Statement("delete", w, add=6, reads_all=True) for w in (TWO, THREE))
MANIFESTS, EXPIRE, EVOLVE = Statement("manifests"), Statement("expire"), Statement("evolve")


@dataclass(frozen=True)
class Pair:
    """Two operations, the version they meet on, and whether they get along in every order."""

    one: Statement
    other: Statement
    version: int = 3
    get_along: bool = False


PAIRS = {
    "append, append": Pair(APPEND_EU, APPEND_US, 4, get_along=True),
    "append, delete": Pair(APPEND_EU, Statement("delete", EU), 2),
    "append, update elsewhere": Pair(APPEND_EU, UPDATE_US, 3, get_along=True),
    "append, compaction": Pair(APPEND_EU, COMPACT_EU, 4, get_along=True),
    "delete, delete of another row": Pair(DELETE_TWO, DELETE_FOUR, 3, get_along=True),
    "delete, update of the row": Pair(DELETE_TWO, UPDATE_TWO, 2),
    "update, update of the row": Pair(UPDATE_TWO, replace(UPDATE_TWO, add=7), 4),
    "update, update of another row": Pair(UPDATE_TWO, UPDATE_FOUR, 3),
    "update copied, delete": Pair(replace(UPDATE_TWO, mode=COPIED), DELETE_FOUR, 2),
    "update copied, update copied": Pair(replace(UPDATE_TWO, mode=COPIED), replace(UPDATE_FOUR, mode=COPIED), 4),
    "update, compaction": Pair(UPDATE_EU, COMPACT_EU, 3),
    "delete, compaction of all": Pair(DELETE_TWO, COMPACT, 2),
    "merge, merge of the same keys": Pair(
        MERGE_NEW, replace(MERGE_NEW, rows=((2, "us", 9, "x"), (30, "us", 9, "x"))), 3
    ),
    "merge, append of a key": Pair(MERGE_NEW, Statement("append", rows=((30, "eu", 1, "theirs"),)), 4),
    "overwrite, append": Pair(REPLACE_EU, APPEND_EU, 2),
    "overwrite, delete": Pair(REPLACE_EU, DELETE_TWO, 3),
    "compaction, compaction elsewhere": Pair(COMPACT_EU, COMPACT_US, 4, get_along=True),
    "compaction, compaction of all": Pair(COMPACT_EU, COMPACT, 2),
    "drop of files, update": Pair(DROP_US, UPDATE_US, 3),
    "leave, leave": Pair(LEAVE_TWO, LEAVE_THREE, 4),
    "manifests, delete": Pair(MANIFESTS, DELETE_TWO, 2, get_along=True),
    "expiry, update": Pair(EXPIRE, UPDATE_TWO, 3),
    "evolution, update copied": Pair(EVOLVE, replace(UPDATE_EU, mode=COPIED), 4),
    "compaction, update copied": Pair(COMPACT_EU, replace(UPDATE_EU, mode=COPIED), 2),
    "compaction, manifests": Pair(COMPACT_EU, MANIFESTS, 3, get_along=True),
    "compaction, evolution": Pair(COMPACT_EU, EVOLVE, 4, get_along=True),
    "compaction, append and delete elsewhere": Pair(COMPACT_EU, Statement("delete", THREE), 2, get_along=True),
}


@dataclass
class Meeting:
    """A table that pairs meet on again and again."""

    folder: Path
    version: int
    head: int = field(init=False)
    rows: Rows = field(init=False)

    def __post_init__(self) -> None:
        self.lakes = {name: quick(lake_in(self.folder, phases.Gated)) for name in ("A", "B", "judge")}
        met(self.lakes["judge"], self.version)
        table = self.table("judge")
        self.place = table.context.iceberg.metadata_location
        head = table.context.head()
        assert head is not None
        self.head, self.rows, self.files = head.snapshot_id, rows_of(table), on_disk(self.folder)
        self.past = {s.snapshot_id for s in table.context.metadata.snapshots}
        self.before = reachable(table)
        place = self.folder.with_name(f"kept-{self.folder.name}")
        place.mkdir()
        self.kept = {path: place / str(number) for number, path in enumerate(self.files)}
        for path, copy in self.kept.items():
            os.link(path, copy)

    def table(self, name: str) -> Table:
        catalog = self.lakes[name].catalog
        return in_hand(catalog, catalog.load_table(("db", "t")), replace(NO_WAIT, observe=phases.observe))

    def restore(self) -> None:
        """The table as it was: its row in the catalog put back, new files deleted, and expired ones there again."""
        with self.lakes["judge"].catalog.engine.begin() as connection:  # type: ignore[attr-defined]
            connection.exec_driver_sql("UPDATE iceberg_tables SET metadata_location = ?", (self.place,))
        stored = on_disk(self.folder)
        for path in stored - self.files:
            os.unlink(path)
        for path in self.files - stored:
            os.link(self.kept[path], path)

    def work(self, name: str, statement: Statement, level: Isolation) -> Callable[[], Outcome | None]:
        table = self.table(name)
        match statement.kind:
            case "manifests":
                return lambda: table.rewrite_manifests().snapshot_property(ID, name).execute() and None
            case "expire":
                return lambda: table.expire_snapshots().older_than(2**60).retain_last(1).execute() and None
            case "evolve":
                return lambda: table.evolve_partitions(add=["truncate(2, note)"]) and None
        hand = Hand(table, level)

        def run() -> Outcome | None:
            return hand.land(hand.prepared(statement), name)

        return run

    def played(self, pair: Pair, order: str, level: Isolation) -> tuple[int, int]:
        """Play one order and judge it; how many landed and how many were refused."""
        self.restore()
        works = {name: self.work(name, s, level) for name, s in (("A", pair.one), ("B", pair.other))}
        players = phases.play(order, works)
        landed, refused = self._told(players)
        demand(bool(landed) or not refused, "both refused", players)
        one_by_one = order in ("AAAAABBBBB", "BBBBBAAAAA")
        demand(not refused or not (pair.get_along or one_by_one), "refused for nothing", _why(players))
        self._judge(pair, landed, refused, level)
        return len(landed), len(refused)

    def _told(self, players: dict[str, phases.Player]) -> tuple[set[str], set[str]]:
        landed, refused = set[str](), set[str]()
        for name, player in players.items():
            if player.error is not None and not isinstance(player.error, CommitError | UserError):
                raise player.error
            demand(not isinstance(player.result, Unknown), "unknown", name)
            if isinstance(player.result, Rejected) or player.error is not None:
                refused.add(name)
            elif isinstance(player.result, Committed):
                landed.add(name)
        return landed, refused

    def _judge(self, pair: Pair, landed: set[str], refused: set[str], level: Isolation) -> None:
        table = self.table("judge")
        replay(table, self.head, self.rows, {"A": pair.one, "B": pair.other}, landed, refused, level)
        demand((found := table.verify(data=False)).is_sound, "not sound", found)  # the rows were compared above
        known, stored = reachable(table, but=self.past), on_disk(self.folder)
        demand(not (left := stored - self.files - known), "left behind", left)
        kept = {s.snapshot_id for s in table.context.metadata.snapshots} >= self.past  # else some were expired
        demand(not (missing := (known | (self.before if kept else set())) - stored), "missing", missing)


def met(lake: Lake, version: int) -> None:
    """Make the table that pairs meet on."""
    lake.create_table("db.t", COLUMNS, ["region"], format_version=version)
    hand = Hand(opened(lake))
    for statement in (Statement("append", rows=ROWS), Statement("delete", GONE)):
        require_committed(hand.do(statement))  # type: ignore[arg-type]
    hand.table.evolve_partitions(add=["bucket(2, id)"])
    for rows in (LATER[:2], LATER[2:]):
        require_committed(hand.do(Statement("append", rows=rows)))  # type: ignore[arg-type]


def quick(lake: Lake) -> Lake:
    """The lake with connections that are kept."""
    catalog: Any = lake.catalog
    catalog.engine = create_engine(catalog.engine.url, connect_args={"timeout": 60})
    listen(catalog.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
    return lake


def _why(players: dict[str, phases.Player]) -> list[Any]:
    conflicts = (CommitConflict,)
    return [
        p.error if isinstance(p.error, conflicts) else getattr(p.result, "conflicts", p.result)
        for p in players.values()
    ]
