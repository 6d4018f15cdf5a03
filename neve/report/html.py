"""What the sections are made of: panels, numbers, tables that can be sorted, bars and columns.

Widths are in percent and heights in pixels, so that a drawing fits any window and its text keeps its size. Nothing has
a style of its own: the page's policy allows none, colours come from classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from neve.display.format import format_size, format_time
from neve.display.html import Markup, join_markup, shorten_middle, tag

_LONGEST_NAME = 240
_LONGEST_WORD = 24  # a longer one is broken anywhere
_SHORT = 22  # a name that is not longer is not broken at all


@dataclass(frozen=True, slots=True)
class NumberCell:
    """A number in a table: what it is sorted by, and how it reads."""

    value: float
    text: str
    is_time: bool = False


TableCell: TypeAlias = NumberCell | str


@dataclass(frozen=True, slots=True)
class Bar:
    """One column of a chart: its parts from the bottom up, as class and value, and what it says when pointed at."""

    label: str
    parts: tuple[tuple[str, int], ...]
    title: str

    @property
    def total(self) -> int:
        """Its height."""
        return sum(value for _, value in self.parts)


def number_cell(value: int) -> NumberCell:
    """A number with its thousands."""
    return NumberCell(value, f"{value:,}")


def size_cell(value: float) -> NumberCell:
    """A number of bytes."""
    return NumberCell(value, format_size(value))


def time_cell(milliseconds: int | None) -> NumberCell:
    """A time, if it is known."""
    return (
        NumberCell(0, "not known", True)
        if milliseconds is None
        else NumberCell(milliseconds, format_time(milliseconds), True)
    )


def name_markup(text: str, longest: int = _LONGEST_NAME) -> Markup:
    """A name from the table, in the direction of its own script and apart from its surroundings."""
    shown = shorten_middle(text, longest)
    is_long = max(map(len, shown.split()), default=0) > _LONGEST_WORD
    return tag("bdi", shown, class_="long" if is_long else "short" if len(shown) <= _SHORT else None)


def panel(anchor: str, title: str, lede: object, *body: object) -> Markup:
    """A section with its heading, and in a sentence or two what it shows."""
    heading = tag("h2", title, id=f"{anchor}-title")
    return tag("section", heading, tag("p", lede, class_="lede"), *body, id=anchor, aria_labelledby=f"{anchor}-title")


def table(label: str, heads: Sequence[str], rows: Iterable[Sequence[TableCell]], note: str = "") -> Markup:
    """A table that can be sorted by each of its columns; it scrolls by itself where it is too wide or too long."""
    found = list(rows)
    if not found:
        return tag("p", f"{label}: none.", class_="note")
    head = tag("tr", join_markup(_head(text, cell) for text, cell in zip(heads, found[0], strict=True)))
    body = join_markup(tag("tr", join_markup(map(_cell, row))) for row in found)
    grid = tag("table", tag("caption", label), tag("thead", head), tag("tbody", body), class_="sortable")
    under = tag("p", note, class_="note") if note else ""
    return join_markup((tag("div", grid, class_="scroll", role="region", aria_label=label, tabindex="0"), under))


def _head(text: str, cell: TableCell) -> Markup:
    return tag("th", tag("button", text, type="button"), scope="col", aria_sort="none", class_=_cell_class(cell))


def _cell_class(cell: TableCell) -> str | None:
    return ("n t" if cell.is_time else "n") if isinstance(cell, NumberCell) else None


def _cell(cell: TableCell) -> Markup:
    if isinstance(cell, NumberCell):
        return tag("td", cell.text, class_=_cell_class(cell), data_v=cell.value)
    return tag("td", cell if isinstance(cell, Markup) else name_markup(cell))


def legend(pairs: Iterable[tuple[str, str]], kind: str = "") -> Markup:
    """What the colours mean."""
    items = (tag("li", tag("i", class_=f"swatch {colour}"), text) for colour, text in pairs)
    return tag("ul", join_markup(items), class_=f"legend {kind}".strip())


def bar(parts: Iterable[tuple[str, float]], most: float) -> Markup:
    """A bar of parts side by side, as long as they are of the most there is."""
    drawn, start = [], 0.0
    for colour, value in parts:
        width = 100 * value / most if most else 0.0
        if value:
            drawn.append(tag("rect", x=f"{start:.2f}%", width=f"{max(width, 0.4):.2f}%", height="12", class_=colour))
        start += width
    return tag("svg", *drawn, width="100%", height="12", class_="bar", aria_hidden="true")


def column_chart(bars: Sequence[Bar], label: str, height: int = 150, marks: Sequence[tuple[float, str]] = ()) -> Markup:
    """A chart of columns; marks are lines at a share of its width, with a word each."""
    most, slot, floor = max((b.total for b in bars), default=0), 100 / max(len(bars), 1), height + 18
    drawn: list[Markup] = [tag("line", x1="0", x2="100%", y1=floor, y2=floor, class_="axis")]
    every = -(-len(bars) // 12)
    for at, one in enumerate(bars):
        drawn.append(_chart_column(one, at * slot, slot, height, most, floor))
        if one.label and at % every == 0:
            drawn.append(_column_label(one.label, at, slot, floor + 15, is_extra=bool((at // every) % 2)))
    for place, word in marks:
        drawn.append(_mark(place, word, floor))
    return tag("svg", *drawn, width="100%", height=floor + 22, role="img", aria_label=label, class_="chart")


def _column_label(label: str, at: int, slot: float, foot: int, is_extra: bool) -> Markup:
    """The label of a column; every other one is left out where there is little room."""
    wide = "wide" if is_extra else None
    if at == 0 and slot < 12:
        return tag("text", label, x="0", y=foot, class_=wide)
    return tag("text", label, x=f"{(at + 0.5) * slot:.2f}%", y=foot, text_anchor="middle", class_=wide)


def _chart_column(one: Bar, left: float, slot: float, height: int, most: int, floor: int) -> Markup:
    pieces, top = [], float(floor)
    for colour, value in one.parts:
        tall = max(height * value / most, 2.0) if most and value else 0.0
        top -= tall
        if tall:
            place = {"x": f"{left + slot * 0.08:.2f}%", "width": f"{slot * 0.84:.2f}%"}
            pieces.append(tag("rect", y=f"{top:.1f}", height=f"{tall:.1f}", class_=colour, **place))
    return tag("g", tag("title", one.title), *pieces) if pieces else Markup()


def _mark(place: float, word: str, floor: int) -> Markup:
    at, anchor = f"{place * 100:.2f}%", "end" if place > 0.6 else "start"
    line = tag("line", x1=at, x2=at, y1="14", y2=floor, class_="mark")
    return join_markup((line, tag("text", word, x=at, y="10", text_anchor=anchor, class_="mark")))
