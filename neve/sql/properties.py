"""ALTER TABLE … SET and UNSET TBLPROPERTIES."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.predicate.sql_text import Kind
from neve.sql.options import Options
from neve.sql.reader import Reader
from neve.sql.target import Name, table_named
from neve.table import Table

if TYPE_CHECKING:
    from neve.lake import Lake

__all__ = ["SetProperties", "UnsetProperties", "properties_in", "set_properties", "unset_properties"]


@dataclass(frozen=True)
class SetProperties:
    """`ALTER TABLE t SET TBLPROPERTIES ('name' = 'value')`; the property `format-version` upgrades the table."""

    table: Name
    properties: Mapping[str, str]

    def run(self, lake: Lake, options: Options) -> Table:
        """Set the properties."""
        options.only("ALTER TABLE")
        return table_named(lake, self.table).set_properties(**self.properties)


@dataclass(frozen=True)
class UnsetProperties:
    """`ALTER TABLE t UNSET TBLPROPERTIES ('name')`; one that is not set is left alone."""

    table: Name
    names: tuple[str, ...]

    def run(self, lake: Lake, options: Options) -> Table:
        """Remove the properties."""
        options.only("ALTER TABLE")
        return table_named(lake, self.table).remove_properties(*self.names)


def set_properties(reader: Reader, table: Name) -> SetProperties:
    """Read what follows SET TBLPROPERTIES."""
    return SetProperties(table, properties_in(reader))


def unset_properties(reader: Reader, table: Name) -> UnsetProperties:
    """Read what follows UNSET TBLPROPERTIES."""
    reader.took("IF", "EXISTS")
    return UnsetProperties(table, reader.in_brackets(lambda: _name(reader)))


def properties_in(reader: Reader) -> dict[str, str]:
    """Names and values in brackets; none of the names may come twice."""
    found: dict[str, str] = {}

    def one() -> None:
        at, (name, value) = reader.word, _property(reader)
        if name in found:
            raise reader.wrong(f"property {name!r} is given twice", at)
        found[name] = value

    reader.in_brackets(one)
    return found


def _property(reader: Reader) -> tuple[str, str]:
    name = _name(reader)
    reader.took("=")
    sign = "-" if reader.took("-") else ""
    word = reader.word
    if word is None or word.kind is Kind.SYMBOL:
        raise reader.wrong(f"expected the value of {name!r}")
    reader.at += 1
    return name, f"{sign}{word.value if word.kind is Kind.STRING else word.text}"


def _name(reader: Reader) -> str:
    word = reader.word
    if word is not None and word.kind is Kind.STRING:
        return reader.string("a property")
    return ".".join(reader.dotted("a property"))
