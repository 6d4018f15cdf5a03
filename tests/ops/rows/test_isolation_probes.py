"""What a statement is protected from, at either isolation level: lost updates, write skew, phantoms, and the rest.

First another writer gets in at a known moment, between what a statement read and its commit. Then two processes, each
with a lake and a Spark of its own, meet at one table: one of them is this one.

Serializable: the outcome is that of the statements one after the other. Snapshot: nothing that a statement changed is
lost, but what it only read may change under it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest

import neve
from neve import CommitConflict, Lake, Table
from neve.commit.environment import Phase
from tests.support.coverage import spread
from tests.support.other_writer import OtherWriter
from tests.support.two_writers import Interruption

Row = dict[str, Any]
Rows = list[Row]

SERIALIZABLE, SNAPSHOT = LEVELS = ("serializable", "snapshot")
MODES = ("copy-on-write", "merge-on-read")
VERSIONS = spread([(2, 3), (4, 4)], 2)  # of the tables of either mode


@dataclass
class Place:
    """One lake as two writers see it; the first can be interrupted."""

    folder: Path
    mine: Lake
    theirs: Lake
    interruption: Interruption
    names: Iterator[int]
    versions: tuple[int, int]

    def table(self, columns: str, *files: Rows, mode: str, **properties: str) -> str:
        """The name of a new table with a data file of each batch of rows."""
        name = f"db.t{next(self.names)}"
        modes = {f"write.{command}.mode": mode for command in ("delete", "update", "merge")}
        table = self.theirs.create_table(
            name, columns, format_version=self.versions[MODES.index(mode)], properties={**modes, **properties}
        )
        for rows in files:
            table.append(rows)
        return name

    def rows(self, name: str) -> Rows:
        """What the table holds, in order."""
        found = self.theirs.table(name).scan().to_arrow(engine="arrow").to_pylist()
        return in_order(found)

    def interrupted(self, act: Callable[[], Any], phase: Phase = Phase.CHECK) -> Interruption:
        self.interruption.acts, self.interruption.phase = [act], phase
        return self.interruption


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: tuple(row.values()))


@pytest.fixture(scope="module", params=VERSIONS, ids=lambda versions: "v{}-v{}".format(*versions))
def place(request: pytest.FixtureRequest, tmp_path_factory, spark) -> Place:
    folder, interruption = tmp_path_factory.mktemp("isolation"), Interruption()
    mine = neve.connect(folder, spark=spark, environment=interruption.environment)
    return Place(folder, mine, neve.connect(folder, spark=spark), interruption, count(), request.param)


# --- another writer gets in between ---


@dataclass(frozen=True)
class Command:
    """A statement about the rows of k = 1, and what it makes of rows."""

    name: str
    statement: Callable[[Table], Any]
    effect: Callable[[Rows], Rows]


@dataclass(frozen=True)
class Event:
    """What another writer does meanwhile, and what it makes of rows."""

    name: str
    act: Callable[[Table], Any]
    effect: Callable[[Rows], Rows]


START = [{"id": 1, "k": 1, "n": 0}, {"id": 2, "k": 1, "n": 0}, {"id": 3, "k": 2, "n": 0}]
MATCHING, OTHER = {"id": 7, "k": 1, "n": 0}, {"id": 8, "k": 5, "n": 0}


def _one_more(rows: Rows) -> Rows:
    return [{**row, "n": row["n"] + (row["k"] == 1)} for row in rows]


COMMANDS = (
    Command("update", lambda t: t.update().set("n", "n + 1").where("k = 1"), _one_more),
    Command("delete", lambda t: t.delete().where("k = 1"), lambda rows: [r for r in rows if r["k"] != 1]),
    Command("merge", lambda t: t.merge([{"k": 1}], on="t.k = s.k").when_matched_update({"n": "t.n + 1"}), _one_more),
)
APPENDS_MATCHING = Event("append_matching", lambda t: t.append([MATCHING]), lambda rows: [*rows, MATCHING])
APPENDS_OTHER = Event("append_not_matching", lambda t: t.append([OTHER]), lambda rows: [*rows, OTHER])
DELETES = Event(
    "delete_same_row",
    lambda t: t.delete().where("id = 1").execute(),
    lambda rows: [r for r in rows if r["id"] != 1],
)
UPDATES = Event(
    "update_same_row",
    lambda t: t.update().set("n", "n + 100").where("id = 1").execute(),
    lambda rows: [{**r, "n": r["n"] + 100 * (r["id"] == 1)} for r in rows],
)
EVENTS = (APPENDS_MATCHING, APPENDS_OTHER, DELETES, UPDATES)


def is_conflict(command: Command, level: str, mode: str, event: Event) -> bool:
    """Whether a statement must not land beside what happened meanwhile."""
    if event is APPENDS_MATCHING:
        return level == SERIALIZABLE
    if event is DELETES and command.name == "delete":
        return mode == "copy-on-write"  # positions of two deletes are united; a file is rewritten by one of two
    return event is not APPENDS_OTHER


def named(values: Any) -> dict[str, Any]:
    return {"argvalues": values, "ids": [getattr(v, "name", v) for v in values]}


MEETINGS = spread(product(COMMANDS, EVENTS, MODES, LEVELS), every=5)


@pytest.mark.parametrize(
    ("command", "event", "mode", "level"),
    [pytest.param(*m, id="-".join(getattr(part, "name", part) for part in m)) for m in MEETINGS],
)
def test_statement_meets_another_writer(place: Place, command: Command, mode: str, level: str, event: Event):
    """Half of the conflicts are seen to be refused, the others to be resolved by running the statement again."""
    name = place.table("id bigint, k int, n int", START, mode=mode)
    statement = command.statement(place.mine.table(name)).isolation(level)
    interruption = place.interrupted(lambda: event.act(place.theirs.table(name)))
    conflicts = is_conflict(command, level, mode, event)
    if conflicts and (mode, level) in {("copy-on-write", SERIALIZABLE), ("merge-on-read", SNAPSHOT)}:
        place.theirs.table(name).set_properties(**{"neve.commit.reruns": "0"})
        with pytest.raises(CommitConflict):
            statement.execute()
        expected = event.effect(START)
    else:
        assert statement.execute().reruns == (1 if conflicts else 0)
        is_unseen = event is APPENDS_MATCHING and not conflicts  # the new row came after what the statement read
        expected = event.effect(command.effect(START)) if is_unseen else command.effect(event.effect(START))
    assert not interruption.acts, "nobody got in between"
    assert place.rows(name) == in_order(expected)


@pytest.mark.parametrize("command", **named(COMMANDS))
def test_row_that_comes_after_the_checks_is_found_when_the_swap_is_lost(place: Place, command: Command):
    name = place.table("id bigint, k int, n int", START, mode="merge-on-read")
    place.interrupted(lambda: place.theirs.table(name).append([MATCHING]), Phase.SWAP)
    result = command.statement(place.mine.table(name)).execute()
    assert result.reruns == 1
    assert place.rows(name) == in_order(command.effect([*START, MATCHING]))


# --- two processes ---


@pytest.fixture(scope="module")
def other(place: Place) -> Iterator[OtherWriter]:
    """The second process."""
    writer = OtherWriter(place.folder)
    yield writer
    writer.stop()


@pytest.mark.parametrize("level", **named(LEVELS))
def test_no_update_is_lost(place: Place, other: OtherWriter, level: str):
    mode = "merge-on-read" if level == SNAPSHOT else "copy-on-write"
    patience = {"neve.commit.reruns": "50"}
    name = place.table("id bigint, n int", [{"id": 1, "n": 100}, {"id": 2, "n": 0}], mode=mode, **patience)
    sql, options = f"UPDATE {name} SET n = n + 1 WHERE id = 1", {"isolation": level}
    other.begin(sql=sql, times=5, options=options)
    for _ in range(5):
        place.mine.sql(sql, **options)
    assert other.answer().get("changed") == 5
    assert place.rows(name) == [{"id": 1, "n": 110}, {"id": 2, "n": 0}]


ON_CALL = ([{"name": "a", "on_call": True}], [{"name": "b", "on_call": True}])  # a file each
ENOUGH = "(SELECT count(*) FROM {t} WHERE on_call) >= 2"
GO_HOME = {
    "update": f"UPDATE {{t}} SET on_call = false WHERE name = '{{who}}' AND {ENOUGH}",
    "delete": f"DELETE FROM {{t}} WHERE name = '{{who}}' AND {ENOUGH}",
    "merge": f"MERGE INTO {{t}} t USING (SELECT '{{who}}' AS name WHERE {ENOUGH}) s ON t.name = s.name "
    "WHEN MATCHED THEN UPDATE SET on_call = false",
}


def _on_call(place: Place, name: str) -> list[str]:
    return [row["name"] for row in place.rows(name) if row["on_call"]]


WHO_GO = [("update", "update"), ("merge", "merge"), ("delete", "delete"), ("update", "delete")]


@pytest.mark.parametrize(
    ("mine", "theirs", "mode"), [(*who, mode) for who, mode in spread(product(WHO_GO, MODES), every=3)]
)
def test_somebody_stays_on_call_when_serializable(place: Place, other: OtherWriter, mine: str, theirs: str, mode: str):
    """Each may go home while two are on call; the second to commit has read what the first changed."""
    name = place.table("name string, on_call boolean", *ON_CALL, mode=mode)
    place.interrupted(lambda: other.does(sql=GO_HOME[theirs].format(t=name, who="b")))
    result = place.mine.sql(GO_HOME[mine].format(t=name, who="a"))
    assert _on_call(place, name) == ["a"]
    assert (result.reruns, result.snapshot_id) == (1, None), "run again, the statement finds one on call and leaves it"


@pytest.mark.parametrize("how", **named(tuple(GO_HOME)))
def test_snapshot_isolation_lets_both_go_home(place: Place, other: OtherWriter, how: str):
    """Neither changed what the other changed: snapshot isolation protects no more than that."""
    name, options = place.table("name string, on_call boolean", *ON_CALL, mode=MODES[1]), {"isolation": SNAPSHOT}
    place.interrupted(lambda: other.does(sql=GO_HOME[how].format(t=name, who="b"), options=options))
    assert place.mine.sql(GO_HOME[how].format(t=name, who="a"), **options).reruns == 0
    assert _on_call(place, name) == []


@pytest.mark.parametrize("mode", **named(MODES))
def test_two_who_insert_what_is_missing_insert_it_once(place: Place, other: OtherWriter, mode: str):
    """No lock and no unique key: that a row was not there is part of what a serializable MERGE has read."""
    name = place.table("id bigint, who string", [{"id": 0, "who": "start"}], mode=mode, **{"neve.commit.reruns": "50"})
    merges = [
        f"MERGE INTO {name} t USING (SELECT id, '{who}' AS who FROM range(4)) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT *"
        for who in ("other", "mine")
    ]
    other.begin(sql=merges[0])
    place.mine.sql(merges[1])
    assert "error" not in other.answer()
    rows = place.rows(name)
    assert [row["id"] for row in rows] == [0, 1, 2, 3]
    assert {row["who"] for row in rows[1:]} in ({"mine"}, {"other"}), "one of the two came first, with all its rows"


@pytest.mark.parametrize("how", ["delete", "merge"])
def test_phantoms_are_seen_when_serializable_and_survive_a_snapshot(place: Place, other: OtherWriter, how: str):
    """Matching rows come from the other process after the statement has read the table."""
    old, phantom = {"id": 1, "k": 1}, {"id": 2, "k": 1}
    statement = {
        "delete": "DELETE FROM {t} WHERE k = 1",
        "merge": "MERGE INTO {t} t USING (SELECT 1 AS k) s ON t.k = s.k WHEN MATCHED THEN DELETE",
    }[how]
    for level, survivors in ((SERIALIZABLE, []), (SNAPSHOT, [phantom])):
        name = place.table("id bigint, k int", [old, {"id": 3, "k": 9}], mode=MODES[0])
        place.interrupted(lambda name=name: other.does(table=name, rows=[phantom]))
        place.mine.sql(statement.format(t=name), isolation=level)
        assert place.rows(name) == [*survivors, {"id": 3, "k": 9}]


def test_phantoms_leave_a_serial_order_whoever_comes_first(place: Place, other: OtherWriter):
    """Rows arrive while rows are counted and deleted: what is left tells one moment at which both were done."""
    name = place.table("id bigint, k int", [{"id": 0, "k": 1}], mode=MODES[1], **{"neve.commit.reruns": "50"})
    other.begin(sql=f"INSERT INTO {name} SELECT id + 10, 1 FROM range(3)", times=2)
    place.mine.sql(f"DELETE FROM {name} WHERE k = 1 AND (SELECT count(*) FROM {name}) < 5")
    assert "error" not in other.answer()
    ids = [row["id"] for row in place.rows(name)]
    batches = [10, 11, 12]
    none, one, both = sorted(2 * batches), batches, [0, *sorted(2 * batches)]  # as many batches were there
    assert ids in (none, one, both)
