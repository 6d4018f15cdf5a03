"""Queries over the tables of the lake and the caller's own views.

Spark SQL reaches further than tables: it reads any file by its path (``csv.`/etc/passwd` ``), calls methods of Java
classes (`reflect`), runs programs (`TRANSFORM … USING`), and calls functions that the session has registered. A
restricted query is checked by its text before Spark sees it: it reads nothing but tables of the lake. Spark's plan is
checked as well before it is run, in case that Spark finds in the text what the check of the text did not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StructType

from neve.errors import UnknownName, UserError
from neve.ops.context import LakeContext
from neve.ops.sql_views import TableRead, Views, register_views
from neve.predicate.sql_features import function_calls, parse_fragment
from neve.predicate.sql_text import TokenKind
from neve.predicate.table_references import TableName
from neve.run.spark.arrow_exchange import collect_table
from neve.run.spark.expressions import user_error_from_spark
from neve.run.spark.session import is_classic, parses_text_differently, quiet_errors
from neve.run.spark.types import contains_variant
from neve.sql.iceberg_functions import FUNCTIONS, replace_iceberg_functions
from neve.sql.reader import Reader
from neve.sql.statement import StatementOptions, table_finder
from neve.sql.stored_views import expand_stored_views
from neve.sql.temporary_views import expand_temporary_views

QUERY_KEYWORDS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(")

# Functions that call Java, read files that an option or XML names, or look up what a text names.
_OUTSIDE_FUNCTIONS = (
    *("reflect", "try_reflect", "java_method", "from_protobuf", "to_protobuf", "from_avro", "to_avro"),
    *("schema_of_avro", "from_xml", "schema_of_xml", "python_worker_logs", "identifier"),
    *("xpath", "xpath_boolean", "xpath_double", "xpath_float", "xpath_int", "xpath_long", "xpath_number"),
    *("xpath_short", "xpath_string"),
)
_RELATIONS_WITHOUT_FILES = ("OneRowRelation", "LocalRelation", "ResolvedInlineTable", "Range")
_REFERENCES = ("CTERelationRef", "UnionLoopRef")  # to common table expressions, which are in the plan too
_RESTRICTED = "A restricted query reads only tables of the lake."


@dataclass(frozen=True)
class Query:
    """A query, as it was written."""

    text: str
    is_restricted: bool = False  # reads nothing but tables of the lake

    def run(self, lake: LakeContext, options: StatementOptions) -> DataFrame:
        """Return the rows as a Spark DataFrame, which reads them lazily."""
        options.require_only("A query")
        views = register_query(lake, self.text, only_lake=self.is_restricted)
        try:
            with translate_query_errors(lake):
                if self.is_restricted and is_classic(lake.spark()):
                    _refuse_outside_plan(lake.spark(), views)
                return lake.spark().sql(views.single_text)
        finally:
            if is_classic(lake.spark()):  # Spark Connect resolves the views when the rows are fetched
                views.close()


def collect_rows(rows: DataFrame, count: int) -> pa.Table:
    """Return the first rows of a query to print them; variants become JSON."""
    names, kinds = rows.columns, [field.dataType for field in rows.schema]
    if any(map(contains_variant, kinds)):
        numbered = [f"column{number}" for number in range(len(names))]  # two columns may have one name
        shown = (
            F.to_json(n).alias(n) if contains_variant(kind) else n for n, kind in zip(numbered, kinds, strict=True)
        )
        rows = rows.toDF(*numbered).select(*shown)
    return collect_table(rows.limit(count)).rename_columns(names)


def _refuse_outside_names(name: TableName) -> None:
    raise UserError(f"Cannot read {name.name}: it is no table of the lake. {_RESTRICTED}")


def _refuse_outside_calls(spark: SparkSession, text: str) -> None:
    """Reject calls of functions that reach beyond their arguments, and of programs."""
    if parses_text_differently(spark, text):
        raise UserError(
            "Cannot check this query: the session reads quotes in another way. Turn off "
            "spark.sql.ansi.doubleQuotedIdentifiers and spark.sql.parser.escapedStringLiterals."
        )
    tokens = parse_fragment(text).tokens
    called = [name for name, _ in function_calls(tokens)]
    system = frozenset(row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()) if called else frozenset()
    for name in called:
        if name in _OUTSIDE_FUNCTIONS or (name not in system and spark.catalog.functionExists(name)):
            raise UserError(f"Cannot call {name} here. {_RESTRICTED}")
    for name, at in function_calls(tokens, qualified=True):
        if name in FUNCTIONS and tokens[at - 2].name.lower() == "system":
            continue  # a function of Iceberg, which is replaced
        raise UserError(f"Cannot call {name} of a catalog here. {_RESTRICTED}")
    for token, following in pairwise(tokens):
        if token.matches("USING") and following.kind is TokenKind.STRING:
            raise UserError(f"Cannot run a program with USING {following.text}. {_RESTRICTED}")


def _refuse_outside_plan(spark: SparkSession, views: Views) -> None:
    """Reject a text in which Spark finds a command, a variable of the session, or a relation beside the views."""
    sql, state = spark._jvm.org.apache.spark.sql, spark._jsparkSession.sessionState()  # type: ignore[union-attr]
    parsed = state.sqlParser().parsePlan(views.single_text)
    plan: Any = state.executePlan(parsed, sql.execution.CommandExecutionMode.SKIP()).analyzed()
    patterns = sql.catalyst.trees.TreePattern
    if plan.containsPattern(patterns.COMMAND()) or plan.containsPattern(patterns.VARIABLE_REFERENCE()):
        raise UserError(f"Cannot run a command or read a variable of the session here. {_RESTRICTED}")
    nodes = [plan, *_items(plan.subqueriesAll())]
    while nodes:
        node = nodes.pop()
        kind, children = node.nodeName(), _items(node.children())
        if kind == "SubqueryAlias" and node.alias() in views.view_names:
            continue
        if kind == "View" or not (children or kind in (*_RELATIONS_WITHOUT_FILES, *_REFERENCES)):
            raise UserError(f"Cannot read a {kind}: it is no table of the lake. {_RESTRICTED}")
        nodes += children


def _items(sequence: Any) -> list[Any]:
    """Return the items of a sequence of the JVM."""
    return [sequence.apply(i) for i in range(sequence.size())]


@contextmanager
def open_query(lake: LakeContext, text: str) -> Iterator[DataFrame]:
    """Open the rows of a query until the end of the block."""
    with open_query_and_tables(lake, text) as (frame, _):
        yield frame


@contextmanager
def open_query_and_tables(lake: LakeContext, text: str) -> Iterator[tuple[DataFrame, tuple[TableRead, ...]]]:
    """Open the rows of a query until the end of the block, and return the tables that it reads."""
    with register_query(lake, text) as views:
        with translate_query_errors(lake):
            frame = lake.spark().sql(views.single_text)
        yield frame, views.tables


def register_query(lake: LakeContext, text: str, *, only_lake: bool = False) -> Views:
    """Register the tables that a query reads as views, and replace Iceberg's functions."""
    return _register_views(lake, prepare_text(lake, text, only_lake=only_lake), only_lake)


def prepare_text(lake: LakeContext, text: str, outer_from: str = "", *, only_lake: bool = False) -> str:
    """Replace views and Iceberg's functions in a query, or in an expression on the tables of `outer_from`."""

    def schema_of(query: str) -> StructType:
        with _register_views(lake, query, only_lake) as views, translate_query_errors(lake):
            return lake.spark().sql(views.single_text).schema

    def columns_of(query: str) -> list[str]:
        if only_lake:
            _refuse_outside_calls(lake.spark(), query)
        return list(schema_of(replace_functions(query)).names)

    def type_of(query: str) -> DataType:
        return schema_of(expand_stored_views(lake, query, columns_of)).fields[0].dataType

    def replace_functions(query: str, outer_from: str = "") -> str:
        return replace_iceberg_functions(query, lake.name, type_of, outer_from)

    text = text if only_lake else expand_temporary_views(lake, text)
    text = expand_stored_views(lake, text, columns_of)
    if only_lake:
        _refuse_outside_calls(lake.spark(), text)
    return replace_functions(text, outer_from)


def _register_views(lake: LakeContext, text: str, only_lake: bool) -> Views:
    refuse = _refuse_outside_names if only_lake else (lambda name: None)
    return register_views(table_finder(lake), lake.spark, text, refuse=refuse)


@contextmanager
def translate_query_errors(lake: LakeContext) -> Iterator[None]:
    """Turn Spark's errors about a query into errors of one sentence."""
    try:
        with quiet_errors():
            yield
    except PySparkException as e:
        if e.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            name = (e.getMessageParameters() or {}).get("relationName") or ""
            raise UnknownName("table", name.replace("`", ""), lake.table_names()) from e
        raise user_error_from_spark("Cannot run the query", e) from e


def parse_query(reader: Reader) -> Query:
    """Parse a query; `TABLE t` selects a whole table."""
    return Query(query_text(reader))


def query_text(reader: Reader) -> str:
    """Return the text of a query, up to the end of the statement."""
    if reader.take_if_next("TABLE"):
        return f"SELECT * FROM {reader.remaining_text('the name of a table')}"  # noqa: S608
    return reader.remaining_text("a query")
