"""`neve scan`: rows of a table, of any state of it."""

from __future__ import annotations

from typing import Annotated

import typer

from neve.cli.options import Limit, TableName, Where, moment, names
from neve.cli.progress import watched
from neve.cli.work import Work, verb

__all__ = ["scan"]


@verb
def scan(
    work: Work,
    table: TableName,
    where: Where = None,
    columns: Annotated[str | None, typer.Option(help="Columns, separated by commas.", show_default=False)] = None,
    ref: Annotated[str | None, typer.Option(help="A branch or tag to read.", show_default=False)] = None,
    snapshot: Annotated[int | None, typer.Option(help="The id of a snapshot to read.", show_default=False)] = None,
    as_of: Annotated[
        str | None, typer.Option(help="Read it as it was then: 2026-01-31, or 7d ago.", show_default=False)
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say what would be read, and read nothing.")] = False,
    limit: Limit = 20,
) -> None:
    """Read rows."""
    then = None if as_of is None else moment(as_of)
    chosen = work.table(table).scan(where, names(columns), ref=ref, snapshot_id=snapshot, as_of=then)
    if explain:
        _explained(work, chosen.explain())
        return
    with watched(work.screen, f"Reading {table}"):
        rows = chosen.head(limit)
    work.screen.rows(rows, table, limit)


def _explained(work: Work, text: str) -> None:
    if work.as_json:
        work.screen.document({"explain": text})
    else:
        work.screen.text(text)
