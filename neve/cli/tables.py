"""`neve tables`: what there is."""

from __future__ import annotations

from typing import Annotated

import typer

from neve.cli.work import Work, verb

__all__ = ["tables"]


@verb
def tables(
    work: Work,
    namespace: Annotated[str | None, typer.Argument(help="Only of this namespace.", show_default=False)] = None,
) -> None:
    """List the tables of a lake."""
    found = work.lake().tables(namespace)
    for name in found:
        if work.as_json:
            work.screen.document({"table": name})
        else:
            work.screen.text(name)
    if not found and not work.as_json:
        work.screen.aside("There are no tables. `neve register` takes one in that another engine wrote.")
