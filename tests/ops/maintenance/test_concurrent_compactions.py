"""Compactions beside other writers, as real processes: no row is lost, doubled or brought back, and disjoint work never
conflicts.

In every round one process compacts a table of several specs while another deletes, updates, merges, appends, evolves
the partitions or compacts too. Both begin together. In most rounds both stop once more before a commit, when they have
planned on the same snapshot, and go on together or one after the other. Then the rows are compared with a model: a
plain dictionary, changed by what the other process says it has done.

`NEVE_ROUNDS` is the number of rounds for each version, `NEVE_SEED` the start of all chance.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

import neve
from neve import Table
from tests.support.compaction_orders import COMPACTION_FIRST, MEETING, OTHER_FIRST, REGIONS, Draw, Round, Slot, slots
from tests.support.compaction_process import Order, Worker
from tests.support.coverage import spread
from tests.support.tables import Row, append

ROUNDS = int(os.environ.get("NEVE_ROUNDS", "4"))
SEED = os.environ.get("NEVE_SEED", "4")
AUDIT_EVERY = 25
FEW, MANY = 40, 90  # rows between rounds

COLUMNS = {"id": "bigint", "region": "string", "n": "bigint"}
DDL = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
LINEAGE = ("_row_id", "_last_updated_sequence_number")


@dataclass
class Trial:
    """A table, the model of its rows, and the two processes."""

    table: Table
    workers: list[Worker]
    chance: Random
    rows: dict[int, Row] = field(default_factory=dict)
    lineage: dict[int, tuple[int, int]] = field(default_factory=dict)
    ids: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def has_lineage(self) -> bool:
        return self.table.context.metadata.format_version >= 3

    def play(self, slot: Slot) -> None:
        """One round, and what must be true after it."""
        self.refill()
        now = Draw(self.table, self.rows, self.chance, self.new_rows).round(slot)
        try:
            now.answers.extend(self.answers(now))
            self.judge(now)
            self.compare(self.applied(now.orders[1]) if now.answers[1]["landed"] else set())
        except BaseException as e:
            e.add_note(str(now))
            raise

    def refill(self) -> None:
        """Some more small files; properties that decide how compactions fare and what version 2 deletes name."""
        new: list[Row] = []
        for _ in range(2 if len(self.rows) < FEW else len(self.rows) < MANY):
            new += (rows := self.new_rows(6))
            append(self.table, rows)
        self.compare(self.applied({"do": "append", "rows": new}))
        reruns = self.chance.choice(("0", "3", "3"))
        granularity = "file" if self.has_lineage else self.chance.choice(("file", "partition"))
        self.table.set_properties(**{"neve.commit.reruns": reruns, "write.delete.granularity": granularity})

    def new_rows(self, number: int) -> list[Row]:
        self.ids += number
        return [{"id": i, "region": self.chance.choice(REGIONS), "n": 0} for i in range(self.ids - number, self.ids)]

    # -- the processes -----------------------------------------------------------------------------------------------

    def answers(self, now: Round) -> list[dict[str, Any]]:
        """What both processes say of a round they act in at the same time."""
        for worker, order in zip(self.workers, now.orders, strict=True):
            worker.tell(order)
        assert [w.hear() for w in self.workers] == [{"ready": True}] * 2
        for worker in self.workers:
            worker.tell("go")
        said = [w.hear() for w in self.workers]
        for turn in {COMPACTION_FIRST: ([0], [1]), OTHER_FIRST: ([1], [0])}.get(now.slot.timing, ([0, 1],)):
            self.go_on([n for n in turn if "at" in said[n]], said)
        return said

    def go_on(self, stopped: list[int], said: list[dict[str, Any]]) -> None:
        for n in stopped:
            self.workers[n].tell("go on")
        for n in stopped:
            said[n] = self.workers[n].hear()

    def judge(self, now: Round) -> None:
        """Disjoint work does not conflict and is not done again; of two that change one file the second notices."""
        for answer in now.answers:
            assert "error" not in answer, answer["error"]
        lost = sum(answer["lost"] for answer in now.answers)
        assert not (now.is_apart and lost), "disjoint work conflicted"
        assert not (now.must_clash and not lost), "nobody noticed that the other changed the same files"
        self.counts["rounds"] += 1
        self.counts["apart"] += now.is_apart and now.slot.kind in MEETING
        self.counts["lost a race"] += lost > 0
        self.counts["gave up"] += not all(answer["landed"] for answer in now.answers)
        self.counts["files rewritten"] += now.answers[0].get("files", 0)

    # -- the model ---------------------------------------------------------------------------------------------------

    def applied(self, order: Order) -> set[int]:
        """Change the model as an order changed the table; the ids of new and changed rows."""
        match order["do"]:
            case "delete":
                self.rows = {i: row for i, row in self.rows.items() if i not in order["ids"]}
            case "update":
                self.rows |= {i: _updated(self.rows[i], order["set"]) for i in order["ids"]}
                return set(order["ids"])
            case "merge" | "append":
                self.rows |= {row["id"]: row for row in order["rows"]}
                return {row["id"] for row in order["rows"]}
        return set()

    def compare(self, touched: set[int]) -> None:
        """The table holds the rows of the model, and from version 3 on their ids and numbers are what they must be."""
        names = [*COLUMNS, *(LINEAGE if self.has_lineage else ())]
        found = self.table.refresh().scan(columns=names).to_arrow(engine="arrow").to_pylist()
        assert sorted(row["id"] for row in found) == sorted(self.rows), "rows were lost, doubled or brought back"
        assert {row["id"]: {n: row[n] for n in COLUMNS} for row in found} == self.rows
        if self.has_lineage:
            self.compare_lineage({row["id"]: (row[LINEAGE[0]], row[LINEAGE[1]]) for row in found}, touched)

    def compare_lineage(self, lineage: dict[int, tuple[int, int]], touched: set[int]) -> None:
        """A row has an id of its own for life, and the number of the commit that changed it last."""
        assert len({row_id for row_id, _ in lineage.values()}) == len(lineage), "two rows have one row id"
        for i, (row_id, number) in lineage.items():
            before, changed = self.lineage.get(i, (row_id, 0))
            assert row_id == before, f"row {i} had row id {before} before"
            assert number > changed if i in touched else number == changed, f"row {i} was last changed by {changed}"
        self.lineage = lineage

    def audit(self) -> None:
        """Every file that a snapshot names is sound, and there are no others."""
        audit = self.table.refresh().verify()
        assert audit.is_sound, str(audit)
        later = self.table.context.environment.now_ms() + 60_000
        orphans = self.table.remove_orphan_files().older_than(later).allow_young().plan().files
        assert not orphans, "files were left behind"


def _updated(row: Row, assignments: dict[str, str]) -> Row:
    return row | {"n": row["n"] + 1, "region": assignments.get("region", row["region"]).strip("'")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("beside")


@pytest.fixture(scope="module")
def workers(folder: Path) -> Iterator[list[Worker]]:
    neve.connect(folder)  # makes the catalog, so that the two do not both make it
    both = [Worker(folder), Worker(folder)]
    assert [w.hear() for w in both] == [{"ready": True}] * 2
    yield both
    for worker in both:
        worker.stop()


@pytest.mark.parametrize("version", spread((4, 3, 2), every=3))  # a few rounds of the first meet in every way
def test_no_row_is_lost_doubled_or_brought_back_and_disjoint_work_never_conflicts(
    folder: Path, workers: list[Worker], version: int
):
    log = {"write.metadata.previous-versions-max": "100000"}  # otherwise old metadata files are nobody's
    table = neve.connect(folder).create_table(f"db.v{version}", DDL, format_version=version, properties=log)
    trial = Trial(table, workers, Random(f"{SEED}/{version}"))
    for spec in ({"add": ["region"]}, {"add": ["bucket(2, id)"]}, {"drop": ["bucket(2, id)"]}):
        trial.refill()
        table.evolve_partitions(**spec)
    for number, slot in enumerate(islice(slots(Random(f"{SEED}/{version}/slots")), ROUNDS), 1):
        try:
            trial.play(slot)
            if number % AUDIT_EVERY == 0 or number == ROUNDS:
                trial.audit()
        except BaseException as e:
            e.add_note(f"version {version}, round {number}, NEVE_SEED={SEED}")
            raise
    sys.stdout.write(f"version {version}, NEVE_SEED={SEED}: {dict(trial.counts)}\n")
    assert trial.counts["apart"] and trial.counts["lost a race"], (
        "the two have to be apart in some rounds and meet in others"
    )
    assert trial.counts["files rewritten"]
