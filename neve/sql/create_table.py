"""CREATE TABLE and DROP TABLE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql.types import StructField, StructType

from neve.errors import CommitUnknown
from neve.ops.context import LakeContext
from neve.ops.metadata.create_table import create_table as create_iceberg_table
from neve.ops.metadata.drop_table import drop_table as drop_iceberg_table
from neve.sql.alter_table import parse_properties
from neve.sql.query import open_query
from neve.sql.reader import Reader
from neve.sql.statement import Name, StatementOptions, find_table, identifier, table_finder
from neve.table import Table


@dataclass(frozen=True)
class CreateTable:
    """`CREATE TABLE t (…) PARTITIONED BY (…)`, or `CREATE TABLE t AS SELECT …`."""

    table: Name
    columns: str | None = None  # as they were written
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None
    query: str | None = None
    if_not_exists: bool = False

    def run(self, lake: LakeContext, options: StatementOptions) -> Table:
        """Create the table; with a query, fill it, and drop it again if the rows cannot be written."""
        options.require_only("CREATE TABLE")
        if self.if_not_exists and table_finder(lake)(self.table) is not None:
            return find_table(lake, self.table)
        if self.query is None:
            return self._create(lake, self.columns)
        with open_query(lake, self.query) as rows:
            nullable = StructType([StructField(f.name, f.dataType, True) for f in rows.schema.fields])
            table = self._create(lake, nullable)
            try:
                table.append(rows)
            except CommitUnknown:
                raise  # the rows may have been committed
            except BaseException:
                drop_iceberg_table(lake.catalog, identifier(lake, self.table))
                raise
            return table.refresh()

    def _create(self, lake: LakeContext, schema: str | StructType | None) -> Table:
        created = create_iceberg_table(
            lake,
            identifier(lake, self.table),
            schema,
            self.partition_by,
            location=self.location,
            properties=self.properties,
        )
        return Table(created)


def parse_create_table(reader: Reader) -> CreateTable:
    """Parse a CREATE TABLE; its clauses may come in any order."""
    reader.expect("CREATE")
    if reader.sees("OR", "REPLACE"):
        raise reader.syntax_error("OR REPLACE is not supported: drop the table first")
    reader.expect("TABLE")
    if_not_exists = reader.take_if_next("IF", "NOT", "EXISTS")
    table = reader.table_name()
    columns = reader.bracketed_text("columns") if reader.sees("(") else None
    partition_by, properties, location = _parse_clauses(reader)
    query = reader.remaining_text("a query") if reader.take_if_next("AS") else None
    if (columns is None) == (query is None):
        raise reader.syntax_error(
            "give the columns in parentheses, or a query after AS" + (", not both" if query else "")
        )
    reader.expect_end()
    return CreateTable(table, columns, partition_by, properties, location, query, if_not_exists)


def _parse_clauses(reader: Reader) -> tuple[tuple[str, ...], dict[str, str], str | None]:
    """Parse the clauses after the columns; each may come once."""
    partition_by: tuple[str, ...] = ()
    properties: dict[str, str] = {}
    location, seen = None, set[str]()
    while (at := reader.word) is not None and not reader.sees("AS"):
        if at.value in seen:
            raise reader.syntax_error(f"{at.value} is given twice")
        seen.add(at.value)
        if reader.take_if_next("USING"):
            reader.expect("ICEBERG")
        elif reader.take_if_next("PARTITIONED", "BY"):
            partition_by = reader.bracketed_list(lambda: reader.text_until(",", ")", what="a partition field"))
        elif reader.sees_one_of("TBLPROPERTIES", "COMMENT"):
            is_comment = not reader.take_if_next("TBLPROPERTIES") and reader.take_if_next("COMMENT")
            added = {"comment": reader.string("a comment")} if is_comment else parse_properties(reader)
            for name in properties.keys() & added.keys():
                raise reader.syntax_error(f"property {name!r} is given twice", at)
            properties |= added
        elif reader.take_if_next("LOCATION"):
            location = reader.string("a location")
        else:
            raise reader.syntax_error("expected USING iceberg, PARTITIONED BY, TBLPROPERTIES, COMMENT, LOCATION or AS")
    return partition_by, properties, location


@dataclass(frozen=True)
class DropTable:
    """`DROP TABLE t`; the files stay where they are, unless PURGE deletes them."""

    table: Name
    if_exists: bool = False
    purge: bool = False

    def run(self, lake: LakeContext, options: StatementOptions) -> None:
        """Remove the table from the catalog."""
        options.require_only("DROP TABLE")
        if not self.if_exists or table_finder(lake)(self.table) is not None:
            drop_iceberg_table(lake.catalog, identifier(lake, self.table), purge=self.purge)


def parse_drop_table(reader: Reader) -> DropTable:
    """Parse a DROP TABLE."""
    reader.expect("DROP", "TABLE")
    if_exists = reader.take_if_next("IF", "EXISTS")
    table = reader.table_name()
    purge = reader.take_if_next("PURGE")
    reader.expect_end()
    return DropTable(table, if_exists, purge)
