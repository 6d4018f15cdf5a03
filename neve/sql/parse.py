"""From text to a statement."""

from __future__ import annotations

from collections.abc import Callable

from neve.errors import UserError
from neve.sql.alter_table import parse_alter_table
from neve.sql.call import call
from neve.sql.create_table import parse_create_table, parse_drop_table
from neve.sql.ctes import push_ctes_into_queries
from neve.sql.insert import parse_insert
from neve.sql.merge import parse_merge
from neve.sql.query import parse_query
from neve.sql.reader import Reader
from neve.sql.show import parse_describe, parse_show
from neve.sql.statement import Statement
from neve.sql.update_delete import parse_delete, parse_update

_STATEMENT_NAMES = (
    "SELECT, WITH, VALUES, INSERT, UPDATE, DELETE, MERGE, CREATE TABLE, ALTER TABLE, DROP TABLE, CALL, SHOW TABLES, "
    "SHOW NAMESPACES and DESCRIBE"
)


def parse(text: str) -> Statement:
    """The statement that a text is; nothing is run."""
    if not isinstance(text, str):
        raise UserError(f"Give SQL as text, not as {type(text).__name__}.")
    reader = Reader.of(text)
    if any(word.matches(";") for word in reader.words):
        raise reader.syntax_error("one statement at a time", next(word for word in reader.words if word.matches(";")))
    read = _STATEMENT_PARSERS.get(reader.word.value if reader.word is not None else "")
    if read is None:
        what = f"unknown statement {reader.word.text!r}" if reader.word is not None else "there is no statement"
        raise reader.syntax_error(f"{what}: known are {_STATEMENT_NAMES}")
    found = read(reader)
    reader.expect_end()
    return found


def _parse_after_with(reader: Reader) -> Statement:
    """Common table expressions come before a query, or before a change of rows."""
    ctes = reader.text_until("SELECT", "FROM", "VALUES", "INSERT", "UPDATE", "DELETE", "MERGE", what="a query")
    if reader.sees("INSERT"):
        return parse_insert(reader).with_ctes(ctes)
    if reader.sees_one_of("UPDATE", "DELETE", "MERGE"):
        return _parse_row_change_with_ctes(ctes, reader)
    reader.position = 0
    return parse_query(reader)


def _parse_row_change_with_ctes(ctes: str, reader: Reader) -> Statement:
    """A change of rows with common table expressions in its queries."""
    start = reader.position
    _STATEMENT_PARSERS[reader.words[start].value](reader)  # what is wrong is told in the text as it was written
    reader.expect_end()
    reader.position = start
    return parse(push_ctes_into_queries(ctes, reader.remaining_text("a statement")))


_STATEMENT_PARSERS: dict[str, Callable[[Reader], Statement]] = {
    **dict.fromkeys(("SELECT", "FROM", "VALUES", "TABLE", "("), parse_query),
    "WITH": _parse_after_with,
    "INSERT": parse_insert,
    "UPDATE": parse_update,
    "DELETE": parse_delete,
    "MERGE": parse_merge,
    "CREATE": parse_create_table,
    "ALTER": parse_alter_table,
    "DROP": parse_drop_table,
    "CALL": call,
    "SHOW": parse_show,
    **dict.fromkeys(("DESCRIBE", "DESC"), parse_describe),
}
