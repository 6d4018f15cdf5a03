"""Queries: SELECT, WITH, FROM and VALUES over tables of the lake and the caller's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from neve.errors import UnknownName, UserError
from neve.ops.context import LakeContext
from neve.ops.sql_views import views_of
from neve.run.spark.expressions import plain_error
from neve.run.spark.session import is_classic, quiet_errors
from neve.sql.reader import Reader
from neve.sql.statement import Options, find_in

QUERY = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(")


@dataclass(frozen=True)
class Query:
    """A query, as it was written."""

    text: str

    def run(self, lake: LakeContext, options: Options) -> DataFrame:
        """The rows as a Spark DataFrame; they are read when they are asked for."""
        options.only("A query")
        return frame_of(lake, self.text)


def query(reader: Reader) -> Query:
    """Read a query; `TABLE t` is all of a table."""
    return Query(query_text(reader))


def query_text(reader: Reader) -> str:
    """The text of a query, up to the end of the statement."""
    if reader.took("TABLE"):
        return f"SELECT * FROM {reader.rest('the name of a table')}"  # noqa: S608
    return reader.rest("a query")


def frame_of(lake: LakeContext, text: str) -> DataFrame:
    """The rows of a query."""
    views = views_of(find_in(lake), lake.spark, text)
    try:
        with _plainly(lake):
            return lake.spark().sql(views.text)
    finally:
        if is_classic(lake.spark()):  # Spark Connect looks at the views when the rows are asked for
            views.close()


@contextmanager
def rows_of(lake: LakeContext, text: str) -> Iterator[DataFrame]:
    """The rows of a query, for as long as the block lasts."""
    with views_of(find_in(lake), lake.spark, text) as views:
        with _plainly(lake):
            frame = lake.spark().sql(views.text)
        yield frame


@contextmanager
def _plainly(lake: LakeContext) -> Iterator[None]:
    """What Spark says about a query, in one sentence."""
    try:
        with quiet_errors():
            yield
    except PySparkException as e:
        raise _in_our_words(lake, e) from e


def _in_our_words(lake: LakeContext, error: PySparkException) -> UserError:
    if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
        name = (error.getMessageParameters() or {}).get("relationName") or ""
        return UnknownName("table", name.replace("`", ""), lake.table_names())
    return plain_error("Cannot run the query", error)
