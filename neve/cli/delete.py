"""`neve delete`: delete rows."""

from __future__ import annotations

from neve.cli.options import Branch, Modes, Properties, TableName, Where
from neve.cli.rows import All, Isolation, carry_out_change
from neve.cli.work import Work, writing_verb
from neve.errors import UserError

__all__ = ["delete"]


@writing_verb
def delete(
    work: Work,
    table: TableName,
    where: Where = None,
    everything: All = False,
    mode: Modes = None,
    isolation: Isolation = None,
    branch: Branch = "main",
    properties: Properties = None,
) -> None:
    """Delete rows that match a condition."""
    if where is None and not everything:
        raise UserError("DELETE without --where would delete every row. Give --where, or say --all.")
    statement = work.table_to_change(table).delete()
    statement = statement if where is None else statement.where(where)
    question = f"Delete rows of {table}?"
    carry_out_change(work, f"Deleting from {table}", statement, question, mode, isolation, branch, properties)
