"""`neve demo`: the whole story of a table, told by a real one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neve.cli.late import late
from neve.cli.work import Work, framed

__all__ = ["demo"]

_run = late("neve.demo", "run")


def demo(
    lake: Annotated[Path | None, typer.Option("--lake", help="Keep the demo lake in this folder.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show traces and what Spark prints.")] = False,
) -> None:
    """Make a table, let it live through three partition specs, change it, compact it and move it to version 4."""
    work = Work("demo", debug=debug)
    framed(work, lambda: _run(work.screen.out, lake))
