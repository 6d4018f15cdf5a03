"""From a verb that was built to its end: plan, dry run or question, work with progress, answer.

A change of metadata alone, as something that can be shown before it is done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import typer

from neve.cli.command import Work
from neve.cli.console import Code, facts_of
from neve.cli.progress import watched
from neve.display.format import several

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


@dataclass(frozen=True)
class MetadataChange:
    """What a table is before and after: the same keys in both."""

    title: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def changed(self) -> list[str]:
        """What is not the same."""
        return [key for key in self.after if self.before[key] != self.after[key]]

    def explain(self) -> str:
        """The change in words."""
        lines = [
            f"  {key.replace('_', ' '):<15} {_said(self.before[key])} → {_said(self.after[key])}"
            for key in self.changed
        ]
        return "\n".join([self.title, *(lines or ["  nothing changes"])])

    def deed(self, doing: str, land: Callable[[], object], question: str = "") -> Deed:
        """The change as a verb; it is landed by the function given."""

        def execute() -> dict[str, Any]:
            if self.changed:
                land()
            facts = {"before": self.before, "after": self.after, "changed": self.changed}
            return {**facts, "summary": "only metadata changed" if self.changed else "the table is so already"}

        return Deed(
            doing,
            lambda: self,
            execute,
            facts=lambda plan: {"before": plan.before, "after": plan.after, "changed": plan.changed},
            is_empty=lambda plan: not plan.changed,
            did_nothing=lambda told: not told["changed"],
            question=question,
        )


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={v}" for k, v in value.items()) or "none"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)
