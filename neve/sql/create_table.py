"""CREATE TABLE, also AS SELECT and LIKE, REPLACE TABLE and DROP TABLE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyspark.sql.types import StructType

from neve.errors import CommitUnknown
from neve.model.properties import properties_of
from neve.model.replacement import Replacement
from neve.ops.context import LakeContext
from neve.ops.metadata.create_table import columns_of, schema_of
from neve.ops.metadata.create_table import create_table as create_iceberg_table
from neve.ops.metadata.drop_table import drop_table as drop_iceberg_table
from neve.ops.write.replace_table import ReplaceTable as ReplaceRows
from neve.ops.write.replace_table import replace_definition, replacement_of
from neve.predicate.constants import parse_time_zone
from neve.sql.alter_table import parse_properties
from neve.sql.column_defaults import schema_with_defaults
from neve.sql.query import open_query, open_query_and_tables
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
        chosen = options.require_only("CREATE TABLE", *(["snapshot_properties"] if self.query is not None else []))
        if self.if_not_exists and table_finder(lake)(self.table) is not None:
            return find_table(lake, self.table)
        if self.query is None:
            return self._create(lake, self.schema(lake))
        with open_query(lake, self.query) as rows:
            table = self._create(lake, columns_of(rows))
            try:
                table.append(rows, snapshot_properties=chosen.snapshot_properties)
            except CommitUnknown:
                raise  # the rows may have been committed
            except BaseException:
                drop_iceberg_table(lake.catalog, identifier(lake, self.table))
                raise
            return table.refresh()

    def schema(self, lake: LakeContext, format_version: int | None = None) -> Schema:
        """Return the columns with their defaults, for a format version or that of the properties."""
        version = properties_of(dict(self.properties)).format_version if format_version is None else format_version
        return schema_with_defaults(self.columns or "", parse_time_zone(lake.time_zone()), version)

    def _create(self, lake: LakeContext, schema: Schema | StructType) -> Table:
        created = create_iceberg_table(
            lake,
            identifier(lake, self.table),
            schema,
            self.partition_by,
            location=self.location,
            properties=self.properties,
        )
        return Table(created)


@dataclass(frozen=True)
class CreateTableLike:
    """`CREATE TABLE t LIKE u`: the columns, the partitioning, the order and the comment of another table."""

    table: Name
    source: Name
    properties: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None
    if_not_exists: bool = False

    def run(self, lake: LakeContext, options: StatementOptions) -> Table:
        """Create the table without rows; as in Spark, it gets no other property of the source."""
        options.require_only("CREATE TABLE")
        if self.if_not_exists and table_finder(lake)(self.table) is not None:
            return find_table(lake, self.table)
        source = find_table(lake, self.source).context.metadata
        kept = {"format-version": str(source.format_version)}
        if "comment" in source.properties:
            kept["comment"] = source.properties["comment"]
        created = create_iceberg_table(
            lake,
            identifier(lake, self.table),
            source.schema(),
            PartitionSpec(*(f for f in source.spec().fields if str(f.transform) != "void")),
            sort_order=source.sort_order(),
            location=self.location,
            properties={**kept, **self.properties},
        )
        return Table(created)


@dataclass(frozen=True)
class ReplaceTable:
    """`CREATE OR REPLACE TABLE t …` or `REPLACE TABLE t …`, with columns or AS SELECT."""

    new: CreateTable
    must_exist: bool = False

    def run(self, lake: LakeContext, options: StatementOptions) -> Table:
        """Replace the definition and the rows in one commit; the history of the table stays."""
        chosen = options.require_only("REPLACE TABLE", *(["snapshot_properties"] if self.new.query is not None else []))
        if not self.must_exist and table_finder(lake)(self.new.table) is None:
            return self.new.run(lake, options)
        table = find_table(lake, self.new.table)
        if self.new.query is None:
            keeps_version = "format-version" not in self.new.properties
            schema = self.new.schema(lake, table.context.metadata.format_version if keeps_version else None)
            replacement = self._replacement(table, schema)
            replace_definition(
                table.context, lambda metadata: (replacement.requirements(metadata), replacement.updates(metadata))
            )
            return table.refresh()
        with open_query_and_tables(lake, self.new.query) as (rows, tables):
            version = properties_of(self.new.properties).format_version
            replacement = self._replacement(table, schema_of(columns_of(rows), version))
            reads_itself = any(read.is_of(table.context) for read in tables)
            properties = chosen.snapshot_properties
            ReplaceRows(table.context, rows, reads_itself, replacement=replacement, properties=properties).execute()
        return table.refresh()

    def _replacement(self, table: Table, schema: Schema) -> Replacement:
        new = self.new
        return replacement_of(table.context, schema, new.partition_by, new.properties, new.location)


def parse_create_table(reader: Reader) -> CreateTable | CreateTableLike | ReplaceTable:
    """Parse a CREATE TABLE or a CREATE OR REPLACE TABLE; the clauses may come in any order."""
    reader.expect("CREATE")
    replaces = reader.take_if_next("OR", "REPLACE")
    reader.expect("TABLE")
    if_not_exists = not replaces and reader.take_if_next("IF", "NOT", "EXISTS")
    table = reader.table_name()
    if not replaces and reader.take_if_next("LIKE"):
        source = reader.table_name()
        at = reader.word
        partition_by, properties, location = _parse_clauses(reader)
        if partition_by:
            raise reader.syntax_error("a table LIKE another one is partitioned like it", at)
        reader.expect_end()
        return CreateTableLike(table, source, properties, location, if_not_exists)
    created = replace(_parse_definition(reader, table), if_not_exists=if_not_exists)
    return ReplaceTable(created) if replaces else created


def parse_replace_table(reader: Reader) -> ReplaceTable:
    """Parse a REPLACE TABLE."""
    reader.expect("REPLACE", "TABLE")
    return ReplaceTable(_parse_definition(reader, reader.table_name()), must_exist=True)


def _parse_definition(reader: Reader, table: Name) -> CreateTable:
    """Parse what follows the name of a table: columns, clauses and a query."""
    columns = reader.bracketed_text("columns") if reader.sees("(") else None
    partition_by, properties, location = _parse_clauses(reader)
    query = reader.remaining_text("a query") if reader.take_if_next("AS") else None
    if (columns is None) == (query is None):
        raise reader.syntax_error(
            "give the columns in parentheses, or a query after AS" + (", not both" if query else "")
        )
    reader.expect_end()
    return CreateTable(table, columns, partition_by, properties, location, query)


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
