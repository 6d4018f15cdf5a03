"""Default values of columns: as constants in DDL, and as the word DEFAULT in the rows of an INSERT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from typing import Any

from pyiceberg import types as ice
from pyiceberg.expressions.literals import literal
from pyiceberg.schema import Schema
from sqlglot import exp

from neve.errors import UnsupportedFeature, UserError
from neve.model.ddl import schema_of_ddl
from neve.model.schema_rules import refuse_default
from neve.predicate.constants import ConstantKind, parse_constant, utc_to_local_micros
from neve.predicate.sql_features import Edit, apply_edits
from neve.predicate.sql_text import parse_sql
from neve.run.read.array_builders import constant_column
from neve.run.read.types import ArrowFlavor
from neve.run.spark.types import spark_type
from neve.sql.parameters import sql_literal
from neve.sql.reader import Reader

_DEFAULTS_SINCE = 3  # the format version
_ENDS_OF_SELECT = ("FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "EXCEPT", "INTERSECT", "|>")


def constant_default(text: str, kind: ice.IcebergType, zone: tzinfo) -> Any:
    """Return the value of a constant in a column of some type."""
    node: Any = parse_sql(text)[0]
    constant = parse_constant(node, zone)
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        if constant is None or not isinstance(kind, ice.TimestampType | ice.TimestamptzType):
            return node.this.name
        # A time or a day in a timestamp column becomes microseconds, as Spark casts it.
        if isinstance(kind, ice.TimestampType) and constant.kind is ConstantKind.INSTANT:
            return utc_to_local_micros(constant.value, zone)
        target = "timestamp_ntz" if isinstance(kind, ice.TimestampType) else "timestamp"
        cast = parse_constant(exp.cast(node, target, dialect="spark"), zone)
        return node.this.name if cast is None else int(cast.value)
    if constant is None:
        raise UserError(f"Cannot take {text} as a default value: give a constant.")
    return constant.value


def parse_definition(reader: Reader) -> str:
    """Parse a type and what may follow it; commas inside `struct<…>` and `decimal(…)` belong to it."""
    start, depth = reader.position, 0
    while (word := reader.word) is not None:
        if depth == 0 and word.matches(",", ")", "FIRST", "AFTER", "DEFAULT"):
            break
        depth += sum(word.text.count(c) for c in "<(") - sum(word.text.count(c) for c in ">)")
        reader.position += 1
    if reader.position == start:
        raise reader.syntax_error("expected a type")
    return reader.text[reader.words[start].start : reader.words[reader.position - 1].end]


# -- CREATE TABLE ---------------------------------------------------------------------------------------------------


def schema_with_defaults(columns: str, zone: tzinfo, format_version: int) -> Schema:
    """Return the schema of the columns of a CREATE TABLE, such as `id bigint, n int DEFAULT 5 COMMENT 'count'`."""
    defaults = dict(_column_defaults(columns))
    edits = ((start, end, "") for start, end, _ in defaults.values())
    schema = schema_of_ddl(apply_edits(columns, edits))
    if defaults and format_version < _DEFAULTS_SINCE:
        raise UnsupportedFeature(
            f"Cannot give column {next(iter(defaults))!r} a default in a table of format version {format_version}. "
            f"Add TBLPROPERTIES ('format-version' = '{_DEFAULTS_SINCE}'), or leave the default out."
        )
    fields = []
    for field in schema.fields:
        value = None
        if field.name in defaults:
            value = constant_default(defaults[field.name][2], field.field_type, zone)
            refuse_default(value, field.field_type)
        # Only new rows can have it: the table has no rows from before the column was added.
        written = None if value is None else literal(value).to(field.field_type).value
        fields.append(field.model_copy(update={"write_default": written}))
    return Schema(*fields)


def _column_defaults(columns: str) -> Iterator[tuple[str, Edit]]:
    """Yield the columns that have a default: the name, and the start, the end and the expression of the clause."""
    reader = Reader.of(columns)
    if not any(word.matches("DEFAULT") for word in reader.words):
        return
    while reader.word is not None:
        name = reader.name("a column")
        parse_definition(reader)
        if (clause := reader.word) is not None and reader.take_if_next("DEFAULT"):
            value = reader.text_until(",", "COMMENT", "NOT", what="a value")
            yield name, (clause.start, reader.words[reader.position - 1].end, value)
            if reader.word is not None and not reader.sees(","):
                parse_definition(reader)
        if reader.word is not None:
            reader.expect(",")


# -- INSERT ---------------------------------------------------------------------------------------------------------


def replace_default_words(query: str, columns: Sequence[ice.NestedField]) -> str:
    """Replace DEFAULT by the default of its column, or null, in the rows of VALUES and in the list of a SELECT.

    >>> columns = [ice.NestedField(1, "id", ice.LongType()), ice.NestedField(2, "n", ice.LongType(), write_default=5)]
    >>> replace_default_words("VALUES (1, DEFAULT), (DEFAULT, 2)", columns)
    'VALUES (1, CAST(5 AS bigint)), (NULL, 2)'
    """
    reader = Reader.of(query)
    if not any(word.matches("DEFAULT") for word in reader.words):
        return query
    return apply_edits(query, _default_edits(reader, columns))


def _default_edits(reader: Reader, columns: Sequence[ice.NestedField]) -> Iterator[Edit]:
    def edits_of_row(fields: Sequence[ice.NestedField], *stops: str) -> Iterator[Edit]:
        for at, field in enumerate(fields):
            start = reader.position
            reader.text_until(",", *stops, what="a value")
            if reader.position == start + 1 and (word := reader.words[start]).matches("DEFAULT"):
                yield word.start, word.end, _default_literal(field)
            if at + 1 < len(fields) and not reader.take_if_next(","):
                return

    if reader.take_if_next("SELECT"):
        yield from edits_of_row(columns, *_ENDS_OF_SELECT)
    elif reader.take_if_next("VALUES"):
        while True:
            if not reader.take_if_next("("):
                yield from edits_of_row(columns[:1])
            else:
                yield from edits_of_row(columns, ")")
                if not reader.take_if_next(")"):
                    return  # more values than columns, which the statement reports
            if not reader.take_if_next(","):
                return


def _default_literal(field: ice.NestedField) -> str:
    if field.write_default is None:
        return "NULL"
    value = constant_column(field.write_default, field.field_type, ArrowFlavor.SPARK).value[0].as_py()
    is_local = isinstance(value, datetime) and value.tzinfo is None
    text = sql_literal(value.isoformat(sep=" ") if is_local else value, f"the default of column {field.name!r}")
    return f"CAST({text} AS {spark_type(field.field_type).simpleString()})"
