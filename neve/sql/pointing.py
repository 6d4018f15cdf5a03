"""Errors that are told after a statement was read point at the words they are about too.

Whoever finds out that a column is unknown has a name in hand, not the text it comes from. Words that stand in several
places are not pointed at: the same name may be right in a subquery.

>>> where_said("UPDATE db.t SET v = a.`No` + 1", "a.no")
(20, 26)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from neve.errors import UserError
from neve.predicate.sql_text import Word, pointed, words

__all__ = ["pointing", "where_said"]


@contextmanager
def pointing(text: str) -> Iterator[None]:
    """Let errors about words of a text point at them."""
    try:
        yield
    except UserError as e:
        if (found := where_said(text, e.words)) is not None:
            e.args = UserError(f"{e} See {pointed(text, *found)}").args
        raise


def where_said(text: str, said: str) -> tuple[int, int] | None:
    """Where words stand in a text, start and end; None unless they stand in one place."""
    try:
        there, wanted = words(text), [_key(word) for word in words(said)]
    except UserError:
        return None
    keys, length = [_key(word) for word in there], len(wanted)
    starts = [at for at, key in enumerate(keys) if [key] == wanted[:1] and keys[at : at + length] == wanted]
    return (there[starts[0]].start, there[starts[0] + length - 1].end) if len(starts) == 1 else None


def _key(word: Word) -> tuple[bool, str]:
    """What two spellings of a word have in common: names are the same in any case, in backticks or without."""
    return word.is_name, word.name.lower() if word.is_name else word.text
