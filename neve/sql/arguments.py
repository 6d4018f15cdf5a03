"""Arguments of procedures: constants in SQL text, by name or by place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from sqlglot import exp

from neve.errors import UserError
from neve.predicate.constants import Constant, ConstantKind, local_to_utc_micros, parse_constant, parse_timestamp
from neve.predicate.sql_text import SqlToken, parse_sql
from neve.sql.reader import Reader
from neve.sql.statement import Name

Zone = tzinfo
ArgumentReader = Callable[[exp.Expression, Zone], Any]  # the value of an argument; None when it is not one of its kind


@dataclass(frozen=True, slots=True)
class Argument:
    """What an argument takes: how its value is read, and the words for it."""

    convert: ArgumentReader
    description: str

    def value(self, name: str, node: exp.Expression, zone: Zone) -> Any:
        """The value that was given; NULL is as if it were not."""
        found = None if isinstance(node, exp.Null) else self.convert(node, zone)
        if found is None and not isinstance(node, exp.Null):
            raise UserError(f"Argument {name!r} is {node.sql('spark')}; it must be {self.description}.")
        return found


def parse_arguments(reader: Reader, procedure: str, parameters: Mapping[str, Argument]) -> dict[str, exp.Expression]:
    """Read arguments in brackets: some by their place, then some by their names."""
    found: dict[str, exp.Expression] = {}
    reader.expect("(")
    while not reader.sees(")"):
        if found:
            reader.expect(",")
        start = reader.word
        name = _argument_name(reader, procedure, tuple(parameters), found)
        if name in found:
            raise reader.syntax_error(f"argument {name!r} is given twice", start)
        found[name] = _parse_constant(reader, start)
    reader.expect(")")
    return found


def _argument_name(
    reader: Reader, procedure: str, parameter_names: tuple[str, ...], previous_arguments: Mapping[str, Any]
) -> str:
    """The name of the next argument; one without a name has the next of the names."""
    takes = f"{procedure} takes {', '.join(parameter_names)}"
    if reader.position + 1 < len(reader.words) and reader.words[reader.position + 1].matches("=>"):
        word = reader.name_word("the name of an argument")
        if word.name.lower() not in parameter_names:
            raise reader.syntax_error(f"unknown argument {word.name!r}: {takes}", word)
        reader.expect("=>")
        return word.name.lower()
    if tuple(previous_arguments) != parameter_names[: len(previous_arguments)]:
        raise reader.syntax_error("an argument after one with a name needs a name too")
    if len(previous_arguments) == len(parameter_names):
        raise reader.syntax_error(f"too many arguments: {takes}")
    return parameter_names[len(previous_arguments)]


def _parse_constant(reader: Reader, start: SqlToken | None) -> exp.Expression:
    written = reader.text_until(",", ")", what="a value")
    roots = parse_sql(written)
    if len(roots) != 1:
        raise reader.syntax_error("expected one value", start)
    return roots[0]


def _scalar_reader(*kinds: ConstantKind) -> ArgumentReader:
    def read(node: exp.Expression, zone: Zone) -> Any:
        found = parse_constant(node, zone)
        return found.value if found is not None and found.kind in kinds else None

    return read


def _array_reader(read_item: ArgumentReader) -> ArgumentReader:
    def read(node: exp.Expression, zone: Zone) -> Any:
        if not isinstance(node, exp.Array):
            return None
        values = [read_item(item, zone) for item in node.expressions]
        return None if None in values else values

    return read


def _string_map(node: exp.Expression, zone: Zone) -> Any:
    """A map of texts; other constants are taken as they are written, since options are texts."""
    if not isinstance(node, exp.VarMap):
        return None
    keys, values = (
        [_constant_text(item, zone) for item in side.expressions] for side in (node.args["keys"], node.args["values"])
    )
    return None if None in (*keys, *values) or len(keys) != len(values) else dict(zip(keys, values, strict=True))


def _constant_text(node: exp.Expression, zone: Zone) -> str | None:
    found = parse_constant(node, zone)
    if found is None or found.kind not in (
        ConstantKind.STRING,
        ConstantKind.INTEGER,
        ConstantKind.BOOLEAN,
        ConstantKind.DECIMAL,
    ):
        return None
    return str(found.value).lower() if found.kind is ConstantKind.BOOLEAN else str(found.value)


def _milliseconds(node: exp.Expression, zone: Zone) -> int | None:
    """A timestamp, or a text that is one on the clock of the session."""
    found = parse_constant(node, zone)
    if found is not None and found.kind is ConstantKind.STRING:
        found = _clock(found.value, zone)
    return int(found.value) // 1000 if found is not None and found.kind is ConstantKind.INSTANT else None


def _clock(written: str, zone: Zone) -> Constant | None:
    told = parse_timestamp(written)
    return None if told is None else Constant(ConstantKind.INSTANT, local_to_utc_micros(told[0], told[1] or zone))


def _table_name(node: exp.Expression, zone: Zone) -> Name | None:
    found = parse_constant(node, zone)
    if found is None or found.kind is not ConstantKind.STRING:
        return None
    reader = Reader.of(str(found.value))
    name = reader.table_name()
    reader.expect_end()
    return name


string_argument = Argument(_scalar_reader(ConstantKind.STRING), "a string")
integer_argument = Argument(_scalar_reader(ConstantKind.INTEGER), "a whole number")
boolean_argument = Argument(_scalar_reader(ConstantKind.BOOLEAN), "true or false")
timestamp_argument = Argument(_milliseconds, "a timestamp such as TIMESTAMP '2026-01-31 00:00:00'")
table_argument = Argument(_table_name, "the name of a table in quotes")
integer_array_argument = Argument(_array_reader(integer_argument.convert), "whole numbers such as array(1, 2)")
string_array_argument = Argument(_array_reader(string_argument.convert), "strings such as array('a', 'b')")
string_map_argument = Argument(_string_map, "pairs such as map('name', 'value')")
