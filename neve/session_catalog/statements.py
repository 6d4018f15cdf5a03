"""Decide for SQL text whether a lake or Spark runs it, and run it there.

- A statement about a table or namespace of a lake is run by that lake.
- A query that reads tables of lakes is run by Spark, on views of these tables.
- So is the query inside a statement about something of Spark: `INSERT INTO parquet_table SELECT … FROM lake.db.t`.
- Everything else is passed to Spark as it is, with Spark's own errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from neve.errors import UnknownName, UserError
from neve.ops.sql_views import Views, register_views
from neve.predicate.column_names import quote_name
from neve.predicate.sql_text import TokenKind
from neve.predicate.table_references import TableName
from neve.predicate.time_travel import end_of_parentheses
from neve.run.spark.input_rows import as_dataframe
from neve.run.spark.session import is_classic, substitute_variables
from neve.session_catalog.session_lakes import SessionLakes
from neve.sql import run
from neve.sql.explain import EXPLAIN_MODES
from neve.sql.parameters import bind_parameters
from neve.sql.query import QUERY_KEYWORDS, prepare_text, query_text
from neve.sql.reader import Reader
from neve.sql.statement import Name

RunInSpark = Callable[..., DataFrame]  # the session's own `sql`
Parameters = Mapping[str, Any] | list[Any] | None
Kind = Literal["table", "new table", "cache", "namespace", "procedure"]

_RANGE_OPTIONS = ("start-snapshot-id", "end-snapshot-id", "start-timestamp", "end-timestamp", "stream-from-timestamp")
_CHANGES = ("INSERT", "UPDATE", "DELETE", "MERGE")
_NAMESPACE = "(?:NAMESPACE|DATABASE|SCHEMA)"

# How statements begin that name something that may be in a lake, up to the name; [] is optional. A temporary view
# hides a table, but neither a new table nor a namespace. All other statements are Spark's.
_BEGINNINGS: dict[str, Kind] = {
    "INSERT INTO [TABLE]": "table",
    "INSERT OVERWRITE(?! (?:LOCAL )?DIRECTORY (?:'|USING)) [TABLE]": "table",
    "UPDATE": "table",
    "DELETE FROM": "table",
    "MERGE(?: WITH SCHEMA EVOLUTION)? INTO": "table",
    "TRUNCATE TABLE": "table",
    "CREATE [EXTERNAL] TABLE [IF NOT EXISTS]": "new table",
    "(?:CREATE OR )?REPLACE TABLE": "new table",
    "DROP TABLE [IF EXISTS]": "table",
    "(?:ALTER|REFRESH|ANALYZE|MSCK REPAIR|COMMENT ON) TABLE": "table",
    "CREATE(?: OR REPLACE)? VIEW [IF NOT EXISTS]": "new table",
    "DROP VIEW [IF EXISTS]": "table",
    "ALTER VIEW": "table",
    "(?:CACHE|CACHE LAZY|UNCACHE) TABLE [IF EXISTS]": "cache",
    f"CREATE {_NAMESPACE} [IF NOT EXISTS]": "namespace",
    f"DROP {_NAMESPACE} [IF EXISTS]": "namespace",
    f"(?:ALTER|COMMENT ON) {_NAMESPACE}": "namespace",
    f"DESC(?:RIBE)? {_NAMESPACE}(?! [.]) [EXTENDED]": "namespace",
    "DESC(?:RIBE)?(?! (?:FUNCTION|QUERY|PROCEDURE|SELECT|WITH|VALUES|FROM) [^.]) [TABLE] [EXTENDED|FORMATTED]": "table",
    "SHOW (?:TABLES|VIEWS|NAMESPACES|DATABASES|SCHEMAS|TABLE EXTENDED) (?:IN|FROM)": "namespace",
    "SHOW (?:COLUMNS (?:IN|FROM)|CREATE TABLE|TBLPROPERTIES|PARTITIONS)": "table",
    "CALL": "procedure",
}
# An optional word is a name if a dot or nothing follows.
_COMPILED = [
    (re.compile(re.sub(r" \[([A-Z |]+)\]", r"(?: (?:\1)(?= [^.]))?", text) + "(?= )"), kind)
    for text, kind in _BEGINNINGS.items()
]
_SHOWS_CURRENT = re.compile(
    r"SHOW (?:TABLES|VIEWS|NAMESPACES|DATABASES|SCHEMAS|TABLE EXTENDED|CURRENT \S+)(?: LIKE| '|$)"
)
_CREATES_VIEW_OF_QUERY = re.compile(r"CREATE(?: OR REPLACE)? TEMP(?:ORARY)? VIEW \S+ (?!USING )")
_KEEPS_QUERY = re.compile("CACHE |(?:CREATE|ALTER) (?:OR REPLACE )?(?:GLOBAL )?(?:TEMP(?:ORARY)? )?VIEW ")
_MAY_HOLD_QUERY = ("INSERT", "CREATE", "REPLACE", "CACHE", "ALTER", "DESCRIBE", "DESC", "DECLARE", "SET", *_CHANGES[1:])


@dataclass(frozen=True)
class Target:
    """What a statement is about, and where its name is in the text."""

    name: Name
    start: int
    end: int
    kind: Kind

    def place(self, lakes: SessionLakes) -> Name | None:
        """Return its full name if it is in a lake, or None."""
        if self.kind == "namespace":
            return lakes.place_of_namespace(self.name)
        if self.kind == "procedure" and len(self.name) == 2 and self.name[0].lower() == "system":
            return (lakes.current[0], *self.name) if lakes.current else None
        if self.kind == "cache" and len(self.name) == 1:  # the name of a query of Spark
            return None
        return lakes.place_of_existing(self.name) if self.kind == "table" else lakes.place_of(self.name)


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
    is_explained = reader.take_if_next("EXPLAIN")
    if is_explained:
        any(reader.take_if_next(mode) for mode in EXPLAIN_MODES)
    if (is_explained and _is_query(reader)) or _CREATES_VIEW_OF_QUERY.match(_keywords(reader)):
        return _run_in_lake(lakes, lakes.home, text, args)
    return _run_by_target(lakes, in_spark, reader, args)


def _with_literals(text: str, args: Parameters) -> tuple[str, Parameters]:
    """Write parameters into a text as literals, unless one lacks a value or is of a type that only Spark takes."""
    try:
        return bind_parameters(text, args, allows_unused=True), None  # Spark ignores unused values
    except UserError:
        return text, args


def _run_by_target(lakes: SessionLakes, in_spark: RunInSpark, reader: Reader, args: Parameters) -> DataFrame:
    """Run a statement in the lake that holds what it is about, or in Spark."""
    begun = reader.position
    ctes = reader.text_until(*_CHANGES, what="a statement") if reader.sees("WITH") else ""
    if lakes.current and _SHOWS_CURRENT.match(_keywords(reader)):
        return _run_in_lake(lakes, lakes.home, reader.text, args)
    target = _find_target(reader)
    place = None if target is None else target.place(lakes)
    if target is None or place is None:
        return _run_in_spark(lakes, in_spark, reader, begun, ctes, args)
    if target.kind == "namespace" and len(place) == 1 and not reader.words[0].matches("SHOW"):
        raise UserError(f"{place[0]!r} is a lake, not a namespace. Name a namespace in it, as in {place[0]}.db.")
    full_name = ".".join(map(quote_name, place))
    return _run_in_lake(lakes, place[0], reader.text[: target.start] + full_name + reader.text[target.end :], args)


def run_query(lakes: SessionLakes, in_spark: RunInSpark, text: str, args: Parameters = None) -> DataFrame:
    """Run a query in Spark, on views of the tables of lakes that it reads."""
    views = _register_views(lakes, query_text(Reader.of(text)))
    try:
        return in_spark(views.single_text, args)
    finally:
        if is_classic(lakes.spark):  # Spark Connect resolves the views when the rows are fetched
            views.close()


def _register_views(lakes: SessionLakes, query: str) -> Views:
    """Register the tables of lakes that a query reads; temporary views of lakes are replaced by their queries."""

    def refuse(name: TableName) -> None:
        if len(name.parts) > 1 and name.parts[0] in lakes.by_name:
            raise lakes.not_found(name.parts)

    for name in lakes.by_name:
        query = prepare_text(lakes.context_of((name,)), query)
    return register_views(lakes.table_lookup(), lambda: lakes.spark, query, refuse=refuse)


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


def _keywords(reader: Reader) -> str:
    """Return the next words, to compare them with keywords; those in quotes are none."""
    ahead = reader.words[reader.position : reader.position + 9]
    marks = {TokenKind.QUOTED: "`", TokenKind.STRING: "'"}
    return " ".join(marks.get(word.kind, word.value) for word in ahead)


def _find_target(reader: Reader) -> Target | None:
    """Return what a statement is about, and move behind its name; None if it names nothing that a lake may have."""
    begun, keywords = reader.position, _keywords(reader)
    match, kind = next(((m, kind) for pattern, kind in _COMPILED if (m := pattern.match(keywords))), (None, None))
    if match is None or kind is None:
        return None
    reader.position += match[0].count(" ") + 1
    if reader.word is None or not reader.word.is_name:
        reader.position = begun
        return None
    words = reader.dotted_name_words("a name")
    name, start = tuple(word.name for word in words), words[0].start
    if match[0].startswith("SHOW COLUMNS") and (reader.take_if_next("IN") or reader.take_if_next("FROM")):
        words = reader.dotted_name_words("a namespace")
        name = (*(word.name for word in words), *name)
    return Target(name, start, words[-1].end, kind)


def _run_in_lake(lakes: SessionLakes, name: str, text: str, args: Parameters) -> DataFrame:
    context = lakes.context_of((name,))
    try:
        result = run(context, text) if args is None else run(context, text, args=args)
    except UnknownName as e:
        if e.kind != "table":
            raise
        raise lakes.not_found((name, *str(e.name).split("."))) from e
    return to_dataframe(lakes.spark, result)


def _run_in_spark(
    lakes: SessionLakes, in_spark: RunInSpark, reader: Reader, begun: int, ctes: str, args: Parameters
) -> DataFrame:
    """Run a statement about something of Spark; the query in it may read tables of lakes."""
    text, first = reader.text, reader.words[begun]
    reader.position = max(reader.position, begun + 1)
    if not (first.matches("WITH") or first.matches(*_MAY_HOLD_QUERY)) or not _move_to_query(reader):
        return in_spark(text, args)
    before = text[: first.start] + text[first.start + len(ctes) : reader.words[reader.position].start]
    try:
        views = _register_views(lakes, f"{ctes} {query_text(reader)}".strip())
    except UserError as e:
        if isinstance(e, UnknownName) or lakes.is_named_in(reader.words):
            raise
        return in_spark(text, args)  # which explains what is wrong
    with views:
        if views.tables and _KEEPS_QUERY.match(_keywords(replace(reader, position=begun))):
            raise UserError(
                "A view that Spark keeps cannot read a table of a lake, which is no table for Spark. Write CREATE "
                "TEMPORARY VIEW … AS."
            )
        return in_spark(before + views.single_text, args)


def _move_to_query(reader: Reader) -> bool:
    """Move to the query in a statement, and return whether there is one."""
    while reader.word is not None:
        if reader.sees_one_of(*QUERY_KEYWORDS[:-1]) or any(reader.sees("(", word) for word in QUERY_KEYWORDS):
            return True
        end = end_of_parentheses(reader.words, reader.position) if reader.sees("(") else reader.position + 1
        reader.position = len(reader.words) if end is None else end
    return False


def _use(lakes: SessionLakes, in_spark: RunInSpark, reader: Reader) -> DataFrame:
    """Make a lake, and a namespace in it, the current catalog; any other name is Spark's."""
    names_catalog = reader.take_if_next("SET", "CATALOG")
    if not names_catalog:
        reader.expect("USE")
        any(reader.take_if_next(kind) for kind in ("NAMESPACE", "DATABASE", "SCHEMA"))
    is_string = names_catalog and reader.word is not None and reader.word.kind is TokenKind.STRING
    name = (reader.string("a catalog"),) if is_string else reader.dotted_name("a catalog or a namespace")
    reader.expect_end()
    place = lakes.place_of_namespace(name)
    if place is None or (names_catalog and name[0] not in lakes.by_name):
        result = in_spark(reader.text)
        lakes.current = ()
        return result
    lake = lakes.by_name[place[0]]
    if place[1:] and not lake.catalog.namespace_exists(place[1:]):
        known = (".".join(namespace) for namespace in lake.catalog.list_namespaces())
        raise UnknownName("namespace", ".".join(place[1:]), known, f"lake {place[0]}")
    lakes.current = place
    return to_dataframe(lakes.spark, None)


def as_table_query(name: str, options: Mapping[str, Any]) -> str:
    """Return the query for all rows of a table, in the state that options of a reader choose."""
    if refused := [option for option in options if option.lower() in _RANGE_OPTIONS]:
        raise UserError(
            f"Cannot read a table with the option {refused[0]}: only the rows of one snapshot can be read, not those "
            "added between two. Choose one with snapshot-id, as-of-timestamp, branch or tag."
        )
    states = {
        "snapshot-id": lambda value: f"VERSION AS OF {_whole_number('snapshot-id', value)}",
        "versionasof": lambda value: f"VERSION AS OF {_quote(value)}",
        "branch": lambda value: f"VERSION AS OF {_quote(value)}",
        "tag": lambda value: f"VERSION AS OF {_quote(value)}",
        "as-of-timestamp": lambda value: f"TIMESTAMP AS OF timestamp_millis({_whole_number('as-of-timestamp', value)})",
        "timestampasof": lambda value: f"TIMESTAMP AS OF {_quote(value)}",
    }
    chosen = [(option, value) for option, value in options.items() if option.lower() in states]
    if len(chosen) > 1:
        raise UserError(f"Choose one of the options {' and '.join(o for o, _ in chosen)}: each names a snapshot.")
    state = "".join(f" {states[option.lower()](value)}" for option, value in chosen)
    return f"SELECT * FROM {name}{state}"  # noqa: S608 - Spark parses the name


def _whole_number(option: str, value: object) -> int:
    if not re.fullmatch(r"-?\d+", str(value)):
        unit = " of milliseconds since 1970" if option == "as-of-timestamp" else ""
        raise UserError(f"The option {option} is {value!r}; it must be a whole number{unit}.")
    return int(str(value))


def _quote(value: object) -> str:
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"
