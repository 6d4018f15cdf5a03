"""`neve maintain`: what the table needs, what pays most first."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neve.cli.carrying import Deed, carry_out, tell_failures
from neve.cli.options import TableName, size
from neve.cli.screen import facts_of
from neve.cli.work import Work, writing_verb

__all__ = ["maintain"]


@writing_verb
def maintain(
    work: Work,
    table: TableName,
    most_bytes: Annotated[
        str | None, typer.Option("--budget-bytes", help="Read no more than this: 10GB.", show_default=False)
    ] = None,
    most_seconds: Annotated[
        float | None, typer.Option("--budget-seconds", help="Begin nothing new after this time.", show_default=False)
    ] = None,
) -> None:
    """See what a table needs, and do it: compaction, delete files, manifests, old snapshots."""
    verb = work.table_to_change(table).maintain()
    if most_bytes is not None or most_seconds is not None:
        verb = verb.budget(bytes=size(most_bytes, "--budget-bytes"), seconds=most_seconds)
    deed = Deed(
        f"Maintaining {table}",
        verb.plan,
        lambda: _told(verb.execute()),
        facts=lambda plan: {"steps": [_step(s) for s in plan.steps], "left_out": [_step(s) for s in plan.left_out]},
        is_empty=lambda plan: plan.is_empty,
        did_nothing=lambda told: not told["results"],
        question=f"Do this to {table}?",
    )
    tell_failures(work, *carry_out(work, deed)["results"])


def _step(proposal: Any) -> dict[str, Any]:
    return facts_of(proposal)


def _told(result: Any) -> dict[str, Any]:
    """What was done, each verb with its name."""
    done = [{"verb": verb, **facts_of(each)} for verb, each in result.results]
    return {**facts_of(result), "results": done, "not_done": [_step(s) for s in result.not_done]}
