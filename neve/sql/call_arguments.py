"""The types of the arguments of procedures: how the value in a CALL is read, and how errors describe it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from sqlglot import exp

from neve.errors import UserError
from neve.predicate.constants import ConstantKind, parse_constant, parse_instant
from neve.sql.reader import Reader
from neve.sql.statement import Name

ArgumentValues = Mapping[str, Any]
ArgumentReader = Callable[[exp.Expression, tzinfo], Any]  # returns None if the value has another type


@dataclass(frozen=True, slots=True)
class Argument:
    """The type of an argument: how its value is read, and how errors describe it."""

    convert: ArgumentReader
    description: str

    def value(self, name: str, node: exp.Expression, zone: tzinfo) -> Any:
        """Return the value of the argument; NULL counts as not given."""
        if isinstance(node, exp.Null):
            return None
        value = self.convert(node, zone)
        if value is None:
            raise UserError(f"Argument {name!r} is {node.sql('spark')}; it must be {self.description}.")
        return value


def _scalar_reader(*kinds: ConstantKind) -> ArgumentReader:
    def read(node: exp.Expression, zone: tzinfo) -> Any:
        constant = parse_constant(node, zone)
        return constant.value if constant is not None and constant.kind in kinds else None

    return read


def _array_reader(read_item: ArgumentReader) -> ArgumentReader:
    def read(node: exp.Expression, zone: tzinfo) -> Any:
        if not isinstance(node, exp.Array):
            return None
        values = [read_item(item, zone) for item in node.expressions]
        return None if None in values else values

    return read


def _read_string_map(node: exp.Expression, zone: tzinfo) -> Any:
    """Read a map of strings; other constants become strings too, since options are strings."""
    if not isinstance(node, exp.VarMap):
        return None
    sides = (node.args["keys"], node.args["values"])
    keys, values = ([_constant_text(item, zone) for item in side.expressions] for side in sides)
    return None if None in (*keys, *values) or len(keys) != len(values) else dict(zip(keys, values, strict=True))


def _constant_text(node: exp.Expression, zone: tzinfo) -> str | None:
    constant = parse_constant(node, zone)
    kinds = (ConstantKind.STRING, ConstantKind.INTEGER, ConstantKind.BOOLEAN, ConstantKind.DECIMAL)
    if constant is None or constant.kind not in kinds:
        return None
    return str(constant.value).lower() if constant.kind is ConstantKind.BOOLEAN else str(constant.value)


def _read_milliseconds(node: exp.Expression, zone: tzinfo) -> int | None:
    """Read a timestamp, or a string with a timestamp in the time zone of the session."""
    constant = parse_constant(node, zone)
    if constant is not None and constant.kind is ConstantKind.STRING:
        constant = parse_instant(constant.value, zone)
    return int(constant.value) // 1000 if constant is not None and constant.kind is ConstantKind.INSTANT else None


def _read_table_name(node: exp.Expression, zone: tzinfo) -> Name | None:
    constant = parse_constant(node, zone)
    if constant is None or constant.kind is not ConstantKind.STRING:
        return None
    reader = Reader.of(str(constant.value))
    name = reader.table_name()
    reader.expect_end()
    return name


STRING = Argument(_scalar_reader(ConstantKind.STRING), "a string")
INTEGER = Argument(_scalar_reader(ConstantKind.INTEGER), "a whole number")
BOOLEAN = Argument(_scalar_reader(ConstantKind.BOOLEAN), "true or false")
TIMESTAMP = Argument(_read_milliseconds, "a timestamp such as TIMESTAMP '2026-01-31 00:00:00'")
TABLE = Argument(_read_table_name, "the name of a table in quotes")
FILES = Argument(_read_table_name, "a table of Spark, or a folder such as '`parquet`.`/folder`'")
INTEGER_ARRAY = Argument(_array_reader(INTEGER.convert), "whole numbers such as array(1, 2)")
STRING_ARRAY = Argument(_array_reader(STRING.convert), "strings such as array('a', 'b')")
STRING_MAP = Argument(_read_string_map, "pairs such as map('name', 'value')")
