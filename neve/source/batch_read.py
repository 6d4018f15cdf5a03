"""Batch reads: a scan planned where Spark plans, its tasks read by Python workers as Arrow batches.

Every column of the DataFrame is read: Spark 4.1 does not tell a Python source which ones a query needs. A schema given
to Spark's reader chooses columns, and the option `where` rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import And, BooleanExpression, LiteralPredicate, Or, SetPredicate
from pyiceberg.schema import Schema
from pyspark.sql import types as sp
from pyspark.sql.datasource import Filter, InputPartition

from neve.errors import TableError, UnknownName, UnsupportedFeature, UserError
from neve.ops.context import TableContext
from neve.ops.scan import Scan
from neve.plan.scan import METADATA_COLUMNS, ScanPlan
from neve.predicate import parse
from neve.predicate.normalize import all_of
from neve.run.read.metadata_columns import metadata_columns
from neve.run.read.scan import ScanReader
from neve.run.read.tasks import build_task_table, group_tasks, split_large_files
from neve.run.read.types import ArrowFlavor
from neve.run.spark.arrow_exchange import to_ipc
from neve.run.spark.types import spark_field, spark_schema
from neve.source.filters import expression_of, is_same_in_spark
from neve.source.options import ReadOptions, TableOptions
from neve.source.workers import ExecutorReader, PinnedState, RowReader


@dataclass(frozen=True)
class TableRead:
    """One state of a table: a DataFrame reads it, whatever is committed after the DataFrame was made."""

    table: TableOptions
    options: ReadOptions
    pin: PinnedState

    @classmethod
    def of(cls, table: TableOptions, options: ReadOptions, pin: PinnedState | None) -> TableRead:
        """The state that was found before, or else the one that the options name now."""
        if pin is None:
            found = Scan.of(table.context(), snapshot_id=options.snapshot_id, as_of=options.as_of, ref=options.ref)
            snapshot_id = None if found.snapshot is None else found.snapshot.snapshot_id
            pin = PinnedState(snapshot_id, found.schema.schema_id)
        return cls(table, options, pin)

    def plan(self, wanted: sp.StructType, filters: list[Filter] | None = None) -> ReadPlan:
        """The plan for the columns Spark wants; the filters leave out files and rows."""
        context = self.table.context()
        schema = pinned_schema(context, self.pin)
        refuse_other_types(wanted, schema, context)
        where = self._filter_expression(schema, filters or [])
        snapshot = None if self.pin.snapshot_id is None else context.snapshot(self.pin.snapshot_id)
        scan = Scan(context, snapshot, schema, where, tuple(wanted.names))
        return ReadPlan.of(scan.plan(), context, where, wanted.names, self.options.split_bytes)

    def _filter_expression(self, schema: Schema, filters: list[Filter]) -> BooleanExpression | None:
        text = self.options.where
        parts = [expression_of(filters, schema)]
        if text is not None:
            found = parse(text, schema, time_zone=self.table.connection.time_zone)
            if not found.is_exact:
                raise UserError(
                    f"Cannot read where {text}: the option where takes comparisons of columns with values only. "
                    "Apply other conditions to the DataFrame."
                )
            _refuse_converted_columns(found.expression, schema)
            parts.append(found.expression)
        said = [part for part in parts if part is not None]
        return all_of(said) if said else None


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
        where: BooleanExpression | None,
        names: list[str],
        split_bytes: int | None,
    ) -> ReadPlan:
        """A plan of one of a table's snapshots, ready to be read; `where` is applied to rows."""
        facts = replace(context.facts, specs=plan.files.specs)
        rows = RowReader(ScanReader.of(plan, facts, where, ArrowFlavor.SPARK), tuple(names))
        tasks = build_task_table(plan.files, plan.deletes, plan.attached)
        return cls(tasks, rows, split_bytes or context.properties.split_size)

    def task_groups(self) -> list[bytes]:
        """The tasks in groups that are worth a task of Spark's."""
        if not self.tasks.num_rows:
            return []
        return [
            to_ipc(group) for group in group_tasks(split_large_files(self.tasks, self.split_bytes), self.split_bytes)
        ]


def _refuse_converted_columns(where: BooleanExpression, schema: Schema) -> None:
    """Refuse to compare values that Spark is shown otherwise than they are stored: rows are compared as shown."""
    for name in _compared_columns(where):
        f = schema.find_field(name)
        if not is_same_in_spark(f):
            raise UnsupportedFeature(
                f"Option 'where': column {f.name!r} of type {f.field_type} is another type in Spark. "
                "Filter the DataFrame instead, with .where(…)."
            )


def _compared_columns(expression: BooleanExpression) -> Iterator[str]:
    """The columns that are compared with values."""
    if isinstance(expression, And | Or):
        yield from _compared_columns(expression.left)
        yield from _compared_columns(expression.right)
    elif isinstance(expression, LiteralPredicate | SetPredicate):
        yield expression.term.name  # type: ignore[attr-defined]


class TableReader(ExecutorReader):
    """Reads one state of a table. Conditions of the query are left to Spark."""

    def __init__(self, read: TableRead, schema: sp.StructType) -> None:
        self._read, self._schema = read, schema
        self._plan([])

    def partitions(self) -> list[InputPartition]:
        """The tasks of the scan."""
        return [InputPartition(parcel) for parcel in self._planned.task_groups()]

    def _plan(self, filters: list[Filter]) -> None:
        self._planned = self._read.plan(self._schema, filters)
        self._rows = self._planned.row_reader

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return ExecutorReader, (self._rows,)  # it travels to be read from


class FilteringReader(TableReader):
    """Reads one state of a table, with the conditions Spark hands over to leave out files and rows.

    Spark 4.1 keeps what was planned last for a DataFrame and uses it for every query over that DataFrame: with filters
    in it, another query gets too few rows. So this reader is for DataFrames that are read in one query only.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        """Take the filters; Spark applies all of them again."""
        self._plan(list(filters))
        return filters


def pinned_schema(context: TableContext, pin: PinnedState) -> Schema:
    """The columns of a table in one state."""
    found = next((s for s in context.metadata.schemas if s.schema_id == pin.schema_id), None)
    if found is None:
        raise TableError(
            f"Table {context.name} no longer has the columns it was loaded with: schema {pin.schema_id} was removed. "
            "Load it anew; a stream goes on from its checkpoint."
        )
    return found


def refuse_other_types(requested_schema: sp.StructType, schema: Schema, context: TableContext) -> None:
    """Refuse columns the table does not have, or has in another type."""
    known = {f.name: f for f in spark_schema(schema).fields}
    hidden = metadata_columns(context.specs)
    made = {name: spark_field(hidden[name]) for name in METADATA_COLUMNS if name not in known}
    for field in requested_schema.fields:
        found = known.get(field.name) or made.get(field.name)
        if found is None:
            raise UnknownName("column", field.name, [*known, *made], f"table {context.name}")
        if found.dataType.simpleString() != field.dataType.simpleString():
            raise UserError(
                f"Column {field.name!r} of table {context.name} is {found.dataType.simpleString()}, not "
                f"{field.dataType.simpleString()}. Read it as it is and cast it in the query."
            )
