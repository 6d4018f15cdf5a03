"""UPDATE and DELETE, and the assignments after SET."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neve.ops.context import LakeContext
from neve.ops.results import DeleteResult, UpdateResult
from neve.predicate.column_names import join_name, quote_name, split_name
from neve.sql.query import prepare_text
from neve.sql.reader import Reader
from neve.sql.statement import (
    Name,
    StatementOptions,
    default_alias,
    shorten_qualified_names,
    table_and_branch,
)


@dataclass(frozen=True)
class Assignment:
    """A column or a field of a struct, and the expression assigned to it."""

    column: str
    value: str

    def with_short_names(self, table: Name) -> Assignment:
        """Replace the full name of a table before columns by its last part."""
        parts, length = split_name(self.column), len(table)
        is_long = 1 < length < len(parts) and [p.lower() for p in parts[:length]] == [p.lower() for p in table]
        column = join_name(parts[length:]) if is_long else self.column
        return Assignment(column, shorten_qualified_names(self.value, table))


def parse_set_clause(reader: Reader, *stops: str) -> tuple[Assignment, ...]:
    """Parse assignments separated by commas, up to one of these keywords."""
    seen: set[str] = set()

    def one() -> Assignment:
        at, column = reader.word, join_name(reader.dotted_name("a column"))
        reader.expect("=")
        value = reader.expression(",", *stops, what="an expression")
        if column.lower() in seen:
            raise reader.syntax_error(f"column {column!r} is assigned twice", at)
        seen.add(column.lower())
        return Assignment(column, value)

    return reader.comma_list(one)


@dataclass(frozen=True)
class Update:
    """`UPDATE t SET a = …, b = … WHERE …`."""

    table: Name
    assignments: tuple[Assignment, ...]
    where: str | None = None
    alias: str | None = None

    def run(self, lake: LakeContext, options: StatementOptions) -> UpdateResult:
        """Change the rows."""
        return self.builder(lake, options).execute()

    def builder(self, lake: LakeContext, options: StatementOptions) -> Any:
        """Return the statement as a builder of the API, not yet executed."""
        table, branch = table_and_branch(lake, self.table)
        statement = options.on_branch(branch).apply_to(table.update())
        if self.alias is not None:
            statement = statement.alias(self.alias)
        prepare = preparation_of(lake, self.table, self.alias)
        for each in self.assignments:
            statement = statement.set(each.column, prepare(each.value))
        return statement if self.where is None else statement.where(prepare(self.where))


def preparation_of(lake: LakeContext, table: Name, alias: str | None) -> Callable[[str], str]:
    """Return a function that prepares expressions on the rows of a table."""
    outer_from = f"FROM {join_name(table)} AS {quote_name(alias or default_alias(table))}"
    return lambda text: prepare_text(lake, text, outer_from)


def parse_update(reader: Reader) -> Update:
    """Parse an UPDATE."""
    reader.expect("UPDATE")
    table, alias = reader.table_name(), reader.alias()
    reader.expect("SET")
    assignments = parse_set_clause(reader, "WHERE")
    where = reader.expression(what="a condition") if reader.take_if_next("WHERE") else None
    if alias is None:
        assignments = tuple(each.with_short_names(table) for each in assignments)
        where = None if where is None else shorten_qualified_names(where, table)
    return Update(table, assignments, where, alias)


@dataclass(frozen=True)
class Delete:
    """`DELETE FROM t WHERE …`."""

    table: Name
    where: str | None = None
    alias: str | None = None

    def run(self, lake: LakeContext, options: StatementOptions) -> DeleteResult:
        """Delete the rows."""
        return self.builder(lake, options).execute()

    def builder(self, lake: LakeContext, options: StatementOptions) -> Any:
        """Return the statement as a builder of the API, not yet executed."""
        table, branch = table_and_branch(lake, self.table)
        statement = options.on_branch(branch).apply_to(table.delete())
        if self.alias is not None:
            statement = statement.alias(self.alias)
        prepare = preparation_of(lake, self.table, self.alias)
        return statement if self.where is None else statement.where(prepare(self.where))


def parse_delete(reader: Reader) -> Delete:
    """Parse a DELETE."""
    reader.expect("DELETE", "FROM")
    table, alias = reader.table_name(), reader.alias()
    where = reader.expression(what="a condition") if reader.take_if_next("WHERE") else None
    reader.expect_end()
    if where is not None and alias is None:
        where = shorten_qualified_names(where, table)
    return Delete(table, where, alias)
