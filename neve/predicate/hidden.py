"""Columns that a table has beside those it shows: a text gets them by naming them, and `*` does not mean them.

>>> "_file" in names_in("SELECT _file, count(*) FROM db.t GROUP BY _file")
True
>>> without("SELECT *, _file FROM db.t", ["_file"])
'SELECT * EXCEPT (`_file`), _file FROM db.t'
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise

from neve.errors import UserError
from neve.predicate.fragment import edited
from neve.predicate.source import Word, words
from neve.predicate.tables import quoted

__all__ = ["names_in", "without"]

_BEFORE_A_STAR = ("SELECT", "DISTINCT", "ALL", ",", ".")


def names_in(text: str) -> frozenset[str]:
    """All names in a text, whatever they are names of."""
    return frozenset(word.name for word in words(text) if word.is_name)


def without(text: str, hidden: Collection[str]) -> str:
    """The query with `*` for all columns but some; one that has several SELECT must say what it means."""
    stars = list(_stars(words(text))) if hidden else []
    if stars and sum(word.says("SELECT") for word in words(text)) > 1:
        raise UserError(
            f"Cannot tell whether * means {', '.join(sorted(hidden))} too, in a query with more than one SELECT. "
            "Name the columns instead of *."
        )
    but = f" EXCEPT ({', '.join(quoted(name) for name in hidden)})"
    return edited(text, ((star.end, star.end, but) for star in stars))


def _stars(found: tuple[Word, ...]) -> Iterator[Word]:
    """The stars that mean columns, and not a product or all rows."""
    for before, word in pairwise(found):
        if word.text == "*" and before.says(*_BEFORE_A_STAR):
            yield word
