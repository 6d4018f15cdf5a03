"""UPDATE, DELETE, INSERT INTO and INSERT OVERWRITE, and the assignments after SET."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.schema import Schema
from pyspark.sql import DataFrame

from neve.errors import UnknownName, UserError
from neve.ops.context import LakeContext
from neve.ops.results import DeleteResult, UpdateResult, WriteResult
from neve.predicate.column_names import join_name, split_name
from neve.run.spark.read_columns import column_by_name
from neve.run.spark.store_assignment import assign_expression
from neve.sql.query import QUERY_KEYWORDS, open_query, query_text
from neve.sql.reader import Reader
from neve.sql.statement import Name, StatementOptions, shorten_qualified_names, table_and_branch


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
        for each in self.assignments:
            statement = statement.set(each.column, each.value)
        return statement if self.where is None else statement.where(self.where)


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
        return statement if self.where is None else statement.where(self.where)


def parse_delete(reader: Reader) -> Delete:
    """Parse a DELETE."""
    reader.expect("DELETE", "FROM")
    table, alias = reader.table_name(), reader.alias()
    where = reader.expression(what="a condition") if reader.take_if_next("WHERE") else None
    reader.expect_end()
    if where is not None and alias is None:
        where = shorten_qualified_names(where, table)
    return Delete(table, where, alias)


@dataclass(frozen=True)
class Insert:
    """`INSERT INTO t (columns) …`, `INSERT OVERWRITE t …` or `INSERT INTO t REPLACE WHERE … …`."""

    table: Name
    query: str
    columns: tuple[str, ...] = ()  # of the table, in the order of the query; empty: all
    matches_by_name: bool = False
    overwrites_partitions: bool = False
    replace_where: str | None = None

    def run(self, lake: LakeContext, options: StatementOptions) -> WriteResult:
        """Write the rows of the query."""
        table, branch = table_and_branch(lake, self.table)
        replaces = self.overwrites_partitions or self.replace_where is not None
        chosen = options.require_only("INSERT", "branch", "snapshot_properties", *(["isolation"] if replaces else []))
        target: dict[str, Any] = {
            "branch": chosen.on_branch(branch).branch or "main",
            "snapshot_properties": chosen.snapshot_properties,
        }
        with open_query(lake, self.query) as frame:
            rows = self._cast_to_table(frame, table.schema, table.name)
            if self.replace_where is not None:
                return table.overwrite(rows, self.replace_where, isolation=chosen.isolation, **target)
            if self.overwrites_partitions:
                return table.overwrite_partitions(rows, isolation=chosen.isolation, **target)
            return table.append(rows, **target)

    def with_ctes(self, text: str) -> Insert:
        """Return the same statement with common table expressions before its query."""
        return replace(self, query=f"{text} {self.query}")

    def _cast_to_table(self, frame: DataFrame, schema: Schema, table: str) -> DataFrame:
        """Give the rows the column names, by position unless they are matched by name, and types of the table."""
        table_columns = list(self.columns) or [f.name for f in schema.fields]
        names = frame.columns if self.matches_by_name else table_columns
        if len(names) != len(frame.columns):
            what = "INSERT names" if self.columns else f"Table {table} has"
            raise UserError(f"{what} {len(names)} columns, but the query gives {len(frame.columns)}.")
        if twice := [n for n in names if [m.lower() for m in names].count(n.lower()) > 1]:
            raise UserError(f"INSERT into table {table} names the column {twice[0]!r} twice.")
        renamed, values = frame.toDF(*names), []
        exact, folded = {f.name: f for f in schema.fields}, {f.name.lower(): f for f in reversed(schema.fields)}
        for field in renamed.schema.fields:
            # An exact match wins over one that differs in case.
            column = exact.get(field.name) or folded.get(field.name.lower())
            if column is None:
                raise UnknownName("column", field.name, exact, f"table {table}")
            value = assign_expression(column_by_name(field.name), field.dataType, column, column.name)
            values.append(value.alias(column.name))
        return renamed.select(*values)


def parse_insert(reader: Reader) -> Insert:
    """Parse an INSERT."""
    reader.expect("INSERT")
    overwrites = reader.take_if_next("OVERWRITE")
    if not overwrites:
        reader.expect("INTO")
    reader.take_if_next("TABLE")
    table = reader.table_name()
    if reader.sees("PARTITION"):
        raise reader.syntax_error(
            "PARTITION (…) is not supported: use INSERT INTO t REPLACE WHERE …, or INSERT OVERWRITE without it, which "
            "replaces the partitions that the rows fall into"
        )
    by_name = reader.take_if_next("BY", "NAME")
    where = None
    if reader.take_if_next("REPLACE", "WHERE"):
        where = reader.expression("SELECT", "WITH", "VALUES", what="a condition")
    if where is not None and overwrites:
        raise reader.syntax_error("REPLACE WHERE belongs to INSERT INTO", reader.words[1])
    at, columns = reader.word, tuple[str, ...]()
    if reader.sees("(") and not any(reader.sees("(", word) for word in QUERY_KEYWORDS):
        columns = reader.bracketed_list(lambda: reader.name("a column"))
    if by_name and columns:
        raise reader.syntax_error("BY NAME takes no list of columns: the query names them", at)
    if not reader.sees_one_of(*QUERY_KEYWORDS):
        raise reader.syntax_error("expected VALUES or a query")
    return Insert(table, query_text(reader), columns, by_name, overwrites, where)
