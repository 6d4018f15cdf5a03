"""Time travel in SQL text: `VERSION AS OF …` and `TIMESTAMP AS OF …` behind the name of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neve.predicate.sql_text import SqlToken, TokenKind

_VERSIONS, _TIMES = ("VERSION", "SYSTEM_VERSION"), ("TIMESTAMP", "SYSTEM_TIME")
_OPERATORS = ("+", "-", "*", "/", "%", "||", "DIV")
_CLOCKS = ("CURRENT_TIMESTAMP", "CURRENT_DATE", "LOCALTIMESTAMP")
_UNITS = {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"}


@dataclass(frozen=True, slots=True)
class TimeTravel:
    """Which state of a table is meant, and where the text says so."""

    start: int
    end: int  # exclusive
    version: int | str | None = None  # a snapshot, or a branch or tag
    timestamp: str | None = None  # an expression


def find_time_travels(text: str, tokens: Sequence[SqlToken]) -> tuple[TimeTravel, ...]:
    """Every clause of time travel in a text."""
    found = (_time_travel_at(text, tokens, at) for at in range(len(tokens)))
    return tuple(travel for travel in found if travel is not None)


def end_of_parentheses(tokens: Sequence[SqlToken], at: int) -> int | None:
    """Where the text goes on behind the bracket that opens here."""
    depth = 0
    for i in range(at, len(tokens)):
        depth += tokens[i].matches("(") - tokens[i].matches(")")
        if depth == 0:
            return i + 1
    return None


def _time_travel_at(text: str, tokens: Sequence[SqlToken], at: int) -> TimeTravel | None:
    if at + 3 >= len(tokens) or not tokens[at].matches(*_VERSIONS, *_TIMES):
        return None
    if not (tokens[at + 1].matches("AS") and tokens[at + 2].matches("OF")):
        return None
    start = tokens[at - 1].start if at and tokens[at - 1].matches("FOR") else tokens[at].start
    if tokens[at].matches(*_VERSIONS):
        return _version_travel(start, tokens[at + 3])
    end = _end_of_expression(tokens, at + 3)
    if end is None:
        return None
    stop = tokens[end - 1].end
    return TimeTravel(start, stop, timestamp=text[tokens[at + 3].start : stop])


def _version_travel(start: int, token: SqlToken) -> TimeTravel | None:
    if token.kind is TokenKind.NUMBER and token.text.isdecimal():
        return TimeTravel(start, token.end, version=int(token.text))
    return TimeTravel(start, token.end, version=token.value) if token.kind is TokenKind.STRING else None


def _end_of_expression(tokens: Sequence[SqlToken], at: int) -> int | None:
    """Behind a value expression: operands and operators, as far as they go."""
    end = _end_of_operand(tokens, at)
    while end is not None and end < len(tokens) and tokens[end].matches(*_OPERATORS):
        end = _end_of_operand(tokens, end + 1)
    return end


def _end_of_operand(tokens: Sequence[SqlToken], at: int) -> int | None:
    word = tokens[at] if at < len(tokens) else None
    if word is None or word.kind in {TokenKind.STRING, TokenKind.NUMBER}:
        return None if word is None else at + 1
    if word.matches("+", "-"):
        return _end_of_operand(tokens, at + 1)
    if word.matches("INTERVAL"):
        return _end_of_interval(tokens, at + 1)
    return end_of_parentheses(tokens, at) if word.matches("(") else _end_of_name(tokens, at)


def _end_of_name(tokens: Sequence[SqlToken], at: int) -> int | None:
    """Behind a function call, `TIMESTAMP '2026-01-01'` or `CURRENT_DATE`; a column has no place there."""
    word, following = tokens[at], tokens[at + 1] if at + 1 < len(tokens) else None
    if not word.is_name or word.matches("FROM"):
        return None
    if following is not None and following.matches("."):
        return _end_of_operand(tokens, at + 2)
    if following is not None and following.matches("("):
        return end_of_parentheses(tokens, at + 1)
    if word.matches(*_CLOCKS):
        return at + 1
    return at + 2 if following is not None and following.kind is TokenKind.STRING else None


def _end_of_interval(tokens: Sequence[SqlToken], at: int) -> int | None:
    """Behind `1 DAY 2 HOURS`, `'1 day'` or `'1 2' DAY TO HOUR`."""
    end = _end_of_operand(tokens, at)
    while end is not None and end < len(tokens):
        if _is_unit(tokens[end]) or tokens[end].matches("TO"):
            end += 1
        elif tokens[end].kind is TokenKind.NUMBER and end + 1 < len(tokens) and _is_unit(tokens[end + 1]):
            end += 2
        else:
            break
    return end


def _is_unit(token: SqlToken) -> bool:
    return token.kind is TokenKind.WORD and token.value.removesuffix("S") in _UNITS
