"""ALTER TABLE.

This module handles partition fields, the sort order, properties, branches, tags, SET LOCATION and RENAME TO; changes
of columns are in `alter_columns`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import neve.catalog as tables
from neve.errors import UnknownName
from neve.ops.context import LakeContext
from neve.predicate.sql_text import TokenKind
from neve.sql.alter_columns import (
    DropIdentifierFields,
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
    return UnsetProperties(table, reader.bracketed_list(lambda: parse_property_name(reader)))


def parse_properties(reader: Reader) -> dict[str, str]:
    """Parse names and values in parentheses; no name may come twice."""
    properties: dict[str, str] = {}

    def parse_property() -> None:
        at, name = reader.word, parse_property_name(reader)
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


def parse_property_name(reader: Reader) -> str:
    """Parse the name of a property, in quotes or not."""
    word = reader.word
    if word is not None and word.kind is TokenKind.STRING:
        return reader.string("a property")
    return ".".join(reader.dotted_name("a property"))


RefKind = Literal["branch", "tag"]
_UNITS = {"DAYS": 86_400_000, "HOURS": 3_600_000, "MINUTES": 60_000}  # in milliseconds


@dataclass(frozen=True)
class CreateRef(TableChange):
    """`ALTER TABLE t CREATE [OR REPLACE] BRANCH audit AS OF VERSION 3 RETAIN 7 DAYS`, or REPLACE BRANCH."""

    kind: RefKind
    name: str
    snapshot_id: int | None = None
    if_not_exists: bool = False
    replaces: bool = False
    must_exist: bool = False
    retention: Mapping[str, int] = field(default_factory=dict)

    def _apply(self, table: Table) -> Table:
        refs = table.context.metadata.refs
        if self.if_not_exists and self.name in refs:
            return table
        if self.must_exist and self.name not in refs:
            raise UnknownName(self.kind, self.name, refs, f"table {table.name}")
        create = table.create_branch if self.kind == "branch" else table.create_tag
        return create(self.name, self.snapshot_id, replace=self.replaces, **self.retention)


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


def _parse_create_ref(reader: Reader, table: Name, *, replaces: bool = False, must_exist: bool = False) -> CreateRef:
    kind = _parse_ref_kind(reader)
    if_not_exists = not replaces and reader.take_if_next("IF", "NOT", "EXISTS")
    name = reader.name(f"the name of a {kind}")
    snapshot_id = reader.number("a snapshot") if reader.take_if_next("AS", "OF", "VERSION") else None
    retention = {}
    if reader.take_if_next("RETAIN"):
        retention["max_ref_age_ms"] = _parse_duration(reader)
    if kind == "branch" and reader.take_if_next("WITH", "SNAPSHOT", "RETENTION"):
        retention |= _parse_snapshot_retention(reader)
    return CreateRef(table, kind, name, snapshot_id, if_not_exists, replaces, must_exist, retention)


def _parse_snapshot_retention(reader: Reader) -> dict[str, int]:
    """Parse `2 SNAPSHOTS`, `7 DAYS` or `2 SNAPSHOTS 7 DAYS`."""
    begun, number, retention = reader.position, reader.number("a number of snapshots, or a time"), {}
    if reader.take_if_next("SNAPSHOTS"):
        retention["min_snapshots_to_keep"] = number
        if reader.word is None:
            return retention
    else:
        reader.position = begun
    return {**retention, "max_snapshot_age_ms": _parse_duration(reader)}


def _parse_duration(reader: Reader) -> int:
    """Parse a number of days, hours or minutes to milliseconds."""
    number = reader.number("a number of DAYS, HOURS or MINUTES")
    for unit, milliseconds in _UNITS.items():
        if reader.take_if_next(unit):
            return number * milliseconds
    raise reader.syntax_error(f"expected {', '.join(_UNITS)}")


@dataclass(frozen=True)
class SetSortOrder(TableChange):
    """`ALTER TABLE t WRITE [LOCALLY] ORDERED BY a, b DESC`, UNORDERED, or DISTRIBUTED BY PARTITION …."""

    fields: tuple[str, ...] = ()
    distribution_mode: str | None = None  # None: it stays as it is

    def _apply(self, table: Table) -> Table:
        return table.set_sort_order(*self.fields, distribution_mode=self.distribution_mode)


def _parse_write(reader: Reader, table: Name) -> SetSortOrder:
    """Parse what follows WRITE: an order, a distribution, or both, in any order."""
    mode, fields = None, tuple[str, ...]()
    is_by_partition = reader.take_if_next("DISTRIBUTED", "BY", "PARTITION")
    if reader.take_if_next("UNORDERED"):
        mode = "none"
    elif reader.sees_one_of("LOCALLY", "ORDERED"):
        mode = None if reader.take_if_next("LOCALLY") else "range"
        reader.expect("ORDERED", "BY")
        fields = reader.optionally_bracketed_list(
            lambda: reader.text_until(",", ")", "DISTRIBUTED", what="a sort field")
        )
    elif not is_by_partition:
        raise reader.syntax_error("expected [LOCALLY] ORDERED BY, UNORDERED or DISTRIBUTED BY PARTITION")
    is_by_partition = is_by_partition or reader.take_if_next("DISTRIBUTED", "BY", "PARTITION")
    return SetSortOrder(table, fields, "hash" if is_by_partition else mode)


@dataclass(frozen=True)
class SetLocation(TableChange):
    """`ALTER TABLE t SET LOCATION '…'`: where new files are written."""

    location: str

    def _apply(self, table: Table) -> Table:
        return table.set_location(self.location)


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
        old, new = identifier(lake, self.table), self.new_name
        full_name = identifier(lake, new) if len(new) > 1 else (*old[:-1], *new)
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
    ("DROP", "IDENTIFIER", "FIELDS"): lambda reader, table: DropIdentifierFields(
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
    ("WRITE",): _parse_write,
    ("SET", "LOCATION"): lambda reader, table: SetLocation(table, reader.string("a location")),
    ("CREATE", "OR", "REPLACE"): partial(_parse_create_ref, replaces=True),
    ("CREATE",): _parse_create_ref,
    ("REPLACE",): partial(_parse_create_ref, replaces=True, must_exist=True),
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
    changes += ["SET or UNSET TBLPROPERTIES", "SET or DROP IDENTIFIER FIELDS", "SET LOCATION", "WRITE"]
    changes += ["CREATE, REPLACE or DROP BRANCH or TAG"]
    raise reader.syntax_error(f"expected {'; '.join(changes)}")
