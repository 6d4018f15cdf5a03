"""`neve orphans` finds files that a table does not reference; `neve expire` removes old snapshots and their files."""

from __future__ import annotations

from typing import Annotated

import typer

from neve.cli.command import Command, writing_verb
from neve.cli.execute import CommandPlan, run_command, with_options
from neve.cli.options import TableName, one_of, parse_pairs, parse_time
from neve.display.format import plural

_AllowShared = Annotated[
    bool,
    typer.Option(
        "--allow-shared",
        help="Go on although the same table has another entry; its files are kept.",
    ),
]
_AllowUnreadable = Annotated[
    bool, typer.Option("--allow-unreadable", help="Go on although another entry cannot be read, which may need files.")
]


@writing_verb
def orphans(
    command: Command,
    table: TableName,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the files instead of listing them.")] = False,
    older_than: Annotated[str | None, typer.Option(help="Only files last changed before: 2026-01-31, or 7d.")] = None,
    location: Annotated[str | None, typer.Option(help="Look only in this part of the table's location.")] = None,
    allow_young: Annotated[
        bool, typer.Option("--allow-young", help="Include files younger than a day; only safe while nobody writes.")
    ] = False,
    allow_any_name: Annotated[
        bool, typer.Option("--allow-any-name", help="Include files that no Iceberg writer makes.")
    ] = False,
    allow_shared: _AllowShared = False,
    allow_unreadable: _AllowUnreadable = False,
    equal_schemes: Annotated[
        list[str] | None, typer.Option("--equal-scheme", metavar="A,B=C", help="Schemes that mean the same.")
    ] = None,
    mismatch: Annotated[
        str,
        typer.Option(
            "--prefix-mismatch",
            help="What to do with a path that the table has with another scheme: error, ignore or delete.",
            autocompletion=one_of("error", "ignore", "delete"),
        ),
    ] = "error",
) -> None:
    """Find files in the location of a table that the table does not reference; `--delete` deletes them."""
    command.dry_run = command.dry_run or not delete
    verb = with_options(
        command.table_to_change(table).remove_orphan_files().dry_run(False).prefix_mismatch_mode(mismatch),
        older_than=parse_time(older_than),
        location=location,
        allow_young=allow_young,
        allow_any_name=allow_any_name,
        allow_shared=allow_shared,
        allow_unreadable=allow_unreadable,
    ).equal_schemes(parse_pairs(equal_schemes, "--equal-scheme"))
    plan = CommandPlan.of(
        f"Looking for orphans of {table}",
        verb,
        facts=lambda plan: {
            "location": plan.location,
            "orphans": plan.files,
            "bytes": plan.bytes,
            "files_listed": plan.files_listed,
            "files_young": plan.files_young,
            "files_foreign": plan.files_foreign,
            "files_shared": dict(plan.shared),
            "mismatched": plan.mismatched,
            "other_tables": plan.other_tables,
        },
        is_empty=lambda plan: not plan.files,
        did_nothing=lambda result: not result.orphans,
        question="Delete these files?",
    )
    run_command(command, plan)


@writing_verb
def expire(
    command: Command,
    table: TableName,
    older_than: Annotated[str | None, typer.Option(help="Expire snapshots before: 2026-01-31, or 7d.")] = None,
    retain_last: Annotated[int | None, typer.Option(help="Keep at least this many snapshots of each branch.")] = None,
    snapshots: Annotated[
        list[int] | None, typer.Option("--snapshot", help="Expire this snapshot whatever its age; may be repeated.")
    ] = None,
    clean_metadata: Annotated[
        bool, typer.Option("--clean-metadata", help="Drop specs and schemas that are not used.")
    ] = False,
    cleanup: Annotated[
        str,
        typer.Option(help="Files to delete: all, metadata or none.", autocompletion=one_of("all", "metadata", "none")),
    ] = "all",
    allow_shared: _AllowShared = False,
    allow_unreadable: _AllowUnreadable = False,
) -> None:
    """Remove old snapshots and delete the files that only they reference. Their data cannot be read afterwards."""
    verb = with_options(
        command.table_to_change(table).expire_snapshots().cleanup(cleanup).clean_expired_metadata(clean_metadata),
        older_than=parse_time(older_than),
        retain_last=retain_last,
        allow_shared=allow_shared,
        allow_unreadable=allow_unreadable,
    ).snapshot_ids(*(snapshots or ()))
    plan = CommandPlan.of(
        f"Expiring snapshots of {table}",
        verb,
        facts=lambda plan: {
            "snapshot_ids": plan.snapshot_ids,
            "snapshots_kept": plan.kept,
            "refs": plan.refs,
            "spec_ids": plan.expiry.spec_ids,
            "schema_ids": plan.expiry.schema_ids,
            "files": plan.files,
        },
        is_empty=lambda plan: not plan.expiry,
        did_nothing=lambda result: not (result.snapshot_ids or result.refs or result.spec_ids or result.schema_ids),
        question=f"Expire these snapshots of {table} and delete the files?",
    )
    result = run_command(command, plan)
    if result.files_kept and not command.as_json:
        command.screen.print_note(
            f"{plural(len(result.files_kept), 'file')} kept: {next(iter(result.files_kept.values()))}."
        )
