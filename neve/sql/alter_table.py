"""ALTER TABLE.

This module handles partition fields, properties, branches, tags and RENAME TO; changes of columns are in
`alter_columns`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import neve.catalog as tables
from neve.ops.context import LakeContext
from neve.predicate.sql_text import TokenKind
from neve.sql.alter_columns import (
    SetIdentifierFields,
    parse_add_columns,
    parse_alter_column,
    parse_drop_columns,
    parse_rename_column,
)
from neve.sql.reader import Reader
from neve.sql.statement import Name, Statement, StatementOptions, find_table, identifier
from neve.table import Table


@dataclass(frozen=True)
class TableChange(ABC):
    """An ALTER TABLE that calls a method of the table."""

    table: Name

    def run(self, lake: LakeContext, options: StatementOptions) -> Table:
        """Change the table."""
        options.require_only("ALTER TABLE")
        return self._apply(find_table(lake, self.table))

    @abstractmethod
    def _apply(self, table: Table) -> Table: ...


@dataclass(frozen=True)
class EvolvePartitions(TableChange):
    """`ALTER TABLE t ADD PARTITION FIELD bucket(16, id) AS shard`, and DROP and REPLACE."""

    add: tuple[str, ...] = ()  # an expression, optionally with AS and a name
    drop: tuple[str, ...] = ()  # an expression or a name

    def _apply(self, table: Table) -> Table:
        return table.evolve_partitions(self.add, self.drop)


def _parse_replace_partition_field(reader: Reader, table: Name) -> EvolvePartitions:
    dropped = _parse_existing_field(reader)
    reader.expect("WITH")
    return EvolvePartitions(table, (reader.remaining_text("a partition field"),), (dropped,))


def _parse_existing_field(reader: Reader) -> str:
    """Parse an existing field: its name without backticks, or its expression."""
    start = reader.position
    text = reader.text_until("WITH", what="a partition field")
    return reader.words[start].name if reader.position == start + 1 else text


@dataclass(frozen=True)
class SetProperties(TableChange):
    """`ALTER TABLE t SET TBLPROPERTIES ('name' = 'value')`; the property `format-version` upgrades the table."""

    properties: Mapping[str, str]

    def _apply(self, table: Table) -> Table:
        return table.set_properties(**self.properties)


@dataclass(frozen=True)
class UnsetProperties(TableChange):
    """`ALTER TABLE t UNSET TBLPROPERTIES ('name')`; names that are not set are ignored."""

    names: tuple[str, ...]

    def _apply(self, table: Table) -> Table:
        return table.remove_properties(*self.names)


def _parse_unset_properties(reader: Reader, table: Name) -> UnsetProperties:
    reader.take_if_next("IF", "EXISTS")
    return UnsetProperties(table, reader.bracketed_list(lambda: _parse_property_name(reader)))


def parse_properties(reader: Reader) -> dict[str, str]:
    """Parse names and values in parentheses; no name may come twice."""
    properties: dict[str, str] = {}

    def parse_property() -> None:
        at, name = reader.word, _parse_property_name(reader)
        reader.take_if_next("=")
        sign = "-" if reader.take_if_next("-") else ""
        word = reader.word
        if word is None or word.kind is TokenKind.SYMBOL:
            raise reader.syntax_error(f"expected the value of {name!r}")
        reader.position += 1
        if name in properties:
            raise reader.syntax_error(f"property {name!r} is given twice", at)
        properties[name] = f"{sign}{word.value if word.kind is TokenKind.STRING else word.text}"

    reader.bracketed_list(parse_property)
    return properties


def _parse_property_name(reader: Reader) -> str:
    word = reader.word
    if word is not None and word.kind is TokenKind.STRING:
        return reader.string("a property")
    return ".".join(reader.dotted_name("a property"))


RefKind = Literal["branch", "tag"]


@dataclass(frozen=True)
class CreateRef(TableChange):
    """`ALTER TABLE t CREATE BRANCH audit AS OF VERSION 3`."""

    kind: RefKind
    name: str
    snapshot_id: int | None = None
    if_not_exists: bool = False

    def _apply(self, table: Table) -> Table:
        if self.if_not_exists and self.name in table.context.metadata.refs:
            return table
        create = table.create_branch if self.kind == "branch" else table.create_tag
        return create(self.name, self.snapshot_id)


@dataclass(frozen=True)
class DropRef(TableChange):
    """`ALTER TABLE t DROP TAG v1`."""

    kind: RefKind
    name: str
    if_exists: bool = False

    def _apply(self, table: Table) -> Table:
        if self.if_exists and self.name not in table.context.metadata.refs:
            return table
        return (table.drop_branch if self.kind == "branch" else table.drop_tag)(self.name)


def _parse_create_ref(reader: Reader, table: Name) -> CreateRef:
    kind = _parse_ref_kind(reader)
    if_not_exists = reader.take_if_next("IF", "NOT", "EXISTS")
    name = reader.name(f"the name of a {kind}")
    snapshot_id = reader.number("a snapshot") if reader.take_if_next("AS", "OF", "VERSION") else None
    if reader.sees("RETAIN") or reader.sees("WITH", "SNAPSHOT", "RETENTION"):
        raise reader.syntax_error(f"the retention of a {kind} cannot be set here")
    return CreateRef(table, kind, name, snapshot_id, if_not_exists)


def _parse_drop_ref(reader: Reader, table: Name) -> DropRef:
    kind = _parse_ref_kind(reader)
    if_exists = reader.take_if_next("IF", "EXISTS")
    return DropRef(table, kind, reader.name(f"the name of a {kind}"), if_exists)


def _parse_ref_kind(reader: Reader) -> RefKind:
    if reader.take_if_next("BRANCH"):
        return "branch"
    reader.expect("TAG")
    return "tag"


@dataclass(frozen=True)
class RenameTable:
    """`ALTER TABLE t RENAME TO u`; a new name without a namespace stays in the namespace of the table."""

    table: Name
    new_name: Name

    def run(self, lake: LakeContext, options: StatementOptions) -> Table:
        """Rename the table."""
        options.require_only("ALTER TABLE")
        old, new = identifier(lake, self.table), identifier(lake, self.new_name)
        full_name = new if len(new) > 1 else (*old[:-1], *new)
        return Table(lake.of_table(tables.rename_table(lake.catalog, old, full_name)))


# The keywords that begin a change, and the parser of what follows; longer ones before their prefixes.
_CHANGE_PARSERS: dict[tuple[str, ...], Callable[[Reader, Name], Statement]] = {
    ("ADD", "PARTITION", "FIELD"): lambda reader, table: EvolvePartitions(
        table, add=(reader.remaining_text("a partition field"),)
    ),
    ("DROP", "PARTITION", "FIELD"): lambda reader, table: EvolvePartitions(
        table, drop=(_parse_existing_field(reader),)
    ),
    ("REPLACE", "PARTITION", "FIELD"): _parse_replace_partition_field,
    ("SET", "TBLPROPERTIES"): lambda reader, table: SetProperties(table, parse_properties(reader)),
    ("UNSET", "TBLPROPERTIES"): _parse_unset_properties,
    ("SET", "IDENTIFIER", "FIELDS"): lambda reader, table: SetIdentifierFields(
        table, reader.comma_list(lambda: reader.dotted_name("a column"))
    ),
    ("ADD", "COLUMN"): parse_add_columns,
    ("ADD", "COLUMNS"): parse_add_columns,
    ("DROP", "COLUMN"): parse_drop_columns,
    ("DROP", "COLUMNS"): parse_drop_columns,
    ("RENAME", "COLUMN"): parse_rename_column,
    ("ALTER", "COLUMN"): parse_alter_column,
    ("CHANGE", "COLUMN"): parse_alter_column,
    ("RENAME", "TO"): lambda reader, table: RenameTable(table, reader.table_name()),
    ("CREATE",): _parse_create_ref,
    ("DROP",): _parse_drop_ref,
}


def parse_alter_table(reader: Reader) -> Statement:
    """Parse an ALTER TABLE."""
    reader.expect("ALTER", "TABLE")
    table = reader.table_name()
    for keywords, parse_change in _CHANGE_PARSERS.items():
        if reader.take_if_next(*keywords):
            statement = parse_change(reader, table)
            reader.expect_end()
            return statement
    changes = ["ADD, DROP or REPLACE PARTITION FIELD", "ADD, DROP, RENAME or ALTER COLUMN", "RENAME TO"]
    changes += ["SET or UNSET TBLPROPERTIES", "SET IDENTIFIER FIELDS", "CREATE or DROP BRANCH or TAG"]
    raise reader.syntax_error(f"expected {'; '.join(changes)}")
