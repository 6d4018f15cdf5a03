r"""HTML made of values: everything is escaped, unless it is HTML that was made here.

Names and values of a table are hostile until shown otherwise: what could be taken for markup is escaped, and characters
without a shape of their own, such as NUL or marks that turn the direction of writing, become visible.

>>> tag("td", "<script>", title='a "name"', hidden=True)
'<td title="a &quot;name&quot;" hidden>&lt;script&gt;</td>'
>>> escape("x\0y")
'x�y'

What a notebook shows of plans and results: a small card, escaped, without a script.

A class takes part by inheriting from one of the two; what it shows is what it says anyway.
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
    """Text in which every character shows: one that would only have an effect becomes U+FFFD."""
    return text if text.isprintable() else "".join(c if _is_visible(c) else "\ufffd" for c in text)


def _is_visible(character: str) -> bool:
    return character.isprintable() or category(character) == "Zs"


def shorten_middle(text: str, max_length: int) -> str:
    """Text cut in its middle: names differ at both ends.

    >>> shortened("year=2026/month=01/day=17", 15)
    'year=20…/day=17'
    """
    if len(text) <= max_length:
        return text
    head = max_length // 2
    return f"{text[:head]}…{text[len(text) - (max_length - head - 1) :]}"


def escape(value: object) -> Markup:
    """A value as HTML text, safe between tags and between quotes."""
    return value if isinstance(value, Markup) else Markup(replace_unprintable(str(value)).translate(_ESCAPES))


def join_markup(parts: Iterable[object], separator: str = "") -> Markup:
    """Several pieces as one."""
    return Markup(escape(separator).join(map(escape, parts)))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. In the names of attributes `_` stands for `-`, and one at the end is left out; None is left out."""
    said = "".join(_attribute(key, value) for key, value in attributes.items())
    start = f"<{name}{said}>"
    return Markup(start) if name in _VOID else Markup(f"{start}{join_markup(children)}</{name}>")


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(value)}"'


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
    """A plan in a notebook: what `explain()` says, its first line as the heading."""

    __slots__ = ()

    def _repr_html_(self: _HasExplanation) -> str:
        head, *rest = self.explain().split("\n")
        is_step = head.startswith("1. ")  # of a list that has no heading
        return card(
            type(self).__name__, "" if is_step else head, _preformatted_lines([head, *rest] if is_step else rest)
        )


class SummaryMixin:
    """A result in a notebook: its summary, and each field that holds something."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        told = {name.replace("_", " "): _format_value(value) for name, value in values.items() if not _is_empty(value)}
        return card(type(self).__name__, getattr(self, "summary", ""), pairs_table(told))


def card(kind: str, head: str, body: Markup) -> str:
    """A heading below the kind of thing it is about, and what there is to say."""
    heading = tag("div", tag("strong", shorten_middle(head, _MAX_LINE_LENGTH))) if head else ""
    return str(tag("div", tag("div", kind, style=_KIND_STYLE), heading, body, style=_CARD_STYLE))


def pairs_table(values_by_name: Mapping[str, object]) -> Markup:
    """Names and values, a line each."""
    rows = (
        tag("tr", tag("th", name, scope="row", style=_NAME_STYLE), tag("td", _shorten_value(value), style=_VALUE_STYLE))
        for name, value in values_by_name.items()
    )
    return tag("table", tag("tbody", join_markup(rows)), style="border:0;margin:.3em 0 0;font-size:.9em")


def _preformatted_lines(lines: list[str]) -> Markup:
    if not lines:
        return Markup()
    shown = [shorten_middle(line, _MAX_LINE_LENGTH) for line in lines[:_MAX_LINES]]
    more = [f"… and {len(lines) - _MAX_LINES:,} more lines"] if len(lines) > _MAX_LINES else []
    return tag("pre", join_markup((*shown, *more), Markup("\n")), style=_BODY_STYLE)


def _is_empty(value: object) -> bool:
    return value is None or value == 0 or (isinstance(value, Sized) and not len(value))


def _shorten_value(value: object) -> object:
    return value if isinstance(value, Markup) else shorten_middle(str(value), _MAX_LINE_LENGTH)


def _format_value(value: Any) -> str:
    """A value in a few words: numbers with their thousands, of many things the first few."""
    if isinstance(value, Mapping):
        return _join_first(f"{key}: {_format_value(one)}" for key, one in value.items())
    if isinstance(value, tuple):
        return _join_first(map(_format_value, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) < 1 << 50 else str(value)  # ids of snapshots are names, not amounts
    return str(value)


def _join_first(parts: Iterable[str], limit: int = 8) -> str:
    found = list(parts)
    more = [f"… {len(found) - limit:,} more"] if len(found) > limit else []
    return ", ".join([*found[:limit], *more])
