"""The commands, in the order in which somebody meets them."""

from __future__ import annotations

from typing import Annotated

import typer

import neve
from neve.cli.compact import compact
from neve.cli.dangling import dangling
from neve.cli.delete import delete
from neve.cli.deletes import deletes
from neve.cli.demo import demo
from neve.cli.evolve import evolve
from neve.cli.expire import expire
from neve.cli.export import export
from neve.cli.inspect import inspect
from neve.cli.maintain import maintain
from neve.cli.manifests import manifests
from neve.cli.merge import merge
from neve.cli.orphans import orphans
from neve.cli.register import register
from neve.cli.report import report
from neve.cli.scan import scan
from neve.cli.sql import sql
from neve.cli.tables import tables
from neve.cli.update import update
from neve.cli.upgrade import upgrade
from neve.cli.verify import verify

__all__ = ["app"]

_EXITS = "Exit codes: 0 done, 1 failed, 2 wrong usage or input, 3 conflict, 4 nothing to do, 130 interrupted."

app = typer.Typer(
    help="Névé: Apache Iceberg tables that have lived, on Spark, without a jar.",
    epilog=_EXITS,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_PANELS = {
    "Look": (demo, tables, inspect, scan, verify, report),
    "Change rows": (sql, update, delete, merge),
    "Look after a table": (maintain, compact, deletes, dangling, manifests, expire, orphans),
    "Change a table": (evolve, upgrade, export, register),
}

for _panel, _verbs in _PANELS.items():
    for _verb in _verbs:
        app.command(rich_help_panel=_panel)(_verb)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"neve {neve.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Névé: Apache Iceberg tables that have lived, on Spark, without a jar."""
