"""Replace the views of a catalog in SQL text by their queries.

Names in the query of a view mean what they meant where it was created: those without a namespace are in its default
namespace, and all belong to the catalog of the view. The view has the columns that it was created with; if its query
has more by now, because it selects `*` of a table that has grown, they are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from neve.catalog import find_view, list_views
from neve.errors import UnknownName, UserError
from neve.model.view import StoredView
from neve.ops.context import LakeContext
from neve.ops.sql_views import is_temporary_view
from neve.predicate.column_names import quote_name
from neve.predicate.sql_text import tokenize_sql
from neve.predicate.table_references import TableName, replace_tables, tables_in
from neve.sql.statement import Name, find_table, identifier, table_finder
from neve.table import Table

ColumnsOf = Callable[[str], Sequence[str]]  # of a query in which no view is left
ViewLookup = Callable[[Name], StoredView | None]


def view_finder(lake: LakeContext) -> ViewLookup:
    """Return a function that looks up the views of a lake by name, each once."""
    catalog, namespace = lake.catalog, lake.session.namespace

    @cache
    def find(name: Name) -> StoredView | None:
        if lake.place_of is not None:
            place = lake.place_of(name)
            return find_view(catalog, place[1:]) if place is not None and place[0] == lake.name else None
        if len(name) == 1:
            return find_view(catalog, (*namespace, *name))
        found = find_view(catalog, name)
        return find_view(catalog, name[1:]) if found is None and len(name) > 2 and name[0] == lake.name else found

    return find


def require_view(lake: LakeContext, name: Name) -> StoredView:
    """Return a view by name; the error for an unknown name suggests the nearest names."""
    if (view := view_finder(lake)(name)) is None:
        known = map(".".join, list_views(lake.catalog))
        raise UnknownName("view", ".".join(identifier(lake, name)), known, f"catalog {lake.name!r}")
    return view


def find_table_or_view(lake: LakeContext, name: Name) -> Table | StoredView:
    """Return a table or view by name; the error for an unknown name suggests the nearest tables."""
    view = view_finder(lake)(name) if table_finder(lake)(name) is None else None
    return find_table(lake, name) if view is None else view


def refuse_cycle(lake: LakeContext, view: StoredView, query: str) -> None:
    """Reject a query for a view that would read the view itself."""
    find = view_finder(lake)
    read = {found.identifier: found for name in tables_in(query) if (found := find(name.parts)) is not None}
    for other in read.values():
        if other.identifier == view.identifier:
            raise UserError(f"Cannot replace view {view.name}: its query would read the view itself.")
        refuse_cycle(lake, view, _query_with_full_names(lake, other))


def query_of_lake(lake: LakeContext, query: str) -> str:
    """Return the query of a view as the catalog keeps it: without the name of the lake, which may be another elsewhere.

    It reads tables and views of this lake only: nobody else finds those of the session.
    """
    find, find_view = table_finder(lake), view_finder(lake)

    def own_name(name: TableName) -> str | None:
        parts = name.parts
        own = identifier(lake, parts)
        is_hidden = len(parts) == 1 and is_temporary_view(lake.spark(), parts[0])
        lengths = [n for n in (len(parts), len(parts) - 1) if n]
        if is_hidden or not any(find_view(parts[:n]) or find(parts[:n]) for n in lengths):
            raise UserError(
                f"Cannot keep a view that reads {name.name}: it is no table or view of the lake. Create a TEMPORARY "
                "VIEW instead."
            )
        return None if len(parts) == 1 or own == parts else rename_table(query, name, own)

    return replace_tables(query, own_name)


def expand_stored_views(
    lake: LakeContext, text: str, columns_of: ColumnsOf, inside: tuple[tuple[str, StoredView], ...] = ()
) -> str:
    """Replace the views in a text; `inside` are the views whose queries the text is part of, each after its lake."""
    own = view_finder(lake)

    def find(name: Name) -> tuple[LakeContext, StoredView] | None:
        if lake.view_lookup is not None:
            return lake.view_lookup(name)
        return None if (view := own(name)) is None else (lake, view)

    def query_of(name: TableName) -> str | None:
        found = find(name.parts)
        if found is None or (len(name.parts) == 1 and is_temporary_view(lake.spark(), name.parts[0])):
            return None
        home, view = found
        if (name.version, name.timestamp) != (None, None):
            raise UserError(f"Cannot read view {view.name} as of another version. Name a version of its tables.")
        if any((home.name, view.identifier) == (outer, each.identifier) for outer, each in inside):
            path = " -> ".join(each.name for each in (*(each for _, each in inside), view))
            raise UserError(f"View {view.name} reads itself: {path}.")
        query = _query_with_full_names(home, view)
        query = expand_stored_views(lake, query, columns_of, (*inside, (home.name, view)))
        return f"({_with_own_columns(view, query, columns_of)})"

    return replace_tables(text, query_of)


def _query_with_full_names(lake: LakeContext, view: StoredView) -> str:
    """Return the query of a view with names that mean the same in any namespace."""
    query, version = view.metadata.spark_sql(view.name), view.metadata.current_version()

    def complete(name: TableName) -> str | None:
        parts = name.parts
        if len(parts) == 1:
            if not version.default_namespace:
                return None
            parts = (*version.default_namespace, *parts)
        elif len(parts) > 2 and parts[0] == version.default_catalog:
            parts = parts[1:]
        if lake.place_of is not None:
            parts = lake.place_of(parts) or parts
        return None if parts == name.parts else rename_table(query, name, parts)

    return replace_tables(query, complete)


def rename_table(text: str, name: TableName, parts: Name) -> str:
    """Return another name for a table in a text, with the time travel that follows the name there."""
    written = text[name.start : name.end]
    time_travel = written[tokenize_sql(written)[2 * len(name.parts) - 2].end :]
    return ".".join(map(quote_name, parts)) + time_travel


def _with_own_columns(view: StoredView, query: str, columns_of: ColumnsOf) -> str:
    """Return a query for the columns of a view, by their position in its own query."""
    own = [column.name for column in view.metadata.current_schema().fields]
    columns = own
    if not _names_its_columns(query):
        found = columns_of(query)
        if len(found) < len(own):
            raise UserError(
                f"Cannot read view {view.name}: its query has {len(found)} columns now, and had {len(own)} when the "
                "view was created. Write it again with CREATE OR REPLACE VIEW."
            )
        columns = [*own, *(f"neve_more_{at}" for at in range(len(own), len(found)))]
    aliases, selected = (", ".join(map(quote_name, names)) for names in (columns, own))
    return f"SELECT {selected} FROM ({query}\n) AS {quote_name(view.identifier[-1])}({aliases})"  # noqa: S608


def _names_its_columns(query: str) -> bool:
    """Return whether a query has the same columns whatever its tables have."""
    words = tokenize_sql(query)
    return words[0].matches("SELECT", "WITH", "VALUES", "(") and not any(w.matches("*", "|>") for w in words)
