"""Arrow tables on a terminal. Text from tables is shown as text: control characters and markup have no effect.

A table that fits the width is a grid. Words and numbers are never broken for that: names may be, after an underscore,
long paths lose their beginning, and columns that hold nothing are only named. A table that still does not fit is shown
a row at a time, one line for each value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from rich.cells import cell_len
from rich.console import Group
from rich.table import Table as Grid
from rich.text import Text

from neve.display.format import readable
from neve.display.html import plain

_NARROWEST_PATH = 14
_NOTHING = "·"
_BORDERS = 3  # characters a column takes beside its text


@dataclass(frozen=True)
class _Column:
    """One column as text."""

    name: str
    is_number: bool
    cells: tuple[str, ...]

    @property
    def is_path(self) -> bool:
        """Whether values may lose their beginning: a path is known by its end."""
        return any("/" in cell and len(cell) > _NARROWEST_PATH for cell in self.cells) and not self._has_words

    @property
    def _has_words(self) -> bool:
        return any(" " in cell for cell in self.cells)

    @property
    def is_empty(self) -> bool:
        """Whether every value is nothing, or zero."""
        return set(self.cells) <= {_NOTHING, "0"}

    @property
    def narrowest(self) -> int:
        """The least width in which no word and no number is broken."""
        words = [word for cell in self.cells for word in cell.split()]
        inside = _NARROWEST_PATH if self.is_path else max(map(cell_len, words), default=0)
        return max(inside, *map(len, _pieces(self.name)))

    @property
    def widest(self) -> int:
        """The width at which nothing is broken or cut."""
        lines = [line for cell in self.cells for line in cell.splitlines()]
        return max(len(self.name), *map(cell_len, lines), 0)


def arrow_table(table: pa.Table, title: str, limit: int = 40, width: int = 80) -> Group:
    """The first rows of a table, readable in a width, below a title."""
    shown = table.slice(0, limit)
    columns = [_column(field, readable(shown.column(at))) for at, field in enumerate(table.schema)]
    telling = columns if _fit(columns, width) else [c for c in columns if not c.is_empty]
    grid = _grid(telling, width) if telling and _fit(telling, width) else _records(columns, shown.num_rows, width)
    notes = [f"{limit} of {table.num_rows} rows"] if table.num_rows > limit else []
    notes += [] if grid.show_header or shown.num_rows else ["no rows"]
    if grid.show_header and len(telling) < len(columns):
        notes.append(f"nothing in {', '.join(c.name for c in columns if c.is_empty)}")
    return Group(
        *([Text(plain(title), "italic")] if title else []), grid, *([Text("; ".join(notes), "dim")] if notes else [])
    )


def _fit(columns: list[_Column], width: int) -> bool:
    return sum(c.narrowest + _BORDERS for c in columns) < width


def _column(field: pa.Field, values: list[Any]) -> _Column:
    is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    say = _pairs if pa.types.is_map(field.type) else _cell
    return _Column(plain(field.name), is_number, tuple(say(value) for value in values))


def _grid(columns: list[_Column], width: int) -> Grid:
    """Columns side by side."""
    grid, widths = Grid(), _widths(columns, width)
    for column, size in zip(columns, widths, strict=True):
        name = column.name if len(column.name) <= size else "\n".join(_pieces(column.name))
        grid.add_column(Text(name), justify="right" if column.is_number else "left", width=size)
    for row in zip(*(c.cells for c in columns), strict=True):
        cells = zip(row, columns, widths, strict=True)
        grid.add_row(*(Text(_cut(cell, size) if column.is_path else cell) for cell, column, size in cells))
    return grid


def _widths(columns: list[_Column], width: int) -> list[int]:
    """What no column needs goes to those that are cut or broken without it, text before numbers."""
    widths = [c.narrowest for c in columns]
    spare = width - 1 - sum(size + _BORDERS for size in widths)
    for at in sorted(range(len(columns)), key=lambda at: columns[at].is_number):
        more = min(spare, columns[at].widest - widths[at])
        widths[at], spare = widths[at] + more, spare - more
    return widths


def _records(columns: list[_Column], rows: int, width: int) -> Grid:
    """One line for each value that is there; a line between the rows."""
    grid = Grid(show_header=False)
    grid.add_column(overflow="fold", max_width=max(width // 2, 1))
    grid.add_column(overflow="fold")
    for row in range(rows):
        grid.add_section()
        for column in columns:
            if column.cells[row] != _NOTHING:
                grid.add_row(Text(column.name), Text(column.cells[row]))
    return grid


def _pieces(name: str) -> list[str]:
    """A name in pieces that end with an underscore."""
    *heads, last = name.split("_")
    return [*(f"{head}_" for head in heads), last]


def _cell(value: Any) -> str:
    if value is None:
        return _NOTHING
    if isinstance(value, dict):
        return _pairs({k: v for k, v in value.items() if v is not None})  # of a struct, only what is there
    if isinstance(value, list):
        return _listed(value) or _NOTHING
    if isinstance(value, bytes):
        return value[:12].hex() + ("…" if len(value) > 12 else "")
    return plain(str(value))


def _pairs(value: Any) -> str:
    if not isinstance(value, dict):
        return _cell(value)
    return " ".join(f"{_cell(k)}={_cell(v)}" for k, v in value.items())


def _listed(values: list[Any]) -> str:
    """Pairs of a key and a value stand in one line; other elements get a line each."""
    if all(isinstance(v, dict) and v.keys() == {"key", "value"} for v in values):
        return " ".join(f"{_cell(v['key'])}={_cell(v['value'])}" for v in values)
    return "\n".join(_cell(v) for v in values)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else "…" + text[1 - width :]
