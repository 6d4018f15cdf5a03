"""Tokenize and parse SQL text, with errors that point at a position in the text.

>>> [token.value for token in tokenize_sql("a.`b c` >= 'x'")]
['A', '.', 'b c', '>=', 'x']
>>> raise syntax_error("SQL", "SELECT id FORM t", 10, 14, "unexpected 'FORM'")
Traceback (most recent call last):
neve.errors.UserError: Cannot parse SQL 'SELECT id FORM t': unexpected 'FORM' at line 1, column 11:
  SELECT id FORM t
            ^^^^
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError

from neve.errors import UserError
from neve.predicate.normalize import MAX_DEPTH


class _SqlDialect(Spark):
    """Spark's SQL, with every word as a token; Spark's tokenizer in sqlglot makes one of all that follows a SHOW."""

    class Tokenizer(Spark.Tokenizer):
        COMMANDS = set[TokenType]()  # noqa: RUF012


_SPARK = _SqlDialect()
_STATEMENTS = {*Spark.Tokenizer.COMMANDS, *Spark.Parser.STATEMENT_PARSERS} - {TokenType.SEMICOLON}
_SHORTEST_LIST = 2_000  # characters that a thousand literals have at least
_MAX_SHOWN_CHARACTERS = 100  # of the line with an error


# Quoted text and comments, in which nothing is a list; else IN with whole numbers, or with strings without escapes.
_LONG_LISTS = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*
        |\bIN\s*\((?P<values>\s*(?:-?[0-9]{1,18}(?:\s*,\s*-?[0-9]{1,18}){999,}|'[^'\\]*'(?:\s*,\s*'[^'\\]*'){999,})\s*)\)""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)


# Where quotes or comments may end elsewhere than the pattern says, or where our own names would be taken for a list.
_UNCERTAIN = re.compile(r"""/\*|\\\n|\br['"]|__neve_list_""", re.IGNORECASE)

# What Spark reads as one piece: quoted text, a name (no r'…' begins with its end), and marks of comments and hints.
_PIECES = re.compile(
    r"""[rR]'[^']*'|[rR]"[^"]*"|\w+|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`
        |--(?:\\\n|[^\r\n])*|/\*\+?|\*/""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_MARKS = re.compile(r"/\*(?!\+)|\*/")


@dataclass(frozen=True, slots=True)
class ShortText:
    """SQL text in which a string stands for each long list of IN; other parts keep their positions."""

    text: str
    lists: Mapping[str, Sequence[Any]]  # the values of each list, by the string


def shorten_lists(text: str) -> ShortText:
    """Take lists of a thousand plain literals and more out of a text: a parser would take seconds for them."""
    if len(text) < _SHORTEST_LIST or _UNCERTAIN.search(text):
        return ShortText(text, {})
    parts, lists, end = [], dict[str, Sequence[Any]](), 0
    for match in _LONG_LISTS.finditer(text):
        if (values := match["values"]) is None:
            continue
        name = f"__neve_list_{len(lists)}"
        is_text = values.lstrip().startswith("'")
        lists[name] = re.findall(r"'([^']*)'", values) if is_text else [int(v) for v in values.split(",")]
        start, stop = match.span("values")
        parts += [text[end:start], f"'{name}'".ljust(stop - start)]
        end = stop
    return ShortText("".join([*parts, text[end:]]), lists)


class TokenKind(Enum):
    """The kind of a token."""

    WORD = "a keyword or a name without backticks"
    QUOTED = "a name in backticks"
    STRING = "a string"
    NUMBER = "a number"
    SYMBOL = "an operator or a mark"


@dataclass(frozen=True, slots=True)
class SqlToken:
    """A token of SQL text, and its position."""

    kind: TokenKind
    text: str  # as written
    value: str  # a keyword in capitals; a quoted name or a string without its quotes
    start: int
    end: int  # exclusive

    @property
    def is_name(self) -> bool:
        """True if it can be a name."""
        return self.kind in {TokenKind.WORD, TokenKind.QUOTED}

    @property
    def name(self) -> str:
        """The name as written, without backticks."""
        return self.value if self.kind is TokenKind.QUOTED else self.text

    def matches(self, *values: str) -> bool:
        """Return whether it is one of these keywords or symbols."""
        return self.kind in {TokenKind.WORD, TokenKind.SYMBOL} and self.value in values


def tokenize_sql(text: str, label: str = "SQL") -> tuple[SqlToken, ...]:
    """Split SQL text in Spark's dialect into tokens, without comments."""
    try:
        return tuple(_join_doubled_quotes(_convert_tokens(text, _sqlglot_tokens(text))))
    except TokenError as e:
        raise _unterminated_error(label, text, e) from None


def parse_sql(text: str, label: str = "SQL", *, original_text: str | None = None) -> list[exp.Expression]:
    """Parse expressions, conditions or queries into trees. A first word such as COMMENT is read as a column.

    Errors point into `original_text`, if given: the text before parts of it were replaced by blanks.
    """
    whole = text if original_text is None else original_text
    try:
        return [root for root in _SPARK.parser().parse(_sqlglot_tokens(text), text) if isinstance(root, exp.Expression)]
    except ParseError as e:
        raise _parse_error(label, whole, e) from None
    except TokenError as e:
        raise _unterminated_error(label, whole, e) from None
    except RecursionError:
        raise nesting_error(label) from None
    except (LookupError, TypeError, ValueError, AttributeError) as e:  # sqlglot fails like this on malformed calls
        raise syntax_error(label, whole, None, None, "a function call lacks arguments or cannot be parsed") from e


def syntax_error(
    label: str, text: str, start: int | None, end: int | None, problem: str, *, verb: str = "parse"
) -> UserError:
    """Return the error for a text that cannot be read, with the position of the problem."""
    position = "." if start is None else f" at {describe_position(text, start, start + 1 if end is None else end)}"
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    return UserError(f"Cannot {verb} {label} {shown!r}: {problem}{position}")


def describe_position(text: str, start: int, end: int) -> str:
    """Describe a position: its line and column, and the line with a mark below it."""
    line_start = text.rfind("\n", 0, start) + 1
    line = text[line_start:].split("\n", 1)[0].rstrip("\r")
    column = start - line_start
    cut = max(0, column - _MAX_SHOWN_CHARACTERS // 2)
    shown = line[cut : cut + _MAX_SHOWN_CHARACTERS].replace("\t", " ")
    mark = "^" * max(1, min(end - start, len(shown) - (column - cut)))
    number = text.count("\n", 0, start) + 1
    return f"line {number}, column {column + 1}:\n  {shown}\n  {' ' * (column - cut)}{mark}"


def nesting_error(label: str) -> UserError:
    """Return the error for a text that is nested too deeply."""
    return UserError(f"{label[:1].upper()}{label[1:]} nested too deeply: over {MAX_DEPTH} levels. Flatten it.")


def name_parts(node: exp.Expr) -> list[str] | None:
    """Return the names of a column reference, outermost first; None if the node is no column reference."""
    if isinstance(node, exp.Column):
        return [part.name for part in node.parts]
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        outer = name_parts(node.this)
        return None if outer is None else [*outer, node.expression.name]
    return None


def column_references(roots: Iterable[exp.Expression]) -> Iterator[list[str]]:
    """Yield the names of each column reference, except in subqueries and parameters of lambda functions."""
    waiting: list[tuple[Any, frozenset[str]]] = [(root, frozenset()) for root in [*roots][::-1]]
    while waiting:
        node, parameters = waiting.pop()
        if isinstance(node, exp.Query):
            continue
        if isinstance(node, exp.Lambda):
            waiting.append((node.this, parameters | {p.name.lower() for p in node.expressions}))
        elif (parts := name_parts(node)) is None:
            waiting += reversed([(child, parameters) for child in node.iter_expressions()])
        elif parts[0].lower() not in parameters:
            yield parts


def _sqlglot_tokens(text: str) -> list[Any]:
    """Tokenize SQL text; a first token that would begin a statement becomes a name, as Spark allows such columns."""
    tokens = _SPARK.tokenize(_blank_comments(text))
    if not tokens or tokens[0].token_type not in _STATEMENTS:
        return tokens
    first, *others = tokens
    name = type(first)(TokenType.VAR, first.text, first.line, first.col, first.start, first.end, first.comments)
    return [name, *others]


def _blank_comments(text: str) -> str:
    """Replace comments and hints by blanks, so that positions stay: sqlglot would end some elsewhere than Spark."""
    if "--" not in text and "/*" not in text:
        return text
    parts, end = [], 0
    for start, stop in _comments(text):
        parts += [text[end:start], re.sub(r"[^\n]", " ", text[start:stop])]
        end = stop
    return "".join([*parts, text[end:]])


def _comments(text: str) -> Iterator[tuple[int, int]]:
    """Yield where comments and hints begin and end in Spark.

    A backslash at the end of a line continues `--` in the next line. Comments in brackets can be nested. A hint is made
    of tokens: what is quoted or a comment in it does not end it.
    """
    at, hint = 0, None
    while (piece := _PIECES.search(text, at)) is not None:
        start, at = piece.span()
        if piece[0] == "/*":
            at = _end_of_comment(text, start)
        if piece[0] == "/*+" and hint is None:
            hint = start
        elif piece[0] == "*/" and hint is not None:
            yield hint, at
            hint = None
        elif piece[0].startswith(("--", "/*")) and hint is None:
            yield start, at
    if hint is not None:
        raise TokenError("A hint is not closed")


def _end_of_comment(text: str, start: int) -> int:
    depth = 0
    for mark in _COMMENT_MARKS.finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    raise TokenError("A comment is not closed")


_TOKEN_KINDS = {
    "IDENTIFIER": TokenKind.QUOTED,
    "NUMBER": TokenKind.NUMBER,
    **dict.fromkeys(("STRING", "RAW_STRING", "HEREDOC_STRING", "UNICODE_STRING"), TokenKind.STRING),
}


def _convert_tokens(text: str, tokens: Iterable[Any]) -> Iterator[SqlToken]:
    end = 0
    for token in tokens:
        if token.start < end:  # 1L is three tokens at the same position
            continue
        end = token.end + 1
        written = text[token.start : end]
        is_word = written[:1].isalnum() or written[:1] == "_"
        kind = _TOKEN_KINDS.get(token.token_type.name) or (TokenKind.WORD if is_word else TokenKind.SYMBOL)
        if kind in {TokenKind.QUOTED, TokenKind.STRING}:
            yield SqlToken(kind, written, token.text, token.start, end)
            continue
        for word in re.finditer(r"\S+", written):  # some versions of sqlglot make one token of GROUP BY
            start = token.start + word.start()
            yield SqlToken(kind, word[0], word[0].upper(), start, start + len(word[0]))


def _join_doubled_quotes(tokens: Iterable[SqlToken]) -> list[SqlToken]:
    """Join strings that touch each other: 'a''b' is one string with a quote in it."""
    joined: list[SqlToken] = []
    for token in tokens:
        last, quote = joined[-1] if joined else token, token.text[0]
        is_second = token.kind is last.kind is TokenKind.STRING and last.end == token.start
        if is_second and quote == last.text[0] and quote in "'\"":
            value = f"{last.value}{quote}{token.value}"
            joined[-1] = SqlToken(TokenKind.STRING, last.text + token.text, value, last.start, token.end)
        else:
            joined.append(token)
    return joined


def _parse_error(label: str, text: str, error: ParseError) -> UserError:
    first = error.errors[0] if error.errors else {}
    problem = str(first.get("description") or str(error).splitlines()[0]).rstrip(".")
    if first.get("line") is None:
        return syntax_error(label, text, None, None, problem)
    near = str(first.get("highlight") or "")
    lines = text.split("\n")[: first["line"] - 1]
    end = sum(len(line) + 1 for line in lines) + int(first["col"])
    # sqlglot's description names its classes
    if problem.startswith("Invalid expression"):
        problem = f"unexpected {near!r}"
    elif problem.startswith("Required keyword"):
        problem = f"something is missing near {near!r}"
    else:
        problem = re.sub(r" but got .*", "", problem, flags=re.DOTALL)
    return syntax_error(label, text, end - max(len(near), 1), end, problem)


def _unterminated_error(label: str, text: str, error: TokenError) -> UserError:
    """Return the error for a quote or a comment that is not closed."""
    match = re.fullmatch(r"Missing (.+) from \d+:(\d+)", str(error.__cause__ or error))
    if match:
        return syntax_error(label, text, int(match[2]), None, f"the closing {match[1]} is missing")
    at = text.rfind("/*")
    return syntax_error(label, text, at if at >= 0 else None, at + 2, "a comment or a quote is not closed")
