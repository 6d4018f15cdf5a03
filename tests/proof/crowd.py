"""A crowd on one table: engines that change rows, maintenance that cleans up, kills, and clocks that are wrong.

`python -m tests.proof.crowd ORDER` is one actor: a process that repeats random operations until its time is over. Each
actor has rows of its own, and a journal: it writes what it is about to do, and then what became of it. If it is killed
in between, its successor reads the table and finds out. So every acknowledged operation is accounted for, and what no
answer tells must have happened wholly or not at all. All engines also count up the same few rows.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import And, EqualTo, In
from pyiceberg.types import StringType

import neve
from neve.commit.environment import Environment
from neve.errors import CommitConflict, CommitUnknown, NeveError

TABLE = "db.crowd"
COLUMNS = "owner string, id bigint, n bigint"
COUNTERS = 4
SHARED = "shared"
ARROW = pa.schema([("owner", pa.string()), ("id", pa.int64()), ("n", pa.int64())])
SCHEMA_COLUMNS = tuple(ARROW.names)
Rows = dict[int, int]  # n by id


@dataclass(frozen=True)
class Order:
    """The work of one actor."""

    role: str  # a key of ROLES
    name: str
    settings: dict[str, Any]  # of the catalog
    journal: str
    until: float
    clock_ms: int = 0  # how wrong its clock is
    seed: int = 0


@dataclass(frozen=True)
class Operation:
    """What an actor does to its own rows, or to a counter."""

    kind: str  # append, update, delete, merge or count
    ids: tuple[int, ...]

    def apply(self, rows: Rows) -> Rows:
        """Return the actor's rows afterwards."""
        match self.kind:
            case "append":
                return rows | dict.fromkeys(self.ids, 0)
            case "update":
                return {i: n + (i in self.ids) for i, n in rows.items()}
            case "delete":
                return {i: n for i, n in rows.items() if i not in self.ids}
            case "merge":
                return rows | {i: rows[i] + 1 if i in rows else 0 for i in self.ids}
        return rows


class Conflict(Exception):
    """The operation did not happen, and the engine says so."""


# --- engines ----------------------------------------------------------------------------------------------------------


class Engine(ABC):
    """What changes and reads rows."""

    kinds: tuple[str, ...] = ("append", "update", "delete", "count")
    pause = 0.0  # seconds between operations at most, so that an engine does not take the machine from slower ones

    @abstractmethod
    def run(self, owner: str, operation: Operation) -> None:
        """Run an operation; raises Conflict if it certainly did not happen."""

    @abstractmethod
    def rows_of(self, owner: str) -> Rows:
        """Return the rows of an owner."""


class Neve(Engine):
    """Névé's own verbs, on Spark where they need it."""

    kinds = ("append", "append", "update", "delete", "merge", "count")

    def __init__(self, order: Order) -> None:
        self.rng = random.Random(order.seed)
        shift = order.clock_ms
        clock = Environment(now_ms=lambda: time.time_ns() // 1_000_000 + shift)
        self.lake = connect(order.settings, clock)
        self.table = self.lake.table(TABLE)

    def run(self, owner: str, operation: Operation) -> None:
        try:
            self._run(owner, operation)
        except CommitUnknown:
            raise
        except CommitConflict as e:
            raise Conflict(str(e)) from e

    def _run(self, owner: str, operation: Operation) -> None:
        table, mode = self.table, self.rng.choice(("copy-on-write", "merge-on-read"))
        where = f"owner = '{owner}' AND id IN ({', '.join(map(str, operation.ids))})"
        match operation.kind:
            case "append":
                table.append(rows_to_append(owner, operation.ids))
            case "update":
                table.update().set("n", "n + 1").where(where).mode(mode).execute()
            case "delete":
                table.delete().where(where).mode(mode).execute()
            case "merge":
                source = rows_to_append(owner, operation.ids)
                merge = table.merge(source, "t.owner = s.owner AND t.id = s.id").when_matched_update({"n": "t.n + 1"})
                values = {name: f"s.{name}" for name in SCHEMA_COLUMNS}
                merge.when_not_matched_insert(values).mode(mode).execute()
            case "count":
                counter = f"owner = '{SHARED}' AND id = {operation.ids[0]}"
                table.update().set("n", "n + 1").where(counter).mode(mode).execute()

    def rows_of(self, owner: str) -> Rows:
        return as_rows(self.table.refresh().scan(EqualTo("owner", owner), columns=SCHEMA_COLUMNS).to_arrow())


class NeveWithoutSpark(Neve):
    """What needs no Spark."""

    kinds = ("append",)
    pause = 3.0


class PyIceberg(Engine):
    """PyIceberg on the same catalog. It is kept from retrying: its retry records files under whatever spec is current.

    `test_pyiceberg_retries_under_another_spec` shows it.
    """

    kinds = ("append", "append", "delete")
    pause = 1.0

    def __init__(self, order: Order) -> None:
        known = dict(order.settings)
        folder = known.pop("folder", None)
        if folder is not None:
            known = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}", "type": "sql"}
        name = "neve" if folder is not None else "shared"
        self.table = load_catalog(name, **{"type": "sql", **known}).load_table(TABLE)

    def run(self, owner: str, operation: Operation) -> None:
        try:
            table = self.table.refresh()
            table.metadata.properties["commit.retry.num-retries"] = "0"
            if operation.kind == "append":
                table.append(rows_to_append(owner, operation.ids))
            else:
                table.delete(And(EqualTo("owner", owner), In("id", operation.ids)))
        except CommitFailedException as e:
            raise Conflict(str(e)) from e

    def rows_of(self, owner: str) -> Rows:
        return as_rows(self.table.refresh().scan(EqualTo("owner", owner), selected_fields=SCHEMA_COLUMNS).to_arrow())


class SparkWithIceberg(Engine):
    """Iceberg's own runtime on Spark, on the catalog of a folder."""

    def __init__(self, order: Order) -> None:
        from tests.peers.jars import ICEBERG, SQLITE, path_of
        from tests.peers.spark import Spark

        scratch = Path(order.journal).with_suffix(".spark")
        scratch.mkdir(exist_ok=True)
        self.spark = Spark(Path(order.settings["folder"]), scratch, (path_of(ICEBERG), path_of(SQLITE)))

    def run(self, owner: str, operation: Operation) -> None:
        from tests.peers.spark import SparkSaid

        ids = ", ".join(map(str, operation.ids))
        statement = {
            "append": f"INSERT INTO {TABLE} (owner, id, n) VALUES "
            + ", ".join(f"('{owner}', {i}, 0)" for i in operation.ids),
            "update": f"UPDATE {TABLE} SET n = n + 1 WHERE owner = '{owner}' AND id IN ({ids})",
            "delete": f"DELETE FROM {TABLE} WHERE owner = '{owner}' AND id IN ({ids})",
            "count": f"UPDATE {TABLE} SET n = n + 1 WHERE owner = '{SHARED}' AND id = {operation.ids[0]}",
        }[operation.kind]
        try:
            self.spark.sql(statement)
        except SparkSaid as e:
            if any(word in str(e) for word in ("CommitFailedException", "ValidationException")):
                raise Conflict(str(e)) from e
            raise

    def rows_of(self, owner: str) -> Rows:
        from tests.peers.spark import SparkSaid

        while True:
            try:
                return as_rows(self.spark.sql(f"SELECT owner, id, n FROM {TABLE} WHERE owner = '{owner}'"))
            except SparkSaid as e:
                if "INCOMPATIBLE_TABLE_CHANGE_AFTER_ANALYSIS" not in str(e):  # the columns changed meanwhile
                    raise


# --- actors -----------------------------------------------------------------------------------------------------------


@dataclass
class Journal:
    """What an actor meant to do and what became of it, line by line; it outlives a kill."""

    path: Path

    def write(self, **line: Any) -> None:
        with self.path.open("ab", buffering=0) as file:
            file.write((json.dumps(line) + "\n").encode())

    def lines(self) -> list[dict[str, Any]]:
        written = self.path.read_text().split("\n")[:-1] if self.path.exists() else []
        return [json.loads(line) for line in written]


@dataclass
class Account:
    """What a journal says: the actor's rows, what it counted, and the operation without an answer, if there is one."""

    rows: Rows = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    uncertain_counts: dict[int, int] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    open: Operation | None = None

    @classmethod
    def of(cls, lines: list[dict[str, Any]]) -> Account:
        account = cls()
        for line in lines:
            account._add(line)
        return account

    def _add(self, line: dict[str, Any]) -> None:
        if "intent" in line:
            self.open = Operation(line["intent"]["kind"], tuple(line["intent"]["ids"]))
            return
        outcome, operation = line["outcome"], self.open
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.open = None
        if operation is None:
            return
        counter = operation.ids[0] if operation.kind == "count" else None
        if outcome in ("acknowledged", "found to have happened"):
            if counter is not None:
                self.counts[counter] = self.counts.get(counter, 0) + 1
            self.rows = operation.apply(self.rows)
        elif outcome == "nobody knows" and counter is not None:
            self.uncertain_counts[counter] = self.uncertain_counts.get(counter, 0) + 1


def change_rows(order: Order, engine: Engine) -> None:
    """Change the actor's own rows until the time is over."""
    journal, rng = Journal(Path(order.journal)), random.Random(order.seed + time.time_ns())
    account = settle(order, engine, journal)
    while time.time() < order.until:
        operation = next_operation(rng, engine.kinds, account.rows)
        journal.write(intent=asdict(operation))
        try:
            engine.run(order.name, operation)
        except Conflict as e:
            journal.write(outcome="conflict", said=str(e)[:200])
        except Exception as e:
            account = settle(order, engine, journal, f"{type(e).__name__}: {e}")
            continue
        else:
            journal.write(outcome="acknowledged")
        account = Account.of(journal.lines())
        time.sleep(engine.pause * rng.random())


def settle(order: Order, engine: Engine, journal: Journal, said: str = "killed") -> Account:
    """Find out what became of an operation without an answer: its rows are there, or those from before it."""
    account = Account.of(journal.lines())
    if account.open is None:
        return account
    if account.open.kind == "count":  # others count too
        journal.write(outcome="nobody knows", said=said[:300])
        return Account.of(journal.lines())
    found = engine.rows_of(order.name)
    outcomes = {"did not happen": account.rows, "found to have happened": account.open.apply(account.rows)}
    outcome = next((name for name, rows in outcomes.items() if rows == found), None)
    if outcome is None:
        journal.write(
            outcome="torn", said=said[:300], found=sorted(found.items()), expected=sorted(account.rows.items())
        )
        raise SystemExit(f"{order.name}: {account.open} left neither the rows before it nor those after it")
    journal.write(outcome=outcome, said=said[:300])
    return Account.of(journal.lines())


def next_operation(rng: random.Random, kinds: tuple[str, ...], rows: Rows) -> Operation:
    """Choose an operation; an actor with many rows deletes some."""
    kind = rng.choice(kinds)
    new = [max(rows, default=0) + 1 + rng.randrange(3) + i * 3 for i in range(rng.randrange(1, 4))]
    if kind == "count":
        return Operation(kind, (rng.randrange(COUNTERS),))
    if len(rows) > 60 and "delete" in kinds:
        return Operation("delete", tuple(rng.sample(sorted(rows), 30)))
    if kind == "append" or not rows:
        return Operation("append", tuple(dict.fromkeys(new)))
    some = rng.sample(sorted(rows), min(len(rows), rng.randrange(1, 4)))
    return Operation(kind, tuple(dict.fromkeys([*some, *(new if kind == "merge" else [])])))


def maintain(order: Order, engine: Neve) -> None:
    """Expire, remove orphans, rewrite and evolve until the time is over; every answer must be typed."""
    journal, rng = Journal(Path(order.journal)), random.Random(order.seed + time.time_ns())
    while time.time() < order.until:
        action = rng.choice(MAINTENANCE[order.role])
        try:
            action(engine.table.refresh(), rng)
        except NeveError as e:
            journal.write(action=name_of(action), outcome="refused", said=f"{type(e).__name__}: {e}"[:300])
        except Exception as e:
            journal.write(action=name_of(action), outcome="failed", said=f"{type(e).__name__}: {e}"[:1000])
        else:
            journal.write(action=name_of(action), outcome="acknowledged")
        time.sleep(rng.random())


def read_all(order: Order, engine: Neve) -> None:
    """Read whole snapshots until the time is over: no row is there twice, and the counters are always there."""
    journal = Journal(Path(order.journal))
    while time.time() < order.until:
        try:
            rows = engine.table.refresh().scan(columns=SCHEMA_COLUMNS).to_arrow()
        except NeveError as e:  # the snapshot expired while it was read
            journal.write(action="read", outcome="refused", said=f"{type(e).__name__}: {e}"[:300])
            continue
        keys = list(zip(rows["owner"].to_pylist(), rows["id"].to_pylist(), strict=True))
        counters = sum(owner == SHARED for owner, _ in keys)
        is_right = len(set(keys)) == len(keys) and counters == COUNTERS
        journal.write(action="read", outcome="acknowledged" if is_right else "wrong", rows=len(keys), counters=counters)
        time.sleep(0.5)


# --- maintenance ------------------------------------------------------------------------------------------------------

ORPHAN_AGE_MS = 180_000  # no write of the crowd takes longer


def expire_snapshots(table: neve.Table, rng: random.Random) -> None:
    table.expire_snapshots().older_than(_now_ms(table) - 5_000).retain_last(rng.randrange(1, 4)).execute()


def remove_orphans(table: neve.Table, rng: random.Random) -> None:
    orphans = table.remove_orphan_files().older_than(time.time_ns() // 1_000_000 - ORPHAN_AGE_MS)
    orphans.allow_young().dry_run(False).execute()


def rewrite_manifests(table: neve.Table, rng: random.Random) -> None:
    table.rewrite_manifests().execute()


def change_schema(table: neve.Table, rng: random.Random) -> None:
    extra = [f.name for f in table.schema.fields if f.name not in SCHEMA_COLUMNS]
    with table.evolve_schema() as change:
        if len(extra) > 3:
            change.delete_column(rng.choice(extra))
        elif extra and rng.random() < 0.5:
            change.rename_column(extra[0], f"c{rng.randrange(10**9)}")
        else:
            change.add_column(f"c{rng.randrange(10**9)}", StringType())


def change_spec(table: neve.Table, rng: random.Random) -> None:
    names = {f.name for f in table.iceberg.spec().fields}
    fields = {
        "by_owner": "owner AS by_owner",
        "shard": "bucket(3, id) AS shard",
        "start": "truncate(2, owner) AS start",
    }
    name = rng.choice([name for name in fields if name not in names])
    table.evolve_partitions(add=[fields[name]], drop=sorted(names))


def use_branches(table: neve.Table, rng: random.Random) -> None:
    name = f"b{rng.randrange(10**9)}"
    table.create_branch(name).append(rows_to_append("nobody", (1,)), branch=name)
    table.refresh().drop_branch(name)


def compact(table: neve.Table, rng: random.Random) -> None:
    table.rewrite_data_files().option("min-input-files", "2").execute()


def rewrite_deletes(table: neve.Table, rng: random.Random) -> None:
    table.rewrite_position_deletes().execute()


MAINTENANCE: dict[str, tuple[Callable[[neve.Table, random.Random], None], ...]] = {
    "janitor": (
        *(expire_snapshots, expire_snapshots, remove_orphans, rewrite_manifests),
        *(change_schema, change_spec, use_branches),
    ),
    "compactor": (compact, rewrite_deletes, expire_snapshots, rewrite_manifests),
}


def name_of(action: Callable[..., None]) -> str:
    return action.__name__.replace("_", " ")


def _now_ms(table: neve.Table) -> int:
    return table.context.environment.now_ms()


# --- helpers ----------------------------------------------------------------------------------------------------------


def connect(settings: dict[str, Any], environment: Environment | None = None) -> neve.Lake:
    """Connect to the catalog of the crowd."""
    if "folder" in settings:
        return neve.connect(settings["folder"], environment=environment)
    return neve.connect(catalog="shared", environment=environment, **{"type": "sql", **settings})


def rows_to_append(owner: str, ids: tuple[int, ...]) -> pa.Table:
    return pa.table({"owner": [owner] * len(ids), "id": list(ids), "n": [0] * len(ids)}, ARROW)


def as_rows(found: pa.Table) -> Rows:
    ids = found["id"].to_pylist()
    if len(set(ids)) != len(ids):
        raise AssertionError(f"doubled rows: {sorted(ids)}")
    return dict(zip(ids, found["n"].to_pylist(), strict=True))


ROLES: dict[str, tuple[Callable[[Order], Any], Callable[[Order, Any], None]]] = {
    "neve": (Neve, change_rows),
    "neve-without-spark": (NeveWithoutSpark, change_rows),
    "pyiceberg": (PyIceberg, change_rows),
    "spark-iceberg": (SparkWithIceberg, change_rows),
    "janitor": (Neve, maintain),
    "compactor": (Neve, maintain),
    "reader": (Neve, read_all),
}


def main(text: str) -> int:
    pa.set_cpu_count(1)
    os.environ.update({"OMP_NUM_THREADS": "1"})
    order = Order(**json.loads(text))
    make, act = ROLES[order.role]
    act(order, make(order))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
