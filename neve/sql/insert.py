"""INSERT INTO, INSERT OVERWRITE and INSERT … REPLACE WHERE.

`PARTITION (region = 'eu', day)` names columns that the default spec partitions by as they are. A column with a value
has it in every new row; the query gives the other columns, in the order of the table.

INSERT OVERWRITE replaces the partitions that the new rows belong to, or, with values in PARTITION, all rows that have
these values. If the session sets `spark.sql.sources.partitionOverwriteMode`, it decides as in Spark: `dynamic` always
replaces the partitions of the new rows, `static` all rows that have the values in PARTITION, or the whole table if
there are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from pyiceberg.expressions import And, BooleanExpression, EqualTo, IsNaN, IsNull
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from neve.errors import UnknownName, UserError
from neve.ops.context import LakeContext
from neve.ops.results import WriteResult
from neve.predicate.column_names import find_column
from neve.predicate.constants import parse_constant, parse_time_zone
from neve.predicate.normalize import make_expression
from neve.predicate.sql_text import parse_sql
from neve.run.spark.expressions import user_error_from_spark
from neve.run.spark.read_columns import column_by_name
from neve.run.spark.session import is_case_sensitive, quiet_errors
from neve.run.spark.store_assignment import assign_expression
from neve.run.spark.types import spark_type
from neve.sql.column_defaults import replace_default_words
from neve.sql.query import QUERY_KEYWORDS, open_query, query_text
from neve.sql.reader import Reader
from neve.sql.statement import Name, StatementOptions, table_and_branch
from neve.table import Table

_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"


@dataclass(frozen=True)
class PartitionValue:
    """The value that a partition column has in all new rows."""

    column: NestedField
    sql: str  # of the type of the column
    value: Any

    @classmethod
    def of(cls, lake: LakeContext, column: NestedField, text: str) -> PartitionValue:
        """Convert a constant as Spark does: to text, and from text to the type of the column."""
        clause = f"PARTITION ({column.name} = {text})"
        if parse_constant(parse_sql(text)[0], parse_time_zone(lake.time_zone())) is None:
            raise UserError(f"{clause}: give a constant.")
        kind = spark_type(column.field_type).simpleString()
        sql = f"try_cast(CAST({text} AS STRING) AS {kind})"
        try:
            with quiet_errors():
                values = lake.spark().sql(f"SELECT {text} IS NULL AS is_null, {sql} AS value").toArrow()
        except PySparkException as e:
            raise user_error_from_spark(clause, e) from e
        is_null, value = (column[0].as_py() for column in values.columns)
        if value is None and not is_null:
            raise UserError(f"{clause}: the column is of type {kind}, and {text} is no such value.")
        return cls(column, sql, value)

    @property
    def spark_column(self) -> Column:
        """The value as a column of the new rows."""
        return F.expr(self.sql).alias(self.column.name)

    @property
    def condition(self) -> BooleanExpression:
        """The condition on rows that have the value."""
        if self.value is None:
            return make_expression(IsNull, self.column.name)
        if self.value != self.value:
            return make_expression(IsNaN, self.column.name)
        return make_expression(EqualTo, self.column.name, self.value)


@dataclass(frozen=True)
class Insert:
    """`INSERT INTO t (columns) …`, `INSERT OVERWRITE t …` or `INSERT INTO t REPLACE WHERE … …`."""

    table: Name
    query: str
    columns: tuple[str, ...] = ()  # of the table, in the order of the query; empty: all
    matches_by_name: bool = False
    overwrites_partitions: bool = False
    replace_where: str | None = None
    partition: Mapping[str, str | None] = field(default_factory=dict)  # columns in PARTITION, with their values

    def run(self, lake: LakeContext, options: StatementOptions) -> WriteResult:
        """Write the rows of the query."""
        table, branch = table_and_branch(lake, self.table)
        replaces = self.overwrites_partitions or self.replace_where is not None
        chosen = options.require_only("INSERT", "branch", "snapshot_properties", *(["isolation"] if replaces else []))
        target: dict[str, Any] = {
            "branch": chosen.on_branch(branch).branch or "main",
            "snapshot_properties": chosen.snapshot_properties,
        }
        constants = self.partition_values(lake, table)
        with open_query(lake, self.query_for(table, constants)) as frame:
            rows = self._cast_to_table(frame, table, constants)
            if not replaces:
                return table.append(rows, **target)
            if self.replace_where is None and self.replaces_dynamically(lake, constants):
                return table.overwrite_partitions(rows, isolation=chosen.isolation, **target)
            return table.overwrite(rows, self.replaced_rows(constants), isolation=chosen.isolation, **target)

    def with_ctes(self, text: str) -> Insert:
        """Return the same statement with common table expressions before its query."""
        return replace(self, query=f"{text} {self.query}")

    def partition_values(self, lake: LakeContext, table: Table) -> dict[str, PartitionValue]:
        """Return the values in PARTITION by column; reject columns that the table is not partitioned by."""
        metadata, values = table.context.metadata, dict[str, PartitionValue]()
        sources = [f.source_id for f in metadata.spec().fields if isinstance(f.transform, IdentityTransform)]
        allowed = [f.name for f in table.schema.fields if f.field_id in sources]
        for name, text in self.partition.items():
            case_sensitive = is_case_sensitive(lake.spark())
            column = find_column(Schema(*(f for f in table.schema.fields if f.name in allowed)), name, case_sensitive)
            if column is None:
                raise UnknownName("partition column", name, allowed, f"table {table.name}")
            if text is not None:
                values[column.name] = PartitionValue.of(lake, column, text)
        return values

    def query_for(self, table: Table, constants: Mapping[str, PartitionValue]) -> str:
        """Return the query with the defaults of the columns that it fills by position."""
        if self.matches_by_name:
            return self.query
        columns = [find_column(table.schema, name, False) for name in self._columns_of_query(table, constants)]
        return replace_default_words(self.query, [column for column in columns if column is not None])

    def replaces_dynamically(self, lake: LakeContext, constants: Mapping[str, PartitionValue]) -> bool:
        """Return whether INSERT OVERWRITE replaces the partitions of the new rows."""
        mode = lake.spark().conf.get(_OVERWRITE_MODE, None)  # None: the session does not set it
        return not constants if mode is None else mode.lower() == "dynamic"

    def replaced_rows(self, constants: Mapping[str, PartitionValue]) -> str | BooleanExpression | None:
        """Return the condition on the rows that are replaced; None for all rows."""
        if self.replace_where is not None or not constants:
            return self.replace_where
        return reduce(And, (value.condition for value in constants.values()))

    def _columns_of_query(self, table: Table, constants: Mapping[str, PartitionValue]) -> list[str]:
        return list(self.columns) or [f.name for f in table.schema.fields if f.name not in constants]

    def _cast_to_table(self, frame: DataFrame, table: Table, constants: Mapping[str, PartitionValue]) -> DataFrame:
        """Give the rows the column names, by position unless they are matched by name, and types of the table."""
        names = frame.columns if self.matches_by_name else self._columns_of_query(table, constants)
        if len(names) != len(frame.columns):
            what = "INSERT names" if self.columns else f"Table {table.name} has"
            besides = " besides those with a value in PARTITION" if constants and not self.columns else ""
            raise UserError(f"{what} {len(names)} columns{besides}, but the query gives {len(frame.columns)}.")
        if twice := [n for n in names if [m.lower() for m in names].count(n.lower()) > 1]:
            raise UserError(f"INSERT into table {table.name} names the column {twice[0]!r} twice.")
        renamed, values = frame.toDF(*names), []
        fields = table.schema.fields
        exact, folded = {f.name: f for f in fields}, {f.name.lower(): f for f in reversed(fields)}
        for source in renamed.schema.fields:
            # An exact match wins over one that differs in case.
            column = exact.get(source.name) or folded.get(source.name.lower())
            if column is None:
                raise UnknownName("column", source.name, exact, f"table {table.name}")
            if column.name in constants:
                raise UserError(f"INSERT into table {table.name} gives column {column.name!r} again after PARTITION.")
            value = assign_expression(column_by_name(source.name), source.dataType, column, column.name)
            values.append(value.alias(column.name))
        return renamed.select(*values, *(value.spark_column for value in constants.values()))


def parse_insert(reader: Reader) -> Insert:
    """Parse an INSERT."""
    reader.expect("INSERT")
    overwrites = reader.take_if_next("OVERWRITE")
    if not overwrites:
        reader.expect("INTO")
    reader.take_if_next("TABLE")
    table, partition = reader.table_name(), _parse_partition(reader)
    by_name = reader.take_if_next("BY", "NAME")
    where = None
    if reader.take_if_next("REPLACE", "WHERE"):
        where = reader.expression("SELECT", "WITH", "VALUES", what="a condition")
    if where is not None and (overwrites or partition):
        problem = "takes no PARTITION (…)" if partition else "belongs to INSERT INTO"
        raise reader.syntax_error(f"REPLACE WHERE {problem}", reader.words[1])
    at, columns = reader.word, tuple[str, ...]()
    if reader.sees("(") and not any(reader.sees("(", word) for word in QUERY_KEYWORDS):
        columns = reader.bracketed_list(lambda: reader.name("a column"))
    if by_name and columns:
        raise reader.syntax_error("BY NAME takes no list of columns: the query names them", at)
    if not reader.sees_one_of(*QUERY_KEYWORDS):
        raise reader.syntax_error("expected VALUES or a query")
    return Insert(table, query_text(reader), columns, by_name, overwrites, where, partition)


def _parse_partition(reader: Reader) -> dict[str, str | None]:
    """Parse `PARTITION (a = 1, b)`, if it comes next."""
    partition: dict[str, str | None] = {}

    def parse_column() -> None:
        at, name = reader.word, reader.name("a partition column")
        if name.lower() in map(str.lower, partition):
            raise reader.syntax_error(f"PARTITION names {name!r} twice", at)
        is_static = reader.take_if_next("=")
        partition[name] = reader.expression(",", ")", what="a constant") if is_static else None

    if reader.take_if_next("PARTITION"):
        reader.bracketed_list(parse_column)
        if reader.sees("IF"):
            raise reader.syntax_error("IF NOT EXISTS is not supported for partitions")
    return partition
