"""What `update`, `delete` and `merge` share: how a statement is told from the table's properties, and its plan."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neve.cli.carrying import Deed, carry_out
from neve.cli.completion import one_of
from neve.cli.options import pairs
from neve.cli.work import Work

__all__ = ["All", "Isolation", "carry_out_change", "plan_facts"]

Isolation = Annotated[
    str | None,
    typer.Option(
        "--isolation",
        help="serializable or snapshot, instead of what the table says.",
        autocompletion=one_of("serializable", "snapshot"),
        show_default=False,
    ),
]
All = Annotated[bool, typer.Option("--all", help="Every row, when there is no --where.")]


def carry_out_change(
    work: Work,
    doing: str,
    statement: Any,
    question: str,
    mode: str | None,
    isolation: str | None,
    branch: str,
    properties: list[str] | None,
) -> None:
    """Run a statement that changes rows, with what was said about it."""
    statement = statement.branch(branch)
    statement = statement if mode is None else statement.mode(mode)
    statement = statement if isolation is None else statement.isolation(isolation)
    for name, value in pairs(properties, "--snapshot-property").items():
        statement = statement.snapshot_property(name, value)
    deed = Deed.of(
        doing,
        statement,
        facts=plan_facts,
        is_empty=lambda plan: plan.is_empty and work.verb != "merge",  # a merge may insert
        did_nothing=lambda result: result.snapshot_id is None,
        question=question,
    )
    carry_out(work, deed)


def plan_facts(plan: Any) -> dict[str, Any]:
    """The plan of a statement for programs."""
    stats = plan.read.stats
    parts = {"read": plan.read, "whole": plan.whole}
    told: dict[str, Any] = {
        "statement": plan.statement,
        "snapshot_id": plan.snapshot_id,
        "mode": plan.mode,
        "isolation": plan.isolation,
        "output_spec_id": plan.default_spec_id,
        "files": stats.files_considered,
        "files_untouched": stats.files_considered - len(plan.read.files) - len(plan.whole.files),
        "filter_stats": stats.filter,
    }
    for word, part in parts.items():
        told |= {f"files_{word}": len(part.files), f"bytes_{word}": part.stats.bytes, f"rows_{word}": part.stats.rows}
        told[f"files_{word}_by_spec"] = {spec_id: len(files) for spec_id, files in part.files.by_spec()}
    return told
