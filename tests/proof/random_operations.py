"""Random sequences of all operations on a table, without Spark, compared with a plain-Python model.

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
from tests.proof.audit import HOUR, files_on_disk, lake_in, reachable_files
from tests.proof.audit import require as demand
from tests.proof.faults import Fault, run_forked
from tests.proof.statements_without_spark import NO_WAIT, StatementWriter, table_without_spark
from tests.support.expressions import Expression
from tests.support.random_histories import Life, lives
from tests.support.random_steps import AddColumn, Append, Delete, DropColumn, Merge, Promote, Rename, Step, Update
from tests.support.row_model import Ambiguous, Clause, Model, _both
from tests.support.spark_oracle import difference, plain

Row = dict[str, Any]
COLUMN_STEPS = (Rename, AddColumn, DropColumn, Promote)
ROW_STEPS = (Append, Update, Delete, Merge)  # a sequence can continue after these, whether they were applied or not
SIDE = "side"


@dataclass(frozen=True)
class Extra:
    """An operation other than a statement; the number selects its details."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind} ({self.number})"


EXTRAS = ("compact", "compact", "manifests", "dangling", "expire", "tag", "branch", "side", "side", "rollback")
INTERRUPTIONS = ("crash", "crash", "crash", "reopen", "orphans")


@dataclass(frozen=True)
class OperationSequence:
    """A table and the operations on it, in order."""

    life: Life
    steps: tuple[Step | Extra, ...]

    def __repr__(self) -> str:
        steps = "".join(f"\n  {number:2}. {step}" for number, step in enumerate(self.steps, 1))
        return f"\n  start: {self.life.start}{steps}\n"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


@st.composite
def sequences(draw: Any, version: int, length: int) -> OperationSequence:
    """A table of a format version and `length` steps, two thirds of them statements and schema changes."""
    life = draw(lives(version, length * 2 // 3))
    steps: list[Step | Extra] = list(life.steps)
    for _ in range(max(length - len(steps), 0)):
        extra = Extra(draw(st.sampled_from(EXTRAS + INTERRUPTIONS)), draw(st.integers(0, 40)))
        steps.insert(draw(st.integers(min(1, len(steps)), len(steps))), extra)
    return OperationSequence(life, tuple(steps[:length]))


@dataclass
class RandomRun:
    """A table and its model, step by step."""

    folder: Path
    sequence: OperationSequence
    past: dict[int, Model] = field(default_factory=dict)  # by snapshot
    side_model: Model | None = None  # of the side branch
    crashes_at: int | None = None  # the step of the next statement at which its process is killed
    killed: int = 0
    steps: int = 0

    def __post_init__(self) -> None:
        start = self.sequence.life.start
        lake_in(self.folder).create_table("db.t", start.ddl, start.terms, format_version=start.version)
        self.model = Model(start.columns)
        self.reopen(0)

    def run(self) -> None:
        """Take every step, and check the table after each and at the end."""
        try:
            for number, step in enumerate(self.sequence.steps, 1):
                try:
                    self.take(step)
                    self.check()
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
            for other in filter(None, (*self.past.values(), self.side_model)):
                step.foresee(other)
        if self.crashes_at is not None and isinstance(step, ROW_STEPS):
            self.take_and_kill(step, before)
        else:
            self.do(step)

    def do(self, step: Step) -> None:
        """Apply a step to the table, without Spark."""
        match step:
            case Update():
                change = {"new": lambda row: row | _assigned_values(step.assignments, row)}
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
        inserted: Callable[[Sequence[Row]], Sequence[Row]] = lambda matching: (),
        branch: str = "main",
    ) -> None:
        """Change rows. A condition that cannot be pushed down is evaluated here, row by row."""
        self.table.refresh()
        names = [f.name for f in self.table.schema.fields]
        hand = StatementWriter(self.table, Isolation.SERIALIZABLE, branch, names)
        text = where.sql if where is not None else None
        is_exact = text is None or parse(text, self.table.schema).is_exact
        chosen = new if where is None else lambda row: new(row) if where.of(row) is True else row
        prepared = hand.prepare_row_change(
            text if is_exact else None, chosen, inserted, command, self.mode(mode, command)
        )
        outcome = hand.land(prepared)
        if outcome is not None:
            committed(outcome)

    def mode(self, requested: str | None, command: RowCommand) -> str:
        metadata = self.table.context.metadata
        mode = requested or metadata.properties.get(f"write.{command}.mode", "copy-on-write")
        return mode if metadata.format_version > 1 else "copy-on-write"

    # -- other operations --------------------------------------------------------------------------------------------

    def compact(self, number: int) -> None:
        names = [f.name for f in self.table.refresh().schema.fields]
        hand = StatementWriter(self.table, names=names)
        if (outcome := hand.land(hand.prepare_compaction())) is not None:
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
        if self.head is not None and self.side_model is None:
            self.table.create_branch(SIDE)
            self.side_model = deepcopy(self.model)
        elif self.side_model is not None:
            self.table.drop_branch(SIDE)
            self.side_model = None

    def side_rows(self) -> Any:
        return self.table.scan(ref=SIDE).to_arrow(engine="arrow")

    def side(self, number: int) -> None:
        """Delete the rows with one value from the side branch."""
        if self.side_model is None or not self.side_model.lines:
            return
        name = self.side_model.names[0]
        value = repr(plain(self.side_model.lines[number % len(self.side_model.lines)].values[name]))

        def new(row: Row) -> Row | None:
            return None if repr(plain(row[name])) == value else row

        self.change(None, None, RowCommand.DELETE, new=new, branch=SIDE)
        self.side_model.lines = [line for line in self.side_model.lines if new(line.values) is not None]

    def rollback(self, number: int) -> None:
        """Roll back to an ancestor, if one is left."""
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
        self.table: Table = table_without_spark(lake.catalog, lake.table("db.t").context.iceberg, NO_WAIT)

    def orphans(self, number: int) -> None:
        soon = int(time.time() * 1000) + HOUR
        self.table.remove_orphan_files().older_than(soon).allow_young().dry_run(False).execute()
        demand(files_on_disk(self.folder) == reachable_files(self.table), "orphans removed, and no other file")

    def take_and_kill(self, step: Step, before: Model) -> None:
        """Take a step in a process that is killed during it; the rows of the table show whether it was applied."""
        at, self.crashes_at = self.crashes_at or 0, None
        ended = run_forked(lambda: (self.reopen(0), self.do(step)), Fault(at=at))
        if ended.error is not None:
            raise ended.error
        self.killed += ended.was_killed
        self.reopen(0)
        if ended.was_killed and difference(self.rows(), self.model.arrow()):
            self.model = before

    # -- checks ------------------------------------------------------------------------------------------------------

    @property
    def head(self) -> int | None:
        head = self.table.refresh().context.head()
        return None if head is None else head.snapshot_id

    def rows(self) -> Any:
        return self.table.scan().to_arrow(engine="arrow")

    def check(self) -> None:
        """Check that the table has the rows of the model, on both branches, and unique row ids."""
        demand(not (wrong := difference(self.rows(), self.model.arrow())), wrong)
        if self.side_model is not None:
            demand(not (wrong := difference(self.side_rows(), self.side_model.arrow())), f"side branch: {wrong}")
        if (head := self.head) is not None:
            self.past[head] = deepcopy(self.model)
        if self.table.context.metadata.format_version >= 3:
            found = self.table.scan(columns=["_row_id"]).to_arrow(engine="arrow")["_row_id"].to_pylist()
            ids = [i for i in found if i is not None]
            demand(len(set(ids)) == len(ids), "row ids used twice", sorted(ids))

    def end(self) -> None:
        found = self.table.verify()
        demand(found.is_sound, str(found))
        left = files_on_disk(self.folder) - reachable_files(self.table)
        demand(not left or self.killed > 0, "files left behind although no process was killed", left)
        self.orphans(0)
        self.check()


@dataclass
class Merging:
    """A MERGE evaluated row by row."""

    step: Merge
    model: Model

    def changed(self, row: Row) -> Row | None:
        partners = [s for s in self.step.rows if self.step.on.of(_both(row, s)) is True]
        kind = "matched" if partners else "not matched by source"
        joined = _both(row, partners[0] if partners else {})
        for clause in self.step.clauses:
            if clause.kind == kind and clause.applies(joined):
                return self._by(clause, row, partners[0] if partners else {}, joined)
        return row

    def _by(self, clause: Clause, row: Row, partner: Row, joined: Row) -> Row | None:
        if clause.is_delete:
            return None
        if clause.is_all:
            return row | {c.name: partner[c.name] for c in self.model.columns}
        return row | _assigned_values(clause.assignments or {}, joined)

    def inserted(self, matching: Sequence[Row]) -> list[Row]:
        on = self.step.on
        free = [s for s in self.step.rows if not any(on.of(_both(row, s)) is True for row in matching)]
        return [new for source in free for new in self.model._inserted(source, self.step.clauses)]


def _assigned_values(assignments: Any, row: Row) -> Row:
    return {name: new.of(row) for name, new in assignments.items()}
