"""Find time travel in SQL text: `VERSION AS OF …` and `TIMESTAMP AS OF …` after the name of a table."""

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
    """A time travel clause: its position in the text, and the state of the table that it selects."""

    start: int
    end: int  # exclusive
    version: int | str | None = None  # a snapshot, or a branch or tag
    timestamp: str | None = None  # an expression


def find_time_travels(text: str, tokens: Sequence[SqlToken]) -> tuple[TimeTravel, ...]:
    """Find every time travel clause in a text."""
    travels = []
    for at in range(len(tokens) - 3):
        word, value = tokens[at], tokens[at + 3]
        if not (word.matches(*_VERSIONS, *_TIMES) and tokens[at + 1].matches("AS") and tokens[at + 2].matches("OF")):
            continue
        start = tokens[at - 1].start if at and tokens[at - 1].matches("FOR") else word.start
        if word.matches(*_VERSIONS):
            is_number = value.kind is TokenKind.NUMBER and value.text.isdecimal()
            if is_number or value.kind is TokenKind.STRING:
                version = int(value.text) if is_number else value.value
                travels.append(TimeTravel(start, value.end, version=version))
            continue
        end = _end_of_operand(tokens, at + 3)
        while end is not None and end < len(tokens) and tokens[end].matches(*_OPERATORS):
            end = _end_of_operand(tokens, end + 1)
        if end is not None:
            stop = tokens[end - 1].end
            travels.append(TimeTravel(start, stop, timestamp=text[value.start : stop]))
    return tuple(travels)


def end_of_parentheses(tokens: Sequence[SqlToken], at: int) -> int | None:
    """Return the index after the parenthesis that closes the one at `at`; None if it is not closed."""
    depth = 0
    for i in range(at, len(tokens)):
        depth += tokens[i].matches("(") - tokens[i].matches(")")
        if depth == 0:
            return i + 1
    return None


def _end_of_operand(tokens: Sequence[SqlToken], at: int) -> int | None:
    token = tokens[at] if at < len(tokens) else None
    if token is None or token.kind in {TokenKind.STRING, TokenKind.NUMBER}:
        return None if token is None else at + 1
    if token.matches("+", "-"):
        return _end_of_operand(tokens, at + 1)
    if token.matches("INTERVAL"):  # 1 DAY 2 HOURS, '1 day' or '1 2' DAY TO HOUR
        end = _end_of_operand(tokens, at + 1)
        while end is not None and end < len(tokens):
            if _is_unit(tokens[end]) or tokens[end].matches("TO"):
                end += 1
            elif tokens[end].kind is TokenKind.NUMBER and end + 1 < len(tokens) and _is_unit(tokens[end + 1]):
                end += 2
            else:
                break
        return end
    return end_of_parentheses(tokens, at) if token.matches("(") else _end_of_name(tokens, at)


def _end_of_name(tokens: Sequence[SqlToken], at: int) -> int | None:
    """Return the index after a function call, `TIMESTAMP '2026-01-01'` or `CURRENT_DATE`; columns are not allowed."""
    token, following = tokens[at], tokens[at + 1] if at + 1 < len(tokens) else None
    if not token.is_name or token.matches("FROM"):
        return None
    if following is not None and following.matches("."):
        return _end_of_operand(tokens, at + 2)
    if following is not None and following.matches("("):
        return end_of_parentheses(tokens, at + 1)
    if token.matches(*_CLOCKS):
        return at + 1
    return at + 2 if following is not None and following.kind is TokenKind.STRING else None


def _is_unit(token: SqlToken) -> bool:
    return token.kind is TokenKind.WORD and token.value.removesuffix("S") in _UNITS
