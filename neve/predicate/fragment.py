"""A piece of SQL text: an expression, a condition or a whole query, with its words and its tree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from neve.errors import UserError
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


def fragment(text: str, *, shown: str | None = None) -> Fragment:
    """Read one expression, condition or query; errors point into `shown`, if it is given: the text before blanks."""
    whole, found = text if shown is None else shown, words(text)
    travels = time_travels(text, found)
    # sqlglot knows some spellings of time travel, which ones depends on its version
    roots = parsed(edited(text, ((t.start, t.end, " " * (t.end - t.start)) for t in travels)), shown=whole)
    if len(roots) != 1 or isinstance(roots[0], _STATEMENTS):
        raise wrong("SQL", whole, None, None, "it is not one expression, condition or query")
    if isinstance(roots[0], exp.Alias | exp.Aliases):
        raise _named(whole, roots[0])
    return Fragment(text, found, travels, roots[0])


def _named(text: str, root: exp.Alias | exp.Aliases) -> UserError:
    """The error that a value has a name, as in `a = b c`: more likely an operator is missing than a name is meant."""
    alias: Any = root.args["alias"] if isinstance(root, exp.Alias) else root.expressions[0]
    start, end = alias.meta.get("start"), alias.meta.get("end")
    return wrong("SQL", text, start, None if end is None else end + 1, f"unexpected alias {alias.name!r}")


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text with edits made; none may overlap."""
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text
