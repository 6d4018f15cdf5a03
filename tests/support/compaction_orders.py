"""What two processes are told to do to one table in a round: a compaction, and something beside it.

Orders are drawn by chance from the table as it is, and drawn again until they are apart, or have files in common, as
the round wants it. Which files that is, is what the compaction plans and where the rows lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from neve import Table
from neve.commit.environment import Phase
from tests.support.compaction_process import Order, compaction
from tests.support.compaction_tables import PARTIAL
from tests.support.tables import Row, files_of

REGIONS = ("asia", "eu", "us")
SPECS = (["region"], ["region", "bucket(2, id)"], ["bucket(2, id)"], ["truncate(40, id)"], [])
STATEMENTS = ("delete", "update", "merge")
MEETING = (*STATEMENTS, "compact")  # what can get in the way of a compaction
KINDS = (*MEETING, "append", "evolve")
TOGETHER, COMPACTION_FIRST, OTHER_FIRST = HALTED = ("together", "compaction first", "other first")
PHASES = (Phase.REFRESH, Phase.CHECK, Phase.SWAP)
LEFT_ALONE = ("not-matching-partition", "not-matching-statistics")
DRAWS = 30


@dataclass(frozen=True)
class Slot:
    """What kind of round is due."""

    kind: str  # what the other process does
    is_apart: bool  # its work and the compaction are to have no file in common
    timing: str | None  # who goes on first when both have stopped before a commit; None: they do not stop


def slots(chance: Random) -> Iterator[Slot]:
    """Every kind once in some order, then again; two of the four that can meet a compaction are to be apart from it."""
    while True:
        meeting = chance.sample(MEETING, 2)
        for kind in chance.sample(KINDS, len(KINDS)):
            timing = chance.choice(HALTED) if chance.random() < 0.75 else None
            yield Slot(kind, kind not in meeting, timing)


@dataclass(frozen=True)
class Round:
    """The orders of two processes, and what each said in the end."""

    slot: Slot
    orders: tuple[Order, Order]  # the compaction, and the other
    is_apart: bool  # no file that the one may touch is touched by the other
    must_clash: bool  # both touch a file, and both have planned before either commits
    answers: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        how = f"{'apart' if self.is_apart else 'not apart'}, {self.slot.timing or 'not stopped'}"
        said = [*self.answers, "no answer", "no answer"]
        return "\n".join([how, *(f"{order}\n  -> {answer}" for order, answer in zip(self.orders, said, strict=False))])


@dataclass
class Draw:
    """Orders for a table as it is before a round."""

    table: Table
    rows: dict[int, Row]  # as the model has them
    chance: Random
    new_rows: Callable[[int], list[Row]]

    def __post_init__(self) -> None:
        found = self.table.refresh().scan(columns=["id", "_file"]).to_arrow(engine="arrow")
        self.file_of = dict(sorted(zip(found["id"].to_pylist(), found["_file"].to_pylist(), strict=True)))
        files = files_of(self.table)
        by_file = self.table.context.properties.delete_granularity == "file"
        paths = files["file_path"].to_pylist()
        self.reach_of = {path: path if by_file else files.partition_key(i) for i, path in enumerate(paths)}

    def round(self, slot: Slot) -> Round:
        """A round of a kind; where the table does not allow what is wanted, it is what was drawn last."""
        for _ in range(DRAWS):
            orders = self.compact(), getattr(self, slot.kind)()
            taken = [self.touched(order) for order in orders]
            meets, may_meet = (not a.isdisjoint(b) for a, b in zip(*taken, strict=True))
            if (slot.is_apart and not may_meet) or (not slot.is_apart and meets):
                break
        halts = [self.halt(slot, order) for order in orders]
        must = meets and all(halt is not None and halt[1] == 1 for halt in halts) and _is_noticed(slot)
        for order, halt in zip(orders, halts, strict=True):
            order |= {"table": self.table.name, "halt": halt}
        return Round(slot, orders, not may_meet, must)

    def halt(self, slot: Slot, order: Order) -> tuple[str, int] | None:
        """The phase of the commit, and which of its commits, a process stops at."""
        late = PARTIAL.items() <= order.get("options", {}).items() and self.chance.random() < 0.3
        return None if slot.timing is None else (self.chance.choice(PHASES).value, 2 if late else 1)

    # -- which files -------------------------------------------------------------------------------------------------

    def touched(self, order: Order) -> tuple[set[str], set[Any]]:
        """The files an order replaces or gives deletes when it runs alone, and what it may touch at worst.

        That is any file the filter of a compaction lets through: others may be in its groups when it plans later.
        Deletes that name no single file may be of any file of their partitions.
        """
        files = {self.file_of[i] for i in order.get("ids", ())}
        at_worst = files
        if order["do"] == "compact":
            plan = compaction(self.table, order).plan()
            files = {path for group in plan.groups for path in group.files["file_path"].to_pylist()}
            reasons = plan.reasons().select(["file_path", "reason"]).to_pylist()
            at_worst = files | {row["file_path"] for row in reasons if row["reason"] not in LEFT_ALONE}
        return files, {self.reach_of[path] for path in at_worst}

    # -- orders ------------------------------------------------------------------------------------------------------

    def compact(self) -> Order:
        chance = self.chance
        options = dict(chance.choice([{"rewrite-all": "true"}, {"min-input-files": 2}]))
        options |= {**PARTIAL, "partial-progress.max-commits": 3} if chance.random() < 0.5 else {}
        options |= {"use-starting-sequence-number": "false"} if chance.random() < 0.2 else {}
        options |= {"remove-dangling-deletes": "true"} if chance.random() < 0.2 else {}
        return {
            "do": "compact",
            "where": self.where(),
            "spec": chance.choice(["current", "keep", "upgrade", chance.choice(self.spec_ids())]),
            "sort": chance.choice([[], [], [], ["id"], ["region", "n DESC"]]),
            "options": options,
            "verifies": chance.random() < 0.3,
        }

    def where(self) -> str | None:
        region, bound = self.chance.choice(REGIONS), self.chance.choice(sorted(self.rows))
        one = f"region = '{region}'"
        return self.chance.choice([None, one, one, f"region <> '{region}'", f"id < {bound}", f"{one} AND id > {bound}"])

    def spec_ids(self) -> list[int]:
        return sorted(self.table.context.metadata.specs())

    def delete(self) -> Order:
        return self.statement("delete", **self.condition())

    def update(self) -> Order:
        moved = {"region": f"'{self.chance.choice(REGIONS)}'"} if self.chance.random() < 0.4 else {}
        return self.statement("update", set={"n": "n + 1", **moved}, **self.condition())

    def merge(self) -> Order:
        changed = [self.rows[i] | {"n": self.rows[i]["n"] + 100} for i in self.some_ids()]
        return self.statement("merge", rows=[*changed, *self.new_rows(2)], ids=[row["id"] for row in changed])

    def statement(self, verb: str, **words: Any) -> Order:
        return {
            "do": verb,
            **words,
            "mode": self.chance.choice(["merge-on-read", "copy-on-write"]),
            "isolation": self.chance.choice(["serializable", "snapshot"]),
            "reruns": self.chance.choice([0, 3]),
        }

    def condition(self) -> dict[str, Any]:
        """A condition with the ids of the rows it is true for: a whole region now and then."""
        if self.chance.random() < 0.15:
            region = self.chance.choice(REGIONS)
            return {"where": f"region = '{region}'", "ids": [i for i, r in self.rows.items() if r["region"] == region]}
        ids = self.some_ids()
        return {"where": f"id IN ({', '.join(map(str, ids))})", "ids": ids}

    def some_ids(self) -> list[int]:
        """Some rows of one or two files."""
        there = list(dict.fromkeys(self.file_of.values()))
        files = self.chance.sample(there, min(self.chance.choice([1, 1, 2]), len(there)))
        found = [i for i, path in self.file_of.items() if path in files]
        return sorted(self.chance.sample(found, self.chance.randint(1, min(4, len(found)))))

    def append(self) -> Order:
        return {"do": "append", "rows": self.new_rows(6)}

    def evolve(self) -> Order:
        schema, spec = self.table.schema, self.table.context.metadata.spec()
        now = {_term(schema.find_column_name(f.source_id), str(f.transform)) for f in spec.fields}
        new = self.chance.choice([terms for terms in SPECS if set(terms) != now])
        return {"do": "evolve", "add": [t for t in new if t not in now], "drop": sorted(now - set(new))}


def _term(column: str, transform: str) -> str:
    """A partition field in words, as `bucket(2, id)` for `bucket[2]` of `id`."""
    name, _, argument = transform.rstrip("]").partition("[")
    return f"{name}({argument}, {column})" if argument else column


def _is_noticed(slot: Slot) -> bool:
    """Whether of two that change the same file one must find out.

    A DELETE of whole files is decided anew on what is there when it commits.
    """
    return slot.kind != "delete" or slot.timing == OTHER_FIRST
