"""From a verb that was built to its end: plan, dry run or question, work with progress, answer.

A change of metadata alone, as something that can be shown before it is done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import typer

from neve.cli.command import Command
from neve.cli.console import ExitCode, facts_of
from neve.cli.progress import show_progress
from neve.display.format import plural

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class CommandPlan:
    """What a verb wants to do: a builder with `plan` and `execute`, and what to say about both."""

    activity: str  # "Compacting db.events"
    plan: Callable[[], Any]
    execute: Callable[[], Any]
    facts: Callable[[Any], Facts]  # the plan for programs
    is_empty: Callable[[Any], bool]  # whether a plan does nothing
    did_nothing: Callable[[Any], bool]  # whether a result says that nothing was done
    question: str = ""  # asked before something is lost
    explain: Callable[[Any], str] = lambda plan: plan.explain()

    @classmethod
    def of(cls, activity: str, builder: Any, **words: Any) -> CommandPlan:
        """The deed of a builder."""
        return cls(activity, builder.plan, builder.execute, **words)


def run_command(work: Command, command_plan: CommandPlan) -> Any:
    """Do it, or say what would be done; the result is told and given back."""
    if work.dry_run or command_plan.question:
        with show_progress(work.screen, command_plan.activity):
            plan = command_plan.plan()
        is_empty = command_plan.is_empty(plan)
        if work.dry_run:
            print_plan(work, command_plan.facts(plan), command_plan.explain(plan), is_empty)
            raise typer.Exit(ExitCode.NOTHING_TO_DO if is_empty else ExitCode.DONE)
        if not is_empty:
            work.screen.print_note(command_plan.explain(plan))
            confirm_or_exit(work, command_plan.question)
    with show_progress(work.screen, command_plan.activity):
        result = command_plan.execute()
    if command_plan.did_nothing(result):
        told = facts_of(result)
        raise work.exit_with_nothing_to_do(told.pop("summary", "the table is as it should be"), **told)
    _print_result(work, result)
    return result


def confirm_or_exit(work: Command, question: str) -> None:
    """Ask on a terminal, unless told not to; a no ends the command."""
    if work.yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    if not typer.confirm(question, err=True):
        work.screen.print_note("Nothing was changed.")
        raise typer.Exit(ExitCode.FAILED)


def print_plan(work: Command, facts: Facts, explanation: str, is_empty: bool = False) -> None:
    """Tell what a dry run found out."""
    if work.as_json:
        work.print_json("nothing-to-do" if is_empty else "planned", plan=facts, explain=explanation)
        return
    work.screen.print_text(explanation)
    work.screen.print_note("Dry run: nothing was changed.")


def exit_if_groups_failed(work: Command, *results: Any) -> None:
    """End the command as failed when groups of a compaction did, though others have landed."""
    failed = [group for result in results for group in facts_of(result).get("failed_groups") or ()]
    if failed:
        work.screen.print_note(f"{plural(len(failed), 'group')} failed, the first: {failed[0].failure}", "red")
        raise typer.Exit(ExitCode.FAILED)


def _print_result(work: Command, result: Any) -> None:
    if work.as_json:
        work.print_json("done", **facts_of(result))
    else:
        work.screen.print_result(result)


@dataclass(frozen=True)
class MetadataChange:
    """What a table is before and after: the same keys in both."""

    title: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def changed_keys(self) -> list[str]:
        """What is not the same."""
        return [key for key in self.after if self.before[key] != self.after[key]]

    def explain(self) -> str:
        """The change in words."""
        lines = [
            f"  {key.replace('_', ' '):<15} {_format_value(self.before[key])} → {_format_value(self.after[key])}"
            for key in self.changed_keys
        ]
        return "\n".join([self.title, *(lines or ["  nothing changes"])])

    def command_plan(self, doing: str, land: Callable[[], object], question: str = "") -> CommandPlan:
        """The change as a verb; it is landed by the function given."""

        def execute() -> dict[str, Any]:
            if self.changed_keys:
                land()
            facts = {"before": self.before, "after": self.after, "changed": self.changed_keys}
            return {**facts, "summary": "only metadata changed" if self.changed_keys else "the table is so already"}

        return CommandPlan(
            doing,
            lambda: self,
            execute,
            facts=lambda plan: {"before": plan.before, "after": plan.after, "changed": plan.changed_keys},
            is_empty=lambda plan: not plan.changed_keys,
            did_nothing=lambda told: not told["changed"],
            question=question,
        )


def _format_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={v}" for k, v in value.items()) or "none"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)
