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
from neve.commit.outcome import require_committed
from tests.proof.audit import HOUR, NEW_NAME, State, lake_in, newest_metadata, table_in
from tests.proof.faults import DURABLE, Fault, Kind, Step, forked
from tests.proof.statements_without_spark import COLUMNS, Hand, Statement, opened, where

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
        require_committed(hand.do(statement))  # type: ignore[arg-type]
    table.create_tag("early").evolve_partitions(add=["bucket(2, id)"])
    for statement in (
        Statement("delete", where(("id", "=", 20))),
        Statement("append", rows=MORE[2:4]),
        Statement("append", rows=MORE[4:]),
    ):
        require_committed(hand.do(statement))  # type: ignore[arg-type]
    return table


def _orphaned(lake: Lake) -> None:
    place = _folder(lake) / "db" / "t"
    for name in ("data/lost.parquet", "metadata/lost-m0.avro", "data/.0123456789abcdef0123456789abcdef.part"):
        (place / name).write_bytes(b"lost")


def statement(made: Statement) -> Callable[[Lake], None]:
    def run(lake: Lake) -> None:
        outcome = Hand(opened(lake)).do(made)
        assert outcome is not None
        require_committed(outcome, made.kind)

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


def _register(lake: Lake) -> None:
    """Bring in a table that was dropped, by the newest of its metadata files."""
    lake.register_table("db.t", newest_metadata(_folder(lake)).as_uri())


def _empty(lake: Lake) -> None:
    lake.drop_table("db.t", purge=True)
    shutil.rmtree(_folder(lake) / "db")


def _folder(lake: Lake) -> Path:
    return Path(lake.catalog.properties["warehouse"].removeprefix("file://"))


def _first(table: Table) -> int:
    return table.context.metadata.snapshots[0].snapshot_id


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
    "merge, copied": statement(
        Statement("merge", rows=((2, "us", 7, "merged"), (77, "eu", 7, "merged")), mode="copy-on-write")
    ),
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
    "remove_dangling_deletes": on_table(lambda t: t.remove_dangling_deletes().execute()),
    "remove_properties": on_table(lambda t: t.remove_properties("neve.commit.reruns")),
    "create_branch": on_table(lambda t: t.create_branch("side")),
    "create_tag": on_table(lambda t: t.create_tag("late")),
    "drop_branch": on_table(lambda t: t.drop_branch("old")),
    "drop_tag": on_table(lambda t: t.drop_tag("early")),
    "fast_forward": on_table(lambda t: t.fast_forward("old", "main")),
    "rollback": on_table(lambda t: t.rollback(t.context.metadata.snapshots[1].snapshot_id)),
    "set_current_snapshot": on_table(lambda t: t.set_current_snapshot(_first(t))),
    "create_table": _recreate,
    "register_table": _register,
    "rename_table": lambda lake: lake.rename_table("db.t", NEW_NAME),
    "drop_table": lambda lake: lake.drop_table("db.t"),
    "purge_table": lambda lake: lake.drop_table("db.t", purge=True),
}
UNSEEN = ("remove_orphan_files",)  # changes nothing a table shows
# What changes tables and is not in the list, and why; `test_verbs.py` looks that nothing else is missing.
BY_OTHER_NAMES = {
    "rewrite_data_files": "compaction",
    "rewrite_position_deletes": "a Spark job; tests/proof/test_spark_crash.py",
    "maintain": "a Spark job; runs other verbs of the list one by one",
    "export_metadata": "changes nothing of the table; tests/tree",
}

# What some verbs need to find, and these verbs; the others find the table as it has lived.
PREPARED: tuple[tuple[Any, ...], ...] = (
    (_orphaned, "remove_orphan_files"),
    (_empty, "create_table"),
    (lambda lake: lake.drop_table("db.t"), "register_table"),
    (on_table(lambda t: t.create_branch("old", _first(t))), "drop_branch", "fast_forward"),
    (on_table(lambda t: t.iceberg.delete("region = 'us'")), "remove_dangling_deletes"),  # leaves the deletes of files
)


def fits(verb: str, version: int) -> bool:
    """Whether a verb has something to do on a table of a version."""
    if verb == "remove_dangling_deletes":
        return version == 2  # later ones have vectors, which go with their files
    return verb != "upgrade" or version < 4


def turn(verb: str, number: int) -> int:
    """The version a verb meets its `number`th case on: those that fit take turns."""
    fitting = [version for version in VERSIONS if fits(verb, version)]
    return fitting[number % len(fitting)]


@dataclass
class Ground:
    """A lake that can be put back to what it was."""

    folder: Path  # where cases are played
    version: int
    copies: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lived(lake_in(self.folder), self.version)
        self._keep("plain")
        for prepare, *verbs in PREPARED:
            if any(fits(verb, self.version) for verb in verbs):
                self.restore("plain")
                prepare(lake_in(self.folder))
                self._keep(*verbs)

    def _keep(self, *names: str) -> None:
        """The lake as it is now, for some verbs."""
        place = self.folder.with_name(f"{self.folder.name}-{names[0]}")
        shutil.copytree(self.folder, place)
        self.copies.update(dict.fromkeys(names, place))

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
        after = self.state()
        assert before != after or verb in UNSEEN, f"{verb} does nothing"
        return before, after

    def steps(self, verb: str, kinds: frozenset[Kind] = DURABLE) -> tuple[Step, ...]:
        """The steps of a verb that meets no fault: the durable ones, and readings if they are among the kinds."""
        self.restore(verb)
        ended = forked(lambda: self.run(verb), Fault(kinds=kinds))
        assert ended.acknowledged, ended.error
        assert ended.steps
        return ended.steps
