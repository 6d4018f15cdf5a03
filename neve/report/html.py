"""Building blocks of the sections: panels, numbers, sortable tables, bars and column charts.

Widths are in percent and heights in pixels, so that a drawing fits any window and its text keeps its size. There are no
style attributes, because the page's content security policy forbids them; colours come from classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from neve.display.format import format_size, format_time
from neve.display.html import Markup, join_markup, shorten_middle, tag

_LONGEST_NAME = 240
_LONGEST_WORD = 24  # a longer word may be broken anywhere
_SHORT = 22  # a name up to this length is not broken
_CHART_HEIGHT = 150  # pixels


@dataclass(frozen=True, slots=True)
class NumberCell:
    """A number in a table: the value to sort by, and its text."""

    value: float
    text: str
    is_time: bool = False


TableCell: TypeAlias = NumberCell | int | str | None
"""A number with a text of its own, a plain number, a text, or None for a number that there is not."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One column of a chart: its parts from the bottom up, as class and value, and its tooltip."""

    label: str
    parts: tuple[tuple[str, int], ...]
    title: str


def size_cell(value: float) -> NumberCell:
    """Return a cell with a number of bytes."""
    return NumberCell(value, format_size(value))


def time_cell(milliseconds: int | None) -> NumberCell:
    """Return a cell with a time, or "unknown"."""
    if milliseconds is None:
        return NumberCell(0, "unknown", True)
    return NumberCell(milliseconds, format_time(milliseconds), True)


def name_markup(text: str, longest: int = _LONGEST_NAME) -> Markup:
    """Render a name from the table; its writing direction does not affect the text around it."""
    shown = shorten_middle(text, longest)
    is_long = max(map(len, shown.split()), default=0) > _LONGEST_WORD
    return tag("bdi", shown, class_="long" if is_long else "short" if len(shown) <= _SHORT else None)


def panel(anchor: str, title: str, lede: object, *body: object) -> Markup:
    """Render a section with its heading and a short description."""
    heading = tag("h2", title, id=f"{anchor}-title")
    return tag("section", heading, tag("p", lede, class_="lede"), *body, id=anchor, aria_labelledby=f"{anchor}-title")


def table(label: str, heads: Sequence[str], rows: Iterable[Sequence[TableCell]], note: str = "") -> Markup:
    """Render a table that can be sorted by each column and scrolls if it is too wide or too long."""
    cells = list(rows)
    if not cells:
        return tag("p", f"{label}: none.", class_="note")
    head_cells = (
        tag("th", tag("button", text, type="button"), scope="col", aria_sort="none", class_=_cell_class(cell))
        for text, cell in zip(heads, cells[0], strict=True)
    )
    head = tag("thead", tag("tr", join_markup(head_cells)))
    body = tag("tbody", join_markup(tag("tr", join_markup(map(_table_cell, row))) for row in cells))
    grid = tag("table", tag("caption", label), head, body, class_="sortable")
    below = tag("p", note, class_="note") if note else ""
    return join_markup((tag("div", grid, class_="scroll", role="region", aria_label=label, tabindex="0"), below))


def _cell_class(cell: TableCell) -> str | None:
    if isinstance(cell, str):
        return None
    return "n t" if isinstance(cell, NumberCell) and cell.is_time else "n"


def _table_cell(cell: TableCell) -> Markup:
    if isinstance(cell, str):
        return tag("td", cell if isinstance(cell, Markup) else name_markup(cell))
    if not isinstance(cell, NumberCell):
        cell = NumberCell(0, "–") if cell is None else NumberCell(cell, f"{cell:,}")
    return tag("td", cell.text, class_=_cell_class(cell), data_v=cell.value)


def legend(pairs: Iterable[tuple[str, str]], kind: str = "") -> Markup:
    """Render the meaning of colours."""
    items = (tag("li", tag("i", class_=f"swatch {colour}"), text) for colour, text in pairs)
    return tag("ul", join_markup(items), class_=f"legend {kind}".strip())


def bar(parts: Iterable[tuple[str, float]], most: float) -> Markup:
    """Render a bar of parts side by side; a part with the value `most` has the full width."""
    rects, start = [], 0.0
    for colour, value in parts:
        width = 100 * value / most if most else 0.0
        if value:
            rects.append(tag("rect", x=f"{start:.2f}%", width=f"{max(width, 0.4):.2f}%", height="12", class_=colour))
        start += width
    return tag("svg", *rects, width="100%", height="12", class_="bar", aria_hidden="true")


def column_chart(bars: Sequence[Bar], label: str, mark_share: float, mark_text: str) -> Markup:
    """Render a chart of columns, with a labelled vertical line at a share of its width."""
    most = max(sum(value for _, value in each.parts) for each in bars)
    slot, floor = 100 / len(bars), _CHART_HEIGHT + 18
    shapes: list[Markup] = [tag("line", x1="0", x2="100%", y1=floor, y2=floor, class_="axis")]
    label_step = -(-len(bars) // 12)
    for index, each in enumerate(bars):
        rects, y = [], float(floor)
        x, width = f"{index * slot + slot * 0.08:.2f}%", f"{slot * 0.84:.2f}%"
        for colour, value in each.parts:
            if value:
                part_height = max(_CHART_HEIGHT * value / most, 2.0)
                y -= part_height
                rects.append(tag("rect", y=f"{y:.1f}", height=f"{part_height:.1f}", class_=colour, x=x, width=width))
        if rects:
            shapes.append(tag("g", tag("title", each.title), *rects))
        if index % label_step == 0:
            wide = "wide" if (index // label_step) % 2 else None  # every other label is hidden if the page is narrow
            x, anchor = ("0", None) if index == 0 and slot < 12 else (f"{(index + 0.5) * slot:.2f}%", "middle")
            shapes.append(tag("text", each.label, x=x, y=floor + 15, text_anchor=anchor, class_=wide))
    x, anchor = f"{mark_share * 100:.2f}%", "end" if mark_share > 0.6 else "start"
    shapes.append(tag("line", x1=x, x2=x, y1="14", y2=floor, class_="mark"))
    shapes.append(tag("text", mark_text, x=x, y="10", text_anchor=anchor, class_="mark"))
    return tag("svg", *shapes, width="100%", height=floor + 22, role="img", aria_label=label, class_="chart")
