"""SHOW: tables, namespaces, and the columns, partitions, properties and definition of a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from pyiceberg.partitioning import PartitionField
from pyiceberg.typedef import Identifier
from pyspark.sql.types import StructField, StructType

from neve.catalog import list_namespaces, list_tables, list_views
from neve.errors import UnsupportedFeature, UserError
from neve.model.ddl import PartitionTerm
from neve.model.partition import partition_folders
from neve.model.view import StoredView
from neve.ops.context import LakeContext, TableContext
from neve.predicate.column_names import join_name
from neve.predicate.sql_text import TokenKind
from neve.run.spark.types import spark_type
from neve.sql.alter_table import parse_property_name
from neve.sql.ddl_text import column_text, name_text, path_text, sort_order_text, string_text, term_text
from neve.sql.describe import shown_properties, table_details
from neve.sql.describe_view import create_statement, view_properties
from neve.sql.namespaces import namespace_name
from neve.sql.reader import Reader
from neve.sql.statement import MetadataQuery, Name, find_table
from neve.sql.stored_views import find_table_or_view
from neve.tree.entries import Content


def matches_pattern(name: str, pattern: str | None) -> bool:
    """Return whether a name matches a pattern of SHOW: `*` is any text, `|` separates alternatives.

    As in Spark, the rest is a regular expression, and case does not matter.

    >>> [matches_pattern("orders", pattern) for pattern in ("ord*", "a|ORDERS", "order", None)]
    [True, True, False, True]
    """
    if pattern is None:
        return True
    for alternative in pattern.strip().split("|"):
        with suppress(re.error):
            if re.fullmatch(alternative.replace("*", ".*"), name, re.IGNORECASE):
                return True
    return False


@dataclass(frozen=True)
class ShowTables(MetadataQuery):
    """`SHOW TABLES [IN ns] [LIKE 'pattern']`; without a namespace, those of the one in use, or of the whole lake."""

    namespace: Name | None = None
    pattern: str | None = None

    columns: ClassVar[tuple[str, ...]] = ("namespace", "tableName", "isTemporary")

    def _rows(self, lake: LakeContext) -> Iterator[tuple[str, str, bool]]:
        yield from ((join_name(name[:-1]), name[-1], False) for name in self._names(lake))

    def _names(self, lake: LakeContext) -> list[Identifier]:
        namespace = lake.session.namespace if self.namespace is None else namespace_name(lake, self.namespace)
        names = list_tables(lake.catalog, namespace or None)
        return [name for name in names if matches_pattern(name[-1], self.pattern)]


@dataclass(frozen=True)
class ShowViews(MetadataQuery):
    """`SHOW VIEWS [IN ns] [LIKE 'pattern']`: the views that the catalog keeps, and the temporary ones of the lake."""

    namespace: Name | None = None
    pattern: str | None = None

    columns = ("namespace", "viewName", "isTemporary")

    def _rows(self, lake: LakeContext) -> Iterator[tuple[str, str, bool]]:
        namespace = lake.session.namespace if self.namespace is None else namespace_name(lake, self.namespace)
        names = [(join_name(name[:-1]), name[-1], False) for name in list_views(lake.catalog, namespace or None)]
        names += [("", name, True) for name in sorted(lake.session.views)]
        yield from (row for row in names if matches_pattern(row[1], self.pattern))


@dataclass(frozen=True)
class ShowTableExtended(ShowTables):
    """`SHOW TABLE EXTENDED [IN ns] LIKE 'pattern'`: the details and columns of each table as one text."""

    columns = ("namespace", "tableName", "isTemporary", "information")

    def _rows(self, lake: LakeContext) -> Iterator[tuple[str, str, bool, str]]:  # type: ignore[override]
        for name in self._names(lake):
            context = lake.table(name)
            namespace = join_name(name[:-1])
            facts = [("Catalog", lake.name), ("Namespace", namespace), ("Table", name[-1])]
            facts += [*table_details(context, ", "), ("Schema", _schema_tree(context))]
            yield namespace, name[-1], False, "".join(f"{fact}: {value}\n" for fact, value in facts)


def _schema_tree(context: TableContext) -> str:
    """Return the columns as Spark prints a schema; those of types that Spark does not have are left out."""
    columns = []
    for column in context.metadata.schema().fields:
        with suppress(UnsupportedFeature):
            columns.append(StructField(column.name, spark_type(column.field_type), not column.required))
    return StructType(columns).treeString()


@dataclass(frozen=True)
class ShowNamespaces(MetadataQuery):
    """`SHOW NAMESPACES [IN ns] [LIKE 'pattern']`, or `DATABASES` or `SCHEMAS`: those directly inside another."""

    parent: Name = ()
    pattern: str | None = None

    columns = ("namespace",)

    def _rows(self, lake: LakeContext) -> Iterator[tuple[str]]:
        parent = namespace_name(lake, self.parent) if self.parent != (lake.name,) else ()
        names = [join_name(name) for name in list_namespaces(lake.catalog, parent)]
        yield from ((name,) for name in names if matches_pattern(name, self.pattern))


@dataclass(frozen=True)
class ShowColumns(MetadataQuery):
    """`SHOW COLUMNS IN t`."""

    table: Name

    columns = ("col_name",)

    def _rows(self, lake: LakeContext) -> Iterator[tuple[str]]:
        found = find_table_or_view(lake, self.table)
        schema = found.metadata.current_schema() if isinstance(found, StoredView) else found.schema
        yield from ((column.name,) for column in schema.fields)


@dataclass(frozen=True)
class ShowProperties(MetadataQuery):
    """`SHOW TBLPROPERTIES t [('key')]`."""

    table: Name
    key: str | None = None

    columns = ("key", "value")

    def _rows(self, lake: LakeContext) -> Iterator[tuple[str, str]]:
        found = find_table_or_view(lake, self.table)
        if isinstance(found, StoredView):
            kind, shown = "View", view_properties(found)
        else:
            kind, shown = "Table", shown_properties(found.context)
        if self.key is None:
            yield from shown.items()
        else:
            missing = f"{kind} {lake.name}.{found.name} does not have property: {self.key}"
            yield self.key, shown.get(self.key, missing)


@dataclass(frozen=True)
class ShowPartitions(MetadataQuery):
    """`SHOW PARTITIONS t`: the partitions of all specs that have data files in the current snapshot."""

    table: Name

    columns = ("partition",)

    def _rows(self, lake: LakeContext) -> Iterator[tuple[str]]:
        context = find_table(lake, self.table).context
        specs = context.specs
        if all(map(specs.is_unpartitioned, specs.by_id)):
            raise UserError(f"Cannot show the partitions of table {context.name}: it is not partitioned.")
        manifests = [manifest for manifest in context.live_manifests(context.head()) if not manifest.is_deletes]
        entries = context.live_entries(manifests)
        _, keys = entries.filter(entries.numpy("content") == Content.DATA).partition_codes()
        found = set()
        for at, spec_id in enumerate(keys["spec_id"].to_pylist()):
            if (values := keys.stored_values(at)) is not None:
                found.add("/".join(partition_folders(specs, spec_id, values)))
        yield from ((partition,) for partition in sorted(found))


@dataclass(frozen=True)
class ShowCreateTable(MetadataQuery):
    """`SHOW CREATE TABLE t`: the statement that creates an equal table without rows."""

    table: Name

    columns = ("createtab_stmt",)

    def _rows(self, lake: LakeContext) -> Iterator[tuple[str]]:
        found = find_table_or_view(lake, self.table)
        if isinstance(found, StoredView):
            yield (create_statement(found, lake.name),)
        else:
            name = ".".join(map(name_text, (lake.name, *found.context.iceberg.name())))
            yield (_create_statement(found.context, name),)


def _create_statement(context: TableContext, name: str) -> str:
    """Return a CREATE TABLE, and below it as comments the changes that it has no clause for."""
    metadata = context.metadata
    schema, own = metadata.schema(), dict(metadata.properties)
    fields = [f for f in metadata.spec().fields if str(f.transform) != "void"]
    comment = own.pop("comment", None)
    properties = sorted({"format-version": str(metadata.format_version), **own}.items())
    lines = [f"CREATE TABLE {name} {_lines(column_text(column) for column in schema.fields)}", "USING iceberg"]
    if fields:
        lines.append(f"PARTITIONED BY ({', '.join(_partition_text(context, field) for field in fields)})")
    if comment is not None:
        lines.append(f"COMMENT {string_text(comment)}")
    lines.append(f"LOCATION {string_text(metadata.location)}")
    lines.append(f"TBLPROPERTIES {_lines(f'{string_text(key)} = {string_text(value)}' for key, value in properties)}")
    if metadata.sort_order().fields:
        lines.append(f"-- ALTER TABLE {name} WRITE LOCALLY ORDERED BY {sort_order_text(metadata.sort_order(), schema)}")
    if identifiers := sorted(path_text(field_id, schema) for field_id in schema.identifier_field_ids):
        lines.append(f"-- ALTER TABLE {name} SET IDENTIFIER FIELDS {', '.join(identifiers)}")
    return "\n".join(lines) + "\n"


def _lines(items: Iterable[str]) -> str:
    """Put each item on a line of its own, in parentheses."""
    return f"({','.join(f'{chr(10)}  {item}' for item in items)})"


def _partition_text(context: TableContext, field: PartitionField) -> str:
    """Return a field of a partition spec; one with a name of its own is followed by it."""
    schema = context.metadata.schema()
    default = PartitionTerm(field.transform, schema.find_column_name(field.source_id) or "").default_name()
    alias = "" if field.name == default else f" AS {name_text(field.name)}"
    return f"{term_text(field, schema)}{alias}"


def parse_show(reader: Reader) -> MetadataQuery:
    """Parse a SHOW."""
    reader.expect("SHOW")
    for keywords, parse in _PARSERS.items():
        if reader.take_if_next(*keywords):
            return parse(reader)
    expected = "TABLES, VIEWS, TABLE EXTENDED, NAMESPACES, CREATE TABLE, COLUMNS, TBLPROPERTIES or PARTITIONS"
    raise reader.syntax_error(f"expected {expected}")


def _parse_tables(reader: Reader) -> ShowTables:
    namespace = _parse_namespace(reader)
    return ShowTables(namespace, _parse_pattern(reader))


def _parse_views(reader: Reader) -> ShowViews:
    namespace = _parse_namespace(reader)
    return ShowViews(namespace, _parse_pattern(reader))


def _parse_table_extended(reader: Reader) -> ShowTableExtended:
    namespace = _parse_namespace(reader)
    reader.expect("LIKE")
    return ShowTableExtended(namespace, reader.string("a pattern"))


def _parse_namespaces(reader: Reader) -> ShowNamespaces:
    parent = _parse_namespace(reader)
    return ShowNamespaces(parent or (), _parse_pattern(reader))


def _parse_namespace(reader: Reader) -> Name | None:
    has_namespace = reader.take_if_next("IN") or reader.take_if_next("FROM")
    return reader.dotted_name("a namespace") if has_namespace else None


def _parse_pattern(reader: Reader) -> str | None:
    has_pattern = reader.take_if_next("LIKE") or (reader.word is not None and reader.word.kind is TokenKind.STRING)
    return reader.string("a pattern") if has_pattern else None


def _parse_columns(reader: Reader) -> ShowColumns:
    if not reader.take_if_next("IN"):
        reader.expect("FROM")
    table, namespace = reader.table_name(), _parse_namespace(reader)
    return ShowColumns((*(namespace or ()), *table))


def _parse_properties(reader: Reader) -> ShowProperties:
    table = reader.table_name()
    if not reader.take_if_next("("):
        return ShowProperties(table)
    key = parse_property_name(reader)
    reader.expect(")")
    return ShowProperties(table, key)


# The keywords after SHOW, and the parser of what follows.
_PARSERS: dict[tuple[str, ...], Callable[[Reader], MetadataQuery]] = {
    ("TABLES",): _parse_tables,
    ("VIEWS",): _parse_views,
    ("TABLE", "EXTENDED"): _parse_table_extended,
    **dict.fromkeys((("NAMESPACES",), ("DATABASES",), ("SCHEMAS",)), _parse_namespaces),
    ("CREATE", "TABLE"): lambda reader: ShowCreateTable(reader.table_name()),
    ("COLUMNS",): _parse_columns,
    ("TBLPROPERTIES",): _parse_properties,
    ("PARTITIONS",): lambda reader: ShowPartitions(reader.table_name()),
}
