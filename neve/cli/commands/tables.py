"""`neve tables` lists tables, `neve register` adds a table of another engine, and `neve demo` shows a tour."""

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
    command: Command,
    table: TableName,
    metadata: Annotated[str, typer.Argument(help="The location of its metadata file.")],
) -> None:
    """Register a table of another engine in a lake, by its newest metadata file."""
    if command.dry_run:
        plan = {"name": table, "metadata_location": metadata}
        print_plan(command, plan, f"Register {metadata} as {table} in {command.catalog or command.lake_path}")
        return
    command.may_have_written = True
    lake = command.lake(create_if_missing=True)
    if table in lake.tables():
        raise UserError(f"Table {table} exists already. Give another name.")
    registered = lake.register_table(table, metadata)
    command.table_before = registered.context
    if command.as_json:
        location = registered.context.iceberg.metadata_location
        command.print_json("done", metadata_location=location, summary=repr(registered))
    else:
        command.screen.print_text(f"Done: {registered!r}.", "green")


@verb
def tables(
    command: Command,
    namespace: Annotated[str | None, typer.Argument(help="Only of this namespace.")] = None,
) -> None:
    """List the tables of a lake."""
    names = command.lake().tables(namespace)
    for name in names:
        if command.as_json:
            command.screen.print_json_line({"table": name})
        else:
            command.screen.print_text(name)
    if not names and not command.as_json:
        command.screen.print_note("There are no tables. `neve register` adds a table that another engine wrote.")


_run_demo = lazy_import("neve.demo", "run")


def demo(
    lake: Annotated[Path | None, typer.Option("--lake", help="Keep the demo lake in this folder.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show traces and what Spark prints.")] = False,
) -> None:
    """Create a table with three partition specs, change it, compact it and upgrade it to version 4."""
    command = Command("demo", debug=debug)
    run_guarded(command, lambda: _run_demo(command.screen.out, lake))
