"""ALTER TABLE: which change is meant.

ALTER TABLE … RENAME TO.

ALTER TABLE … ADD, DROP and REPLACE PARTITION FIELD.

ALTER TABLE … SET and UNSET TBLPROPERTIES.

ALTER TABLE … CREATE and DROP BRANCH or TAG.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import neve.catalog as tables
from neve.ops.context import LakeContext
from neve.predicate.sql_text import TokenKind
from neve.sql.alter_columns import (
    parse_add_columns,
    parse_alter_column,
    parse_drop_columns,
    parse_rename_column,
    parse_set_identifier_fields,
)
from neve.sql.reader import Reader
from neve.sql.statement import Name, Statement, StatementOptions, find_table, identifier
from neve.table import Table


@dataclass(frozen=True)
class EvolvePartitions:
    """`ALTER TABLE t ADD PARTITION FIELD bucket(16, id) AS shard`, and its relatives."""

    table: Name
    add: tuple[str, ...] = ()  # a term, and AS with a name if one is given
    drop: tuple[str, ...] = ()  # a term or a name

    def run(self, lake: LakeContext, options: StatementOptions) -> Table:
        """Make the next partition spec the default."""
        options.require_only("ALTER TABLE")
        return find_table(lake, self.table).evolve_partitions(self.add, self.drop)


def parse_add_partition_field(reader: Reader, table: Name) -> EvolvePartitions:
    """Read what follows ADD PARTITION FIELD."""
    return EvolvePartitions(table, add=(reader.remaining_text("a partition field"),))


def parse_drop_partition_field(reader: Reader, table: Name) -> EvolvePartitions:
    """Read what follows DROP PARTITION FIELD."""
    return EvolvePartitions(table, drop=(_parse_existing_field(reader),))


def parse_replace_partition_field(reader: Reader, table: Name) -> EvolvePartitions:
    """Read what follows REPLACE PARTITION FIELD."""
    dropped = _parse_existing_field(reader)
    reader.expect("WITH")
    return EvolvePartitions(table, (reader.remaining_text("a partition field"),), (dropped,))


def _parse_existing_field(reader: Reader) -> str:
    """A field that exists: its name without backticks, or its term."""
    start = reader.position
    text = reader.text_until("WITH", what="a partition field")
    return reader.words[start].name if reader.position == start + 1 else text


@dataclass(frozen=True)
class SetProperties:
    """`ALTER TABLE t SET TBLPROPERTIES ('name' = 'value')`; the property `format-version` upgrades the table."""

    table: Name
    properties: Mapping[str, str]

    def run(self, lake: LakeContext, options: StatementOptions) -> Table:
        """Set the properties."""
        options.require_only("ALTER TABLE")
        return find_table(lake, self.table).set_properties(**self.properties)


@dataclass(frozen=True)
class UnsetProperties:
    """`ALTER TABLE t UNSET TBLPROPERTIES ('name')`; one that is not set is left alone."""

    table: Name
    names: tuple[str, ...]

    def run(self, lake: LakeContext, options: StatementOptions) -> Table:
        """Remove the properties."""
        options.require_only("ALTER TABLE")
        return find_table(lake, self.table).remove_properties(*self.names)


def parse_set_properties(reader: Reader, table: Name) -> SetProperties:
    """Read what follows SET TBLPROPERTIES."""
    return SetProperties(table, parse_properties(reader))


def parse_unset_properties(reader: Reader, table: Name) -> UnsetProperties:
    """Read what follows UNSET TBLPROPERTIES."""
    reader.take_if_next("IF", "EXISTS")
    return UnsetProperties(table, reader.bracketed_list(lambda: _parse_property_name(reader)))


def parse_properties(reader: Reader) -> dict[str, str]:
    """Names and values in brackets; none of the names may come twice."""
    found: dict[str, str] = {}

    def one() -> None:
        at, (name, value) = reader.word, _parse_name_and_value(reader)
        if name in found:
            raise reader.syntax_error(f"property {name!r} is given twice", at)
        found[name] = value

    reader.bracketed_list(one)
    return found


def _parse_name_and_value(reader: Reader) -> tuple[str, str]:
    name = _parse_property_name(reader)
    reader.take_if_next("=")
    sign = "-" if reader.take_if_next("-") else ""
    word = reader.word
    if word is None or word.kind is TokenKind.SYMBOL:
        raise reader.syntax_error(f"expected the value of {name!r}")
    reader.position += 1
    return name, f"{sign}{word.value if word.kind is TokenKind.STRING else word.text}"


def _parse_property_name(reader: Reader) -> str:
    word = reader.word
    if word is not None and word.kind is TokenKind.STRING:
        return reader.string("a property")
    return ".".join(reader.dotted_name("a property"))


RefKind = Literal["branch", "tag"]


@dataclass(frozen=True)
class CreateRef:
    """`ALTER TABLE t CREATE BRANCH audit AS OF VERSION 3`."""

    table: Name
    kind: RefKind
    name: str
    snapshot_id: int | None = None
    if_not_exists: bool = False

    def run(self, lake: LakeContext, options: StatementOptions) -> Table:
        """Name a snapshot."""
        options.require_only("ALTER TABLE")
        table = find_table(lake, self.table)
        if self.if_not_exists and self.name in table.context.metadata.refs:
            return table
        create = table.create_branch if self.kind == "branch" else table.create_tag
        return create(self.name, self.snapshot_id)


@dataclass(frozen=True)
class DropRef:
    """`ALTER TABLE t DROP TAG v1`."""

    table: Name
    kind: RefKind
    name: str
    if_exists: bool = False

    def run(self, lake: LakeContext, options: StatementOptions) -> Table:
        """Forget the name."""
        options.require_only("ALTER TABLE")
        table = find_table(lake, self.table)
        if self.if_exists and self.name not in table.context.metadata.refs:
            return table
        return (table.drop_branch if self.kind == "branch" else table.drop_tag)(self.name)


def parse_create_ref(reader: Reader, table: Name) -> CreateRef:
    """Read what follows CREATE."""
    kind = _parse_ref_kind(reader)
    if_not_exists = reader.take_if_next("IF", "NOT", "EXISTS")
    name = reader.name(f"the name of a {kind}")
    snapshot_id = reader.number("a snapshot") if reader.take_if_next("AS", "OF", "VERSION") else None
    if reader.sees("RETAIN") or reader.sees("WITH", "SNAPSHOT", "RETENTION"):
        raise reader.syntax_error(f"how long a {kind} is kept cannot be said here")
    return CreateRef(table, kind, name, snapshot_id, if_not_exists)


def parse_drop_ref(reader: Reader, table: Name) -> DropRef:
    """Read what follows DROP."""
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
    """`ALTER TABLE t RENAME TO u`; a name without a namespace stays in that of the table."""

    table: Name
    new_name: Name

    def run(self, lake: LakeContext, options: StatementOptions) -> Table:
        """Give the table another name."""
        options.require_only("ALTER TABLE")
        old = identifier(lake, self.table)
        new = identifier(lake, self.new_name)
        full_name = new if len(new) > 1 else (*old[:-1], *new)
        return Table(lake.of_table(tables.rename_table(lake.catalog, old, full_name)))


def parse_rename_table(reader: Reader, table: Name) -> RenameTable:
    """Read what follows RENAME TO."""
    return RenameTable(table, reader.table_name())


# The words that begin a change, and who reads what follows; longer ones first where one begins like another.
_CHANGE_PARSERS: dict[tuple[str, ...], Callable[[Reader, Name], Statement]] = {
    ("ADD", "PARTITION", "FIELD"): parse_add_partition_field,
    ("DROP", "PARTITION", "FIELD"): parse_drop_partition_field,
    ("REPLACE", "PARTITION", "FIELD"): parse_replace_partition_field,
    ("SET", "TBLPROPERTIES"): parse_set_properties,
    ("UNSET", "TBLPROPERTIES"): parse_unset_properties,
    ("SET", "IDENTIFIER", "FIELDS"): parse_set_identifier_fields,
    ("ADD", "COLUMN"): parse_add_columns,
    ("ADD", "COLUMNS"): parse_add_columns,
    ("DROP", "COLUMN"): parse_drop_columns,
    ("DROP", "COLUMNS"): parse_drop_columns,
    ("RENAME", "COLUMN"): parse_rename_column,
    ("ALTER", "COLUMN"): parse_alter_column,
    ("CHANGE", "COLUMN"): parse_alter_column,
    ("RENAME", "TO"): parse_rename_table,
    ("CREATE",): parse_create_ref,
    ("DROP",): parse_drop_ref,
}


def parse_alter_table(reader: Reader) -> Statement:
    """Read an ALTER TABLE."""
    reader.expect("ALTER", "TABLE")
    table = reader.table_name()
    for words, change in _CHANGE_PARSERS.items():
        if reader.take_if_next(*words):
            found = change(reader, table)
            reader.expect_end()
            return found
    known = ["ADD, DROP or REPLACE PARTITION FIELD", "ADD, DROP, RENAME or ALTER COLUMN", "RENAME TO"]
    known += ["SET or UNSET TBLPROPERTIES", "SET IDENTIFIER FIELDS", "CREATE or DROP BRANCH or TAG"]
    raise reader.syntax_error(f"expected {'; '.join(known)}")
