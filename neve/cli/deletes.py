"""`neve deletes`: delete files become fewer, or vectors."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neve.cli.carrying import Deed, carry_out
from neve.cli.options import Branch, Options, TableName, Where, pairs
from neve.cli.work import Work, writing_verb

__all__ = ["deletes"]


@writing_verb
def deletes(
    work: Work,
    table: TableName,
    where: Where = None,
    equality: Annotated[bool, typer.Option("--equality", help="Replace equality deletes too.")] = False,
    options: Options = None,
    branch: Branch = "main",
) -> None:
    """Rewrite delete files to fewer, or to deletion vectors; rows stay as they are."""
    rewrite = work.table_to_change(table).rewrite_position_deletes().branch(branch).options(pairs(options, "--option"))
    rewrite = rewrite if where is None else rewrite.where(where)
    rewrite = rewrite.equality_deletes() if equality else rewrite
    deed = Deed.of(
        f"Rewriting delete files of {table}",
        rewrite,
        facts=_facts,
        is_empty=lambda plan: plan.is_empty,
        did_nothing=lambda result: result.snapshot_id is None,
    )
    carry_out(work, deed)


def _facts(plan: Any) -> dict[str, Any]:
    return {
        "snapshot_id": plan.snapshot_id,
        "delete_files": plan.considered,
        "delete_files_replaced": len(plan.replaced),
        "equality_delete_files_replaced": len(plan.equality_deletes),
        "data_files": len(plan.scan.files),
        "bytes": plan.bytes,
        "groups": len(plan.groups),
    }
