"""Queries: SELECT, WITH, FROM and VALUES over tables of the lake and the caller's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from neve.errors import UnknownName, UserError
from neve.ops.context import LakeContext
from neve.ops.sql_views import register_views
from neve.run.spark.expressions import user_error_from_spark
from neve.run.spark.session import is_classic, quiet_errors
from neve.sql.reader import Reader
from neve.sql.statement import StatementOptions, table_finder

QUERY_KEYWORDS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(")


@dataclass(frozen=True)
class Query:
    """A query, as it was written."""

    text: str

    def run(self, lake: LakeContext, options: StatementOptions) -> DataFrame:
        """The rows as a Spark DataFrame; they are read when they are asked for."""
        options.require_only("A query")
        return run_query(lake, self.text)


def parse_query(reader: Reader) -> Query:
    """Read a query; `TABLE t` is all of a table."""
    return Query(query_text(reader))


def query_text(reader: Reader) -> str:
    """The text of a query, up to the end of the statement."""
    if reader.take_if_next("TABLE"):
        return f"SELECT * FROM {reader.remaining_text('the name of a table')}"  # noqa: S608
    return reader.remaining_text("a query")


def run_query(lake: LakeContext, text: str) -> DataFrame:
    """The rows of a query."""
    views = register_views(table_finder(lake), lake.spark, text)
    try:
        with _translate_spark_errors(lake):
            return lake.spark().sql(views.single_text)
    finally:
        if is_classic(lake.spark()):  # Spark Connect looks at the views when the rows are asked for
            views.close()


@contextmanager
def open_query(lake: LakeContext, text: str) -> Iterator[DataFrame]:
    """The rows of a query, for as long as the block lasts."""
    with register_views(table_finder(lake), lake.spark, text) as views:
        with _translate_spark_errors(lake):
            frame = lake.spark().sql(views.single_text)
        yield frame


@contextmanager
def _translate_spark_errors(lake: LakeContext) -> Iterator[None]:
    """What Spark says about a query, in one sentence."""
    try:
        with quiet_errors():
            yield
    except PySparkException as e:
        raise _user_error_for(lake, e) from e


def _user_error_for(lake: LakeContext, error: PySparkException) -> UserError:
    if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
        name = (error.getMessageParameters() or {}).get("relationName") or ""
        return UnknownName("table", name.replace("`", ""), lake.table_names())
    return user_error_from_spark("Cannot run the query", error)
