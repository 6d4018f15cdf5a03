"""Plan, commit, and plan again when another writer got in the way: for verbs whose plans cost little."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from neve.commit.outcome import Committed, Outcome, Rejected, require
from neve.ops.context import TableContext
from neve.ops.events import Step, tell

__all__ = ["Landed", "land_anew"]

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Landed(Generic[P]):
    """The plan that landed, how often it was made anew before, and the commit; none when there was nothing to do."""

    plan: P
    committed: Committed | None = None
    reruns: int = 0


def land_anew(
    context: TableContext,
    plan: Callable[[TableContext], P],
    act: Callable[[TableContext, P], Outcome | None],
    doing: str,
) -> Landed[P]:
    """Make a plan and commit it; after a conflict once more on the new state, as often as the table's property says.

    `act` returns nothing when there is nothing to do.
    """
    reruns = 0
    while True:
        tell(Step("plan"))
        made = plan(context)
        tell(Step(doing))
        outcome = act(context, made)
        if outcome is None:
            return Landed(made, reruns=reruns)
        if not isinstance(outcome, Rejected) or reruns >= context.properties.reruns or _is_hopeless(outcome):
            return Landed(made, require(outcome, doing), reruns)
        context, reruns = context.refreshed(), reruns + 1


def _is_hopeless(rejected: Rejected) -> bool:
    return all(conflict.rule.is_about_input for conflict in rejected.conflicts)
