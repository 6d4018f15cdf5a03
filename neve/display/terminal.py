"""Show Arrow tables on a terminal. Control characters and markup in their text have no effect.

A table that fits the width is shown as a grid. To make it fit, column names are broken after an underscore, long paths
lose their beginning, and empty columns are only named below; words and numbers are never broken. A table that still
does not fit is shown row by row, with one line for each value.
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
        """True if values may lose their beginning: a path is recognized by its end."""
        has_path = any("/" in cell and len(cell) > _MIN_PATH_WIDTH for cell in self.cells)
        return has_path and not any(len(cell.split()) > 1 for cell in self.cells)

    @property
    def is_empty(self) -> bool:
        """True if every value is null or zero."""
        return set(self.cells) <= {_EMPTY_CELL, "0"}

    @property
    def min_width(self) -> int:
        """The smallest width in which no word and no number is broken."""
        words = [word for cell in self.cells for word in cell.split()]
        inside = _MIN_PATH_WIDTH if self.is_path else max(map(cell_len, words), default=0)
        return max(inside, *map(len, _split_at_underscores(self.name)))

    @property
    def full_width(self) -> int:
        """The width at which nothing is broken or cut."""
        lines = [line for cell in self.cells for line in cell.splitlines()]
        return max(len(self.name), *map(cell_len, lines), 0)


def render_arrow_table(table: pa.Table, title: str, limit: int = 40, width: int = 80) -> Group:
    """Render the first rows of a table, readable in the given width, below a title."""
    first_rows = table.slice(0, limit)
    columns = []
    for i, field in enumerate(table.schema):
        is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        cell_text = _pairs_text if pa.types.is_map(field.type) else _cell_text
        cells = tuple(cell_text(value) for value in readable_values(first_rows.column(i)))
        columns.append(_Column(replace_unprintable(field.name), is_number, cells))
    visible = columns if _fits_width(columns, width) else [c for c in columns if not c.is_empty]
    fits = visible and _fits_width(visible, width)
    grid = _grid(visible, width) if fits else _records(columns, first_rows.num_rows, width)
    notes = [f"{limit} of {table.num_rows} rows"] if table.num_rows > limit else []
    notes += [] if fits or first_rows.num_rows else ["no rows"]
    if fits and len(visible) < len(columns):
        notes.append(f"nothing in {', '.join(c.name for c in columns if c.is_empty)}")
    return Group(
        *([Text(replace_unprintable(title), "italic")] if title else []),
        grid,
        *([Text("; ".join(notes), "dim")] if notes else []),
    )


def _fits_width(columns: list[_Column], width: int) -> bool:
    return sum(c.min_width + _BORDERS for c in columns) < width


def _grid(columns: list[_Column], width: int) -> Grid:
    # Give each column its smallest width, and the spare width to columns that need more, text before numbers.
    widths = [c.min_width for c in columns]
    spare = width - 1 - sum(size + _BORDERS for size in widths)
    for i in sorted(range(len(columns)), key=lambda i: columns[i].is_number):
        more = min(spare, columns[i].full_width - widths[i])
        widths[i], spare = widths[i] + more, spare - more
    grid = Grid()
    for column, size in zip(columns, widths, strict=True):
        name = column.name if len(column.name) <= size else "\n".join(_split_at_underscores(column.name))
        grid.add_column(Text(name), justify="right" if column.is_number else "left", width=size)
    for row in zip(*(c.cells for c in columns), strict=True):
        texts = []
        for cell, column, size in zip(row, columns, widths, strict=True):
            is_cut = column.is_path and len(cell) > size
            texts.append(Text(f"…{cell[1 - size :]}" if is_cut else cell))
        grid.add_row(*texts)
    return grid


def _records(columns: list[_Column], rows: int, width: int) -> Grid:
    """Show one line for each value that is not null, and a line between the rows."""
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
    """Split a name into parts that end with an underscore."""
    *heads, last = name.split("_")
    return [*(f"{head}_" for head in heads), last]


def _cell_text(value: Any) -> str:
    if value is None:
        return _EMPTY_CELL
    if isinstance(value, dict):
        return _pairs_text({k: v for k, v in value.items() if v is not None})  # null fields of a struct are left out
    if isinstance(value, list):
        if all(isinstance(v, dict) and v.keys() == {"key", "value"} for v in value):  # a map as pairs
            return " ".join(f"{_cell_text(v['key'])}={_cell_text(v['value'])}" for v in value) or _EMPTY_CELL
        return "\n".join(_cell_text(v) for v in value) or _EMPTY_CELL
    if isinstance(value, bytes):
        return value[:12].hex() + ("…" if len(value) > 12 else "")
    return replace_unprintable(str(value))


def _pairs_text(value: Any) -> str:
    if not isinstance(value, dict):
        return _cell_text(value)
    has_structs = any(isinstance(v, dict) for v in value.values())
    return ("\n" if has_structs else " ").join(f"{_cell_text(k)}={_cell_text(v)}" for k, v in value.items())
