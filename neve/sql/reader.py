"""Read a statement word by word.

The reader knows the frame of a statement: keywords, names, brackets and commas. Expressions, conditions and queries are
cut out of the text as they are written, for those who understand them.

>>> reader = Reader.of("DELETE FROM db.t WHERE id IN (SELECT id FROM db.gone WHERE at > 5)")
>>> reader.took("DELETE", "FROM"), reader.table_name(), reader.took("WHERE"), reader.rest()
(True, ('db', 't'), True, 'id IN (SELECT id FROM db.gone WHERE at > 5)')

Errors that are told after a statement was read point at the words they are about too.

Whoever finds out that a column is unknown has a name in hand, not the text it comes from. Words that stand in several
places are not pointed at: the same name may be right in a subquery.

>>> where_said("UPDATE db.t SET v = a.`No` + 1", "a.no")
(20, 26)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from neve.errors import UserError
from neve.predicate.sql_features import parse_fragment
from neve.predicate.sql_text import SqlToken, TokenKind, describe_position, syntax_error, tokenize_sql
from neve.predicate.time_travel import find_time_travels

T = TypeVar("T")

_OPENING, _CLOSING = ("(", "[", "{", "CASE"), (")", "]", "}", "END")
_NEVER_ALIASES = ("SET", "USING", "ON", "WHERE", "WHEN", "VERSION", "TIMESTAMP", "FOR", "TABLESAMPLE")


@dataclass
class Reader:
    """A place in a statement that moves forward as words are taken."""

    text: str
    words: tuple[SqlToken, ...]
    position: int = 0

    @classmethod
    def of(cls, text: str) -> Reader:
        """A reader at the first word of one statement; the semicolon that may end it is left out."""
        found = list(tokenize_sql(text))
        while found and found[-1].matches(";"):
            found.pop()
        return cls(text, tuple(found))

    @property
    def word(self) -> SqlToken | None:
        """The word to be read next; None at the end."""
        return self.words[self.position] if self.position < len(self.words) else None

    def sees(self, *values: str) -> bool:
        """Whether these keywords come next."""
        ahead = self.words[self.position : self.position + len(values)]
        return len(ahead) == len(values) and all(word.matches(value) for word, value in zip(ahead, values, strict=True))

    def sees_one_of(self, *values: str) -> bool:
        """Whether one of these keywords comes next."""
        return self.word is not None and self.word.matches(*values)

    def take_if_next(self, *values: str) -> bool:
        """Take these keywords if they come next."""
        is_next = self.sees(*values)
        self.position += len(values) if is_next else 0
        return is_next

    def expect(self, *values: str) -> None:
        """Take keywords that must come next."""
        for value in values:
            if not self.take_if_next(value):
                raise self.syntax_error(f"expected {value}")

    def name(self, what: str) -> str:
        """A name that must come next."""
        return self.name_word(what).name

    def name_word(self, what: str) -> SqlToken:
        """The word of a name that must come next."""
        word = self.word
        if word is None or not word.is_name:
            raise self.syntax_error(f"expected {what}")
        self.position += 1
        return word

    def dotted_name(self, what: str) -> tuple[str, ...]:
        """A name of several parts."""
        return tuple(word.name for word in self.dotted_name_words(what))

    def dotted_name_words(self, what: str) -> tuple[SqlToken, ...]:
        """The words of a name of several parts."""
        parts = [self.name_word(what)]
        while self.take_if_next("."):
            parts.append(self.name_word(what))
        return tuple(parts)

    def table_name(self) -> tuple[str, ...]:
        """The name of a table."""
        return self.dotted_name("the name of a table")

    def alias(self) -> str | None:
        """An alias, if one comes next."""
        if self.take_if_next("AS"):
            return self.name("an alias")
        is_alias = self.word is not None and self.word.is_name and not self.word.matches(*_NEVER_ALIASES)
        return self.name("an alias") if is_alias else None

    def skip_time_travel(self) -> bool:
        """Take `VERSION AS OF …` or `TIMESTAMP AS OF …`, if one comes next."""
        here = None if self.word is None else self.word.start
        travel = next((t for t in find_time_travels(self.text, self.words) if t.start == here), None)
        while travel is not None and self.word is not None and self.word.start < travel.end:
            self.position += 1
        return travel is not None

    def string(self, what: str) -> str:
        """A string that must come next."""
        word = self.word
        if word is None or word.kind is not TokenKind.STRING:
            raise self.syntax_error(f"expected {what} in quotes")
        self.position += 1
        return word.value

    def number(self, what: str) -> int:
        """A whole number that must come next."""
        word = self.word
        if word is None or word.kind is not TokenKind.NUMBER or not word.text.isdecimal():
            raise self.syntax_error(f"expected {what}")
        self.position += 1
        return int(word.text)

    def text_until(self, *stops: str, what: str) -> str:
        """The text up to one of these keywords, outside of brackets and CASE … END; it must not be empty."""
        start, open_ = self.position, [""]
        while self.word is not None and not (len(open_) == 1 and self._is_keyword(*stops)):
            self._advance(open_)
        if self.position == start:
            raise self.syntax_error(f"expected {what}")
        if len(open_) > 1:
            raise self.syntax_error(f"the closing {open_[-1]} is missing")
        return self.text[self.words[start].start : self.words[self.position - 1].end]

    def expression(self, *stops: str, what: str) -> str:
        """The text of a value or a condition up to one of these keywords; what is wrong in it is told in its place."""
        start = self.position
        written = self.text_until(*stops, what=what)
        before = self.text[: self.words[start].start]
        parse_fragment(re.sub(r"[^\n]", " ", before) + written, original_text=self.text)
        return written

    def remaining_text(self, what: str = "more") -> str:
        """The text up to the end."""
        return self.text_until(what=what)

    def expect_end(self) -> None:
        """Nothing may follow."""
        if self.word is not None:
            raise self.syntax_error(f"unexpected {self.word.text!r}")

    def bracketed_list(self, item: Callable[[], T]) -> tuple[T, ...]:
        """Items in brackets with commas between them."""
        self.expect("(")
        found = self.comma_list(item)
        self.expect(")")
        return found

    def comma_list(self, item: Callable[[], T]) -> tuple[T, ...]:
        """Items with commas between them, at least one."""
        found = [item()]
        while self.take_if_next(","):
            found.append(item())
        return tuple(found)

    def optionally_bracketed_list(self, item: Callable[[], T]) -> tuple[T, ...]:
        """Items with commas between them, in brackets or without."""
        return self.bracketed_list(item) if self.sees("(") else self.comma_list(item)

    def bracketed_text(self, what: str) -> str:
        """The text inside of a pair of brackets."""
        self.expect("(")
        inside = self.text_until(")", what=what)
        self.expect(")")
        return inside

    def syntax_error(self, problem: str, at: SqlToken | None = None) -> UserError:
        """The error that the word here, or another, is wrong."""
        word = at or self.word
        if word is not None:
            return syntax_error("SQL", self.text, word.start, word.end, problem)
        end = self.words[-1].end if self.words else 0
        return syntax_error("SQL", self.text, end, end + 1, problem)

    def _advance(self, open_: list[str]) -> None:
        """Go one word on; `open_` has the word that closes each bracket that is open."""
        word = self.words[self.position]
        if self._is_keyword(*_OPENING):
            open_.append(_CLOSING[_OPENING.index(word.value)])
        elif self._is_keyword(open_[-1]):
            open_.pop()
        elif word.matches(")", "]", "}"):
            raise self.syntax_error(f"unexpected {word.text!r}")
        self.position += 1

    def _is_keyword(self, *words: str) -> bool:
        """Whether the word here is one of these; after a dot it is the name of a column, whatever it is."""
        return self.words[self.position].matches(*words) and not (
            self.position and self.words[self.position - 1].matches(".")
        )


@contextmanager
def point_at_source(text: str) -> Iterator[None]:
    """Let errors about words of a text point at them."""
    try:
        yield
    except UserError as e:
        if (found := find_words(text, e.words)) is not None:
            e.args = UserError(f"{e} See {describe_position(text, *found)}").args
        raise


def find_words(text: str, phrase: str) -> tuple[int, int] | None:
    """Where words stand in a text, start and end; None unless they stand in one place."""
    try:
        there, wanted = tokenize_sql(text), [_comparison_key(word) for word in tokenize_sql(phrase)]
    except UserError:
        return None
    keys, length = [_comparison_key(word) for word in there], len(wanted)
    starts = [at for at, key in enumerate(keys) if [key] == wanted[:1] and keys[at : at + length] == wanted]
    return (there[starts[0]].start, there[starts[0] + length - 1].end) if len(starts) == 1 else None


def _comparison_key(word: SqlToken) -> tuple[bool, str]:
    """What two spellings of a word have in common: names are the same in any case, in backticks or without."""
    return word.is_name, word.name.lower() if word.is_name else word.text
