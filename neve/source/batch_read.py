"""Batch reads: a scan is planned where Spark plans, and Python workers read its tasks as Arrow batches.

All columns of the DataFrame are read, because Spark 4.1 does not tell a Python source which columns a query needs. A
schema passed to Spark's reader selects columns, and the option `where` selects rows.

Filters that Spark pushes down become expressions for planning and reading. Spark applies every filter again to the
rows, so a filter that has no exact expression is left out. So is a filter on a column whose values are different in
Spark (a uuid is text, nanoseconds are microseconds): it would compare other values than the table has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyiceberg import expressions as ice
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, NestedField
from pyspark.sql import datasource as spark
from pyspark.sql import types as sp

from neve.errors import TableError, UnknownName, UnsupportedFeature, UserError
from neve.ops.context import TableContext
from neve.ops.scan import Scan
from neve.plan.scan import METADATA_COLUMNS, ScanPlan
from neve.predicate import parse
from neve.predicate.normalize import all_of, compared_columns, make_expression, normalize_expression
from neve.run.read.metadata_columns import metadata_columns
from neve.run.read.scan import ScanReader
from neve.run.read.tasks import build_task_table, group_tasks, split_large_files
from neve.run.read.types import ArrowFlavor, arrow_type
from neve.run.spark.arrow_exchange import to_ipc
from neve.run.spark.types import spark_field, spark_schema
from neve.source.options import ReadOptions, TableOptions
from neve.source.workers import ExecutorReader, PinnedState, RowReader

_COMPARISONS: dict[type[spark.Filter], Any] = {
    spark.EqualTo: ice.EqualTo,
    spark.EqualNullSafe: ice.EqualTo,
    spark.In: ice.In,
    spark.GreaterThan: ice.GreaterThan,
    spark.GreaterThanOrEqual: ice.GreaterThanOrEqual,
    spark.LessThan: ice.LessThan,
    spark.LessThanOrEqual: ice.LessThanOrEqual,
    spark.StringStartsWith: ice.StartsWith,
}


@dataclass(frozen=True)
class TableRead:
    """The state of a table that a DataFrame reads. Later commits do not change it."""

    table: TableOptions
    options: ReadOptions
    pin: PinnedState

    @classmethod
    def of(cls, table: TableOptions, options: ReadOptions, pin: PinnedState | None) -> TableRead:
        """Use the pinned state, or else the state that the options select now."""
        if pin is None:
            scan = Scan.of(table.context(), snapshot_id=options.snapshot_id, as_of=options.as_of, ref=options.ref)
            snapshot_id = None if scan.snapshot is None else scan.snapshot.snapshot_id
            pin = PinnedState(snapshot_id, scan.schema.schema_id)
        return cls(table, options, pin)

    def plan(self, requested: sp.StructType, filters: list[spark.Filter] | None = None) -> ReadPlan:
        """Plan a read of the requested columns; the filters leave out files and rows."""
        context = self.table.context()
        schema = pinned_schema(context, self.pin)
        refuse_other_types(requested, schema, context)
        where = self._filter_expression(schema, filters or [])
        snapshot = None if self.pin.snapshot_id is None else context.snapshot(self.pin.snapshot_id)
        scan = Scan(context, snapshot, schema, where, tuple(requested.names))
        return ReadPlan.of(scan.plan(), context, where, requested.names, self.options.split_bytes)

    def _filter_expression(self, schema: Schema, filters: list[spark.Filter]) -> ice.BooleanExpression | None:
        converted = (_to_expression(spark_filter, schema) for spark_filter in filters)
        parts = [expression for expression in converted if expression is not None]
        if (text := self.options.where) is not None:
            condition = parse(text, schema, time_zone=self.table.connection.time_zone)
            if not condition.is_exact:
                raise UserError(
                    f"Cannot read where {text}: the option where takes comparisons of columns with values only. "
                    "Apply other conditions to the DataFrame."
                )
            _refuse_converted_columns(condition.expression, schema)
            parts.append(condition.expression)
        return all_of(parts) if parts else None


@dataclass(frozen=True)
class ReadPlan:
    """The tasks of a scan, and how each of them is read."""

    tasks: pa.Table
    row_reader: RowReader
    split_bytes: int

    @classmethod
    def of(
        cls,
        plan: ScanPlan,
        context: TableContext,
        where: ice.BooleanExpression | None,
        names: list[str],
        split_bytes: int | None,
    ) -> ReadPlan:
        """Prepare the plan of a scan for reading; `where` is applied to rows."""
        facts = replace(context.facts, specs=plan.files.specs)
        rows = RowReader(ScanReader.of(plan, facts, where, ArrowFlavor.SPARK), tuple(names))
        tasks = build_task_table(plan.files, plan.deletes, plan.attached)
        return cls(tasks, rows, split_bytes or context.properties.split_size)

    def task_groups(self) -> list[bytes]:
        """Group the tasks; each group becomes one Spark task."""
        if not self.tasks.num_rows:
            return []
        tasks = split_large_files(self.tasks, self.split_bytes)
        return [to_ipc(group) for group in group_tasks(tasks, self.split_bytes)]


def _refuse_converted_columns(where: ice.BooleanExpression, schema: Schema) -> None:
    """Reject comparisons with columns whose values are different in Spark: rows are compared as Spark sees them."""
    for field in compared_columns(where, schema):
        if not _is_same_in_spark(field):
            raise UnsupportedFeature(
                f"Option 'where': column {field.name!r} of type {field.field_type} has another type in Spark. "
                "Filter the DataFrame instead, with .where(…)."
            )


class TableReader(ExecutorReader):
    """Reads one state of a table; Spark applies the conditions of the query."""

    def __init__(self, read: TableRead, schema: sp.StructType) -> None:
        self._read, self._schema = read, schema
        self._plan([])

    def partitions(self) -> list[spark.InputPartition]:
        """Return the tasks of the scan."""
        return [spark.InputPartition(group) for group in self._read_plan.task_groups()]

    def _plan(self, filters: list[spark.Filter]) -> None:
        self._read_plan = self._read.plan(self._schema, filters)
        self._rows = self._read_plan.row_reader

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return ExecutorReader, (self._rows,)  # executors get only the part that reads rows


class FilteringReader(TableReader):
    """Reads one state of a table, and uses the filters that Spark pushes down to leave out files and rows.

    Spark 4.1 caches the last plan of a DataFrame and reuses it for every query over that DataFrame. If the plan has
    filters, another query gets too few rows. So this reader is only for DataFrames that are read in one query.
    """

    def pushFilters(self, filters: list[spark.Filter]) -> list[spark.Filter]:  # noqa: N802
        """Plan with the filters; return all of them, so that Spark applies them again."""
        self._plan(list(filters))
        return filters


def pinned_schema(context: TableContext, pin: PinnedState) -> Schema:
    """Return the schema of a table in the pinned state."""
    schema = context.metadata.schema_by_id(pin.schema_id)
    if schema is None:
        raise TableError(
            f"Table {context.name} no longer has the columns it was loaded with: schema {pin.schema_id} was removed. "
            "Load it again; a stream continues from its checkpoint."
        )
    return schema


def refuse_other_types(requested_schema: sp.StructType, schema: Schema, context: TableContext) -> None:
    """Reject columns that the table does not have, or has with another type."""
    columns, hidden = {f.name: f for f in spark_schema(schema).fields}, metadata_columns(context.specs)
    columns |= {name: spark_field(hidden[name]) for name in METADATA_COLUMNS if name not in columns}
    for field in requested_schema.fields:
        if field.name not in columns:
            raise UnknownName("column", field.name, list(columns), f"table {context.name}")
        own_type, requested_type = columns[field.name].dataType.simpleString(), field.dataType.simpleString()
        if own_type != requested_type:
            raise UserError(
                f"Column {field.name!r} of table {context.name} is {own_type}, not {requested_type}. "
                "Read it as it is and cast it in the query."
            )


def _to_expression(spark_filter: spark.Filter, schema: Schema) -> ice.BooleanExpression | None:
    """Convert a filter to a normalized expression; None if it has no exact one."""
    try:
        expression = _convert(spark_filter, schema)
        return None if expression is None else normalize_expression(expression, schema)
    except (UserError, ValueError, TypeError, ArithmeticError):  # a value that the column cannot be compared with
        return None


def _convert(spark_filter: Any, schema: Schema) -> ice.BooleanExpression | None:
    if isinstance(spark_filter, spark.Not):
        match spark_filter.child:
            # NOT (x <=> 1) matches null, and NOT (x IN (1, null)) matches nothing; negated expressions do neither
            case spark.EqualNullSafe(value=value) if value is not None:
                return None
            case spark.In(value=values) if None in values:
                return None
        expression = _convert(spark_filter.child, schema)
        return None if expression is None else ~expression
    field = schema.find_field(".".join(spark_filter.attribute))
    name = ice.Reference(schema.find_column_name(field.field_id) or "")
    match spark_filter:
        case spark.IsNull() | spark.EqualNullSafe(value=None):
            return make_expression(ice.IsNull, name)
        case spark.IsNotNull():
            return make_expression(ice.NotNull, name)
    return _comparison(name, spark_filter, field) if _is_same_in_spark(field) else None


def _comparison(name: ice.Reference, spark_filter: Any, field: NestedField) -> ice.BooleanExpression | None:
    comparison, value = _COMPARISONS.get(type(spark_filter)), spark_filter.value
    if comparison is None or value is None:
        return None
    if isinstance(spark_filter, spark.In):
        return comparison(name, {_literal_value(v, field) for v in value if v is not None})
    return comparison(name, _literal_value(value, field))


def _is_same_in_spark(field: NestedField) -> bool:
    """Return whether Spark has the values of a column in the same form as the table."""
    kind = field.field_type
    return kind.is_primitive and arrow_type(kind, ArrowFlavor.SPARK) == arrow_type(kind, ArrowFlavor.EXACT)


def _literal_value(value: Any, field: NestedField) -> Any:
    """Convert a value to what PyIceberg's literals accept: a decimal gets the scale of its column."""
    if isinstance(value, Decimal) and isinstance(field.field_type, DecimalType):
        exact = value.quantize(Decimal(1).scaleb(-field.field_type.scale))
        if exact != value:
            raise ValueError("a decimal of another scale")
        return exact
    return value
