"""Read a statement token by token.

The reader handles the frame of a statement: keywords, names, brackets and commas. Expressions, conditions and queries
are cut out of the text as they are written.

>>> reader = Reader.of("DELETE FROM db.t WHERE id IN (SELECT id FROM db.gone WHERE at > 5)")
>>> reader.take_if_next("DELETE", "FROM"), reader.table_name(), reader.take_if_next("WHERE"), reader.remaining_text()
(True, ('db', 't'), True, 'id IN (SELECT id FROM db.gone WHERE at > 5)')

Errors that are raised after parsing point at the text too. The code that finds out that a column is unknown has only
its name, so the name is searched in the text. If it occurs several times, nothing is marked: the same name may be right
in a subquery.

>>> find_words("UPDATE db.t SET v = a.`No` + 1", "a.no")
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
    """A position in a statement, which moves forward as tokens are read."""

    text: str
    words: tuple[SqlToken, ...]
    position: int = 0

    @classmethod
    def of(cls, text: str) -> Reader:
        """Return a reader at the first token of one statement; semicolons at the end are dropped."""
        words = list(tokenize_sql(text))
        while words and words[-1].matches(";"):
            words.pop()
        return cls(text, tuple(words))

    @property
    def word(self) -> SqlToken | None:
        """The next token; None at the end."""
        return self.words[self.position] if self.position < len(self.words) else None

    def sees(self, *values: str) -> bool:
        """Return whether these keywords come next."""
        ahead = self.words[self.position : self.position + len(values)]
        return len(ahead) == len(values) and all(word.matches(value) for word, value in zip(ahead, values, strict=True))

    def sees_one_of(self, *values: str) -> bool:
        """Return whether one of these keywords comes next."""
        return self.word is not None and self.word.matches(*values)

    def take_if_next(self, *values: str) -> bool:
        """Read these keywords if they come next, and return whether they do."""
        is_next = self.sees(*values)
        self.position += len(values) if is_next else 0
        return is_next

    def expect(self, *values: str) -> None:
        """Read keywords that must come next."""
        for value in values:
            if not self.take_if_next(value):
                raise self.syntax_error(f"expected {value}")

    def name(self, what: str) -> str:
        """Read a name that must come next."""
        return self.name_word(what).name

    def name_word(self, what: str) -> SqlToken:
        """Read the token of a name that must come next."""
        return self._take_token(what, lambda word: word.is_name)

    def dotted_name(self, what: str) -> tuple[str, ...]:
        """Read a name of one or more parts."""
        return tuple(word.name for word in self.dotted_name_words(what))

    def dotted_name_words(self, what: str) -> tuple[SqlToken, ...]:
        """Read the tokens of a name of one or more parts."""
        parts = [self.name_word(what)]
        while self.take_if_next("."):
            parts.append(self.name_word(what))
        return tuple(parts)

    def table_name(self) -> tuple[str, ...]:
        """Read the name of a table."""
        return self.dotted_name("the name of a table")

    def alias(self) -> str | None:
        """Read an alias, if one comes next."""
        if self.take_if_next("AS"):
            return self.name("an alias")
        is_alias = self.word is not None and self.word.is_name and not self.word.matches(*_NEVER_ALIASES)
        return self.name("an alias") if is_alias else None

    def skip_time_travel(self) -> bool:
        """Skip `VERSION AS OF …` or `TIMESTAMP AS OF …`, and return whether it comes next."""
        start = None if self.word is None else self.word.start
        travel = next((t for t in find_time_travels(self.text, self.words) if t.start == start), None)
        while travel is not None and self.word is not None and self.word.start < travel.end:
            self.position += 1
        return travel is not None

    def string(self, what: str) -> str:
        """Read a string that must come next."""
        return self._take_token(f"{what} in quotes", lambda word: word.kind is TokenKind.STRING).value

    def number(self, what: str) -> int:
        """Read a whole number that must come next."""
        token = self._take_token(what, lambda word: word.kind is TokenKind.NUMBER and word.text.isdecimal())
        return int(token.text)

    def text_until(self, *stops: str, what: str) -> str:
        """Read the text up to one of these keywords, outside of brackets and CASE … END; it must not be empty."""
        start, closing = self.position, [""]  # the closing token of each open bracket
        while (word := self.word) is not None and not (len(closing) == 1 and self._is_keyword(*stops)):
            if self._is_keyword(*_OPENING):
                closing.append(_CLOSING[_OPENING.index(word.value)])
            elif self._is_keyword(closing[-1]):
                closing.pop()
            elif word.matches(")", "]", "}"):
                raise self.syntax_error(f"unexpected {word.text!r}")
            self.position += 1
        if self.position == start:
            raise self.syntax_error(f"expected {what}")
        if len(closing) > 1:
            raise self.syntax_error(f"the closing {closing[-1]} is missing")
        return self.text[self.words[start].start : self.words[self.position - 1].end]

    def expression(self, *stops: str, what: str) -> str:
        """Read a value or a condition up to one of these keywords; errors point at their position in the statement."""
        start = self.position
        written = self.text_until(*stops, what=what)
        before = self.text[: self.words[start].start]
        parse_fragment(re.sub(r"[^\n]", " ", before) + written, original_text=self.text)
        return written

    def remaining_text(self, what: str = "more") -> str:
        """Read the text up to the end."""
        return self.text_until(what=what)

    def expect_end(self) -> None:
        """Reject anything that follows."""
        if self.word is not None:
            raise self.syntax_error(f"unexpected {self.word.text!r}")

    def bracketed_list(self, item: Callable[[], T]) -> tuple[T, ...]:
        """Read items in parentheses, separated by commas."""
        self.expect("(")
        items = self.comma_list(item)
        self.expect(")")
        return items

    def comma_list(self, item: Callable[[], T]) -> tuple[T, ...]:
        """Read one or more items, separated by commas."""
        items = [item()]
        while self.take_if_next(","):
            items.append(item())
        return tuple(items)

    def optionally_bracketed_list(self, item: Callable[[], T]) -> tuple[T, ...]:
        """Read items separated by commas, in parentheses or without."""
        return self.bracketed_list(item) if self.sees("(") else self.comma_list(item)

    def bracketed_text(self, what: str) -> str:
        """Read the text inside a pair of parentheses."""
        self.expect("(")
        inside = self.text_until(")", what=what)
        self.expect(")")
        return inside

    def syntax_error(self, problem: str, at: SqlToken | None = None) -> UserError:
        """Return the error that the next token, or another one, is wrong."""
        word = at or self.word
        if word is not None:
            return syntax_error("SQL", self.text, word.start, word.end, problem)
        end = self.words[-1].end if self.words else 0
        return syntax_error("SQL", self.text, end, end + 1, problem)

    def _take_token(self, what: str, is_expected: Callable[[SqlToken], bool]) -> SqlToken:
        word = self.word
        if word is None or not is_expected(word):
            raise self.syntax_error(f"expected {what}")
        self.position += 1
        return word

    def _is_keyword(self, *words: str) -> bool:
        """Return whether the next token is one of these; after a dot, any word is the name of a column."""
        follows_dot = self.position > 0 and self.words[self.position - 1].matches(".")
        return self.words[self.position].matches(*words) and not follows_dot


@contextmanager
def point_at_source(text: str) -> Iterator[None]:
    """Make errors about words of a text point at them."""
    try:
        yield
    except UserError as e:
        if (span := find_words(text, e.words)) is not None:
            e.args = UserError(f"{e} See {describe_position(text, *span)}").args
        raise


def find_words(text: str, phrase: str) -> tuple[int, int] | None:
    """Return the start and end of a phrase in a text; None unless it occurs exactly once."""
    try:
        words, sought = tokenize_sql(text), [_comparison_key(word) for word in tokenize_sql(phrase)]
    except UserError:
        return None
    keys, length = [_comparison_key(word) for word in words], len(sought)
    starts = [at for at, key in enumerate(keys) if [key] == sought[:1] and keys[at : at + length] == sought]
    return (words[starts[0]].start, words[starts[0] + length - 1].end) if len(starts) == 1 else None


def _comparison_key(word: SqlToken) -> tuple[bool, str]:
    """Return a key that is the same for all forms of a name: in any case, with or without backticks."""
    return word.is_name, word.name.lower() if word.is_name else word.text
