"""Parse SQL text into a statement.

Common table expressions may come before a statement that changes rows: `WITH gone AS (…) DELETE FROM t WHERE …`. The
queries inside such a statement run on their own, so each query that uses one of the expressions gets all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from neve.errors import UserError
from neve.predicate.column_names import quote_name
from neve.predicate.sql_features import Edit, apply_edits
from neve.predicate.sql_text import SqlToken
from neve.predicate.time_travel import end_of_parentheses
from neve.sql.alter_table import parse_alter_table
from neve.sql.call import parse_call
from neve.sql.change_rows import Delete, parse_delete, parse_update
from neve.sql.create_table import parse_create_table, parse_drop_table, parse_replace_table
from neve.sql.describe import parse_describe
from neve.sql.explain import EXPLAIN_MODES, Explain
from neve.sql.insert import parse_insert
from neve.sql.merge import parse_merge
from neve.sql.namespaces import (
    namespace_or,
    parse_alter_namespace,
    parse_create_namespace,
    parse_describe_namespace,
    parse_drop_namespace,
)
from neve.sql.query import parse_query
from neve.sql.reader import Reader
from neve.sql.session_statements import (
    TEMPORARY,
    parse_create_temporary_view,
    parse_show_current,
    parse_use,
)
from neve.sql.show import parse_show
from neve.sql.statement import Statement
from neve.sql.views import parse_alter_view, parse_create_view, parse_drop_view

_STATEMENT_NAMES = (
    "SELECT, WITH, VALUES, INSERT, UPDATE, DELETE, MERGE, CALL, CREATE, REPLACE, TRUNCATE, DROP or ALTER TABLE, "
    "CREATE, DROP or ALTER NAMESPACE, CREATE, DROP or ALTER VIEW, USE, EXPLAIN, SHOW or DESCRIBE"
)
_SUBQUERY_KEYWORDS = ("SELECT", "FROM", "VALUES", "TABLE", "WITH")


def parse(text: str) -> Statement:
    """Parse one statement; nothing is run."""
    if not isinstance(text, str):
        raise UserError(f"Give SQL as text, not as {type(text).__name__}.")
    reader = Reader.of(text)
    if (semicolon := next((word for word in reader.words if word.matches(";")), None)) is not None:
        raise reader.syntax_error("one statement at a time", semicolon)
    parse_statement = _STATEMENT_PARSERS.get(reader.word.value if reader.word is not None else "")
    if parse_statement is None:
        what = f"unknown statement {reader.word.text!r}" if reader.word is not None else "there is no statement"
        raise reader.syntax_error(f"{what}: expected {_STATEMENT_NAMES}")
    statement = parse_statement(reader)
    reader.expect_end()
    return statement


def _parse_after_with(reader: Reader) -> Statement:
    """Parse common table expressions, and the query or the change of rows after them."""
    ctes = reader.text_until("SELECT", "FROM", "VALUES", "INSERT", "UPDATE", "DELETE", "MERGE", what="a query")
    if reader.sees("INSERT"):
        return parse_insert(reader).with_ctes(ctes)
    if not reader.sees_one_of("UPDATE", "DELETE", "MERGE"):
        reader.position = 0
        return parse_query(reader)
    start = reader.position
    _STATEMENT_PARSERS[reader.words[start].value](reader)  # so that errors point into the text as it was written
    reader.expect_end()
    reader.position = start
    return parse(push_ctes_into_queries(ctes, reader.remaining_text("a statement")))


def _parse_truncate(reader: Reader) -> Delete:
    """Parse a TRUNCATE TABLE, which deletes all rows."""
    reader.expect("TRUNCATE", "TABLE")
    return Delete(reader.table_name())


def _parse_explain(reader: Reader) -> Explain:
    """Parse an EXPLAIN; the statement after it keeps its position in the text, for errors."""
    reader.expect("EXPLAIN")
    mode = next((mode for mode in EXPLAIN_MODES if reader.take_if_next(mode)), "")
    start = reader.words[reader.position].start if reader.word is not None else len(reader.text)
    statement = parse(re.sub(r"[^\n]", " ", reader.text[:start]) + reader.text[start:])
    reader.position = len(reader.words)
    return Explain(statement, mode)


def _parse_create(reader: Reader) -> Statement:
    for start in (("CREATE",), ("CREATE", "OR", "REPLACE")):
        if any(reader.sees(*start, word) for word in TEMPORARY):
            return parse_create_temporary_view(reader)
        if reader.sees(*start, "VIEW"):
            return parse_create_view(reader)
    return parse_create_table(reader)


def _parse_alter(reader: Reader) -> Statement:
    return parse_alter_view(reader) if reader.sees("ALTER", "VIEW") else parse_alter_table(reader)


def _parse_drop(reader: Reader) -> Statement:
    return parse_drop_view(reader) if reader.sees("DROP", "VIEW") else parse_drop_table(reader)


def _parse_show(reader: Reader) -> Statement:
    return parse_show_current(reader) if reader.sees("SHOW", "CURRENT") else parse_show(reader)


def cte_names(ctes: str) -> tuple[str, ...]:
    """Return the names that a WITH clause defines.

    >>> cte_names("WITH a AS (SELECT 1), `b c`(x) AS (SELECT x FROM a)")
    ('a', 'b c')
    """
    reader = Reader.of(ctes)
    reader.expect("WITH")
    reader.take_if_next("RECURSIVE")

    def parse_cte() -> str:
        name = reader.name("a name")
        if reader.sees("("):
            reader.bracketed_list(lambda: reader.name("a column"))
        reader.take_if_next("AS")
        reader.bracketed_text("a query")
        return name

    return reader.comma_list(parse_cte)


def push_ctes_into_queries(ctes: str, statement: str) -> str:
    """Insert a WITH clause into the queries of a statement that use it.

    >>> gone = "WITH gone AS (SELECT 1 id)"
    >>> push_ctes_into_queries(gone, "DELETE FROM t WHERE id IN (SELECT id FROM gone) AND n IN (SELECT 2)")
    'DELETE FROM t WHERE id IN (WITH gone AS (SELECT 1 id) SELECT id FROM gone) AND n IN (SELECT 2)'
    >>> push_ctes_into_queries("WITH new AS (SELECT 1 id)", "MERGE INTO t USING new ON …")
    'MERGE INTO t USING (WITH new AS (SELECT 1 id) SELECT * FROM `new`) AS `new` ON …'
    """
    names = {name.lower() for name in cte_names(ctes)}
    return apply_edits(statement, _cte_edits(ctes, names, Reader.of(statement).words))


def _cte_edits(ctes: str, names: set[str], words: tuple[SqlToken, ...]) -> Iterator[Edit]:
    def is_cte(word: SqlToken) -> bool:
        return word.is_name and word.name.lower() in names

    def sees(at: int, *values: str) -> bool:
        return at < len(words) and words[at].matches(*values)

    at = 0
    while at < len(words):
        is_query = words[at].matches("(") and sees(at + 1, *_SUBQUERY_KEYWORDS)
        end = end_of_parentheses(words, at) if is_query else None
        if end is not None:
            first = words[at + 1]
            if any(is_cte(word) for word in words[at:end]):
                has_own = first.matches("WITH")  # the query's own expressions follow
                yield (first.start, first.end, f"{ctes},") if has_own else (first.start, first.start, f"{ctes} ")
            at = end
        elif words[at].matches("USING") and at + 1 < len(words) and is_cte(words[at + 1]) and not sees(at + 2, "."):
            word = words[at + 1]
            has_alias = at + 2 < len(words) and words[at + 2].is_name and not sees(at + 2, "ON")
            alias = "" if has_alias else f" AS {quote_name(word.name)}"
            yield word.start, word.end, f"({ctes} SELECT * FROM {quote_name(word.name)}){alias}"  # noqa: S608
            at += 2
        else:
            at += 1


_STATEMENT_PARSERS: dict[str, Callable[[Reader], Statement]] = {
    **dict.fromkeys(("SELECT", "FROM", "VALUES", "TABLE", "("), parse_query),
    "WITH": _parse_after_with,
    "INSERT": parse_insert,
    "UPDATE": parse_update,
    "DELETE": parse_delete,
    "MERGE": parse_merge,
    "CREATE": namespace_or(parse_create_namespace, _parse_create),
    "ALTER": namespace_or(parse_alter_namespace, _parse_alter),
    "DROP": namespace_or(parse_drop_namespace, _parse_drop),
    "REPLACE": parse_replace_table,
    "TRUNCATE": _parse_truncate,
    "CALL": parse_call,
    "EXPLAIN": _parse_explain,
    "SHOW": _parse_show,
    "USE": parse_use,
    **dict.fromkeys(("DESCRIBE", "DESC"), namespace_or(parse_describe_namespace, parse_describe)),
}
