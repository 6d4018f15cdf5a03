"""DESCRIBE TABLE, DESCRIBE of one column, and what Spark shows of a table: its details and properties."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from neve.errors import UnknownName
from neve.model.view import StoredView
from neve.ops.context import LakeContext, TableContext
from neve.plan.scan import METADATA_COLUMNS
from neve.predicate.column_names import find_column, join_name
from neve.run.read.metadata_columns import metadata_columns
from neve.run.spark.types import spark_type_name
from neve.sql.ddl_text import name_text, sort_order_text, term_text
from neve.sql.describe_view import view_rows
from neve.sql.reader import Reader
from neve.sql.statement import MetadataQuery, Name
from neve.sql.stored_views import find_table_or_view

_DETAILS = ("comment", "owner")  # properties that Spark shows as details of their own
DescribeRow = tuple[str, str, str | None]


def shown_properties(context: TableContext) -> dict[str, str]:
    """Return the properties of a table as Spark shows them: with facts among them, and without those that are details.

    They are sorted by name.
    """
    metadata = context.metadata
    snapshot, schema, order = metadata.current_snapshot(), metadata.schema(), metadata.sort_order()
    facts = {
        "format": f"iceberg/{context.properties.file_format}",
        "format-version": str(metadata.format_version),
        "current-snapshot-id": "none" if snapshot is None else str(snapshot.snapshot_id),
    }
    if order.fields:
        facts["sort-order"] = sort_order_text(order, schema)
    if identifiers := [schema.find_column_name(i) or str(i) for i in schema.identifier_field_ids]:
        facts["identifier-fields"] = f"[{','.join(identifiers)}]"
    shown = {name: value for name, value in metadata.properties.items() if name not in _DETAILS}
    return dict(sorted({**shown, **facts}.items()))


def table_details(context: TableContext, separator: str) -> Iterator[tuple[str, str]]:
    """Yield what Spark calls the details of a table, by name; `separator` goes between properties."""
    own = context.metadata.properties
    yield "Type", "MANAGED"
    if "comment" in own:
        yield "Comment", own["comment"]
    yield "Location", context.metadata.location
    yield "Provider", "iceberg"
    if "owner" in own:
        yield "Owner", own["owner"]
    properties = (f"{name}={value}" for name, value in shown_properties(context).items())
    yield "Table Properties", f"[{separator.join(properties)}]"


@dataclass(frozen=True)
class DescribeTable(MetadataQuery):
    """`DESCRIBE [TABLE] [EXTENDED | FORMATTED] t`."""

    table: Name
    is_extended: bool = False

    columns = ("col_name", "data_type", "comment")

    def _rows(self, lake: LakeContext) -> Iterator[DescribeRow]:
        found = find_table_or_view(lake, self.table)
        if isinstance(found, StoredView):
            yield from view_rows(found, lake.name, is_extended=self.is_extended)
            return
        context = found.context
        yield from _column_rows(context)
        if self.is_extended:
            yield "", "", ""
            yield "# Metadata Columns", "", ""
            hidden = metadata_columns(context.specs)
            yield from ((name, spark_type_name(hidden[name]), "") for name in METADATA_COLUMNS)
            yield "", "", ""
            yield "# Detailed Table Information", "", ""
            yield "Name", join_name((lake.name, *context.iceberg.name())), ""
            yield from ((name, value, "") for name, value in table_details(context, ","))
            yield from _statistics(context)


def _column_rows(context: TableContext) -> Iterator[DescribeRow]:
    """Yield the columns, and the default spec as Spark shows it: its columns if it has no transforms."""
    schema = context.metadata.schema()
    fields = [f for f in context.metadata.spec().fields if str(f.transform) != "void"]
    yield from ((column.name, spark_type_name(column), column.doc) for column in schema.fields)
    if fields and all(str(f.transform) == "identity" for f in fields):
        yield "# Partition Information", "", ""
        yield "# col_name", "data_type", "comment"
        for field in fields:
            column = schema.find_field(field.source_id)
            yield term_text(field, schema), spark_type_name(column), column.doc
    elif fields:
        yield "", "", ""
        yield "# Partitioning", "", ""
        yield from ((f"Part {at}", term_text(field, schema), "") for at, field in enumerate(fields))


def _statistics(context: TableContext) -> Iterator[DescribeRow]:
    """Yield the size of the table, if its current snapshot states it."""
    snapshot = context.metadata.current_snapshot()
    summary = snapshot.summary.additional_properties if snapshot is not None and snapshot.summary else {}
    known = {"total-files-size": "0", "total-records": "0"} if snapshot is None else summary
    size, rows = known.get("total-files-size"), known.get("total-records")
    if size is not None and rows is not None:
        yield "Statistics", f"{size} bytes, {rows} rows", None


@dataclass(frozen=True)
class DescribeColumn(MetadataQuery):
    """`DESCRIBE [TABLE] t column`."""

    table: Name
    column: Name

    columns = ("info_name", "info_value")

    def _rows(self, lake: LakeContext) -> Iterator[tuple[str, str]]:
        found, name = find_table_or_view(lake, self.table), ".".join(self.column)
        schema = found.metadata.current_schema() if isinstance(found, StoredView) else found.schema
        column = find_column(schema, name, case_sensitive=False)
        if column is None:
            raise UnknownName("column", name, schema.column_names, f"table {found.name}")
        yield "col_name", name_text(column.name)
        yield "data_type", spark_type_name(column)
        yield "comment", column.doc or "NULL"


def parse_describe(reader: Reader) -> DescribeTable | DescribeColumn:
    """Parse a DESCRIBE."""
    if not reader.take_if_next("DESCRIBE"):
        reader.expect("DESC")
    reader.take_if_next("TABLE")
    is_extended = reader.take_if_next("EXTENDED") or reader.take_if_next("FORMATTED")
    table = reader.table_name()
    return DescribeColumn(table, reader.dotted_name("a column")) if reader.word else DescribeTable(table, is_extended)
