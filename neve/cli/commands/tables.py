"""`neve register`: a table that another engine wrote.

`neve tables`: what there is.

`neve demo`: the whole story of a table, told by a real one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neve.cli.command import Command, run_guarded, verb, writing_verb
from neve.cli.execute import print_plan
from neve.cli.options import TableName
from neve.cli.process import lazy_import
from neve.errors import UserError


@writing_verb
def register(
    work: Command,
    table: TableName,
    metadata: Annotated[str, typer.Argument(help="The place of its metadata file.", show_default=False)],
) -> None:
    """Take a table that another engine wrote into a lake, by its newest metadata file."""
    if work.dry_run:
        where = work.catalog or work.lake_path
        plan = {"name": table, "metadata_location": metadata}
        print_plan(work, plan, f"Register {metadata} as {table} in {where}")
        return
    work.may_have_written = True
    lake = work.lake(create_if_missing=True)
    if table in lake.tables():
        raise UserError(f"There is a table {table} already. Give another name.")
    found = lake.register_table(table, metadata)
    work.table_before = found.context
    if work.as_json:
        work.print_json("done", metadata_location=found.context.iceberg.metadata_location, summary=repr(found))
    else:
        work.screen.print_text(f"Done: {found!r}.", "green")


@verb
def tables(
    work: Command,
    namespace: Annotated[str | None, typer.Argument(help="Only of this namespace.", show_default=False)] = None,
) -> None:
    """List the tables of a lake."""
    found = work.lake().tables(namespace)
    for name in found:
        if work.as_json:
            work.screen.print_json_line({"table": name})
        else:
            work.screen.print_text(name)
    if not found and not work.as_json:
        work.screen.print_note("There are no tables. `neve register` takes one in that another engine wrote.")


_run_demo = lazy_import("neve.demo", "run")


def demo(
    lake: Annotated[Path | None, typer.Option("--lake", help="Keep the demo lake in this folder.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show traces and what Spark prints.")] = False,
) -> None:
    """Make a table, let it live through three partition specs, change it, compact it and move it to version 4."""
    work = Command("demo", debug=debug)
    run_guarded(work, lambda: _run_demo(work.screen.out, lake))
