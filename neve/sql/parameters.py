"""Parameters of a statement: `:name` and `?` stand for values that the caller passes beside the text.

>>> bind_parameters("SELECT * FROM db.t WHERE id = :id AND note <> ':id' -- :id", {"id": 5})
"SELECT * FROM db.t WHERE id = 5 AND note <> ':id' -- :id"
>>> bind_parameters("DELETE FROM db.t WHERE name = ? AND n < ?", ["it's", -1])
"DELETE FROM db.t WHERE name = CAST(X'69742773' AS STRING) AND n < (-1)"

Each marker becomes a typed literal before the text is parsed, so that conditions with parameters rule out files. A
value never becomes anything but a literal, whatever the session's rules for quotes and escapes are: text with any
unusual character is written as the bytes of its UTF-8 form.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias

from neve.errors import UserError
from neve.predicate.sql_features import Edit, apply_edits
from neve.predicate.sql_text import SqlToken, syntax_error, tokenize_sql

Parameters: TypeAlias = Mapping[str, Any] | Sequence[Any]

_PLAIN_TEXT = re.compile(r"[\w .,:;/@#%&()+*=<>!?|-]*", re.ASCII)  # no quotes, no escapes, no ${variables}
_MAX_DIGITS = 38
# A colon after one of these begins a parameter; after another name, as in `v:field`, it begins a path.
_WORDS_BEFORE_VALUES = (
    *(
        "AND",
        "OR",
        "NOT",
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "LIKE",
        "ILIKE",
        "RLIKE",
        "REGEXP",
        "ESCAPE",
        "IN",
        "BETWEEN",
    ),
    *("DIV", "SELECT", "DISTINCT", "WHERE", "HAVING", "ON", "BY", "LIMIT", "OFFSET", "OF"),
)


def bind_parameters(text: str, parameters: Parameters | None, *, allows_unused: bool = False) -> str:
    """Replace the markers in a text by literals; every marker needs a value, and every value should have a marker."""
    if parameters is None:
        return text
    if isinstance(parameters, Mapping):
        return apply_edits(text, _named_edits(text, parameters, allows_unused))
    if isinstance(parameters, Sequence) and not isinstance(parameters, str | bytes):
        return apply_edits(text, _positional_edits(text, parameters, allows_unused))
    raise UserError(f"Give args as a dict for :name or as a list for ?, not as {type(parameters).__name__}.")


def _named_edits(text: str, parameters: Mapping[str, Any], allows_unused: bool) -> Iterator[Edit]:
    unused = dict(parameters)
    for marker, name in _markers(text):
        if name is None:
            raise _marker_error(text, marker, marker, "args is a dict, so name the parameter, as in :id")
        if name.name not in parameters:
            raise _marker_error(text, marker, name, f"args has no value for :{name.name}")
        unused.pop(name.name, None)
        yield _edit(text, marker.start, name.end, sql_literal(parameters[name.name], f":{name.name}"))
    if unused and not allows_unused:
        raise UserError(f"The statement has no parameter :{next(iter(unused))}. Remove it from args.")


def _positional_edits(text: str, parameters: Sequence[Any], allows_unused: bool) -> Iterator[Edit]:
    count = 0
    for count, (marker, name) in enumerate(_markers(text), 1):
        if name is not None:
            raise _marker_error(text, marker, name, "args is a list, so write the parameter as ?")
        if count > len(parameters):
            raise _marker_error(text, marker, marker, f"args has only {len(parameters)} values")
        yield _edit(text, marker.start, marker.end, sql_literal(parameters[count - 1], f"parameter {count}"))
    if count < len(parameters) and not allows_unused:
        raise UserError(f"The statement has {count} parameters, but args has {len(parameters)} values.")


def _markers(text: str) -> Iterator[tuple[SqlToken, SqlToken | None]]:
    """Yield the markers of a text: a colon and the name after it, or a question mark.

    The colon of `struct<a: int>` and of `v:field` follows its name directly, or stands inside the brackets of a type.
    """
    words, depth = tokenize_sql(text), 0
    for at, word in enumerate(words):
        before, following = words[at - 1] if at else None, words[at + 1] if at + 1 < len(words) else None
        if depth or (word.text.startswith("<") and before is not None and before.matches("STRUCT")):
            depth += word.text.count("<") - word.text.count(">")
        elif word.matches("?"):
            yield word, None
        elif word.matches(":") and following is not None and following.is_name and not _begins_path(words, at):
            yield word, following


def _begins_path(words: Sequence[SqlToken], at: int) -> bool:
    """Return whether a colon directly follows a name or an expression in brackets, as in `v:field`."""
    before = words[at - 1] if at else None
    if before is None or before.end < words[at].start:
        return False
    is_keyword = before.matches(*_WORDS_BEFORE_VALUES) and not (at > 1 and words[at - 2].matches("."))
    return (before.is_name and not is_keyword) or before.matches(")", "]")


def _edit(text: str, start: int, end: int, literal: str) -> Edit:
    """Return the edit that replaces a marker; the literal never becomes a part of the word before it."""
    before = text[start - 1 : start]
    return start, end, f" {literal}" if before.isalnum() or before == "_" else literal


def _marker_error(text: str, first: SqlToken, last: SqlToken, problem: str) -> UserError:
    return syntax_error("SQL", text, first.start, last.end, problem, verb="run")


def sql_literal(value: Any, name: str) -> str:  # noqa: PLR0911 - one for each type
    """Return a Python value as a literal of its type; `name` is the name of the value in errors."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int() if -(1 << 63) <= value < 1 << 63:
            return str(value) if value >= 0 else f"({value})"  # `a -:x` must not begin a comment
        case float():
            return f"CAST('{'NaN' if math.isnan(value) else value}' AS DOUBLE)"
        case str():
            return _text_literal(value, name)
        case bytes() | bytearray():
            return f"X'{value.hex().upper()}'"
        case Decimal() if (literal := _decimal_literal(value)) is not None:
            return literal
        case datetime():
            return f"TIMESTAMP'{value.isoformat(sep=' ')}'"  # without a zone, it is in the time zone of the session
        case date():
            return f"DATE'{value.isoformat()}'"
        case list() | tuple():
            return f"array({', '.join(sql_literal(item, name) for item in value)})"
        case int():
            raise UserError(f"Cannot pass {name} = {value}: a whole number has 64 bits at most. Pass a Decimal.")
        case Decimal():
            raise UserError(f"Cannot pass {name} = {value}: a decimal has {_MAX_DIGITS} digits at most.")
    raise UserError(
        f"Cannot pass {name} of type {type(value).__name__}: give None, a bool, int, float, str, bytes, Decimal, date "
        "or datetime, or a list of them."
    )


def _text_literal(value: str, name: str) -> str:
    if _PLAIN_TEXT.fullmatch(value):
        return f"'{value}'"
    try:
        return f"CAST(X'{value.encode().hex().upper()}' AS STRING)"
    except UnicodeEncodeError as e:
        raise UserError(f"Cannot pass {name}: {value[e.start]!r} in the text is half of a character.") from None


def _decimal_literal(value: Decimal) -> str | None:
    """Return a decimal with its own precision and scale, as Spark takes it from Python; None if it is too long."""
    if not value.is_finite():
        return None
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits) + max(0, int(exponent)), scale, 1)
    return f"CAST('{value:f}' AS DECIMAL({precision}, {scale}))" if precision <= _MAX_DIGITS else None
