"""Time travel in SQL text: `VERSION AS OF …` and `TIMESTAMP AS OF …` behind the name of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neve.predicate.sql_text import Kind, Word

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


def time_travels(text: str, words: Sequence[Word]) -> tuple[TimeTravel, ...]:
    """Every clause of time travel in a text."""
    found = (_time_travel(text, words, at) for at in range(len(words)))
    return tuple(travel for travel in found if travel is not None)


def after_group(words: Sequence[Word], at: int) -> int | None:
    """Where the text goes on behind the bracket that opens here."""
    depth = 0
    for i in range(at, len(words)):
        depth += words[i].says("(") - words[i].says(")")
        if depth == 0:
            return i + 1
    return None


def _time_travel(text: str, words: Sequence[Word], at: int) -> TimeTravel | None:
    if at + 3 >= len(words) or not words[at].says(*_VERSIONS, *_TIMES):
        return None
    if not (words[at + 1].says("AS") and words[at + 2].says("OF")):
        return None
    start = words[at - 1].start if at and words[at - 1].says("FOR") else words[at].start
    if words[at].says(*_VERSIONS):
        return _version(start, words[at + 3])
    end = _after_expression(words, at + 3)
    if end is None:
        return None
    stop = words[end - 1].end
    return TimeTravel(start, stop, timestamp=text[words[at + 3].start : stop])


def _version(start: int, word: Word) -> TimeTravel | None:
    if word.kind is Kind.NUMBER and word.text.isdecimal():
        return TimeTravel(start, word.end, version=int(word.text))
    return TimeTravel(start, word.end, version=word.value) if word.kind is Kind.STRING else None


def _after_expression(words: Sequence[Word], at: int) -> int | None:
    """Behind a value expression: operands and operators, as far as they go."""
    end = _after_operand(words, at)
    while end is not None and end < len(words) and words[end].says(*_OPERATORS):
        end = _after_operand(words, end + 1)
    return end


def _after_operand(words: Sequence[Word], at: int) -> int | None:
    word = words[at] if at < len(words) else None
    if word is None or word.kind in {Kind.STRING, Kind.NUMBER}:
        return None if word is None else at + 1
    if word.says("+", "-"):
        return _after_operand(words, at + 1)
    if word.says("INTERVAL"):
        return _after_interval(words, at + 1)
    return after_group(words, at) if word.says("(") else _after_name(words, at)


def _after_name(words: Sequence[Word], at: int) -> int | None:
    """Behind a function call, `TIMESTAMP '2026-01-01'` or `CURRENT_DATE`; a column has no place there."""
    word, following = words[at], words[at + 1] if at + 1 < len(words) else None
    if not word.is_name or word.says("FROM"):
        return None
    if following is not None and following.says("."):
        return _after_operand(words, at + 2)
    if following is not None and following.says("("):
        return after_group(words, at + 1)
    if word.says(*_CLOCKS):
        return at + 1
    return at + 2 if following is not None and following.kind is Kind.STRING else None


def _after_interval(words: Sequence[Word], at: int) -> int | None:
    """Behind `1 DAY 2 HOURS`, `'1 day'` or `'1 2' DAY TO HOUR`."""
    end = _after_operand(words, at)
    while end is not None and end < len(words):
        if _is_unit(words[end]) or words[end].says("TO"):
            end += 1
        elif words[end].kind is Kind.NUMBER and end + 1 < len(words) and _is_unit(words[end + 1]):
            end += 2
        else:
            break
    return end


def _is_unit(word: Word) -> bool:
    return word.kind is Kind.WORD and word.value.removesuffix("S") in _UNITS
