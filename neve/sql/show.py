"""SHOW TABLES, SHOW NAMESPACES and DESCRIBE: what a lake has, and what a table is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.types import NestedField

from neve.errors import UnsupportedFeature
from neve.ops.context import LakeContext
from neve.run.spark.types import spark_field
from neve.sql.reader import Reader
from neve.sql.statement import Name, StatementOptions, find_table
from neve.table import Table


@dataclass(frozen=True)
class ShowTables:
    """`SHOW TABLES [IN db]`."""

    namespace: str | None = None

    def run(self, lake: LakeContext, options: StatementOptions) -> pa.Table:
        """The tables of the lake, or of a namespace of it."""
        options.require_only("SHOW TABLES")
        split = [name.rpartition(".") for name in lake.table_names(self.namespace)]
        return pa.table(
            {"namespace": [n for n, _, _ in split], "tableName": [t for _, _, t in split]}, schema=_TABLES_SCHEMA
        )


@dataclass(frozen=True)
class ShowNamespaces:
    """`SHOW NAMESPACES`, or `DATABASES` or `SCHEMAS`."""

    def run(self, lake: LakeContext, options: StatementOptions) -> pa.Table:
        """The namespaces of the lake."""
        options.require_only("SHOW NAMESPACES")
        return pa.table({"namespace": pa.array(sorted(map(".".join, lake.catalog.list_namespaces())), pa.string())})


@dataclass(frozen=True)
class Describe:
    """`DESCRIBE [TABLE] [EXTENDED] t`."""

    table: Name
    is_extended: bool = False

    def run(self, lake: LakeContext, options: StatementOptions) -> pa.Table:
        """The columns of a table and how it is partitioned; extended: where it lies and its properties too."""
        options.require_only("DESCRIBE")
        found = find_table(lake, self.table)
        rows = [*_columns(found), *_partition_rows(found), *(_detail_rows(found) if self.is_extended else ())]
        return pa.Table.from_pylist(
            [dict(zip(_DESCRIBE_SCHEMA.names, row, strict=True)) for row in rows], _DESCRIBE_SCHEMA
        )


_TABLES_SCHEMA = pa.schema([("namespace", pa.string()), ("tableName", pa.string())])
_DESCRIBE_SCHEMA = pa.schema([("col_name", pa.string()), ("data_type", pa.string()), ("comment", pa.string())])
DescribeRow = tuple[str, str, str | None]


def _columns(table: Table) -> Iterator[DescribeRow]:
    for field in table.schema.fields:
        yield field.name, _spark_type_name(field), field.doc


def _spark_type_name(field: NestedField) -> str:
    """A type in Spark's words; one that Spark does not have in those of Iceberg."""
    try:
        return spark_field(field).dataType.simpleString()
    except UnsupportedFeature:
        return str(field.field_type)


def _partition_rows(table: Table) -> Iterator[DescribeRow]:
    """The default spec, as Spark shows it."""
    metadata = table.context.metadata
    for at, field in enumerate(metadata.spec().fields):
        if at == 0:
            yield "# Partitioning", "", None
        source = metadata.schema().find_column_name(field.source_id) or field.name
        yield f"Part {at}", source if str(field.transform) == "identity" else f"{field.transform}({source})", None


def _detail_rows(table: Table) -> Iterator[DescribeRow]:
    metadata = table.context.metadata
    yield "# Detailed Table Information", "", None
    yield "Name", table.name, None
    yield "Location", metadata.location, None
    yield "Format version", str(metadata.format_version), None
    for name, value in sorted(metadata.properties.items()):
        yield name, value, None


def parse_show(reader: Reader) -> ShowTables | ShowNamespaces:
    """Read a SHOW."""
    reader.expect("SHOW")
    if reader.take_if_next("NAMESPACES") or reader.take_if_next("DATABASES") or reader.take_if_next("SCHEMAS"):
        return ShowNamespaces()
    if not reader.take_if_next("TABLES"):
        raise reader.syntax_error("expected TABLES or NAMESPACES")
    if reader.take_if_next("IN") or reader.take_if_next("FROM"):
        return ShowTables(".".join(reader.dotted_name("a namespace")))
    return ShowTables()


def parse_describe(reader: Reader) -> Describe:
    """Read a DESCRIBE."""
    if not reader.take_if_next("DESCRIBE"):
        reader.expect("DESC")
    reader.take_if_next("TABLE")
    is_extended = reader.take_if_next("EXTENDED")
    return Describe(reader.table_name(), is_extended)
