"""Iceberg's functions `system.bucket`, `truncate`, `years`, `months`, `days`, `hours` and `iceberg_version`.

Spark knows them only from Iceberg's own catalogs. A call is replaced by an expression of Spark's functions with the
same value, before the text goes to Spark. The expression depends on the type of the argument, which Spark is asked for
with a query on the same tables: those after FROM in the query around the call, or in a query further out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg import transforms as tf
from pyiceberg import types as ice
from pyspark.sql import types as sp

from neve._version import __version__
from neve.errors import UserError
from neve.predicate.column_names import quote_name
from neve.predicate.sql_features import apply_edits
from neve.predicate.sql_text import SqlToken, syntax_error, tokenize_sql
from neve.predicate.time_travel import end_of_parentheses
from neve.run.spark.distribution import transform_sql
from neve.run.spark.murmur_sql import bytes_of_decimal_sql, hash_of_bytes_sql, truncated_decimal_sql
from neve.run.spark.types import iceberg_schema

FUNCTIONS = ("bucket", "truncate", "years", "months", "days", "hours", "iceberg_version")

TypeOfQuery = Callable[[str], sp.DataType]
"""Returns the type of the only column of a query."""

_TIME_TRANSFORMS: dict[str, tf.Transform[Any, Any]] = {
    "years": tf.YearTransform(),
    "months": tf.MonthTransform(),
    "days": tf.DayTransform(),
    "hours": tf.HourTransform(),
}
_TIMES: tuple[type[sp.DataType], ...] = (sp.TimestampType, sp.TimestampNTZType)
_INTEGERS = (sp.ByteType, sp.ShortType, sp.IntegerType, sp.LongType)
_ARGUMENT_TYPES: dict[str, tuple[type[sp.DataType], ...]] = {
    **dict.fromkeys(("years", "months", "days"), (sp.DateType, *_TIMES)),
    "hours": _TIMES,
    "bucket": (*_INTEGERS, sp.DateType, *_TIMES, sp.DecimalType, sp.StringType, sp.BinaryType),
    "truncate": (*_INTEGERS, sp.DecimalType, sp.StringType, sp.BinaryType),
}
_QUERY_KEYWORDS = ("SELECT", "FROM", "WITH")
_SET_OPERATORS = ("UNION", "EXCEPT", "INTERSECT", "MINUS")
_ENDS_OF_FROM = (
    *("WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "WINDOW", "QUALIFY"),
    *("SELECT", "|>", *_SET_OPERATORS),
)


@dataclass(frozen=True)
class _Call:
    """A call of one of the functions, by the positions of its tokens."""

    name: str
    start: int
    end: int  # exclusive
    arguments: tuple[str, ...]
    depth: int  # of the parentheses around it


def replace_iceberg_functions(text: str, catalog: str, type_of: TypeOfQuery, outer_from: str = "") -> str:
    """Replace the calls in a query, or in an expression on the tables of the clause `outer_from`."""
    while "system" in text.lower():
        words = tokenize_sql(text)
        # The deepest first: its type may decide the type of the argument of another.
        call = max(_calls(text, words, catalog), key=lambda c: c.depth, default=None)
        if call is None:
            return text
        span = words[call.start].start, words[call.end - 1].end

        def argument_type(argument: str, at: int = call.start, text: str = text) -> sp.DataType:
            return _argument_type(text, tokenize_sql(text), at, catalog, argument, type_of, outer_from)

        try:
            native = _native_sql(call, argument_type)
        except UserError as e:
            raise syntax_error("SQL", text, *span, f"system.{call.name}: {e}", verb="run") from e
        alias = f" AS {quote_name(text[slice(*span)])}" if _is_unnamed_column(words, call) else ""
        text = apply_edits(text, [(*span, f"{native}{alias}")])
    return text


def _is_unnamed_column(words: Sequence[SqlToken], call: _Call) -> bool:
    """Return whether a call is a whole column of a SELECT: its text is a better name than the expression for it."""
    block = next(_enclosing_queries(words, call.start), None)
    top = () if block is None else _top_level(words, *block)
    if call.start not in top or not words[call.start - 1].matches("SELECT", "DISTINCT", "ALL", ","):
        return False
    clauses = (words[i] for i in reversed(top) if i < call.start and words[i].matches("FROM", *_ENDS_OF_FROM))
    is_last = call.end == len(words) or words[call.end].matches(",", ")", "FROM", *_ENDS_OF_FROM)
    return is_last and (clause := next(clauses, None)) is not None and clause.matches("SELECT")


def _calls(text: str, words: Sequence[SqlToken], catalog: str) -> Iterator[_Call]:
    depth = 0
    for at, word in enumerate(words):
        depth += word.matches("(") - word.matches(")")
        follows_dot = at > 0 and words[at - 1].matches(".")
        is_call = [w.text for w in words[at + 1 : at + 4 : 2]] == [".", "("] and word.is_name
        if not is_call or word.name.lower() != "system" or words[at + 2].name.lower() not in FUNCTIONS:
            continue
        start = at - 2 if follows_dot else at
        if follows_dot and (words[start].name != catalog or (start > 0 and words[start - 1].matches("."))):
            continue
        end = end_of_parentheses(words, at + 3)
        if end is not None:
            arguments = tuple(_split_at_commas(text, words[at + 4 : end - 1]))
            yield _Call(words[at + 2].name.lower(), start, end, arguments, depth)


def _split_at_commas(text: str, words: Sequence[SqlToken]) -> Iterator[str]:
    first = depth = 0
    for at, word in enumerate(words):
        depth += word.matches("(", "[") - word.matches(")", "]")
        if at + 1 == len(words) or (depth == 0 and words[at + 1].matches(",")):
            yield text[words[first].start : word.end]
            first = at + 2


# -- expressions ----------------------------------------------------------------------------------------------------


def _native_sql(call: _Call, type_of: Callable[[str], sp.DataType]) -> str:
    """Return an expression of Spark's functions with the value of a call."""
    counts = {"iceberg_version": 0, "bucket": 2, "truncate": 2}
    if len(call.arguments) != counts.get(call.name, 1):
        raise UserError(f"it takes {counts.get(call.name, 1)} arguments, not {len(call.arguments)}")
    if call.name == "iceberg_version":
        return f"'neve {__version__}'"
    argument = f"({call.arguments[-1]})"
    kind = type_of(call.arguments[-1])
    if isinstance(kind, sp.NullType):
        return "CAST(NULL AS INT)"
    if not isinstance(kind, _ARGUMENT_TYPES[call.name]):
        expected = ", ".join(k().simpleString().split("(")[0] for k in _ARGUMENT_TYPES[call.name])
        raise UserError(f"the argument is of type {kind.simpleString()}, but must be one of {expected}")
    if call.name in _TIME_TRANSFORMS:
        number = transform_sql(_TIME_TRANSFORMS[call.name], _iceberg_type(kind), argument)
        return f"date_from_unix_date({number})" if call.name == "days" else f"cast({number} as int)"
    size = call.arguments[0].strip("() ")
    if not size.isdecimal() or not 0 < int(size) < 1 << 31:
        raise UserError(f"the first argument is {call.arguments[0]}, but must be a number from 1 to 2147483647")
    return (_bucket_sql if call.name == "bucket" else _truncate_sql)(int(size), argument, kind)


def _bucket_sql(count: int, argument: str, kind: sp.DataType) -> str:
    native = transform_sql(tf.BucketTransform(count), _iceberg_type(kind), argument)
    if native is not None:
        return native
    if isinstance(kind, sp.DecimalType):
        argument = bytes_of_decimal_sql(argument, kind.precision, kind.scale)
    return f"({hash_of_bytes_sql(f'cast({argument} as binary)')} % {count})"


def _truncate_sql(width: int, argument: str, kind: sp.DataType) -> str:
    if isinstance(kind, sp.DecimalType):
        return truncated_decimal_sql(argument, kind.precision, kind.scale, width)
    truncated = transform_sql(tf.TruncateTransform(width), _iceberg_type(kind), argument)
    return f"try_cast({truncated} as {kind.simpleString()})"  # null below the smallest number


def _iceberg_type(kind: sp.DataType) -> ice.IcebergType:
    return iceberg_schema(sp.StructType([sp.StructField("value", kind)])).fields[0].field_type


# -- types ----------------------------------------------------------------------------------------------------------


def _argument_type(
    text: str,
    words: Sequence[SqlToken],
    at: int,
    catalog: str,
    argument: str,
    type_of: TypeOfQuery,
    outer_from: str,
) -> sp.DataType:
    """Ask for the type of an argument in the query around it, or in one further out whose columns it may name."""
    failure: UserError | None = None
    for query in _probes(text, words, at, catalog, argument, outer_from):
        try:
            return type_of(query)
        except UserError as e:
            failure = failure or e
    raise UserError(f"cannot tell the type of {argument}: {failure}") from failure


def _probes(
    text: str, words: Sequence[SqlToken], at: int, catalog: str, argument: str, outer_from: str
) -> Iterator[str]:
    blocks = list(_enclosing_queries(words, at))
    for number, (start, end) in enumerate(blocks):
        query = f"SELECT {argument} AS value {_from_clause(text, words, start, end, at, catalog)}"
        for level, (outer_start, outer_end) in enumerate(blocks[number:]):
            if ctes := _visible_ctes(text, words, outer_start, outer_end, at):
                query = f"{ctes} {query}" if level == 0 else f"{ctes} SELECT * FROM ({query})"  # noqa: S608
        yield query
    yield f"SELECT {argument} AS value {outer_from}"


def _enclosing_queries(words: Sequence[SqlToken], at: int) -> Iterator[tuple[int, int]]:
    """Yield the token ranges of the queries around a token, innermost first."""
    depth = 0
    for start in range(at, -1, -1):
        depth += words[start].matches(")") - words[start].matches("(")
        if depth < 0:
            depth = 0
            end = end_of_parentheses(words, start)
            if end is not None and words[start + 1].matches(*_QUERY_KEYWORDS):
                yield start + 1, end - 1
    if words[0].matches(*_QUERY_KEYWORDS):
        yield 0, len(words)


def _top_level(words: Sequence[SqlToken], start: int, end: int) -> list[int]:
    """Return the tokens of a range that are in no parentheses within it."""
    depth, found = 0, []
    for at in range(start, end):
        depth -= words[at].matches(")")
        if depth == 0:
            found.append(at)
        depth += words[at].matches("(")
    return found


def _from_clause(text: str, words: Sequence[SqlToken], start: int, end: int, at: int, catalog: str) -> str:
    """Return the clause FROM of the part of a query, between set operators, that a token is in."""
    top = _top_level(words, start, end)
    start = max((i + 1 for i in top if i < at and words[i].matches(*_SET_OPERATORS)), default=start)
    end = min((i for i in top if i > at and words[i].matches(*_SET_OPERATORS)), default=end)
    top = [i for i in top if start <= i < end]
    first = next((i for i in top if words[i].matches("FROM") and not words[i - 1].matches("DISTINCT")), None)
    if first is None:
        return ""
    stop = next((i for i in top if i > first and words[i].matches(*_ENDS_OF_FROM)), end)
    clause = text[words[first].start : words[stop - 1].end]
    clause_words = tokenize_sql(clause)
    edits = [
        (clause_words[c.start].start, clause_words[c.end - 1].end, "NULL")
        for c in _calls(clause, clause_words, catalog)
    ]
    return apply_edits(clause, edits)


def _visible_ctes(text: str, words: Sequence[SqlToken], start: int, end: int, at: int) -> str:
    """Return the WITH clause of a query, as far as a token of the query sees its common table expressions."""
    if not words[start].matches("WITH"):
        return ""
    top = _top_level(words, start, end)
    body = next((i for i in top if words[i].matches("SELECT", "FROM", "VALUES", "TABLE")), end)
    stop = body if at >= body else max((i for i in top if i < at and words[i].matches(",")), default=start)
    return text[words[start].start : words[stop - 1].end] if stop > start else ""
