"""From text to a statement."""

from __future__ import annotations

from collections.abc import Callable

from neve.errors import UserError
from neve.sql.alter_table import alter_table
from neve.sql.call import call
from neve.sql.create_table import create_table, drop_table
from neve.sql.ctes import spread
from neve.sql.insert import insert
from neve.sql.merge import merge
from neve.sql.query import query
from neve.sql.reader import Reader
from neve.sql.show import describe, show
from neve.sql.statement import Statement
from neve.sql.update_delete import delete, update

_KNOWN = (
    "SELECT, WITH, VALUES, INSERT, UPDATE, DELETE, MERGE, CREATE TABLE, ALTER TABLE, DROP TABLE, CALL, SHOW TABLES, "
    "SHOW NAMESPACES and DESCRIBE"
)


def parse(text: str) -> Statement:
    """The statement that a text is; nothing is run."""
    if not isinstance(text, str):
        raise UserError(f"Give SQL as text, not as {type(text).__name__}.")
    reader = Reader.of(text)
    if any(word.says(";") for word in reader.words):
        raise reader.wrong("one statement at a time", next(word for word in reader.words if word.says(";")))
    read = _STATEMENTS.get(reader.word.value if reader.word is not None else "")
    if read is None:
        what = f"unknown statement {reader.word.text!r}" if reader.word is not None else "there is no statement"
        raise reader.wrong(f"{what}: known are {_KNOWN}")
    found = read(reader)
    reader.end()
    return found


def _with(reader: Reader) -> Statement:
    """Common table expressions come before a query, or before a change of rows."""
    ctes = reader.until("SELECT", "FROM", "VALUES", "INSERT", "UPDATE", "DELETE", "MERGE", what="a query")
    if reader.sees("INSERT"):
        return insert(reader).with_ctes(ctes)
    if reader.sees_one_of("UPDATE", "DELETE", "MERGE"):
        return _spread(ctes, reader)
    reader.at = 0
    return query(reader)


def _spread(ctes: str, reader: Reader) -> Statement:
    """A change of rows with common table expressions in its queries."""
    start = reader.at
    _STATEMENTS[reader.words[start].value](reader)  # what is wrong is told in the text as it was written
    reader.end()
    reader.at = start
    return parse(spread(ctes, reader.rest("a statement")))


_STATEMENTS: dict[str, Callable[[Reader], Statement]] = {
    **dict.fromkeys(("SELECT", "FROM", "VALUES", "TABLE", "("), query),
    "WITH": _with,
    "INSERT": insert,
    "UPDATE": update,
    "DELETE": delete,
    "MERGE": merge,
    "CREATE": create_table,
    "ALTER": alter_table,
    "DROP": drop_table,
    "CALL": call,
    "SHOW": show,
    **dict.fromkeys(("DESCRIBE", "DESC"), describe),
}
