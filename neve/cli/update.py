"""`neve update`: change rows."""

from __future__ import annotations

from typing import Annotated

import typer

from neve.cli.options import Branch, Modes, Properties, TableName, Where, pairs
from neve.cli.rows import All, Isolation, carry_out_change
from neve.cli.work import Work, writing_verb
from neve.errors import UserError

__all__ = ["update"]


@writing_verb
def update(
    work: Work,
    table: TableName,
    assignments: Annotated[
        list[str], typer.Option("--set", metavar="COLUMN=EXPRESSION", help="What a column gets; may be repeated.")
    ],
    where: Where = None,
    everything: All = False,
    mode: Modes = None,
    isolation: Isolation = None,
    branch: Branch = "main",
    properties: Properties = None,
) -> None:
    """Change rows: `neve update db.events --set "status=upper(status)" --where "id = 1"`."""
    if where is None and not everything:
        raise UserError("UPDATE without --where would change every row. Give --where, or say --all.")
    statement = work.table_to_change(table).update().set(pairs(assignments, "--set"))
    statement = statement if where is None else statement.where(where)
    question = f"Update rows of {table}?"
    carry_out_change(work, f"Updating {table}", statement, question, mode, isolation, branch, properties)
