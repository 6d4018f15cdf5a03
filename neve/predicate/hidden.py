"""Columns that a table has beside those it shows: `*` does not mean them.

>>> without("SELECT *, _file FROM db.t", ["_file"])
'SELECT * EXCEPT (`_file`), _file FROM db.t'
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from neve.errors import UserError
from neve.predicate.fragment import edited
from neve.predicate.names import quoted
from neve.predicate.source import Word, words

__all__ = ["without"]

_BEFORE_A_STAR = ("SELECT", "DISTINCT", "ALL", ",", ".", "(", "*/")


def without(text: str, hidden: Collection[str]) -> str:
    """The text with `*` for all columns but some; one that is not as plain as that must name the columns."""
    found = words(text)
    stars = list(_stars(found)) if hidden else []
    is_plain = sum(w.says("SELECT") for w in found) == 1 and not any(w.says("JOIN", "EXCEPT") for w in found)
    if stars and not (is_plain and all(found[at - 1].says("SELECT", "DISTINCT", "ALL", ",", ".") for at in stars)):
        raise UserError(
            f"Cannot tell whether * means {', '.join(sorted(hidden))} too in this query. Name the columns instead of *."
        )
    but = f" EXCEPT ({', '.join(quoted(name) for name in hidden)})"
    return edited(text, ((found[at].end, found[at].end, but) for at in stars))


def _stars(found: Sequence[Word]) -> Iterator[int]:
    """Where the stars stand that mean columns, and not a product or all rows."""
    for at in range(1, len(found)):
        counts = at > 1 and found[at - 1].says("(") and found[at - 2].says("COUNT")
        if found[at].text == "*" and found[at - 1].says(*_BEFORE_A_STAR) and not counts:
            yield at
