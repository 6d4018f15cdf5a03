"""Decide for SQL text whether a lake or Spark runs it, and run it there.

- A statement about a table or namespace of a lake is run by that lake.
- A query that reads tables of lakes is run by Spark, on views of these tables.
- So is the query inside a statement about something of Spark: `INSERT INTO parquet_table SELECT … FROM lake.db.t`.
- Everything else is passed to Spark as it is, with Spark's own errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from neve.errors import UnknownName, UserError
from neve.ops.sql_views import Views, register_views
from neve.predicate.column_names import quote_name
from neve.predicate.sql_text import SqlToken
from neve.predicate.table_references import TableName
from neve.run.spark.input_rows import as_dataframe
from neve.run.spark.session import is_classic, substitute_variables
from neve.session_catalog.session_lakes import SessionLakes
from neve.sql import run
from neve.sql.parameters import bind_parameters
from neve.sql.query import QUERY_KEYWORDS, prepare_text
from neve.sql.reader import Reader
from neve.sql.statement import Name

RunInSpark = Callable[..., DataFrame]  # the session's own `sql`
Parameters = Mapping[str, Any] | list[Any] | None

_CHANGES = ("INSERT", "UPDATE", "DELETE", "MERGE")
_NAMESPACE_WORDS = ("NAMESPACE", "DATABASE", "SCHEMA", "NAMESPACES", "DATABASES", "SCHEMAS", "TABLES", "VIEWS")
# What may stand before the name of the table or namespace that a statement is about.
_WORDS_BEFORE_TARGET = frozenset(
    re.findall(
        r"\w+",
        """INSERT INTO OVERWRITE TABLE UPDATE DELETE FROM MERGE WITH SCHEMA EVOLUTION CREATE OR REPLACE IF NOT EXISTS
        DROP ALTER TRUNCATE DESCRIBE DESC EXTENDED FORMATTED SHOW TBLPROPERTIES PARTITIONS COLUMNS IN CALL REFRESH
        ANALYZE TEMPORARY TEMP GLOBAL VIEW CACHE LAZY UNCACHE NAMESPACE DATABASE NAMESPACES DATABASES SCHEMAS TABLES
        VIEWS""",
    )
)


@dataclass(frozen=True)
class Target:
    """What a statement is about: the name of a table, namespace, view or procedure, and where it is in the text."""

    name: Name
    start: int
    end: int
    is_namespace: bool


def run_sql(lakes: SessionLakes, in_spark: RunInSpark, text: str, args: Parameters = None) -> DataFrame:
    """Run a statement in the lake that it is about, or in Spark."""
    if isinstance(text, str) and "${" in text:
        text = substitute_variables(lakes.spark, text)
    reader = _reader_of(text)
    if reader is None or reader.word is None or not lakes.mentions_lake(reader.words):
        return in_spark(text, args)
    if args:
        text, args = _with_literals(text, args)
        reader = Reader.of(text)
    if reader.sees("USE") or reader.sees("SET", "CATALOG"):
        return _use(lakes, in_spark, reader)
    if _is_query(reader):
        return run_query(lakes, in_spark, text, args)
    if reader.sees("EXPLAIN") or _creates_view(reader):
        return _run_in_lake(lakes, next(iter(lakes.by_name)), text, args)
    return _run_by_target(lakes, in_spark, reader, args)


def _with_literals(text: str, args: Parameters) -> tuple[str, Parameters]:
    """Write parameters into a text as literals, unless one lacks a value or is of a type that only Spark takes."""
    try:
        return bind_parameters(text, args, allows_unused=True), None  # Spark ignores unused values
    except UserError:
        return text, args


def _run_by_target(lakes: SessionLakes, in_spark: RunInSpark, reader: Reader, args: Parameters) -> DataFrame:
    """Run a statement in the lake that holds what it is about, or in Spark."""
    target = _find_target(reader)
    if target is None:  # SHOW TABLES and the like
        return (
            _run_in_lake(lakes, lakes.current[0], reader.text, args) if lakes.current else in_spark(reader.text, args)
        )
    place = lakes.place_of(target.name)
    if place is None:
        return _run_with_query(lakes, in_spark, reader, target, args)
    return _run_in_lake(lakes, place[0], _with_full_name(reader, target, place), args)


def run_query(lakes: SessionLakes, in_spark: RunInSpark, text: str, args: Parameters = None) -> DataFrame:
    """Run a query in Spark, on views of the tables of lakes that it reads."""
    for name in lakes.by_name:
        text = prepare_text(lakes.context_of((name,)), text)
    views = _register_views(lakes, text)
    try:
        return in_spark(views.single_text, args)
    finally:
        if is_classic(lakes.spark):  # Spark Connect resolves the views when the rows are fetched
            views.close()


def _register_views(lakes: SessionLakes, text: str) -> Views:
    def refuse(name: TableName) -> None:
        if name.parts[0] in lakes.by_name:
            raise lakes.not_found(name.parts)

    return register_views(lakes.table_lookup(), lambda: lakes.spark, text, refuse=refuse)


def to_dataframe(spark: SparkSession, result: Any) -> DataFrame:
    """Return the result of a statement as Spark would: rows, or an empty DataFrame without columns."""
    if isinstance(result, DataFrame):
        return result
    rows = result if isinstance(result, pa.Table) else getattr(result, "output_rows", None)
    return spark.createDataFrame([], StructType()) if rows is None else as_dataframe(spark, rows, Schema())


def _reader_of(text: str) -> Reader | None:
    """Return a reader of a statement; None for text that only Spark can explain."""
    try:
        return Reader.of(text) if isinstance(text, str) else None
    except UserError:
        return None


def _is_query(reader: Reader) -> bool:
    if not reader.sees("WITH"):
        return reader.sees_one_of(*QUERY_KEYWORDS)
    start = reader.position
    reader.text_until(*QUERY_KEYWORDS[:1], "FROM", "VALUES", *_CHANGES, what="a query")
    is_query = not reader.sees_one_of(*_CHANGES)
    reader.position = start
    return is_query


def _creates_view(reader: Reader) -> bool:
    words = [word.value for word in reader.words[:5]]
    return words[0] == "CREATE" and "VIEW" in words and bool({"TEMP", "TEMPORARY"} & set(words))


def _find_target(reader: Reader) -> Target | None:
    """Return what a statement is about; None if it names nothing."""
    if reader.sees("WITH"):
        reader.text_until(*_CHANGES, what="a statement")
    seen = set[str]()
    while (word := reader.word) is not None and word.value in _WORDS_BEFORE_TARGET and not _precedes_dot(reader):
        seen.add(word.value)
        reader.position += 1
    if reader.word is None or not reader.word.is_name or reader.sees("LIKE"):
        return None
    words = reader.dotted_name_words("a name")
    is_namespace = bool(seen & {*_NAMESPACE_WORDS}) and "EVOLUTION" not in seen
    is_namespace |= {"SHOW", "TABLE", "EXTENDED"} <= seen
    return Target(tuple(word.name for word in words), words[0].start, words[-1].end, is_namespace)


def _precedes_dot(reader: Reader) -> bool:
    following: tuple[SqlToken, ...] = reader.words[reader.position + 1 : reader.position + 2]
    return bool(following) and following[0].matches(".")


def _with_full_name(reader: Reader, target: Target, place: Name) -> str:
    """Put the full name of the target into a statement; names of namespaces go without the lake."""
    text, name = reader.text, place[1:] if target.is_namespace else place
    if name:
        return text[: target.start] + ".".join(map(quote_name, name)) + text[target.end :]
    word_before = max((w for w in reader.words if w.end <= target.start), key=lambda w: w.start)  # IN or FROM
    return text[: word_before.start] + text[target.end :]


def _run_in_lake(lakes: SessionLakes, name: str, text: str, args: Parameters) -> DataFrame:
    context = lakes.context_of((name,))
    try:
        result = run(context, text) if args is None else run(context, text, args=args)
    except UnknownName as e:
        if e.kind != "table":
            raise
        raise lakes.not_found((name, *str(e.name).split("."))) from e
    return to_dataframe(lakes.spark, result)


def _run_with_query(
    lakes: SessionLakes, in_spark: RunInSpark, reader: Reader, target: Target, args: Parameters
) -> DataFrame:
    """Run a statement about something of Spark; the query in it may read tables of lakes."""
    start = next((w.start for w in reader.words if w.start >= target.end and w.matches(*QUERY_KEYWORDS[:3])), None)
    if start is None:
        return in_spark(reader.text, args)
    views = _register_views(lakes, reader.text[start:])
    with views:
        return in_spark(reader.text[:start] + views.single_text, args)


def _use(lakes: SessionLakes, in_spark: RunInSpark, reader: Reader) -> DataFrame:
    """Make a lake, and a namespace in it, the current catalog; any other name is Spark's."""
    text = reader.text
    reader.position += 2 if reader.sees("SET") else 1
    is_namespace = reader.take_if_next("NAMESPACE") or reader.take_if_next("DATABASE") or reader.take_if_next("SCHEMA")
    name = reader.dotted_name("a catalog or a namespace")
    place = lakes.place_of((*lakes.current[:1], *name) if is_namespace and lakes.current else name)
    if place is None:
        lakes.current = ()
        return in_spark(text)
    if len(name) == 1 and not is_namespace and lakes.current and name[0] not in lakes.by_name:
        place = (lakes.current[0], *name)  # `USE db` stays in the current catalog
    lake = lakes.by_name[place[0]]
    if place[1:] and not lake.catalog.namespace_exists(place[1:]):
        known = (".".join(namespace) for namespace in lake.catalog.list_namespaces())
        raise UnknownName("namespace", ".".join(place[1:]), known, f"lake {place[0]}")
    lakes.current = place
    return to_dataframe(lakes.spark, None)


def as_table_query(name: str, options: Mapping[str, Any]) -> str:
    """Return the query for all rows of a table, in the state that options of a reader choose."""
    states = {
        "snapshot-id": lambda value: f"VERSION AS OF {int(value)}",
        "versionasof": lambda value: f"VERSION AS OF {_quote(value)}",
        "branch": lambda value: f"VERSION AS OF {_quote(value)}",
        "tag": lambda value: f"VERSION AS OF {_quote(value)}",
        "as-of-timestamp": lambda value: f"TIMESTAMP AS OF timestamp_millis({int(value)})",
        "timestampasof": lambda value: f"TIMESTAMP AS OF {_quote(value)}",
    }
    chosen = [(option, value) for option, value in options.items() if option.lower() in states]
    if len(chosen) > 1:
        raise UserError(f"Choose one of the options {' and '.join(o for o, _ in chosen)}: each names a snapshot.")
    state = "".join(f" {states[option.lower()](value)}" for option, value in chosen)
    return f"SELECT * FROM {name}{state}"  # noqa: S608 - Spark parses the name


def _quote(value: object) -> str:
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"
