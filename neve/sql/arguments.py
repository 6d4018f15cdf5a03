"""Arguments of procedures: constants in SQL text, by name or by place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from sqlglot import exp

from neve.errors import UserError
from neve.predicate.constants import Constant, Kind, constant, instant, parse_timestamp
from neve.predicate.sql_text import Word, parsed
from neve.sql.reader import Reader
from neve.sql.statement import Name

Zone = tzinfo
Read = Callable[[exp.Expression, Zone], Any]  # the value of an argument; None when it is not one of its kind


@dataclass(frozen=True, slots=True)
class Argument:
    """What an argument takes: how its value is read, and the words for it."""

    read: Read
    words: str

    def value(self, name: str, node: exp.Expression, zone: Zone) -> Any:
        """The value that was given; NULL is as if it were not."""
        found = None if isinstance(node, exp.Null) else self.read(node, zone)
        if found is None and not isinstance(node, exp.Null):
            raise UserError(f"Argument {name!r} is {node.sql('spark')}; it must be {self.words}.")
        return found


def arguments(reader: Reader, procedure: str, known: Mapping[str, Argument]) -> dict[str, exp.Expression]:
    """Read arguments in brackets: some by their place, then some by their names."""
    found: dict[str, exp.Expression] = {}
    reader.expect("(")
    while not reader.sees(")"):
        if found:
            reader.expect(",")
        start = reader.word
        name = _name(reader, procedure, tuple(known), found)
        if name in found:
            raise reader.wrong(f"argument {name!r} is given twice", start)
        found[name] = _constant(reader, start)
    reader.expect(")")
    return found


def _name(reader: Reader, procedure: str, known: tuple[str, ...], found: Mapping[str, Any]) -> str:
    """The name of the next argument; one without a name has the next of the names."""
    takes = f"{procedure} takes {', '.join(known)}"
    if reader.at + 1 < len(reader.words) and reader.words[reader.at + 1].says("=>"):
        word = reader.name_word("the name of an argument")
        if word.name.lower() not in known:
            raise reader.wrong(f"unknown argument {word.name!r}: {takes}", word)
        reader.expect("=>")
        return word.name.lower()
    if tuple(found) != known[: len(found)]:
        raise reader.wrong("an argument after one with a name needs a name too")
    if len(found) == len(known):
        raise reader.wrong(f"too many arguments: {takes}")
    return known[len(found)]


def _constant(reader: Reader, start: Word | None) -> exp.Expression:
    written = reader.until(",", ")", what="a value")
    roots = parsed(written)
    if len(roots) != 1:
        raise reader.wrong("expected one value", start)
    return roots[0]


def _scalar(*kinds: Kind) -> Read:
    def read(node: exp.Expression, zone: Zone) -> Any:
        found = constant(node, zone)
        return found.value if found is not None and found.kind in kinds else None

    return read


def _items(of: Read) -> Read:
    def read(node: exp.Expression, zone: Zone) -> Any:
        if not isinstance(node, exp.Array):
            return None
        values = [of(item, zone) for item in node.expressions]
        return None if None in values else values

    return read


def _pairs(node: exp.Expression, zone: Zone) -> Any:
    """A map of texts; other constants are taken as they are written, since options are texts."""
    if not isinstance(node, exp.VarMap):
        return None
    keys, values = (
        [_spelt(item, zone) for item in side.expressions] for side in (node.args["keys"], node.args["values"])
    )
    return None if None in (*keys, *values) or len(keys) != len(values) else dict(zip(keys, values, strict=True))


def _spelt(node: exp.Expression, zone: Zone) -> str | None:
    found = constant(node, zone)
    if found is None or found.kind not in (Kind.STRING, Kind.INTEGER, Kind.BOOLEAN, Kind.DECIMAL):
        return None
    return str(found.value).lower() if found.kind is Kind.BOOLEAN else str(found.value)


def _milliseconds(node: exp.Expression, zone: Zone) -> int | None:
    """A timestamp, or a text that is one on the clock of the session."""
    found = constant(node, zone)
    if found is not None and found.kind is Kind.STRING:
        found = _clock(found.value, zone)
    return int(found.value) // 1000 if found is not None and found.kind is Kind.INSTANT else None


def _clock(written: str, zone: Zone) -> Constant | None:
    told = parse_timestamp(written)
    return None if told is None else Constant(Kind.INSTANT, instant(told[0], told[1] or zone))


def _table(node: exp.Expression, zone: Zone) -> Name | None:
    found = constant(node, zone)
    if found is None or found.kind is not Kind.STRING:
        return None
    reader = Reader.of(str(found.value))
    name = reader.table_name()
    reader.end()
    return name


text = Argument(_scalar(Kind.STRING), "a string")
number = Argument(_scalar(Kind.INTEGER), "a whole number")
flag = Argument(_scalar(Kind.BOOLEAN), "true or false")
time = Argument(_milliseconds, "a timestamp such as TIMESTAMP '2026-01-31 00:00:00'")
table = Argument(_table, "the name of a table in quotes")
numbers = Argument(_items(number.read), "whole numbers such as array(1, 2)")
texts = Argument(_items(text.read), "strings such as array('a', 'b')")
mapping = Argument(_pairs, "pairs such as map('name', 'value')")
