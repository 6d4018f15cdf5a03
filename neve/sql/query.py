"""Queries: SELECT, WITH, FROM and VALUES over tables of the lake and the caller's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from neve.errors import UnknownName, UserError
from neve.ops.views import views_of
from neve.predicate.source import wrong
from neve.run.spark.session import is_classic, quiet_errors
from neve.sql.options import Options
from neve.sql.reader import Reader
from neve.sql.target import find_in

if TYPE_CHECKING:
    from neve.lake import Lake

__all__ = ["QUERY", "Query", "frame_of", "query", "query_text", "rows_of"]

QUERY = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(")


@dataclass(frozen=True)
class Query:
    """A query, as it was written."""

    text: str

    def run(self, lake: Lake, options: Options) -> DataFrame:
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


def frame_of(lake: Lake, text: str) -> DataFrame:
    """The rows of a query."""
    views = views_of(find_in(lake), lake.spark, text)
    try:
        with _plainly(lake, text):
            return lake.spark().sql(views.text)
    finally:
        if is_classic(lake.spark()):  # Spark Connect looks at the views when the rows are asked for
            views.close()


@contextmanager
def rows_of(lake: Lake, text: str) -> Iterator[DataFrame]:
    """The rows of a query, for as long as the block lasts."""
    with views_of(find_in(lake), lake.spark, text) as views:
        with _plainly(lake, text):
            frame = lake.spark().sql(views.text)
        yield frame


@contextmanager
def _plainly(lake: Lake, text: str) -> Iterator[None]:
    """What Spark says about a query, in one sentence that points at the place."""
    try:
        with quiet_errors():
            yield
    except PySparkException as e:
        raise _in_our_words(lake, text, e) from e


def _in_our_words(lake: Lake, text: str, error: PySparkException) -> UserError:
    condition, told = error.getCondition() or "", error.getMessageParameters() or {}
    name = told.get("relationName") or told.get("objectName") or ""
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        return UnknownName("table", name.replace("`", ""), lake.tables())
    if condition.startswith("UNRESOLVED_COLUMN"):
        near = told.get("proposal", "").replace("`", "")
        problem = f"unknown column {name.replace('`', '')!r}{f', did you mean {near}?' if near else ''}"
    else:
        problem = _first_sentence(error)
    start, end = _place(text, error)
    return wrong("SQL", text, start, end, problem, verb="run")


def _first_sentence(error: PySparkException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].partition(" SQLSTATE")[0].rstrip(". ")


def _place(text: str, error: PySparkException) -> tuple[int | None, int | None]:
    """Where the words that Spark complains about stand, if they stand in one place."""
    contexts = error.getQueryContext() or [] if hasattr(error, "getQueryContext") else []
    words = next((c.fragment() for c in contexts if c.fragment()), "")
    if not words or text.count(words) != 1:
        return None, None
    start = text.index(words)
    return start, start + len(words)
