"""What all statements share: the protocol, the options beside the text, and the lookup of the table.

An option is a keyword argument: `lake.sql("UPDATE …", mode="merge-on-read")`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from neve.catalog import find_view
from neve.errors import UnknownName, UserError
from neve.ops.context import LakeContext
from neve.ops.sql_views import TableLookup, catalog_table_lookup
from neve.predicate.column_names import shorten_table_qualifiers
from neve.table import Table


@dataclass(frozen=True)
class StatementOptions:
    """The options of the builders, for statements that change rows; None leaves them to the table properties."""

    mode: str | None = None  # copy-on-write or merge-on-read
    isolation: str | None = None  # serializable or snapshot
    branch: str | None = None  # the branch to write to
    reruns: int | None = None  # how often to run again after a conflict
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> StatementOptions:
        """Return the options of a call; unknown ones are rejected."""
        names = [f.name for f in fields(cls)]
        for name in keywords:
            if name not in names:
                raise UnknownName("option", name, names, "a call of sql")
        return cls(**keywords)

    def require_only(self, statement: str, *names: str) -> StatementOptions:
        """Return the same options, and reject those that the statement does not take."""
        for f in fields(self):
            is_set = getattr(self, f.name) != getattr(StatementOptions(), f.name)
            if is_set and f.name not in names:
                takes = f"It takes {', '.join(names)}." if names else "It takes none."
                raise UserError(f"{statement} takes no option {f.name!r}. {takes}")
        return self

    def on_branch(self, branch: str | None) -> StatementOptions:
        """Return the options for a table whose name includes a branch."""
        if branch is None:
            return self
        if self.branch not in {None, branch}:
            raise UserError(f"The table name gives branch {branch!r}, the option {self.branch!r}. Give only one.")
        return replace(self, branch=branch)

    def apply_to(self, statement: Any) -> Any:
        """Set the options on a statement that changes rows."""
        for name in ("mode", "isolation", "branch", "reruns"):
            value = getattr(self, name)
            statement = statement if value is None else getattr(statement, name)(value)
        for name, value in self.snapshot_properties.items():
            statement = statement.snapshot_property(name, value)
        return statement


class Statement(Protocol):
    """A parsed statement, not yet run."""

    def run(self, lake: LakeContext, options: StatementOptions) -> Any:
        """Run the statement."""


class MetadataQuery(ABC):
    """A statement that shows metadata: SHOW or DESCRIBE. It needs no Spark, and changes nothing."""

    columns: ClassVar[tuple[str, ...]]  # of strings, except `isTemporary`

    def run(self, lake: LakeContext, options: StatementOptions) -> pa.Table:
        """Return the rows as an Arrow table; `lake.sql` makes a DataFrame of it."""
        options.require_only("SHOW or DESCRIBE")
        rows = [dict(zip(self.columns, row, strict=True)) for row in self._rows(lake)]
        types = {"isTemporary": pa.bool_()}
        return pa.Table.from_pylist(rows, pa.schema([(name, types.get(name, pa.string())) for name in self.columns]))

    @abstractmethod
    def _rows(self, lake: LakeContext) -> Iterable[tuple[Any, ...]]: ...


Name = tuple[str, ...]


def table_finder(lake: LakeContext) -> TableLookup:
    """Return a function that looks up the tables of a lake by name."""
    if lake.lookup is not None:
        return lake.lookup
    return catalog_table_lookup(lake.catalog, lake.of_table, namespace=lake.session.namespace)


def find_table(lake: LakeContext, name: Name) -> Table:
    """Return a table by name; the error for an unknown name suggests the nearest names."""
    table = table_finder(lake)(name)
    if table is not None:
        return Table(replace(table, lookup=lake.lookup))
    full = identifier(lake, name)
    if len(full) > 1 and find_view(lake.catalog, full) is not None:
        raise UserError(f"{'.'.join(full)} is a view, and this statement needs a table.")
    return Table(lake.table(full))


def table_and_branch(lake: LakeContext, name: Name) -> tuple[Table, str | None]:
    """Return the table to write to, and the branch that a name such as `db.t.branch_audit` includes."""
    find = table_finder(lake)
    *parts, last = name
    is_branch = last.startswith("branch_") and bool(parts) and find(name) is None
    table = find(tuple(parts)) if is_branch else None
    return (find_table(lake, name), None) if table is None else (Table(table), last.removeprefix("branch_"))


def default_alias(table: Name) -> str:
    """Return the name of a table without an alias: the last part of its name, or the part before a branch."""
    return table[-2] if len(table) > 2 and table[-1].startswith("branch_") else table[-1]


def shorten_qualified_names(text: str, table: Name) -> str:
    """Replace `db.t.column` by `t.column`, except in subqueries, where the last part may name something else."""
    is_plain = len(table) < 2 or default_alias(table) != table[-1]
    return text if is_plain else shorten_table_qualifiers(text, table)


def full_name(lake: LakeContext, name: Name) -> Name:
    """Return a name as it is meant now: with the namespace in use, and with the lake if several may be meant."""
    if lake.place_of is not None:
        return lake.place_of(name) or name
    return (*lake.session.namespace, *name) if len(name) == 1 else name


def identifier(lake: LakeContext, name: Name) -> Name:
    """Return the full name of a table, without the name of the catalog unless a table is called so."""
    completed = full_name(lake, name)
    if lake.place_of is None:
        begins_with_catalog = len(name) > 2 and name[0] == lake.name
        return name[1:] if begins_with_catalog and not lake.catalog.table_exists(name) else completed
    if completed[0] != lake.name:
        raise UserError(
            f"{'.'.join(name)} is no name in lake {lake.name!r}: it begins with another catalog. Leave that out, or "
            f"write {lake.name} instead."
        )
    return completed[1:]
