"""What DESCRIBE and SHOW say of a view that the catalog keeps, as Spark with Iceberg says it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from neve.model.view import QUERY_COLUMNS, StoredView
from neve.predicate.column_names import join_name
from neve.run.spark.types import spark_type_name
from neve.sql.ddl_text import name_text, string_text

_HIDDEN = ("comment", QUERY_COLUMNS, "create_engine_version", "engine_version")  # details of their own


def view_rows(view: StoredView, lake: str, *, is_extended: bool) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of DESCRIBE."""
    metadata = view.metadata
    yield from ((column.name, spark_type_name(column), column.doc or "") for column in metadata.current_schema().fields)
    if is_extended:
        summary = metadata.current_version().summary
        yield "", "", ""
        yield "# Detailed View Information", "", ""
        yield "Comment", metadata.properties.get("comment", ""), ""
        yield "View Catalog and Namespace", join_name((lake, *view.identifier[:-1])), ""
        yield "View Query Output Columns", f"[{', '.join(_query_columns(view))}]", ""
        yield "View Properties", f"[{', '.join(_property_texts(view_properties(view)))}]", ""
        yield "Created By", " ".join(summary[n] for n in ("engine-name", "engine-version") if n in summary), ""


def create_statement(view: StoredView, lake: str) -> str:
    """Return the statement that creates an equal view."""
    metadata, names = view.metadata, _query_columns(view)
    name = ".".join(map(name_text, (lake, *view.identifier)))
    columns = [
        name_text(column.name) + (f" COMMENT {string_text(column.doc)}" if column.doc else "")
        for column in metadata.current_schema().fields
    ]
    clauses = [f"CREATE VIEW {name}"]
    if [name_text(n) for n in names] != columns:
        clauses[0] += f" ({', '.join(columns)})"
    if comment := metadata.properties.get("comment"):
        clauses.append(f"COMMENT {string_text(comment)}")
    if properties := _property_texts(_own_properties(view)):
        clauses.append(f"TBLPROPERTIES ({', '.join(properties)})")
    return "\n".join([*clauses, f"AS\n{metadata.spark_sql(view.name)}"]) + "\n"


def _query_columns(view: StoredView) -> list[str]:
    """Return the columns of the query itself, if they are known."""
    noted = view.metadata.properties.get(QUERY_COLUMNS)
    return noted.split(",") if noted else [column.name for column in view.metadata.current_schema().fields]


def view_properties(view: StoredView) -> dict[str, str]:
    """Return the properties of a view, with facts among them, sorted by name."""
    facts = {"format-version": "1", "location": view.metadata.location, "provider": "iceberg"}
    return dict(sorted({**_own_properties(view), **facts}.items()))


def _own_properties(view: StoredView) -> dict[str, str]:
    return {name: value for name, value in sorted(view.metadata.properties.items()) if name not in _HIDDEN}


def _property_texts(properties: Mapping[str, str]) -> list[str]:
    return [f"{string_text(key)} = {string_text(value)}" for key, value in properties.items()]
