r"""Build escaped HTML, and show plans and results as cards in notebooks.

Names and values of a table are not trusted. Everything that is not `Markup` is escaped, and characters that cannot be
seen, such as NUL or marks that change the direction of text, are replaced by a visible one. The cards use no scripts.

>>> tag("td", "<script>", title='a "name"', hidden=True)
'<td title="a &quot;name&quot;" hidden>&lt;script&gt;</td>'
>>> escape("x\0y")
'x�y'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from dataclasses import fields
from typing import Any, Protocol
from unicodedata import category

_VOID = frozenset({"br", "col", "input", "link", "meta"})
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;", "`": "&#96;"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def replace_unprintable(text: str) -> str:
    """Replace every character that cannot be seen by U+FFFD; spaces of any kind stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or category(c) == "Zs" else "\ufffd" for c in text)


def shorten_middle(text: str, max_length: int) -> str:
    """Cut text in the middle, because names differ at both ends.

    >>> shorten_middle("year=2026/month=01/day=17", 15)
    'year=20…/day=17'
    """
    if len(text) <= max_length:
        return text
    head = max_length // 2
    return f"{text[:head]}…{text[len(text) - (max_length - head - 1) :]}"


def escape(value: object) -> Markup:
    """Escape a value so that it is safe between tags and between quotes."""
    return value if isinstance(value, Markup) else Markup(replace_unprintable(str(value)).translate(_ESCAPES))


def join_markup(parts: Iterable[object], separator: str = "") -> Markup:
    """Escape values and join them."""
    return Markup(escape(separator).join(map(escape, parts)))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """Return an element. In attribute names `_` becomes `-` and a trailing `_` is dropped.

    An attribute with the value None or False is left out; one with the value True has no value.
    """
    start = f"<{name}"
    for key, value in attributes.items():
        attribute = key.rstrip("_").replace("_", "-")
        if value is not None and value is not False:
            start += f" {attribute}" if value is True else f' {attribute}="{escape(value)}"'
    return Markup(f"{start}>") if name in _VOID else Markup(f"{start}>{join_markup(children)}</{name}>")


_MAX_LINES = 24
_MAX_LINE_LENGTH = 240
_CARD_STYLE = "border-left:3px solid #5b8fb9;padding:.3em 0 .3em .9em;margin:.4em 0;line-height:1.45;max-width:62em"
_KIND_STYLE = "font-size:.8em;opacity:.7;letter-spacing:.02em"
_BODY_STYLE = "margin:.3em 0 0;font-size:.9em;white-space:pre-wrap;overflow-wrap:anywhere;background:none"
_NAME_STYLE = "text-align:left;font-weight:normal;opacity:.7;padding:.05em 1.2em .05em 0;vertical-align:top"
_VALUE_STYLE = "text-align:left;padding:.05em 0;overflow-wrap:anywhere;font-variant-numeric:tabular-nums"


class _HasExplanation(Protocol):
    def explain(self) -> str: ...


class ExplainMixin:
    """Show a plan in a notebook: the text of `explain()` with its first line as the heading."""

    __slots__ = ()

    def _repr_html_(self: _HasExplanation) -> str:
        lines = self.explain().split("\n")
        head = "" if lines[0].startswith("1. ") else lines.pop(0)  # a numbered list has no heading
        shown = [shorten_middle(line, _MAX_LINE_LENGTH) for line in lines[:_MAX_LINES]]
        more = [f"… and {len(lines) - _MAX_LINES:,} more lines"] if len(lines) > _MAX_LINES else []
        body = tag("pre", join_markup((*shown, *more), Markup("\n")), style=_BODY_STYLE) if lines else Markup()
        return card(type(self).__name__, head, body)


class SummaryMixin:
    """Show a result in a notebook: its summary, and each field that is not empty."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        texts: dict[str, str] = {}
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            is_empty = value is None or value == 0 or (isinstance(value, Sized) and not len(value))
            if not is_empty:
                texts[f.name.replace("_", " ")] = _format_value(value)
        return card(type(self).__name__, getattr(self, "summary", ""), pairs_table(texts))


def card(kind: str, head: str, body: Markup) -> str:
    """Return a card: the kind of thing, a heading, and the body."""
    heading = tag("div", tag("strong", shorten_middle(head, _MAX_LINE_LENGTH))) if head else ""
    return str(tag("div", tag("div", kind, style=_KIND_STYLE), heading, body, style=_CARD_STYLE))


def pairs_table(values_by_name: Mapping[str, object]) -> Markup:
    """Return a table with one row for each name and value; long values are shortened."""
    rows = []
    for name, value in values_by_name.items():
        text = value if isinstance(value, Markup) else shorten_middle(str(value), _MAX_LINE_LENGTH)
        head = tag("th", name, scope="row", style=_NAME_STYLE)
        rows.append(tag("tr", head, tag("td", text, style=_VALUE_STYLE)))
    return tag("table", tag("tbody", join_markup(rows)), style="border:0;margin:.3em 0 0;font-size:.9em")


def _format_value(value: Any) -> str:
    """Format numbers with thousands separators, and only the first few elements of a collection."""
    if isinstance(value, Mapping):
        return _join_first([f"{key}: {_format_value(element)}" for key, element in value.items()])
    if isinstance(value, tuple):
        return _join_first([_format_value(element) for element in value])
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) < 1 << 50 else str(value)  # no separators in snapshot ids
    return str(value)


def _join_first(parts: list[str], limit: int = 8) -> str:
    more = [f"… {len(parts) - limit:,} more"] if len(parts) > limit else []
    return ", ".join([*parts[:limit], *more])
