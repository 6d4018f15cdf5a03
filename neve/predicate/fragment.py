"""A piece of SQL text: an expression, a condition or a whole query, with its words and its tree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp

from neve.predicate.source import Word, parsed, words, wrong
from neve.predicate.temporal import TimeTravel, time_travels

__all__ = ["Edit", "Fragment", "edited", "fragment"]

_STATEMENTS = (exp.Command, exp.DDL, exp.DML, exp.Drop, exp.Alter, exp.Set, exp.Use, exp.Describe, exp.TruncateTable)
Edit = tuple[int, int, str]  # where from, where to, what comes there


@dataclass(frozen=True)
class Fragment:
    """A piece of SQL text; nodes of the tree know their places in the text."""

    text: str
    words: tuple[Word, ...]
    travels: tuple[TimeTravel, ...]  # not in the tree
    root: exp.Expression


def fragment(text: str) -> Fragment:
    """Read one expression, condition or query."""
    found = words(text)
    travels = time_travels(text, found)
    # sqlglot knows some spellings of time travel, which ones depends on its version
    roots = parsed(edited(text, ((t.start, t.end, " " * (t.end - t.start)) for t in travels)))
    if len(roots) != 1 or isinstance(roots[0], _STATEMENTS):
        raise wrong("SQL", text, None, None, "it is not one expression, condition or query")
    return Fragment(text, found, travels, roots[0])


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text with edits made; none may overlap."""
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text
