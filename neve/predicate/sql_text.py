"""SQL text: its words with their places, its parse tree, and errors that point at a place.

>>> [w.value for w in words("a.`b c` >= 'x'")]
['A', '.', 'b c', '>=', 'x']
>>> raise wrong("SQL", "SELECT id FORM t", 10, 14, "unexpected 'FORM'")
Traceback (most recent call last):
neve.errors.UserError: Cannot parse SQL 'SELECT id FORM t': unexpected 'FORM' at line 1, column 11:
  SELECT id FORM t
            ^^^^
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sqlglot import TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError

from neve.errors import UserError
from neve.predicate.normalize import MAX_DEPTH

_SPARK = Dialect.get_or_raise("spark")
_COMMANDS = frozenset(_SPARK.tokenizer_class.COMMANDS)  # to sqlglot what follows is one word, for somebody else to read
_STATEMENTS = _COMMANDS | {*_SPARK.parser_class.STATEMENT_PARSERS} - {TokenType.SEMICOLON}
_SHOWN = 100  # characters of a line shown around the place of an error


class Kind(Enum):
    """What a word of SQL text is."""

    WORD = "a keyword or a name without backticks"
    QUOTED = "a name in backticks"
    STRING = "a string"
    NUMBER = "a number"
    SYMBOL = "an operator or a mark"


@dataclass(frozen=True, slots=True)
class Word:
    """A word of SQL text and where it stands."""

    kind: Kind
    text: str  # as written
    value: str  # a keyword in capitals; a quoted name or a string without its quotes
    start: int
    end: int  # exclusive

    @property
    def is_name(self) -> bool:
        """Whether it can be a name."""
        return self.kind in {Kind.WORD, Kind.QUOTED}

    @property
    def name(self) -> str:
        """The name it is: as written, without backticks."""
        return self.value if self.kind is Kind.QUOTED else self.text

    def says(self, *values: str) -> bool:
        """Whether it is one of these keywords or marks."""
        return self.kind in {Kind.WORD, Kind.SYMBOL} and self.value in values


def words(text: str, what: str = "SQL") -> tuple[Word, ...]:
    """The words of SQL text in Spark's dialect, without comments."""
    try:
        return tuple(_words(text, _tokens(text)))
    except TokenError as e:
        raise _torn(what, text, e) from None


def parsed(text: str, what: str = "SQL", *, shown: str | None = None) -> list[exp.Expression]:
    """The parse trees of SQL text: of expressions, conditions or queries. A first word such as COMMENT is a column.

    Errors point into `shown`, if it is given: the text before something in it was made blank.
    """
    whole = text if shown is None else shown
    try:
        return [root for root in _SPARK.parser().parse(_tokens(text), text) if isinstance(root, exp.Expression)]
    except ParseError as e:
        raise _unexpected(what, whole, e) from None
    except TokenError as e:
        raise _torn(what, whole, e) from None
    except RecursionError:
        raise too_deep(what) from None
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
    ) as e:  # sqlglot trips over odd calls
        raise wrong(what, whole, None, None, "a function in it lacks arguments, or cannot be read") from e


def wrong(what: str, text: str, start: int | None, end: int | None, problem: str, *, verb: str = "parse") -> UserError:
    """The error that a text cannot be read, with the place that is wrong."""
    place = "" if start is None else f" at {pointed(text, start, start + 1 if end is None else end)}"
    return UserError(f"Cannot {verb} {what} {_shortened(text)}: {problem}{place or '.'}")


def pointed(text: str, start: int, end: int) -> str:
    """Line and column of a place, and the line with a mark below it."""
    line_start = text.rfind("\n", 0, start) + 1
    line = text[line_start:].split("\n", 1)[0].rstrip("\r")
    column = start - line_start
    cut = max(0, column - _SHOWN // 2)
    shown = line[cut : cut + _SHOWN].replace("\t", " ")
    mark = "^" * max(1, min(end - start, len(shown) - (column - cut)))
    number = text.count("\n", 0, start) + 1
    return f"line {number}, column {column + 1}:\n  {shown}\n  {' ' * (column - cut)}{mark}"


def too_deep(what: str) -> UserError:
    """The error that a text nests without end."""
    return UserError(f"{what[:1].upper()}{what[1:]} nested too deeply: over {MAX_DEPTH} levels. Flatten it.")


def parts_of(node: exp.Expression) -> list[str] | None:
    """The names of a column reference, outermost first."""
    if isinstance(node, exp.Column):
        return [part.name for part in node.parts]
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        outer = parts_of(node.this)
        return None if outer is None else [*outer, node.expression.name]
    return None


def column_parts(roots: Iterable[exp.Expression]) -> Iterator[list[str]]:
    """The names of each column reference, not those in subqueries, nor the parameters of lambda functions."""
    nothing: frozenset[str] = frozenset()
    waiting: list[tuple[Any, frozenset[str]]] = [(root, nothing) for root in [*roots][::-1]]
    while waiting:
        node, parameters = waiting.pop()
        if isinstance(node, exp.Query):
            continue
        if isinstance(node, exp.Lambda):
            waiting.append((node.this, parameters | {p.name.lower() for p in node.expressions}))
        elif (parts := parts_of(node)) is None:
            waiting += reversed([(child, parameters) for child in node.iter_expressions()])
        elif parts[0].lower() not in parameters:
            yield parts


def _tokens(text: str) -> list[Any]:
    """The tokens of SQL text; the first is a name where it would begin a statement: Spark has such columns too."""
    found = _SPARK.tokenize(text)
    if not found or found[0].token_type not in _STATEMENTS:
        return found
    first, *others = found
    if first.token_type in _COMMANDS:
        others = _SPARK.tokenize(f"{text[: first.start]}{' ' * len(first.text)}{text[first.end + 1 :]}")
    return [_name(first), *others]


def _name(token: Any) -> Any:
    return type(token)(TokenType.VAR, token.text, token.line, token.col, token.start, token.end, token.comments)


def _words(text: str, tokens: Iterable[Any]) -> Iterator[Word]:
    end = 0
    for token in tokens:
        if token.start < end:  # 1L is three tokens in one place
            continue
        end = token.end + 1
        yield from _split(token, text[token.start : end])


def _split(token: Any, written: str) -> Iterator[Word]:
    kind = _kind(token, written)
    if kind in {Kind.QUOTED, Kind.STRING}:
        yield Word(kind, written, token.text, token.start, token.end + 1)
        return
    for found in re.finditer(r"\S+", written):  # GROUP BY is one token, which it is depends on the version of sqlglot
        start = token.start + found.start()
        yield Word(kind, found[0], found[0].upper(), start, start + len(found[0]))


def _kind(token: Any, written: str) -> Kind:
    name = token.token_type.name
    if name == "IDENTIFIER":
        return Kind.QUOTED
    if name in {"STRING", "RAW_STRING", "HEREDOC_STRING", "UNICODE_STRING"}:
        return Kind.STRING
    if name == "NUMBER":
        return Kind.NUMBER
    return Kind.WORD if written[0].isalnum() or written[0] == "_" else Kind.SYMBOL


def _unexpected(what: str, text: str, error: ParseError) -> UserError:
    first = error.errors[0] if error.errors else {}
    problem = str(first.get("description") or str(error).splitlines()[0]).rstrip(".")
    if first.get("line") is None:
        return wrong(what, text, None, None, problem)
    near = str(first.get("highlight") or "")
    lines = text.split("\n")[: first["line"] - 1]
    end = sum(len(line) + 1 for line in lines) + int(first["col"])
    return wrong(what, text, end - max(len(near), 1), end, _plainly(problem, near))


def _plainly(problem: str, near: str) -> str:
    """What sqlglot says of a place, without its class names."""
    if problem.startswith("Invalid expression"):
        return f"unexpected {near!r}"
    if problem.startswith("Required keyword"):
        return f"something is missing near {near!r}"
    return re.sub(r" but got .*", "", problem, flags=re.DOTALL)


def _torn(what: str, text: str, error: TokenError) -> UserError:
    """A quote or a comment without an end."""
    found = re.fullmatch(r"Missing (.+) from \d+:(\d+)", str(error.__cause__ or error))
    if found:
        return wrong(what, text, int(found[2]), None, f"the closing {found[1]} is missing")
    at = text.rfind("/*")
    return wrong(what, text, at if at >= 0 else None, at + 2, "a comment or a quote does not end")


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
