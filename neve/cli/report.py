"""`neve report`: a page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neve.cli.carrying import tell_plan
from neve.cli.options import TableName, Where
from neve.cli.progress import watched
from neve.cli.work import Work, writing_verb

__all__ = ["report"]


@writing_verb
def report(
    work: Work,
    table: TableName,
    path: Annotated[Path, typer.Argument(help="Where to write the page.", show_default=True)] = Path("report.html"),
    where: Where = None,
) -> None:
    """Write one page about a table: its life, its files, what burdens it, what would help.

    With `--where`, a compaction of the files that may match is planned, and what could not be judged is marked.
    """
    found = work.table_to_change(table)
    if work.dry_run:
        tell_plan(work, {"path": str(path)}, f"Write a page about {found.name} to {path}")
        return
    with watched(work.screen, f"Looking at {table}"):
        found.report(path, where)
    size = path.stat().st_size
    if work.as_json:
        work.document("done", path=str(path), bytes=size, summary=f"{path}, {size:,} bytes")
    else:
        work.screen.text(f"Done: {path}, {size:,} bytes.", "green")
