"""Arrow tables on a terminal. Text from tables is shown as text: control characters and markup have no effect."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from rich.table import Table as Grid
from rich.text import Text

__all__ = ["arrow_table", "plain"]

_WIDEST = 60


def arrow_table(table: pa.Table, title: str, limit: int = 40) -> Grid:
    """A table as a grid of its first rows."""
    grid = Grid(title=Text(plain(title)), title_justify="left")
    for field in table.schema:
        is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        grid.add_column(Text(plain(field.name)), justify="right" if is_number else "left", overflow="fold")
    for row in table.slice(0, limit).to_pylist(maps_as_pydicts="lossy"):
        grid.add_row(*(Text(_cell(value)) for value in row.values()))
    if table.num_rows > limit:
        grid.caption = f"{limit} of {table.num_rows} rows"
    return grid


def plain(text: str) -> str:
    """Text without control characters: a name from a table cannot move the cursor or hide a line."""
    return "".join(c if c.isprintable() else "�" for c in text)


def _cell(value: Any) -> str:
    if value is None:
        return "·"
    if isinstance(value, dict):
        return " ".join(f"{k}={_cell(v)}" for k, v in value.items() if v is not None)
    if isinstance(value, list):
        return "\n".join(_cell(v) for v in value) or "·"
    if isinstance(value, bytes):
        return value[:12].hex() + ("…" if len(value) > 12 else "")
    shown = plain(str(value))
    return shown if len(shown) <= _WIDEST else "…" + shown[-_WIDEST:]
