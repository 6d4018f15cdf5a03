"""One skeleton for every verb: plan, write, commit, and start again after a conflict.

A verb is a frozen value that holds its options. `plan()` and `explain()` show what it would do; `execute()` does it.
A verb file implements three methods:

- `_plan` decides what to do on one state of the table. It changes nothing.
- `_write` writes the files and returns what is to be committed.
- `_result` turns the commit into the value that the caller gets; a verb that makes no snapshot does without it.

`execute()` runs them in this order. When a concurrent writer causes a conflict, it refreshes the table and starts with
a new plan, as often as the table property `neve.commit.reruns` allows.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from neve.commit.actions import Action
from neve.commit.outcome import Committed, Outcome, Rejected, require_committed
from neve.commit.summary import refuse_reserved_properties
from neve.ops.context import TableContext
from neve.ops.destination import Destination, destination_of
from neve.ops.events import Step, emit
from neve.run.spark.session import spark_itself

PlanT = TypeVar("PlanT")
ResultT = TypeVar("ResultT")

NOTHING_TO_COMMIT = Committed(None, "", 0)


@dataclass
class Execution:
    """One execution of a verb: how long its phases took, how often it was planned again, and what was committed."""

    seconds: dict[str, float] = field(default_factory=dict)  # by phase, over all reruns
    reruns: int = 0
    has_changed_schema: bool = False  # a schema change of this execution has landed, even if the rows do not
    committed: Committed = NOTHING_TO_COMMIT
    started: float = field(default_factory=time.monotonic)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Report a phase to listeners and measure it."""
        emit(Step(name))
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0) + time.perf_counter() - started, 3)

    @property
    def total_seconds(self) -> float:
        """The time since the execution began."""
        return round(time.monotonic() - self.started, 3)


@dataclass(frozen=True, kw_only=True)
class PendingCommit:
    """What a verb has written: the action that commits it, and the files that belong to it."""

    action: Action | None = None  # None: there is nothing to commit
    written_files: Sequence[str] = ()  # deleted again when it is proven that nothing landed


@dataclass(frozen=True)
class Verb(ABC, Generic[PlanT, ResultT]):
    """An operation on a table: built up by method calls, then planned, explained or executed."""

    context: TableContext

    title: ClassVar[str]  # what errors call it: "The <title> did not land"

    @spark_itself()
    def plan(self) -> PlanT:
        """Plan the operation on the newest state of the table; nothing is changed."""
        self._check()
        with self._open_plan(self.context.refreshed()) as plan:
            return plan

    def explain(self) -> str:
        """Describe the plan in words."""
        return self.plan().explain()  # type: ignore[attr-defined]

    @spark_itself()
    def execute(self) -> ResultT:
        """Run the operation and commit it."""
        self._check()
        context, execution = self._start(), Execution()
        while True:
            emit(Step("plan"))
            with self._open_plan(context) as plan:
                written = self._write(context, plan, execution)
                outcome = self._commit(context, plan, written, execution)
                if not self._can_rerun(context, outcome, execution):
                    execution.committed = self._require(outcome, execution)
                    return self._result(context, plan, written, execution)
            context = context.refreshed()
            execution.reruns += 1

    # -- what a verb implements --------------------------------------------------------------------------------------

    @abstractmethod
    def _plan(self, context: TableContext) -> Any:
        """Decide what to do on one state of the table.

        A plan that needs something held open until the commit, such as temporary views, is a context manager.
        """

    @abstractmethod
    def _write(self, context: TableContext, plan: Any, execution: Execution) -> Any:
        """Do the work of a plan; returns a `PendingCommit`, or the result of a verb that makes no snapshot."""

    def _result(self, context: TableContext, plan: Any, written: Any, execution: Execution) -> ResultT:
        """Describe what was done; `execution.committed` is the commit, if there is one."""
        return cast(ResultT, written)

    # -- what a verb may change --------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Reject options that are wrong in themselves, before the table is read."""

    def _start(self) -> TableContext:
        """Return the state of the table on which the first plan is made."""
        return self.context.refreshed()

    def _max_reruns(self, context: TableContext) -> int:
        return context.properties.reruns

    def _commit(self, context: TableContext, plan: Any, written: Any, execution: Execution) -> Outcome:
        """Commit what was written; a verb that makes no snapshot has nothing to commit."""
        return NOTHING_TO_COMMIT

    def _require(self, outcome: Outcome, execution: Execution) -> Committed:
        """Return the commit, or raise the error that says why there is none."""
        return require_committed(outcome, self.title)

    # -- the loop ----------------------------------------------------------------------------------------------------

    def _open_plan(self, context: TableContext) -> AbstractContextManager[Any]:
        plan = self._plan(context)
        return plan if isinstance(plan, AbstractContextManager) else nullcontext(plan)

    def _can_rerun(self, context: TableContext, outcome: Outcome, execution: Execution) -> bool:
        """True after a conflict that a new plan may resolve; wrong input stays wrong on any state of the table."""
        if not isinstance(outcome, Rejected) or execution.reruns >= self._max_reruns(context):
            return False
        return not all(conflict.rule.is_about_input for conflict in outcome.conflicts)


@dataclass(frozen=True)
class SnapshotVerb(Verb[PlanT, ResultT]):
    """A verb that commits a snapshot to a branch."""

    _: KW_ONLY  # so that the options of each verb come first
    target_branch: str = "main"
    properties: Mapping[str, str] = field(default_factory=dict)

    def branch(self, name: str) -> Self:
        """Read and change a branch instead of main."""
        return replace(self, target_branch=name)

    def snapshot_property(self, name: str, value: str) -> Self:
        """Add a property to the summary of the snapshot."""
        refuse_reserved_properties([name])
        return replace(self, properties={**self.properties, name: value})

    def _destination(self, context: TableContext) -> Destination:
        """Return where the snapshot goes; maintenance takes no notice of what the session sets for writes of rows."""
        return Destination(self.target_branch)

    def _commit(self, context: TableContext, plan: Any, written: Any, execution: Execution) -> Outcome:
        if written.action is None:
            return NOTHING_TO_COMMIT
        with execution.phase("commit"):
            return self._publish(context, plan, written, execution)

    def _publish(self, context: TableContext, plan: Any, written: PendingCommit, execution: Execution) -> Outcome:
        return context.commit(
            cast(Action, written.action),
            **asdict(self._destination(context)),
            properties=self.properties,
            written_files=written.written_files,
        )


@dataclass(frozen=True)
class StageableVerb(SnapshotVerb[PlanT, ResultT]):
    """A verb that writes rows. Its snapshot may be staged: it is in the table, but on no branch until published."""

    _: KW_ONLY
    wap_id: str | None = None

    def stage(self, wap_id: str) -> Self:
        """Stage the change under an id instead of changing main; `publish_changes(id)` publishes it."""
        return replace(self, wap_id=wap_id)

    def _destination(self, context: TableContext) -> Destination:
        return destination_of(context, self.target_branch, self.wap_id)
