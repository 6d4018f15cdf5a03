"""`neve orphans`: files that nothing leads to."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neve.cli.carrying import Deed, carry_out
from neve.cli.completion import one_of
from neve.cli.options import TableName, moment, pairs
from neve.cli.work import Work, writing_verb

__all__ = ["orphans"]


@writing_verb
def orphans(
    work: Work,
    table: TableName,
    delete: Annotated[bool, typer.Option("--delete", help="Delete them; otherwise they are only told.")] = False,
    older_than: Annotated[
        str | None, typer.Option(help="Only files last changed before: 2026-01-31, or 7d.", show_default=False)
    ] = None,
    location: Annotated[
        str | None, typer.Option(help="Look in this part of the table's place.", show_default=False)
    ] = None,
    allow_young: Annotated[
        bool, typer.Option("--allow-young", help="Files younger than a day too; only when nobody writes.")
    ] = False,
    equal_schemes: Annotated[
        list[str] | None, typer.Option("--equal-scheme", metavar="A,B=C", help="Schemes that mean the same.")
    ] = None,
    mismatch: Annotated[
        str,
        typer.Option(
            "--prefix-mismatch",
            help="A path the table has below another scheme: error, ignore or delete.",
            autocompletion=one_of("error", "ignore", "delete"),
        ),
    ] = "error",
) -> None:
    """Find files in the place of a table that nothing leads to; `--delete` deletes them."""
    work.dry_run = work.dry_run or not delete
    verb = work.table_to_change(table).remove_orphan_files().dry_run(False).prefix_mismatch_mode(mismatch)
    verb = verb if older_than is None else verb.older_than(moment(older_than))
    verb = verb if location is None else verb.location(location)
    verb = verb.allow_young() if allow_young else verb
    verb = verb.equal_schemes(pairs(equal_schemes, "--equal-scheme"))
    deed = Deed.of(
        f"Looking for orphans of {table}",
        verb,
        facts=_facts,
        is_empty=lambda plan: not plan.files,
        did_nothing=lambda result: not result.orphans,
        question="Delete these files?",
    )
    carry_out(work, deed)


def _facts(plan: Any) -> dict[str, Any]:
    return {
        "location": plan.location,
        "orphans": plan.files,
        "bytes": plan.bytes,
        "files_listed": plan.files_listed,
        "files_young": plan.files_young,
        "mismatched": plan.mismatched,
        "other_tables": plan.other_tables,
    }
