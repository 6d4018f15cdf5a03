"""CREATE TABLE.

DROP TABLE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql.types import StructField, StructType

from neve.errors import CommitUnknown
from neve.ops.context import LakeContext
from neve.ops.metadata.create_table import create_table as create_iceberg_table
from neve.ops.metadata.drop_table import drop_table as drop_iceberg_table
from neve.predicate.sql_text import Word
from neve.sql.alter_table import properties_in
from neve.sql.query import rows_of
from neve.sql.reader import Reader
from neve.sql.statement import Name, Options, find_in, identifier, table_named
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

    def run(self, lake: LakeContext, options: Options) -> Table:
        """Create the table; with a query, fill it."""
        options.only("CREATE TABLE")
        if self.if_not_exists and find_in(lake)(self.table) is not None:
            return table_named(lake, self.table)
        return self._made(lake, self.columns) if self.query is None else self._filled(lake, self.query)

    def _made(self, lake: LakeContext, schema: str | StructType | None) -> Table:
        created = create_iceberg_table(
            lake,
            identifier(lake, self.table),
            schema,
            self.partition_by,
            location=self.location,
            properties=self.properties,
        )
        return Table(created)

    def _filled(self, lake: LakeContext, query: str) -> Table:
        """The table with the rows of a query; it goes again when they cannot be written."""
        with rows_of(lake, query) as rows:
            nullable = StructType([StructField(f.name, f.dataType, True) for f in rows.schema.fields])
            made = self._made(lake, nullable)
            try:
                made.append(rows)
            except CommitUnknown:
                raise  # the rows may be in it
            except BaseException:
                drop_iceberg_table(lake.catalog, identifier(lake, self.table))
                raise
            return made.refresh()


def create_table(reader: Reader) -> CreateTable:
    """Read a CREATE TABLE; its clauses may come in any order."""
    reader.expect("CREATE")
    if reader.sees("OR", "REPLACE"):
        raise reader.wrong("OR REPLACE is not supported: drop the table first")
    reader.expect("TABLE")
    if_not_exists = reader.took("IF", "NOT", "EXISTS")
    table = reader.table_name()
    columns = reader.bracketed_text("columns") if reader.sees("(") else None
    partition_by, properties, location = _clauses(reader)
    query = reader.rest("a query") if reader.took("AS") else None
    if (columns is None) == (query is None):
        raise reader.wrong("give the columns in brackets, or a query after AS" + (", not both" if query else ""))
    reader.end()
    return CreateTable(table, columns, partition_by, properties, location, query, if_not_exists)


def _clauses(reader: Reader) -> tuple[tuple[str, ...], dict[str, str], str | None]:
    """What follows the columns; each clause comes once."""
    partition_by: tuple[str, ...] = ()
    properties: dict[str, str] = {}
    location, seen = None, set[str]()
    while (at := reader.word) is not None and not reader.sees("AS"):
        if at.value in seen:
            raise reader.wrong(f"{at.value} is given twice")
        seen.add(at.value)
        if reader.took("USING"):
            reader.expect("ICEBERG")
        elif reader.took("PARTITIONED", "BY"):
            partition_by = reader.in_brackets(lambda: reader.until(",", ")", what="a partition field"))
        elif reader.sees_one_of("TBLPROPERTIES", "COMMENT"):
            properties = _with_more(properties, reader, at)
        elif reader.took("LOCATION"):
            location = reader.string("a location")
        else:
            raise reader.wrong("expected USING iceberg, PARTITIONED BY, TBLPROPERTIES, COMMENT, LOCATION or AS")
    return partition_by, properties, location


def _with_more(properties: Mapping[str, str], reader: Reader, at: Word) -> dict[str, str]:
    """The properties with those of another clause; COMMENT is one of them."""
    is_comment = not reader.took("TBLPROPERTIES") and reader.took("COMMENT")
    more = {"comment": reader.string("a comment")} if is_comment else properties_in(reader)
    for name in properties.keys() & more.keys():
        raise reader.wrong(f"property {name!r} is given twice", at)
    return {**properties, **more}


@dataclass(frozen=True)
class DropTable:
    """`DROP TABLE t`; the files stay where they are, or are deleted with PURGE."""

    table: Name
    if_exists: bool = False
    purge: bool = False

    def run(self, lake: LakeContext, options: Options) -> None:
        """Forget the table."""
        options.only("DROP TABLE")
        if not self.if_exists or find_in(lake)(self.table) is not None:
            drop_iceberg_table(lake.catalog, identifier(lake, self.table), purge=self.purge)


def drop_table(reader: Reader) -> DropTable:
    """Read a DROP TABLE."""
    reader.expect("DROP", "TABLE")
    if_exists = reader.took("IF", "EXISTS")
    table = reader.table_name()
    purge = reader.took("PURGE")
    reader.end()
    return DropTable(table, if_exists, purge)
