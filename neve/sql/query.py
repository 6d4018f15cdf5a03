"""Queries over the tables of the lake and the caller's own views; SHOW TABLES, SHOW NAMESPACES and DESCRIBE.

Spark SQL reaches further than tables: it reads any file by its path (``csv.`/etc/passwd` ``), calls methods of Java
classes (`reflect`), runs programs (`TRANSFORM … USING`), and calls functions that the session has registered. A
restricted query is checked by its text before Spark sees it: it reads nothing but tables of the lake.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from pyiceberg.types import NestedField
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from neve.errors import UnknownName, UnsupportedFeature, UserError
from neve.ops.context import LakeContext
from neve.ops.sql_views import register_views
from neve.predicate.sql_features import function_calls, parse_fragment
from neve.predicate.sql_text import TokenKind
from neve.predicate.table_references import TableName
from neve.run.spark.expressions import user_error_from_spark
from neve.run.spark.session import is_classic, quiet_errors
from neve.run.spark.types import spark_field
from neve.sql.reader import Reader
from neve.sql.statement import Name, StatementOptions, find_table, table_finder

QUERY_KEYWORDS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(")

_OUTSIDE_FUNCTIONS = frozenset({"reflect", "try_reflect", "java_method", "from_protobuf", "to_protobuf", "identifier"})
_RESTRICTED = "A restricted query reads only tables of the lake."
_TABLES_SCHEMA = pa.schema([("namespace", pa.string()), ("tableName", pa.string())])
_DESCRIBE_SCHEMA = pa.schema([("col_name", pa.string()), ("data_type", pa.string()), ("comment", pa.string())])
DescribeRow = tuple[str, str, str | None]


@dataclass(frozen=True)
class Query:
    """A query, as it was written."""

    text: str
    is_restricted: bool = False  # reads nothing but tables of the lake

    def run(self, lake: LakeContext, options: StatementOptions) -> DataFrame:
        """Return the rows as a Spark DataFrame, which reads them lazily."""
        options.require_only("A query")
        if self.is_restricted:
            _refuse_outside_calls(lake.spark(), self.text)
        refuse = _refuse_outside_names if self.is_restricted else (lambda name: None)
        views = register_views(table_finder(lake), lake.spark, self.text, refuse=refuse)
        try:
            with _translate_spark_errors(lake):
                return lake.spark().sql(views.single_text)
        finally:
            if is_classic(lake.spark()):  # Spark Connect resolves the views when the rows are fetched
                views.close()


def _refuse_outside_names(name: TableName) -> None:
    raise UserError(f"Cannot read {name.name}: it is no table of the lake. {_RESTRICTED}")


def _refuse_outside_calls(spark: SparkSession, text: str) -> None:
    """Reject calls of functions that reach beyond their arguments, and of programs."""
    tokens = parse_fragment(text).tokens
    called = [name for name, _ in function_calls(tokens)]
    system = frozenset(row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()) if called else frozenset()
    for name in called:
        if name in _OUTSIDE_FUNCTIONS or (name not in system and spark.catalog.functionExists(name)):
            raise UserError(f"Cannot call {name} here. {_RESTRICTED}")
    for name, _ in function_calls(tokens, qualified=True):
        raise UserError(f"Cannot call {name} of a catalog here. {_RESTRICTED}")
    for token, following in pairwise(tokens):
        if token.matches("USING") and following.kind is TokenKind.STRING:
            raise UserError(f"Cannot run a program with USING {following.text}. {_RESTRICTED}")


@contextmanager
def open_query(lake: LakeContext, text: str) -> Iterator[DataFrame]:
    """Open the rows of a query until the end of the block."""
    with register_views(table_finder(lake), lake.spark, text) as views:
        with _translate_spark_errors(lake):
            frame = lake.spark().sql(views.single_text)
        yield frame


@contextmanager
def _translate_spark_errors(lake: LakeContext) -> Iterator[None]:
    """Turn Spark's errors about a query into errors of one sentence."""
    try:
        with quiet_errors():
            yield
    except PySparkException as e:
        if e.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            name = (e.getMessageParameters() or {}).get("relationName") or ""
            raise UnknownName("table", name.replace("`", ""), lake.table_names()) from e
        raise user_error_from_spark("Cannot run the query", e) from e


@dataclass(frozen=True)
class ShowTables:
    """`SHOW TABLES [IN db]`."""

    namespace: str | None = None

    def run(self, lake: LakeContext, options: StatementOptions) -> pa.Table:
        """List the tables of the lake, or of one namespace."""
        options.require_only("SHOW TABLES")
        names = [name.rpartition(".") for name in lake.table_names(self.namespace)]
        columns = {"namespace": [n for n, _, _ in names], "tableName": [t for _, _, t in names]}
        return pa.table(columns, schema=_TABLES_SCHEMA)


@dataclass(frozen=True)
class ShowNamespaces:
    """`SHOW NAMESPACES`, or `DATABASES` or `SCHEMAS`."""

    def run(self, lake: LakeContext, options: StatementOptions) -> pa.Table:
        """List the namespaces of the lake."""
        options.require_only("SHOW NAMESPACES")
        return pa.table({"namespace": pa.array(sorted(map(".".join, lake.catalog.list_namespaces())), pa.string())})


@dataclass(frozen=True)
class Describe:
    """`DESCRIBE [TABLE] [EXTENDED] t`."""

    table: Name
    is_extended: bool = False

    def run(self, lake: LakeContext, options: StatementOptions) -> pa.Table:
        """List the columns and the partitioning of a table; EXTENDED adds its location and properties."""
        options.require_only("DESCRIBE")
        table = find_table(lake, self.table)
        rows: list[DescribeRow] = [(f.name, _spark_type_name(f), f.doc) for f in table.schema.fields]
        metadata = table.context.metadata
        if metadata.spec().fields:
            rows.append(("# Partitioning", "", None))
        for at, field in enumerate(metadata.spec().fields):  # the default spec, as Spark shows it
            source = metadata.schema().find_column_name(field.source_id) or field.name
            term = source if str(field.transform) == "identity" else f"{field.transform}({source})"
            rows.append((f"Part {at}", term, None))
        if self.is_extended:
            rows += [
                ("# Detailed Table Information", "", None),
                ("Name", table.name, None),
                ("Location", metadata.location, None),
                ("Format version", str(metadata.format_version), None),
                *((name, value, None) for name, value in sorted(metadata.properties.items())),
            ]
        names = _DESCRIBE_SCHEMA.names
        return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], _DESCRIBE_SCHEMA)


def _spark_type_name(field: NestedField) -> str:
    """Return Spark's name of a type; if Spark has no such type, Iceberg's name."""
    try:
        return spark_field(field).dataType.simpleString()
    except UnsupportedFeature:
        return str(field.field_type)


def parse_query(reader: Reader) -> Query:
    """Parse a query; `TABLE t` selects a whole table."""
    return Query(query_text(reader))


def query_text(reader: Reader) -> str:
    """Return the text of a query, up to the end of the statement."""
    if reader.take_if_next("TABLE"):
        return f"SELECT * FROM {reader.remaining_text('the name of a table')}"  # noqa: S608
    return reader.remaining_text("a query")


def parse_show(reader: Reader) -> ShowTables | ShowNamespaces:
    """Parse a SHOW."""
    reader.expect("SHOW")
    if reader.take_if_next("NAMESPACES") or reader.take_if_next("DATABASES") or reader.take_if_next("SCHEMAS"):
        return ShowNamespaces()
    if not reader.take_if_next("TABLES"):
        raise reader.syntax_error("expected TABLES or NAMESPACES")
    if reader.take_if_next("IN") or reader.take_if_next("FROM"):
        return ShowTables(".".join(reader.dotted_name("a namespace")))
    return ShowTables()


def parse_describe(reader: Reader) -> Describe:
    """Parse a DESCRIBE."""
    if not reader.take_if_next("DESCRIBE"):
        reader.expect("DESC")
    reader.take_if_next("TABLE")
    is_extended = reader.take_if_next("EXTENDED")
    return Describe(reader.table_name(), is_extended)
