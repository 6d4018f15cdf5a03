"""Run a command: plan, confirm or dry-run, execute with progress, print the result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
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
    """What a command does: how to plan and execute it, and how to describe both."""

    activity: str  # "Compacting db.events"
    plan: Callable[[], Any]
    execute: Callable[[], Any]
    facts: Callable[[Any], Facts]  # the plan as JSON
    is_empty: Callable[[Any], bool] = lambda plan: plan.is_empty
    did_nothing: Callable[[Any], bool] = lambda result: result.snapshot_id is None
    question: str = ""  # asked before something is lost

    @classmethod
    def of(cls, activity: str, builder: Any, **details: Any) -> CommandPlan:
        """Return the plan of a builder with the methods `plan` and `execute`."""
        return cls(activity, builder.plan, builder.execute, **details)


def with_options(builder: Any, **options: Any) -> Any:
    """Call the builder's method of each option that was given.

    True calls the method without arguments, a list holds all its arguments, a dictionary makes one call per item.
    """
    for method, value in options.items():
        calls: Iterable[Iterable[Any]]
        match value:
            case None | False:
                calls = []
            case True:
                calls = [()]
            case dict():
                calls = value.items()
            case _:
                calls = [value if isinstance(value, list) else [value]]
        for arguments in calls:
            builder = getattr(builder, method)(*arguments)
    return builder


def run_command(command: Command, command_plan: CommandPlan) -> Any:
    """Execute a plan and return its result; a dry run prints the plan and exits."""
    if command.dry_run or command_plan.question:
        with show_progress(command.screen, command_plan.activity):
            plan = command_plan.plan()
        is_empty = command_plan.is_empty(plan)
        if command.dry_run:
            print_plan(command, command_plan.facts(plan), plan.explain(), is_empty)
            raise typer.Exit(ExitCode.NOTHING_TO_DO if is_empty else ExitCode.DONE)
        if not is_empty:
            command.screen.print_note(plan.explain())
            confirm_or_exit(command, command_plan.question)
    with show_progress(command.screen, command_plan.activity):
        result = command_plan.execute()
    if command_plan.did_nothing(result):
        facts = facts_of(result)
        why = facts.pop("summary", "the table is as it should be")
        if command.as_json:
            command.print_json("nothing-to-do", summary=why, **facts)
        else:
            command.screen.print_text(f"Nothing to do: {why}.")
        raise typer.Exit(ExitCode.NOTHING_TO_DO)
    print_result(command, result)
    return result


def confirm_or_exit(command: Command, question: str) -> None:
    """Ask on a terminal, unless `--yes` is given; the answer no ends the command."""
    if command.yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    if not typer.confirm(question, err=True):
        command.screen.print_note("Nothing was changed.")
        raise typer.Exit(ExitCode.FAILED)


def print_plan(command: Command, facts: Facts, explanation: str, is_empty: bool = False) -> None:
    """Print the plan of a dry run."""
    if command.as_json:
        command.print_json("nothing-to-do" if is_empty else "planned", plan=facts, explain=explanation)
        return
    command.screen.print_text(explanation)
    command.screen.print_note("Dry run: nothing was changed.")


def print_result(command: Command, result: Any) -> None:
    """Print what was done."""
    if command.as_json:
        command.print_json("done", **facts_of(result))
    else:
        command.screen.print_result(result)


def exit_if_groups_failed(command: Command, *results: Any) -> None:
    """End the command as failed if groups of a compaction failed, even if others were committed."""
    failed = [group for result in results for group in facts_of(result).get("failed_groups") or ()]
    if failed:
        command.screen.print_note(f"{plural(len(failed), 'group')} failed, the first: {failed[0].failure}", "red")
        raise typer.Exit(ExitCode.FAILED)


@dataclass(frozen=True)
class MetadataChange:
    """A change of metadata only: the same keys before and after."""

    title: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def facts(self) -> dict[str, Any]:
        """Both states, and the keys that differ."""
        changed = [key for key in self.after if self.before[key] != self.after[key]]
        return {"before": self.before, "after": self.after, "changed": changed}

    def explain(self) -> str:
        """Describe the change in words."""
        lines = [
            f"  {key.replace('_', ' '):<15} {_format_value(self.before[key])} → {_format_value(self.after[key])}"
            for key in self.facts["changed"]
        ]
        return "\n".join([self.title, *(lines or ["  nothing changes"])])

    def command_plan(self, activity: str, commit: Callable[[], object], question: str = "") -> CommandPlan:
        """Return a plan that calls `commit` if something changes."""
        facts = self.facts

        def execute() -> dict[str, Any]:
            if facts["changed"]:
                commit()
            return {**facts, "summary": "only metadata changed" if facts["changed"] else "the table is so already"}

        return CommandPlan(
            activity,
            lambda: self,
            execute,
            facts=lambda plan: facts,
            is_empty=lambda plan: not facts["changed"],
            did_nothing=lambda result: not result["changed"],
            question=question,
        )


def _format_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={v}" for k, v in value.items()) or "none"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)
