"""The table a statement is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from neve.ops.sql_views import Find, tables_of
from neve.predicate.column_names import shortened
from neve.table import Table

if TYPE_CHECKING:
    from neve.lake import Lake

__all__ = ["Name", "called_short", "find_in", "identifier", "own_name", "table_and_branch", "table_named"]

Name = tuple[str, ...]


def find_in(lake: Lake) -> Find:
    """The tables of a lake by name."""
    return tables_of(lake.catalog, lake._context)


def table_named(lake: Lake, name: Name) -> Table:
    """The table of a name; an unknown one is refused with the nearest names."""
    found = find_in(lake)(name)
    return lake.table(name) if found is None else Table(found)


def table_and_branch(lake: Lake, name: Name) -> tuple[Table, str | None]:
    """The table to write to, and the branch of it that a name such as `db.t.branch_audit` says."""
    find = find_in(lake)
    *parts, last = name
    is_branch = last.startswith("branch_") and len(parts) > 1 and find(name) is None
    inside = find(tuple(parts)) if is_branch else None
    return (table_named(lake, name), None) if inside is None else (Table(inside), last.removeprefix("branch_"))


def own_name(table: Name) -> str:
    """What a table is called without an alias: the last part of its name, or the one before a branch."""
    return table[-2] if len(table) > 2 and table[-1].startswith("branch_") else table[-1]


@overload
def called_short(text: str, table: Name) -> str: ...


@overload
def called_short(text: None, table: Name) -> None: ...


def called_short(text: str | None, table: Name) -> str | None:
    """A text in which columns that are qualified with the whole name of a table are so with its last part.

    Those in subqueries stay: there the last part may be the name of something else.
    """
    is_plain = text is None or len(table) < 2 or own_name(table) != table[-1]
    return text if is_plain else shortened(text, table)  # type: ignore[arg-type]


def identifier(lake: Lake, name: Name) -> Name:
    """The name of a table that may not exist yet, without that of the catalog; one that exists is meant as it is."""
    begins_with_catalog = len(name) > 2 and name[0] == lake.catalog.name
    return name[1:] if begins_with_catalog and not lake.catalog.table_exists(name) else name
