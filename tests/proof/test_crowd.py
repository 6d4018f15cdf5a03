"""A crowd of engines, maintenance and kills on one table: every acknowledged operation is accounted for.

NEVE_CROWD_MINUTES sets how long each crowd lasts.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.peers.jars import ICEBERG, SQLITE, NotToBeHad, path_of
from tests.proof.crowd import (
    COLUMNS,
    COUNTERS,
    SHARED,
    TABLE,
    Account,
    Journal,
    Order,
    as_rows,
    connect,
    rows_to_append,
)
from tests.proof.results_ledger import Tally, new_tally
from tests.support.coverage import IS_FULL
from tests.support.servers import object_store, rest_server

ROOT = Path(__file__).parents[2]
MINUTES = float(os.environ.get("NEVE_CROWD_MINUTES", "3.5"))
CATALOGS = ("sqlite", "postgres", "rest over s3")
# The actors on each catalog: their roles, and how wrong their clocks are in milliseconds. Iceberg's runtime refuses a
# table whose history goes back by more than a minute, as it does if PyIceberg writes after a clock that is fast.
ACTORS = {
    "sqlite": (
        *(("neve", 0), ("neve-without-spark", 30_000), ("pyiceberg", 0), ("spark-iceberg", 0)),
        *(("janitor", 0), ("compactor", 0), ("reader", 0)),
    ),
    "postgres": (("neve", 0), ("neve", -60_000), ("neve-without-spark", 3_600_000), ("janitor", 0), ("reader", 0)),
    "rest over s3": (("neve", 0), ("neve-without-spark", -3_600_000), ("pyiceberg", 0), ("janitor", 0), ("reader", 0)),
}


@dataclass
class Crowd:
    """The running actors; each is killed now and then, and started again."""

    folder: Path
    orders: tuple[Order, ...]
    rng: random.Random
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)
    ended: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        """Let the actors work until their time is over."""
        for order in self.orders:
            self._start(order)
        next_kill = time.time() + 30
        while self.running:
            time.sleep(0.2)
            for order in self.orders:
                self._look_after(order)
            if time.time() > next_kill and time.time() < self.orders[0].until - 10:
                self._kill(self.rng.choice(self.orders))
                next_kill = time.time() + self.rng.uniform(5, 25)

    def _start(self, order: Order) -> None:
        command = [sys.executable, "-m", "tests.proof.crowd", json.dumps(asdict(order))]
        with (self.folder / f"{order.name}.log").open("ab") as log:
            self.running[order.name] = subprocess.Popen(
                command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True, env=os.environ | {"NEVE_DRIVER": "1"}
            )

    def _look_after(self, order: Order) -> None:
        process = self.running.get(order.name)
        if process is not None and (code := process.poll()) is not None:
            del self.running[order.name]
            self.ended[order.name] = code
            if time.time() < order.until and code == -9:
                self._start(order)
        elif process is not None and time.time() > order.until + 120:
            self._kill(order)
            del self.running[order.name]
            self.ended[order.name] = 124

    def _kill(self, order: Order) -> None:
        if (process := self.running.get(order.name)) is not None:
            os.killpg(process.pid, 9)  # with its Java, if it has one
            process.wait()
            self.kills[order.role] += 1


@pytest.fixture
def settings(request: pytest.FixtureRequest, catalog: str, tmp_path: Path) -> Iterator[dict[str, Any]]:
    folder = tmp_path / "lake"
    folder.mkdir()
    if catalog == "sqlite":
        yield {"folder": str(folder)}
    elif catalog == "postgres":
        yield {"uri": request.getfixturevalue("server").uri, "warehouse": folder.as_uri()}
    else:
        with object_store() as store:
            behind = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": "s3://lake/crowd", **store.properties}
            with rest_server(connect(behind).catalog) as server:
                yield {"type": "rest", "uri": server.uri, **store.properties}


def orders_of(catalog: str, settings: dict[str, Any], folder: Path, until: float) -> tuple[Order, ...]:
    actors = [(role, clock) for role, clock in ACTORS[catalog] if role != "spark-iceberg" or has_jars()]
    return tuple(
        Order(role, f"{role}-{n}", settings, str(folder / f"{role}-{n}.journal"), until, clock, n)
        for n, (role, clock) in enumerate(actors)
    )


def has_jars() -> bool:
    try:
        return all(path_of(jar) for jar in (ICEBERG, SQLITE))
    except NotToBeHad:
        return False


@pytest.mark.skipif(not IS_FULL, reason="NEVE_PROOF=all lets a crowd work for minutes")
@pytest.mark.parametrize("catalog", CATALOGS)
def test_a_crowd_loses_nothing(settings: dict[str, Any], catalog: str, tmp_path: Path):
    lake = connect(settings)
    version = 3 if catalog == "postgres" else 2  # PyIceberg cannot write version 3
    table = lake.create_table(TABLE, COLUMNS, ("owner",), format_version=version)
    table.append(rows_to_append(SHARED, tuple(range(COUNTERS))))
    neighbour = lake.create_table("db.neighbour", COLUMNS)
    neighbour.append(rows_to_append("neighbour", (1, 2, 3)))
    actors = tmp_path / "actors"
    actors.mkdir()
    crowd = Crowd(actors, orders_of(catalog, settings, actors, time.time() + 60 * MINUTES), random.Random(0))
    with new_tally("a crowd of engines, maintenance and kills: every acknowledged operation is there") as tally:
        crowd.run()
        check_crowd(crowd, connect(settings), tally)
        tally.notes.append(f"{catalog}: {', '.join(f'{n} {role} killed' for role, n in sorted(crowd.kills.items()))}")


def check_crowd(crowd: Crowd, lake: Any, tally: Tally) -> None:
    """Check the journals of all actors against the table."""
    table = lake.table(TABLE)
    accounts = {order.name: Account.of(Journal(Path(order.journal)).lines()) for order in crowd.orders}
    found = table.scan(columns=["owner", "id", "n"]).to_arrow()
    for order in crowd.orders:
        account = accounts[order.name]
        for outcome, count in account.outcomes.items():
            tally.figure(outcome, count)
            tally.cases += count
        with tally.case(f"{order.name} ended by itself"):
            assert crowd.ended[order.name] in (0, -9), (crowd.folder / f"{order.name}.log").read_text()[-2000:]
        with tally.case(f"{order.name} got typed answers and right rows"):
            assert not {"torn", "failed", "wrong"} & account.outcomes.keys(), odd_lines(order)
        with tally.case(f"the rows of {order.name}"):
            rows = as_rows(found.filter([owner == order.name for owner in found["owner"].to_pylist()]))
            after = account.rows if account.open is None else account.open.apply(account.rows)
            lost, more = account.rows.items() - rows.items(), rows.items() - after.items()
            assert rows in (account.rows, after), f"lost {lost}, more {more}"
    with tally.case("the counters"):
        counts = as_rows(found.filter([owner == SHARED for owner in found["owner"].to_pylist()]))
        for counter in range(COUNTERS):
            sure = sum(account.counts.get(counter, 0) for account in accounts.values())
            unsure = sum(account.uncertain_counts.get(counter, 0) for account in accounts.values())
            unsure += sum(
                a.open is not None and a.open.kind == "count" and a.open.ids[0] == counter for a in accounts.values()
            )
            assert sure <= counts[counter] <= sure + unsure, (
                f"counter {counter}: {sure} acknowledged, {counts[counter]} counted"
            )
    with tally.case("the table and its neighbour are sound"):
        assert table.verify().is_sound, table.verify()
        assert lake.table("db.neighbour").verify().is_sound
        assert lake.table("db.neighbour").scan().count() == 3


def odd_lines(order: Order) -> str:
    lines = Journal(Path(order.journal)).lines()
    return "\n".join(json.dumps(line) for line in lines if line.get("outcome") in ("torn", "failed", "wrong"))[:4000]


def test_pyiceberg_retries_under_another_spec(tmp_path: Path):
    """Why the crowd keeps PyIceberg from retrying: a filter misses rows. If this fails, PyIceberg has mended it."""
    lake = connect({"folder": str(tmp_path / "lake")})
    table = lake.create_table("db.t", COLUMNS, ("truncate(2, owner)",))
    catalog = SqlCatalog("neve", uri=f"sqlite:///{tmp_path}/lake/catalog.db", warehouse=f"file://{tmp_path}/lake")
    stale = catalog.load_table("db.t")
    table = table.evolve_partitions(add=["owner"], drop=["truncate(2, owner)"])
    table.append(rows_to_append("ann", (1,)))
    stale.append(rows_to_append("bob", (2,)))
    assert table.refresh().scan("owner = 'bob'").count() == 0 and table.refresh().scan().count() == 2
    assert [finding.kind for finding in table.refresh().verify().findings] == ["partition-value"]


APPEND, DELETE, COUNT = ({"kind": kind, "ids": [1]} for kind in ("append", "delete", "count"))


@pytest.mark.parametrize(
    ("lines", "rows", "finding"),
    [
        ([(APPEND, "acknowledged")], [("a", 1), (SHARED, 1)], None),
        ([(APPEND, "acknowledged")], [(SHARED, 1)], "lost"),
        ([(APPEND, "conflict")], [("a", 1), (SHARED, 1)], "more"),
        ([(APPEND, "acknowledged")], [("a", 1), ("a", 1), (SHARED, 1)], "doubled"),
        ([(APPEND, "acknowledged"), (DELETE, "acknowledged")], [("a", 1), (SHARED, 1)], "more"),
        ([(APPEND, "acknowledged"), (DELETE, None)], [("a", 1), (SHARED, 1)], None),
        ([(APPEND, "acknowledged"), (DELETE, None)], [(SHARED, 1)], None),
        ([(COUNT, "acknowledged")], [(SHARED, 1)], "counted"),
        ([(COUNT, "nobody knows"), (COUNT, None)], [(SHARED, 1)], None),
        ([(APPEND, "torn")], [(SHARED, 1)], "torn"),
    ],
)
def test_the_crowd_is_checked(tmp_path: Path, lines: list[Any], rows: list[tuple[str, int]], finding: str | None):
    lake = connect({"folder": str(tmp_path / "lake")})
    others = [(SHARED, n) for n in range(COUNTERS) if n != 1]
    named = [{"owner": owner, "id": i, "n": 0} for owner, i in (*rows, *others)]
    lake.create_table(TABLE, COLUMNS).append(named)
    lake.create_table("db.neighbour", COLUMNS).append(named[:1] * 3)
    order = Order("neve-without-spark", "a", {}, str(tmp_path / "journal"), 0)
    journal = Journal(Path(order.journal))
    for intent, outcome in lines:
        journal.write(intent=intent)
        if outcome is not None:
            journal.write(outcome=outcome)
    tally = Tally("")
    check_crowd(Crowd(tmp_path, (order,), random.Random(0), ended={"a": 0}), lake, tally)
    found = " ".join(tally.failures)
    assert (finding is None) == (not found) and (finding or "") in found, found
