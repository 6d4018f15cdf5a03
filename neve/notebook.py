"""What a notebook shows of plans and results: a small card, escaped, without a script.

A class takes part by inheriting from one of the two; what it shows is what it says anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from dataclasses import fields
from typing import Any, Protocol

from neve.markup import Markup, joined, shortened, tag

__all__ = ["Explained", "Summarised", "card", "pairs"]

_MOST_LINES = 24
_LONGEST_LINE = 240
_CARD = "border-left:3px solid #5b8fb9;padding:.3em 0 .3em .9em;margin:.4em 0;line-height:1.45;max-width:62em"
_KIND = "font-size:.8em;opacity:.7;letter-spacing:.02em"
_BODY = "margin:.3em 0 0;font-size:.9em;white-space:pre-wrap;overflow-wrap:anywhere;background:none"
_NAME = "text-align:left;font-weight:normal;opacity:.7;padding:.05em 1.2em .05em 0;vertical-align:top"
_VALUE = "text-align:left;padding:.05em 0;overflow-wrap:anywhere;font-variant-numeric:tabular-nums"


class _HasExplanation(Protocol):
    def explain(self) -> str: ...


class Explained:
    """A plan in a notebook: what `explain()` says, its first line as the heading."""

    __slots__ = ()

    def _repr_html_(self: _HasExplanation) -> str:
        head, *rest = self.explain().split("\n")
        is_step = head.startswith("1. ")  # of a list that has no heading
        return card(type(self).__name__, "" if is_step else head, _lines([head, *rest] if is_step else rest))


class Summarised:
    """A result in a notebook: its summary, and each field that holds something."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        told = {name.replace("_", " "): _said(value) for name, value in values.items() if not _is_nothing(value)}
        return card(type(self).__name__, getattr(self, "summary", ""), pairs(told))


def card(kind: str, head: str, body: Markup) -> str:
    """A heading below the kind of thing it is about, and what there is to say."""
    heading = tag("div", tag("strong", shortened(head, _LONGEST_LINE))) if head else ""
    return str(tag("div", tag("div", kind, style=_KIND), heading, body, style=_CARD))


def pairs(told: Mapping[str, object]) -> Markup:
    """Names and values, a line each."""
    rows = (
        tag("tr", tag("th", name, scope="row", style=_NAME), tag("td", _cut(value), style=_VALUE))
        for name, value in told.items()
    )
    return tag("table", tag("tbody", joined(rows)), style="border:0;margin:.3em 0 0;font-size:.9em")


def _lines(lines: list[str]) -> Markup:
    if not lines:
        return Markup()
    shown = [shortened(line, _LONGEST_LINE) for line in lines[:_MOST_LINES]]
    more = [f"… and {len(lines) - _MOST_LINES:,} more lines"] if len(lines) > _MOST_LINES else []
    return tag("pre", joined((*shown, *more), Markup("\n")), style=_BODY)


def _is_nothing(value: object) -> bool:
    return value is None or value == 0 or (isinstance(value, Sized) and not len(value))


def _cut(value: object) -> object:
    return value if isinstance(value, Markup) else shortened(str(value), _LONGEST_LINE)


def _said(value: Any) -> str:
    """A value in a few words: numbers with their thousands, of many things the first few."""
    if isinstance(value, Mapping):
        return _several(f"{key}: {_said(one)}" for key, one in value.items())
    if isinstance(value, tuple):
        return _several(map(_said, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) < 1 << 50 else str(value)  # ids of snapshots are names, not amounts
    return str(value)


def _several(parts: Iterable[str], most: int = 8) -> str:
    found = list(parts)
    more = [f"… {len(found) - most:,} more"] if len(found) > most else []
    return ", ".join([*found[:most], *more])
