"""`neve orphans`: files that nothing leads to.

`neve expire`: old snapshots go, and the files only they led to.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neve.cli.command import Command, writing_verb
from neve.cli.execute import CommandPlan, run_command
from neve.cli.options import TableName, one_of, parse_pairs, parse_time
from neve.display.format import plural


@writing_verb
def orphans(
    work: Command,
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
    verb = verb if older_than is None else verb.older_than(parse_time(older_than))
    verb = verb if location is None else verb.location(location)
    verb = verb.allow_young() if allow_young else verb
    verb = verb.equal_schemes(parse_pairs(equal_schemes, "--equal-scheme"))
    deed = CommandPlan.of(
        f"Looking for orphans of {table}",
        verb,
        facts=_orphan_facts,
        is_empty=lambda plan: not plan.files,
        did_nothing=lambda result: not result.orphans,
        question="Delete these files?",
    )
    run_command(work, deed)


def _orphan_facts(plan: Any) -> dict[str, Any]:
    return {
        "location": plan.location,
        "orphans": plan.files,
        "bytes": plan.bytes,
        "files_listed": plan.files_listed,
        "files_young": plan.files_young,
        "mismatched": plan.mismatched,
        "other_tables": plan.other_tables,
    }


@writing_verb
def expire(
    work: Command,
    table: TableName,
    older_than: Annotated[
        str | None, typer.Option(help="What is older goes: 2026-01-31, or 7d.", show_default=False)
    ] = None,
    retain_last: Annotated[
        int | None, typer.Option(help="Keep at least so many of each branch.", show_default=False)
    ] = None,
    snapshots: Annotated[
        list[int] | None, typer.Option("--snapshot", help="A snapshot that goes whatever its age; may be repeated.")
    ] = None,
    clean_metadata: Annotated[
        bool, typer.Option("--clean-metadata", help="Drop specs and schemas that nothing needs any more.")
    ] = False,
    cleanup: Annotated[
        str,
        typer.Option(help="Files to delete: all, metadata or none.", autocompletion=one_of("all", "metadata", "none")),
    ] = "all",
) -> None:
    """Forget old snapshots, and delete the files that only they led to. What they held cannot be read any more."""
    verb = work.table_to_change(table).expire_snapshots().cleanup(cleanup).clean_expired_metadata(clean_metadata)
    verb = verb if older_than is None else verb.older_than(parse_time(older_than))
    verb = verb if retain_last is None else verb.retain_last(retain_last)
    verb = verb.snapshot_ids(*(snapshots or ()))
    deed = CommandPlan.of(
        f"Expiring snapshots of {table}",
        verb,
        facts=_expiry_facts,
        is_empty=lambda plan: not plan.expiry,
        did_nothing=lambda result: not (result.snapshot_ids or result.refs or result.spec_ids or result.schema_ids),
        question=f"Expire these snapshots of {table} and delete the files?",
    )
    result = run_command(work, deed)
    if result.files_kept and not work.as_json:
        work.screen.print_note(
            f"{plural(len(result.files_kept), 'file')} kept: {next(iter(result.files_kept.values()))}."
        )


def _expiry_facts(plan: Any) -> dict[str, Any]:
    return {
        "snapshot_ids": plan.snapshot_ids,
        "snapshots_kept": plan.kept,
        "refs": plan.refs,
        "spec_ids": plan.expiry.spec_ids,
        "schema_ids": plan.expiry.schema_ids,
        "files": plan.files,
    }
