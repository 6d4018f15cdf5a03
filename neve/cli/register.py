"""`neve register`: a table that another engine wrote."""

from __future__ import annotations

from typing import Annotated

import typer

from neve.cli.carrying import tell_plan
from neve.cli.options import TableName
from neve.cli.work import Work, writing_verb
from neve.errors import UserError

__all__ = ["register"]


@writing_verb
def register(
    work: Work,
    table: TableName,
    metadata: Annotated[str, typer.Argument(help="The place of its metadata file.", show_default=False)],
) -> None:
    """Take a table that another engine wrote into a lake, by its newest metadata file."""
    if work.dry_run:
        where = work.catalog or work.lake_path
        plan = {"name": table, "metadata_location": metadata}
        tell_plan(work, plan, f"Register {metadata} as {table} in {where}")
        return
    work.writes = True
    lake = work.lake(makes_one=True)
    if table in lake.tables():
        raise UserError(f"There is a table {table} already. Give another name.")
    found = lake.register_table(table, metadata)
    work.began = found.context
    if work.as_json:
        work.document("done", metadata_location=found.context.iceberg.metadata_location, summary=repr(found))
    else:
        work.screen.text(f"Done: {found!r}.", "green")
