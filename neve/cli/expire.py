"""`neve expire`: old snapshots go, and the files only they led to."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neve.cli.carrying import Deed, carry_out
from neve.cli.completion import one_of
from neve.cli.options import TableName, moment
from neve.cli.work import Work, writing_verb
from neve.display.format import several

__all__ = ["expire"]


@writing_verb
def expire(
    work: Work,
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
    verb = verb if older_than is None else verb.older_than(moment(older_than))
    verb = verb if retain_last is None else verb.retain_last(retain_last)
    verb = verb.snapshot_ids(*(snapshots or ()))
    deed = Deed.of(
        f"Expiring snapshots of {table}",
        verb,
        facts=_facts,
        is_empty=lambda plan: not plan.expiry,
        did_nothing=lambda result: not (result.snapshot_ids or result.refs or result.spec_ids or result.schema_ids),
        question=f"Expire these snapshots of {table} and delete the files?",
    )
    result = carry_out(work, deed)
    if result.files_kept and not work.as_json:
        work.screen.aside(f"{several(len(result.files_kept), 'file')} kept: {next(iter(result.files_kept.values()))}.")


def _facts(plan: Any) -> dict[str, Any]:
    return {
        "snapshot_ids": plan.snapshot_ids,
        "snapshots_kept": plan.kept,
        "refs": plan.refs,
        "spec_ids": plan.expiry.spec_ids,
        "schema_ids": plan.expiry.schema_ids,
        "files": plan.files,
    }
