"""Common table expressions before a statement that changes rows: `WITH gone AS (…) DELETE FROM t WHERE id IN (…)`.

A statement's queries are run where they stand, so each one that names an expression is given all of them.
"""

from __future__ import annotations

from neve.predicate.column_names import quote_name
from neve.predicate.sql_text import SqlToken
from neve.sql.reader import Reader

_QUERY_STARTS = ("SELECT", "FROM", "VALUES", "TABLE", "WITH")


def cte_names(ctes: str) -> tuple[str, ...]:
    """The names that a WITH clause gives.

    >>> names_of("WITH a AS (SELECT 1), `b c`(x) AS (SELECT x FROM a)")
    ('a', 'b c')
    """
    reader = Reader.of(ctes)
    reader.expect("WITH")
    reader.take_if_next("RECURSIVE")
    return reader.comma_list(lambda: _parse_cte(reader))


def _parse_cte(reader: Reader) -> str:
    name = reader.name("a name")
    if reader.sees("("):
        reader.bracketed_list(lambda: reader.name("a column"))
    reader.take_if_next("AS")
    reader.bracketed_text("a query")
    return name


def push_ctes_into_queries(ctes: str, statement: str) -> str:
    """The statement with the expressions inside of its queries.

    >>> spread("WITH gone AS (SELECT 1 id)", "DELETE FROM t WHERE id IN (SELECT id FROM gone) AND n IN (SELECT 2)")
    'DELETE FROM t WHERE id IN (WITH gone AS (SELECT 1 id) SELECT id FROM gone) AND n IN (SELECT 2)'
    >>> spread("WITH new AS (SELECT 1 id)", "MERGE INTO t USING new ON …")
    'MERGE INTO t USING (WITH new AS (SELECT 1 id) SELECT * FROM `new`) AS `new` ON …'
    """
    names = {name.lower() for name in cte_names(ctes)}
    words = Reader.of(statement).words
    parts, done = [], 0
    for start, end, text in _replacements(ctes, names, words):
        parts += [statement[done:start], text]
        done = end
    return "".join([*parts, statement[done:]])


def _replacements(ctes: str, names: set[str], words: tuple[SqlToken, ...]) -> list[tuple[int, int, str]]:
    """What is put in, and in place of what."""
    found, at = [], 0
    while at < len(words):
        end = _end_of_query(words, at)
        if end is not None:
            if any(word.is_name and word.name.lower() in names for word in words[at:end]):
                found.append(_into(ctes, words[at + 1]))
            at = end
        elif words[at].matches("USING") and _is_alone(words, at + 1, names):
            found.append(_query_replacing_name(ctes, words, at + 1))
            at += 2
        else:
            at += 1
    return found


def _end_of_query(words: tuple[SqlToken, ...], at: int) -> int | None:
    """The place after the bracket that closes a query, if one is opened here."""
    if not words[at].matches("(") or at + 1 >= len(words) or not words[at + 1].matches(*_QUERY_STARTS):
        return None
    depth = 0
    for end in range(at, len(words)):
        depth += words[end].matches("(") - words[end].matches(")")
        if depth == 0:
            return end + 1
    return None


def _is_alone(words: tuple[SqlToken, ...], at: int, names: set[str]) -> bool:
    """Whether a name of an expression stands here as a table."""
    is_named = at < len(words) and words[at].is_name and words[at].name.lower() in names
    return is_named and not (at + 1 < len(words) and words[at + 1].matches("."))


def _into(ctes: str, first: SqlToken) -> tuple[int, int, str]:
    """The expressions before a query; those of its own follow them."""
    if first.matches("WITH"):
        return first.start, first.end, f"{ctes},"
    return first.start, first.start, f"{ctes} "


def _query_replacing_name(ctes: str, words: tuple[SqlToken, ...], at: int) -> tuple[int, int, str]:
    """A query in place of the name of an expression, under that name unless it is given another."""
    word = words[at]
    has_alias = at + 1 < len(words) and words[at + 1].is_name and not words[at + 1].matches("ON")
    alias = "" if has_alias else f" AS {quote_name(word.name)}"
    return word.start, word.end, f"({ctes} SELECT * FROM {quote_name(word.name)}){alias}"  # noqa: S608
