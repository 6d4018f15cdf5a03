"""Replace the temporary views in SQL text by their queries, so that they read the newest state of their tables.

Each view is also a temporary view of the Spark session, which has the rows of the time at which it was created. It
hides tables of the same name, and a view that the caller puts in its place counts instead.
"""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from neve.errors import UserError
from neve.ops.context import LakeContext, TemporaryView
from neve.ops.sql_views import is_temporary_view
from neve.predicate.column_names import quote_name
from neve.predicate.sql_text import tokenize_sql
from neve.predicate.table_references import TableName, replace_tables
from neve.run.spark.session import quiet_errors
from neve.sql.statement import full_name, table_finder
from neve.sql.stored_views import rename_table, view_finder

VIEW_MARKER = "neve.view"


def expand_temporary_views(lake: LakeContext, text: str, inside: tuple[str, ...] = ()) -> str:
    """Replace the views in a text; `inside` are the views whose queries the text is part of."""
    views = lake.session.views
    names = {*views, *inside}
    words = tokenize_sql(text) if names else ()
    if not any(word.is_name and word.name.lower() in names for word in words):
        return text

    def query_of(name: TableName) -> str | None:
        key = name.parts[0].lower()
        if len(name.parts) > 1 or key not in names:
            return None
        if (name.version, name.timestamp) != (None, None):
            raise UserError(f"Cannot read the temporary view {name.name} as of another version.")
        if key in inside:
            raise UserError(f"The temporary view {name.name} reads itself: {' -> '.join((*inside, key))}.")
        if not _is_current(lake.spark(), name.parts[0], views[key]):
            del views[key]
            return None
        return f"({expand_temporary_views(lake, views[key].query, (*inside, key))})"

    return replace_tables(text, query_of)


def with_full_names(lake: LakeContext, query: str) -> str:
    """Complete the names of tables with what USE has chosen: a later USE does not change a view."""
    find, find_view = table_finder(lake), view_finder(lake)

    def complete(name: TableName) -> str | None:
        parts = name.parts
        if len(parts) == 1 and (parts[0].lower() in lake.session.views or is_temporary_view(lake.spark(), parts[0])):
            return None
        lengths = (n for n in (len(parts), len(parts) - 1) if n and (find_view(parts[:n]) or find(parts[:n])))
        length = next(lengths, 0)
        completed = (*full_name(lake, parts[:length]), *parts[length:]) if length else parts  # the rest is a branch
        return None if completed == parts else rename_table(query, name, completed)

    return replace_tables(query, complete) if lake.session.namespace or lake.place_of else query


def _is_current(spark: SparkSession, name: str, view: TemporaryView) -> bool:
    """Return whether the Spark view of this name is still ours."""
    try:
        with quiet_errors():
            first = spark.table(quote_name(name)).schema.fields[0]
    except PySparkException:
        return False
    return bool(first.metadata.get(VIEW_MARKER) == view.marker)
