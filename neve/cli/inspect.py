"""`neve inspect`: a table at a glance, and every view of its metadata."""

from __future__ import annotations

from typing import Annotated

import typer

from neve.cli.completion import one_of
from neve.cli.options import TableName
from neve.cli.overview import drawn, overview_of
from neve.cli.work import Work, verb
from neve.errors import UnknownName, UserError

__all__ = ["VIEWS", "inspect"]

VIEWS = ("files", "entries", "manifests", "partitions", "specs", "snapshots", "history", "refs", "tree")
_OVERVIEW = "overview"
_SHOWN = 40
_OF_A_SNAPSHOT = ("files", "entries", "manifests", "partitions", "tree")


@verb
def inspect(
    work: Work,
    table: TableName,
    view: Annotated[
        str,
        typer.Argument(help=f"{_OVERVIEW}, {', '.join(VIEWS)}.", autocompletion=one_of(_OVERVIEW, *VIEWS)),
    ] = _OVERVIEW,
    snapshot: Annotated[
        int | None, typer.Option(help=f"Another snapshot: of {', '.join(_OF_A_SNAPSHOT)}.", show_default=False)
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=0, help="Rows to show; 40, or with --json all.", show_default=False)
    ] = None,
) -> None:
    """Show what a table is made of: an overview, or one view of its metadata."""
    if view not in (_OVERVIEW, *VIEWS):
        raise UnknownName("view", view, (_OVERVIEW, *VIEWS))
    if snapshot is not None and view not in _OF_A_SNAPSHOT:
        raise UnknownName("view of a snapshot", view, _OF_A_SNAPSHOT)
    if limit is not None and view == _OVERVIEW:
        raise UserError(f"The overview has no --limit. Choose a view: {', '.join(VIEWS)}.")
    found = work.table(table)
    if view == _OVERVIEW:
        told, console = overview_of(found), work.screen.out
        work.screen.document(told) if work.as_json else console.print(drawn(told, console))
        return
    chosen = {} if snapshot is None else {"snapshot_id": snapshot}
    rows = getattr(found.inspect, view)(**chosen)
    if work.as_json and limit is not None:
        rows = rows.slice(0, limit)
    work.screen.rows(rows, f"{table}: {view}", _SHOWN if limit is None else limit)
