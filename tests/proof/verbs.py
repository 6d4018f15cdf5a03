"""Every verb, on a small table that has lived: what is done to it, and the lake it is done in.

The lake is made once for each version and copied for every case; since tables name their files by absolute paths, the
copy goes to the place where the lake was made.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neve import Lake, Table
from neve.commit.outcome import require
from tests.proof.audit import HOUR, State, lake_in, table_in
from tests.proof.hand import COLUMNS, Hand, Statement, opened, where

VERSIONS = (2, 3, 4)
ROWS = tuple((i, ("eu", "us")[i % 2], i, f"note {i}") for i in range(8))
MORE = tuple((i, ("eu", "us")[i % 2], i, f"note {i}") for i in range(20, 26))
PROPERTIES = {"commit.retry.num-retries": "3", "neve.commit.reruns": "1", "commit.status-check.num-retries": "1"}

EU, US = where(("region", "=", "eu")), where(("region", "=", "us"))
FIRST, ALL_BUT_FIRST = where(("id", "=", 2)), where(("id", ">=", 2))


def lived(lake: Lake, version: int) -> Table:
    """A table of two specs with deletes, several manifests, a tag, and a file nothing leads to."""
    lake.create_table("db.t", COLUMNS, ["region"], format_version=version, properties=PROPERTIES)
    table = opened(lake)
    hand = Hand(table)
    for statement in (
        Statement("append", rows=ROWS),
        Statement("delete", where(("id", "=", 1))),
        Statement("append", rows=MORE[:2]),
    ):
        require(hand.do(statement))  # type: ignore[arg-type]
    table.create_tag("early").evolve_partitions(add=["bucket(2, id)"])
    for statement in (
        Statement("delete", where(("id", "=", 20))),
        Statement("append", rows=MORE[2:4]),
        Statement("append", rows=MORE[4:]),
    ):
        require(hand.do(statement))  # type: ignore[arg-type]
    return table


def _orphaned(table: Table) -> None:
    place = Path(table.context.metadata.location.removeprefix("file://"))
    for name in ("data/lost.parquet", "metadata/lost-m0.avro", "data/.0123456789abcdef0123456789abcdef.part"):
        (place / name).write_bytes(b"lost")


def statement(made: Statement) -> Callable[[Lake], None]:
    def run(lake: Lake) -> None:
        outcome = Hand(opened(lake)).do(made)
        assert outcome is not None
        require(outcome, made.kind)

    return run


def on_table(act: Callable[[Table], Any]) -> Callable[[Lake], None]:
    def run(lake: Lake) -> None:
        act(opened(lake))

    return run


def _soon() -> int:
    return int(time.time() * 1000) + HOUR


def _add_column(table: Table) -> None:
    with table.evolve_schema() as change:
        from pyiceberg.types import StringType

        change.add_column("more", StringType())
        change.rename_column("note", "remark")


def _recreate(lake: Lake) -> None:
    lake.create_table("db.t", COLUMNS, ["region"], format_version=3)


VERBS: dict[str, Callable[[Lake], Any]] = {
    "append": on_table(lambda t: t.append([{"id": 90, "region": "eu", "n": 0, "note": "x"}])),
    "overwrite": on_table(lambda t: t.overwrite([{"id": 91, "region": "eu", "n": 0, "note": "x"}], "region = 'eu'")),
    "overwrite_partitions": on_table(
        lambda t: t.overwrite_partitions([{"id": 22, "region": "eu", "n": 0, "note": "x"}])
    ),
    "delete": statement(Statement("delete", FIRST)),
    "delete, copied": statement(Statement("delete", FIRST, mode="copy-on-write")),
    "delete of files": statement(Statement("drop", US)),
    "update": statement(Statement("update", EU, add=100)),
    "update, copied": statement(Statement("update", EU, add=100, mode="copy-on-write")),
    "merge": statement(Statement("merge", rows=((2, "us", 7, "merged"), (77, "eu", 7, "merged")))),
    "compaction": statement(Statement("compact")),
    "rewrite_manifests": on_table(lambda t: t.rewrite_manifests().execute()),
    "expire_snapshots": on_table(lambda t: t.expire_snapshots().older_than(_soon()).retain_last(1).execute()),
    "remove_orphan_files": on_table(
        lambda t: t.remove_orphan_files().older_than(_soon()).allow_young().dry_run(False).execute()
    ),
    "evolve_partitions": on_table(lambda t: t.evolve_partitions(drop=["region"])),
    "evolve_schema": on_table(_add_column),
    "set_properties": on_table(lambda t: t.set_properties(owner="me")),
    "upgrade": on_table(lambda t: t.upgrade(t.context.metadata.format_version + 1)),
    "create_branch": on_table(lambda t: t.create_branch("side")),
    "rollback": on_table(lambda t: t.rollback(t.context.metadata.snapshots[1].snapshot_id)),
    "create_table": _recreate,
    "drop_table": lambda lake: lake.drop_table("db.t"),
    "purge_table": lambda lake: lake.drop_table("db.t", purge=True),
}
QUICK = ("append", "delete", "compaction", "expire_snapshots", "create_table")


def fits(verb: str, version: int) -> bool:
    return verb != "upgrade" or version < 4


@dataclass
class Ground:
    """A lake that can be put back to what it was."""

    folder: Path  # where cases are played
    version: int
    copies: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lake = lake_in(self.folder)
        table = lived(lake, self.version)
        self._keep("plain")
        _orphaned(table)
        self._keep("remove_orphan_files")
        lake.drop_table("db.t", purge=True)
        shutil.rmtree(self.folder / "db")
        self._keep("create_table")

    def _keep(self, name: str) -> None:
        self.copies[name] = self.folder.with_name(f"{self.folder.name}-{name}")
        shutil.copytree(self.folder, self.copies[name])

    def restore(self, verb: str) -> None:
        """The lake as it is before a verb."""
        shutil.rmtree(self.folder)
        shutil.copytree(self.copies.get(verb, self.copies["plain"]), self.folder)

    def run(self, verb: str) -> None:
        VERBS[verb](lake_in(self.folder))

    def state(self) -> State:
        return State.of(table_in(lake_in(self.folder)))

    def states(self, verb: str) -> tuple[State, State]:
        """What the table shows before a verb, and after one that meets no fault."""
        self.restore(verb)
        before = self.state()
        self.run(verb)
        return before, self.state()
