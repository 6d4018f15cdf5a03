"""INSERT INTO and INSERT OVERWRITE."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyspark.sql import DataFrame

from neve.errors import UnknownName, UserError
from neve.ops.context import LakeContext
from neve.ops.results import WriteResult
from neve.run.spark.read_columns import column_by_name
from neve.run.spark.store_assignment import assign_expression
from neve.sql.query import QUERY_KEYWORDS, open_query, query_text
from neve.sql.reader import Reader
from neve.sql.statement import Name, StatementOptions, table_and_branch


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
        """Give the rows the column names and types of the table."""
        renamed = self._rename_columns(frame, schema, table)
        values = []
        for field in renamed.schema.fields:
            column = _find_column(schema, field.name, table)
            value = assign_expression(column_by_name(field.name), field.dataType, column, column.name)
            values.append(value.alias(column.name))
        return renamed.select(*values)

    def _rename_columns(self, frame: DataFrame, schema: Schema, table: str) -> DataFrame:
        """Rename the columns of the rows to those of the table: by position, unless they are matched by name."""
        table_columns = list(self.columns) or [f.name for f in schema.fields]
        names = frame.columns if self.matches_by_name else table_columns
        if len(names) != len(frame.columns):
            what = "INSERT names" if self.columns else f"Table {table} has"
            raise UserError(f"{what} {len(names)} columns, but the query gives {len(frame.columns)}.")
        if twice := [n for n in names if [m.lower() for m in names].count(n.lower()) > 1]:
            raise UserError(f"INSERT into table {table} names the column {twice[0]!r} twice.")
        return frame.toDF(*names)


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


def _find_column(schema: Schema, name: str, table: str) -> NestedField:
    """Find a column of the table; an exact match wins over one that differs in case."""
    columns = {f.name: f for f in schema.fields}
    column = columns.get(name) or next((f for f in schema.fields if f.name.lower() == name.lower()), None)
    if column is None:
        raise UnknownName("column", name, columns, f"table {table}")
    return column
