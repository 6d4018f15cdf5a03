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
from neve.predicate.sql_text import Kind
from neve.sql.alter_columns import add_columns, alter_column, drop_columns, rename_column, set_identifier_fields
from neve.sql.reader import Reader
from neve.sql.statement import Name, Options, Statement, identifier, table_named
from neve.table import Table


@dataclass(frozen=True)
class EvolvePartitions:
    """`ALTER TABLE t ADD PARTITION FIELD bucket(16, id) AS shard`, and its relatives."""

    table: Name
    add: tuple[str, ...] = ()  # a term, and AS with a name if one is given
    drop: tuple[str, ...] = ()  # a term or a name

    def run(self, lake: LakeContext, options: Options) -> Table:
        """Make the next partition spec the default."""
        options.only("ALTER TABLE")
        return table_named(lake, self.table).evolve_partitions(self.add, self.drop)


def add_field(reader: Reader, table: Name) -> EvolvePartitions:
    """Read what follows ADD PARTITION FIELD."""
    return EvolvePartitions(table, add=(reader.rest("a partition field"),))


def drop_field(reader: Reader, table: Name) -> EvolvePartitions:
    """Read what follows DROP PARTITION FIELD."""
    return EvolvePartitions(table, drop=(_field(reader),))


def replace_field(reader: Reader, table: Name) -> EvolvePartitions:
    """Read what follows REPLACE PARTITION FIELD."""
    dropped = _field(reader)
    reader.expect("WITH")
    return EvolvePartitions(table, (reader.rest("a partition field"),), (dropped,))


def _field(reader: Reader) -> str:
    """A field that exists: its name without backticks, or its term."""
    start = reader.at
    text = reader.until("WITH", what="a partition field")
    return reader.words[start].name if reader.at == start + 1 else text


@dataclass(frozen=True)
class SetProperties:
    """`ALTER TABLE t SET TBLPROPERTIES ('name' = 'value')`; the property `format-version` upgrades the table."""

    table: Name
    properties: Mapping[str, str]

    def run(self, lake: LakeContext, options: Options) -> Table:
        """Set the properties."""
        options.only("ALTER TABLE")
        return table_named(lake, self.table).set_properties(**self.properties)


@dataclass(frozen=True)
class UnsetProperties:
    """`ALTER TABLE t UNSET TBLPROPERTIES ('name')`; one that is not set is left alone."""

    table: Name
    names: tuple[str, ...]

    def run(self, lake: LakeContext, options: Options) -> Table:
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


RefKind = Literal["branch", "tag"]


@dataclass(frozen=True)
class CreateRef:
    """`ALTER TABLE t CREATE BRANCH audit AS OF VERSION 3`."""

    table: Name
    kind: RefKind
    name: str
    snapshot_id: int | None = None
    if_not_exists: bool = False

    def run(self, lake: LakeContext, options: Options) -> Table:
        """Name a snapshot."""
        options.only("ALTER TABLE")
        table = table_named(lake, self.table)
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

    def run(self, lake: LakeContext, options: Options) -> Table:
        """Forget the name."""
        options.only("ALTER TABLE")
        table = table_named(lake, self.table)
        if self.if_exists and self.name not in table.context.metadata.refs:
            return table
        return (table.drop_branch if self.kind == "branch" else table.drop_tag)(self.name)


def create_ref(reader: Reader, table: Name) -> CreateRef:
    """Read what follows CREATE."""
    kind = _kind(reader)
    if_not_exists = reader.took("IF", "NOT", "EXISTS")
    name = reader.name(f"the name of a {kind}")
    snapshot_id = reader.number("a snapshot") if reader.took("AS", "OF", "VERSION") else None
    if reader.sees("RETAIN") or reader.sees("WITH", "SNAPSHOT", "RETENTION"):
        raise reader.wrong(f"how long a {kind} is kept cannot be said here")
    return CreateRef(table, kind, name, snapshot_id, if_not_exists)


def drop_ref(reader: Reader, table: Name) -> DropRef:
    """Read what follows DROP."""
    kind = _kind(reader)
    if_exists = reader.took("IF", "EXISTS")
    return DropRef(table, kind, reader.name(f"the name of a {kind}"), if_exists)


def _kind(reader: Reader) -> RefKind:
    if reader.took("BRANCH"):
        return "branch"
    reader.expect("TAG")
    return "tag"


@dataclass(frozen=True)
class RenameTable:
    """`ALTER TABLE t RENAME TO u`; a name without a namespace stays in that of the table."""

    table: Name
    new_name: Name

    def run(self, lake: LakeContext, options: Options) -> Table:
        """Give the table another name."""
        options.only("ALTER TABLE")
        old = identifier(lake, self.table)
        new = identifier(lake, self.new_name)
        full_name = new if len(new) > 1 else (*old[:-1], *new)
        return Table(lake.of_table(tables.rename_table(lake.catalog, old, full_name)))


def rename_table(reader: Reader, table: Name) -> RenameTable:
    """Read what follows RENAME TO."""
    return RenameTable(table, reader.table_name())


# The words that begin a change, and who reads what follows; longer ones first where one begins like another.
_CHANGES: dict[tuple[str, ...], Callable[[Reader, Name], Statement]] = {
    ("ADD", "PARTITION", "FIELD"): add_field,
    ("DROP", "PARTITION", "FIELD"): drop_field,
    ("REPLACE", "PARTITION", "FIELD"): replace_field,
    ("SET", "TBLPROPERTIES"): set_properties,
    ("UNSET", "TBLPROPERTIES"): unset_properties,
    ("SET", "IDENTIFIER", "FIELDS"): set_identifier_fields,
    ("ADD", "COLUMN"): add_columns,
    ("ADD", "COLUMNS"): add_columns,
    ("DROP", "COLUMN"): drop_columns,
    ("DROP", "COLUMNS"): drop_columns,
    ("RENAME", "COLUMN"): rename_column,
    ("ALTER", "COLUMN"): alter_column,
    ("CHANGE", "COLUMN"): alter_column,
    ("RENAME", "TO"): rename_table,
    ("CREATE",): create_ref,
    ("DROP",): drop_ref,
}


def alter_table(reader: Reader) -> Statement:
    """Read an ALTER TABLE."""
    reader.expect("ALTER", "TABLE")
    table = reader.table_name()
    for words, change in _CHANGES.items():
        if reader.took(*words):
            found = change(reader, table)
            reader.end()
            return found
    known = ["ADD, DROP or REPLACE PARTITION FIELD", "ADD, DROP, RENAME or ALTER COLUMN", "RENAME TO"]
    known += ["SET or UNSET TBLPROPERTIES", "SET IDENTIFIER FIELDS", "CREATE or DROP BRANCH or TAG"]
    raise reader.wrong(f"expected {'; '.join(known)}")
