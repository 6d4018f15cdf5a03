"""From a verb that was built to its end: plan, dry run or question, work with progress, answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import typer

from neve.cli.codes import Code
from neve.cli.progress import watched
from neve.cli.screen import facts_of
from neve.cli.work import Work
from neve.display.format import several

__all__ = ["Deed", "carry_out", "confirm", "tell_failures", "tell_plan"]

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Deed:
    """What a verb wants to do: a builder with `plan` and `execute`, and what to say about both."""

    doing: str  # "Compacting db.events"
    plan: Callable[[], Any]
    execute: Callable[[], Any]
    facts: Callable[[Any], Facts]  # the plan for programs
    is_empty: Callable[[Any], bool]  # whether a plan does nothing
    did_nothing: Callable[[Any], bool]  # whether a result says that nothing was done
    question: str = ""  # asked before something is lost
    explain: Callable[[Any], str] = lambda plan: plan.explain()

    @classmethod
    def of(cls, doing: str, builder: Any, **words: Any) -> Deed:
        """The deed of a builder."""
        return cls(doing, builder.plan, builder.execute, **words)


def carry_out(work: Work, deed: Deed) -> Any:
    """Do it, or say what would be done; the result is told and given back."""
    if work.dry_run or deed.question:
        with watched(work.screen, deed.doing):
            plan = deed.plan()
        is_empty = deed.is_empty(plan)
        if work.dry_run:
            tell_plan(work, deed.facts(plan), deed.explain(plan), is_empty)
            raise typer.Exit(Code.NOTHING_TO_DO if is_empty else Code.DONE)
        if not is_empty:
            work.screen.aside(deed.explain(plan))
            confirm(work, deed.question)
    with watched(work.screen, deed.doing):
        result = deed.execute()
    if deed.did_nothing(result):
        told = facts_of(result)
        raise work.nothing_to_do(told.pop("summary", "the table is as it should be"), **told)
    _tell_result(work, result)
    return result


def confirm(work: Work, question: str) -> None:
    """Ask on a terminal, unless told not to; a no ends the command."""
    if work.yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    if not typer.confirm(question, err=True):
        work.screen.aside("Nothing was changed.")
        raise typer.Exit(Code.FAILED)


def tell_plan(work: Work, facts: Facts, explained: str, is_empty: bool = False) -> None:
    """Tell what a dry run found out."""
    if work.as_json:
        work.document("nothing-to-do" if is_empty else "planned", plan=facts, explain=explained)
        return
    work.screen.text(explained)
    work.screen.aside("Dry run: nothing was changed.")


def tell_failures(work: Work, *results: Any) -> None:
    """End the command as failed when groups of a compaction did, though others have landed."""
    failed = [group for result in results for group in facts_of(result).get("failed_groups") or ()]
    if failed:
        work.screen.aside(f"{several(len(failed), 'group')} failed, the first: {failed[0].failure}", "red")
        raise typer.Exit(Code.FAILED)


def _tell_result(work: Work, result: Any) -> None:
    if work.as_json:
        work.document("done", **facts_of(result))
    else:
        work.screen.result(result)
