"""Random histories of tables over the whole surface, without Spark, against a plain-Python model.

The steps are those of `tests.support.random_histories`: rows with values of every awkward kind, statements, changes of
columns, partitions, properties and version. Between them come compaction, manifest rewrites, expiry, branches and tags,
rollback, a process that is killed in the middle of the next step, and opening the lake again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from neve import Table
from neve.commit.isolation import Isolation, RowCommand
from neve.commit.outcome import require_committed as committed
from neve.predicate import parse
from tests.proof.audit import HOUR, lake_in, on_disk, reachable
from tests.proof.audit import require as demand
from tests.proof.faults import Fault, forked
from tests.proof.statements_without_spark import NO_WAIT, Hand, in_hand
from tests.support.expressions import Expression
from tests.support.random_histories import Life, lives
from tests.support.random_steps import AddColumn, Append, Delete, DropColumn, Merge, Promote, Rename, Step, Update
from tests.support.row_model import Ambiguous, Clause, Model, _both
from tests.support.spark_oracle import difference, plain

Row = dict[str, Any]
COLUMN_STEPS = (Rename, AddColumn, DropColumn, Promote)
ROW_STEPS = (Append, Update, Delete, Merge)  # what a life can go on after, done or not
SIDE = "side"


@dataclass(frozen=True)
class Extra:
    """Something that happens beside statements; a number decides what is left open."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind} ({self.number})"


EXTRAS = ("compact", "compact", "manifests", "dangling", "expire", "tag", "branch", "side", "side", "rollback")
ENDS = ("crash", "crash", "crash", "reopen", "orphans")


@dataclass(frozen=True)
class Sequence30:
    """A table and what happens to it, in order."""

    life: Life
    steps: tuple[Step | Extra, ...]

    def __repr__(self) -> str:
        steps = "".join(f"\n  {number:2}. {step}" for number, step in enumerate(self.steps, 1))
        return f"\n  start: {self.life.start}{steps}\n"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


@st.composite
def sequences(draw: Any, version: int, length: int) -> Sequence30:
    """A table of a version and so many steps, two thirds of them statements and changes of shape."""
    life = draw(lives(version, length * 2 // 3))
    steps: list[Step | Extra] = list(life.steps)
    for _ in range(max(length - len(steps), 0)):
        extra = Extra(draw(st.sampled_from(EXTRAS + ENDS)), draw(st.integers(0, 40)))
        steps.insert(draw(st.integers(min(1, len(steps)), len(steps))), extra)
    return Sequence30(life, tuple(steps[:length]))


@dataclass
class Played:
    """A table and its model, step by step."""

    folder: Path
    sequence: Sequence30
    past: dict[int, Model] = field(default_factory=dict)  # by snapshot
    beside: Model | None = None  # of the side branch
    crashes_at: int | None = None  # the step of the next statement at which its process is killed
    killed: int = 0
    steps: int = 0

    def __post_init__(self) -> None:
        start = self.sequence.life.start
        lake_in(self.folder).create_table("db.t", start.ddl, start.terms, format_version=start.version)
        self.model = Model(start.columns)
        self.reopen(0)

    def play(self) -> None:
        """Take every step, and look at the table after each and at the end."""
        try:
            for number, step in enumerate(self.sequence.steps, 1):
                try:
                    self.take(step)
                    self.look()
                except Exception as e:
                    raise AssertionError(f"Step {number}, {step}:\n{type(e).__name__}: {e}") from e
                self.steps += 1
            self.end()
        finally:
            shutil.rmtree(self.folder)

    def take(self, step: Step | Extra) -> None:
        if isinstance(step, Extra):
            getattr(self, step.kind)(step.number)
            return
        before = deepcopy(self.model)
        try:
            step.foresee(self.model)
        except Ambiguous:
            self.model = before
            return
        if isinstance(step, COLUMN_STEPS):
            for other in filter(None, (*self.past.values(), self.beside)):
                step.foresee(other)
        if self.crashes_at is not None and isinstance(step, ROW_STEPS):
            self.take_and_die(step, before)
        else:
            self.do(step)

    def do(self, step: Step) -> None:
        """A step done to the table, without Spark."""
        match step:
            case Update():
                change = {"new": lambda row: row | _assigned(step.assignments, row)}
                self.change(step.where, step.how.mode, RowCommand.UPDATE, **change)
            case Delete():
                self.change(step.where, step.how.mode, RowCommand.DELETE, new=lambda row: None)
            case Merge():
                merge = Merging(step, self.model)
                self.change(None, step.how.mode, RowCommand.MERGE, new=merge.changed, inserted=merge.inserted)
            case _:
                step.take(self.table)

    def change(
        self,
        where: Expression | None,
        mode: str | None,
        command: RowCommand,
        *,
        new: Callable[[Row], Row | None],
        inserted: Callable[[Sequence[Row]], Sequence[Row]] = lambda met: (),
        branch: str = "main",
    ) -> None:
        """Rows changed; a condition that cannot be decided for whole files is decided here, row by row."""
        self.table.refresh()
        names = [f.name for f in self.table.schema.fields]
        hand = Hand(self.table, Isolation.SERIALIZABLE, branch, names)
        text = where.sql if where is not None else None
        is_exact = text is None or parse(text, self.table.schema).is_exact
        chosen = new if where is None else lambda row: new(row) if where.of(row) is True else row
        made = hand.changed(text if is_exact else None, chosen, inserted, command, self.mode(mode, command))
        outcome = hand.land(made)
        if outcome is not None:
            committed(outcome)

    def mode(self, asked: str | None, command: RowCommand) -> str:
        metadata = self.table.context.metadata
        said = asked or metadata.properties.get(f"write.{command}.mode", "copy-on-write")
        return said if metadata.format_version > 1 else "copy-on-write"

    # -- more than statements ----------------------------------------------------------------------------------------

    def compact(self, number: int) -> None:
        names = [f.name for f in self.table.refresh().schema.fields]
        hand = Hand(self.table, names=names)
        if (outcome := hand.land(hand.compacted())) is not None:
            committed(outcome)

    def manifests(self, number: int) -> None:
        self.table.rewrite_manifests().execute()

    def dangling(self, number: int) -> None:
        self.table.remove_dangling_deletes().execute()

    def expire(self, number: int) -> None:
        soon = int(time.time() * 1000) + HOUR
        expiry = self.table.expire_snapshots().older_than(soon).retain_last(number % 3 + 1)
        expiry.clean_expired_metadata(number % 2 == 1).execute()

    def tag(self, number: int) -> None:
        if self.head is not None and f"tag{number}" not in self.table.context.metadata.refs:
            self.table.create_tag(f"tag{number}")

    def branch(self, number: int) -> None:
        if self.head is not None and self.beside is None:
            self.table.create_branch(SIDE)
            self.beside = deepcopy(self.model)
        elif self.beside is not None:
            self.table.drop_branch(SIDE)
            self.beside = None

    def side_rows(self) -> Any:
        return self.table.scan(ref=SIDE).to_arrow(engine="arrow")

    def side(self, number: int) -> None:
        """Rows of one value are deleted from the side branch."""
        if self.beside is None or not self.beside.lines:
            return
        name = self.beside.names[0]
        value = repr(plain(self.beside.lines[number % len(self.beside.lines)].values[name]))

        def new(row: Row) -> Row | None:
            return None if repr(plain(row[name])) == value else row

        self.change(None, None, RowCommand.DELETE, new=new, branch=SIDE)
        self.beside.lines = [line for line in self.beside.lines if new(line.values) is not None]

    def rollback(self, number: int) -> None:
        """Back to an ancestor, if one is left."""
        metadata = self.table.refresh().context.metadata
        at, ancestors = metadata.current_snapshot(), []
        while at is not None:
            ancestors.append(at.snapshot_id)
            at = None if at.parent_snapshot_id is None else metadata.snapshot_by_id(at.parent_snapshot_id)
        if known := [i for i in ancestors if i in self.past]:
            chosen = known[number % len(known)]
            self.table.rollback(chosen)
            self.model = deepcopy(self.past[chosen])

    def crash(self, number: int) -> None:
        self.crashes_at = number + 1

    def reopen(self, number: int) -> None:
        lake = lake_in(self.folder)
        self.table: Table = in_hand(lake.catalog, lake.table("db.t").context.iceberg, NO_WAIT)

    def orphans(self, number: int) -> None:
        soon = int(time.time() * 1000) + HOUR
        self.table.remove_orphan_files().older_than(soon).allow_young().dry_run(False).execute()
        demand(on_disk(self.folder) == reachable(self.table), "orphans removed, and no other file")

    def take_and_die(self, step: Step, before: Model) -> None:
        """A step in a process that is killed on the way; the table tells whether it was done."""
        at, self.crashes_at = self.crashes_at or 0, None
        ended = forked(lambda: (self.reopen(0), self.do(step)), Fault(at=at))
        if ended.error is not None:
            raise ended.error
        self.killed += ended.was_killed
        self.reopen(0)
        if ended.was_killed and difference(self.rows(), self.model.arrow()):
            self.model = before

    # -- looking -----------------------------------------------------------------------------------------------------

    @property
    def head(self) -> int | None:
        head = self.table.refresh().context.head()
        return None if head is None else head.snapshot_id

    def rows(self) -> Any:
        return self.table.scan().to_arrow(engine="arrow")

    def look(self) -> None:
        """The table has the rows of the model, on both branches, and row ids that differ."""
        demand(not (wrong := difference(self.rows(), self.model.arrow())), wrong)
        if self.beside is not None:
            demand(not (wrong := difference(self.side_rows(), self.beside.arrow())), f"side branch: {wrong}")
        if (head := self.head) is not None:
            self.past[head] = deepcopy(self.model)
        if self.table.context.metadata.format_version >= 3:
            found = self.table.scan(columns=["_row_id"]).to_arrow(engine="arrow")["_row_id"].to_pylist()
            ids = [i for i in found if i is not None]
            demand(len(set(ids)) == len(ids), "row ids given twice", sorted(ids))

    def end(self) -> None:
        found = self.table.verify()
        demand(found.is_sound, str(found))
        left = on_disk(self.folder) - reachable(self.table)
        demand(not left or self.killed > 0, "files left behind though nobody was killed", left)
        self.orphans(0)
        self.look()


@dataclass
class Merging:
    """A MERGE decided row by row."""

    step: Merge
    model: Model

    def changed(self, row: Row) -> Row | None:
        partners = [s for s in self.step.rows if self.step.on.of(_both(row, s)) is True]
        kind = "matched" if partners else "not matched by source"
        seen = _both(row, partners[0] if partners else {})
        for clause in self.step.clauses:
            if clause.kind == kind and clause.applies(seen):
                return self._by(clause, row, partners[0] if partners else {}, seen)
        return row

    def _by(self, clause: Clause, row: Row, partner: Row, seen: Row) -> Row | None:
        if clause.is_delete:
            return None
        if clause.is_all:
            return row | {c.name: partner[c.name] for c in self.model.columns}
        return row | _assigned(clause.assignments or {}, seen)

    def inserted(self, met: Sequence[Row]) -> list[Row]:
        on = self.step.on
        free = [s for s in self.step.rows if not any(on.of(_both(row, s)) is True for row in met)]
        return [new for source in free for new in self.model._inserted(source, self.step.clauses)]


def _assigned(assignments: Any, row: Row) -> Row:
    return {name: new.of(row) for name, new in assignments.items()}
