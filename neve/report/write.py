"""Write the report of a table to a file."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.expressions import BooleanExpression

from neve.errors import UserError
from neve.ops.context import TableContext
from neve.report.gather import gather
from neve.report.page import page

__all__ = ["write_report"]


def write_report(context: TableContext, path: str | Path, where: str | BooleanExpression | None = None) -> Path:
    """Write the page about a table, and return where it is; a file that is there is replaced."""
    text, target = page(gather(context, where)), Path(path)
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as e:
        raise UserError(
            f"Cannot write the report to {target}: {e.strerror or e}. Give a path that can be written."
        ) from e
    return target.absolute()
