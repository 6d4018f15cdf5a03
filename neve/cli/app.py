"""All commands in the order in which `neve --help` lists them."""

from __future__ import annotations

from typing import Annotated

import typer

from neve._version import __version__
from neve.cli.commands.cleanup import expire, orphans
from neve.cli.commands.compact import compact, dangling, deletes, maintain, manifests
from neve.cli.commands.evolve import evolve, export, upgrade
from neve.cli.commands.inspect import inspect, report, verify
from neve.cli.commands.query import scan, sql
from neve.cli.commands.rows import delete, merge, update
from neve.cli.commands.tables import demo, register, tables

_EXIT_CODES_HELP = "Exit codes: 0 done, 1 failed, 2 wrong usage or input, 3 conflict, 4 nothing to do, 130 interrupted."

_ABOUT = "Névé: Apache Iceberg tables with a long history, on Spark, without a jar."

app = typer.Typer(
    help=_ABOUT,
    epilog=_EXIT_CODES_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_PANELS = {
    "Read and inspect": (demo, tables, inspect, scan, verify, report),
    "Change rows": (sql, update, delete, merge),
    "Maintain a table": (maintain, compact, deletes, dangling, manifests, expire, orphans),
    "Change a table": (evolve, upgrade, export, register),
}

for _panel, _commands in _PANELS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"neve {__version__}")
        raise typer.Exit


@app.callback(help=_ABOUT)
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Handle the options that come before a command."""
