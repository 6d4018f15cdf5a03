"""The expected rows of a history, from a database without files and partitions: DuckDB in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp

_NO_ROWS = ("CALL ", "PARTITION FIELD", "TBLPROPERTIES ('format-version'")


def _connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE SCHEMA db; SET TimeZone = 'UTC'")
    return connection


@dataclass
class PlainDatabase:
    """Tables by their names in the catalog."""

    connection: duckdb.DuckDBPyConnection = field(default_factory=_connect)

    def run(self, text: str) -> None:
        """Run a Spark SQL statement, unless it only concerns files."""
        if any(words in text for words in _NO_ROWS) and not text.startswith("CREATE"):
            return
        statement = sqlglot.parse_one(text, read="spark")
        if isinstance(statement, exp.Create):
            statement.set("properties", None)
        self.connection.execute(statement.sql("duckdb"))

    def create_table(self, table: str, rows: pa.Table) -> None:
        """Create a table from existing rows."""
        self.connection.execute(f"CREATE TABLE {table} AS FROM rows")

    def rows(self, table: str) -> pa.Table:
        return self.connection.sql(f"FROM {table}").to_arrow_table()
