"""Staged and picked snapshots follow Iceberg's rules, as a model of files in plain Python does."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import neve
from neve import Table
from neve.commit.environment import Environment, Phase
from neve.errors import CommitConflict, NeveError, UnknownName, UserError
from neve.ops.write import cherry_pick
from neve.ops.write.cherry_pick import CherryPickResult
from tests.support.tables import ids_of

REGIONS, SHARDS, WAP_IDS = ("eu", "us"), (0, 1), tuple(f"audit {n}" for n in range(12))
STEPS = 30


@dataclass(frozen=True)
class File:
    """A data file: its partition, spec first, and the ids of its rows."""

    place: tuple[Any, ...]
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Commit:
    """A snapshot of the model."""

    parent: int | None
    kind: str
    added: frozenset[File] = frozenset()
    removed: frozenset[File] = frozenset()
    live: frozenset[File] = frozenset()
    staged_as: str | None = None
    published_as: str | None = None
    source: int | None = None


@dataclass
class Model:
    """The snapshots of a table by id, and the current one."""

    commits: dict[int, Commit] = field(default_factory=dict)
    head: int | None = None

    def history(self) -> Iterator[int]:
        number = self.head
        while number is not None:
            yield number
            number = self.commits[number].parent

    @property
    def live(self) -> frozenset[File]:
        return frozenset() if self.head is None else self.commits[self.head].live

    def after(self, kind: str, added: frozenset[File], removed: frozenset[File], **names: Any) -> Commit:
        return Commit(self.head, kind, added, removed, self.live - removed | added, **names)

    def pick(self, number: int) -> Commit | str | None:
        """Return the new snapshot, "fast-forward", or None if Iceberg refuses the pick."""
        picked, history = self.commits[number], [*self.history()]
        forward, again = picked.parent == self.head, picked.kind != "delete"
        past = [self.commits[n] for n in history]
        used = picked.staged_as is not None and any(picked.staged_as in (c.staged_as, c.published_as) for c in past)
        if (again or not forward) and (used or number in history or any(c.source == number for c in past)):
            return None
        if forward:
            return "fast-forward"
        if not again or (picked.kind == "replace" and self._has_conflict(picked, history)):
            return None
        names = {"source": number, "published_as": picked.staged_as}
        return self.after(picked.kind, picked.added, picked.removed, **names)

    def _has_conflict(self, picked: Commit, history: list[int]) -> bool:
        if picked.parent is not None and picked.parent not in history:
            return True
        since = history if picked.parent is None else history[: history.index(picked.parent)]
        places = {f.place for f in picked.added}
        is_changed = any(f.place in places for n in since for f in self.commits[n].added)
        return is_changed or not picked.removed <= self.live


@dataclass
class Player:
    """Takes random steps with a table and its model, and compares them after each."""

    table: Table
    model: Model
    chance: random.Random
    spec: int = 0
    next_id: int = 0
    outcomes: set[str] = field(default_factory=set)

    def step(self) -> None:
        steps: list[tuple[Callable[[], None], int]] = [
            (self.write, 4),
            (lambda: self.write(self.chance.choice(WAP_IDS)), 6),
            (self.pick, 6),
            (self.roll_back, 1),
        ]
        self.chance.choices([act for act, _ in steps], [weight for _, weight in steps])[0]()
        expected = sorted(i for f in self.model.live for i in f.ids)
        assert ids_of(self.table) == expected
        assert self.table.iceberg.metadata.current_snapshot_id == self.model.head

    def write(self, stage: str | None = None) -> None:
        kind, region, shard = (self.chance.choice(c) for c in (("append", "replace", "delete"), REGIONS, SHARDS))
        added: frozenset[File] = frozenset()
        if kind == "delete":
            statement = self.table.delete().where(f"region = '{region}'")
            removed = frozenset(f for f in self.model.live if f.place[1] == region)
            written = (statement if stage is None else statement.stage(stage)).execute()
        else:
            row = {"id": self.next_id, "region": region, "shard": shard}
            self.next_id += 1
            file = File((self.spec, region, shard)[: 2 + self.spec], (row["id"],))
            added, removed = frozenset([file]), frozenset[File]()
            if kind == "replace":
                removed = frozenset(f for f in self.model.live if f.place == file.place)
            act = self.table.append if kind == "append" else self.table.overwrite_partitions
            written = act([row], stage=stage)
        if not added and not removed:
            assert written.snapshot_id is None
            return
        assert written.snapshot_id is not None
        self.model.commits[written.snapshot_id] = self.model.after(kind, added, removed, staged_as=stage)
        if stage is None:
            self.model.head = written.snapshot_id
        if self.chance.random() < 0.1 and not self.spec:
            self.table.evolve_partitions(add=["shard"])
            self.spec = 1

    def pick(self) -> None:
        staged = {n: c.staged_as for n, c in self.model.commits.items() if c.staged_as is not None}
        if not staged:
            return
        last = [*staged][-1]  # chosen often: main may still be where it was staged
        number = self.chance.choice([*staged, *[last] * len(staged)])
        expected, names = self.model.pick(number), [*staged.values()]
        by_name = names.count(staged[number]) == 1 and self.chance.random() < 0.5
        kind = self.model.commits[number].kind
        if expected is None:
            with pytest.raises(NeveError):
                self._publish(number, by_name)
            self.outcomes.add(f"refused {kind}")
            return
        picked = self._publish(number, by_name)
        assert picked.source_snapshot_id == number
        self.outcomes.add(f"moved to {kind}" if expected == "fast-forward" else f"applied {kind}")
        self.model.head = picked.current_snapshot_id
        if isinstance(expected, Commit):
            self.model.commits[picked.current_snapshot_id] = expected
            self.check_summary(picked.current_snapshot_id, expected)
        else:
            assert picked.current_snapshot_id == number

    def _publish(self, number: int, by_name: bool) -> CherryPickResult:
        wap_id = str(self.model.commits[number].staged_as)
        return self.table.publish_changes(wap_id) if by_name else self.table.cherrypick_snapshot(number)

    def check_summary(self, snapshot_id: int, expected: Commit) -> None:
        snapshot = self.table.iceberg.metadata.snapshot_by_id(snapshot_id)
        assert snapshot is not None and snapshot.summary is not None
        summary = snapshot.summary.additional_properties
        assert summary["source-snapshot-id"] == str(expected.source)
        assert summary["published-wap-id"] == expected.published_as and "wap.id" not in summary
        assert int(summary["added-data-files"]) == len(expected.added)
        assert int(summary.get("deleted-data-files", 0)) == len(expected.removed)
        assert int(summary["total-records"]) == sum(len(f.ids) for f in expected.live)

    def roll_back(self) -> None:
        if history := [*self.model.history()]:
            self.model.head = self.chance.choice(history)
            self.table.rollback(self.model.head)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_table_does_what_the_model_does(lake: neve.Lake, version: int):
    outcomes: set[str] = set()
    for number in range(3):
        columns = "id bigint, region string, shard int"
        table = lake.create_table(f"db.t{number}", columns, ["region"], format_version=version)
        player = Player(table, Model(), random.Random(10 * version + number), outcomes=outcomes)
        for _ in range(STEPS):
            player.step()
        audit = table.verify()
        assert audit.is_sound, audit
    kinds = {outcome.rpartition(" ")[0] for outcome in outcomes}
    assert kinds == {"applied", "moved to", "refused"} and len(outcomes) >= 6, outcomes


# -- by name ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(lake: neve.Lake) -> Table:
    t = lake.create_table("db.t", "id bigint, region string", ["region"])
    t.append([{"id": 1, "region": "eu"}, {"id": 2, "region": "us"}])
    return t


def test_what_cannot_be_picked_is_refused_with_the_reason(table):
    with pytest.raises(UnknownName, match="snapshot 5"):
        table.cherrypick_snapshot(5)
    with pytest.raises(UnknownName, match=r"WAP id 'nihgtly'.*There are none"):
        table.publish_changes("nihgtly")
    first = table.append([{"id": 3, "region": "eu"}], stage="nightly")
    second = table.delete().where("id = 2").stage("clean").execute()
    with pytest.raises(UnknownName, match="Did you mean 'nightly'"):
        table.publish_changes("nihgtly")
    table.append([{"id": 4, "region": "us"}])
    with pytest.raises(UserError, match=r"Cannot cherry-pick snapshot \d+ of table db.t: its operation is 'delete'"):
        table.cherrypick_snapshot(second.snapshot_id)
    again = table.append([{"id": 5, "region": "us"}], stage="nightly")
    with pytest.raises(UserError, match=f"{first.snapshot_id}, {again.snapshot_id} were staged under it"):
        table.publish_changes("nightly")
    picked = table.cherrypick_snapshot(first.snapshot_id)
    with pytest.raises(UserError, match=f"snapshot {picked.current_snapshot_id} has applied its changes already"):
        table.cherrypick_snapshot(first.snapshot_id)
    with pytest.raises(UserError, match=f"'nightly' was published already, by snapshot {picked.current_snapshot_id}"):
        table.cherrypick_snapshot(again.snapshot_id)
    with pytest.raises(UserError, match="in the history of the current snapshot already"):
        table.cherrypick_snapshot(table.iceberg.metadata.current_snapshot_id)
    assert ids_of(table) == [1, 2, 3, 4] and table.verify().is_sound


def test_replaced_partitions_must_be_as_they_were(table):
    staged = table.overwrite_partitions([{"id": 9, "region": "eu"}], stage="eu")
    table.append([{"id": 3, "region": "eu"}])
    with pytest.raises(CommitConflict, match=r"got other data files since.*\[A"):
        table.publish_changes("eu")
    table.rollback(table.iceberg.metadata.snapshots[0].snapshot_id).append([{"id": 4, "region": "us"}])
    table.delete().where("region = 'eu'").execute()
    with pytest.raises(CommitConflict, match=r"no longer in the table.*\[F"):
        table.cherrypick_snapshot(staged.snapshot_id)
    assert ids_of(table) == [2, 4] and ids_of(table, snapshot_id=staged.snapshot_id) == [2, 9], "it keeps its files"


def test_a_snapshot_of_another_branch_is_picked(table):
    table.create_branch("side").append([{"id": 3, "region": "eu"}], branch="side")
    wanted = table.append([{"id": 4, "region": "eu"}], branch="side").snapshot_id
    assert table.cherrypick_snapshot(wanted).summary == "changes applied in a new snapshot"
    assert ids_of(table) == [1, 2, 4] and ids_of(table, ref="side") == [1, 2, 3, 4]


def test_the_first_snapshot_of_a_table_can_be_staged(lake):
    table = lake.create_table("db.new", "id bigint")
    staged = table.append([{"id": 1}], stage="first")
    assert table.iceberg.metadata.current_snapshot_id is None and ids_of(table) == []
    assert table.publish_changes("first").current_snapshot_id == staged.snapshot_id
    assert ids_of(table) == [1] and len(table.inspect.history()) == 1


def test_a_pick_that_loses_the_race_to_main_is_planned_again(table, monkeypatch):
    """Main cannot move to the snapshot any more, so its changes are applied to what another writer committed."""
    table.append([{"id": 3, "region": "eu"}], stage="nightly")
    move = cherry_pick.point_ref

    def come_second(context: Any, *arguments: Any) -> None:
        monkeypatch.setattr(cherry_pick, "point_ref", move)
        Table(context).append([{"id": 4, "region": "us"}])
        move(context, *arguments)

    monkeypatch.setattr(cherry_pick, "point_ref", come_second)
    picked = table.publish_changes("nightly")
    assert picked.reruns == 1 and picked.current_snapshot_id != picked.source_snapshot_id
    assert ids_of(table) == [1, 2, 3, 4] and len(table.iceberg.metadata.snapshots) == 4


def test_two_publishers_publish_once(table, monkeypatch):
    table.append([{"id": 3, "region": "eu"}], stage="nightly")
    table.append([{"id": 4, "region": "us"}])
    read = cherry_pick._changed_data_files

    def come_second(context: Any, snapshot: Any) -> Any:
        monkeypatch.setattr(cherry_pick, "_changed_data_files", read)
        Table(context).publish_changes("nightly")
        return read(context, snapshot)

    monkeypatch.setattr(cherry_pick, "_changed_data_files", come_second)
    with pytest.raises(UserError, match="has applied its changes already"):
        table.publish_changes("nightly")
    assert ids_of(table) == [1, 2, 3, 4] and len(table.iceberg.metadata.snapshots) == 4


@pytest.mark.parametrize("phase", [Phase.CHECK, Phase.SWAP])
def test_a_snapshot_that_expires_meanwhile_is_not_picked(lake_dir: Path, phase: Phase):
    """An expiry deletes its files at the very moment; no other snapshot may come to need them."""
    acts: list[Callable[[], Any]] = []

    def observe(reached: Phase, attempt: int) -> None:
        if reached is phase and acts:
            acts.pop()()

    lake = neve.connect(lake_dir, environment=Environment(observe=observe))
    table = lake.create_table("db.t", "id bigint")
    table.append([{"id": 1}])
    staged = table.append([{"id": 2}], stage="nightly").snapshot_id
    table.append([{"id": 3}])
    acts.append(lambda: neve.connect(lake_dir).table("db.t").expire_snapshots().snapshot_ids(staged).execute())
    with pytest.raises(UnknownName, match="nightly"):
        table.publish_changes("nightly")
    assert not acts and ids_of(table) == [1, 3] and table.verify().is_sound
    assert [*table.iceberg.metadata.refs] == ["main"]


# -- maintenance -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 4])
def test_files_stay_while_a_staged_or_a_publishing_snapshot_has_them(lake: neve.Lake, version: int):
    table = lake.create_table("db.t", "id bigint, region string", ["region"], format_version=version)
    table.append([{"id": 1, "region": "eu"}])
    published, unpublished = (table.append([{"id": i, "region": "eu"}], stage=f"s{i}").snapshot_id for i in (2, 3))
    table.append([{"id": 4, "region": "eu"}])
    table.publish_changes("s2")
    table.delete().where("region = 'eu'").execute()
    later = replace(table.context.environment, now_ms=lambda: table.context.metadata.last_updated_ms + 1)
    table.context = replace(table.context, environment=later)
    table.expire_snapshots().snapshot_ids(published).execute()
    snapshots = {s.snapshot_id for s in table.iceberg.metadata.snapshots}
    assert published not in snapshots and unpublished in snapshots
    before_delete = table.context.metadata.current_snapshot().parent_snapshot_id
    assert ids_of(table, snapshot_id=before_delete) == [1, 2, 4], "the file of the expired snapshot is in use"
    assert not table.remove_orphan_files().older_than(10**15).allow_young().plan().files
    table.expire_snapshots().older_than(later.now_ms()).retain_last(1).execute()
    assert len(table.iceberg.metadata.snapshots) == 1 and table.verify().is_sound
    assert not table.remove_orphan_files().older_than(10**15).allow_young().plan().files
