"""`neve upgrade`: a later format version."""

from __future__ import annotations

from typing import Annotated

import typer

from neve.cli.carrying import carry_out
from neve.cli.metadata_change import MetadataChange
from neve.cli.options import TableName
from neve.cli.work import Work, writing_verb
from neve.errors import UserError

__all__ = ["upgrade"]


@writing_verb
def upgrade(
    work: Work,
    table: TableName,
    to: Annotated[int, typer.Option("--to", help="The format version: 2, 3 or 4.", show_default=False)],
) -> None:
    """Move a table to a later format version. Only metadata changes; there is no way back but `neve export`."""
    found = work.table_to_change(table)
    now = found.context.metadata.format_version
    if to < now or to not in (1, 2, 3, 4):
        later = " or ".join(map(str, range(now + 1, 5)))
        advice = f"Give {later}." if later else "There is no later one."
        raise UserError(f"Cannot move table {found.name} from format version {now} to {to}. {advice}")
    before, after = {"format_version": now}, {"format_version": to}
    change = MetadataChange(f"Upgrade table {found.name}", before, after)
    question = f"Move {table} from format version {now} to {to}? There is no way back."
    carry_out(work, change.deed(f"Upgrading {table}", lambda: found.upgrade(to), question))
