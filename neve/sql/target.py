"""The table a statement is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.ops.views import Find, tables_of
from neve.table import Table

if TYPE_CHECKING:
    from neve.lake import Lake

__all__ = ["Name", "find_in", "identifier", "table_and_branch", "table_named"]

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


def identifier(lake: Lake, name: Name) -> Name:
    """The name of a table that may not exist yet, without that of the catalog."""
    return name[1:] if len(name) > 2 and name[0] == lake.catalog.name else name
