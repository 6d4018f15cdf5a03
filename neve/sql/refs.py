"""ALTER TABLE … CREATE and DROP BRANCH or TAG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from neve.sql.options import Options
from neve.sql.reader import Reader
from neve.sql.target import Name, table_named
from neve.table import Table

if TYPE_CHECKING:
    from neve.lake import Lake

__all__ = ["CreateRef", "DropRef", "create_ref", "drop_ref"]

Kind = Literal["branch", "tag"]


@dataclass(frozen=True)
class CreateRef:
    """`ALTER TABLE t CREATE BRANCH audit AS OF VERSION 3`."""

    table: Name
    kind: Kind
    name: str
    snapshot_id: int | None = None
    if_not_exists: bool = False

    def run(self, lake: Lake, options: Options) -> Table:
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
    kind: Kind
    name: str
    if_exists: bool = False

    def run(self, lake: Lake, options: Options) -> Table:
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


def _kind(reader: Reader) -> Kind:
    if reader.took("BRANCH"):
        return "branch"
    reader.expect("TAG")
    return "tag"
