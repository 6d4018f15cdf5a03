"""`neve verify`: the audit."""

from __future__ import annotations

from typing import Annotated

import typer

from neve.cli.codes import Code
from neve.cli.options import TableName
from neve.cli.progress import watched
from neve.cli.work import Work, verb

__all__ = ["verify"]


@verb
def verify(
    work: Work,
    table: TableName,
    metadata_only: Annotated[bool, typer.Option("--metadata-only", help="Do not open data and delete files.")] = False,
) -> None:
    """Check that every reachable file exists, parses and agrees with its metadata; exits with 1 when one does not."""
    found = work.table(table)
    with watched(work.screen, f"Checking {table}"):
        audit = found.verify(data=not metadata_only)
    if work.as_json:
        work.screen.document(audit.as_dict())
    else:
        work.screen.text(str(audit), "" if audit.is_sound else "red")
    raise typer.Exit(Code.DONE if audit.is_sound else Code.FAILED)
