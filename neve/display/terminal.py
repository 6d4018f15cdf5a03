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

from neve.display.format import readable_values
from neve.display.html import replace_unprintable

_MIN_PATH_WIDTH = 14
_EMPTY_CELL = "·"
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
        return any("/" in cell and len(cell) > _MIN_PATH_WIDTH for cell in self.cells) and not self._has_words

    @property
    def _has_words(self) -> bool:
        return any(" " in cell for cell in self.cells)

    @property
    def is_empty(self) -> bool:
        """Whether every value is nothing, or zero."""
        return set(self.cells) <= {_EMPTY_CELL, "0"}

    @property
    def min_width(self) -> int:
        """The least width in which no word and no number is broken."""
        words = [word for cell in self.cells for word in cell.split()]
        inside = _MIN_PATH_WIDTH if self.is_path else max(map(cell_len, words), default=0)
        return max(inside, *map(len, _split_at_underscores(self.name)))

    @property
    def full_width(self) -> int:
        """The width at which nothing is broken or cut."""
        lines = [line for cell in self.cells for line in cell.splitlines()]
        return max(len(self.name), *map(cell_len, lines), 0)


def render_arrow_table(table: pa.Table, title: str, limit: int = 40, width: int = 80) -> Group:
    """The first rows of a table, readable in a width, below a title."""
    shown = table.slice(0, limit)
    columns = [_text_column(field, readable_values(shown.column(at))) for at, field in enumerate(table.schema)]
    telling = columns if _fits_width(columns, width) else [c for c in columns if not c.is_empty]
    grid = (
        _grid(telling, width) if telling and _fits_width(telling, width) else _records(columns, shown.num_rows, width)
    )
    notes = [f"{limit} of {table.num_rows} rows"] if table.num_rows > limit else []
    notes += [] if grid.show_header or shown.num_rows else ["no rows"]
    if grid.show_header and len(telling) < len(columns):
        notes.append(f"nothing in {', '.join(c.name for c in columns if c.is_empty)}")
    return Group(
        *([Text(replace_unprintable(title), "italic")] if title else []),
        grid,
        *([Text("; ".join(notes), "dim")] if notes else []),
    )


def _fits_width(columns: list[_Column], width: int) -> bool:
    return sum(c.min_width + _BORDERS for c in columns) < width


def _text_column(field: pa.Field, values: list[Any]) -> _Column:
    is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    say = _pairs_text if pa.types.is_map(field.type) else _cell_text
    return _Column(replace_unprintable(field.name), is_number, tuple(say(value) for value in values))


def _grid(columns: list[_Column], width: int) -> Grid:
    """Columns side by side."""
    grid, widths = Grid(), _widths(columns, width)
    for column, size in zip(columns, widths, strict=True):
        name = column.name if len(column.name) <= size else "\n".join(_split_at_underscores(column.name))
        grid.add_column(Text(name), justify="right" if column.is_number else "left", width=size)
    for row in zip(*(c.cells for c in columns), strict=True):
        cells = zip(row, columns, widths, strict=True)
        grid.add_row(*(Text(_cut_beginning(cell, size) if column.is_path else cell) for cell, column, size in cells))
    return grid


def _widths(columns: list[_Column], width: int) -> list[int]:
    """What no column needs goes to those that are cut or broken without it, text before numbers."""
    widths = [c.min_width for c in columns]
    spare = width - 1 - sum(size + _BORDERS for size in widths)
    for at in sorted(range(len(columns)), key=lambda at: columns[at].is_number):
        more = min(spare, columns[at].full_width - widths[at])
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
            if column.cells[row] != _EMPTY_CELL:
                grid.add_row(Text(column.name), Text(column.cells[row]))
    return grid


def _split_at_underscores(name: str) -> list[str]:
    """A name in pieces that end with an underscore."""
    *heads, last = name.split("_")
    return [*(f"{head}_" for head in heads), last]


def _cell_text(value: Any) -> str:
    if value is None:
        return _EMPTY_CELL
    if isinstance(value, dict):
        return _pairs_text({k: v for k, v in value.items() if v is not None})  # of a struct, only what is there
    if isinstance(value, list):
        return _list_text(value) or _EMPTY_CELL
    if isinstance(value, bytes):
        return value[:12].hex() + ("…" if len(value) > 12 else "")
    return replace_unprintable(str(value))


def _pairs_text(value: Any) -> str:
    if not isinstance(value, dict):
        return _cell_text(value)
    return " ".join(f"{_cell_text(k)}={_cell_text(v)}" for k, v in value.items())


def _list_text(values: list[Any]) -> str:
    """Pairs of a key and a value stand in one line; other elements get a line each."""
    if all(isinstance(v, dict) and v.keys() == {"key", "value"} for v in values):
        return " ".join(f"{_cell_text(v['key'])}={_cell_text(v['value'])}" for v in values)
    return "\n".join(_cell_text(v) for v in values)


def _cut_beginning(text: str, width: int) -> str:
    return text if len(text) <= width else "…" + text[1 - width :]
